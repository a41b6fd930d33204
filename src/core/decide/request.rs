//! Decides about one request: it is accepted or refused, ready, degraded, released or failed. Its machines are counted
//! in its own record.

use jiff::Timestamp;

use crate::ledger::Money;
use crate::model::{
    Asked, ClassName, ConditionType, Phase, Pool, PoolSpec, ReadySource, Record, ReleasedBy, Request,
    RequestKey,
};

use crate::decide::context::Context;
use crate::decide::health::runtime;
use crate::decide::plan::reason;
use crate::decide::plan::reason::{are, machines};
use crate::decide::{Note, Plan, Planned, Step, WaitReason};
use crate::yard::{Holding, Yard, gives_back, target};

mod admission;
mod archived;
mod ending;
mod intent;
mod lost;
mod release;

pub(super) use admission::refused;
use admission::unlaunchable;
use lost::degraded;
pub(super) use lost::drop_lost;
use release::{over, release, released_because};

/// The reason of condition `Accepted` of a request whose class cannot be read.
const CLASS_UNREADABLE: &str = "ClassUnreadable";
/// How long the records of finished requests are kept, in seconds.
const KEPT: i64 = 7 * 24 * 3600;

/// Accepts a request of a class: sets its position, its deadline, its share and the value of its priority.
pub(super) fn accept_into(cx: &Context<'_>, spec: &PoolSpec, next: &mut Request) {
    next.accept(cx.now.wall);
    let Some(sharing) = spec.sharing.as_ref().filter(|_| next.status.share.is_none()) else { return };
    let (yard, repository) = (&cx.policy.sharing, &next.id.repository);
    next.status.share = Some(sharing.share(repository, &yard.teams));
    next.status.priority_value = yard.priority(next.intent.priority.as_deref(), repository).unwrap_or(0);
}

/// Returns whether a request was accepted and may still have runners.
fn is_live(request: &Request) -> bool {
    request.status.accepted_at.is_some() && !request.phase().is_final()
}

/// Returns whether another request with the same label is judged first.
fn waits_for_label(cx: &Context<'_>, request: &Request) -> bool {
    let new = |other: &&Request| other.status.accepted_at.is_none() && !gives_back(other);
    cx.yard.same_label(request).filter(new).any(|other| other.key() < request.key())
}

/// Returns whether a waiting request is about to end by its own decision, so that no machine is claimed for it.
pub(super) fn leaves_queue(cx: &Context<'_>, request: &Request) -> bool {
    let status = &request.status;
    let due = status.deadline.is_some_and(|deadline| deadline <= cx.now.wall);
    let ends = match status.phase {
        None => {
            refused(cx, request).is_some()
                || archived::is_unrecalled(cx, request)
                || waits_for_label(cx, request)
        }
        Some(_) => {
            request.intent.fail_requested_at.is_some()
                || cx.yard.superseded(&request.id).is_some()
                || unlaunchable(cx, request).is_some()
        }
    };
    ends || is_over_time(cx, request) || (due && status.phase != Some(Phase::Ready))
}

/// Returns whether a ready request has had its machines for its maximum runtime.
fn is_over_time(cx: &Context<'_>, request: &Request) -> bool {
    runtime::ends_at(cx, request).is_some_and(|end| end <= cx.now.wall)
}

/// Plans the actions for one request now.
pub(super) fn decide(cx: &Context<'_>, key: &RequestKey) -> Plan {
    let Some(request) = cx.yard.request(key) else { return Plan::default() };
    let mut plan = Plan::default();
    if cx.yard.is_busy(key) {
        plan.wait(key, WaitReason::Busy, "its record is being written");
        return plan;
    }
    let holding = cx.yard.holding(key, request);
    let by = request.status.released_by;
    match (request.status.phase, request.is_released()) {
        (Some(Phase::Released | Phase::Failed), _) => over(cx, key, request, &holding),
        (_, true) | (Some(Phase::Releasing), false) => {
            release(cx, key, request, &holding, by, released_because(request))
        }
        (None, false) => arrived(cx, key, request),
        (Some(Phase::Pending | Phase::Fulfilling | Phase::Ready), false) => serve(cx, key, request, &holding),
    }
}

