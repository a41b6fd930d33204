//! One request: taken on or refused, ready, degraded, released or failed. What it holds is counted in its own record.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    ClassName, ConditionType, Desired, InstanceId, Intent, LabelMode, Phase, Pool, PoolSpec, Reason, Record,
    ReleasedBy, Request, RequestKey, Status, after,
};

use crate::decide::{Note, Plan, Planned, Step, WaitReason};
use crate::decide::context::Context;
use crate::decide::reason::{self, are, machines};
use crate::decide::unread::Account;
use crate::yard::{Holding, LAST_REPLACEMENT, Lost, Yard, gives_back, over_time, target};

mod intent;

/// How long the records of finished requests are kept, in seconds.
const KEPT: i64 = 7 * 24 * 3600;
/// Most machines one request may ask for.
const MOST: u32 = 500;
/// How often the list of a request that gives back is written at most: its machines come back one by one, and each would
/// cost a write. Whoever waits for one of them has it taken off the list at once ([`let_go`]).
const GIVEN_BACK_EVERY: Duration = Duration::from_secs(1);
/// Longest a request may wait, in seconds.
const LONGEST_TIMEOUT: u64 = 7 * 24 * 3600;

/// Why a new request cannot be taken on: one word and a sentence. None when it can, or when its class must be read
/// again before it counts as unknown.
pub(super) fn refused(cx: &Context<'_>, request: &Request) -> Option<(&'static str, String)> {
    let intent = &request.intent;
    let class = Yard::class_of(request);
    let pool = class.as_ref().and_then(|class| cx.yard.pool(class));
    let Some(pool) = pool else {
        let key = class.as_ref().map(Pool::key_of);
        let known =
            key.as_ref().is_some_and(|key| cx.yard.hands_off(key) || !cx.yard.absent.contains_key(key));
        let message =
            format!("there is no resource class {:?}; `runyard get pools` lists them", intent.resource_class);
        return (!known).then_some(("UnknownClass", message));
    };
    let spec = &pool.spec;
    invalid(intent).map(|message| ("Invalid", message)).or_else(|| {
        if !spec.admits(&request.id.repository) {
            let message = format!("class {} is not open to {}", spec.resource_class, request.id.repository);
            return Some(("NotAllowed", message));
        }
        if spec.label_mode == LabelMode::Secret && intent.label_suffix.is_none() {
            let message = format!(
                "class {} serves requests with a secret label alone: ask with `runyard provision --secret-label`",
                spec.resource_class
            );
            return Some(("NotAllowed", message));
        }
        if intent.count > spec.max {
            let message = format!(
                "count {} is over the max of class {} ({})",
                intent.count, spec.resource_class, spec.max
            );
            return Some(("OverMax", message));
        }
        if let (Some(asked), Some(most)) = (intent.max_runtime_minutes, spec.max_runtime_minutes)
            && asked > most
        {
            let message = format!(
                "maxRuntimeMinutes {asked} is over what class {} allows ({most})",
                spec.resource_class
            );
            return Some(("NotAllowed", message));
        }
        let holder = cx.yard.same_label(request).find(|other| is_live(other))?;
        let message = format!(
            "label {} is that of {} until it is over; use another run id or name",
            request.public_label(),
            holder.id
        );
        Some(("LabelTaken", message))
    })
}

/// Whether a request was taken on and may still have runners.
fn is_live(request: &Request) -> bool {
    request.status.accepted_at.is_some() && !request.phase().is_final()
}

/// Whether another request that would have the same label is taken on or refused first.
fn waits_for_label(cx: &Context<'_>, request: &Request) -> bool {
    let new = |other: &&Request| other.status.accepted_at.is_none() && !gives_back(other);
    cx.yard.same_label(request).filter(new).any(|other| other.key() < request.key())
}

/// Whether a request that stands in line is about to leave it by its own decision, so that nothing is claimed for it.
pub(super) fn leaves_line(cx: &Context<'_>, request: &Request) -> bool {
    let status = &request.status;
    let due = status.deadline.is_some_and(|deadline| deadline <= cx.now.wall);
    let ends = match status.phase {
        None => refused(cx, request).is_some() || waits_for_label(cx, request),
        Some(_) => request.intent.fail_requested_at.is_some() || cx.yard.superseded(&request.id).is_some(),
    };
    ends || (due && status.phase != Some(Phase::Ready))
}

