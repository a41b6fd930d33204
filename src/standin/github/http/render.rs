//! Renders runners, runs and jobs as GitHub does, with every field that GitHub's description requires, although most of
//! them have no meaning on one machine.

use jiff::{Timestamp, Unit};
use serde_json::{Map, Value, json};

use super::super::behaviour::EndOfLife;
use super::super::state::{Conclusion, Job, JobStatus, Label, RegisteredRunner, Run, State};

use super::super::state::HEAD as SHA;

/// The default branch of each repository.
pub(super) const DEFAULT_BRANCH: &str = "main";

/// Formats a time in GitHub's form: whole seconds, `Z`.
pub(super) fn time(at: Timestamp) -> String {
    at.round(Unit::Second).unwrap_or(at).to_string()
}

pub(super) fn runner(state: &State, runner: &RegisteredRunner) -> Value {
    json!({
        "id": runner.id,
        "runner_group_id": runner.group_id,
        "name": runner.name,
        "os": if runner.version.is_some() { "linux" } else { "unknown" },
        "status": if runner.online() { "online" } else { "offline" },
        "busy": state.told_busy(runner),
        "ephemeral": runner.ephemeral,
        "version": runner.version,
        "labels": runner.labels.iter().map(label).collect::<Vec<_>>(),
    })
}

fn label(label: &Label) -> Value {
    json!({"id": label.id, "name": label.name, "type": if label.custom { "custom" } else { "read-only" }})
}

/// Renders the labels of one runner.
pub(super) fn label_list(labels: &[Label]) -> Value {
    json!({"total_count": labels.len(), "labels": labels.iter().map(label).collect::<Vec<_>>()})
}

/// Renders an end of life. As measured, a date that GitHub does not name is left out of its response.
pub(super) fn end_of_life(end: &EndOfLife) -> Value {
    let mut body = json!({"runner_version": end.version});
    for (name, at) in
        [("registration_deprecates_at", end.registration), ("runtime_deprecates_at", end.runtime)]
    {
        if let Some(at) = at {
            body[name] = time(at).into();
        }
    }
    body
}

/// Renders a run, alone or in a list. As at GitHub, times are whole seconds: two changes within a second may leave an
/// entry, and the mark of its list, as they were.
pub(super) fn run(url: &str, state: &State, run: &Run) -> Value {
    let jobs: Vec<&Job> = state.jobs_of(run.id).collect();
    let api = format!("{url}/repos/{}", run.repository);
    let this = format!("{api}/actions/runs/{}", run.id);
    let (status, conclusion) = run_status(state, run, &jobs);
    let head = &run.source.head_repository;
    let head = if head.is_empty() { &run.repository } else { head };
    let head = (!run.source.head_repository_deleted).then(|| repository(url, head));
    let changes = jobs.iter().flat_map(|j| [Some(j.created_at), j.started_at, j.completed_at]).flatten();
    let updated = changes.fold(run.updated_at, Ord::max);
    json!({
        "id": run.id,
        "name": run.name,
        "node_id": format!("run_{}", run.id),
        "head_branch": run.source.head_branch,
        "head_sha": run.source.head_sha,
        "path": ".github/workflows/workflow.yml",
        "run_number": run.id,
        "run_attempt": run.attempt,
        "display_title": run.name,
        "event": run.source.event,
        "status": status,
        "conclusion": conclusion,
        "workflow_id": 1,
        "url": this,
        "html_url": format!("{url}/{}/actions/runs/{}", run.repository, run.id),
        "pull_requests": [],
        "created_at": time(run.created_at),
        "run_started_at": time(run.attempt_started_at.unwrap_or(run.created_at)),
        "updated_at": time(updated),
        "jobs_url": format!("{this}/jobs"),
        "logs_url": format!("{this}/logs"),
        "check_suite_url": format!("{api}/check-suites/{}", run.id),
        "artifacts_url": format!("{this}/artifacts"),
        "cancel_url": format!("{this}/cancel"),
        "rerun_url": format!("{this}/rerun"),
        "workflow_url": format!("{api}/actions/workflows/1"),
        "head_commit": null,
        "repository": repository(url, &run.repository),
        "head_repository": head,
    })
}

fn run_status(state: &State, run: &Run, jobs: &[&Job]) -> (&'static str, Option<&'static str>) {
    let current: Vec<_> = jobs.iter().filter(|j| j.attempt == run.attempt).collect();
    let all_over = current.iter().all(|j| j.status.over());
    if run.waits && all_over {
        return ("waiting", None);
    }
    if !run.open && all_over {
        let ended = |wanted| current.iter().any(|j| j.status == JobStatus::Completed(wanted));
        let failed = ended(Conclusion::Failure) || ended(Conclusion::Lost);
        let conclusion = match (failed, ended(Conclusion::Cancelled)) {
            (true, _) => "failure",
            (false, true) => "cancelled",
            (false, false) => "success",
        };
        return ("completed", Some(conclusion));
    }
    let begun = current.iter().any(|j| State::begun(run, j));
    let queued = current.iter().any(|j| job_status(j.status).0 == "queued");
    let hidden = queued && state.behaviour().queued_hides_running;
    (if begun && !hidden { "in_progress" } else { "queued" }, None)
}

