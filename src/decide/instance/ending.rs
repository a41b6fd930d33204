//! The end of a machine: decided in its record first, then asked for, then confirmed, then recorded as gone; and the
//! machines nobody recorded.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Instance, InstanceArn, InstanceFacts, Life, Reason, Record, Threshold};
use crate::ports::MachineState;

use super::super::action::{Action, Note, Plan, Step, WaitReason};
use super::super::context::Context;
use super::super::yard::Tracked;

/// How long the records of ended machines are kept, in seconds.
const KEPT: i64 = 24 * 3600;
/// First pause before a machine's maker is asked again whether it is gone.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Longest such pause.
const ASK_AGAIN_MOST: Duration = Duration::from_secs(30);

/// Makes a record say that its machine ends.
pub(super) fn tombstone(next: &mut Instance, reason: Reason) {
    next.life = Life::Terminated { reason, gone_at: None };
    next.threshold = None::<Threshold>;
    next.registration = None;
    next.removal = None;
}

/// What remains to be done about an ended machine.
pub(super) fn decide(cx: &Context<'_>, tracked: &Tracked, gone_at: Option<Timestamp>) -> Plan {
    let instance = &tracked.instance;
    let arn = &instance.facts.instance_arn;
    if gone_at.is_some() {
        return gone(cx, tracked);
    }
    let ended = match tracked.stands {
        Some(None | Some(MachineState::Terminated)) => true,
        Some(Some(
            MachineState::Pending
            | MachineState::Running
            | MachineState::Stopped
            | MachineState::ShuttingDown,
        ))
        | None => !cx.policy.inventory && tracked.ended.is_some(),
    };
    if ended {
        let step = Step::of(instance, cx.now.wall, |next| {
            if let Life::Terminated { gone_at, .. } = &mut next.life {
                *gone_at = Some(cx.now.wall);
            }
            next.expires_at = Some(cx.now.wall.as_second() + KEPT);
        });
        return Plan::act(Action::Bury(Box::new(step)));
    }
    let Some((asked, times)) = tracked.ended else { return Plan::act(Action::Terminate(arn.clone())) };
    let pause = (ASK_AGAIN * 2_u32.pow(times.min(6))).min(ASK_AGAIN_MOST);
    if cx.now.mono < asked + pause {
        let mut plan = Plan::default();
        // Between two requests to end it, its maker is asked once where it stands.
        if tracked.stands.flatten().is_none_or(MachineState::alive) && cx.now.mono >= asked + pause / 2 {
            plan.actions.push(Action::Describe(arn.clone()));
        }
        plan.wake_at(if cx.now.mono < asked + pause / 2 { asked + pause / 2 } else { asked + pause });
        plan.wait(&instance.key(), WaitReason::Deadline, "its end is asked for, EC2 has not confirmed it");
        return plan;
    }
    // Where it stands is asked last; then it is asked to end again.
    if tracked.stands.flatten() == Some(MachineState::ShuttingDown) {
        Plan::act(Action::Describe(arn.clone()))
    } else {
        Plan::act(Action::Terminate(arn.clone()))
    }
}

/// Gone for good: its runner is looked for once, its record goes when its time is over.
fn gone(cx: &Context<'_>, tracked: &Tracked) -> Plan {
    let instance = &tracked.instance;
    let arn = &instance.facts.instance_arn;
    let mut plan = Plan::default();
    if cx.policy.github && !tracked.swept && instance.registration_seq > 0 {
        plan.actions.push(Action::SweepRunner(arn.clone()));
        return plan;
    }
    if let Some(expires_at) = instance.expires_at
        && let Ok(at) = Timestamp::from_second(expires_at)
    {
        if at <= cx.now.wall {
            plan.actions.push(Action::Expire(instance.key(), expires_at));
        } else {
            plan.wake_at(cx.now.when(at));
        }
    }
    plan
}

/// A machine of ours that no record knows: given time to be adopted by its launch, then recorded as ended.
pub(super) fn unrecorded(cx: &Context<'_>, arn: &InstanceArn) -> Plan {
    let Some((machine, since)) = cx.yard.unrecorded.get(arn) else { return Plan::default() };
    let key = Instance::key_of(arn);
    let mut plan = Plan::default();
    if cx.yard.is_busy(&key) || cx.yard.unreadable.contains_key(&key) || cx.yard.newer.contains_key(&key) {
        plan.wait(&key, WaitReason::Busy, "its record cannot be judged");
        return plan;
    }
    let due = *since + cx.policy.orphan;
    if cx.now.mono < due {
        plan.wake_at(due);
        plan.wait(&key, WaitReason::Deadline, "ours without a record, given time to be adopted");
        return plan;
    }
    let adoptable = machine.launch.as_ref().and_then(|id| cx.yard.launch(id));
    if adoptable.is_some_and(|tracked| super::super::yard::Yard::is_open(&tracked.launch)) {
        plan.wake_at(cx.now.mono + cx.policy.orphan);
        plan.wait(&key, WaitReason::Starting, "its launch is still open and will adopt it");
        return plan;
    }
    if !cx.yard.absent.contains_key(&key) {
        return Plan::act(Action::Look(key));
    }
    let Some(class) = machine.class.clone() else {
        plan.wait(&key, WaitReason::Mismatch, "ours by its tag, but without a class: end it by hand");
        return plan;
    };
    let now = cx.now.wall;
    let instance = Instance {
        facts: InstanceFacts {
            instance_id: machine.id.clone(),
            instance_arn: machine.arn.clone(),
            resource_class: class,
            instance_type: machine.instance_type.clone(),
            usage_class: machine.usage_class,
            cpu: machine.cpu,
            mmem: machine.mmem,
            availability_zone: machine.zone.clone(),
            launch_id: machine.launch.clone(),
            created_at: now,
        },
        life: Life::Terminated { reason: Reason::Orphan, gone_at: None },
        claim: None,
        threshold: None,
        state_since: now,
        uses: 0,
        trust_domain: String::new(),
        public_key: None,
        registration: None,
        registration_seq: 0,
        removal: None,
        registration_failures: 0,
        expired_by: None,
        expires_at: None,
        version: 1,
        updated_at: now,
    };
    let note = Note::warning("Orphan", "EC2 has it as ours, no record knows it: ended");
    Plan::act(Action::Orphan(Box::new(instance), note))
}
