//! Compares a stored spec with a new one, and marks the changes that widen access.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::output::format::plain;
use runyard_core::model::{
    Containers, FieldError, InstanceTypes, Keep, LabelMode, LaunchTemplate, PoolSpec, RegistrationMode,
    ReuseWithin, SetScope, WriteFrom,
};

/// The longest shown value, in characters.
const SHOWN: usize = 160;

/// A field whose value changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Its name, for example `max` or `launch.ami`.
    pub(crate) field: String,
    /// Its value so far; null if it has none.
    old: Value,
    /// Its new value; null if it has none.
    new: Value,
    /// Why the change needs `--allow-widening`, if it does.
    pub(crate) widens: Option<&'static str>,
}

impl Changed {
    /// Formats the change as `max 3 → 5`.
    pub(super) fn told(&self) -> String {
        format!("{} {} → {}", self.field, shown(&self.old), shown(&self.new))
    }

    /// Formats the change for programs.
    pub(super) fn document(&self) -> Value {
        json!({"field": self.field, "old": self.old, "new": self.new, "widens": self.widens})
    }

    /// Returns the error for this change, if it needs a flag that was not given.
    pub(super) fn refused(&self, path: &str) -> Option<FieldError> {
        let why = self.widens?;
        let message = format!("{why}: it is {} now", shown(&self.old));
        let fix = "write the field as it is to be, or add --allow-widening to change it";
        Some(FieldError::new(format!("{path}{}", self.field), shown(&self.new), message, fix))
    }
}

/// The fields that a spec names itself. The others are defaults that nobody chose.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// All fields, present and absent: the class is changed field by field.
    All,
    /// These top-level fields of a file.
    Fields(BTreeSet<String>),
}

impl Says {
    /// Returns the fields of a file's entry.
    pub(super) fn of(entry: &Value) -> Self {
        Self::Fields(entry.as_object().into_iter().flat_map(Map::keys).cloned().collect())
    }

    /// Returns all fields, for a class that is changed field by field; `max` only if `says_max`.
    pub(super) fn all(says_max: bool) -> Self {
        let names =
            crate::pools::spec::NAMES.iter().filter(|name| **name != "max").map(|name| (*name).to_owned());
        if says_max { Self::All } else { Self::Fields(names.collect()) }
    }

    /// Returns whether the top-level field of a path is named.
    pub(super) fn names(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Fields(fields) => fields.contains(path.split_once('.').map_or(path, |(top, _)| top)),
        }
    }
}

/// Returns the differences between two specs of a class. A field that the newer spec does not name falls back to its
/// default, probably by mistake, so it needs the flag whatever it is.
pub(super) fn between(old: &PoolSpec, new: &PoolSpec, says: &Says) -> Vec<Changed> {
    let (before, after) = (fields(old), fields(new));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let changed = differing.map(|name| Changed {
        field: name.clone(),
        old: before.get(name).cloned().unwrap_or_default(),
        new: after.get(name).cloned().unwrap_or_default(),
        widens: widens(name, old, new).or_else(|| forgotten(name, says)),
    });
    changed.collect()
}

/// Returns the fields of a spec; nested fields have their path as name.
fn fields(spec: &PoolSpec) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Ok(Value::Object(map)) = serde_json::to_value(spec) {
        spread("", map, &mut fields);
    }
    // The absent attribute has its own name.
    fields.entry("registeredAhead").or_insert_with(|| "auto".into());
    fields
}

fn spread(path: &str, map: Map<String, Value>, into: &mut Map<String, Value>) {
    for (name, value) in map {
        let path = format!("{path}{name}");
        match value {
            Value::Object(inner) => spread(&format!("{path}."), inner, into),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                into.insert(path, value);
            }
        }
    }
}

