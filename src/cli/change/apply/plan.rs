//! Plans the write of a spec: compares the stored record with the wanted one, shows the changes by field, and writes on
//! the version that was read.

use serde_json::{Value, json};

use super::change::{Changed, Says, between};
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::pools::{sets, spec};
use crate::session::context::{AuditEvent, CliContext, number, readable, text};
use runyard_core::model::{ClassName, Guard, Instance, Item, Kind, Pool, PoolSpec, RecordId, Write, millis};
use runyard_core::ports::StoreError;

/// Maximum length of the changes in an event, in characters.
const TOLD: usize = 2000;

/// A spec that is to be stored.
pub(crate) struct Wanted {
    pub(super) spec: PoolSpec,
    /// The fields that it names itself.
    pub(super) says: Says,
    /// The prefix of its fields' names in errors.
    pub(super) path: String,
}

impl Wanted {
    /// Returns the key of its record.
    pub(super) fn key(&self) -> RecordId {
        Pool::key_of(&self.spec.resource_class)
    }

    /// Plans the write of the spec over the stored record.
    pub(super) fn plan(&self, before: Option<&Item>) -> CliResult<Planned> {
        let pool: Option<Pool> = before.map(readable).transpose()?;
        let changes = pool.as_ref().map(|pool| between(&pool.spec, &self.spec, &self.says));
        Ok(Planned {
            key: self.key(),
            version: pool.as_ref().map_or(0, |pool| pool.version),
            guard: pool.as_ref().map(Guard::image),
            after: with_spec(before, &self.key(), &self.spec),
            before: before.cloned(),
            changes: changes.unwrap_or_default(),
            default_max: (!self.says.names("max")).then_some(self.spec.max),
            reuse: pool
                .as_ref()
                .filter(|pool| pool.spec.reuse_within != self.spec.reuse_within)
                .map(|_| self.spec.clone()),
            sets: adds_a_set(pool.as_ref().map(|pool| &pool.spec), &self.spec).then(|| self.spec.clone()),
            path: self.path.clone(),
        })
    }
}

/// The planned write of one pool.
pub(crate) struct Planned {
    key: RecordId,
    version: u64,
    /// The condition on the replaced record; `None` for a new record.
    guard: Option<Guard>,
    before: Option<Item>,
    after: Item,
    changes: Vec<Changed>,
    default_max: Option<u32>,
    /// The spec, if the scope within which machines are reused changes.
    reuse: Option<PoolSpec>,
    /// The spec, if it adds a scale set or a label of one.
    sets: Option<PoolSpec>,
    path: String,
}

impl Planned {
    /// Returns whether the plan writes anything.
    pub(super) fn writes(&self) -> bool {
        self.before.as_ref() != Some(&self.after)
    }

    /// Returns whether a change needs `--allow-widening`.
    pub(super) fn widens(&self) -> bool {
        self.changes.iter().any(|change| change.widens.is_some())
    }

    fn class(&self) -> &str {
        self.key.pool().map_or("", ClassName::as_str)
    }

    fn done(&self) -> &'static str {
        match (&self.before, self.writes()) {
            (None, _) => "created",
            (Some(_), true) => "changed",
            (Some(_), false) => "unchanged",
        }
    }

    /// Formats the plan for people: one line for the pool and one for each field; `ahead` means that it is not written
    /// yet.
    pub(super) fn told(&self, ahead: bool) -> Vec<String> {
        let done = match (ahead && self.writes(), self.done()) {
            (true, done) => format!("would be {done}"),
            (false, done) => done.to_owned(),
        };
        let mut lines = vec![format!("pool {}: {done}", self.class())];
        lines.extend(self.changes.iter().map(|change| match change.widens {
            Some(why) => format!("! {}  ({why})", change.told()),
            None => format!("  {}", change.told()),
        }));
        if let Some(max) = self.default_max {
            lines.push(format!("  max is {max}, the default: the spec does not say"));
        }
        lines
    }

    /// Formats the plan for programs.
    pub(super) fn document(&self) -> Value {
        let changes: Vec<Value> = self.changes.iter().map(Changed::document).collect();
        json!({"resourceClass": self.class(), "state": self.done(), "changes": changes})
    }

    /// Returns the reason and message of the plan's event.
    fn event(&self) -> (&'static str, String) {
        let reason = if self.before.is_none() { "PoolCreated" } else { "PoolChanged" };
        let mut message = format!("pool {} {}", self.class(), self.done());
        let changes: Vec<String> = self.changes.iter().map(Changed::told).collect();
        if !changes.is_empty() {
            message.push_str(&format!(": {}", changes.join("; ")));
        }
        message.truncate(message.floor_char_boundary(TOLD));
        (reason, message)
    }
}