pub(super) fn job(url: &str, run: &Run, job: &Job) -> Value {
    let api = format!("{url}/repos/{}", job.repository);
    let (status, conclusion) = job_status(job.status);
    let assigned = job.runner_id.is_some();
    json!({
        "id": job.id,
        "run_id": job.run_id,
        "run_attempt": job.attempt,
        "run_url": format!("{api}/actions/runs/{}", job.run_id),
        "node_id": format!("job_{}", job.id),
        "head_sha": SHA,
        "head_branch": "main",
        "workflow_name": run.name,
        "url": format!("{api}/actions/jobs/{}", job.id),
        "html_url": format!("{url}/{}/actions/runs/{}/job/{}", job.repository, job.run_id, job.id),
        "check_run_url": format!("{api}/check-runs/{}", job.id),
        "status": status,
        "conclusion": conclusion,
        "created_at": time(job.created_at),
        "started_at": time(job.started_at.unwrap_or(job.created_at)),
        "completed_at": job.completed_at.map(time),
        "name": job.spec.name,
        "labels": job.spec.runs_on,
        "runner_id": job.runner_id,
        "runner_name": job.runner_name,
        "runner_group_id": assigned.then_some(1),
        "runner_group_name": assigned.then_some("Default"),
    })
}

/// Returns GitHub's status and conclusion. GitHub reports a job whose runner vanished as a failure.
fn job_status(status: JobStatus) -> (&'static str, Option<&'static str>) {
    match status {
        JobStatus::Queued | JobStatus::Assigned => ("queued", None),
        JobStatus::InProgress => ("in_progress", None),
        JobStatus::Completed(Conclusion::Success) => ("completed", Some("success")),
        JobStatus::Completed(Conclusion::Failure | Conclusion::Lost) => ("completed", Some("failure")),
        JobStatus::Completed(Conclusion::Cancelled) => ("completed", Some("cancelled")),
    }
}

/// Returns a number for each repository (FNV-1a): a fork is another one.
fn repository_id(full_name: &str) -> u32 {
    let bytes = full_name.bytes().map(|byte| byte.to_ascii_lowercase());
    bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) >> 1
}

/// Renders a repository by itself.
pub(super) fn whole_repository(url: &str, full_name: &str) -> Value {
    let mut body = repository(url, full_name);
    body["default_branch"] = DEFAULT_BRANCH.into();
    body
}

fn repository(url: &str, full_name: &str) -> Value {
    const LINKS: [&str; 37] = [
        "archive",
        "assignees",
        "blobs",
        "branches",
        "collaborators",
        "comments",
        "commits",
        "compare",
        "contents",
        "contributors",
        "deployments",
        "downloads",
        "events",
        "forks",
        "git_commits",
        "git_refs",
        "git_tags",
        "hooks",
        "issue_comment",
        "issue_events",
        "issues",
        "keys",
        "labels",
        "languages",
        "merges",
        "milestones",
        "notifications",
        "pulls",
        "releases",
        "stargazers",
        "statuses",
        "subscribers",
        "subscription",
        "tags",
        "teams",
        "trees",
        "clone",
    ];
    let (owner, name) = full_name.split_once('/').unwrap_or((full_name, ""));
    let api = format!("{url}/repos/{full_name}");
    let mut body = Map::new();
    for link in LINKS {
        body.insert(format!("{link}_url"), json!(format!("{api}/{link}")));
    }
    body.extend([
        ("id".to_owned(), json!(repository_id(full_name))),
        ("node_id".to_owned(), json!(format!("repository_{full_name}"))),
        ("name".to_owned(), json!(name)),
        ("full_name".to_owned(), json!(full_name)),
        ("private".to_owned(), json!(true)),
        ("fork".to_owned(), json!(false)),
        ("description".to_owned(), Value::Null),
        ("url".to_owned(), json!(api)),
        ("html_url".to_owned(), json!(format!("{url}/{full_name}"))),
        ("owner".to_owned(), account(url, owner)),
    ]);
    Value::Object(body)
}

fn account(url: &str, login: &str) -> Value {
    const LINKS: [&str; 10] = [
        "events",
        "followers",
        "following",
        "gists",
        "organizations",
        "received_events",
        "repos",
        "starred",
        "subscriptions",
        "avatar",
    ];
    let api = format!("{url}/users/{login}");
    let mut body = Map::new();
    for link in LINKS {
        body.insert(format!("{link}_url"), json!(format!("{api}/{link}")));
    }
    body.extend([
        ("id".to_owned(), json!(1)),
        ("node_id".to_owned(), json!(format!("account_{login}"))),
        ("login".to_owned(), json!(login)),
        ("gravatar_id".to_owned(), json!("")),
        ("site_admin".to_owned(), json!(false)),
        ("type".to_owned(), json!("Organization")),
        ("url".to_owned(), json!(api)),
        ("html_url".to_owned(), json!(format!("{url}/{login}"))),
    ]);
    Value::Object(body)
}
