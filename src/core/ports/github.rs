//! The GitHub port and its errors. An adapter serves one GitHub (github.com, a GitHub Enterprise Server, the local
//! stand-in) and chooses its own credential.
//!
//! Over 400 lines: every call of the port and what it answers with.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::model::{FieldError, Repository, RunnerPackage};

/// Where runners are registered: one repository, or a whole organisation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `owner/name`: runners serve this repository only.
    Repository {
        /// The account or organisation.
        owner: String,
        /// The repository's name.
        name: String,
    },
    /// Runners serve every repository that their runner group admits.
    Organization {
        /// The organisation's login.
        owner: String,
    },
}

impl Scope {
    /// Returns where the runners of a scale set's slots are: the place that the repository in their keys names.
    #[must_use]
    pub fn of_slots(repository: &Repository) -> Self {
        let owner = repository.owner().to_owned();
        if repository.is_organization() {
            Self::Organization { owner }
        } else {
            Self::Repository { owner, name: repository.name().to_owned() }
        }
    }
}

/// A credential that lets a runner register or deregister. Its value is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The secret itself.
    pub value: String,
    /// GitHub refuses it after this moment (one hour after it was minted).
    pub expires_at: Timestamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The configuration of a single-use (just-in-time) runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSpec {
    /// The runner's name, unique per claim; GitHub shows it to people.
    pub name: String,
    /// Exactly these labels, no default ones.
    pub labels: Vec<String>,
    /// The numeric id of the runner group, 1 being the default group.
    pub group_id: u64,
    /// The folder in which jobs work, relative to the runner's own.
    pub work_folder: String,
}

/// A single-use configuration: the runner started with it serves one job and is removed. A secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JobConfig {
    /// GitHub's id of the runner it created.
    pub runner_id: u64,
    /// The argument of `run.sh --jitconfig` (base64).
    pub encoded: String,
}

impl fmt::Debug for JobConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobConfig").field("runner_id", &self.runner_id).finish_non_exhaustive()
    }
}

/// A runner as GitHub lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// GitHub's id.
    pub id: u64,
    /// The name it registered under.
    pub name: String,
    /// Whether its listener is connected.
    pub online: bool,
    /// Whether GitHub reports a job on it.
    pub busy: bool,
    /// The names of its labels.
    pub labels: Vec<String>,
}

/// When GitHub's support of a runner version ends, as far as it has named a date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndOfLife {
    /// When a runner of the version can no longer register.
    pub registration: Option<Timestamp>,
    /// When a runner of the version no longer gets jobs.
    pub runtime: Option<Timestamp>,
}

impl EndOfLife {
    /// Returns when the version is of no use any more.
    #[must_use]
    pub fn first(&self) -> Option<Timestamp> {
        self.registration.into_iter().chain(self.runtime).min()
    }
}

/// The runner version that machines get, and when GitHub's support for it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSupport {
    /// The version, such as `2.336.0`.
    pub version: String,
    /// When its support ends.
    pub end: EndOfLife,
}

/// GitHub's information about runner packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerNews {
    /// When GitHub's support ends for the version that the operator's file pins, once GitHub reported it.
    pub pinned: Option<RunnerSupport>,
    /// The newest package of each architecture that may be adopted.
    pub latest: BTreeMap<String, RunnerPackage>,
    /// When GitHub's support ends for other versions.
    pub ends: BTreeMap<String, EndOfLife>,
}

impl RunnerSupport {
    /// Returns why machines that get this version are of no use, once a date has passed.
    #[must_use]
    pub fn over(&self, now: Timestamp) -> Option<String> {
        let ended = self.ended(now)?;
        Some(format!(
            "{ended}; set a newer package: agent.runner_url, agent.runner_sha256, agent.runner_version, or \
             agent.runner_follow = \"latest\""
        ))
    }

    /// Returns since when GitHub does not accept runners of this version, once a date has passed.
    #[must_use]
    pub fn ended(&self, now: Timestamp) -> Option<String> {
        let at = self.end.first().filter(|at| *at <= now)?;
        let what = if self.end.registration == Some(at) { "registers no" } else { "gives no job to" };
        Some(format!("since {at} GitHub {what} runner {}", self.version))
    }
}

/// A runner package as GitHub lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerApplication {
    /// GitHub's name of the operating system: `linux`, `win`, `osx`.
    pub os: String,
    /// GitHub's name of the architecture: `x64`, `arm64`, `arm`.
    pub architecture: String,
    /// The address to fetch it from.
    pub download_url: String,
    /// The name of its file, which has the version: `actions-runner-linux-x64-2.336.0.tar.gz`.
    pub filename: String,
    /// Its digest; none where GitHub does not report it.
    pub sha256: Option<String>,
}

