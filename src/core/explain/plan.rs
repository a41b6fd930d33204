//! Shows the actions that the operator would take now: decides every unit once with the operator's own rules and
//! executes nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::{Context, Plan, Policy, Role, WaitReason, decide, is_telling};
use crate::model::{ClassName, ConditionType, Item, Lease, Pool, Reading, RecordId, read};
use crate::yard::{Now, Observation, Unit, Yard};

/// Builds the yard that the table shows at one moment. Every agent counts as just heard, because only a process that
/// has watched it knows how long it has been silent.
pub fn picture(items: &[Item], now: Timestamp) -> (Yard, Now, Role) {
    let now = Now { wall: now, mono: Duration::from_secs(1), seen: Duration::from_secs(1) };
    let mut yard = Yard::default();
    let mut role = Role { lease: None };
    for item in items {
        let Some(key) = RecordId::of(item) else { continue };
        if key == Lease::key_of(Lease::OPERATOR)
            && let Reading::Record(lease) = read::<Lease>(item)
        {
            role.lease = Some(lease.token);
        }
        yard.observe(Observation::Record(key, Some(item.clone())), &now);
    }
    let keys = items.iter().filter_map(RecordId::of).collect();
    yard.observe(Observation::Listed(now.mono, keys), &now);
    (yard, now, role)
}

/// Decides every unit. A class whose pool status reports that launches are held back counts as backing off: no record
/// has the failures or the end of the backoff.
pub fn judge(yard: &Yard, policy: &Policy, now: Now, role: Role) -> Vec<(Unit, Plan)> {
    let said = held_back(yard, now);
    let mut yard = Cow::Borrowed(yard);
    if !said.is_empty() {
        let classes = yard.to_mut().classes.iter_mut().filter(|(name, _)| said.contains_key(*name));
        classes.for_each(|(_, class)| class.backoff.until = Duration::MAX);
    }
    let cx = Context { yard: &yard, policy, now, role };
    let judged = |unit: Unit| {
        let mut plan = decide(&cx, &unit);
        plan.actions.retain(|action| !is_telling(action));
        tell_of_runner(&yard, &unit, &mut plan);
        if let Unit::Class(name) = &unit
            && let Some(said) = said.get(name)
        {
            let held = plan.waits.iter_mut().filter(|wait| wait.reason == WaitReason::BackOff);
            held.for_each(|wait| wait.message.clone_from(said));
        }
        (unit, plan)
    };
    yard.units().into_iter().map(judged).collect()
}

/// Adds the facts about the runner package that only the operator knows, from the pool's conditions.
fn tell_of_runner(yard: &Yard, unit: &Unit, plan: &mut Plan) {
    let Unit::Class(name) = unit else { return };
    let Some(pool) = yard.pool(name) else { return };
    for condition in pool.status.conditions.iter().filter(|condition| condition.status) {
        if [ConditionType::RunnerEnds, ConditionType::RunnerHeldBack].contains(&condition.condition_type) {
            plan.wait(Pool::key_of(name), WaitReason::Runner, condition.message.clone());
        }
    }
}

/// Lists the classes whose launches are held back by their pool's status alone, with its message.
fn held_back(yard: &Yard, now: Now) -> BTreeMap<ClassName, String> {
    let unknown = yard.classes.iter().filter(|(_, class)| class.backoff.until <= now.mono);
    let said = unknown.filter_map(|(name, class)| {
        let conditions = class.pool.as_ref()?.status.conditions.iter();
        let mut blocked = conditions.filter(|one| one.condition_type == ConditionType::Blocked && one.status);
        let one = blocked.next()?;
        let said = format!("launches are held back, its operator has said since {}: {}", one.at, one.message);
        Some((name.clone(), said))
    });
    said.collect()
}
