//! The records of the service of scale sets, and its refusals.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::ports::scale_sets::Statistics;
use serde::{Deserialize, Serialize};

/// A scale set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Set {
    /// Its number, never given twice.
    pub id: u64,
    /// `owner/name` or `owner`.
    pub scope: String,
    /// Its name, unique within its group.
    pub name: String,
    /// The labels of the jobs that it serves.
    pub labels: Vec<String>,
    /// Its runner group.
    pub group_id: u64,
    /// Its only session.
    pub session: Option<SetSession>,
    /// How many jobs it may hold, as its listener announced it; none without a listener.
    pub capacity: Option<u32>,
    /// News that no batch has yet, each with the time from which it may be told.
    pub(super) news: Vec<(Timestamp, JobNews)>,
    /// Batches that were not deleted.
    pub(super) batches: BTreeMap<u64, Vec<JobNews>>,
    pub(super) last_batch: u64,
}

impl Set {
    /// Returns whether it serves the jobs of a repository that want these labels.
    pub(super) fn serves(&self, facts: &JobFacts) -> bool {
        let whole = format!("{}/{}", facts.owner, facts.repository);
        let here = self.scope.eq_ignore_ascii_case(&whole) || self.scope.eq_ignore_ascii_case(&facts.owner);
        here && facts.labels.iter().all(|label| self.labels.iter().any(|own| own.eq_ignore_ascii_case(label)))
    }
}

/// The session of a listener.
#[derive(Clone, Serialize, Deserialize)]
pub struct SetSession {
    /// Its name.
    pub id: String,
    /// The name that its listener gave itself.
    pub owner: String,
    pub(super) token: String,
    pub(super) token_until: Timestamp,
    pub(super) last_seen: Timestamp,
}

impl SetSession {
    pub(super) fn gone(&self, held: Duration, now: Timestamp) -> bool {
        now >= self.last_seen + held
    }

    pub(super) fn accepts(&self, token: &str, now: Timestamp) -> bool {
        self.token == token && now < self.token_until
    }
}

impl fmt::Debug for SetSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetSession").field("id", &self.id).field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// A single-use runner of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRunner {
    /// GitHub's number.
    pub id: u64,
    /// Its set.
    pub set: u64,
    /// Its name.
    pub name: String,
    /// The job that it has, or that is on its way to it.
    pub job: Option<u64>,
}

/// A job as it is queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobWish {
    /// The owner of its repository.
    pub owner: String,
    /// The name of its repository.
    pub repository: String,
    /// Its run.
    pub run_id: u64,
    /// Its name.
    pub name: String,
    /// The labels that it wants.
    pub labels: Vec<String>,
}

/// What a message tells of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The number by which it is acquired.
    pub number: u64,
    /// The name of its present assignment.
    pub job_id: String,
    /// The owner of its repository.
    pub owner: String,
    /// The name of its repository.
    pub repository: String,
    /// Its run.
    pub run_id: u64,
    /// Its name.
    pub name: String,
    /// The labels that it wants.
    pub labels: Vec<String>,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When it was assigned to its set.
    pub assigned_at: Option<Timestamp>,
    /// When a runner took it.
    pub taken_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// A job that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetJob {
    /// What is told of it.
    pub facts: JobFacts,
    /// Where it is.
    pub place: JobPlace,
    /// How often it was assigned.
    pub assignments: u32,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobPlace {
    /// No set may hold it now.
    Waiting,
    /// It was queued while its set had announced that it may hold none: it is never offered.
    Trapped,
    /// A set may acquire it.
    Available {
        /// The set.
        set: u64,
    },
    /// A set has it, and no runner.
    Assigned {
        /// The set.
        set: u64,
        /// Since when.
        since: Timestamp,
        /// Whether a runner may take it. One that was on its way to a runner which is gone must lapse first.
        free: bool,
    },
    /// It is on its way to a runner.
    Taken {
        /// The set.
        set: u64,
        /// The runner.
        runner: u64,
    },
    /// It runs.
    Running {
        /// The set.
        set: u64,
        /// The runner.
        runner: u64,
    },
}

impl JobPlace {
    /// Returns the set that it is offered to or assigned to.
    #[must_use]
    pub fn set(self) -> Option<u64> {
        match self {
            Self::Waiting | Self::Trapped => None,
            Self::Available { set }
            | Self::Assigned { set, .. }
            | Self::Taken { set, .. }
            | Self::Running { set, .. } => Some(set),
        }
    }

