//! The end of a machine: decided in its record first, then asked for, then confirmed, then recorded as gone; and the
//! machines nobody recorded.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Instance, InstanceArn, InstanceFacts, Launch, Life, Reason, Record, Threshold};
use crate::ports::MachineState;

use super::super::action::{Action, Note, Plan, Step, WaitReason};
use super::super::context::Context;
use super::super::yard::Tracked;

/// How long the records of ended machines are kept, in seconds.
const KEPT: i64 = 24 * 3600;
/// First pause before a machine's maker is asked again whether it is gone.
const ASK_AGAIN: Duration = Duration::from_millis(250);
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
    if gone_at.is_some() {
        return gone(cx, tracked);
    }
    if is_gone(cx, tracked) {
        let step = Step::of(instance, cx.now.wall, |next| {
            if let Life::Terminated { gone_at, .. } = &mut next.life {
                *gone_at = Some(cx.now.wall);
            }
            next.expires_at = Some(cx.now.wall.as_second() + KEPT);
        });
        return Plan::act(Action::Bury(Box::new(step)));
    }
    press(cx, tracked)
}

/// Whether the machine is proved gone: its maker says that it ended, or does not know it although it is not new. A
/// maker without an inventory is taken at its word.
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

/// Asks for the machine's end and where it stands by turns, less often each time.
fn press(cx: &Context<'_>, tracked: &Tracked) -> Plan {
    let arn = &tracked.instance.facts.instance_arn;
    let Some((ended, times)) = tracked.ended else { return Plan::act(Action::Terminate(arn.clone())) };
    let (asked, questions) = tracked.asked.unwrap_or_default();
    let pause = (ASK_AGAIN * 2_u32.pow(times.saturating_add(questions).min(8))).min(ASK_AGAIN_MOST);
    let due = ended.max(asked).saturating_add(pause);
    if cx.now.mono < due {
        let mut plan = Plan::default();
        plan.wake_at(due);
        let why = "its end is asked for, EC2 has not confirmed it";
        plan.wait(&tracked.instance.key(), WaitReason::Deadline, why);
        return plan;
    }
    let ending = tracked.stands.flatten() == Some(MachineState::ShuttingDown);
    let described = tracked.asked.is_some() && asked > ended;
    Plan::act(if described && !ending {
        Action::Terminate(arn.clone())
    } else {
        Action::Describe(arn.clone())
    })
}

/// Gone for good: its runner is looked for once, its record goes when its time is over.
fn gone(cx: &Context<'_>, tracked: &Tracked) -> Plan {
    let instance = &tracked.instance;
    let arn = &instance.facts.instance_arn;
    let mut plan = Plan::default();
    if cx.policy.inventory && tracked.stands.flatten().is_some_and(MachineState::alive) {
        // Its maker did not know it for a while, and shows it again.
        return press(cx, tracked);
    }
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
    let launch = machine.launch.as_ref().map(Launch::key_of);
    if cx.yard.is_busy(&key)
        || cx.yard.hands_off(&key)
        || launch.is_some_and(|launch| cx.yard.hands_off(&launch))
    {
        plan.wait(&key, WaitReason::Busy, "its record, or its launch's, cannot be judged");
        return plan;
    }
    let due = since.saturating_add(cx.policy.orphan);
    if cx.now.mono < due {
        plan.wake_at(due);
        plan.wait(&key, WaitReason::Deadline, "ours without a record, given time to be adopted");
        return plan;
    }
    let adoptable = machine.launch.as_ref().and_then(|id| cx.yard.launch(id));
    if adoptable.is_some_and(|tracked| super::super::yard::Yard::is_open(&tracked.launch)) {
        plan.wake_at(cx.now.mono.saturating_add(cx.policy.orphan));
        plan.wait(&key, WaitReason::Starting, "its launch is still open and will adopt it");
        return plan;
    }
    let Some(class) = machine.class.clone() else {
        plan.wait(&key, WaitReason::Mismatch, "ours by its tag, but without a class: end it by hand");
        return plan;
    };
    if let Some(strangers) = cx.yard.unbelieved_strangers(&class) {
        let why = format!(
            "{strangers} machines of its class or more have neither a record nor a launch: too many to believe the table, none is ended for that"
        );
        plan.wake_at(cx.now.mono.saturating_add(cx.policy.orphan));
        plan.wait(&key, WaitReason::Doubt, why);
        return plan;
    }
    if !cx.yard.absent.contains_key(&key) {
        return Plan::act(Action::Look(key));
    }
    let now = cx.now.wall;
    let facts = InstanceFacts {
        instance_id: machine.id.clone(),
        instance_arn: machine.arn.clone(),
        resource_class: class,
        instance_type: machine.instance_type.clone(),
        usage_class: machine.usage_class,
        cpu: machine.cpu,
        mmem: machine.mmem,
        availability_zone: machine.zone.clone(),
        launch_id: machine.launch.clone(),
        launch_digest: None,
        created_at: now,
    };
    let instance = Instance::born(facts, Life::Terminated { reason: Reason::Orphan, gone_at: None });
    let note = Note::warning("Orphan", "EC2 has it as ours, no record knows it: ended");
    Plan::act(Action::Orphan(Box::new(instance), note))
}
