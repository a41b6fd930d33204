//! Says on a ready request that its maximum runtime is about to be over, so that somebody can have it extended.

use std::time::Duration;

use jiff::Timestamp;

use super::write;
use crate::decide::context::Context;
use crate::decide::health::runtime;
use crate::decide::{Note, Plan};
use crate::model::{ConditionType, Request, Status};

/// How long before the end it is said. Of a maximum runtime of less than twice that, at its half.
const SAID_BEFORE: Duration = Duration::from_secs(300);

/// When it is said that a ready request ends.
pub(super) fn said_at(cx: &Context<'_>, request: &Request) -> Option<Timestamp> {
    let (begun, end) = (request.status.ready_at?, runtime::ends_at(cx, request)?);
    let half = Duration::try_from(end.duration_since(begun)).unwrap_or_default() / 2;
    Some(end.saturating_sub(SAID_BEFORE.min(half)).unwrap_or(end))
}

/// Says once for each end that it is near, and takes it back where the end was moved on.
pub(super) fn say(cx: &Context<'_>, request: &Request) -> Option<Plan> {
    let (due, end) = (said_at(cx, request)? <= cx.now.wall, runtime::ends_at(cx, request)?);
    let message = format!("its maximum runtime is over at {end}");
    match (due, said(&request.status)) {
        (true, Some(said)) if said == message => None,
        (true, Some(_) | None) => {
            Some(write(cx, request, Note::warning("RuntimeEnds", message.clone()), |next| {
                let (kind, reason) = (ConditionType::RuntimeEnds, "MaxRuntime");
                next.status.set_condition(kind, true, reason, message, cx.now.wall);
            }))
        }
        (false, Some(_)) => {
            let note = Note::normal("RuntimeMoved", format!("its maximum runtime is over at {end} only"));
            Some(write(cx, request, note, |next| take_back(&mut next.status)))
        }
        (false, None) => None,
    }
}

/// What the request says of its end, if it says anything.
fn said(status: &Status) -> Option<&str> {
    let ends = status.conditions.iter().find(|one| one.condition_type == ConditionType::RuntimeEnds)?;
    Some(&ends.message)
}

/// Says no more that it ends.
pub(super) fn take_back(status: &mut Status) {
    status.conditions.retain(|one| one.condition_type != ConditionType::RuntimeEnds);
}
