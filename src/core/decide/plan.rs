//! The plan for one unit: actions, the time to look again, and why nothing more is done.

pub(crate) mod effect;
pub(crate) mod planned;
pub(crate) mod reason;
pub(crate) mod runner;

use std::time::Duration;

use crate::model::{RecordId, words};

use crate::decide::plan::planned::Planned;

words! {
    /// Why something that could be expected is not done now.
    WaitReason {
        /// Its record is being written.
        Busy = "Busy",
        /// For machines that are on their way.
        Starting = "Starting",
        /// For machines that are given back or cleaned.
        Cleaning = "Cleaning",
        /// An older request comes first.
        Behind = "Behind",
        /// The class has as many machines as `max` allows.
        AtMax = "AtMax",
        /// Launches of the class are held back after failures.
        BackOff = "BackOff",
        /// GitHub takes no runner of the version that machines get any more.
        Runner = "Runner",
        /// What it asks for was not to be had, and is left alone for a while.
        NoCapacity = "NoCapacity",
        /// Which image the class is launched from is not known yet.
        Image = "Image",
        /// The class is paused.
        Paused = "Paused",
        /// Its share has what its quota allows.
        Quota = "Quota",
        /// Somebody else holds the lease.
        NotLeader = "NotLeader",
        /// For an agent to speak.
        Agent = "Agent",
        /// For a deadline.
        Deadline = "Deadline",
        /// Free machines exist and do not fit.
        Mismatch = "Mismatch",
        /// GitHub cannot be reached.
        GitHub = "GitHub",
        /// What is seen lacks too much to be believed.
        Doubt = "Doubt",
    }
}

/// Something that is not done, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The record that waits.
    pub subject: RecordId,
    /// The reason.
    pub reason: WaitReason,
    /// The reason as a sentence.
    pub message: String,
}

/// The plan for one unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The actions to carry out now; at most one per record.
    pub actions: Vec<Planned>,
    /// When to look again although nothing changed, on the monotonic clock.
    pub wake: Option<Duration>,
    /// The things that are not done, and why.
    pub waits: Vec<Wait>,
}

impl Plan {
    /// Sets the time to look again to this time, unless it is earlier already.
    pub(super) fn wake_at(&mut self, at: Duration) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Returns a plan with this action only.
    pub(super) fn act(action: Planned) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    /// Adds the reason for not doing something.
    pub(crate) fn wait(
        &mut self,
        subject: impl Into<RecordId>,
        reason: WaitReason,
        message: impl Into<String>,
    ) {
        self.waits.push(Wait { subject: subject.into(), reason, message: message.into() });
    }
}
