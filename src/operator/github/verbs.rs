//! Maps each verb of the GitHub port to requests, one method per verb. `errors` interprets the responses; the methods
//! here look at a status only to distinguish an empty success from a page of HTML.
//!
//! Over 400 lines: one short method for each verb of the port.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::auth::{Authenticator, Credential, address};
use super::budget::{Budget, Priority, RESOURCES};
use super::client::{Client, Clock, Question, json};
use super::errors::{Answer, Call, SetupError, accept, unusable};
use super::etags::Etags;
use super::origin::ApiUrl;
use super::paging::{Listing, Next, PAGE_SIZE};
use super::wire::{
    ApplicationBody, BranchBody, CompareBody, DefaultBranchBody, EndOfLifeBody, GroupsPage, JobConfigBody,
    JobConfigRequest, JobsPage, LabelsAnswer, LabelsBody, RunBody, RunSourceBody, RunnerBody, RunsPage,
    TokenBody,
};
use crate::metrics::Metrics;
use crate::model::Repository;
use crate::ports::github::{
    BranchFacts, EndOfLife, GitHub, GitHubError, JobConfig, Listed, RunSource, RunState, Runner,
    RunnerApplication, RunnerSpec, Scope, Token, Waiting, WorkflowJob, WorkflowRun,
};

/// An organisation has a handful of runner groups; a list of thousands is a loop.
const MAX_GROUP_PAGES: u64 = 50;

/// GitHub lists the first thousand runs of a filter, and an attempt has at most a few hundred jobs.
const MAX_RUN_PAGES: u64 = 10;

/// How often a list that changes during the read is restarted.
const LIST_ATTEMPTS: usize = 3;

/// The adapter for one GitHub over its REST API.
pub struct RestGitHub {
    pub(super) client: Client,
    pub(super) auth: Authenticator,
    budgets: Mutex<BTreeMap<String, Budget>>,
    etags: Mutex<Etags>,
    metrics: Option<Metrics>,
}