/// What is wrong with the numbers of an intent.
fn invalid(intent: &Intent) -> Option<String> {
    if !(1..=MOST).contains(&intent.count) {
        return Some(format!("count: {} is not within 1 to {MOST}", intent.count));
    }
    if intent.min_count > intent.count || intent.min_count == 0 {
        return Some(format!("minCount: {} is not within 1 to count ({})", intent.min_count, intent.count));
    }
    if !(1..=LONGEST_TIMEOUT).contains(&intent.timeout_seconds) {
        return Some(format!(
            "timeoutSeconds: {} is not within 1 to {LONGEST_TIMEOUT}",
            intent.timeout_seconds
        ));
    }
    intent
        .max_runtime_minutes
        .filter(|minutes| !(1..=60 * 24 * 35).contains(minutes))
        .map(|minutes| format!("maxRuntimeMinutes: {minutes} is not within 1 to {}", 60 * 24 * 35))
}

/// What to do about one request now.
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

/// Why a request is released, for a person.
fn released_because(request: &Request) -> &'static str {
    match (request.intent.desired, request.status.released_by) {
        (Desired::Released, _) => "released",
        (Desired::Provisioned, Some(ReleasedBy::MaxRuntime)) => "its maximum runtime is over",
        (Desired::Provisioned, Some(ReleasedBy::RunEnded)) => "GitHub says that its run is over",
        (Desired::Provisioned, Some(ReleasedBy::Superseded)) => "superseded by a newer attempt",
        // An operator of an earlier version did not write why.
        (Desired::Provisioned, None) => "superseded by a newer attempt, or over its time",
    }
}

/// New: refused at once, or left to its class, which takes it on.
fn arrived(cx: &Context<'_>, key: &RequestKey, request: &Request) -> Plan {
    if let Some((reason, message)) = refused(cx, request) {
        return fail(cx, request, reason, message);
    }
    if let Some(class) = Yard::class_of(request)
        && cx.yard.pool(&class).is_none()
        && !cx.yard.absent.contains_key(&Pool::key_of(&class))
    {
        if !cx.yard.hands_off(&Pool::key_of(&class)) {
            return Plan::act(Planned::look(Pool::key_of(&class)));
        }
        return without_class(cx, key, request, &class);
    }
    let mut plan = Plan::default();
    // It has its deadline from a time in which its class could not be read.
    if let Some(deadline) = request.status.deadline {
        if deadline <= cx.now.wall {
            return fail(cx, request, "DeadlinePassed", "its class could be read too late".into());
        }
        plan.wake_at(cx.now.when(deadline));
    }
    if waits_for_label(cx, request) {
        plan.wait(key, WaitReason::Behind, "another request with the same label is judged first");
    } else {
        plan.wait(key, WaitReason::Behind, "its class takes it on in a moment");
    }
    plan
}

