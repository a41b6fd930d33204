//! A machine in the pool: announced, kept within what its class wants, ended when its time is over.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{Cause, Hours, InstanceArn, Life, Pool, PoolSpec, Reason, Record, Threshold, after};

use super::MachineView;
use crate::decide::capacity;
use crate::decide::schedule::effective;
use crate::decide::{Note, Plan, Planned, WaitReason};
use crate::yard::{Class, Free, visited};

/// How long before its deadline a kept machine's is renewed: a tenth of the idle time, at most a minute, and early
/// enough that it can be claimed all the time (contract, section 2.3: with 30 s left).
fn margin(pool: &Pool) -> SignedDuration {
    let idle = pool.idle_time();
    let margin = (idle / 10).min(Duration::from_secs(60)).max(Duration::from_secs(45).min(idle / 2));
    SignedDuration::try_from(margin).unwrap_or(SignedDuration::MAX)
}

/// Whether the class keeps the machine: it is among the `desired` that expire last, and not at the end of its life.
pub(super) fn kept(machine: &MachineView<'_>) -> bool {
    if machine.instance.pooled_at().is_none() || machine.instance.expired_by.is_some() {
        return false;
    }
    let name = &machine.instance.facts.resource_class;
    let (Some(class), Some(spec)) = (machine.cx.yard.class(name), machine.spec) else { return false };
    let Some(pool) = &class.pool else { return false };
    // A deadline that a person shortened is not renewed. One that has passed and was shorter than the class wants may
    // be such a deadline; one that has not passed was set when the class wanted less, and is renewed with the others.
    let passed = |t: &Threshold| t.at <= machine.cx.now.wall && t.at < after(t.set_at, pool.idle_time());
    let shortened = machine.tracked.shortened || machine.instance.threshold.as_ref().is_some_and(passed);
    if shortened || capacity::too_old(machine.instance, spec, machine.cx.now.wall) {
        return false;
    }
    let desired = effective(pool, machine.cx.now.wall).desired;
    let arn = &machine.instance.facts.instance_arn;
    let unread = &class.idle.unread;
    if unread.contains(arn) {
        // As many stay as there may be beside those in their place, so that none is launched again and again.
        return unread.len() as u64 <= 2 * u64::from(desired);
    }
    let threshold = machine.instance.threshold.map_or(Timestamp::MAX, |t| t.at);
    let place = (threshold, arn.clone());
    let beside = Beside::of(machine, class, spec);
    // Machines that boot or are cleaned count as idle too, and none of them expires before this one.
    let wanted = desired.saturating_sub(beside.coming(class)) as usize;
    wanted > 0 && among_last(machine, class, &beside, &place, wanted)
}

/// Beside which machines of its class a machine is kept. One for anybody goes on where another's trust domain seldom
/// asks; one of a trust domain only where there are not as many of any other kind: so a class keeps no more than it
/// wants, and in the end those that are of use to all.
enum Beside<'a> {
    /// All of them.
    All,
    /// Those for anybody, and those of the domain that nearly all requests come from.
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

    /// How many machines of these kinds boot or are cleaned.
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

/// Whether fewer than so many pooled machines that go on expire after this place. Counted from the front, where a
/// machine stands whose time is near, so that nothing depends on how many there are.
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
    let uncounted = class.retiring(spec, machine.cx.now.wall).chain(&class.idle.unread);
    let retiring = uncounted.filter(later).count();
    // So many may expire after it, and the rest must stand before it.
    let all: usize = pools.iter().map(|pool| pool.len()).sum();
    let before = all.saturating_sub(wanted + retiring);
    let earlier = pools.iter().flat_map(|pool| pool.range(..=place)).inspect(|_| visited());
    earlier.take(before + 1).count() > before
}

/// When a kept machine's deadline is renewed, on the monotonic clock, and whether that would prolong it.
///
/// A deadline set by a clock ahead of ours is far away by ours, but its agent counts only how long it was set for. So
/// do we, from when we saw it change; one that stood there before we looked may be about to pass.
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

/// What to do about a pooled machine.
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
        let drift = class.drift(instance).map(|why| (why, gives_way(machine, class, spec)));
        if let Some((why, true)) = drift {
            let message = format!("{why}; another takes its place");
            return Some(machine.end(Reason::Drifted, Note::normal("Drifted", message)));
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
        let due = machine.tracked.announced.map(|at| at.saturating_add(cx.policy.timing.reannounce));
        let mut plan = match due {
            Some(due) if due > cx.now.mono => Plan::default(),
            Some(_) | None => Plan::act(Planned::announce(instance)),
        };
        plan.actions.extend(machine.at_rest());
        plan.wake_at(due.unwrap_or(cx.now.mono.saturating_add(cx.policy.timing.reannounce)).max(cx.now.mono));
        plan.wake_at(renew_at.max(cx.now.mono + Duration::from_secs(1)));
        if let Some((why, _)) = drift {
            waits(machine, spec, why, &mut plan);
        }
        return Some(plan);
    }
    None
}

/// Whether the class has more live machines than `max` and this one is among the first to go.
fn surplus(machine: &MachineView<'_>) -> bool {
    let name = &machine.instance.facts.resource_class;
    let (Some(class), Some(spec)) = (machine.cx.yard.class(name), machine.spec) else { return false };
    let excess = class.live().saturating_sub(spec.max);
    let mut first = class.pooled.iter().inspect(|_| visited()).take(excess as usize);
    excess > 0 && first.any(|(_, arn)| *arn == machine.instance.facts.instance_arn)
}

/// Whether it is this drifted machine's turn to be replaced: its replacement is idle, or `max` leaves no room for one
/// and fewer than `atOnce` are missing.
fn gives_way(machine: &MachineView<'_>, class: &Class, spec: &PoolSpec) -> bool {
    let (cx, arn) = (machine.cx, &machine.instance.facts.instance_arn);
    let turn = capacity::giving_way(cx, class);
    if !turn.contains(arn) {
        return false;
    }
    let Some(pool) = &class.pool else { return false };
    let desired = effective(pool, cx.now.wall).desired as usize;
    let before = turn.iter().take_while(|other| **other != arn).count();
    let missing = desired.saturating_sub(class.pooled.len()) + before;
    capacity::enough(cx, class, pool, &turn)
        || class.live() >= spec.max && missing < spec.replacement.at_once as usize
}

/// Reports what a drifted machine waits for.
fn waits(machine: &MachineView<'_>, spec: &PoolSpec, why: &str, plan: &mut Plan) {
    let now = machine.cx.now;
    let (reason, until) = match spec.replacement.hours_at(now.wall) {
        Hours::Open => (WaitReason::Behind, "in its turn, when its replacement is idle".to_owned()),
        Hours::ClosedUntil(opening) => {
            plan.wake_at(now.when(opening));
            (WaitReason::Deadline, format!("not before {opening}"))
        }
        Hours::Unreadable => (WaitReason::Paused, "the hours of its class cannot be read".to_owned()),
    };
    plan.wait(machine.instance.key(), reason, format!("{why}: replaced {until}"));
}

/// Whether the class has enough idle machines without the expired ones.
fn replaced(machine: &MachineView<'_>, class: &Class) -> bool {
    let (Some(pool), Some(spec)) = (&class.pool, machine.spec) else { return true };
    capacity::enough(machine.cx, class, pool, &BTreeSet::new())
        || class.live() >= spec.max && matches!(machine.instance.life, Life::Idle { .. })
}
