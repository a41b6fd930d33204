//! Plays a workflow: provisions and releases machines with the real verbs as child processes, and queues its jobs at
//! the stand-in GitHub meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use tokio::process::Command;
use tokio::time::Instant;

use crate::github::{Conclusion, JobStatus, StandIn};
use runyard_core::model::{
    FieldError, Instance, RecordId, Repository, Request, RequestKey, RequestName, RunId, label, runner_name,
};
use runyard_core::ports::{Store, StoreError};

use super::PATIENCE;
use super::facts::{Claimed, Facts, Reported, Waited, Wanted};
use super::journal::Journal;
use super::plan::{REPOSITORY, RequestPlan, RunPlan};
use super::records::{everything, records};

/// Why the demonstration could not continue.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A person stopped it.
    #[error("interrupted")]
    Interrupted,
    /// A verb failed.
    #[error("`{command}` failed ({status}):\n{output}")]
    Verb {
        /// The command.
        command: String,
        /// Its exit status.
        status: String,
        /// Its output.
        output: String,
    },
    /// The jobs did not end in time.
    #[error("the jobs of run {run} did not end within {} s", PATIENCE.as_secs())]
    Jobs {
        /// The run.
        run: u64,
    },
    /// A request is not in the table.
    #[error("there is no record of {0}")]
    NoRequest(RecordId),
    /// The table.
    #[error("the table: {0}")]
    Store(#[from] StoreError),
    /// The stand-in GitHub.
    #[error("the stand-in GitHub: {0}")]
    StandIn(String),
    /// An invalid value in the demonstration.
    #[error(transparent)]
    Value(#[from] FieldError),
    /// Any other fault.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
}

/// Where the workflows run.
pub struct DemoStage<'a> {
    /// The table.
    pub store: Arc<dyn Store>,
    /// The stand-in GitHub.
    pub standin: &'a StandIn,
    /// The journal in which the demonstration reports.
    pub journal: &'a Journal,
    /// The `runyard` executable.
    pub executable: PathBuf,
    /// The environment of the verbs.
    pub environment: BTreeMap<String, String>,
    /// The file that jobs append to.
    pub results: String,
}