/// The record of its class cannot be read, so it is neither refused nor served: it has its place in the line and its
/// deadline from now on, but no phase, so that it is judged by the class as soon as that can be read.
fn without_class(cx: &Context<'_>, key: &RequestKey, request: &Request, class: &ClassName) -> Plan {
    let why = format!("the record of class {class} cannot be read");
    let Some(deadline) = request.status.deadline else {
        return write(cx, request, Note::warning("ClassUnreadable", why.clone()), |next| {
            next.accept(cx.now.wall);
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

/// Taken on, and wanted.
fn serve(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>) -> Plan {
    let (intent, status) = (&request.intent, &request.status);
    let now = cx.now.wall;
    if intent.fail_requested_at.is_some() {
        return fail(cx, request, "FailedByPerson", "a person asked that it fail".into());
    }
    if let Some(why) = cx.yard.requests.get(key).and_then(|asked| asked.refused.clone()) {
        return fail(cx, request, "NotAllowed", why);
    }
    if let Some(newer) = cx.yard.superseded(&request.id) {
        let why = format!("superseded by attempt {newer}");
        return release(cx, key, request, holding, Some(ReleasedBy::Superseded), &why);
    }
    if let Some(over) = over_time(cx.yard, request).map(|at| after(at, LAST_REPLACEMENT))
        && over <= now
    {
        let by = Some(ReleasedBy::MaxRuntime);
        return release(cx, key, request, holding, by, "its maximum runtime is over");
    }
    if let Some(plan) = intent::edited(cx, request) {
        return plan;
    }
    let due = status.deadline.is_some_and(|deadline| deadline <= now);
    let ready = status.phase == Some(Phase::Ready);
    let enough = holding.running >= intent.count || (due && holding.running >= intent.min_count);
    if !ready && enough {
        let message =
            format!("{} of {} {} running", holding.running, machines(intent.count), are(intent.count));
        return write(cx, request, Note::normal("Ready", message.clone()), |next| {
            drop_lost(cx, key, request, next);
            let held = next.status.instances.len() as u32;
            next.status.settled_for = (due && held < intent.count).then_some(held);
            next.progress(Phase::Ready, message.clone());
            next.status.ready_at = Some(now);
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
    if let Some(over) = over_time(cx.yard, request) {
        plan.wake_at(cx.now.when(after(over, LAST_REPLACEMENT)));
    }
    if let Some(deadline) = status.deadline.filter(|_| !ready) {
        plan.wake_at(cx.now.when(deadline));
        let starting = holding.held.len() as u32 - holding.running.min(holding.held.len() as u32);
        let message = format!(
            "{} of {} running, {starting} starting; fails at {deadline} unless {} run",
            holding.running, intent.count, intent.min_count
        );
        plan.wait(key, WaitReason::Deadline, message);
    }
    plan
}

/// `Pending` becomes `Fulfilling` once something is launched for it.
fn launching(cx: &Context<'_>, key: &RequestKey, request: &Request) -> Plan {
    let class = Yard::class_of(request)
        .and_then(|class| cx.yard.class(&class).map(|class| class.under_way.of(Some(key))));
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

/// A request that was ready says when it lost a machine, why, and when it has its number again.
fn degraded(cx: &Context<'_>, request: &Request, holding: &Holding<'_>) -> Plan {
    let now = cx.now.wall;
    let is = is_degraded(request);
    let doomed: Vec<&InstanceId> = holding.held.iter().copied().filter(|id| is_doomed(cx, id)).collect();
    if let (false, true, [first, ..]) = (is, holding.lost.is_empty(), doomed.as_slice()) {
        let at = cx.yard.by_id(first).and_then(|tracked| tracked.interruption()).map(|notice| notice.at);
        let ids: Vec<&str> = doomed.iter().map(|id| id.as_str()).collect();
        let when = at.map_or(String::new(), |at| format!(" at {at}"));
        let message = format!("EC2 takes {} back{when}; to be replaced", ids.join(", "));
        let reason = Reason::Interrupted.as_str();
        return write(cx, request, Note::warning("Degraded", message.clone()), |next| {
            next.status.set_condition(ConditionType::Degraded, true, reason, message.clone(), now);
            next.status.message = message;
        });
    }
    if !holding.lost.is_empty() {
        // What is lost is held no more: whoever counts the list counts what there is.
        let note = Note::warning("Degraded", loss(holding));
        let key = &request.id;
        return write(cx, request, note, |next| {
            drop_lost(cx, key, request, next);
            degrade(next, holding, now);
        });
    }
    if is && holding.lost.is_empty() && doomed.is_empty() && holding.running >= target(request) {
        let message = format!("{} {} running again", machines(holding.running), are(holding.running));
        return write(cx, request, Note::normal("Recovered", message.clone()), |next| {
            next.status.set_condition(ConditionType::Degraded, false, "Recovered", message.clone(), now);
            next.status.message = message;
        });
    }
    Plan::default()
}

/// Whether EC2 said that it ends a machine.
fn is_doomed(cx: &Context<'_>, id: &InstanceId) -> bool {
    cx.yard.by_id(id).is_some_and(crate::yard::Tracked::doomed)
}

fn is_degraded(request: &Request) -> bool {
    request.status.conditions.iter().any(|c| c.condition_type == ConditionType::Degraded && c.status)
}

/// Which machines were lost, for a person.
fn loss(holding: &Holding<'_>) -> String {
    let reason = |lost: &Lost<'_>| lost.reason.map_or("gone", |reason| reason.as_str());
    let lost: Vec<String> =
        holding.lost.iter().map(|lost| format!("{} ({})", lost.id, reason(lost))).collect();
    format!("lost {}; to be replaced", lost.join(", "))
}

/// Says that a request that was ready lost machines, and why.
fn degrade(next: &mut Request, holding: &Holding<'_>, now: Timestamp) {
    let cause = holding.lost.iter().find_map(|lost| lost.reason).map_or("gone", |reason| reason.as_str());
    next.status.set_condition(ConditionType::Degraded, true, cause, loss(holding), now);
    next.status.message = loss(holding);
}

/// Given back: `Releasing` until every machine it held is pooled or ended.
fn release(
    cx: &Context<'_>,
    key: &RequestKey,
    request: &Request,
    holding: &Holding<'_>,
    by: Option<ReleasedBy>,
    why: &str,
) -> Plan {
    let account = Account::of(cx, request, holding);
    let out = holding.out + cx.yard.leaving(key, request) + account.waiting();
    if out == 0 {
        let told = account.told(request);
        let message = match &told {
            Some(told) => format!("{why}; {told}"),
            None => format!("{why}; {} given back", machines(request.status.served.len() as u32)),
        };
        let note = match &told {
            Some(_) => Note::warning("Unaccounted", message.clone()),
            None => Note::normal("Released", message.clone()),
        };
        return write(cx, request, note, |next| {
            next.progress(Phase::Released, message);
            next.status.released_by = by;
            unaccounted(&mut next.status, told, cx.now.wall);
            next.let_all_go();
            next.status.expires_at = Some(cx.now.wall.as_second() + KEPT);
        });
    }
    if request.status.phase != Some(Phase::Releasing) {
        let unread = match account.waiting() {
            0 => String::new(),
            unread => format!(", {unread} of them with a record that cannot be read"),
        };
        let message = format!("{why}; waiting for {} to be cleaned{unread}", machines(out));
        return write(cx, request, Note::normal("Releasing", message.clone()), |next| {
            next.progress(Phase::Releasing, message);
            next.status.released_by = by;
            drop_lost(cx, key, request, next);
        });
    }
    let mut plan = returning(cx, key, request, holding, out);
    waits_for_unread(cx, key, &account, &mut plan);
    plan
}

/// When a release looks again for machines whose records cannot be read, and what it says meanwhile.
fn waits_for_unread(cx: &Context<'_>, key: &RequestKey, account: &Account<'_>, plan: &mut Plan) {
    for (id, until) in &account.waits {
        plan.wake_at(cx.now.when(*until));
        let why = format!("the record of {id} cannot be read; it has ended itself by {until}");
        plan.wait(key, WaitReason::Doubt, why);
    }
}

/// Says of a request that is over which of its machines nobody can account for.
fn unaccounted(status: &mut Status, told: Option<String>, now: Timestamp) {
    if let Some(told) = told {
        status.set_condition(ConditionType::Unaccounted, true, "Unreadable", told, now);
    }
}

/// A request that gives everything back takes its machines off its list soon after they are pooled or ended.
fn returning(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>, out: u32) -> Plan {
    let mut plan = Plan::default();
    let back = holding.lost.iter().filter(|lost| !lost.out).count();
    let written = request.updated_at.map(|at| cx.now.wall.duration_since(at));
    // A time to come is another operator's clock, and not waited for.
    let since = written.and_then(|since| Duration::try_from(since).ok()).unwrap_or(GIVEN_BACK_EVERY);
    if back > 0 && since < GIVEN_BACK_EVERY {
        plan.wake_at(cx.now.mono + (GIVEN_BACK_EVERY - since));
    } else if back > 0 {
        let message = format!("{} given back, waiting for {out}", machines(back as u32));
        return write(cx, request, Note::normal("GivenBack", message.clone()), |next| {
            drop_lost(cx, key, request, next);
            if !next.phase().is_final() {
                next.status.message = message;
            }
        });
    }
    plan.wait(key, WaitReason::Cleaning, format!("{} {} being given back", machines(out), are(out)));
    plan
}

/// `Released` and `Failed` never change again; a failed one's list empties once everything is given back.
fn over(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>) -> Plan {
    if !request.status.instances.is_empty() {
        let account = Account::of(cx, request, holding);
        // It is over: its list empties once it holds nothing, whether or not everything is clean already.
        if holding.held.iter().all(|id| account.unaccounted.contains(id)) {
            let told = account.told(request);
            let note = match &told {
                Some(told) => Note::warning("Unaccounted", told.clone()),
                None => Note::normal("GivenBack", "all its machines are given back"),
            };
            return write(cx, request, note, |next| {
                if let Some(told) = &told {
                    next.status.message = format!("{}; {told}", next.status.message);
                }
                unaccounted(&mut next.status, told, cx.now.wall);
                next.let_all_go();
            });
        }
        let mut plan = returning(cx, key, request, holding, holding.out + account.waiting());
        waits_for_unread(cx, key, &account, &mut plan);
        return plan;
    }
    let mut plan = Plan::default();
    if let Some(expires_at) = request.status.expires_at
        && let Ok(at) = jiff::Timestamp::from_second(expires_at)
    {
        if at <= cx.now.wall {
            plan.actions.push(Planned::expire(request.key(), expires_at));
        } else {
            plan.wake_at(cx.now.when(at));
        }
    }
    plan
}

fn fail(cx: &Context<'_>, request: &Request, reason: &'static str, message: String) -> Plan {
    let now = cx.now.wall;
    write(cx, request, Note::warning(reason, message.clone()), |next| {
        if next.status.accepted_at.is_none() {
            next.status.accepted_at = Some(now);
            next.status.deadline = Some(now);
        }
        next.progress(Phase::Failed, format!("{reason}: {message}"));
        next.status.set_condition(ConditionType::Ready, false, reason, message, now);
        next.status.expires_at = Some(now.as_second() + KEPT);
    })
}

fn write(cx: &Context<'_>, request: &Request, note: Note, change: impl FnOnce(&mut Request)) -> Plan {
    let step = Step::of(request, cx.now.wall, |next| {
        // Taken on by an operator that did not keep what it took on.
        if next.status.accepted_at.is_some() && next.phase().wants_machines() {
            next.keep_intent();
        }
        change(next);
    });
    Plan::act(Planned::request(step, note))
}

/// A new request of a repository that has as many open ones as it may.
pub(super) fn too_many(cx: &Context<'_>, request: &Request, most: u32) -> Plan {
    let repository = &request.id.repository;
    let message = format!(
        "{repository} has {most} open requests, as many as one repository may (limits.requests_per_repository); release some that are not needed, or raise that limit"
    );
    fail(cx, request, "TooMany", message)
}

/// Takes a new request into its class's line.
pub(super) fn accept(cx: &Context<'_>, request: &Request, spec: &PoolSpec) -> Planned {
    let step = Step::of(request, cx.now.wall, |next| {
        next.accept(cx.now.wall);
        let message = format!("waiting for {} of class {}", machines(next.intent.count), spec.resource_class);
        next.progress(Phase::Pending, message);
    });
    let note = Note::normal(
        "Accepted",
        format!("{} of class {}", machines(request.intent.count), spec.resource_class),
    );
    Planned::request(step, note)
}

/// Takes machines that are proved lost off a request's list; a request that gives all back keeps those that are still
/// being cleaned after it, because it is not released before they are. One that was ready says what it lost. Under
/// which claim it held a machine stays known: that is how the machine knows that this claim is over.
pub(super) fn drop_lost(cx: &Context<'_>, key: &RequestKey, request: &Request, next: &mut Request) {
    let keep_out = gives_back(next);
    let holding = cx.yard.holding(key, request);
    for lost in holding.lost.iter().filter(|lost| !(lost.out && keep_out)) {
        next.lose(lost.id);
    }
    if !keep_out && next.status.phase == Some(Phase::Ready) && !holding.lost.is_empty() && !is_degraded(next)
    {
        degrade(next, &holding, cx.now.wall);
    }
}

/// A request that gave machines back and still lists them while others wait: its list is brought up to date first, so
/// that no machine stands on two lists.
pub(super) fn let_go(cx: &Context<'_>, key: &RequestKey) -> Option<Planned> {
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
