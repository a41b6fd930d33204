//! The records of the stand-in, as they are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// GitHub's number of a runner.
pub type RunnerId = u64;
/// GitHub's number of a job.
pub type JobId = u64;
/// GitHub's number of a workflow run.
pub type RunId = u64;

/// The purpose of a runner token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// Registering runners.
    Registration,
    /// Removing runners.
    Removal,
    /// Calling the service of runner scale sets.
    Service,
}

/// A runner token. Its value is stored, for it must survive a restart, and never printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct MintedToken {
    pub(super) kind: TokenKind,
    pub(super) scope: String,
    pub(super) value: String,
    /// The time from which it is not accepted.
    pub expires_at: Timestamp,
}

impl MintedToken {
    /// Returns the secret itself.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintedToken")
            .field("kind", &self.kind)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// A label on a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Its id; the same label has the same id on every runner.
    pub id: u64,
    /// Its name, as given at registration.
    pub name: String,
    /// Whether a person chose it; the others are GitHub's own.
    pub custom: bool,
}

/// A listener's connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Distinguishes this connection from an earlier one of the same runner.
    pub id: u64,
    /// When it last called.
    pub last_seen: Timestamp,
}

impl Session {
    pub(super) fn silent(&self, held: Duration, now: Timestamp) -> bool {
        now > self.last_seen + held
    }
}

/// A registered runner.
#[derive(Clone, Serialize, Deserialize)]
pub struct RegisteredRunner {
    /// GitHub's number.
    pub id: RunnerId,
    /// `owner/name` or `owner`.
    pub scope: String,
    /// Unique in its scope.
    pub name: String,
    /// The labels that jobs are matched against.
    pub labels: Vec<Label>,
    /// 1 is the default group.
    pub group_id: u64,
    /// Whether it is removed after one job.
    pub ephemeral: bool,
    /// The scale set that it is a runner of: it serves the set's jobs alone.
    #[serde(default)]
    pub scale_set: Option<u64>,
    /// The runner package's version, once it connected.
    pub version: Option<String>,
    pub(super) credential: String,
    pub(super) session: Option<Session>,
    pub(super) job: Option<JobId>,
    /// When its job was assigned.
    #[serde(default)]
    pub(super) assigned_at: Option<Timestamp>,
    /// Its former labels, and until when jobs are assigned by them.
    #[serde(default)]
    pub(super) former_labels: Option<(Vec<Label>, Timestamp)>,
    /// Until when GitHub reports it as busy after its last job.
    #[serde(default)]
    pub(super) busy_until: Option<Timestamp>,
}

impl RegisteredRunner {
    /// Returns whether its listener is connected.
    #[must_use]
    pub fn online(&self) -> bool {
        self.session.is_some()
    }

    /// Returns whether a job is assigned to it, which GitHub's own `busy` does not always report.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.job.is_some()
    }

    /// Returns whether a job that wants these labels may be assigned to it now.
    pub(super) fn takes(&self, wanted: &[String], now: Timestamp) -> bool {
        match &self.former_labels {
            Some((former, until)) if now < *until => all_among(former, wanted),
            Some(_) | None => all_among(&self.labels, wanted),
        }
    }

    pub(super) fn serves(&self, repository: &str) -> bool {
        let owner = repository.split('/').next().unwrap_or_default();
        self.scope.eq_ignore_ascii_case(repository) || self.scope.eq_ignore_ascii_case(owner)
    }
}

pub(super) fn all_among(labels: &[Label], wanted: &[String]) -> bool {
    wanted.iter().all(|label| labels.iter().any(|own| own.name.eq_ignore_ascii_case(label)))
}

impl fmt::Debug for RegisteredRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredRunner")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A job as a workflow defines it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Its name, shown to people.
    pub name: String,
    /// The labels that its runner must have.
    pub runs_on: Vec<String>,
    /// Shell scripts, run one after the other until one fails.
    pub steps: Vec<String>,
    /// Variables added to the environment of every step.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether it runs on a runner of GitHub's own: it ends as it begins, with this conclusion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<Conclusion>,
    /// The container in which its steps run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerSpec>,
    /// The services that run beside it, each by its name in the job's network.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ContainerSpec>,
}

