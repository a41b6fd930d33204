//! The end of a machine: tombstone, termination, confirmation, and the record of its end.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{Instance, Life, Reason, Record, Threshold};
use crate::ports::MachineState;

use super::console;
use crate::decide::context::Context;
use crate::decide::{Plan, Planned, Step, WaitReason};
use crate::yard::Tracked;

/// How long the records of ended machines are kept, in seconds.
const KEPT: i64 = 24 * 3600;
/// How long after its end a machine's runner is looked for at GitHub by name: an operator that starts later leaves it
/// to the garbage collection of runners, instead of one more call for each machine of the day.
const SWEPT_WITHIN: SignedDuration = SignedDuration::from_hours(1);
/// First pause between two calls about an ended machine.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// The longest such pause.
const ASK_AGAIN_MOST: Duration = Duration::from_secs(30);

/// Writes the tombstone into a record.
pub(super) fn tombstone(next: &mut Instance, reason: Reason) {
    next.life = Life::Terminated { reason, gone_at: None };
    next.threshold = None::<Threshold>;
    next.registration = None;
    next.removal = None;
    next.promotion = None;
}

/// Plans the actions for a tombstoned machine.
pub(super) fn decide(cx: &Context<'_>, tracked: &Tracked, gone_at: Option<Timestamp>) -> Plan {
    let instance = &tracked.instance;
    if let Some(gone_at) = gone_at {
        let mut plan = finalize(cx, tracked, gone_at);
        console::decide(cx, tracked, &mut plan);
        return plan;
    }
    if is_gone(cx, tracked) {
        let step = Step::of(instance, cx.now.wall, |next| {
            if let Life::Terminated { gone_at, .. } = &mut next.life {
                *gone_at = Some(cx.now.wall);
            }
            next.expires_at = Some(cx.now.wall.as_second() + KEPT);
        });
        return Plan::act(Planned::bury(step));
    }
    let mut plan = request_termination(cx, tracked);
    console::decide(cx, tracked, &mut plan);
    plan
}

/// Returns whether the machine is proved gone: the provider reports its end, or does not know it although it is not
/// new. Without an inventory, the request to terminate is proof.
fn is_gone(cx: &Context<'_>, tracked: &Tracked) -> bool {
    if !cx.policy.inventory {
        return tracked.ended.is_some();
    }
    match tracked.stands {
        Some(Some(MachineState::Terminated)) => true,
        Some(None) => super::settled(cx, &tracked.instance),
        Some(Some(
            MachineState::Pending
            | MachineState::Running
            | MachineState::Stopped
            | MachineState::ShuttingDown,
        ))
        | None => false,
    }
}

/// Alternates TerminateInstances and DescribeInstances with exponential backoff until the instance is gone.
fn request_termination(cx: &Context<'_>, tracked: &Tracked) -> Plan {
    let arn = &tracked.instance.facts.instance_arn;
    let Some((ended, times)) = tracked.ended else { return Plan::act(Planned::terminate(arn.clone())) };
    let (asked, questions) = tracked.asked.unwrap_or_default();
    let pause = (ASK_AGAIN * 2_u32.pow(times.saturating_add(questions).min(8))).min(ASK_AGAIN_MOST);
    let due = ended.max(asked).saturating_add(pause);
    if cx.now.mono < due {
        let mut plan = Plan::default();
        plan.wake_at(due);
        let why = "its end is asked for, EC2 has not confirmed it";
        plan.wait(tracked.instance.key(), WaitReason::Deadline, why);
        return plan;
    }
    let ending = tracked.stands.flatten() == Some(MachineState::ShuttingDown);
    let described = tracked.asked.is_some() && asked > ended;
    Plan::act(if described && !ending {
        Planned::terminate(arn.clone())
    } else {
        Planned::describe_machine(arn.clone())
    })
}

/// Handles the time after the end: removes its runner at GitHub once, and lets its record expire.
fn finalize(cx: &Context<'_>, tracked: &Tracked, gone_at: Timestamp) -> Plan {
    let instance = &tracked.instance;
    let mut plan = Plan::default();
    if cx.policy.inventory && tracked.stands.flatten().is_some_and(MachineState::alive) {
        // The provider lists it again after having reported it as unknown.
        return request_termination(cx, tracked);
    }
    let lately = cx.now.wall.duration_since(gone_at) < SWEPT_WITHIN;
    if cx.policy.github && !tracked.swept && lately && instance.registration_seq > 0 {
        plan.actions.push(Planned::sweep_runner(instance));
        return plan;
    }
    if let Some(expires_at) = instance.expires_at
        && let Ok(at) = Timestamp::from_second(expires_at)
    {
        if at <= cx.now.wall {
            plan.actions.push(Planned::expire(instance.key(), expires_at));
        } else {
            plan.wake_at(cx.now.when(at));
        }
    }
    plan
}
