//! The reason for which a request waits, as its message states it.

use crate::model::{InstanceId, Phase, Request};
use crate::ports::Machine;

/// The text before the reason in a message.
const BECAUSE: &str = ", because ";
/// The text before the number of missing machines, in the message of a request that was ready.
const WAITING: &str = "; waiting for ";
/// Formats a number of machines.
pub(crate) fn machines(count: u32) -> String {
    if count == 1 { "1 machine".into() } else { format!("{count} machines") }
}

/// Returns the verb for this number of machines.
pub(crate) fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// Returns the reason in a message, if there is one.
pub(crate) fn of(message: &str) -> Option<&str> {
    message.split_once(BECAUSE).map(|(_, why)| why)
}

/// Returns the reason in a message, as the end of another message.
pub(crate) fn because(message: &str) -> String {
    of(message).map(|why| format!("{BECAUSE}{why}")).unwrap_or_default()
}

/// Returns the message of a request that got machines: the reason in its last message, as long as it lacks some, else
/// this message.
pub(crate) fn kept(next: &Request, lack: u32, otherwise: String) -> String {
    match of(&next.status.message) {
        Some(why) if lack > 0 => waits(next, lack, why),
        Some(_) | None => otherwise,
    }
}

pub(crate) fn waits(request: &Request, lack: u32, why: &str) -> String {
    let before = match request.phase() {
        Phase::Ready => format!("{}{WAITING}", base(&request.status.message)),
        Phase::Pending | Phase::Fulfilling | Phase::Releasing | Phase::Released | Phase::Failed => {
            "waiting for ".to_owned()
        }
    };
    format!("{before}{lack} of {}{BECAUSE}{why}", machines(request.intent.count))
}

pub(crate) fn base(message: &str) -> &str {
    message.split_once(WAITING).map_or(message, |(base, _)| base)
}

/// Lists the ids of machines.
pub(crate) fn named(machines: &[Machine]) -> String {
    let ids: Vec<&InstanceId> = machines.iter().map(|machine| &machine.id).collect();
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