impl RestGitHub {
    /// Creates an adapter for the GitHub at this address; each request has `deadline` as its timeout.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(
        api_url: ApiUrl,
        credential: Credential,
        deadline: Duration,
        clock: Clock,
    ) -> Result<Self, SetupError> {
        Ok(Self {
            client: Client::new(api_url, deadline, clock)?,
            auth: Authenticator::new(credential),
            budgets: Mutex::default(),
            etags: Mutex::default(),
            metrics: None,
        })
    }

    /// Sets the metrics in which the remaining budgets of GitHub are reported.
    #[must_use]
    pub fn reporting_to(mut self, metrics: Metrics) -> Self {
        metrics.github_series(&RESOURCES, Priority::ALL.iter().map(|priority| priority.as_str()));
        self.metrics = Some(metrics);
        self
    }

    /// Sets whether failed jobs may be re-run: an App's tokens are then requested with that permission.
    #[must_use]
    pub fn rerunning(mut self, rerun: bool) -> Self {
        self.auth.reruns(rerun);
        self
    }

    /// Reads a page of runs or jobs of a repository, with repeated conditional requests.
    async fn page<T: DeserializeOwned>(
        &self,
        scope: &Scope,
        below: &[&str],
        filter: Option<(&str, &str)>,
        page: u64,
    ) -> Result<T, GitHubError> {
        let mut url = self.address(scope, below)?;
        url.query_pairs_mut()
            .extend_pairs(filter)
            .append_pair("per_page", &PAGE_SIZE.to_string())
            .append_pair("page", &page.to_string());
        self.ask_json(scope, Question::new(Call::Read, Method::GET, url).conditional()).await
    }

    pub(super) fn address(&self, scope: &Scope, below: &[&str]) -> Result<Url, GitHubError> {
        let mut segments: Vec<&str> = match scope {
            Scope::Repository { owner, name } => vec!["repos", owner, name],
            Scope::Organization { owner } => vec!["orgs", owner],
        };
        segments.extend_from_slice(below);
        address(&self.client, &segments)
    }

    /// Sends a request if the budgets permit it, and updates the budgets from the response.
    async fn ask(&self, scope: &Scope, mut question: Question) -> Result<Answer, GitHubError> {
        self.admit(scope, &question)?;
        let secret = self.auth.secret(&self.client, scope).await?;
        if question.conditional {
            question.mark = self.etags().mark(&question.url);
        }
        let answer = self.client.fetch(&question, secret.as_deref()).await?;
        let headers = answer.headers.clone();
        let now = (self.client.clock)();
        let answer =
            if question.conditional { self.etags().resolve(&question.url, answer, now) } else { answer };
        let accepted = accept(question.call, answer, now);
        let throttled = match &accepted {
            Err(GitHubError::Throttled { retry_after }) => Some(*retry_after),
            Ok(_) | Err(_) => None,
        };
        self.observe(scope, &question, &headers, throttled);
        if let Err(GitHubError::Denied(_)) = &accepted {
            self.auth.forget(scope).await;
        }
        accepted
    }

    pub(super) async fn ask_json<T: DeserializeOwned>(
        &self,
        scope: &Scope,
        question: Question,
    ) -> Result<T, GitHubError> {
        json(&self.ask(scope, question).await?)
    }

    fn etags(&self) -> MutexGuard<'_, Etags> {
        self.etags.lock().expect("nobody panics while holding the answers kept")
    }

    fn with_budget<T>(&self, scope: &Scope, act: impl FnOnce(&mut Budget, Timestamp) -> T) -> T {
        let now = (self.client.clock)();
        let mut budgets = self.budgets.lock().expect("nobody panics while holding the budgets");
        act(budgets.entry(self.auth.account(scope)).or_insert_with(|| Budget::new(now)), now)
    }

    fn admit(&self, scope: &Scope, question: &Question) -> Result<(), GitHubError> {
        let admitted =
            self.with_budget(scope, |budget, now| budget.admit(question.call, question.priority, now));
        admitted.map_err(|retry_after| {
            if let Some(metrics) = &self.metrics {
                metrics.github_waits(question.priority.as_str());
            }
            GitHubError::Deferred { retry_after }
        })
    }

    fn observe(&self, scope: &Scope, question: &Question, headers: &HeaderMap, throttled: Option<Duration>) {
        let seen =
            self.with_budget(scope, |budget, now| budget.observe(question.call, headers, throttled, now));
        if let (Some((resource, primary)), Some(metrics)) = (seen, &self.metrics) {
            metrics.github_rate(resource, primary.limit, primary.remaining);
        }
    }

    async fn mint(&self, scope: &Scope, kind: &str, priority: Priority) -> Result<Token, GitHubError> {
        let url = self.address(scope, &["actions", "runners", kind])?;
        let question = Question::new(Call::MintToken, Method::POST, url);
        let body: TokenBody = self.ask_json(scope, question.of(priority)).await?;
        if body.token.is_empty() {
            return Err(unusable(kind, "the answer holds an empty token"));
        }
        Ok(Token { value: body.token, expires_at: body.expires_at })
    }

    async fn list(&self, scope: &Scope, name: Option<&str>) -> Result<Vec<Runner>, GitHubError> {
        for _ in 0..LIST_ATTEMPTS {
            if let Some(all) = self.list_once(scope, name, Listing::default()).await? {
                return Ok(all);
            }
        }
        Err(unusable("the list of runners", "it kept changing while it was read"))
    }

    /// Reads the list from its first page on; `None` if it changed between two pages and that matters.
    async fn list_once(
        &self,
        scope: &Scope,
        name: Option<&str>,
        mut listing: Listing,
    ) -> Result<Option<Vec<Runner>>, GitHubError> {
        let mut page = 1;
        loop {
            let mut url = self.address(scope, &["actions", "runners"])?;
            url.query_pairs_mut()
                .append_pair("per_page", &PAGE_SIZE.to_string())
                .append_pair("page", &page.to_string())
                .extend_pairs(name.map(|name| ("name", name)));
            let question = Question::new(Call::Read, Method::GET, url);
            // A named runner is to be removed; the whole list is read on an interval.
            let question =
                if name.is_some() { question.of(Priority::Deregister) } else { question.conditional() };
            let answer = self.ask(scope, question).await?;
            let (next_listing, next) = listing.take(&answer)?;
            listing = next_listing;
            match next {
                Next::Page(number) => page = number,
                Next::Complete(all) => return Ok(Some(all)),
                Next::Changed => return Ok(None),
            }
        }
    }

    /// Checks that the scope's runners are visible at all; the error is the reason why not.
    async fn visible(&self, scope: &Scope) -> Result<(), GitHubError> {
        let mut url = self.address(scope, &["actions", "runners"])?;
        url.query_pairs_mut().append_pair("per_page", "1");
        let question = Question::new(Call::Read, Method::GET, url).of(Priority::Deregister);
        let _: serde_json::Value = self.ask_json(scope, question).await?;
        Ok(())
    }
}

#[async_trait]
impl GitHub for RestGitHub {
    fn runner_url(&self, scope: &Scope) -> String {
        let web = self.client.origin.web();
        match scope {
            Scope::Repository { owner, name } => format!("{web}/{owner}/{name}"),
            Scope::Organization { owner } => format!("{web}/{owner}"),
        }
    }

