//! The interface for simulated workflows, in place of a push to a repository: start a run with jobs, add jobs, end the
//! run, read its results.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::shared_state::StandInFailure;
use super::super::state::{Job, JobSpec, JobStatus, Refusal, Run, RunId, Source, State as Everything};
use super::Served;
use super::rest::parse;

pub(super) fn routes() -> Router<Served> {
    Router::new()
        .route("/_workflow/runs", post(start))
        .route("/_workflow/runs/{run_id}", get(look))
        .route("/_workflow/runs/{run_id}/jobs", post(add))
        .route("/_workflow/runs/{run_id}/cancel", post(cancel))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    repository: String,
    run_id: Option<RunId>,
    #[serde(default = "default_name")]
    name: String,
    #[serde(default)]
    jobs: Vec<JobSpec>,
    #[serde(default)]
    open: bool,
    /// Whether it waits for an approval: it is open, and `waiting` while it has no unfinished job.
    #[serde(default)]
    waits: bool,
    source: Option<Source>,
}

fn default_name() -> String {
    "workflow".to_owned()
}

async fn start(
    State(served): State<Served>,
    body: String,
) -> Result<(StatusCode, Json<Value>), StandInFailure> {
    let body: Start = parse(&body)?;
    let answer = served.shared.change(|state, now| {
        let open = body.open || body.waits;
        let mut run = state.start_run(&body.repository, body.run_id, &body.name, body.jobs, open, now)?;
        if let Some(source) = body.source {
            run = state.set_source(run.id, source)?;
        }
        if body.waits {
            run = state.wait_for_approval(run.id, now)?;
        }
        Ok(shown(state, &run))
    })?;
    Ok((StatusCode::CREATED, Json(answer)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    #[serde(default)]
    jobs: Vec<JobSpec>,
    #[serde(default)]
    open: bool,
    /// Whether the run waits for an approval again once these jobs are over. Without it, a run that waited does not.
    #[serde(default)]
    waits: bool,
}

async fn add(
    State(served): State<Served>,
    Path(run_id): Path<RunId>,
    body: String,
) -> Result<(StatusCode, Json<Value>), StandInFailure> {
    let body: Add = parse(&body)?;
    let answer = served.shared.change(|state, now| {
        let mut run = state.add_jobs(run_id, body.jobs, body.open || body.waits, now)?;
        if body.waits {
            run = state.wait_for_approval(run_id, now)?;
        }
        Ok(shown(state, &run))
    })?;
    Ok((StatusCode::CREATED, Json(answer)))
}

async fn cancel(
    State(served): State<Served>,
    Path(run_id): Path<RunId>,
) -> Result<StatusCode, StandInFailure> {
    served.shared.change(|state, now| state.cancel_run(run_id, now))?;
    Ok(StatusCode::ACCEPTED)
}

async fn look(
    State(served): State<Served>,
    Path(run_id): Path<RunId>,
) -> Result<Json<Value>, StandInFailure> {
    let found =
        served.shared.read(|state| state.all_runs().find(|r| r.id == run_id).map(|run| shown(state, run)))?;
    Ok(Json(found.ok_or(Refusal::NotFound)?))
}

/// Renders a run with its jobs: with exit codes, logs and other facts that GitHub's own responses do not contain.
fn shown(state: &Everything, run: &Run) -> Value {
    let jobs: Vec<_> = state.jobs_of(run.id).map(shown_job).collect();
    json!({"run": run, "over": state.run_over(run), "jobs": jobs})
}

fn shown_job(job: &Job) -> Value {
    let (status, conclusion) = match job.status {
        JobStatus::Queued => ("queued", None),
        JobStatus::Assigned => ("assigned", None),
        JobStatus::InProgress => ("in_progress", None),
        JobStatus::Completed(conclusion) => ("completed", Some(conclusion)),
    };
    json!({
        "id": job.id, "run_id": job.run_id, "attempt": job.attempt, "repository": job.repository,
        "name": job.spec.name, "runs_on": job.spec.runs_on, "status": status, "conclusion": conclusion,
        "runner_id": job.runner_id, "runner_name": job.runner_name, "exit_code": job.exit_code, "log": job.log,
        "created_at": job.created_at, "started_at": job.started_at, "completed_at": job.completed_at,
    })
}
