//! A machine in the pool: announced, kept within the number that its class wants, and ended when its time is over.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{Cause, Hours, InstanceArn, Life, Pool, PoolSpec, Reason, Record, Threshold, after};

use super::MachineView;
use crate::decide::capacity;
use crate::decide::schedule::effective_in;
use crate::decide::{Note, Plan, Planned, WaitReason};
use crate::yard::{Class, Free, visited};

/// Returns how long before its deadline the deadline of a kept machine is renewed: a tenth of the idle time, at most a
/// minute, and early enough that it can be claimed all the time (contract, section 2.3: with 30 s left).
fn margin(pool: &Pool) -> SignedDuration {
    let idle = pool.idle_time();
    let margin = (idle / 10).min(Duration::from_secs(60)).max(Duration::from_secs(45).min(idle / 2));
    SignedDuration::try_from(margin).unwrap_or(SignedDuration::MAX)
}

/// Returns whether the class keeps the machine: it is among the `desired` that expire last, and not at the end of its
/// life.
pub(super) fn kept(machine: &MachineView<'_>) -> bool {
    if machine.instance.pooled_at().is_none() || machine.instance.expired_by.is_some() {
        return false;
    }
    let name = &machine.instance.facts.resource_class;
    let (Some(class), Some(spec)) = (machine.cx.yard.class(name), machine.spec) else { return false };
    let Some(pool) = &class.pool else { return false };
    // A deadline that a person shortened is not renewed. A passed deadline that was shorter than the class wants may be
    // such a deadline; a deadline that has not passed was set when the class wanted less, and is renewed with the
    // others.
    let passed = |t: &Threshold| t.at <= machine.cx.now.wall && t.at < after(t.set_at, pool.idle_time());
    let shortened = machine.tracked.shortened || machine.instance.threshold.as_ref().is_some_and(passed);
    if shortened || capacity::too_old(machine.instance, spec, machine.cx.now.wall) {
        return false;
    }
    let desired = effective_in(class, pool, machine.cx.now.wall).desired;
    let arn = &machine.instance.facts.instance_arn;
    let unread_agents = &class.idle.unread_agents;
    if unread_agents.contains(arn) {
        // As many are kept as there may be beside their replacements, so that none is launched again and again.
        return unread_agents.len() as u64 <= 2 * u64::from(desired);
    }
    let threshold = machine.instance.threshold.map_or(Timestamp::MAX, |t| t.at);
    let place = (threshold, arn.clone());
    let beside = Beside::of(machine, class, spec);
    // Machines that boot or are cleaned count as idle too, and none of them expires before this one.
    let wanted = desired.saturating_sub(beside.coming(class)) as usize;
    wanted > 0 && among_last(machine, class, &beside, &place, wanted)
}

/// The machines that a machine is compared with to decide whether it is kept. A machine without a trust domain
/// continues where the other's trust domain seldom asks; a machine of a trust domain continues only where there are not
/// as many of any other kind. So a class keeps no more than it wants, and in the end those that are of use to all.
enum Beside<'a> {
    /// All of them.
    All,
    /// Machines without a trust domain, and those of the domain that nearly all requests come from.
    Whole(Vec<&'a Free>),
}

impl<'a> Beside<'a> {
    fn of(machine: &MachineView<'_>, class: &'a Class, spec: &PoolSpec) -> Self {
        if !machine.instance.trust_domain.is_empty()
            || class.idle.pooled.assigned + class.idle.coming.assigned == 0
        {
            return Self::All;
        }
        let whole = |stored: &str| {
            spec.reused_as(stored).is_some_and(|domain| capacity::counts_whole(class, &domain))
        };
        let groups = class.free.iter().filter(|(group, _)| whole(&group.trust_domain));
        Self::Whole(groups.map(|(_, free)| free).collect())
    }

    /// Counts the machines of these kinds that boot or are cleaned.
    fn coming(&self, class: &Class) -> u32 {
        let coming = &class.idle.coming;
        match self {
            Self::All => coming.all(),
            Self::Whole(_) => {
                let whole = coming.domains.iter().filter(|(domain, _)| capacity::counts_whole(class, domain));
                whole.fold(coming.anybody, |sum, (_, count)| sum.saturating_add(*count))
            }
        }
    }

