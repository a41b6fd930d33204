//! `runyard explain run`: tells the jobs of a workflow run, and what the operator makes of each. GitHub lists the jobs;
//! without a credential for it the run's requests and events are told, and what they leave unknown.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::failure::{CliFailure, CliResult};
use crate::look::events;
use crate::output::format::plain;
use crate::output::json;
use crate::session::context::CliContext;
use runyard_core::decide::Policy;
use runyard_core::explain;
use runyard_core::explain::JobFate;
use runyard_core::model::{Item, RecordId, Repository, Request, RequestKey, RequestName, RunId, text_of};
use runyard_core::ports::github::WorkflowJob;
use runyard_core::yard::Yard;
use runyard_operator::github::{RestGitHub, WholeRun};

mod github;

/// The interval of `--watch`: each look asks GitHub.
const WATCH: Duration = Duration::from_secs(5);

/// The events that tell what was made of a run's jobs.
const TOLD: [&str; 7] =
    ["JobAsked", "JobNotServed", "RerunServed", "RerunNotServed", "RerunAsked", "RunEnded", "RuntimeEnds"];

/// A run to explain, with the operator's settings.
pub(crate) struct RunTarget {
    /// The run.
    pub(super) run_id: RunId,
    /// Its repository, if it is given.
    pub(super) repository: Option<Repository>,
    /// The operator's settings.
    pub(super) policy: Policy,
    /// The operator's file, whose credential GitHub is asked with.
    pub(super) config: Option<PathBuf>,
}

/// What is known of a run.
#[derive(PartialEq, Eq)]
struct RunExplained {
    document: Value,
    lines: Vec<String>,
}

/// Explains a run, repeatedly with `watch`.
pub(super) async fn explain_run(context: &mut CliContext, target: &RunTarget, watch: bool) -> CliResult {
    let github = github::reach(context, target.config.as_deref())?;
    let mut last: Option<RunExplained> = None;
    loop {
        let seen = look(context, target, github.as_ref()).await?;
        if last.as_ref() != Some(&seen) {
            show(context, watch, &seen, last.is_some());
            last = Some(seen);
        }
        if !watch || context.screen.closed() {
            return Ok(());
        }
        tokio::time::sleep(WATCH).await;
    }
}

fn show(context: &mut CliContext, watch: bool, seen: &RunExplained, again: bool) {
    if context.screen.format.for_programs() && watch {
        context.screen.next_document(&seen.document);
        return;
    }
    context.screen.document(&seen.document);
    if again {
        context.screen.separate();
    }
    for line in &seen.lines {
        context.screen.say(plain(line));
    }
}

/// Looks once.
async fn look(
    context: &CliContext,
    target: &RunTarget,
    github: Option<&RestGitHub>,
) -> CliResult<RunExplained> {
    let mut items = context.everything().await?;
    if let Some(repository) = &target.repository {
        let past = context.archived(repository, &target.run_id).await?;
        // Where the table has a record of the same key, it is the newer one.
        items.splice(0..0, past);
    }
    let (yard, now, role) = explain::picture(&items, context.clock.now());
    let repository = repository(&yard, target)?;
    let mut told = Told::of(&repository, &target.run_id);
    match asked(github, &repository, &target.run_id).await {
        Ok(whole) => told.run(&yard, &repository, &whole),
        Err(why) => told.unknown(why),
    }
    let requests = explain::requests_of_run(&yard, &repository, target.run_id.as_str());
    for request in &requests {
        told.request(request, explain::explain(&yard, &target.policy, now, role, &request.id));
    }
    let events = run_events(context, &repository, &target.run_id).await?;
    told.events(&events);
    if told.jobs.is_none() && requests.is_empty() && events.is_empty() {
        let message = format!("nothing is known of it in {repository}: {}", told.unknown.join("; "));
        let fix = "check the number and --repository; records go 7 days after the end";
        return Err(CliFailure::error("run", target.run_id.as_str(), message, fix));
    }
    Ok(told.explained())
}

/// Asks GitHub for a run; the error is the sentence about what stays unknown.
async fn asked(
    github: Option<&RestGitHub>,
    repository: &Repository,
    run_id: &RunId,
) -> Result<WholeRun, String> {
    let Some(github) = github else {
        return Err(format!("its jobs, because GitHub is not asked: {}", github::HOW));
    };
    let number = run_id.as_str().parse::<u64>();
    let number = number.map_err(|_| "its jobs: the id of a run at GitHub is a number".to_owned())?;
    let whole = github.whole_run(repository, number).await;
    whole.map_err(|error| format!("its jobs: {error}; the credential needs `Actions: read` of {repository}"))
}

/// Returns the repository of the run: the given one, else that of its requests.
fn repository(yard: &Yard, target: &RunTarget) -> CliResult<Repository> {
    if let Some(repository) = &target.repository {
        return Ok(repository.clone());
    }
    let of_run = yard.requests().filter(|(key, _)| key.run_id == target.run_id);
    let mut found: Vec<Repository> = of_run.map(|(key, _)| key.repository.folded()).collect();
    found.sort();
    found.dedup();
    let refused = |message: String| {
        Err(CliFailure::error("run", target.run_id.as_str(), message, "give --repository OWNER/REPO"))
    };
    match <[Repository; 1]>::try_from(found) {
        Ok([repository]) => Ok(repository),
        Err(none) if none.is_empty() => {
            refused("has no request in this yard, so its repository is not known".into())
        }
        Err(several) => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            refused(format!("more than one repository has it: {}", several.join(", ")))
        }
    }
}