/// Returns why a change of this field widens access or ends a capability of the class.
fn widens(field: &str, old: &PoolSpec, new: &PoolSpec) -> Option<&'static str> {
    let launches = |spec: &PoolSpec| spec.launch != LaunchTemplate::default();
    let (is, why) = match field {
        "repositories" => (!old.covers(&new.repositories), "lets more repositories in"),
        "reuseWithin" => (
            reach(new.reuse_within) > reach(old.reuse_within),
            "lets more share a machine, one after the other",
        ),
        "registrationMode" => (
            (old.registration_mode, new.registration_mode) == (RegistrationMode::Job, RegistrationMode::Run),
            "lets a runner serve more than one job",
        ),
        "labelMode" => (
            (old.label_mode, new.label_mode) == (LabelMode::Secret, LabelMode::Run),
            "lets jobs ask for machines by a label that anybody can guess",
        ),
        "queue.runLabels" => (
            new.serves_labels().is_some() && old.serves_labels().is_none(),
            "lets jobs get machines by their label alone, without a job that asks",
        ),
        "queue.labels" => (
            new.set_label_beyond(old).is_some(),
            "lets any job with such a label get a machine, and GitHub decides which: the run is no boundary between jobs \
             of one trust domain",
        ),
        "queue.scope" => (
            reaches_organization(new) && !reaches_organization(old),
            "lets jobs of every repository of the organisation get its machines, and GitHub decides which: the run is no \
             boundary between jobs of one trust domain",
        ),
        "queue.forks" => {
            (forks(new) && !forks(old), "lets pull requests from forks, code of strangers, get machines")
        }
        "requestTypes" => (lets_choose_more(old, new), "lets requests choose more types"),
        "keep" => (keeps_of_more(&old.keep, &new.keep), "keeps what runs of more branches write"),
        "jobs.root" => (new.jobs.root && !old.jobs.root, "lets jobs become root on their machine"),
        "jobs.containers" => match new.jobs.containers {
            Containers::Nothing => (false, ""),
            Containers::Rootless => (old.jobs.containers == Containers::Nothing, "lets jobs run containers"),
            Containers::Engine => (true, "lets jobs become root on their machine by its container engine"),
        },
        "launch.securityGroupIds" => {
            let dropped = new.launch.security_group_ids.is_empty() && new.launch.launch_template_id.is_none();
            (dropped, "drops the security groups")
        }
        _ => (field.starts_with("launch.") && launches(old) && !launches(new), "drops launch"),
    };
    is.then_some(why)
}

/// Returns why the change of a field that a file leaves out needs the flag.
fn forgotten(field: &str, says: &Says) -> Option<&'static str> {
    match field {
        _ if says.names(field) => None,
        "max" => Some("lets max fall back to its default"),
        _ => Some("is not in the file, and falls back to its default"),
    }
}

/// Returns whether the class's queue admits jobs of pull requests from forks.
fn forks(spec: &PoolSpec) -> bool {
    spec.queue.as_ref().is_some_and(|queue| queue.forks)
}

/// Returns whether jobs of all repositories of an organisation come to the class's scale sets.
fn reaches_organization(spec: &PoolSpec) -> bool {
    match spec.serves_sets().and_then(|queue| queue.scope) {
        Some(SetScope::Organization) => true,
        Some(SetScope::Repository) | None => false,
    }
}

/// Returns whether a directory that is kept already accepts changes from more branches.
fn keeps_of_more(old: &[Keep], new: &[Keep]) -> bool {
    let narrow = |keep: &&Keep| keep.write_from == WriteFrom::DefaultBranch;
    let was = |one: &Keep| old.iter().filter(narrow).any(|keep| keep.name == one.name);
    new.iter().any(|keep| keep.write_from == WriteFrom::Protected && was(keep))
}

