//! The state of a machine with the fields that belong to it. Only the states that have a run hold one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::record::identity::RecordId;
use crate::model::record::ids::{ClaimId, RunId};
use crate::model::record::state::Reason;

/// The request that a machine is, or was last, assigned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The claim's id.
    pub id: ClaimId,
    /// The request's key.
    pub request: RecordId,
}

/// The time until which a machine may stay in its state. Both times are by the operator's clock, so that their
/// difference is valid on any other clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The deadline.
    pub at: Timestamp,
    /// When it was set.
    pub set_at: Timestamp,
}

/// The state of a machine with the fields that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// EC2 returned it; with the run that it was launched for, or none when it is warm capacity.
    Created {
        /// The run it is bound to.
        run: Option<RunId>,
    },
    /// Taken from the pool for a run.
    Claimed {
        /// The run that holds it.
        run: RunId,
    },
    /// Its runner serves a run.
    Running {
        /// The run that holds it.
        run: RunId,
    },
    /// Given back.
    Idle {
        /// Since when it is in the pool; none while it is being cleaned.
        pooled_at: Option<Timestamp>,
    },
    /// Decided to end.
    Terminated {
        /// The reason.
        reason: Reason,
        /// The time at which EC2 confirmed it.
        gone_at: Option<Timestamp>,
    },
}
