//! Runs and jobs as in GitHub's REST API: one run, the runs of a repository, the jobs of an attempt, and re-runs.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::shared_state::StandInFailure;
use super::super::state::{HEAD, Refusal, RunId, State as Everything, Which};
use super::{Served, render};
use crate::github::http::pages::{MAX_PAGE_SIZE, PAGE_SIZE, links};

#[derive(Deserialize)]
pub(super) struct Place {
    owner: String,
    repo: String,
    #[serde(default)]
    run_id: RunId,
    #[serde(default)]
    branch: String,
    #[serde(default)]
    range: String,
    attempt_number: Option<u32>,
}

impl Place {
    fn repository(&self) -> String {
        format!("{}/{}", self.owner, self.repo)
    }
}

#[derive(Deserialize)]
pub(super) struct Pages {
    status: Option<String>,
    per_page: Option<u64>,
    page: Option<u64>,
}

impl Pages {
    /// Returns a page of a list under this name.
    fn of(&self, name: &str, address: &str, all: Vec<Value>) -> Response {
        let size = self.per_page.unwrap_or(PAGE_SIZE).clamp(1, MAX_PAGE_SIZE);
        let (page, total) = (self.page.unwrap_or(1).max(1), all.len() as u64);
        let skip = usize::try_from((page - 1).saturating_mul(size)).unwrap_or(usize::MAX);
        let shown: Vec<Value> = all.into_iter().skip(skip).take(size as usize).collect();
        let filter = self.status.iter().map(|status| ("status", status.clone()));
        let query = filter.chain([("per_page", size.to_string())]);
        let base = Url::parse_with_params(address, query).map_or_else(|_| address.to_owned(), String::from);
        let body = json!({"total_count": total, name: shown});
        (links(&base, page, total.div_ceil(size).max(1)), Json(body)).into_response()
    }
}

pub(super) async fn one(
    State(served): State<Served>,
    Path(place): Path<Place>,
) -> Result<Json<Value>, StandInFailure> {
    let url = served.shared.url();
    let found = served.shared.read(|state| {
        let run = state.run(&place.repository(), place.run_id)?;
        Some(render::run(&url, state, run))
    })?;
    Ok(Json(found.ok_or(Refusal::NotFound)?))
}

pub(super) async fn repository(State(served): State<Served>, Path(place): Path<Place>) -> Json<Value> {
    Json(render::whole_repository(&served.shared.url(), &place.repository()))
}

/// Returns a branch. Each repository has its default branch, and protected ones whose names begin with `release`.
pub(super) async fn branch(Path(place): Path<Place>) -> Result<Json<Value>, StandInFailure> {
    let protected = place.branch.starts_with("release");
    if place.branch != render::DEFAULT_BRANCH && !protected {
        return Err(Refusal::NotFound.into());
    }
    Ok(Json(json!({"name": place.branch, "commit": {"sha": HEAD}, "protected": protected})))
}

/// Compares a branch with a commit. Every branch has one commit.
pub(super) async fn compare(Path(place): Path<Place>) -> Json<Value> {
    let base = place.range.split("...").next().unwrap_or_default();
    let status = if base == HEAD { "identical" } else { "diverged" };
    Json(json!({"status": status, "total_commits": 0, "commits": [], "files": []}))
}

/// Lists the runs of a repository, the newest first; `status` filters by GitHub's status or conclusion of each.
pub(super) async fn list(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(pages): Query<Pages>,
) -> Result<Response, StandInFailure> {
    let (url, repository) = (served.shared.url(), place.repository());
    let runs: Vec<Value> = served.shared.read(|state| {
        let of = state.all_runs().filter(|run| run.repository.eq_ignore_ascii_case(&repository));
        let mut shown: Vec<_> = of.map(|run| (run.created_at, render::run(&url, state, run))).collect();
        shown.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
        shown.into_iter().map(|(_, run)| run).collect()
    })?;
    let is = |run: &Value, status: &str| run["status"] == status || run["conclusion"] == status;
    let wanted = |run: &Value| pages.status.as_deref().is_none_or(|status| is(run, status));
    let address = format!("{url}/repos/{repository}/actions/runs");
    Ok(pages.of("workflow_runs", &address, runs.into_iter().filter(wanted).collect()))
}

pub(super) async fn latest_jobs(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(pages): Query<Pages>,
) -> Result<Response, StandInFailure> {
    shown_jobs(&served, &place, &pages, None)
}

pub(super) async fn jobs(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(pages): Query<Pages>,
) -> Result<Response, StandInFailure> {
    shown_jobs(&served, &place, &pages, place.attempt_number)
}

fn shown_jobs(
    served: &Served,
    place: &Place,
    pages: &Pages,
    attempt: Option<u32>,
) -> Result<Response, StandInFailure> {
    let (url, repository) = (served.shared.url(), place.repository());
    let found = served.shared.read(|state: &Everything| {
        let run = state.run(&repository, place.run_id)?;
        let attempt = attempt.unwrap_or(run.attempt);
        if attempt > run.attempt {
            return None;
        }
        let jobs = state.jobs_of(run.id).filter(|job| job.attempt == attempt && state.lists(job));
        Some(jobs.map(|job| render::job(&url, run, job)).collect::<Vec<_>>())
    })?;
    let address = format!("{url}/repos/{repository}/actions/runs/{}/jobs", place.run_id);
    Ok(pages.of("jobs", &address, found.ok_or(Refusal::NotFound)?))
}

pub(super) async fn rerun(
    State(served): State<Served>,
    Path(place): Path<Place>,
) -> Result<Response, StandInFailure> {
    again(&served, &place, Which::All)
}

pub(super) async fn rerun_failed(
    State(served): State<Served>,
    Path(place): Path<Place>,
) -> Result<Response, StandInFailure> {
    again(&served, &place, Which::Failed)
}

fn again(served: &Served, place: &Place, which: Which) -> Result<Response, StandInFailure> {
    served.shared.change(|state, now| state.rerun(&place.repository(), place.run_id, which, now))?;
    Ok((StatusCode::CREATED, Json(json!({}))).into_response())
}
