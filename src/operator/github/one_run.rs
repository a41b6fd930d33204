//! Reads one workflow run with its jobs, for a person who asks about it. The operator reads lists of runs instead.

use reqwest::Method;
use serde::Deserialize;

use super::budget::Priority;
use super::client::Question;
use super::errors::{Call, unusable};
use super::verbs::RestGitHub;
use super::wire::ListedRunBody;
use crate::model::Repository;
use crate::ports::github::{GitHub as _, GitHubError, RunState, Scope, WorkflowJob, WorkflowRun};

/// A workflow run, whether it has ended or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeRun {
    /// The run at its latest attempt.
    pub run: WorkflowRun,
    /// Its state.
    pub state: RunState,
    /// The state as GitHub names it, such as `in_progress`.
    pub status: String,
    /// The jobs of its latest attempt.
    pub jobs: Vec<WorkflowJob>,
}

#[derive(Deserialize)]
struct WholeRunBody {
    status: Option<String>,
    #[serde(flatten)]
    run: ListedRunBody,
}

impl RestGitHub {
    /// Reads a run and the jobs of its latest attempt.
    ///
    /// # Errors
    /// GitHub does not answer, does not know the run, or does not let this credential see it.
    pub async fn whole_run(&self, repository: &Repository, run_id: u64) -> Result<WholeRun, GitHubError> {
        let (owner, name) = (repository.owner(), repository.name());
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let url = self.address(&scope, &["actions", "runs", &run_id.to_string()])?;
        let question = Question::new(Call::Read, Method::GET, url).of(Priority::Register).conditional();
        let body: WholeRunBody = self.ask_json(&scope, question).await?;
        let status = body.status.ok_or_else(|| unusable("the workflow run", "it has no status"))?;
        let run = WorkflowRun::from(body.run);
        let attempt = run.attempt;
        let state = match status.as_str() {
            "completed" => RunState::Completed { attempt },
            _ => RunState::Active { attempt },
        };
        let jobs = self.run_jobs(owner, name, run_id, attempt).await?;
        Ok(WholeRun { run, state, status, jobs })
    }
}