    /// Returns the runner that has it, or that it is on its way to.
    #[must_use]
    pub fn runner(self) -> Option<u64> {
        match self {
            Self::Waiting | Self::Trapped | Self::Available { .. } | Self::Assigned { .. } => None,
            Self::Taken { runner, .. } | Self::Running { runner, .. } => Some(runner),
        }
    }

    /// Returns whether it counts as assigned: it waits for a runner of its set, or runs on one.
    #[must_use]
    pub fn assigned(self) -> bool {
        match self {
            Self::Waiting | Self::Trapped | Self::Available { .. } => false,
            Self::Assigned { .. } | Self::Taken { .. } | Self::Running { .. } => true,
        }
    }

    /// Returns whether a runner has begun it.
    #[must_use]
    pub fn running(self) -> bool {
        match self {
            Self::Waiting
            | Self::Trapped
            | Self::Available { .. }
            | Self::Assigned { .. }
            | Self::Taken { .. } => false,
            Self::Running { .. } => true,
        }
    }
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewsKind {
    /// It waits to be acquired.
    Available,
    /// It was assigned to the set.
    Assigned,
    /// A runner began it.
    Started,
    /// It ended, or its assignment did.
    Completed,
    /// Something that no client knows.
    Unknown,
}

impl NewsKind {
    /// Returns the service's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "JobAvailable",
            Self::Assigned => "JobAssigned",
            Self::Started => "JobStarted",
            Self::Completed => "JobCompleted",
            Self::Unknown => "JobPondered",
        }
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNews {
    /// What happened.
    pub kind: NewsKind,
    /// The job.
    pub job: JobFacts,
    /// The number and the name of its runner.
    pub runner: Option<(u64, String)>,
    /// How it ended: `succeeded`, `failed`, `canceled`.
    pub result: String,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number by which it is deleted.
    pub id: u64,
    /// At most 50 parts.
    pub news: Vec<JobNews>,
    /// The counts as it is sent.
    pub statistics: Statistics,
}

/// Why the service refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetRefusal {
    /// The token is missing, unknown or expired.
    #[error("The token is not valid.")]
    Unauthorized,
    /// The credential of a session is over.
    #[error("The message queue token is expired.")]
    TokenExpired,
    /// There is no such set.
    #[error("No runner scale set found with identifier {0}.")]
    NoSet(u64),
    /// There is no such group.
    #[error("No runner group found with identifier {0}.")]
    NoGroup(u64),
    /// A set of this name exists in the group.
    #[error("A runner scale set with the name {0} already exists.")]
    SetExists(String),
    /// Another listener has the set's session.
    #[error("The runner scale set {0} already has an active session.")]
    SessionConflict(String),
    /// There is no such session.
    #[error("The session does not exist.")]
    NoSession,
    /// A runner of this name exists.
    #[error("A runner with the name {0} already exists.")]
    RunnerExists(String),
    /// There is no such runner.
    #[error("No runner found with identifier {0}.")]
    NoRunner(u64),
    /// The runner has a job.
    #[error("Runner {0} is still running a job.")]
    JobStillRunning(String),
    /// A mistake in the request.
    #[error("{0}")]
    Invalid(String),
}

impl SetRefusal {
    /// Returns the status and the name of the exception with which the service answers. The names of those about
    /// runners and of the conflict are GitHub's (\[s\], \[live\]); the others are assumed.
    #[must_use]
    pub fn wire(&self) -> (u16, &'static str) {
        match self {
            Self::Unauthorized => (401, "VssUnauthorizedException"),
            Self::TokenExpired => (401, "MessageQueueTokenExpiredException"),
            Self::NoSet(_) => (404, "RunnerScaleSetNotFoundException"),
            Self::NoGroup(_) => (404, "RunnerGroupNotFoundException"),
            Self::SetExists(_) => (409, "RunnerScaleSetExistsException"),
            Self::SessionConflict(_) => (409, "RunnerScaleSetSessionConflictException"),
            Self::NoSession => (404, "RunnerScaleSetSessionNotFoundException"),
            Self::RunnerExists(_) => (409, "AgentExistsException"),
            Self::NoRunner(_) => (404, "AgentNotFoundException"),
            Self::JobStillRunning(_) => (400, "JobStillRunningException"),
            Self::Invalid(_) => (400, "ArgumentException"),
        }
    }
}
