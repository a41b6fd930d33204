//! Handles changes of an intent after the request was accepted: it is served as accepted, except that a higher count is
//! accepted too, and that a person can end it.

use jiff::Timestamp;

use crate::model::{Condition, ConditionType, MOST_MACHINES, Request};

use super::{fail, write};
use crate::decide::context::Context;
use crate::decide::reason::machines;
use crate::decide::{Note, Plan};
use crate::yard::Yard;

/// The end of a request of which a person asked that it fail.
pub(super) fn failed_by_person(cx: &Context<'_>, request: &Request) -> Option<Plan> {
    request.intent.fail_requested_at?;
    let by = request.intent.fail_requested_by.as_deref().unwrap_or("a person");
    Some(fail(cx, request, "FailedByPerson", format!("failed by {by}")))
}

/// Judges a changed intent: a higher count within the class's `max` is accepted, any other change is ignored and
/// reported.
pub(super) fn edited(cx: &Context<'_>, request: &Request) -> Option<Plan> {
    let (intent, now) = (&request.intent, cx.now.wall);
    let pool = Yard::class_of(request).and_then(|class| cx.yard.pool(&class));
    let most = pool.map_or(0, |pool| pool.spec.max).min(MOST_MACHINES);
    let raised = request.written.as_ref().map(|written| written.count);
    if let Some(count) = raised.filter(|count| *count > intent.count && *count <= most) {
        let message = format!("asks for {} instead of {}", machines(count), intent.count);
        return Some(write(cx, request, Note::normal("CountRaised", message.clone()), |next| {
            next.raise_count();
            next.status.message = message;
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

/// The reported message about ignored changes, if there is one.
fn told(request: &Request) -> Option<&str> {
    let ignored = |c: &&Condition| c.condition_type == ConditionType::IntentIgnored && c.status;
    request.status.conditions.iter().find(ignored).map(|condition| condition.message.as_str())
}
