//! GitHub as far as the port asks of it: tokens that are counted, a list of runners, runs that are over when a test
//! says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use runyard_core::model::Repository;

use super::script::{Fault, Script, locked};
use runyard_core::ports::github::{
    BranchFacts, EndOfLife, JobConfig, JobState, Listed, RunSource, RunState, Runner, RunnerApplication,
    RunnerSpec, Scope, Token, Waiting, WorkflowJob, WorkflowRun,
};
use runyard_core::ports::{Clock, GitHub, GitHubError};

/// How long a token is good for.
const TOKEN: SignedDuration = SignedDuration::from_hours(1);

/// The workflow file of every run.
const WORKFLOW: &str = ".github/workflows/build.yml";

/// GitHub in memory. Clones share it.
#[derive(Clone)]
pub struct FakeGitHub(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    faults: Script<GitHubError>,
    site: Mutex<Site>,
}

#[derive(Default)]
struct Site {
    runners: BTreeMap<Scope, Vec<Runner>>,
    runs: BTreeMap<(String, String, u64), RunState>,
    /// When the latest attempt of a run began.
    began: BTreeMap<(String, String, u64), Timestamp>,
    /// The runs whose code is that of a fork.
    forks: BTreeSet<(String, String, u64)>,
    /// The runs that wait for an approval.
    waiting: BTreeSet<(String, String, u64)>,
    /// When the entry of a run in a list last changed.
    changed: BTreeMap<(String, String, u64), Timestamp>,
    /// The part of the hourly budget that is used.
    used: f64,
    /// The jobs of each attempt of a run.
    jobs: BTreeMap<(String, String, u64), BTreeMap<u32, Vec<WorkflowJob>>>,
    /// Whether jobs that do not run in an attempt are left out of its list.
    lists_only_what_runs: bool,
    ends_of_life: BTreeMap<String, EndOfLife>,
    applications: Vec<RunnerApplication>,
    groups: BTreeMap<(String, String), u64>,
    /// How often a list of runners was read that changes under each reader; none where lists stay the same.
    changing: Option<usize>,
    calls: BTreeMap<&'static str, u64>,
    /// Where runs come from, and what their branches are.
    sources: BTreeMap<(String, String, u64), RunSource>,
    branches: BTreeMap<(String, String, String), BranchFacts>,
    numbers: u64,
    outage: Option<GitHubError>,
    /// How long the answer to a verb takes.
    takes: BTreeMap<&'static str, Duration>,
    /// What every call of a verb meets.
    outages: BTreeMap<&'static str, GitHubError>,
    /// What every call about the runs of an owner (`acme`) or a repository (`acme/web`) meets.
    outages_in: BTreeMap<String, GitHubError>,
    /// The last answer to each question that is asked again and again, and how often an answer differed from it.
    answers: BTreeMap<String, String>,
    differed: BTreeMap<&'static str, u64>,
    /// How often each verb was called about the runs of each repository.
    calls_in: BTreeMap<String, BTreeMap<&'static str, u64>>,
}

impl Site {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Notes an answer, which GitHub counts only where it differs from the last one to the same question.
    fn answers(&mut self, verb: &'static str, question: &str, answer: &impl std::fmt::Debug) {
        let (question, answer) = (format!("{verb} {question}"), format!("{answer:?}"));
        if self.answers.get(&question) != Some(&answer) {
            *self.differed.entry(verb).or_default() += 1;
            self.answers.insert(question, answer);
        }
    }

    fn add(
        &mut self,
        scope: &Scope,
        name: &str,
        labels: Vec<String>,
        online: bool,
    ) -> Result<u64, GitHubError> {
        let id = self.number();
        let runners = self.runners.entry(scope.clone()).or_default();
        if runners.iter().any(|runner| runner.name == name) {
            return Err(GitHubError::NameTaken(name.to_owned()));
        }
        runners.push(Runner { id, name: name.to_owned(), online, busy: false, labels });
        Ok(id)
    }
}

impl Site {
    fn rerun(&mut self, run: (String, String, u64), all: bool, now: Timestamp) -> Result<u32, GitHubError> {
        let unknown = || GitHubError::NotFound(format!("run {}", run.2));
        let attempt = match self.runs.get(&run).ok_or_else(unknown)? {
            RunState::Completed { attempt } => *attempt,
            RunState::Active { .. } => {
                return Err(GitHubError::Denied("This workflow is already running".into()));
            }
        };
        let attempts = self.jobs.entry(run.clone()).or_default();
        let before = attempts.get(&attempt).cloned().unwrap_or_default();
        let again = |job: &WorkflowJob| all || job.state != JobState::Succeeded;
        if !before.iter().any(again) {
            return Err(GitHubError::Denied("This workflow run has no failed jobs".into()));
        }
        let next = before.into_iter().map(|job| match again(&job) {
            true => WorkflowJob {
                state: JobState::Queued,
                attempt: attempt + 1,
                started_at: None,
                completed_at: None,
                runner: None,
                ..job
            },
            false => job,
        });
        attempts.insert(attempt + 1, next.collect());
        self.began.insert(run.clone(), now);
        self.runs.insert(run, RunState::Active { attempt: attempt + 1 });
        Ok(attempt + 1)
    }
}

