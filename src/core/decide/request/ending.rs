//! Warns on a ready request that its maximum runtime is almost over, so that a person can extend it.

use std::time::Duration;

use jiff::Timestamp;

use super::write;
use crate::decide::context::Context;
use crate::decide::health::runtime;
use crate::decide::{Note, Plan};
use crate::model::{ConditionType, Request, Status};

/// How long before the end the warning is written. For a maximum runtime of less than twice this time, at half of it.
const SAID_BEFORE: Duration = Duration::from_secs(300);

/// Returns when the warning of a ready request is written.
pub(super) fn said_at(cx: &Context<'_>, request: &Request) -> Option<Timestamp> {
    let (begun, end) = (runtime::since(request)?, runtime::ends_at(cx, request)?);
    let half = Duration::try_from(end.duration_since(begun)).unwrap_or_default() / 2;
    Some(end.saturating_sub(SAID_BEFORE.min(half)).unwrap_or(end))
}

/// Writes the warning once for each end, and withdraws it where the end was extended.
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

/// Returns the current warning of a request, if there is one.
fn said(status: &Status) -> Option<&str> {
    let ends = status.conditions.iter().find(|one| one.condition_type == ConditionType::RuntimeEnds)?;
    Some(&ends.message)
}

/// Withdraws the warning.
pub(super) fn take_back(status: &mut Status) {
    status.conditions.retain(|one| one.condition_type != ConditionType::RuntimeEnds);
}