/// Handles a new request: it is refused at once, or left to its class, which accepts it.
fn arrived(cx: &Context<'_>, key: &RequestKey, request: &Request) -> Plan {
    if let Some((reason, message)) = refused(cx, request) {
        return fail(cx, request, reason, message);
    }
    if archived::is_unrecalled(cx, request) {
        return Plan::act(Planned::recall(key.clone()));
    }
    if let Some(class) = Yard::class_of(request)
        && cx.yard.pool(&class).is_none()
        && !cx.yard.absent.contains_key(&Pool::key_of(&class))
    {
        if !cx.yard.is_unreadable(&Pool::key_of(&class)) {
            return Plan::act(Planned::look(Pool::key_of(&class)));
        }
        let failed = intent::failed_by_person(cx, request);
        return failed.unwrap_or_else(|| without_class(cx, key, request, &class));
    }
    let mut plan = Plan::default();
    // Its deadline was set while its class could not be read.
    if let Some(deadline) = request.status.deadline {
        if deadline <= cx.now.wall {
            return fail(cx, request, "DeadlinePassed", "its class could be read too late".into());
        }
        plan.wake_at(cx.now.when(deadline));
    }
    if waits_for_label(cx, request) {
        plan.wait(key, WaitReason::Behind, "another request with the same label is judged first");
    } else {
        plan.wait(key, WaitReason::Behind, "its class accepts it in a moment");
    }
    plan
}

/// Handles a new request whose class record is unreadable, so that the request is neither refused nor served. It gets
/// its position and its deadline now, but no phase, so that the class judges it as soon as its record can be read.
fn without_class(cx: &Context<'_>, key: &RequestKey, request: &Request, class: &ClassName) -> Plan {
    let why = format!("the record of class {class} cannot be read");
    let Some(deadline) = request.status.deadline else {
        return write(cx, request, Note::warning(CLASS_UNREADABLE, why.clone()), |next| {
            next.accept(cx.now.wall);
            let kind = ConditionType::Accepted;
            next.status.set_condition(kind, false, CLASS_UNREADABLE, why.clone(), cx.now.wall);
            next.status.message = why;
        });
    };
    if deadline <= cx.now.wall {
        return fail(cx, request, "DeadlinePassed", why);
    }
    let mut plan = Plan::default();
    plan.wake_at(cx.now.when(deadline));
    plan.wait(key, WaitReason::Mismatch, why);
    plan
}

/// Ends a request early, whatever it holds: by a person, by GitHub, by a newer attempt, or by its maximum runtime.
fn ended_early(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>) -> Option<Plan> {
    if let Some(plan) = intent::failed_by_person(cx, request) {
        return Some(plan);
    }
    if let Some(why) = cx.yard.requests.get(key).and_then(|asked| asked.refused.clone()) {
        return Some(fail(cx, request, "NotAllowed", why));
    }
    if let Some(newer) = cx.yard.superseded(&request.id) {
        let why = format!("superseded by attempt {newer}");
        return Some(release(cx, key, request, holding, Some(ReleasedBy::Superseded), &why));
    }
    if request.is_slot() && (request.rests() || runner_ended(cx, request, holding)) {
        let by = Some(ReleasedBy::RunnerEnded);
        let why = if request.rests() { "no job needs it" } else { "its runner ended" };
        return Some(release(cx, key, request, holding, by, why));
    }
    is_over_time(cx, request).then(|| {
        if request.intent.asked == Asked::Job {
            return rest(cx, request);
        }
        let by = Some(ReleasedBy::MaxRuntime);
        release(cx, key, request, holding, by, "its maximum runtime is over")
    })
}

/// Returns whether the runner of a slot ended: it served its job, or has none and will get none.
fn runner_ended(cx: &Context<'_>, request: &Request, holding: &Holding<'_>) -> bool {
    holding.held.iter().filter_map(|id| cx.yard.by_id(id)).any(|tracked| {
        let ours =
            tracked.instance.claim.as_ref().is_some_and(|claim| claim.request.request() == Some(&request.id));
        ours && tracked.runner_ended()
    })
}

