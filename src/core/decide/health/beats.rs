//! Doubts silence in bulk. When more than three and more than 30 % of a class's agents fall silent together, the cause
//! is more likely between them and the table than on each machine. Their end is postponed by one more `timing.stale`,
//! then the rule applies to each machine by itself (contract, section 2.2).

use std::time::Duration;

use crate::decide::context::Context;
use crate::yard::{Class, Doubt};

/// The interval between two checks of a class in doubt.
const DOUBT_LOOKS: Duration = Duration::from_secs(1);

/// Returns when a class is checked for doubt again, on the monotonic clock.
pub(crate) fn look_again(cx: &Context<'_>, class: &Class) -> Option<Duration> {
    if class.beats.doubt(&cx.now, cx.policy.timing.stale).is_some() {
        return Some(cx.now.mono + DOUBT_LOOKS);
    }
    let at = class.beats.doubtful_at(cx.now.seen, cx.policy.timing.stale)?;
    let left = at.saturating_sub(cx.now.seen);
    Some(cx.now.mono + left + Duration::from_millis(1))
}

/// Describes the doubt, for the message of the class.
pub(crate) fn told(doubt: Doubt) -> String {
    let Doubt { silent, agents } = doubt;
    format!("{silent} of {agents} agents fell silent together: none is ended for that yet")
}

#[cfg(test)]
mod tests;
