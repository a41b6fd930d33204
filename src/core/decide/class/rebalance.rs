//! Breaks partial-allocation deadlocks: where a class cannot grow, two partially served requests would wait for each
//! other forever, so the youngest returns its machines to the oldest.

use std::collections::BTreeSet;

use crate::model::{InstanceId, Phase, PoolSpec, Request, RequestKey};

use crate::decide::capacity;
use crate::decide::context::Context;
use crate::decide::matching;
use crate::decide::request;
use crate::decide::{Note, Plan, Planned, Step};
use crate::yard::Class;

/// Lets the youngest partially served request return usable machines to the oldest request, if the class cannot grow or
/// has no capacity for the oldest. Machines that other requests already returned count first. Visits only requests that
/// hold machines, so at most as many as there are machines.
pub(super) fn rebalance_partial(
    cx: &Context<'_>,
    class: &Class,
    spec: &PoolSpec,
    (oldest, lack): (&RequestKey, u32),
    written: &BTreeSet<RequestKey>,
    plan: &mut Plan,
) {
    let Some(wanting) = cx.yard.request(oldest) else { return };
    if spec.paused || (class.taken() < spec.max && !capacity::barred(cx, class, wanting, spec)) {
        return;
    }
    let on_the_way =
        class.cleaning.saturating_add(class.warm_created).saturating_add(class.in_flight.of(Some(oldest)));
    if on_the_way >= lack {
        return;
    }
    let younger = || {
        let after = class.waiting.served().range(wanting.queue_position()..).filter(|(_, key)| key != oldest);
        after.filter_map(|(_, key)| Some((key, cx.yard.request(key)?)))
    };
    if younger().map(|(key, request)| cx.yard.leaving(key, request)).sum::<u32>() >= lack {
        return;
    }
    let fits = |id: &InstanceId| {
        let tracked = cx.yard.by_id(id);
        tracked.is_some_and(|tracked| matching::mismatch(spec, wanting, &tracked.instance).is_none())
    };
    let gift = |(key, giver): (&RequestKey, &Request)| -> Option<Vec<InstanceId>> {
        let stays = giver.phase() == Phase::Fulfilling && !request::leaves_queue(cx, giver);
        if !stays || cx.yard.is_busy(key) || written.contains(key) {
            return None;
        }
        let held = giver.status.instances.iter().rev().filter(|id| fits(id));
        let given: Vec<InstanceId> = held.take(lack as usize).cloned().collect();
        (!given.is_empty()).then_some(given)
    };
    let youngest_first = younger().collect::<Vec<_>>().into_iter().rev();
    let found = youngest_first.into_iter().find_map(|(key, giver)| Some((giver, gift((key, giver))?)));
    let Some((giver, given)) = found else { return };
    let step = Step::of(giver, cx.now.wall, |next| {
        next.status.instances.retain(|id| !given.contains(id));
        next.status.message = "gave machines to an older request, waiting for others".into();
    });
    let note = Note::normal("Yielded", "gives its part to an older request");
    plan.actions.push(Planned::request(step, note));
}
