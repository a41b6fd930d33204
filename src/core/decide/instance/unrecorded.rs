//! An unrecorded instance: its launch has some time to adopt it, then it is recorded as ended.

use crate::decide::context::Context;
use crate::decide::{Note, Plan, Planned, WaitReason};
use crate::model::{Instance, InstanceArn, InstanceFacts, Launch, Life, Reason};
use crate::yard::Yard;

/// Plans the actions for an unrecorded instance: its launch has some time to adopt it, then it is recorded as ended.
pub(super) fn decide(cx: &Context<'_>, arn: &InstanceArn) -> Plan {
    let Some((machine, since)) = cx.yard.unrecorded.get(arn) else { return Plan::default() };
    let key = Instance::key_of(arn);
    let mut plan = Plan::default();
    let launch = machine.launch.as_ref().map(Launch::key_of);
    if cx.yard.is_busy(&key)
        || cx.yard.is_unreadable(&key)
        || launch.is_some_and(|launch| cx.yard.is_unreadable(&launch))
    {
        plan.wait(&key, WaitReason::Busy, "its record, or its launch's, cannot be judged");
        return plan;
    }
    let due = since.saturating_add(cx.policy.timing.orphan);
    if cx.now.mono < due {
        plan.wake_at(due);
        plan.wait(&key, WaitReason::Deadline, "ours without a record, given time to be adopted");
        return plan;
    }
    let adoptable = machine.launch.as_ref().and_then(|id| cx.yard.launch(id));
    if adoptable.is_some_and(|tracked| Yard::is_open(&tracked.launch)) {
        plan.wake_at(cx.now.mono.saturating_add(cx.policy.timing.orphan));
        plan.wait(&key, WaitReason::Starting, "its launch is still open and will adopt it");
        return plan;
    }
    let Some(class) = machine.class.clone() else {
        plan.wait(&key, WaitReason::Mismatch, "ours by its tag, but without a class: end it by hand");
        return plan;
    };
    if let Some(unrecorded) = cx.yard.unbelieved_unrecorded(&class) {
        let why = format!(
            "{unrecorded} machines of its class or more have neither a record nor a launch: too many to believe the table, none is ended for that"
        );
        plan.wake_at(cx.now.mono.saturating_add(cx.policy.timing.orphan));
        plan.wait(&key, WaitReason::Doubt, why);
        return plan;
    }
    if !cx.yard.absent.contains_key(&key) {
        return Plan::act(Planned::look(key));
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
    Plan::act(Planned::orphan(instance, note))
}