/// Reads the events of a run that tell what was made of its jobs, oldest first.
async fn run_events(context: &CliContext, repository: &Repository, run_id: &RunId) -> CliResult<Vec<Item>> {
    let key = RequestKey {
        repository: repository.folded(),
        run_id: run_id.clone(),
        name: RequestName::default_name(),
        attempt: 1,
    };
    let mut events = events::of(context, &RecordId::Request(key)).await?;
    events.retain(|item| text_of(item, "reason").is_some_and(|reason| TOLD.contains(&reason)));
    Ok(events)
}

/// What is told of a run, for programs and for people.
struct Told {
    run: Value,
    jobs: Option<Vec<Value>>,
    requests: Vec<Value>,
    events: Vec<Value>,
    unknown: Vec<String>,
    headline: String,
    lines: Vec<String>,
}

impl Told {
    fn of(repository: &Repository, run_id: &RunId) -> Self {
        Self {
            run: json!({"repository": repository.as_str(), "runId": run_id.as_str()}),
            jobs: None,
            requests: Vec::new(),
            events: Vec::new(),
            unknown: Vec::new(),
            headline: format!("run {run_id} of {repository}"),
            lines: Vec::new(),
        }
    }

    /// Takes in a run as GitHub has it.
    fn run(&mut self, yard: &Yard, repository: &Repository, whole: &WholeRun) {
        let WholeRun { run, state, status, jobs } = whole;
        self.run["attempt"] = run.attempt.into();
        self.run["status"] = status.as_str().into();
        self.run["fork"] = (!run.own).into();
        self.headline.push_str(&format!(": attempt {}, {status}", run.attempt));
        if !run.workflow.is_empty() {
            self.run["workflow"] = run.workflow.as_str().into();
            self.headline.push_str(&format!(", workflow {}", run.workflow));
        }
        if !run.own {
            self.headline.push_str(", with the code of a fork");
        }
        if jobs.is_empty() {
            self.lines.push("GitHub lists no job of it (a new job is listed up to 5 s late)".into());
        }
        let fates = explain::job_fates(yard, repository, run, *state, jobs);
        self.lines.extend(jobs.iter().zip(&fates).map(|(job, fate)| job_line(job, fate)));
        self.jobs = Some(jobs.iter().zip(&fates).map(|(job, fate)| job_document(job, fate)).collect());
    }

    fn request(&mut self, request: &Request, lines: Vec<String>) {
        self.requests.push(json!({"request": named(&request.id), "lines": lines}));
        let first = std::iter::once(true).chain(std::iter::repeat(false));
        let inset = |(line, first): (String, bool)| {
            if first { format!("request {line}") } else { format!("  {line}") }
        };
        self.lines.extend(lines.into_iter().zip(first).map(inset));
    }

    fn events(&mut self, events: &[Item]) {
        let word = |item: &Item, name: &str| text_of(item, name).unwrap_or_default().to_owned();
        let line = |item: &Item| {
            format!("event {} {}: {}", word(item, "at"), word(item, "reason"), word(item, "message"))
        };
        self.lines.extend(events.iter().map(line));
        self.events = events.iter().map(json::record).collect();
    }

    fn unknown(&mut self, what: String) {
        self.unknown.push(what);
    }

    fn explained(self) -> RunExplained {
        let unknown = self.unknown.iter().map(|what| format!("unknown: {what}"));
        let lines = std::iter::once(self.headline).chain(self.lines).chain(unknown).collect();
        let document = json!({
            "run": self.run, "jobs": self.jobs.unwrap_or_default(), "requests": self.requests, "events": self.events,
            "unknown": self.unknown,
        });
        RunExplained { document, lines }
    }
}

fn job_line(job: &WorkflowJob, fate: &JobFate) -> String {
    let labels = if job.labels.is_empty() { "no label".to_owned() } else { job.labels.join(", ") };
    let message = fate.message.strip_prefix(fate.state).map_or(&*fate.message, str::trim_start);
    format!("job {} ({labels}): {}: {message}", job.name, fate.state)
}

fn job_document(job: &WorkflowJob, fate: &JobFate) -> Value {
    let mut document = json!({
        "name": job.name, "labels": job.labels, "state": fate.state, "reason": fate.reason, "message": fate.message,
    });
    if let Some(class) = &fate.class {
        document["resourceClass"] = class.as_str().into();
    }
    if let Some(request) = &fate.request {
        document["request"] = named(request).into();
    }
    document
}

/// Names a request as other verbs take it.
fn named(id: &RequestKey) -> String {
    format!("{}/{}/{}", id.run_id, id.name, id.attempt)
}

#[cfg(test)]
mod tests;
