//! Which runner scale sets a class has at GitHub, and which classes can have one.

use std::ops::RangeInclusive;

use super::queue::{Queue, SetScope};
use super::{LabelMode, PoolSpec};
use crate::model::record::bounds::MOST_MACHINES;
use crate::model::record::field::FieldError;
use crate::model::record::ids::{ClassName, Repository};
use crate::model::record::set_place::SetPlace;
use crate::model::record::state::{RegistrationMode, ReuseWithin};
use crate::model::record::time::Seconds;

/// Most labels of a set.
const MOST_LABELS: usize = 10;
/// Longest label of a set, in characters.
const LONGEST_LABEL: usize = 100;
/// How long an unused runner may be let wait, in seconds. A shorter time would end runners that a job is on its way to.
const UNUSED_SECONDS: RangeInclusive<Seconds> = 60..=86_400;
/// The labels of GitHub and of Runyard that sets of several classes may share: they choose no set by themselves.
const SHARED: [&str; 5] = ["self-hosted", "linux", "x64", "arm64", "runyard"];

impl PoolSpec {
    /// Returns the settings of the class's scale sets; none where it has none.
    #[must_use]
    pub fn serves_sets(&self) -> Option<&Queue> {
        self.queue.as_ref().filter(|queue| !queue.labels.is_empty())
    }

    /// Returns a label of the class's scale sets that those of another spec of it do not have.
    #[must_use]
    pub fn set_label_beyond(&self, other: &Self) -> Option<&str> {
        let known = |label: &&String| {
            let theirs = other.serves_sets().map(|queue| queue.labels.iter());
            theirs.into_iter().flatten().any(|one| one.eq_ignore_ascii_case(label))
        };
        self.serves_sets()?.labels.iter().find(|label| !known(label)).map(String::as_str)
    }

    /// Returns where the class has its scale sets.
    #[must_use]
    pub fn set_places(&self) -> Vec<SetPlace> {
        let Some(scope) = self.serves_sets().and_then(|queue| queue.scope) else { return Vec::new() };
        let place = |glob: &String| match scope {
            SetScope::Organization => SetPlace::organization(glob.strip_suffix("/*")?).ok(),
            SetScope::Repository => {
                Repository::parse_at_github(glob).ok().map(|one| SetPlace::repository(&one))
            }
        };
        let mut places: Vec<SetPlace> = self.repositories.iter().filter_map(place).collect();
        places.sort();
        places.dedup();
        places
    }

    /// Returns a label that a scale set of each of two classes has at the same place: GitHub would choose between them.
    #[must_use]
    pub fn shares_a_set_label(&self, other: &Self) -> Option<&str> {
        let (ours, theirs) = (self.serves_sets()?, other.serves_sets()?);
        let owners = |spec: &Self| spec.set_places().into_iter().map(|at| at.of_slots().owner().to_owned());
        owners(other).any(|owner| owners(self).any(|own| own == owner)).then_some(())?;
        let theirs = |label: &&String| theirs.labels.iter().any(|other| other.eq_ignore_ascii_case(label));
        let shared = |label: &&String| SHARED.iter().any(|known| known.eq_ignore_ascii_case(label));
        ours.labels.iter().filter(|label| !shared(label)).find(theirs).map(String::as_str)
    }