    async fn registration_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.mint(scope, "registration-token", Priority::Register).await
    }

    async fn removal_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.mint(scope, "remove-token", Priority::Deregister).await
    }

    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        let url = self.address(scope, &["actions", "runners", "generate-jitconfig"])?;
        let question = Question::new(Call::CreateRunner, Method::POST, url).with_body(&JobConfigRequest {
            name: &spec.name,
            runner_group_id: spec.group_id,
            labels: &spec.labels,
            work_folder: &spec.work_folder,
        });
        let body: JobConfigBody = self.ask_json(scope, question).await?;
        if body.encoded_jit_config.is_empty() {
            return Err(unusable("generate-jitconfig", "the answer holds an empty configuration"));
        }
        Ok(JobConfig { runner_id: body.runner.id, encoded: body.encoded_jit_config })
    }

    async fn runner_group(&self, owner: &str, name: &str) -> Result<Option<u64>, GitHubError> {
        let scope = Scope::Organization { owner: owner.to_owned() };
        for page in 1..=MAX_GROUP_PAGES {
            let mut url = self.address(&scope, &["actions", "runner-groups"])?;
            url.query_pairs_mut()
                .append_pair("per_page", &PAGE_SIZE.to_string())
                .append_pair("page", &page.to_string());
            let question = Question::new(Call::Read, Method::GET, url).of(Priority::Register);
            let body: GroupsPage = self.ask_json(&scope, question).await?;
            if let Some(group) = body.runner_groups.iter().find(|group| group.name == name) {
                return Ok(Some(group.id));
            }
            if (body.runner_groups.len() as u64) < PAGE_SIZE {
                return Ok(None);
            }
        }
        Err(unusable("the list of runner groups", "it does not end"))
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, GitHubError> {
        // Older servers ignore the filter, hence all pages and the comparison.
        Ok(self.list(scope, Some(name)).await?.into_iter().find(|runner| runner.name == name))
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, GitHubError> {
        let url = self.address(scope, &["actions", "runners", &id.to_string()])?;
        let question = Question::new(Call::Read, Method::GET, url).of(Priority::Deregister);
        match self.ask_json::<RunnerBody>(scope, question).await {
            Ok(body) => Ok(Some(body.into())),
            Err(GitHubError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn runners(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.list(scope, None).await
    }

    async fn runners_seen(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        Ok(self.list_once(scope, None, Listing::as_seen()).await?.unwrap_or_default())
    }

    async fn end_of_life(&self, scope: &Scope, version: &str) -> Result<EndOfLife, GitHubError> {
        let url = self.address(scope, &["actions", "runners", "deprecations", version])?;
        let question = Question::new(Call::Read, Method::GET, url).conditional();
        let body: EndOfLifeBody = self.ask_json(scope, question).await?;
        Ok(EndOfLife { registration: body.registration_deprecates_at, runtime: body.runtime_deprecates_at })
    }

    async fn runner_applications(&self, scope: &Scope) -> Result<Vec<RunnerApplication>, GitHubError> {
        let url = self.address(scope, &["actions", "runners", "downloads"])?;
        let question = Question::new(Call::Read, Method::GET, url).conditional();
        let listed: Vec<ApplicationBody> = self.ask_json(scope, question).await?;
        Ok(listed.into_iter().map(Into::into).collect())
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), GitHubError> {
        let url = self.address(scope, &["actions", "runners", &id.to_string()])?;
        match self.ask(scope, Question::new(Call::RemoveRunner, Method::DELETE, url)).await {
            Ok(answer) if answer.status == StatusCode::NO_CONTENT => Ok(()),
            Ok(answer) => {
                Err(unusable(&answer.what, format_args!("status {} is not GitHub's 204", answer.status)))
            }
            // "Not found" is also the response for a repository that we may not see; only a visible one proves the
            // runner gone.
            Err(GitHubError::NotFound(_)) => self.visible(scope).await,
            Err(error) => Err(error),
        }
    }

    async fn set_labels(&self, scope: &Scope, id: u64, labels: &[String]) -> Result<(), GitHubError> {
        let url = self.address(scope, &["actions", "runners", &id.to_string(), "labels"])?;
        let question = Question::new(Call::SetLabels, Method::PUT, url).with_body(&LabelsBody { labels });
        let answer: LabelsAnswer = self.ask_json(scope, question).await?;
        let has = |label: &String| answer.labels.iter().any(|own| own.name.eq_ignore_ascii_case(label));
        match labels.iter().all(has) {
            true => Ok(()),
            false => Err(unusable("labels", "the answer lacks one of them")),
        }
    }

    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        self.visible_repositories().await
    }

    fn budget_used(&self, owner: &str, name: &str) -> f64 {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        self.with_budget(&scope, |budget, now| budget.used(now))
    }

    async fn run(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        waiting: Waiting,
    ) -> Result<RunState, GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let url = self.address(&scope, &["actions", "runs", &run_id.to_string()])?;
        let priority = match waiting {
            Waiting::Machine => Priority::Register,
            Waiting::Nobody => Priority::Audit,
        };
        let question = Question::new(Call::Read, Method::GET, url).of(priority).conditional();
        let body: RunBody = self.ask_json(&scope, question).await?;
        let attempt = body.run_attempt.unwrap_or(1);
        match body.status.as_deref() {
            Some("completed") => Ok(RunState::Completed { attempt }),
            // Queued, waiting, in progress and any status that GitHub adds: not over, and only "over" has consequences.
            Some(_) => Ok(RunState::Active { attempt }),
            None => Err(unusable("the workflow run", "it has no status")),
        }
    }

    async fn open_runs(
        &self,
        owner: &str,
        name: &str,
        listed: Listed,
    ) -> Result<Vec<WorkflowRun>, GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let mut runs = BTreeMap::new();
        let statuses = match listed {
            Listed::Running => &["queued", "in_progress"][..],
            Listed::Open => &["queued", "in_progress", "waiting", "pending", "requested"][..],
        };
        for status in statuses {
            for page in 1..=MAX_RUN_PAGES {
                let body: RunsPage =
                    self.page(&scope, &["actions", "runs"], Some(("status", *status)), page).await?;
                let listed = body.workflow_runs.len() as u64;
                runs.extend(body.workflow_runs.into_iter().map(|run| (run.id, WorkflowRun::from(run))));
                if listed < PAGE_SIZE {
                    break;
                }
            }
        }
        Ok(runs.into_values().collect())
    }

    async fn run_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
    ) -> Result<Vec<WorkflowJob>, GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let (run, number) = (run_id.to_string(), attempt.to_string());
        let below = ["actions", "runs", &run, "attempts", &number, "jobs"];
        let mut jobs = Vec::new();
        for page in 1..=MAX_RUN_PAGES {
            let body: JobsPage = self.page(&scope, &below, None, page).await?;
            let listed = body.jobs.len() as u64;
            jobs.extend(body.jobs.into_iter().map(|job| job.listed(attempt)));
            if listed < PAGE_SIZE {
                return Ok(jobs);
            }
        }
        Err(unusable("the jobs of a workflow run", "the list does not end"))
    }

    async fn run_source(&self, owner: &str, name: &str, run_id: u64) -> Result<RunSource, GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let url = self.address(&scope, &["actions", "runs", &run_id.to_string()])?;
        let body: RunSourceBody = self.ask_json(&scope, Question::new(Call::Read, Method::GET, url)).await?;
        Ok(body.into())
    }

    async fn branch(
        &self,
        owner: &str,
        name: &str,
        branch: &str,
        sha: &str,
    ) -> Result<BranchFacts, GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let read = |below: &[&str]| {
            Ok::<_, GitHubError>(Question::new(Call::Read, Method::GET, self.address(&scope, below)?))
        };
        let repository: DefaultBranchBody = self.ask_json(&scope, read(&[])?.conditional()).await?;
        let found = match self.ask_json::<BranchBody>(&scope, read(&["branches", branch])?).await {
            Err(GitHubError::NotFound(_)) => return Ok(BranchFacts::default()),
            found => found?,
        };
        // The branch by its full name: a tag may have the short one.
        let range = format!("{sha}...refs/heads/{branch}");
        let mut compare = read(&["compare", &range])?;
        compare.url.query_pairs_mut().append_pair("per_page", "1");
        let contains = match self.ask_json::<CompareBody>(&scope, compare).await {
            Err(GitHubError::NotFound(_)) => false,
            compared => ["ahead", "identical"].contains(&compared?.status.as_str()),
        };
        let default = repository.default_branch == branch;
        Ok(BranchFacts { default, protected: found.protected, contains })
    }

    async fn rerun_failed_jobs(&self, owner: &str, name: &str, run_id: u64) -> Result<(), GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let url = self.address(&scope, &["actions", "runs", &run_id.to_string(), "rerun-failed-jobs"])?;
        let answer = self.ask(&scope, Question::new(Call::Rerun, Method::POST, url)).await?;
        match answer.status {
            StatusCode::CREATED => Ok(()),
            status => Err(unusable(&answer.what, format_args!("status {status} is not GitHub's 201"))),
        }
    }
}
