//! One class: its waiting requests are served from the pool, what is lacking is launched, and its status is kept.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Cause, Claim, ClaimId, ClassName, Condition, ConditionType, Hours, Instance, InstanceArn, InstanceId,
    Key, Life, Phase, Pool, PoolSpec, Record, Request, State, Threshold, after, legal,
};

use super::action::{Action, Note, Plan, Step, WaitReason};
use super::capacity;
use super::context::Context;
use super::matching::{self, Share};
use super::offerings;
use super::reason;
use super::request::{self, accept, lacking};
use super::schedule::effective;
use super::yard::Class;

/// Most machines in one claim: with the request, well within DynamoDB's 100 items a transaction.
const CLAIM_LIMIT: usize = 40;
/// How often a pool's status is written at most.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// How long what a queue said is relied on.
const HINTS_LAST: Duration = Duration::from_secs(2);

/// What to do about a class now.
pub(super) fn decide(cx: &Context<'_>, name: &ClassName) -> Plan {
    let Some(class) = cx.yard.class(name) else { return Plan::default() };
    let mut plan = Plan::default();
    if let Some(pool) = &class.pool {
        serve(cx, name, class, &pool.spec, &mut plan);
        reason::tell(cx, name, class, &pool.spec, &mut plan);
        report(cx, class, pool, &mut plan);
        tidy(cx, name, class, &mut plan);
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
    if !class.waiting.is_empty() || cx.yard.is_busy(&Key::new(format!("queue#{name}"), "queue")) {
        return;
    }
    let due = class.received.unwrap_or(Duration::ZERO) + cx.policy.reannounce;
    if cx.now.mono >= due {
        plan.actions.push(Action::Receive(name.clone()));
    } else {
        plan.wake_at(due);
    }
}

/// Serves waiting requests in their order, then launches what is lacking.
fn serve(cx: &Context<'_>, name: &ClassName, class: &Class, spec: &PoolSpec, plan: &mut Plan) {
    let mut taken: BTreeSet<InstanceArn> = BTreeSet::new();
    let mut lacks: Vec<(Key, u32)> = Vec::new();
    // Requests this plan writes: one write each.
    let mut written: BTreeSet<Key> = BTreeSet::new();
    // What is kept for requests whose records are being written: if that is a claim, it is free in a moment.
    let mut kept: Vec<InstanceArn> = Vec::new();
    let ask = !class.waiting.is_empty() && !class.pooled.is_empty() && asks_queue(cx, name, class);
    if ask && !spec.paused {
        plan.actions.push(Action::Receive(name.clone()));
        plan.wake_at(cx.now.mono + Duration::from_secs(1));
        return;
    }
    for key in class.waiting.values() {
        let Some(request) = cx.yard.request(key) else { continue };
        if request::leaves_line(cx, request) {
            continue;
        }
        let lack = lacking(cx.yard, key, request, cx.now.wall);
        let paused = spec.paused;
        let share = if paused {
            Share::default()
        } else {
            matching::pick(cx, class, spec, request, lack, &mut taken)
        };
        let got = share.machines.len() as u32;
        if cx.yard.is_busy(key) || written.contains(key) {
            // What it lacks is known again once that is done.
            plan.wait(key, WaitReason::Busy, "its record is being written");
            kept.extend(share.machines);
            continue;
        }
        let spared = spare(cx, spec, request, lack - got, &mut kept);
        if got == 0 && spared > 0 {
            plan.wait(key, WaitReason::Busy, "an older request is being served");
            continue;
        }
        if got > 0 {
            plan.actions.push(claim(cx, key, request, spec, &share.machines));
            written.insert(key.clone());
        } else if request.status.phase.is_none() {
            plan.actions.push(accept(cx, request, spec));
            written.insert(key.clone());
        }
        explain(cx, key, &share, lack - got, paused, plan);
        if !share.listed.is_empty() {
            plan.wait(key, WaitReason::Busy, "a free machine is taken off the list of who had it before");
        }
        for arn in &share.listed {
            let former = cx.yard.instance(arn).and_then(|tracked| tracked.instance.claim.as_ref());
            if let Some(former) = former.map(|claim| claim.request.clone())
                && !cx.yard.is_busy(&former)
                && !written.contains(&former)
                && let Some(action) = request::let_go(cx, &former)
            {
                plan.actions.push(action);
                written.insert(former);
            }
        }
        let left = lack.saturating_sub(got.min(CLAIM_LIMIT as u32) + spared);
        if left > 0 && request.status.phase.is_some() {
            lacks.push((key.clone(), left));
        }
    }
    if let [(oldest, lack), rest @ ..] = lacks.as_slice()
        && !rest.is_empty()
        && !spec.paused
    {
        yield_parts(cx, class, spec, (oldest, *lack), rest, &written, plan);
    }
    capacity::launch(cx, name, class, &lacks, plan);
}

/// How many of the machines kept for others would do for a request: nothing is launched in their place before it is
/// known whether those others still need them.
fn spare(
    cx: &Context<'_>,
    spec: &PoolSpec,
    request: &Request,
    lack: u32,
    kept: &mut Vec<InstanceArn>,
) -> u32 {
    let would_do = |arn: &mut InstanceArn| {
        let tracked = cx.yard.instance(arn);
        tracked.is_some_and(|tracked| matching::mismatch(spec, request, &tracked.instance).is_none())
    };
    kept.extract_if(.., would_do).take(lack as usize).count() as u32
}

/// Whether the queue is asked who is free before machines are claimed: not again within a moment.
fn asks_queue(cx: &Context<'_>, name: &ClassName, class: &Class) -> bool {
    let busy = cx.yard.is_busy(&Key::new(format!("queue#{name}"), "queue"));
    !busy && class.received.is_none_or(|at| cx.now.mono >= at + HINTS_LAST)
}

fn explain(cx: &Context<'_>, key: &Key, share: &Share, lack: u32, paused: bool, plan: &mut Plan) {
    if lack == 0 {
        return;
    }
    if paused {
        plan.wait(key, WaitReason::Paused, "its class is paused");
    }
    if !share.refusals.is_empty() {
        let why: Vec<_> = share.refusals.iter().map(|refusal| refusal.as_str()).collect();
        plan.wait(key, WaitReason::Mismatch, format!("free machines are not for it: {}", why.join("; ")));
        // Freshness and nearness pass with time alone.
        plan.wake_at(cx.now.mono + Duration::from_secs(1));
    }
}

/// Takes machines out of the pool for a request, in one transaction over all versions.
fn claim(cx: &Context<'_>, key: &Key, request: &Request, spec: &PoolSpec, arns: &[InstanceArn]) -> Action {
    let now = cx.now.wall;
    let machines: Vec<Step<Instance>> = arns
        .iter()
        .take(CLAIM_LIMIT)
        .filter_map(|arn| cx.yard.instance(arn))
        .map(|tracked| {
            let step = Step::of(&tracked.instance, now, |next| {
                let id = ClaimId::of(&next.facts.instance_id, next.version);
                next.life = Life::Claimed { run: request.id.run_id.clone() };
                next.claim = Some(Claim { id, request: key.clone() });
                next.state_since = now;
                next.threshold = Some(Threshold { at: after(now, cx.policy.claimed), set_at: now });
                next.trust_domain = spec.trust_domain(&request.id.repository);
                next.registration = None;
                next.removal = None;
                if next.public_key.is_none() {
                    next.public_key = tracked.agent.as_ref().and_then(|agent| agent.public_key.clone());
                }
            });
            debug_assert!(
                legal(step.before.place(), Cause::Claimed, step.after.place()),
                "a claim is of a pooled machine"
            );
            step
        })
        .collect();
    let gained = machines.iter().map(|step| &step.after);
    let step = Step::of(request, now, |next| {
        request::take_on(cx, next);
        request::drop_lost(cx, key, request, next);
        request::gain(next, gained);
        let held = next.status.instances.len() as u32;
        let claimed = format!("{held} of {} machines claimed", next.intent.count);
        let message = reason::kept(next, request::target(next).saturating_sub(held), claimed);
        request::progress(next, Phase::Fulfilling, message);
    });
    Action::Claim { request: Box::new(step), machines }
}

/// A class that cannot grow, or has none of what the oldest wants: the youngest request that waits with a part the oldest can use gives it to the oldest that
/// lacks, so that two requests that each hold a part do not wait for each other for ever. What others gave already and
/// is on its way is counted first.
fn yield_parts(
    cx: &Context<'_>,
    class: &Class,
    spec: &PoolSpec,
    (oldest, lack): (&Key, u32),
    rest: &[(Key, u32)],
    written: &BTreeSet<Key>,
    plan: &mut Plan,
) {
    let Some(wanting) = cx.yard.request(oldest) else { return };
    let given: u32 =
        rest.iter().filter_map(|(key, _)| Some(cx.yard.leaving(key, cx.yard.request(key)?))).sum();
    let on_the_way =
        class.cleaning.saturating_add(class.warm_created).saturating_add(class.under_way.of(Some(oldest)));
    let grows = class.taken() < spec.max && !capacity::barred(cx, class, wanting, spec);
    if grows || on_the_way.max(given) >= lack {
        return;
    }
    let fits = |id: &InstanceId| {
        let tracked = cx.yard.by_id(id);
        tracked.is_some_and(|tracked| matching::mismatch(spec, wanting, &tracked.instance).is_none())
    };
    let gift = rest.iter().rev().find_map(|(key, _)| {
        let giver = cx.yard.request(key).filter(|giver| giver.phase() == Phase::Fulfilling)?;
        let given: Vec<InstanceId> =
            giver.status.instances.iter().rev().filter(|id| fits(id)).take(lack as usize).cloned().collect();
        let free = !cx.yard.is_busy(key) && !written.contains(key);
        (free && !given.is_empty()).then_some((giver, given))
    });
    let Some((giver, given)) = gift else { return };
    let step = Step::of(giver, cx.now.wall, |next| {
        next.status.instances.retain(|id| !given.contains(id));
        next.status.message = "gave machines to an older request, waiting for others".into();
    });
    let note = Note::normal("Yielded", "gives its part to an older request");
    plan.actions.push(Action::Request(Box::new(step), note));
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
    let message = if let Some(gone) = class.unbelieved(before) {
        let message = format!(
            "the list of machines lacks {gone} of {}: too many to believe it, none is ended for that; `runyard doctor` tells more",
            class.live()
        );
        plan.wait(&pool.key(), WaitReason::Doubt, message.clone());
        message
    } else if held_back {
        format!(
            "{idle} idle of {desired} wanted; launches are held back after {} failures{}",
            class.brake.failures,
            capacity::refused(class)
        )
    } else if let Some((offering, rest)) = class.resting(cx.now.mono).next() {
        let why = offerings::account(offering, rest.until, &cx.now);
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
    let step = Step::of(pool, cx.now.wall, |next| {
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
    });
    plan.actions.push(Action::Pool(Box::new(step)));
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
    let before =
        pool.status.conditions.iter().find(|c| c.condition_type == condition_type && c.status == status);
    let at = before.map_or(cx.now.wall, |c| c.at);
    Condition { condition_type, status, reason: reason.into(), message, at }
}

#[cfg(test)]
mod tests;
