//! Handles changes of an intent after the request was accepted: it is served as accepted, except that a higher count or
//! maximum runtime is accepted too, and that a person can end it.

use jiff::Timestamp;

use crate::model::{Condition, ConditionType, LONGEST_RUNTIME_MINUTES, MOST_MACHINES, Request};

use super::{ending, fail, write};
use crate::decide::context::Context;
use crate::decide::health::runtime;
use crate::decide::plan::reason::machines;
use crate::decide::{Note, Plan};
use crate::yard::Yard;

/// Fails a request where a person asked for it.
pub(super) fn failed_by_person(cx: &Context<'_>, request: &Request) -> Option<Plan> {
    request.intent.fail_requested_at?;
    let by = request.intent.fail_requested_by.as_deref().unwrap_or("a person");
    Some(fail(cx, request, "FailedByPerson", format!("failed by {by}")))
}

/// Judges a changed intent: accepts a higher count within the class's `max` and a higher maximum runtime within the
/// class's limit, and ignores and reports any other change.
pub(super) fn edited(cx: &Context<'_>, request: &Request) -> Option<Plan> {
    let (intent, now) = (&request.intent, cx.now.wall);
    if let Some(count) = raised_count(cx, request) {
        let message = format!("asks for {} instead of {}", machines(count), intent.count);
        return Some(write(cx, request, Note::normal("CountRaised", message.clone()), |next| {
            next.raise_count();
            next.status.message = message;
            if raised_runtime(cx, request).is_some() {
                raise_runtime(next);
            }
            tell_ignored(next, now);
        }));
    }
    if let Some(minutes) = raised_runtime(cx, request) {
        let message = format!("may have its machines for {minutes} min from ready");
        return Some(write(cx, request, Note::normal("RuntimeRaised", message), |next| {
            raise_runtime(next);
            tell_ignored(next, now);
        }));
    }
    let seen = request.status.observed_generation == intent.generation;
    if seen && request.written.is_none() && told(request).is_none() {
        return None;
    }
    let mut next = request.clone();
    tell_ignored(&mut next, now);
    let status = next.status;
    let (observed, conditions) = (status.observed_generation, status.conditions);
    if seen && request.status.conditions == conditions {
        return None;
    }
    let ignored = request.changed_attributes().join(", ");
    let note = if ignored.is_empty() {
        Note::normal("IntentSeen", "nothing that is served was changed")
    } else {
        Note::warning("IntentIgnored", format!("{ignored}: served as it was accepted"))
    };
    Some(write(cx, request, note, |next| {
        next.status.observed_generation = observed;
        next.status.conditions = conditions;
    }))
}

/// Accepts a raised maximum runtime and withdraws the warning of its end.
fn raise_runtime(next: &mut Request) {
    next.raise_runtime();
    ending::take_back(&mut next.status);
}

/// Returns the count in the changed intent, if it is accepted too.
fn raised_count(cx: &Context<'_>, request: &Request) -> Option<u32> {
    let written = request.written.as_ref()?.count;
    let most = cx.yard.pool(&Yard::class_of(request)?)?.spec.max.min(MOST_MACHINES);
    (written > request.intent.count && written <= most).then_some(written)
}

/// Returns the maximum runtime in minutes in the changed intent, if it is accepted too.
fn raised_runtime(cx: &Context<'_>, request: &Request) -> Option<u64> {
    let written = request.written.as_ref()?.max_runtime_minutes?;
    let spec = &cx.yard.pool(&Yard::class_of(request)?)?.spec;
    let most = spec.max_runtime_minutes.unwrap_or(LONGEST_RUNTIME_MINUTES).min(LONGEST_RUNTIME_MINUTES);
    let counts = runtime::max_runtime(cx, Some(request), Some(spec)).as_secs() / 60;
    (written > counts && written <= most).then_some(written)
}

/// Writes the status for the current generation and reports the attributes that are ignored.
fn tell_ignored(next: &mut Request, now: Timestamp) {
    next.status.observed_generation = next.intent.generation;
    let ignored = next.changed_attributes().join(", ");
    let (is, reason, message) = if ignored.is_empty() {
        (false, "Served", "what is written is served".to_owned())
    } else {
        let message = format!("{ignored}: changed after the request was accepted, served as it was then");
        (true, "ChangedAfterAcceptance", message)
    };
    if is && told(next) != Some(message.as_str()) || !is && told(next).is_some() {
        next.status.set_condition(ConditionType::IntentIgnored, is, reason, message, now);
    }
}

/// Returns the reported message about ignored changes, if there is one.
fn told(request: &Request) -> Option<&str> {
    let ignored = |c: &&Condition| c.condition_type == ConditionType::IntentIgnored && c.status;
    request.status.conditions.iter().find(ignored).map(|condition| condition.message.as_str())
}