/// Prints how many machines each change of `reuseWithin` affects, before it is written.
pub(super) async fn say_concerned(context: &mut CliContext, plans: &[Planned]) -> CliResult {
    let reuses: Vec<&PoolSpec> = plans.iter().filter_map(|plan| plan.reuse.as_ref()).collect();
    if reuses.is_empty() {
        return Ok(());
    }
    let of_kind = |item: &Item| RecordId::of(item).is_some_and(|key| key.kind() == Some(Kind::Instance));
    let items = context.all_that(of_kind).await?;
    let machines: Vec<Instance> = items.iter().filter_map(|item| readable(item).ok()).collect();
    for spec in reuses {
        context.screen.remark(concerned(spec, &machines));
    }
    Ok(())
}

/// Describes the effect of a class's new `reuseWithin` on machines that have served.
fn concerned(spec: &PoolSpec, machines: &[Instance]) -> String {
    let class = &spec.resource_class;
    let used = machines.iter().filter(|machine| {
        machine.facts.resource_class == *class && machine.state().live() && !machine.trust_domain.is_empty()
    });
    let (mut same, mut wider, mut nobodys) = (0_u32, 0_u32, 0_u32);
    for machine in used {
        match spec.reused_as(&machine.trust_domain) {
            Some(domain) if domain == machine.trust_domain => same += 1,
            Some(_) => wider += 1,
            None => nobodys += 1,
        }
    }
    format!(
        "pool {class}: reuseWithin {} concerns {} of its machines: {wider} may be used by more repositories, {nobodys} \
         by nobody again (when idle they are replaced as `replacement` allows)",
        spec.reuse_within,
        same + wider + nobodys,
    )
}

/// Returns whether a spec adds a scale set, or a label of one, to the class.
fn adds_a_set(old: Option<&PoolSpec>, new: &PoolSpec) -> bool {
    let Some(old) = old else { return new.serves_sets().is_some() };
    let known = old.set_places();
    new.set_label_beyond(old).is_some() || new.set_places().iter().any(|place| !known.contains(place))
}

/// Refuses scale sets that share a label with those of another class of the yard.
pub(super) async fn apart(context: &CliContext, plans: &[Planned]) -> CliResult {
    let adding: Vec<(&str, &PoolSpec)> =
        plans.iter().filter_map(|plan| Some((plan.path.as_str(), plan.sets.as_ref()?))).collect();
    if adding.is_empty() {
        return Ok(());
    }
    let of_another = |item: &Item| {
        let Some(RecordId::Pool(class)) = RecordId::of(item) else { return false };
        plans.iter().all(|plan| plan.key.pool() != Some(&class))
    };
    let items = context.all_that(of_another).await?;
    let pools: Vec<Pool> = items.iter().filter_map(|item| readable(item).ok()).collect();
    let others: Vec<&PoolSpec> = pools.iter().map(|pool| &pool.spec).collect();
    let problems = sets::shared(&adding, &others);
    if problems.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems }) }
}

/// Refuses changes that need a flag that was not given, in all pools at once.
pub(super) fn allowed(plans: &[Planned], allowed: bool) -> CliResult {
    let refused = |plan: &Planned| {
        let problems = plan.changes.iter().filter_map(|change| change.refused(&plan.path));
        problems.collect::<Vec<_>>()
    };
    let problems: Vec<_> = if allowed { Vec::new() } else { plans.iter().flat_map(refused).collect() };
    if problems.is_empty() { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems }) }
}