impl DemoStage<'_> {
    /// Plays one run from its first request to the last machine given back.
    pub(super) async fn run(&self, plan: &RunPlan, facts: &mut Facts) -> Result<(), DemoError> {
        let standin = |failure: crate::github::StandInFailure| DemoError::StandIn(failure.to_string());
        self.journal.title(plan.title);
        let id = plan.run_id;
        self.standin.enqueue_run(REPOSITORY, Some(id), "demo", Vec::new(), true).map_err(standin)?;
        try_join_all(plan.requests.iter().map(|request| self.provision(id, request))).await?;
        self.holders(id, facts).await?;
        let mut jobs = Vec::new();
        for request in plan.requests {
            jobs.extend(request.jobs(&key(id, request)?, &self.results));
        }
        for job in &jobs {
            let wanted = Wanted { run_id: id.to_string(), label: job.runs_on.concat() };
            facts.wanted.insert(job.name.clone(), wanted);
        }
        self.journal.say(&format!("run {id} queues {} jobs", jobs.len()));
        self.standin.add_jobs(id, jobs, true).map_err(standin)?;
        let finished = tokio::time::timeout(PATIENCE, self.standin.finished_jobs(id)).await;
        // Machines may have been replaced meanwhile.
        self.holders(id, facts).await?;
        for job in finished.map_err(|_| DemoError::Jobs { run: id })?.map_err(standin)? {
            let succeeded = job.status == JobStatus::Completed(Conclusion::Success);
            let machine = job.runner_name.as_ref().and_then(|name| facts.claims.get(name));
            let machine = machine.map_or("no machine", |claimed| claimed.machine.as_str());
            self.journal.say(&format!("job {} ran on {machine}", job.spec.name));
            let reported = Reported { succeeded, runner: job.runner_name, log: job.log };
            facts.reported.insert(job.spec.name, reported);
        }
        try_join_all(plan.requests.iter().map(|request| self.release(id, request))).await?;
        self.standin.add_jobs(id, Vec::new(), false).map_err(standin)?;
        Ok(())
    }

    async fn provision(&self, run: u64, request: &RequestPlan) -> Result<(), DemoError> {
        let (run, count) = (run.to_string(), request.machines.to_string());
        let mut args = vec!["provision", "--run-id", &run, "--repository", REPOSITORY];
        args.extend(["--class", request.class, "--count", &count, "--name", request.name]);
        let timeout = format!("{}s", PATIENCE.as_secs());
        args.extend(["--timeout", &timeout, "--wait"]);
        self.verb(&args).await
    }

    async fn release(&self, run: u64, request: &RequestPlan) -> Result<(), DemoError> {
        let run = run.to_string();
        self.verb(&[
            "release",
            "--run-id",
            &run,
            "--repository",
            REPOSITORY,
            "--name",
            request.name,
            "--wait",
        ])
        .await
    }

    /// Calls `runyard` as a person or a workflow does.
    pub(super) async fn verb(&self, args: &[&str]) -> Result<(), DemoError> {
        let command = format!("runyard {}", args.join(" "));
        self.journal.say(&format!("$ {command}"));
        let mut child = Command::new(&self.executable);
        child.args(args).env_clear().envs(&self.environment).stdin(Stdio::null()).kill_on_drop(true);
        let end = Instant::now() + PATIENCE;
        let output = loop {
            let output = child.output().await.map_err(|error| DemoError::Io(command.clone(), error))?;
            // A table on a busy machine may respond too late: then a person would run it again.
            let late = String::from_utf8_lossy(&output.stderr).contains("request has timed out");
            if output.status.success() || !late || Instant::now() > end {
                break output;
            }
        };
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&text).trim().to_owned();
        Err(DemoError::Verb { command, status: output.status.to_string(), output: output_text })
    }

    /// Returns how a run's `default` request got the machines that `facts` lists for it, by the records.
    pub(super) async fn waited(&self, plan: &RunPlan, facts: &Facts) -> Result<Waited, DemoError> {
        let request = key(plan.run_id, plan.requests.first().expect("every run has a request"))?;
        let key = Request::key_of(&request);
        let items = everything(self.store.as_ref()).await?;
        let record = records::<Request>(&items).into_iter().find(|record| record.id == request);
        let status = record.as_ref().map(|record| (record.intent.created_at, record.status.accepted_at));
        let Some((Some(asked), Some(accepted))) = status else { return Err(DemoError::NoRequest(key)) };
        let ready = record.and_then(|record| record.status.ready_at).unwrap_or(asked);
        let label = label(&request);
        let held = |instance: &Instance| {
            let mut claims = facts.claims.values();
            claims.any(|claim| claim.label == label && claim.machine == instance.facts.instance_id)
        };
        let machines: Vec<_> = records::<Instance>(&items).into_iter().filter(held).collect();
        let found = machines.iter().filter(|machine| machine.facts.created_at < accepted).count();
        Ok(Waited {
            time: Duration::try_from(ready.duration_since(asked)).unwrap_or(Duration::ZERO),
            found,
            booted: machines.len() - found,
        })
    }

    /// Records which machines a run holds by the records, and which labels their runners have by GitHub.
    async fn holders(&self, run: u64, facts: &mut Facts) -> Result<(), DemoError> {
        for instance in records::<Instance>(&everything(self.store.as_ref()).await?) {
            let held = instance.held_by().and_then(RecordId::request);
            let (Some(request), Some(claim)) = (held, &instance.claim) else { continue };
            if request.run_id.as_str() == run.to_string() {
                let claimed = Claimed { machine: instance.facts.instance_id.clone(), label: label(request) };
                facts.claims.insert(runner_name(&claim.id, 1), claimed);
            }
        }
        let runners = self.standin.runners().map_err(|failure| DemoError::StandIn(failure.to_string()))?;
        for runner in runners {
            facts.labels.insert(runner.name, runner.labels.into_iter().map(|label| label.name).collect());
        }
        Ok(())
    }
}

fn key(run: u64, request: &RequestPlan) -> Result<RequestKey, FieldError> {
    Ok(RequestKey {
        repository: Repository::parse(REPOSITORY)?,
        run_id: RunId::parse(&run.to_string())?,
        name: RequestName::parse(request.name)?,
        attempt: 1,
    })
}