    /// Returns the class that has the set with a label of this one, and the label: of such classes the first by name has it.
    pub fn loses_its_set_to<'a>(
        &'a self,
        classes: impl IntoIterator<Item = &'a Self>,
    ) -> Option<(&'a ClassName, &'a str)> {
        let before = classes.into_iter().filter(|other| other.resource_class < self.resource_class);
        before.into_iter().find_map(|other| Some((&other.resource_class, self.shares_a_set_label(other)?)))
    }

    /// Checks that the class can have its scale sets.
    ///
    /// # Errors
    /// Names the setting that they contradict.
    pub(super) fn check_sets(&self) -> Result<(), FieldError> {
        let refuse = |field: &'static str, value: &str, message: &'static str, fix: &'static str| {
            Err(FieldError::new(field, value, message, fix))
        };
        let Some(queue) = self.serves_sets() else {
            let scope = self.queue.as_ref().and_then(|queue| queue.scope);
            return scope.map_or(Ok(()), |scope| {
                let fix = "add queue.labels, such as [runyard-small], or leave queue.scope out";
                refuse("queue.scope", &scope.to_string(), "says where scale sets are, and there is none", fix)
            });
        };
        if queue.labels.len() > MOST_LABELS {
            let count = queue.labels.len().to_string();
            return refuse("queue.labels", &count, "a set has 1 to 10 labels", "leave some out");
        }
        let own = |label: &&String| !SHARED.iter().any(|known| known.eq_ignore_ascii_case(label));
        if queue.labels.first().is_none_or(|first| !own(&first)) {
            let (first, fix) =
                (queue.labels.first().map_or("", String::as_str), "begin with a label such as runyard-small");
            return refuse(
                "queue.labels",
                first,
                "the first label is the set's name, which no other runner has",
                fix,
            );
        }
        let wrong = |label: &&String| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            label.is_empty() || label.len() > LONGEST_LABEL || !label.chars().all(fits)
        };
        if let Some(label) = queue.labels.iter().find(wrong) {
            return refuse(
                "queue.labels",
                label,
                "not a label of a set",
                "use 1 to 100 of A-Z, a-z, 0-9, _, . and -",
            );
        }
        if self.registration_mode != RegistrationMode::Job {
            let fix = "set registrationMode to job";
            return refuse(
                "queue.labels",
                &queue.labels[0],
                "runners of a scale set serve one job each",
                fix,
            );
        }
        if self.label_mode == LabelMode::Secret {
            let fix = "set labelMode to run, or leave queue.labels out";
            return refuse("queue.labels", &queue.labels[0], "cannot be combined with labelMode secret", fix);
        }
        let Some(scope) = queue.scope else {
            let fix = "set it to organization or repository";
            return refuse("queue.scope", "", "says where the scale set of queue.labels is", fix);
        };
        let (within, scope_word) = (self.reuse_within, scope.to_string());
        let (fits, fix) = match scope {
            SetScope::Organization => (
                matches!(within, ReuseWithin::Owner | ReuseWithin::Never),
                "set reuseWithin to owner or none: jobs of any repository of the organisation come to its machines",
            ),
            SetScope::Repository => (
                matches!(within, ReuseWithin::Repository | ReuseWithin::Never),
                "set reuseWithin to repository or none",
            ),
        };
        if !fits {
            return refuse("queue.scope", &scope_word, "contradicts reuseWithin", fix);
        }
        if scope == SetScope::Organization && !self.keep.is_empty() {
            let fix = "leave keep out, or set queue.scope to repository";
            return refuse(
                "queue.scope",
                &scope_word,
                "contradicts keep, which keeps files for a repository",
                fix,
            );
        }
        let named = |glob: &&String| match scope {
            SetScope::Organization => {
                glob.strip_suffix("/*").is_none_or(|owner| SetPlace::organization(owner).is_err())
            }
            SetScope::Repository => Repository::parse_at_github(glob).is_err(),
        };
        if let Some(glob) = self.repositories.iter().find(named) {
            return match scope {
                SetScope::Organization => refuse(
                    "repositories",
                    glob,
                    "a set of an organisation serves all of its repositories",
                    "use OWNER/*",
                ),
                SetScope::Repository => refuse(
                    "repositories",
                    glob,
                    "a set of a repository needs the repository's name",
                    "use OWNER/REPO, without *",
                ),
            };
        }
        if !(1..=MOST_MACHINES).contains(&queue.max_slots) {
            return refuse(
                "queue.maxSlots",
                &queue.max_slots.to_string(),
                "not within 1 to 500",
                "use 1 to 500",
            );
        }
        if !UNUSED_SECONDS.contains(&queue.unused_seconds) {
            let seconds = queue.unused_seconds.to_string();
            return refuse("queue.unusedSeconds", &seconds, "not within 60 to 86400", "use 60 to 86400");
        }
        if queue.standing > queue.max_slots.min(self.max) {
            let standing = queue.standing.to_string();
            return refuse(
                "queue.standing",
                &standing,
                "more than queue.maxSlots or max",
                "lower it, or raise those",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(more: serde_json::Value) -> PoolSpec {
        let mut fields = json!({
            "resourceClass": "small", "repositories": ["acme/*"], "reuseWithin": "owner", "registrationMode": "job",
            "queue": {"labels": ["runyard-small", "linux"], "scope": "organization"},
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(fields).unwrap()
    }

    fn places(spec: &PoolSpec) -> Vec<String> {
        spec.set_places().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_class_has_a_set_in_each_place_that_it_admits() {
        let organizations = spec(json!({"repositories": ["acme/*", "Acme/*", "other/*"]}));
        assert_eq!(
            (places(&organizations), organizations.check_queue()),
            (vec!["acme".into(), "other".into()], Ok(()))
        );
        let queue = json!({"labels": ["runyard-small"], "scope": "repository"});
        let of =
            json!({"repositories": ["acme/Web", "acme/api"], "reuseWithin": "repository", "queue": queue});
        let repositories = spec(of);
        assert_eq!(places(&repositories), ["acme/api", "acme/web"]);
        assert_eq!(repositories.check_queue(), Ok(()));
        assert_eq!(places(&spec(json!({"queue": {"runLabels": true}}))), [""; 0]);
    }

    #[test]
    fn a_class_that_cannot_have_a_set_is_refused_by_the_name_of_the_setting() {
        let queue = |more: serde_json::Value| {
            let mut queue = json!({"labels": ["runyard-small"], "scope": "organization"});
            queue.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "queue": queue })
        };
        let eleven: Vec<String> = (0..11).map(|n| format!("l{n}")).collect();
        for (more, field) in [
            (json!({"registrationMode": "run"}), "queue.labels"),
            (json!({"labelMode": "secret"}), "queue.labels"),
            (json!({"reuseWithin": "any"}), "queue.scope"),
            (json!({"reuseWithin": "repository"}), "queue.scope"),
            (json!({"repositories": ["*"]}), "repositories"),
            (json!({"repositories": ["acme/web"]}), "repositories"),
            (json!({"repositories": ["acme/w*"]}), "repositories"),
            (json!({"keep": [{"name": "cache", "path": "/cache"}]}), "queue.scope"),
            (queue(json!({"labels": ["linux", "runyard-small"]})), "queue.labels"),
            (queue(json!({"labels": ["a b"]})), "queue.labels"),
            (queue(json!({"labels": [""]})), "queue.labels"),
            (queue(json!({"labels": eleven})), "queue.labels"),
            (queue(json!({"scope": null})), "queue.scope"),
            (queue(json!({"scope": "repository"})), "queue.scope"),
            (queue(json!({"standing": 9, "maxSlots": 8})), "queue.standing"),
            (queue(json!({"maxSlots": 0})), "queue.maxSlots"),
            (queue(json!({"unusedSeconds": 59})), "queue.unusedSeconds"),
            (queue(json!({"unusedSeconds": 86_401})), "queue.unusedSeconds"),
            (json!({"queue": {"scope": "organization"}}), "queue.scope"),
        ] {
            let checked = spec(more.clone()).check_queue();
            assert_eq!(checked.map_err(|error| error.field), Err(field.into()), "{more}");
        }
    }

    #[test]
    fn two_classes_may_share_none_but_the_usual_labels() {
        let other = |labels: serde_json::Value, repositories: serde_json::Value| {
            let queue = json!({"labels": labels, "scope": "organization"});
            spec(json!({"resourceClass": "large", "repositories": repositories, "queue": queue}))
        };
        let small = spec(json!({}));
        let shares = |other: &PoolSpec| small.shares_a_set_label(other).map(str::to_owned);
        assert_eq!(shares(&other(json!(["Runyard-Small"]), json!(["acme/*"]))), Some("runyard-small".into()));
        assert_eq!(shares(&other(json!(["runyard-large", "Linux"]), json!(["acme/*"]))), None);
        assert_eq!(shares(&other(json!(["runyard-small"]), json!(["other/*"]))), None);
    }
}