/// Plans on the current record, writes it, and prints the result; returns the record.
pub(super) async fn carry_out(
    context: &mut CliContext,
    key: &RecordId,
    may_widen: bool,
    plan: impl Fn(Option<&Item>) -> CliResult<Planned>,
) -> CliResult<Item> {
    let (planned, item) = {
        let context = &*context;
        let attempt = async || -> Result<CliResult<(Planned, Item)>, StoreError> {
            let before = context.store.get(key).await?;
            let planned = match plan(before.as_ref()).and_then(|planned| {
                allowed(std::slice::from_ref(&planned), may_widen)?;
                Ok(planned)
            }) {
                Ok(planned) => planned,
                Err(failure) => return Ok(Err(failure)),
            };
            let Some(write) = write(context, &planned) else {
                return Ok(Ok((planned, before.unwrap_or_default())));
            };
            let item = context.store.write(&write).await?;
            Ok(Ok((planned, item)))
        };
        crate::session::polling::again(attempt).await.map_err(|error| context.failed(&error))??
    };
    for line in planned.told(false) {
        context.screen.say(line);
    }
    if planned.writes() {
        let (reason, message) = planned.event();
        context.record_event(AuditEvent { key, reason, message, change: None }).await;
    }
    Ok(item)
}

/// Returns the conditional write of a plan, unless it changes nothing.
fn write(context: &CliContext, planned: &Planned) -> Option<Write> {
    if !planned.writes() {
        return None;
    }
    let mut after = planned.after.clone();
    after.insert("version".into(), number(planned.version + 1));
    after.insert("updatedAt".into(), text(millis(context.clock.now())));
    let key = planned.key.clone();
    Some(match (&planned.before, &planned.guard) {
        (Some(before), Some(guard)) => Write::difference(key, guard.clone(), before, &after),
        (Some(_), None) | (None, _) => {
            after.insert("uid".into(), text(context.entropy.hex()));
            Write::create(key, after)
        }
    })
}

/// Returns the record with its spec replaced; other attributes remain unchanged.
fn with_spec(before: Option<&Item>, key: &RecordId, spec: &PoolSpec) -> Item {
    let mut after = before.cloned().unwrap_or_else(|| {
        let born = [("pk", text(key.pk())), ("sk", text(key.sk())), ("kind", text(Kind::Pool))];
        born.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    });
    after.retain(|name, _| !spec::NAMES.contains(&name.as_str()));
    after.extend(spec::attributes_of(spec));
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_core::model::AttributeValue;

    fn spec(json: &str) -> PoolSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_change_of_reuse_within_names_the_machines_that_it_concerns() {
        let golden = include_str!("../../../../tests/golden/instance-idle-pooled.json");
        let golden: Instance = readable(&serde_json::from_str::<Item>(golden).unwrap()).unwrap();
        let class = golden.facts.resource_class.clone();
        let of = |domain: &str| Instance { trust_domain: domain.into(), ..golden.clone() };
        let machines =
            [of("repository:acme/web"), of("repository:acme/api"), of("owner:acme"), of("any"), of("")];
        let told = |within: &str| {
            concerned(&spec(&format!(r#"{{"resourceClass":"{class}","reuseWithin":"{within}"}}"#)), &machines)
        };
        let (wider, nobodys) = (
            "2 may be used by more repositories, 1 by nobody",
            "0 may be used by more repositories, 2 by nobody",
        );
        assert!(told("owner").contains(wider), "{}", told("owner"));
        assert!(told("repository").contains(nobodys), "{}", told("repository"));
        assert!(told("any").contains("concerns 4 of its machines: 3 may be used by more"), "{}", told("any"));
    }

    #[test]
    fn an_applied_spec_leaves_the_override_the_status_and_the_unknown_alone() {
        let mut before = spec::attributes_of(&spec(r#"{"resourceClass":"a","max":3,"labels":["x"]}"#));
        for name in ["override", "counts", "fromTheFuture", "version"] {
            before.insert(name.into(), AttributeValue::S("kept".into()));
        }
        let after = with_spec(
            Some(&before),
            &RecordId::new("pool#a", "pool"),
            &spec(r#"{"resourceClass":"a","max":4}"#),
        );
        for name in ["override", "counts", "fromTheFuture", "version"] {
            assert_eq!(after[name], AttributeValue::S("kept".into()));
        }
        assert_eq!(after["max"], AttributeValue::N("4".into()));
        assert!(!after.contains_key("labels"), "what the file no longer says goes");
    }
}
