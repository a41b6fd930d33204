//! Which first boots of a class hang? A machine that has not reported for far longer than other machines of its class
//! took gets a second, warm machine beside it.

use jiff::Timestamp;

use crate::decide::context::Context;
use crate::model::{PoolSpec, Request, after};
use crate::yard::{Class, Tracked, gives_back};

/// Lists the machines of a class whose boots hang, the oldest first. A machine whose agent has written is at work,
/// however long it takes.
pub(crate) fn hung<'a>(cx: &'a Context<'_>, class: &'a Class) -> impl Iterator<Item = &'a Tracked> {
    let patience = class.boots.patience(cx.policy.timing.created);
    let old = class.starting.iter().take_while(move |(since, _)| after(*since, patience) <= cx.now.wall);
    old.filter_map(|(_, arn)| cx.yard.instance(arn)).filter(|tracked| !spoke(tracked))
}

fn spoke(tracked: &Tracked) -> bool {
    tracked.agent.as_ref().is_some_and(|agent| agent.heartbeat_seq > 0)
}

/// Returns the request for which a machine boots, where a warm machine of its class could serve that request as well.
pub(crate) fn waiting<'a>(cx: &'a Context<'_>, spec: &PoolSpec, tracked: &Tracked) -> Option<&'a Request> {
    let request = cx.yard.request_named(tracked.instance.held_by()?)?;
    let intent = &request.intent;
    let alike = intent.usage_class.is_none_or(|usage| usage == spec.usage_class);
    let fits = alike && intent.allowed_instance_types.is_none() && !gives_back(request);
    let listed = request.status.instances.contains(&tracked.instance.facts.instance_id);
    (fits && listed).then_some(request)
}

/// Counts the warm machines that are wanted beside those whose boots hang: one for each machine that a request waits
/// for, and for warm machines no more than are kept ahead of need, so that a class whose boots all hang does not launch
/// without end.
pub(crate) fn beside(cx: &Context<'_>, class: &Class, spec: &PoolSpec, desired: u32) -> u32 {
    let (mut bound, mut warm) = (0_u32, 0_u32);
    for tracked in hung(cx, class) {
        match tracked.instance.run() {
            Some(_) => bound = bound.saturating_add(u32::from(waiting(cx, spec, tracked).is_some())),
            None => warm = warm.saturating_add(1),
        }
    }
    bound.saturating_add(warm.min(desired))
}

/// Returns when the next boot counts as hung, if its machine stays silent.
pub(crate) fn next(cx: &Context<'_>, class: &Class) -> Option<Timestamp> {
    let patience = class.boots.patience(cx.policy.timing.created);
    class.starting.iter().map(|(since, _)| after(*since, patience)).find(|at| *at > cx.now.wall)
}
