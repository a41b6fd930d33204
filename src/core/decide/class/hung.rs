//! First boots that hang: a machine that has said nothing for far longer than others of its class took gets a second one
//! beside it, warm. The first to be of use wins: a request takes the second one from the pool and gives the first up,
//! or the first one comes and the second stays free until its time is over.

use std::collections::BTreeSet;

use crate::decide::context::Context;
use crate::decide::matching;
use crate::decide::{Note, Plan, Planned, Step, WaitReason};
use crate::model::{InstanceArn, PoolSpec, Record, RecordId, Request, after};
use crate::yard::{Class, Tracked, gives_back};

/// The machines of a class whose boots hang, the oldest first. One whose agent has written is at work, however long.
fn hung<'a>(cx: &'a Context<'_>, class: &'a Class) -> impl Iterator<Item = &'a Tracked> {
    let patience = class.boots.patience(cx.policy.created);
    let old = class.starting.iter().take_while(move |(since, _)| after(*since, patience) <= cx.now.wall);
    old.filter_map(|(_, arn)| cx.yard.instance(arn)).filter(|tracked| !spoke(tracked))
}

fn spoke(tracked: &Tracked) -> bool {
    tracked.agent.as_ref().is_some_and(|agent| agent.heartbeat_seq > 0)
}

/// The request for which a machine boots, where a warm machine of its class would do for it.
fn waiting<'a>(cx: &'a Context<'_>, spec: &PoolSpec, tracked: &Tracked) -> Option<&'a Request> {
    let request = cx.yard.request_named(tracked.instance.held_by()?)?;
    let intent = &request.intent;
    let alike = intent.usage_class.is_none_or(|usage| usage == spec.usage_class);
    let fits = alike && intent.allowed_instance_types.is_none() && !gives_back(request);
    let listed = request.status.instances.contains(&tracked.instance.facts.instance_id);
    (fits && listed).then_some(request)
}

/// How many warm machines are wanted beside those whose boots hang: one for each that a request waits for, and for warm
/// ones no more than are kept ahead of need, so that a class whose boots all hang is not launched on and on.
pub(in crate::decide) fn beside(cx: &Context<'_>, class: &Class, spec: &PoolSpec, desired: u32) -> u32 {
    let (mut bound, mut warm) = (0_u32, 0_u32);
    for tracked in hung(cx, class) {
        match tracked.instance.run() {
            Some(_) => bound = bound.saturating_add(u32::from(waiting(cx, spec, tracked).is_some())),
            None => warm = warm.saturating_add(1),
        }
    }
    bound.saturating_add(warm.min(desired))
}

/// Requests give up a machine whose boot hangs for a free one that fits them, which the next pass gives to them.
pub(super) fn decide(cx: &Context<'_>, class: &Class, spec: &PoolSpec, plan: &mut Plan) {
    let patience = class.boots.patience(cx.policy.created);
    let next = class.starting.iter().map(|(since, _)| after(*since, patience)).find(|at| *at > cx.now.wall);
    if let Some(at) = next {
        plan.wake_at(cx.now.when(at));
    }
    // Others may have watched other boots.
    let leads = cx.role.lease.is_some();
    let mut taken: BTreeSet<&InstanceArn> = BTreeSet::new();
    for tracked in hung(cx, class) {
        let Some(request) = waiting(cx, spec, tracked) else { continue };
        let (key, id) = (request.key(), &tracked.instance.facts.instance_id);
        let why = format!("{id} has said nothing since {}", tracked.instance.facts.created_at);
        let written = |key: &RecordId| plan.actions.iter().any(|action| action.holds(key));
        let free = class.pooled.iter().map(|(_, arn)| arn).find(|arn| {
            let machine = cx.yard.instance(arn).map(|free| &free.instance);
            machine.is_some_and(|free| {
                !taken.contains(arn) && !written(&free.key()) && matching::mismatch(spec, request, free).is_none()
            })
        });
        match free {
            Some(free) if leads && !spec.paused && !cx.yard.is_busy(&key) && !written(&key) => {
                taken.insert(free);
                let step = Step::of(request, cx.now.wall, |next| {
                    next.status.instances.retain(|held| held != id);
                    next.status.message = format!("{why}; another machine takes its place");
                });
                let note = Note::warning("BootHangs", format!("{why} and is given up for another"));
                plan.actions.push(Planned::request(step, note));
            }
            Some(_) | None => {
                plan.wait(&key, WaitReason::Starting, format!("{why}, another machine is launched beside it"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