/// A container as a workflow defines it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerSpec {
    /// Pulled for each job.
    pub image: String,
    /// Given to `docker create` as they are.
    #[serde(default)]
    pub options: String,
    /// The container's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `CONTAINER`, `MACHINE:CONTAINER`.
    #[serde(default)]
    pub ports: Vec<String>,
    /// `SOURCE:TARGET`, `SOURCE:TARGET:ro`, `TARGET`.
    #[serde(default)]
    pub volumes: Vec<String>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Every step exited with 0.
    Success,
    /// A step exited with another code.
    Failure,
    /// A person, or the runner's shutdown, ended it.
    Cancelled,
    /// Its runner vanished. It is never run again.
    Lost,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// No runner has it.
    Queued,
    /// It is assigned to a runner that has not begun it: it may still go to another.
    Assigned,
    /// A runner has begun it: it never goes to another.
    InProgress,
    /// Over.
    Completed(Conclusion),
}

impl JobStatus {
    /// Returns whether its state cannot change any more.
    #[must_use]
    pub fn over(self) -> bool {
        match self {
            Self::Queued | Self::Assigned | Self::InProgress => false,
            Self::Completed(_) => true,
        }
    }
}

/// A job of a workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// GitHub's number.
    pub id: JobId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The attempt of that run.
    pub attempt: u32,
    /// `owner/name`.
    pub repository: String,
    /// The job as the workflow defines it.
    pub spec: JobSpec,
    /// Its state.
    pub status: JobStatus,
    /// The runner that has or had it.
    pub runner_id: Option<RunnerId>,
    /// That runner's name.
    pub runner_name: Option<String>,
    /// The last step's exit code, when a step ran.
    pub exit_code: Option<i32>,
    /// The end of the output of its steps.
    pub log: String,
    /// Whether its end was requested.
    pub cancel_requested: bool,
    /// When it was queued.
    pub created_at: Timestamp,
    /// When its runner began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// A workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// GitHub's number.
    pub id: RunId,
    /// The attempt: 1, and one more for each re-run.
    pub attempt: u32,
    /// `owner/name`.
    pub repository: String,
    /// The workflow's name.
    pub name: String,
    /// Whether jobs may still be added. An open run has not ended even when all its jobs have.
    pub open: bool,
    /// Whether it waits for an approval of its next jobs, once it has no unfinished job: its status is then `waiting`
    /// (docs.github.com, REST API, "List workflow runs for a repository", parameter `status`).
    #[serde(default)]
    pub waits: bool,
    /// When its first attempt was queued.
    pub created_at: Timestamp,
    /// When this attempt was queued.
    #[serde(default)]
    pub attempt_started_at: Option<Timestamp>,
    /// When it was last changed by its workflow.
    pub updated_at: Timestamp,
    /// The origin of its code.
    #[serde(default)]
    pub source: Source,
}

/// The origin of a run's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Source {
    /// The event that started it.
    pub event: String,
    /// Its branch, or its tag.
    pub head_branch: String,
    /// Its commit; one of the default branch where it is the stand-in's own.
    pub head_sha: String,
    /// The repository that the commit is in; empty for the run's own.
    pub head_repository: String,
    /// Whether that repository was deleted: GitHub names none then.
    pub head_repository_deleted: bool,
}

/// Jobs that were queued, as far as Runyard reads it of a webhook `workflow_job`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJobs {
    /// `owner/name`.
    pub repository: String,
    /// The run that they belong to.
    pub run_id: RunId,
}

/// The commit at the head of the default branch of each repository.
pub(crate) const HEAD: &str = "0000000000000000000000000000000000000000";

impl Default for Source {
    fn default() -> Self {
        Self {
            event: "workflow_dispatch".into(),
            head_branch: "main".into(),
            head_sha: HEAD.into(),
            head_repository: String::new(),
            head_repository_deleted: false,
        }
    }
}

/// Why the stand-in refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token or credential is missing, unknown, expired or for something else.
    #[error("Bad credentials")]
    Unauthorized,
    /// It does not exist here.
    #[error("Not Found")]
    NotFound,
    /// A runner of this name exists.
    #[error("Already exists - A runner with the name {0} already exists.")]
    NameTaken(String),
    /// The runner has a job.
    #[error("Bad request - Runner \"{0}\" is still running a job")]
    Busy(String),
    /// The call is not possible now.
    #[error("{0}")]
    Forbidden(String),
    /// GitHub does not accept runners of this version any more.
    #[error("Runner version v{0} is deprecated and cannot receive messages.")]
    Deprecated(String),
    /// The token service fails.
    #[error("Response status code does not indicate success: 503 (Service Unavailable).")]
    NoToken,
    /// The runner is connected from elsewhere.
    #[error("A session for this runner already exists.")]
    SessionConflict,
    /// The job is not, or no longer, assigned to this runner.
    #[error("the job is not this runner's any more")]
    NotYours,
    /// A mistake in the request: which field, and its expected value.
    #[error("{0}")]
    Invalid(String),
}