/// Takes all machines from a request whose maximum runtime is over. It was made for queued jobs and stays for those that
/// come later: it gets machines for them as if it had none before.
fn rest(cx: &Context<'_>, request: &Request) -> Plan {
    let message = format!(
        "its maximum runtime is over: {} given back; jobs of its run that are queued later get others",
        machines(request.status.instances.len() as u32)
    );
    write(cx, request, Note::warning("RuntimeOver", message.clone()), |next| {
        next.status.instances.clear();
        next.want(0, cx.now.wall);
        ending::take_back(&mut next.status);
        next.status.observed_generation = next.intent.generation;
        next.status.message = message;
    })
}

/// Handles an accepted request that is still wanted.
fn serve(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>) -> Plan {
    let (intent, status) = (&request.intent, &request.status);
    let now = cx.now.wall;
    if let Some(plan) = ended_early(cx, key, request, holding) {
        return plan;
    }
    if let Some(plan) = intent::edited(cx, request) {
        return plan;
    }
    if let Some(plan) = ending::say(cx, request) {
        return plan;
    }
    if let Some(why) = unlaunchable(cx, request) {
        return fail(cx, request, "Invalid", why);
    }
    let due = status.deadline.is_some_and(|deadline| deadline <= now);
    let ready = status.phase == Some(Phase::Ready);
    let enough = holding.running >= target(request).max(1) || (due && holding.running >= intent.min_count);
    if !ready && enough {
        let message =
            format!("{} of {} {} running", holding.running, machines(intent.count), are(intent.count));
        return write(cx, request, Note::normal("Ready", message.clone()), |next| {
            drop_lost(cx, key, request, next);
            let held = next.status.instances.len() as u32;
            next.status.settled_for = (due && held < intent.count).then_some(held);
            next.progress(Phase::Ready, message.clone());
            next.status.ready_at = Some(now);
            next.status.hourly_cost_nanos = hourly_cost(cx, next);
            next.status.ready_source = source(cx, next);
            next.status.set_condition(ConditionType::Ready, true, "Ready", message, now);
        });
    }
    if !ready && due {
        let message = format!(
            "{} of {} ran at the deadline ({} {} needed){}",
            holding.running,
            machines(intent.count),
            intent.min_count,
            are(intent.min_count),
            reason::because(&status.message)
        );
        return fail(cx, request, "DeadlinePassed", message);
    }
    let mut plan = if ready { degraded(cx, request, holding) } else { launching(cx, key, request) };
    let ends = [ending::said_at(cx, request), runtime::ends_at(cx, request)];
    for at in ends.into_iter().flatten().filter(|at| *at > now) {
        plan.wake_at(cx.now.when(at));
    }
    if let Some(deadline) = status.deadline.filter(|_| !ready) {
        plan.wake_at(cx.now.when(deadline));
        plan.wait(key, WaitReason::Deadline, until_deadline(request, holding, deadline));
    }
    plan
}

/// Returns the hourly cost of a request's machines, in nano-dollars; none where a machine has no price.
fn hourly_cost(cx: &Context<'_>, request: &Request) -> Option<u64> {
    let mut sum = Money::ZERO;
    for id in &request.status.instances {
        let facts = &cx.yard.by_id(id)?.instance.facts;
        let (kind, zone) = (&facts.instance_type, &facts.availability_zone);
        sum += cx.policy.prices.hour(facts.resource_class.as_str(), kind, zone, facts.usage_class).ok()?;
    }
    u64::try_from(sum.nanos()).ok().filter(|nanos| *nanos > 0)
}

/// Returns where a request's machines came from: one that was launched before it was accepted was in the pool.
fn source(cx: &Context<'_>, request: &Request) -> Option<ReadySource> {
    let accepted = request.status.accepted_at?;
    let machines = request.status.instances.iter().filter_map(|id| cx.yard.by_id(id));
    let cold: Vec<bool> = machines.map(|m| m.instance.facts.created_at >= accepted).collect();
    Some(match (cold.iter().any(|cold| *cold), cold.iter().all(|cold| *cold)) {
        (true, true) => ReadySource::Cold,
        (true, false) => ReadySource::Mixed,
        (false, _) => ReadySource::Warm,
    })
}

/// Describes the machines of a request that is not ready, and when it fails.
fn until_deadline(request: &Request, holding: &Holding<'_>, deadline: Timestamp) -> String {
    let (intent, held) = (&request.intent, holding.held.len() as u32);
    let starting = held - holding.running.min(held);
    format!(
        "{} of {} running, {starting} starting; fails at {deadline} unless {} run",
        holding.running, intent.count, intent.min_count
    )
}