    fn pools<'b>(&'b self, class: &'b Class) -> Vec<&'b Free> {
        match self {
            Self::All => vec![&class.pooled],
            Self::Whole(groups) => groups.clone(),
        }
    }
}

/// Returns whether fewer than `wanted` pooled machines that continue expire after this place. Counts from the front,
/// where a machine near its deadline is, so that the cost does not depend on the number of machines.
fn among_last(
    machine: &MachineView<'_>,
    class: &Class,
    beside: &Beside<'_>,
    place: &(Timestamp, InstanceArn),
    wanted: usize,
) -> bool {
    let (Some(spec), pools) = (machine.spec, beside.pools(class)) else { return false };
    let later = |arn: &&InstanceArn| {
        let tracked = machine.cx.yard.instance(arn);
        let at = tracked.and_then(|tracked| tracked.instance.threshold).map_or(Timestamp::MAX, |t| t.at);
        let there = (at, InstanceArn::clone(arn));
        there > *place && pools.iter().any(|pool| pool.contains(&there))
    };
    let uncounted = class.retiring(spec, machine.cx.now.wall).chain(&class.idle.unread_agents);
    let retiring = uncounted.filter(later).count();
    // Up to `wanted` machines may expire after it, and the rest must be before it.
    let all: usize = pools.iter().map(|pool| pool.len()).sum();
    let before = all.saturating_sub(wanted + retiring);
    let earlier = pools.iter().flat_map(|pool| pool.range(..=place)).inspect(|_| visited());
    earlier.take(before + 1).count() > before
}

/// Returns when a kept machine's deadline is renewed, on the monotonic clock, and whether that would extend it.
///
/// A deadline set by a clock ahead of ours is far away by ours, but its agent counts only the duration that it was set
/// for. So the operator counts that duration too, from when it saw the deadline change; a deadline that existed before
/// the first observation may be about to pass.
fn renewal(machine: &MachineView<'_>, pool: &Pool, threshold: Threshold) -> (Duration, bool) {
    let now = machine.cx.now;
    if threshold.set_at <= now.wall {
        let at = threshold.at.saturating_sub(margin(pool)).unwrap_or(Timestamp::MIN);
        return (now.when(at), machine.deadline(machine.instance).is_some_and(|next| next.at > threshold.at));
    }
    let length = threshold.at.duration_since(threshold.set_at).saturating_sub(margin(pool));
    let length = Duration::try_from(length).unwrap_or_default();
    (machine.tracked.set_ahead.map_or(Duration::ZERO, |set| set.saturating_add(length)), true)
}

/// Plans the actions for a pooled machine.
pub(super) fn decide(machine: &MachineView<'_>) -> Option<Plan> {
    let (cx, instance) = (machine.cx, machine.instance);
    let key = instance.key();
    if cx.yard.is_busy(&key) {
        return None;
    }
    let class = cx.yard.class(&instance.facts.resource_class)?;
    if let (Some(pool), Some(spec)) = (&class.pool, machine.spec) {
        if surplus(machine) {
            let message = format!("its class has more machines than max ({})", spec.max);
            return Some(machine.end(Reason::Surplus, Note::normal("Surplus", message)));
        }
        if let Some((reason, note)) = machine.retired()
            && replaced(machine, class)
        {
            return Some(machine.end(reason, note));
        }
        let leaving = leaves(machine, class);
        if let Some((why, reason, note)) = leaving
            && gives_way(machine, class, spec)
        {
            return Some(machine.end(reason, Note::normal(note, format!("{why}; another takes its place"))));
        }
        let threshold = instance.threshold?;
        let (renew_at, later) = renewal(machine, pool, threshold);
        if cx.now.mono >= renew_at && later && kept(machine) {
            let note = Note::normal("Kept", "kept: its class wants it idle");
            return Some(machine.go(Cause::Renewed, note, |next| {
                if next.ahead.is_none() {
                    next.runner = machine.next_package();
                }
            }));
        }
        let kept = cx.policy.timing.announced();
        let due = machine.tracked.announced.map(|at| at.saturating_add(kept));
        let mut plan = match due {
            Some(due) if due > cx.now.mono => Plan::default(),
            Some(_) | None => Plan::act(Planned::announce(instance)),
        };
        plan.actions.extend(machine.at_rest());
        plan.wake_at(due.unwrap_or(cx.now.mono.saturating_add(kept)).max(cx.now.mono));
        plan.wake_at(renew_at.max(cx.now.mono + Duration::from_secs(1)));
        if let Some((why, reason, _)) = leaving {
            waits(machine, spec, why, reason, &mut plan);
        }
        return Some(plan);
    }
    None
}