impl RunnerApplication {
    /// Returns the package that machines can be configured to run.
    ///
    /// # Errors
    /// The reason why this one is not adopted.
    pub fn package(&self, origins: &[String]) -> Result<RunnerPackage, FieldError> {
        let name = self.filename.strip_suffix(".tar.gz").unwrap_or(&self.filename);
        let version = name.rsplit('-').next().unwrap_or_default().to_owned();
        let Some(sha256) = self.sha256.as_ref().map(|sha256| sha256.to_ascii_lowercase()) else {
            let fix = "pin a package by its digest until GitHub tells it (agent.runner_sha256)";
            return Err(FieldError::new("sha256_checksum", &self.filename, "comes without a digest", fix));
        };
        let package = RunnerPackage { version, url: self.download_url.clone(), sha256 };
        package.check(origins).map(|()| package)
    }
}

/// The state of a workflow run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Queued, waiting or in progress, with its current attempt.
    Active {
        /// The run's latest attempt.
        attempt: u32,
    },
    /// Completed, whatever its conclusion, with the attempt that ended.
    Completed {
        /// The attempt that ended.
        attempt: u32,
    },
}

/// The runs that a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Those that are queued or in progress.
    Running,
    /// Those that wait for an approval, for another run or for GitHub as well.
    Open,
}

/// A workflow run that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRun {
    /// GitHub's number of the run.
    pub id: u64,
    /// Its latest attempt.
    pub attempt: u32,
    /// When that attempt began.
    pub started_at: Option<Timestamp>,
    /// When anything of it was last changed.
    pub updated_at: Option<Timestamp>,
    /// Its workflow file, such as `.github/workflows/build.yml`; empty where GitHub does not report it.
    pub workflow: String,
    /// Whether its code is the repository's own and not that of another one, such as a fork.
    pub own: bool,
}

/// The state of a job of a workflow run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a runner.
    Queued,
    /// It runs, or waits for something other than a runner.
    Active,
    /// It ended successfully.
    Succeeded,
    /// It failed. A job whose runner was lost fails too.
    Failed,
    /// It ended in another way: cancelled, skipped.
    Ended,
}

/// A job of an attempt of a workflow run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowJob {
    /// Its name, unique within the attempt.
    pub name: String,
    /// The labels that its runner must have.
    pub labels: Vec<String>,
    /// Its state.
    pub state: JobState,
    /// The attempt to which GitHub assigns it.
    pub attempt: u32,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The name of its runner.
    pub runner: Option<String>,
}

/// The origin of a workflow run's code, by GitHub's record of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSource {
    /// The event that started it, such as `push`.
    pub event: String,
    /// The branch or tag that it began at.
    pub head_branch: String,
    /// The commit.
    pub head_sha: String,
    /// Whether the commit is in the repository itself and not in another one, such as a fork.
    pub own: bool,
}

/// The relation of a branch to a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchFacts {
    /// Whether it is the repository's default branch.
    pub default: bool,
    /// Whether it is protected.
    pub protected: bool,
    /// Whether it contains the commit. A tag may have a branch's name.
    pub contains: bool,
}

/// The urgency of a call, and so how much of GitHub's budget may be used for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A machine waits for its credential: all of the budget.
    Machine,
    /// Nothing waits: only the budget that is left beside the calls that a machine waits for.
    Nobody,
}

/// Why a call failed, by what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitHubError {
    /// No usable response: refused connection, time-out, 5xx, a page of HTML. Try again later.
    #[error("GitHub gave no usable answer: {0}")]
    Unreachable(String),
    /// A primary or secondary rate limit; not before this long from now.
    #[error("GitHub limits the rate of calls, retry after {} s", retry_after.as_secs())]
    Throttled {
        /// How long GitHub asks to be left alone, at least one second.
        retry_after: Duration,
    },
    /// Not sent, to keep within GitHub's limits, so it indicates nothing about GitHub's health. Try again after this
    /// long.
    #[error("the call is put off for {} s to keep within GitHub's limits", retry_after.as_secs())]
    Deferred {
        /// How long until the budget has room, at least one second.
        retry_after: Duration,
    },
    /// 401 or 403: a person must fix the credential or its permissions.
    #[error("GitHub denied the call: {0}")]
    Denied(String),
    /// 404: the repository, organisation, run or runner does not exist or is not visible. Not proof that it is gone.
    #[error("GitHub does not know it: {0}")]
    NotFound(String),
    /// 409: a runner of that name exists.
    #[error("a runner of that name exists: {0}")]
    NameTaken(String),
    /// 422 on a removal: the runner has a job.
    #[error("the runner has a job: {0}")]
    Busy(String),
    /// Any other refusal: an error of this program or of the configuration.
    #[error("GitHub refused the call: {0}")]
    Invalid(String),
}

