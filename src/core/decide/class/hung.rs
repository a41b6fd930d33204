//! Lets a request give up a machine whose first boot hangs for a free one. The machine that is ready first is used: if
//! the hung one comes first, the second one stays free until its time is over.

use std::collections::BTreeSet;

use crate::decide::context::Context;
use crate::decide::health::boots;
use crate::decide::matching;
use crate::decide::{Note, Plan, Planned, Step, WaitReason};
use crate::model::{InstanceArn, PoolSpec, Record, RecordId};
use crate::yard::Class;

/// Removes a machine whose boot hangs from its request where a free machine fits the request; the next pass claims the
/// free one.
pub(super) fn decide(cx: &Context<'_>, class: &Class, spec: &PoolSpec, plan: &mut Plan) {
    if let Some(at) = boots::next(cx, class) {
        plan.wake_at(cx.now.when(at));
    }
    // Another operator may have observed other boots.
    let leads = cx.role.lease.is_some();
    let mut taken: BTreeSet<&InstanceArn> = BTreeSet::new();
    for tracked in boots::hung(cx, class) {
        let Some(request) = boots::waiting(cx, spec, tracked) else { continue };
        let (key, id) = (request.key(), &tracked.instance.facts.instance_id);
        let why = format!("{id} has said nothing since {}", tracked.instance.facts.created_at);
        let written = |key: &RecordId| plan.actions.iter().any(|action| action.holds(key));
        let free = class.pooled.iter().map(|(_, arn)| arn).find(|arn| {
            let machine = cx.yard.instance(arn).map(|free| &free.instance);
            machine.is_some_and(|free| {
                !taken.contains(arn)
                    && !written(&free.key())
                    && matching::mismatch(spec, request, free).is_none()
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
                plan.wait(
                    &key,
                    WaitReason::Starting,
                    format!("{why}, another machine is launched beside it"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