/// Returns whether the class has more live machines than `max` and this one is among the first to end.
fn surplus(machine: &MachineView<'_>) -> bool {
    let name = &machine.instance.facts.resource_class;
    let (Some(class), Some(spec)) = (machine.cx.yard.class(name), machine.spec) else { return false };
    let excess = class.live().saturating_sub(spec.max);
    let mut first = class.pooled.iter().inspect(|_| visited()).take(excess as usize);
    excess > 0 && first.any(|(_, arn)| *arn == machine.instance.facts.instance_arn)
}

/// Returns why a machine is to be replaced, if it is: a sentence, and the reasons for its record and its event.
fn leaves(machine: &MachineView<'_>, class: &Class) -> Option<(&'static str, Reason, &'static str)> {
    if machine.cx.policy.spares(machine.tracked) {
        return Some(("EC2 expects to take it back", Reason::Interrupted, "Interrupted"));
    }
    class.drift(machine.instance).map(|why| (why, Reason::Drifted, "Drifted"))
}

/// Returns whether this machine is replaced now: its replacement is idle, or `max` leaves no room for one and fewer
/// than `atOnce` are missing.
fn gives_way(machine: &MachineView<'_>, class: &Class, spec: &PoolSpec) -> bool {
    let (cx, arn) = (machine.cx, &machine.instance.facts.instance_arn);
    let turn = capacity::giving_way(cx, class);
    if !turn.contains(arn) {
        return false;
    }
    let Some(pool) = &class.pool else { return false };
    let desired = effective_in(class, pool, cx.now.wall).desired as usize;
    // Where no idle machine is wanted, nothing replaces it: it may be claimed until its time is over.
    if desired == 0 && cx.policy.spares(machine.tracked) {
        return false;
    }
    let before = turn.iter().take_while(|other| **other != arn).count();
    let missing = desired.saturating_sub(class.pooled.len()) + before;
    capacity::enough(cx, class, pool, &turn)
        || class.live() >= spec.max && missing < spec.replacement.at_once as usize
}

/// Reports what a machine that is to be replaced waits for. The hours of its class apply to drifted machines.
fn waits(machine: &MachineView<'_>, spec: &PoolSpec, why: &str, reason: Reason, plan: &mut Plan) {
    let now = machine.cx.now;
    let hours = if reason == Reason::Drifted { spec.replacement.hours_at(now.wall) } else { Hours::Open };
    let (reason, until) = match hours {
        Hours::Open => (WaitReason::Behind, "in its turn, when its replacement is idle".to_owned()),
        Hours::ClosedUntil(opening) => {
            plan.wake_at(now.when(opening));
            (WaitReason::Deadline, format!("not before {opening}"))
        }
        Hours::Unreadable => (WaitReason::Paused, "the hours of its class cannot be read".to_owned()),
    };
    plan.wait(machine.instance.key(), reason, format!("{why}: replaced {until}"));
}

/// Returns whether the class has enough idle machines without the expired ones.
fn replaced(machine: &MachineView<'_>, class: &Class) -> bool {
    let (Some(pool), Some(spec)) = (&class.pool, machine.spec) else { return true };
    capacity::enough(machine.cx, class, pool, &BTreeSet::new())
        || class.live() >= spec.max && matches!(machine.instance.life, Life::Idle { .. })
}
