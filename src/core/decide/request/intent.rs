//! What becomes of an intent that is changed after the request was taken on? It is served as it was then; only a higher
//! count is taken on too.

use jiff::Timestamp;

use crate::model::{Condition, ConditionType, Request};

use super::{MOST, write};
use crate::decide::{Note, Plan};
use crate::decide::context::Context;
use crate::decide::reason::machines;
use crate::yard::Yard;

/// What became of an intent after it was taken on: a higher count within the class's `max` is taken on too, any other
/// change is ignored and told of.
pub(super) fn edited(cx: &Context<'_>, request: &Request) -> Option<Plan> {
    let (intent, now) = (&request.intent, cx.now.wall);
    let pool = Yard::class_of(request).and_then(|class| cx.yard.pool(&class));
    let most = pool.map_or(0, |pool| pool.spec.max).min(MOST);
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

/// The status answers the intent as it is written now, and says which of it is not served.
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

/// What was told of changes that are not served, if they are not.
fn told(request: &Request) -> Option<&str> {
    let ignored = |c: &&Condition| c.condition_type == ConditionType::IntentIgnored && c.status;
    request.status.conditions.iter().find(ignored).map(|condition| condition.message.as_str())
}
