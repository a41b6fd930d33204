//! What a decision reads besides the records: the time, the settings, and whether this operator may launch.

use crate::model::{Timing, YardSharing};
use crate::yard::{Now, Yard};

/// The settings decisions depend on (contract, section 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The deadlines and intervals.
    pub timing: Timing,
    /// How many requests of one repository may be open at the same time.
    pub requests_per_repository: u32,
    /// Teams, priorities and the quotas of the whole yard.
    pub sharing: YardSharing,
    /// Whether runners are registered at a GitHub.
    pub github: bool,
    /// Whether the compute port knows all machines.
    pub inventory: bool,
}

/// What this operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// The lease's token, if we hold it and have read everything since.
    pub lease: Option<u64>,
}

/// The input of a decision.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The records as last observed.
    pub yard: &'a Yard,
    /// The settings.
    pub policy: &'a Policy,
    /// The moment.
    pub now: Now,
    /// This operator's role.
    pub role: Role,
}