/// Returns a job of a first attempt that waits for a runner with these labels.
#[must_use]
pub fn queued_job(name: &str, labels: &[&str]) -> WorkflowJob {
    WorkflowJob {
        name: name.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        state: JobState::Queued,
        attempt: 1,
        started_at: None,
        completed_at: None,
        runner: None,
    }
}

impl FakeGitHub {
    /// A GitHub without runners.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, faults: Script::default(), site: Mutex::default() }))
    }

    /// What the next call meets; several stand in line.
    pub fn next(&self, fault: Fault<GitHubError>) {
        self.0.faults.add(fault);
    }

    /// What every call meets from now on; none ends the outage.
    pub fn outage(&self, error: Option<GitHubError>) {
        locked(&self.0.site).outage = error;
    }

    /// What every call of this verb meets from now on; none ends the outage.
    pub fn outage_of(&self, verb: &'static str, error: Option<GitHubError>) {
        let mut site = locked(&self.0.site);
        match error {
            Some(error) => drop(site.outages.insert(verb, error)),
            None => drop(site.outages.remove(verb)),
        }
    }

    /// What every call about the runs of this owner (`acme`) or repository (`acme/web`), or about the jobs of this run
    /// (`acme/web#41`), meets from now on; none ends the outage.
    pub fn outage_in(&self, place: &str, error: Option<GitHubError>) {
        let mut site = locked(&self.0.site);
        match error {
            Some(error) => drop(site.outages_in.insert(place.to_owned(), error)),
            None => drop(site.outages_in.remove(place)),
        }
    }

    /// How long the answers to this verb take from now on.
    pub fn takes(&self, verb: &'static str, time: Duration) {
        locked(&self.0.site).takes.insert(verb, time);
    }

    async fn answering(&self, verb: &'static str) {
        let time = locked(&self.0.site).takes.get(verb).copied();
        if let Some(time) = time {
            tokio::time::sleep(time).await;
        }
    }

    /// Registers a runner as an agent with a token does; one of the same name is replaced.
    pub fn register(&self, scope: &Scope, name: &str, labels: Vec<String>) -> u64 {
        let mut site = locked(&self.0.site);
        site.runners.entry(scope.clone()).or_default().retain(|runner| runner.name != name);
        site.add(scope, name, labels, true).expect("the name was just made free")
    }

    /// Deregisters a runner as an agent with a token does.
    pub fn deregister(&self, scope: &Scope, name: &str) {
        locked(&self.0.site).runners.entry(scope.clone()).or_default().retain(|runner| runner.name != name);
    }

    /// Says whether a runner is connected and has a job.
    pub fn set_runner(&self, scope: &Scope, name: &str, online: bool, busy: bool) {
        let mut site = locked(&self.0.site);
        let runners = site.runners.entry(scope.clone()).or_default();
        for runner in runners.iter_mut().filter(|runner| runner.name == name) {
            (runner.online, runner.busy) = (online, busy);
        }
    }

    /// From now on every list of runners changes between its pages, and who reads it misses one of them now and then.
    pub fn lists_change(&self) {
        locked(&self.0.site).changing = Some(0);
    }

    /// Says where a run stands; a run nobody spoke of is not found.
    pub fn set_source(&self, owner: &str, name: &str, run_id: u64, source: RunSource, branch: BranchFacts) {
        let mut site = locked(&self.0.site);
        site.branches.insert(key(owner, name, source.head_branch.clone()), branch);
        site.sources.insert(key(owner, name, run_id), source);
    }

    /// How a run is.
    pub fn set_run(&self, owner: &str, name: &str, run_id: u64, state: RunState) {
        locked(&self.0.site).runs.insert(key(owner, name, run_id), state);
    }

    /// Says that a run has the code of a fork.
    pub fn set_fork(&self, owner: &str, name: &str, run_id: u64) {
        locked(&self.0.site).forks.insert(key(owner, name, run_id));
    }

    /// Says whether a run waits for an approval; the lists of queued and running runs do not show it then.
    pub fn set_waiting(&self, owner: &str, name: &str, run_id: u64, waits: bool) {
        let (run, mut site) = (key(owner, name, run_id), locked(&self.0.site));
        let _changed = match waits {
            true => site.waiting.insert(run),
            false => site.waiting.remove(&run),
        };
    }

    /// Says how much of the hourly budget is used, from 0 to 1.
    pub fn set_budget_used(&self, used: f64) {
        locked(&self.0.site).used = used;
    }

    /// Queues a job with these labels in the first attempt of a run, which goes on.
    pub fn queue_job(&self, owner: &str, name: &str, run_id: u64, job: &str, labels: &[&str]) {
        self.set_run(owner, name, run_id, RunState::Active { attempt: 1 });
        self.add_job(owner, name, run_id, queued_job(job, labels));
    }

    /// Adds a job to an attempt of a run, whose entry in the lists changes.
    pub fn add_job(&self, owner: &str, name: &str, run_id: u64, job: WorkflowJob) {
        let (run, now) = (key(owner, name, run_id), self.0.clock.now());
        locked(&self.0.site).changed.insert(run, now);
        self.add_job_late(owner, name, run_id, job);
    }

    /// Adds a job to an attempt of a run whose entry in the lists has changed before, as GitHub lists jobs late.
    pub fn add_job_late(&self, owner: &str, name: &str, run_id: u64, job: WorkflowJob) {
        let mut site = locked(&self.0.site);
        let run = key(owner, name, run_id);
        site.jobs.entry(run).or_default().entry(job.attempt).or_default().push(job);
    }

    /// Changes the jobs of an attempt of a run.
    pub fn change_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
        mut change: impl FnMut(&mut WorkflowJob),
    ) {
        let mut site = locked(&self.0.site);
        let run = key(owner, name, run_id);
        let jobs = site.jobs.entry(run).or_default().entry(attempt).or_default();
        jobs.iter_mut().filter(|job| job.attempt == attempt).for_each(&mut change);
    }

    /// From now on a list of jobs has those alone that ran in its attempt, as GitHub had it in 2025.
    pub fn list_only_what_runs(&self) {
        locked(&self.0.site).lists_only_what_runs = true;
    }

    /// A person re-runs the failed jobs of a run that is over, or all of them.
    ///
    /// # Errors
    /// As GitHub answers: the run is unknown, or not over, or none of its jobs failed.
    pub fn rerun(&self, owner: &str, name: &str, run_id: u64, all: bool) -> Result<u32, GitHubError> {
        let now = self.0.clock.now();
        locked(&self.0.site).rerun(key(owner, name, run_id), all, now)
    }

    /// Says when GitHub's support of a runner version ends.
    pub fn set_end_of_life(&self, version: &str, end: EndOfLife) {
        locked(&self.0.site).ends_of_life.insert(version.to_owned(), end);
    }

    /// Says which runner packages are to be had.
    pub fn offer(&self, applications: Vec<RunnerApplication>) {
        locked(&self.0.site).applications = applications;
    }

    /// Says that an organisation has a runner group.
    pub fn set_group(&self, owner: &str, name: &str, id: u64) {
        locked(&self.0.site).groups.insert((owner.to_owned(), name.to_owned()), id);
    }

    /// How often each verb was called, refused calls included.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.0.site).calls.clone()
    }

    /// How often the lists of runs and of jobs differed from what was listed before: GitHub counts no other call of those.
    pub fn differed(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.0.site).differed.clone()
    }

    /// How often each verb was called about the runs of this repository (`acme/web`), refused calls included.
    pub fn calls_in(&self, repository: &str) -> BTreeMap<&'static str, u64> {
        locked(&self.0.site).calls_in.get(repository).cloned().unwrap_or_default()
    }

    /// Every runner of every scope.
    pub fn all_runners(&self) -> Vec<Runner> {
        locked(&self.0.site).runners.values().flatten().cloned().collect()
    }

    fn call<T>(
        &self,
        verb: &'static str,
        act: impl FnOnce(&mut Site) -> Result<T, GitHubError>,
    ) -> Result<T, GitHubError> {
        *locked(&self.0.site).calls.entry(verb).or_default() += 1;
        let exit = self.0.faults.enter()?;
        let mut site = locked(&self.0.site);
        if let Some(outage) = site.outage.clone().or_else(|| site.outages.get(verb).cloned()) {
            return Err(outage);
        }
        exit.answer(act(&mut site))
    }

    /// A call about the runs of a repository.
    fn call_in<T>(
        &self,
        (owner, name): (&str, &str),
        verb: &'static str,
        act: impl FnOnce(&mut Site) -> Result<T, GitHubError>,
    ) -> Result<T, GitHubError> {
        let repository = format!("{owner}/{name}").to_ascii_lowercase();
        let mut site = locked(&self.0.site);
        *site.calls_in.entry(repository.clone()).or_default().entry(verb).or_default() += 1;
        drop(site);
        self.call(verb, |site| {
            match site.outages_in.get(owner).or_else(|| site.outages_in.get(&repository)) {
                Some(outage) => Err(outage.clone()),
                None => act(site),
            }
        })
    }

    /// Mints a token. A mint takes a turn, as each call over the network does: others may ask meanwhile.
    async fn token(&self, what: &'static str) -> Result<Token, GitHubError> {
        tokio::task::yield_now().await;
        let now = self.0.clock.now();
        self.call(what, |site| {
            let expires_at = now.saturating_add(TOKEN).unwrap_or(now);
            Ok(Token { value: format!("{what}-{}", site.number()), expires_at })
        })
    }
}

