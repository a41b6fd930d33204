//! The state of a runner that may be retired: the operator asks whether it has a job, and until it knows what GitHub
//! says, no job may begin.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Served;

/// How long a runner without a job stays suspended. The operator asks GitHub within the first part of this time.
pub(crate) const SUSPENDED: Duration = Duration::from_secs(30);

/// The answer to the question whether a runner has a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retire {
    /// The question: the `retireAskedAt` that it answers.
    pub at: Timestamp,
    /// Whether the runner has a job; none before the answer is known.
    pub busy: Option<bool>,
    /// Until when the runner stays suspended, in monotonic time.
    pub until: Duration,
}

impl Retire {
    /// Returns whether the runner is suspended at this time. Monotonic time begins anew with each boot, and what ran
    /// before does not run any more.
    pub(crate) fn is_suspended(&self, now: Duration) -> bool {
        self.until.checked_sub(now).is_some_and(|left| !left.is_zero() && left <= SUSPENDED)
    }
}

impl Served {
    /// Records whether its runner has a job. A runner without one is suspended from now on.
    pub(super) fn frozen(&mut self, busy: bool, now: Duration) {
        let Some(retire) = &mut self.retire else { return };
        retire.busy = Some(busy);
        retire.until = if busy { now } else { now.saturating_add(SUSPENDED) };
    }
}