/// The GitHub port. Every call has its own deadline; none retries beyond one transport-level attempt.
#[async_trait]
pub trait GitHub: Send + Sync {
    /// Returns the URL that runners of this scope are configured with, for example `https://github.com/owner/name`.
    fn runner_url(&self, scope: &Scope) -> String;
    /// Mints a registration token (valid one hour, for any number of runners).
    async fn registration_token(&self, scope: &Scope) -> Result<Token, GitHubError>;
    /// Mints a removal token (valid one hour).
    async fn removal_token(&self, scope: &Scope) -> Result<Token, GitHubError>;
    /// Creates a single-use runner.
    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError>;
    /// Returns the number of an organisation's runner group of this name, if it has one.
    async fn runner_group(&self, owner: &str, name: &str) -> Result<Option<u64>, GitHubError>;
    /// Returns the runner of exactly this name, if it is listed.
    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, GitHubError>;
    /// Returns the runner of this number, if GitHub shows one. None is no proof that there is none: the scope may not
    /// be visible.
    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, GitHubError>;
    /// Lists every runner of the scope, all pages; a list that could not be read to its end is an error.
    async fn runners(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError>;
    /// Lists the runners that the scope's list shows, although it may change while its pages are read: each of them was
    /// on it, and one that is missing may still be registered.
    async fn runners_seen(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError>;
    /// Removes a runner; one that no longer exists is success.
    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), GitHubError>;
    /// Sets the custom labels of a runner in place of the former ones.
    async fn set_labels(&self, scope: &Scope, id: u64, labels: &[String]) -> Result<(), GitHubError>;
    /// Returns when GitHub's support for a runner version ends; [`GitHubError::NotFound`] where it does not know the
    /// version, or the server has no such dates.
    async fn end_of_life(&self, scope: &Scope, version: &str) -> Result<EndOfLife, GitHubError>;
    /// Lists the runner packages that GitHub offers to the runners of a scope now. A server without such a list returns
    /// [`GitHubError::NotFound`].
    async fn runner_applications(&self, scope: &Scope) -> Result<Vec<RunnerApplication>, GitHubError> {
        Err(GitHubError::NotFound(format!("the runner packages of {scope:?}")))
    }
    /// Lists every repository that the credential may see, as `owner/name`.
    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        Ok(Vec::new())
    }
    /// Returns the part of the hourly budget for calls about a repository that is used, from 0 to 1; 0 where GitHub has
    /// not reported it.
    fn budget_used(&self, _owner: &str, _name: &str) -> f64 {
        0.0
    }
    /// Returns the state of a workflow run.
    async fn run(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        waiting: Waiting,
    ) -> Result<RunState, GitHubError>;
    /// Lists the runs of a repository that have not ended.
    async fn open_runs(
        &self,
        owner: &str,
        name: &str,
        listed: Listed,
    ) -> Result<Vec<WorkflowRun>, GitHubError>;
    /// Lists the jobs of one attempt of a run. Jobs that did not run in it may be listed with their earlier end, or not
    /// at all: GitHub has done either.
    async fn run_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
    ) -> Result<Vec<WorkflowJob>, GitHubError>;
    /// Returns the origin of a run's code. A GitHub that does not report it returns [`GitHubError::NotFound`].
    async fn run_source(&self, owner: &str, name: &str, run_id: u64) -> Result<RunSource, GitHubError> {
        Err(GitHubError::NotFound(format!("the source of run {run_id} of {owner}/{name}")))
    }
    /// Returns the properties of a branch, and whether it contains a commit; a branch that does not exist is neither
    /// default nor protected.
    async fn branch(
        &self,
        owner: &str,
        name: &str,
        branch: &str,
        sha: &str,
    ) -> Result<BranchFacts, GitHubError> {
        Err(GitHubError::NotFound(format!("branch {branch} of {owner}/{name} beside {sha}")))
    }
    /// Starts the next attempt of a completed run, in which the failed jobs run again.
    async fn rerun_failed_jobs(&self, owner: &str, name: &str, run_id: u64) -> Result<(), GitHubError>;
}