/// Moves `Pending` to `Fulfilling` once a machine is launched for it.
fn launching(cx: &Context<'_>, key: &RequestKey, request: &Request) -> Plan {
    let class = Yard::class_of(request)
        .and_then(|class| cx.yard.class(&class).map(|class| class.in_flight.of(Some(key))));
    match class {
        Some(coming) if coming > 0 && request.phase() == Phase::Pending => {
            let message = format!("{} {} being launched", machines(coming), are(coming));
            write(cx, request, Note::normal("Launching", message.clone()), |next| {
                next.progress(Phase::Fulfilling, message)
            })
        }
        Some(_) | None => Plan::default(),
    }
}

fn fail(cx: &Context<'_>, request: &Request, reason: &'static str, message: String) -> Plan {
    let now = cx.now.wall;
    write(cx, request, Note::warning(reason, message.clone()), |next| {
        if next.status.accepted_at.is_none() {
            next.status.accepted_at = Some(now);
            next.status.deadline = Some(now);
        }
        if reason != "DeadlinePassed" {
            // Another reason applies now that its class can be read or a person ended it.
            next.status.conditions.retain(|condition| condition.reason != CLASS_UNREADABLE);
        }
        next.progress(Phase::Failed, format!("{reason}: {message}"));
        next.status.set_condition(ConditionType::Ready, false, reason, message, now);
        next.status.expires_at = Some(now.as_second() + KEPT);
    })
}

fn write(cx: &Context<'_>, request: &Request, note: Note, change: impl FnOnce(&mut Request)) -> Plan {
    let step = Step::of(request, cx.now.wall, |next| {
        // It was accepted by an older operator, which did not store the accepted intent.
        if next.status.accepted_at.is_some() && next.phase().wants_machines() {
            next.keep_intent();
        }
        let last = cx.yard.jobs_of_slot(request).map(|(_, job)| job).max_by_key(|job| job.at);
        next.status.job = last.cloned().or_else(|| next.status.job.take());
        change(next);
    });
    Plan::act(Planned::request(step, note))
}

/// Refuses a new request that exceeds its repository's limit of open requests.
pub(super) fn too_many(cx: &Context<'_>, request: &Request, most: u32) -> Plan {
    let repository = &request.id.repository;
    let message = format!(
        "{repository} has {most} open requests, as many as one repository may (limits.requests_per_repository); release some that are not needed, or raise that limit"
    );
    fail(cx, request, "TooMany", message)
}

/// Refuses a new request of a share that has its maximum number of waiting requests.
pub(super) fn waits_over_quota(cx: &Context<'_>, request: &Request, share: &str, most: u32) -> Plan {
    let message = format!(
        "{most} requests of share {share} wait already, as many as its quota allows (maxWaiting); ask again when some of them have machines"
    );
    fail(cx, request, "Quota", message)
}

/// Accepts a new request into its class's queue of waiting requests.
pub(super) fn accept(cx: &Context<'_>, request: &Request, spec: &PoolSpec) -> Planned {
    let step = Step::of(request, cx.now.wall, |next| {
        accept_into(cx, spec, next);
        let message = format!("waiting for {} of class {}", machines(next.intent.count), spec.resource_class);
        next.progress(Phase::Pending, message);
    });
    let note = Note::normal(
        "Accepted",
        format!("{} of class {}", machines(request.intent.count), spec.resource_class),
    );
    Planned::request(step, note)
}

/// Removes returned machines from the list of a releasing request while other requests wait for them, so that no
/// machine is on two lists.
pub(super) fn flush_returned(cx: &Context<'_>, key: &RequestKey) -> Option<Planned> {
    let request = cx.yard.request(key)?;
    let holding = cx.yard.holding(key, request);
    if holding.out == 0 && holding.unread.is_empty() && gives_back(request) {
        // Its own next step empties the list.
        return None;
    }
    let back = holding.lost.iter().filter(|lost| !lost.out).count();
    if back == 0 {
        return None;
    }
    let note = Note::normal("GivenBack", format!("{} given back", machines(back as u32)));
    let step = Step::of(request, cx.now.wall, |next| drop_lost(cx, key, request, next));
    Some(Planned::request(step, note))
}

#[cfg(test)]
mod tests;