/// Returns whether a request may choose a type that it could not choose before.
fn lets_choose_more(old: &PoolSpec, new: &PoolSpec) -> bool {
    let any = InstanceTypes(vec!["*".to_owned()]);
    let chosen = if new.requestable().0.is_empty() { &any } else { new.requestable() };
    // If a class names no types, its size limits them.
    let freed = old.largest_chosen() != (None, None) && new.largest_chosen() == (None, None);
    freed || old.beyond_requestable(chosen).is_some()
}

const fn reach(within: ReuseWithin) -> u8 {
    match within {
        ReuseWithin::Never => 0,
        ReuseWithin::Repository => 1,
        ReuseWithin::Owner => 2,
        ReuseWithin::Any => 3,
    }
}

/// Formats a value for people.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "none".into(),
        Value::String(text) => plain(text),
        Value::Array(list) if list.iter().all(Value::is_string) && !list.is_empty() => {
            list.iter().map(shown).collect::<Vec<_>>().join(" ")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => plain(&value.to_string()),
    };
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(value: Value) -> PoolSpec {
        let mut spec = json!({"resourceClass": "a", "max": 3});
        spec.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn told(old: Value, new: Value, says_max: bool) -> (Vec<String>, Vec<String>) {
        let says = Says::all(says_max);
        let changed = between(&spec(old), &spec(new), &says);
        let widening = changed.iter().filter(|one| one.widens.is_some()).map(|one| one.field.clone());
        (changed.iter().map(Changed::told).collect(), widening.collect())
    }

    #[test]
    fn a_change_is_told_by_field_with_its_value_before_and_after() {
        let old = json!({"launch": {"ami": "ami-0123456789abcdef0"}, "labels": ["x", "y"], "max": 3});
        let new = json!({"launch": {"ami": "ami-0123456789abcdef1"}, "max": 5, "maxUses": 2});
        let (changes, widening) = told(old, new, true);
        assert_eq!(
            changes,
            [
                "labels x y → none",
                "launch.ami ami-0123456789abcdef0 → ami-0123456789abcdef1",
                "max 3 → 5",
                "maxUses none → 2"
            ]
        );
        assert_eq!(widening, [""; 0]);
        assert_eq!(told(json!({}), json!({}), false), (vec![], vec![]));
    }

    #[test]
    fn a_forgotten_registered_ahead_is_told_as_auto() {
        for (old, new, change) in [
            (json!({"registeredAhead": false}), json!({}), "registeredAhead false → auto"),
            (json!({}), json!({"registeredAhead": false}), "registeredAhead auto → false"),
        ] {
            assert_eq!(told(old, new, true), (vec![change.to_owned()], vec![]));
        }
        assert_eq!(told(json!({}), json!({"registeredAhead": "auto"}), true).0, [""; 0]);
    }

    #[test]
    fn a_volume_and_tags_are_told_field_by_field() {
        let launch =
            |more: Value| json!({"launch": {"ami": "ami-01234567", "volume": {"gib": 40}, "tags": more}});
        let (old, new) =
            (launch(json!({"team": "web"})), launch(json!({"team": "api", "CostCenter": "4711"})));
        let (changes, widening) = told(old, new, true);
        assert_eq!(changes, ["launch.tags.CostCenter none → 4711", "launch.tags.team web → api"]);
        assert_eq!(widening, [""; 0]);
    }

    #[test]
    fn what_lets_more_in_is_marked_and_what_lets_less_in_is_not() {
        for (field, narrow, wide) in [
            ("repositories", json!(["acme/*"]), json!(["*"])),
            ("repositories", json!(["acme/web"]), json!(["acme/web", "acme/api"])),
            ("reuseWithin", json!("none"), json!("repository")),
            ("reuseWithin", json!("owner"), json!("any")),
            ("registrationMode", json!("job"), json!("run")),
            ("labelMode", json!("secret"), json!("run")),
            ("requestTypes", json!(["m7i.large"]), json!(["m7i.*"])),
            ("requestTypes", json!(["m7i.large"]), json!(["*"])),
        ] {
            let (narrow, wide) = (json!({field: narrow}), json!({field: wide}));
            assert_eq!(told(narrow.clone(), wide.clone(), true).1, [field], "{narrow} {wide}");
            assert_eq!(told(wide.clone(), narrow.clone(), true).1, [""; 0], "{wide} {narrow}");
        }
        let sized = |more: Value| {
            let mut fields = json!({"cpu": 2});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fields
        };
        let of_pool = |more: Value| {
            let mut fields = json!({"allowedInstanceTypes": ["m7i.*"]});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fields
        };
        for (old, new, widens) in [
            (json!({"requestTypes": ["m7i.*"]}), json!({}), true),
            (of_pool(json!({})), of_pool(json!({"requestTypes": ["m7i.large"]})), false),
            (of_pool(json!({})), of_pool(json!({"requestTypes": ["c7i.large"]})), true),
            (of_pool(json!({"requestTypes": ["m7i.large"]})), of_pool(json!({})), true),
            (sized(json!({})), sized(json!({"requestTypes": ["m7i.*"]})), true),
        ] {
            let marked = told(old.clone(), new.clone(), true).1;
            assert_eq!(marked == ["requestTypes"], widens, "{old} {new}: {marked:?}");
        }
        let same_owner = (json!({"repositories": ["acme/*"]}), json!({"repositories": ["Acme/web"]}));
        assert_eq!(told(same_owner.0, same_owner.1, true).1, [""; 0]);
    }

    #[test]
    fn more_rights_for_jobs_are_marked_and_fewer_are_not() {
        for (field, less, more) in [
            ("jobs.root", json!({}), json!({"root": true})),
            ("jobs.containers", json!({}), json!({"containers": "rootless"})),
            ("jobs.containers", json!({"containers": "rootless"}), json!({"containers": "engine"})),
        ] {
            let (less, more) = (json!({"jobs": less}), json!({"jobs": more}));
            assert_eq!(told(less.clone(), more.clone(), true).1, [field], "{less} {more}");
            assert_eq!(told(more, less, true).1, [""; 0]);
        }
        let changed = told(json!({}), json!({"jobs": {"environment": {"HTTPS_PROXY": "http://p:1"}}}), true);
        assert_eq!(changed, (vec!["jobs.environment.HTTPS_PROXY none → http://p:1".to_owned()], vec![]));
    }

    #[test]
    fn machines_for_jobs_that_do_not_ask_are_marked_and_fewer_are_not() {
        let queue = |more: Value| json!({"queue": more});
        let off = queue(json!({"runLabels": false}));
        let on = queue(json!({"runLabels": true, "maxSlots": 8}));
        let forks = queue(json!({"runLabels": true, "maxSlots": 8, "forks": true}));
        for (less, more, field) in [
            (json!({}), on.clone(), "queue.runLabels"),
            (off.clone(), on.clone(), "queue.runLabels"),
            (on.clone(), forks.clone(), "queue.forks"),
        ] {
            assert_eq!(told(less.clone(), more.clone(), true).1, [field], "{less} {more}");
            assert_eq!(told(more.clone(), less.clone(), true).1, [""; 0], "{more} {less}");
        }
        assert_eq!(told(json!({}), forks, true).1, ["queue.forks", "queue.runLabels"]);
        assert_eq!(told(json!({}), off, true), (vec!["queue.runLabels none → false".to_owned()], vec![]));
        let more = told(on, queue(json!({"runLabels": true, "maxSlots": 40})), true);
        assert_eq!(more, (vec!["queue.maxSlots 8 → 40".to_owned()], vec![]), "max bounds it as well");
    }

    #[test]
    fn a_scale_set_and_a_wider_one_are_marked_and_a_narrower_one_is_not() {
        let queue = |labels: &[&str], scope: &str| json!({"queue": {"labels": labels, "scope": scope}});
        let (none, one) = (json!({}), queue(&["small"], "repository"));
        let two = queue(&["small", "gpu"], "repository");
        let organization = queue(&["small"], "organization");
        for (less, more, fields) in [
            (none.clone(), one.clone(), &["queue.labels"][..]),
            (none, organization.clone(), &["queue.labels", "queue.scope"]),
            (one.clone(), two.clone(), &["queue.labels"]),
            (one.clone(), organization.clone(), &["queue.scope"]),
            (two, queue(&["large"], "repository"), &["queue.labels"]),
        ] {
            assert_eq!(told(less.clone(), more.clone(), true).1, fields, "{less} {more}");
        }
        assert_eq!(told(organization, one.clone(), true).1, [""; 0]);
        assert_eq!(told(one.clone(), queue(&["SMALL"], "repository"), true).1, [""; 0]);
        let mut slots = one.clone();
        slots["queue"].as_object_mut().unwrap().extend([
            ("standing".to_owned(), json!(2)),
            ("maxSlots".to_owned(), json!(8)),
            ("unusedSeconds".to_owned(), json!(900)),
        ]);
        let changed =
            ["queue.maxSlots none → 8", "queue.standing none → 2", "queue.unusedSeconds none → 900"];
        assert_eq!(told(one, slots, true), (changed.map(str::to_owned).to_vec(), vec![]));
    }

    #[test]
    fn dropping_launch_and_a_max_that_nobody_says_are_marked() {
        let launch = json!({"launch": {"ami": "ami-01234567", "subnetIds": ["subnet-01234567"]}});
        assert_eq!(told(launch.clone(), json!({}), true).1, ["launch.ami", "launch.subnetIds"]);
        assert_eq!(told(launch, json!({"launch": {"launchTemplateId": "lt-01234567"}}), true).1, [""; 0]);
        let groups = json!({"launch": {"ami": "ami-01234567", "securityGroupIds": ["sg-01234567"]}});
        let without = json!({"launch": {"ami": "ami-01234567"}});
        assert_eq!(told(groups, without, true).1, ["launch.securityGroupIds"]);
        assert_eq!(told(json!({"max": 3}), json!({"max": 100}), false).1, ["max"]);
        assert_eq!(told(json!({"max": 3}), json!({"max": 100}), true).1, [""; 0]);
    }

    #[test]
    fn a_field_that_a_file_forgot_is_marked_whatever_it_is_and_one_that_it_says_is_not() {
        let stored = json!({
            "cpu": 2, "mmem": 4096, "sharing": {"by": "repository"}, "maxUses": 5, "maxAgeSeconds": 3600,
            "jobs": {"environment": {"HTTPS_PROXY": "http://p:1"}}, "labels": ["x"], "max": 8,
            "keep": [{"name": "cargo", "path": "/c"}], "queue": {"runLabels": true, "maxSlots": 4,
                "labels": ["small"], "scope": "repository", "standing": 1},
        });
        let forgets = |file: Value| -> Vec<String> {
            let changed = between(&spec(stored.clone()), &spec(file.clone()), &Says::of(&file));
            changed.into_iter().filter(|one| one.widens.is_some()).map(|one| one.field).collect()
        };
        let all = forgets(json!({"max": 5}));
        for field in
            ["cpu", "mmem", "maxUses", "maxAgeSeconds", "labels", "keep", "jobs.environment.HTTPS_PROXY"]
        {
            assert!(all.iter().any(|one| one == field), "{field}: {all:?}");
        }
        for field in
            ["sharing", "queue.runLabels", "queue.maxSlots", "queue.labels", "queue.scope", "queue.standing"]
        {
            assert!(all.iter().any(|one| one.starts_with(field)), "{field}: {all:?}");
        }
        assert!(!all.iter().any(|one| one == "max"), "the file says it");
        let mut said = stored.clone();
        said["cpu"] = json!(4);
        assert_eq!(forgets(said), [""; 0]);
    }
}
