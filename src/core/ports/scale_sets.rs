//! The port to GitHub's runner scale sets and its errors. GitHub's service has no public description: the calls are those
//! of github.com/actions/scaleset and of actions-runner-controller. An adapter keeps the tokens of the service itself.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::github::{GitHubError, JobConfig, Runner, Scope};

/// What a scale set is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSpec {
    /// Its name, unique within its runner group.
    pub name: String,
    /// Its labels: it serves the jobs that want no others.
    pub labels: Vec<String>,
    /// The number of its runner group, 1 being the default group.
    pub group_id: u64,
}

/// A scale set as GitHub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleSet {
    /// GitHub's number of it.
    pub id: u64,
    /// What it is.
    pub spec: SetSpec,
}

/// How many jobs and runners a scale set has, as GitHub counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Jobs that wait to be acquired (GitHub Enterprise Server alone).
    pub available: u32,
    /// Jobs that were acquired.
    pub acquired: u32,
    /// Jobs that wait for a runner of the set or run on one: the number of runners that it needs.
    pub assigned: u32,
    /// Jobs that run.
    pub running: u32,
    /// Runners that are registered.
    pub registered: u32,
    /// Runners with a job.
    pub busy: u32,
    /// Runners without one.
    pub idle: u32,
}

/// The session of a set's only listener.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// Where the set is.
    pub scope: Scope,
    /// The set's number.
    pub set: u64,
    /// GitHub's name of the session.
    pub id: String,
    /// Where messages are read and deleted.
    pub queue_url: String,
    /// The credential for that. It is never printed.
    pub token: String,
    /// The counts when the session was opened or renewed.
    pub statistics: Statistics,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("scope", &self.scope).field("set", &self.set).finish_non_exhaustive()
    }
}

/// What a message says of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobNews {
    /// It waits to be acquired (GitHub Enterprise Server alone).
    Available,
    /// GitHub has assigned it to the set.
    Assigned,
    /// It runs on a runner of the set.
    Started,
    /// It ended, or its place at the set did. It may come minutes late, early, or never.
    Completed,
}

/// A job as a message describes it. All but the kind may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMessage {
    /// What happened.
    pub news: JobNews,
    /// The number by which it is acquired.
    pub runner_request_id: u64,
    /// GitHub's name of this assignment of the job; the job may come again under another one.
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
    pub queued_at: Option<Timestamp>,
    /// The name of its runner, of a job that has or had one.
    pub runner: String,
    /// How it ended.
    pub result: String,
}

/// A batch of news, which comes again until it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number by which it is deleted; later ones are higher.
    pub id: u64,
    /// The counts when it was sent.
    pub statistics: Statistics,
    /// Its jobs, at most 50.
    pub jobs: Vec<JobMessage>,
    /// How many parts of it are of a kind that is not known.
    pub unknown: u32,
}

/// Why a call failed, by what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleSetError {
    /// No usable response: refused connection, time-out, 5xx, an answer that cannot be read. Try again later.
    #[error("GitHub gave no usable answer: {0}")]
    Unreachable(String),
    /// Too many calls; not before this long from now.
    #[error("GitHub limits the rate of calls, retry after {} s", retry_after.as_secs())]
    Throttled {
        /// How long GitHub asks to be left alone, at least one second.
        retry_after: Duration,
    },
    /// A person must fix the credential or its permissions.
    #[error("GitHub denied the call: {0}")]
    Denied(String),
    /// 401 of a session's own credential: renew the session.
    #[error("the session's credential is over: {0}")]
    Expired(String),
    /// The session is not known any more: open another one.
    #[error("the session is over: {0}")]
    SessionOver(String),
    /// Another listener has the set's only session, or had it until lately.
    #[error("another listener has the session of this set: {0}")]
    SessionHeld(String),
    /// The set, the runner or the group does not exist or is not visible.
    #[error("GitHub does not know it: {0}")]
    NotFound(String),
    /// A runner or a set of that name exists.
    #[error("the name is taken: {0}")]
    NameTaken(String),
    /// The runner has a job.
    #[error("the runner has a job: {0}")]
    Busy(String),
    /// Any other refusal: an error of this program or of the configuration.
    #[error("GitHub refused the call: {0}")]
    Invalid(String),
}