/// What something of a repository is kept under: GitHub regards no case in the names of owners and repositories.
fn key<T>(owner: &str, name: &str, of: T) -> (String, String, T) {
    (owner.to_ascii_lowercase(), name.to_ascii_lowercase(), of)
}

#[async_trait]
impl GitHub for FakeGitHub {
    fn runner_url(&self, scope: &Scope) -> String {
        match scope {
            Scope::Repository { owner, name } => format!("https://github.example/{owner}/{name}"),
            Scope::Organization { owner } => format!("https://github.example/{owner}"),
        }
    }

    async fn registration_token(&self, _: &Scope) -> Result<Token, GitHubError> {
        self.token("registration").await
    }

    async fn removal_token(&self, _: &Scope) -> Result<Token, GitHubError> {
        self.token("removal").await
    }

    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        self.call("job_config", |site| {
            let runner_id = site.add(scope, &spec.name, spec.labels.clone(), false)?;
            Ok(JobConfig { runner_id, encoded: format!("job-config-{runner_id}") })
        })
    }

    async fn runner_group(&self, owner: &str, name: &str) -> Result<Option<u64>, GitHubError> {
        let group = (owner.to_owned(), name.to_owned());
        self.call("runner_group", |site| Ok(site.groups.get(&group).copied()))
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, GitHubError> {
        self.call("runner", |site| {
            let mut runners = site.runners.get(scope).into_iter().flatten();
            Ok(runners.find(|runner| runner.name == name).cloned())
        })
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, GitHubError> {
        self.call("runner_by_id", |site| {
            let mut runners = site.runners.get(scope).into_iter().flatten();
            Ok(runners.find(|runner| runner.id == id).cloned())
        })
    }

    async fn runners(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.call("runners", |site| match site.changing {
            Some(_) => Err(GitHubError::Unreachable("the list of runners kept changing".into())),
            None => Ok(site.runners.get(scope).cloned().unwrap_or_default()),
        })
    }

    async fn runners_seen(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.call("runners", |site| {
            let mut runners = site.runners.get(scope).cloned().unwrap_or_default();
            if let Some(turn) = &mut site.changing {
                *turn += 1;
                let missed = *turn % (runners.len() + 1);
                runners = runners
                    .into_iter()
                    .enumerate()
                    .filter(|(at, _)| *at != missed)
                    .map(|(_, one)| one)
                    .collect();
            }
            Ok(runners)
        })
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), GitHubError> {
        self.call("remove_runner", |site| {
            let runners = site.runners.entry(scope.clone()).or_default();
            if let Some(busy) = runners.iter().find(|runner| runner.id == id && runner.busy) {
                return Err(GitHubError::Busy(busy.name.clone()));
            }
            runners.retain(|runner| runner.id != id);
            Ok(())
        })
    }

    async fn set_labels(&self, scope: &Scope, id: u64, labels: &[String]) -> Result<(), GitHubError> {
        self.answering("set_labels").await;
        self.call("set_labels", |site| {
            let mut runners = site.runners.entry(scope.clone()).or_default().iter_mut();
            let runner = runners.find(|runner| runner.id == id);
            let runner = runner.ok_or_else(|| GitHubError::NotFound(format!("runner {id}")))?;
            runner.labels = labels.to_vec();
            Ok(())
        })
    }

    async fn end_of_life(&self, _: &Scope, version: &str) -> Result<EndOfLife, GitHubError> {
        let unknown = || GitHubError::NotFound(version.to_owned());
        self.call("end_of_life", |site| site.ends_of_life.get(version).copied().ok_or_else(unknown))
    }

    async fn runner_applications(&self, _: &Scope) -> Result<Vec<RunnerApplication>, GitHubError> {
        self.call("runner_applications", |site| Ok(site.applications.clone()))
    }

    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        self.call("repositories", |site| {
            let named = |(owner, name, _): &(String, String, u64)| format!("{owner}/{name}").parse().ok();
            let listed: BTreeSet<Repository> = site.runs.keys().filter_map(named).collect();
            Ok(listed.into_iter().collect())
        })
    }

    fn budget_used(&self, _: &str, _: &str) -> f64 {
        locked(&self.0.site).used
    }

    async fn run(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        _waiting: Waiting,
    ) -> Result<RunState, GitHubError> {
        let run = key(owner, name, run_id);
        let unknown = || GitHubError::NotFound(format!("{owner}/{name} run {run_id}"));
        self.answering("run").await;
        self.call_in((owner, name), "run", |site| site.runs.get(&run).copied().ok_or_else(unknown))
    }

    async fn open_runs(
        &self,
        owner: &str,
        name: &str,
        listed: Listed,
    ) -> Result<Vec<WorkflowRun>, GitHubError> {
        self.answering("open_runs").await;
        self.call_in((owner, name), "open_runs", |site| {
            let ours = |of: &(String, String, u64)| *of == key(owner, name, of.2);
            let shown = |of: &(String, String, u64)| listed == Listed::Open || !site.waiting.contains(of);
            let runs = site.runs.iter().filter(|(of, _)| ours(of) && shown(of));
            let open = runs.filter_map(|(of, state)| match state {
                RunState::Active { attempt } => Some(WorkflowRun {
                    id: of.2,
                    attempt: *attempt,
                    started_at: site.began.get(of).copied(),
                    updated_at: site.changed.get(of).copied(),
                    workflow: WORKFLOW.to_owned(),
                    own: !site.forks.contains(of),
                }),
                RunState::Completed { .. } => None,
            });
            let open: Vec<WorkflowRun> = open.collect();
            // Each state has a list of its own at GitHub.
            let waits = |run: &&WorkflowRun| site.waiting.contains(&key(owner, name, run.id));
            let (waiting, running): (Vec<_>, Vec<_>) = open.iter().partition(waits);
            let begun = |run: &&WorkflowRun| {
                let of_attempt = site.jobs.get(&key(owner, name, run.id)).and_then(|of| of.get(&run.attempt));
                of_attempt.is_none_or(|jobs| jobs.iter().any(|job| job.state != JobState::Queued))
            };
            let (running, queued): (Vec<&WorkflowRun>, Vec<&WorkflowRun>) =
                running.iter().copied().partition(begun);
            site.answers("open_runs", &format!("{owner}/{name} queued"), &queued);
            site.answers("open_runs", &format!("{owner}/{name} running"), &running);
            if listed == Listed::Open {
                site.answers("open_runs", &format!("{owner}/{name} waiting"), &waiting);
            }
            Ok(open)
        })
    }

    async fn run_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
    ) -> Result<Vec<WorkflowJob>, GitHubError> {
        let run = key(owner, name, run_id);
        self.call_in((owner, name), "run_jobs", |site| {
            if let Some(outage) = site.outages_in.get(&format!("{owner}/{name}#{run_id}")) {
                return Err(outage.clone());
            }
            let mut jobs = site.jobs.get(&run).and_then(|of| of.get(&attempt)).cloned().unwrap_or_default();
            jobs.retain(|job| !site.lists_only_what_runs || job.attempt == attempt);
            site.answers("run_jobs", &format!("{owner}/{name}/{run_id}/{attempt}"), &jobs);
            Ok(jobs)
        })
    }

    async fn run_source(&self, owner: &str, name: &str, run_id: u64) -> Result<RunSource, GitHubError> {
        let run = key(owner, name, run_id);
        let unknown = || GitHubError::NotFound(format!("{owner}/{name} run {run_id}"));
        self.call_in((owner, name), "run_source", |site| site.sources.get(&run).cloned().ok_or_else(unknown))
    }

    async fn branch(
        &self,
        owner: &str,
        name: &str,
        branch: &str,
        _: &str,
    ) -> Result<BranchFacts, GitHubError> {
        let branch = key(owner, name, branch.to_owned());
        self.call_in((owner, name), "branch", |site| {
            Ok(site.branches.get(&branch).copied().unwrap_or_default())
        })
    }

    async fn rerun_failed_jobs(&self, owner: &str, name: &str, run_id: u64) -> Result<(), GitHubError> {
        let (run, now) = (key(owner, name, run_id), self.0.clock.now());
        self.call_in((owner, name), "rerun_failed_jobs", |site| site.rerun(run, false, now).map(drop))
    }
}
