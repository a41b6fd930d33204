//! One class: its waiting requests are served from the pool, what is lacking is launched, and its status is kept.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{ClassName, Condition, ConditionType, Hours, Pool, Record, Slot, State};

use crate::decide::{Plan, Planned, Step, WaitReason};
use crate::decide::beats;
use crate::decide::capacity;
use crate::decide::context::Context;
use crate::decide::schedule::effective;
use crate::yard::Class;

mod claims;
mod serve;
mod tell;
#[cfg(test)]
mod tell_tests;
mod yielding;

pub(crate) use tell::is_telling;

/// How often a pool's status is written at most.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What to do about a class now.
pub(super) fn decide(cx: &Context<'_>, name: &ClassName) -> Plan {
    let Some(class) = cx.yard.class(name) else { return Plan::default() };
    let mut plan = Plan::default();
    if let Some(pool) = &class.pool {
        serve::serve(cx, name, class, &pool.spec, &mut plan);
        tell::tell(cx, name, class, &pool.spec, &mut plan);
        report(cx, class, pool, &mut plan);
        tidy(cx, name, class, &mut plan);
        if let Some(at) = beats::look_again(cx, class) {
            plan.wake_at(at);
        }
        if !class.drifted.is_empty()
            && let Hours::ClosedUntil(opening) = pool.spec.replacement.hours_at(cx.now.wall)
        {
            plan.wake_at(cx.now.when(opening));
        }
        if let Some(until) = effective(pool, cx.now.wall).until {
            plan.wake_at(cx.now.when(until));
        }
    }
    plan
}

/// Reads the class's queue now and then although nobody waits, so that what nobody asked for does not pile up there.
fn tidy(cx: &Context<'_>, name: &ClassName, class: &Class, plan: &mut Plan) {
    if cx.role.lease.is_none() {
        return;
    }
    if !class.line.all().is_empty() || cx.yard.is_busy(Slot::Queue(name.clone())) {
        return;
    }
    let due = class.received.unwrap_or(Duration::ZERO) + cx.policy.reannounce;
    if cx.now.mono >= due {
        plan.actions.push(Planned::receive(name.clone()));
    } else {
        plan.wake_at(due);
    }
}

/// Writes what there is of a class when it changed, not too often.
fn report(cx: &Context<'_>, class: &Class, pool: &Pool, plan: &mut Plan) {
    let mut counts = crate::model::Counts::new();
    for state in State::ALL.iter().filter(|state| state.live()) {
        counts.insert(*state, class.counts.get(state).copied().unwrap_or(0));
    }
    let desired = effective(pool, cx.now.wall).desired;
    let idle = class.pooled.len() as u32 + class.cleaning + class.warm_created;
    let held_back = cx.now.mono < class.brake.until;
    let before = cx.now.wall.saturating_sub(cx.policy.orphan).unwrap_or(Timestamp::MIN);
    let doubt = class.beats.doubt(&cx.now, cx.policy.stale);
    let stuck = cx.yard.stuck_in(&pool.spec.resource_class);
    let message = if let Some(gone) = class.unbelieved(before) {
        let message = format!(
            "the list of machines lacks {gone} of {}: too many to believe it, none is ended for that; `runyard doctor` tells more",
            class.live()
        );
        plan.wait(pool.key(), WaitReason::Doubt, message.clone());
        message
    } else if let Some(doubt) = doubt {
        plan.wait(pool.key(), WaitReason::Doubt, beats::told(doubt));
        beats::told(doubt)
    } else if let Some((_, stuck)) = stuck {
        stuck.to_owned()
    } else if held_back {
        format!(
            "{idle} idle of {desired} wanted; launches are held back after {} failures{}",
            class.brake.failures,
            capacity::refused(class)
        )
    } else if let Some((offering, rest)) = class.resting(cx.now.mono).next() {
        let why = capacity::account(offering, rest.until, &cx.now);
        plan.wake_at(rest.until);
        format!("{idle} idle of {desired} wanted; {why}")
    } else {
        // With room for any numbers: a longer number must not cost another allocation.
        let mut message = String::with_capacity(96);
        let (live, max) = (class.live(), pool.spec.max);
        let _ = write!(message, "{idle} idle of {desired} wanted, {live} live of at most {max}");
        message
    };
    let key = pool.key();
    if (pool.status.counts == counts && pool.status.message == message)
        || cx.yard.is_busy(&key)
        || cx.role.lease.is_none()
    {
        return;
    }
    if let Some(reported) = class.reported
        && cx.now.mono < reported + REPORT_EVERY
    {
        plan.wake_at(reported + REPORT_EVERY);
        return;
    }
    let step =
        Step::of(pool, cx.now.wall, |next| {
            next.status.counts = counts;
            next.status.message = message;
            next.status.conditions = vec![
                condition(
                    ConditionType::Warm,
                    idle >= desired,
                    "Idle",
                    format!("{idle} idle of {desired}"),
                    pool,
                    cx,
                ),
                condition(
                    ConditionType::Blocked,
                    held_back,
                    "Launches",
                    format!("{} failures in a row{}", class.brake.failures, capacity::refused(class)),
                    pool,
                    cx,
                ),
            ];
            next.status.conditions.extend(doubt.map(|doubt| {
                condition(ConditionType::Doubtful, true, "Silence", beats::told(doubt), pool, cx)
            }));
            next.status.conditions.extend(stuck.map(|(actions, first)| {
                let more = if actions > 1 { format!(" (and {} more)", actions - 1) } else { String::new() };
                condition(ConditionType::Stuck, true, "Repeats", format!("{first}{more}"), pool, cx)
            }));
        });
    plan.actions.push(Planned::pool(step));
}

/// A condition, keeping the time since when it is so.
fn condition(
    condition_type: ConditionType,
    status: bool,
    reason: &str,
    message: String,
    pool: &Pool,
    cx: &Context<'_>,
) -> Condition {
    Condition::since(&pool.status.conditions, condition_type, status, reason, message, cx.now.wall)
}

#[cfg(test)]
mod tests;