impl From<ScaleSetError> for GitHubError {
    fn from(error: ScaleSetError) -> Self {
        match error {
            ScaleSetError::Unreachable(why) | ScaleSetError::Expired(why) => Self::Unreachable(why),
            ScaleSetError::Throttled { retry_after } => Self::Throttled { retry_after },
            ScaleSetError::Denied(why) => Self::Denied(why),
            ScaleSetError::NotFound(why) | ScaleSetError::SessionOver(why) => Self::NotFound(why),
            ScaleSetError::NameTaken(why) => Self::NameTaken(why),
            ScaleSetError::Busy(why) => Self::Busy(why),
            ScaleSetError::SessionHeld(why) | ScaleSetError::Invalid(why) => Self::Invalid(why),
        }
    }
}

impl From<GitHubError> for ScaleSetError {
    fn from(error: GitHubError) -> Self {
        match error {
            GitHubError::Unreachable(why) => Self::Unreachable(why),
            GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after } => {
                Self::Throttled { retry_after }
            }
            GitHubError::Denied(why) => Self::Denied(why),
            GitHubError::NotFound(why) => Self::NotFound(why),
            GitHubError::NameTaken(why) => Self::NameTaken(why),
            GitHubError::Busy(why) => Self::Busy(why),
            GitHubError::Invalid(why) => Self::Invalid(why),
        }
    }
}

/// The port to scale sets. Every call but [`ScaleSets::message`] has its own deadline; none retries beyond the renewal of
/// the service's own token.
#[async_trait]
pub trait ScaleSets: Send + Sync {
    /// Returns the set of this name in a group, if there is one.
    async fn find(&self, scope: &Scope, group_id: u64, name: &str)
    -> Result<Option<ScaleSet>, ScaleSetError>;
    /// Creates a set. Its runners do not update themselves.
    async fn create(&self, scope: &Scope, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError>;
    /// Changes a set.
    async fn update(&self, scope: &Scope, id: u64, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError>;
    /// Deletes a set; one that does not exist is success.
    async fn delete(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError>;
    /// Returns the number of a runner group of this name, if there is one.
    async fn group(&self, scope: &Scope, name: &str) -> Result<Option<u64>, ScaleSetError>;
    /// Opens the session of a set under the name of its listener.
    async fn open(&self, scope: &Scope, set: u64, owner: &str) -> Result<Session, ScaleSetError>;
    /// Renews a session's credential.
    async fn renew(&self, session: &Session) -> Result<Session, ScaleSetError>;
    /// Closes a session; one that is over is success.
    async fn close(&self, session: &Session) -> Result<(), ScaleSetError>;
    /// Waits for a message after `last` for up to a minute, and returns none if there is none. `capacity` is the total
    /// number of jobs that the set may hold, at least 1: with 0, jobs that are queued meanwhile are never offered again.
    async fn message(
        &self,
        session: &Session,
        last: Option<u64>,
        capacity: u32,
    ) -> Result<Option<Message>, ScaleSetError>;
    /// Deletes a message; one that does not exist is success.
    async fn delete_message(&self, session: &Session, id: u64) -> Result<(), ScaleSetError>;
    /// Acquires jobs that are available (GitHub Enterprise Server alone), by their `runner_request_id`.
    async fn acquire(&self, session: &Session, jobs: &[u64]) -> Result<(), ScaleSetError>;
    /// Creates a single-use runner of a set; it serves any job that GitHub assigned to the set.
    async fn job_config(
        &self,
        scope: &Scope,
        set: u64,
        name: &str,
        work_folder: &str,
    ) -> Result<JobConfig, ScaleSetError>;
    /// Returns the runner of exactly this name, if there is one.
    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, ScaleSetError>;
    /// Returns the runner of this number, if there is one.
    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, ScaleSetError>;
    /// Removes a runner; one that no longer exists is success.
    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError>;
}
