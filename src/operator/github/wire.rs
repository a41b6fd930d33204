//! The parts of GitHub's responses that are read. Everything else in them is ignored, so that GitHub may add to them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ports::github::{JobState, RunSource, Runner, RunnerApplication, WorkflowJob, WorkflowRun};

#[derive(Deserialize)]
pub(super) struct ErrorBody {
    pub(super) message: Option<String>,
}

/// A runner token, or an App's installation token.
#[derive(Deserialize)]
pub(super) struct TokenBody {
    pub(super) token: String,
    pub(super) expires_at: Timestamp,
}

#[derive(Deserialize)]
pub(super) struct InstallationBody {
    pub(super) id: u64,
    /// The permissions granted to the installation.
    #[serde(default)]
    pub(super) permissions: BTreeMap<String, String>,
    /// When the account suspended it, if it did.
    pub(super) suspended_at: Option<Timestamp>,
}

/// An installation in the list of all of an App's.
#[derive(Deserialize)]
pub(super) struct ListedInstallation {
    #[serde(flatten)]
    pub(super) installation: InstallationBody,
    pub(super) account: AccountBody,
    /// When it was suspended, if it is.
    pub(super) suspended_at: Option<Timestamp>,
}

#[derive(Deserialize)]
pub(super) struct AccountBody {
    pub(super) login: String,
}

#[derive(Deserialize)]
pub(super) struct AppBody {
    /// Its name in addresses.
    pub(super) slug: String,
}

#[derive(Deserialize)]
pub(super) struct RepositoryBody {
    pub(super) private: bool,
}

#[derive(Serialize)]
pub(super) struct InstallationTokenRequest {
    pub(super) permissions: BTreeMap<&'static str, &'static str>,
}

#[derive(Serialize)]
pub(super) struct JobConfigRequest<'a> {
    pub(super) name: &'a str,
    pub(super) runner_group_id: u64,
    pub(super) labels: &'a [String],
    pub(super) work_folder: &'a str,
}

#[derive(Serialize)]
pub(super) struct LabelsBody<'a> {
    pub(super) labels: &'a [String],
}

#[derive(Deserialize)]
pub(super) struct LabelsAnswer {
    pub(super) labels: Vec<LabelBody>,
}

#[derive(Deserialize)]
pub(super) struct JobConfigBody {
    pub(super) runner: IdBody,
    pub(super) encoded_jit_config: String,
}

#[derive(Deserialize)]
pub(super) struct IdBody {
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct RunnersPage {
    pub(super) total_count: u64,
    pub(super) runners: Vec<RunnerBody>,
}

#[derive(Deserialize)]
pub(super) struct RunnerBody {
    pub(super) id: u64,
    name: String,
    status: String,
    busy: bool,
    labels: Vec<LabelBody>,
}

#[derive(Deserialize)]
pub(super) struct LabelBody {
    pub(super) name: String,
}

impl From<RunnerBody> for Runner {
    fn from(body: RunnerBody) -> Self {
        Self {
            id: body.id,
            name: body.name,
            online: body.status == "online",
            busy: body.busy,
            labels: body.labels.into_iter().map(|label| label.name).collect(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct RunBody {
    pub(super) status: Option<String>,
    pub(super) run_attempt: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct RunsPage {
    pub(super) workflow_runs: Vec<ListedRunBody>,
}

#[derive(Deserialize)]
pub(super) struct ListedRunBody {
    pub(super) id: u64,
    run_attempt: Option<u32>,
    /// When its latest attempt began.
    run_started_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    path: Option<String>,
    repository: Option<IdBody>,
    head_repository: Option<IdBody>,
}

impl From<ListedRunBody> for WorkflowRun {
    fn from(body: ListedRunBody) -> Self {
        // GitHub appends the ref to the path of a workflow in another repository.
        let path = body.path.unwrap_or_default();
        // The head repository of a fork that was deleted is null.
        let own = body.repository.zip(body.head_repository).is_some_and(|(base, head)| base.id == head.id);
        Self {
            id: body.id,
            attempt: body.run_attempt.unwrap_or(1),
            started_at: body.run_started_at,
            updated_at: body.updated_at,
            workflow: path.split('@').next().unwrap_or_default().to_owned(),
            own,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct JobsPage {
    pub(super) jobs: Vec<JobBody>,
}

#[derive(Deserialize)]
pub(super) struct JobBody {
    name: String,
    #[serde(default)]
    labels: Vec<String>,
    status: String,
    conclusion: Option<String>,
    run_attempt: Option<u32>,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    runner_name: Option<String>,
}

impl JobBody {
    /// Converts a job in the list of this attempt.
    pub(super) fn listed(self, attempt: u32) -> WorkflowJob {
        let state = match (self.status.as_str(), self.conclusion.as_deref()) {
            ("queued", _) => JobState::Queued,
            ("completed", Some("success")) => JobState::Succeeded,
            ("completed", Some("failure" | "timed_out")) => JobState::Failed,
            ("completed", _) => JobState::Ended,
            (_, _) => JobState::Active,
        };
        WorkflowJob {
            name: self.name,
            labels: self.labels,
            state,
            attempt: self.run_attempt.unwrap_or(attempt),
            started_at: self.started_at,
            completed_at: self.completed_at,
            runner: self.runner_name,
        }
    }
}

/// An absent date has not been announced; github.com omits such a key.
#[derive(Deserialize)]
pub(super) struct EndOfLifeBody {
    pub(super) registration_deprecates_at: Option<Timestamp>,
    pub(super) runtime_deprecates_at: Option<Timestamp>,
}

/// A package that GitHub offers. Its `temp_download_token` is ignored: packages that need one are not downloaded.
#[derive(Deserialize)]
pub(super) struct ApplicationBody {
    os: String,
    architecture: String,
    download_url: String,
    filename: String,
    #[serde(default)]
    sha256_checksum: Option<String>,
}

impl From<ApplicationBody> for RunnerApplication {
    fn from(body: ApplicationBody) -> Self {
        Self {
            os: body.os,
            architecture: body.architecture,
            download_url: body.download_url,
            filename: body.filename,
            sha256: body.sha256_checksum.filter(|digest| !digest.is_empty()),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct GroupsPage {
    pub(super) runner_groups: Vec<GroupBody>,
}

#[derive(Deserialize)]
pub(super) struct GroupBody {
    pub(super) id: u64,
    pub(super) name: String,
    /// Whether it is the organisation's default group.
    #[serde(default)]
    pub(super) default: bool,
    #[serde(default)]
    pub(super) allows_public_repositories: bool,
}

/// The source of a run's code. A head repository that was deleted is null.
#[derive(Deserialize)]
pub(super) struct RunSourceBody {
    event: String,
    head_branch: Option<String>,
    head_sha: String,
    repository: IdBody,
    head_repository: Option<IdBody>,
}

impl From<RunSourceBody> for RunSource {
    fn from(body: RunSourceBody) -> Self {
        Self {
            event: body.event,
            head_branch: body.head_branch.unwrap_or_default(),
            head_sha: body.head_sha,
            own: body.head_repository.is_some_and(|head| head.id == body.repository.id),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct DefaultBranchBody {
    pub(super) default_branch: String,
}

#[derive(Deserialize)]
pub(super) struct BranchBody {
    #[serde(default)]
    pub(super) protected: bool,
}

/// The relation of two commits.
#[derive(Deserialize)]
pub(super) struct CompareBody {
    pub(super) status: String,
}
