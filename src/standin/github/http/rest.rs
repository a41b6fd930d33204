//! GitHub's REST API, the part Runyard uses, in the shapes of GitHub's published description.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::settings_file::RunnerConfig;
use super::super::shared_state::{StandInFailure, secret};
use super::super::state::{Refusal, Registration, RunnerId, TokenKind};
use super::pages::{MAX_PAGE_SIZE, PAGE_SIZE, links};
use super::{Served, render, runs};

pub(super) fn routes() -> Router<Served> {
    let mut router = Router::new()
        .route("/repos/{owner}/{repo}/actions/runs/{run_id}", get(runs::one))
        .route("/repos/{owner}/{repo}/actions/runs/{run_id}/jobs", get(runs::latest_jobs))
        .route("/repos/{owner}/{repo}", get(runs::repository))
        .route("/repos/{owner}/{repo}/branches/{branch}", get(runs::branch))
        .route("/repos/{owner}/{repo}/compare/{*range}", get(runs::compare))
        .route("/repos/{owner}/{repo}/actions/runs", get(runs::list))
        .route("/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/jobs", get(runs::jobs))
        .route("/repos/{owner}/{repo}/actions/runs/{run_id}/rerun", post(runs::rerun))
        .route("/repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs", post(runs::rerun_failed));
    for base in ["/repos/{owner}/{repo}", "/orgs/{owner}"] {
        let at = |path: &str| format!("{base}/actions/runners{path}");
        router = router
            .route(&at(""), get(list))
            .route(&at("/registration-token"), post(registration_token))
            .route(&at("/remove-token"), post(removal_token))
            .route(&at("/generate-jitconfig"), post(job_config))
            .route(&at("/downloads"), get(downloads))
            .route(&at("/deprecations/{version}"), get(deprecation))
            .route(&at("/{runner_id}"), get(one).delete(remove))
            .route(&at("/{runner_id}/labels"), get(labels).put(set_labels));
    }
    router
}

/// The path of a repository or an organisation, with or without a runner.
#[derive(Deserialize)]
struct Place {
    owner: String,
    repo: Option<String>,
    runner_id: Option<String>,
    version: Option<String>,
}

impl Place {
    fn scope(&self) -> String {
        match &self.repo {
            Some(repo) => format!("{}/{repo}", self.owner),
            None => self.owner.clone(),
        }
    }

    fn runner(&self) -> Result<RunnerId, StandInFailure> {
        Ok(self.runner_id.as_ref().and_then(|id| id.parse().ok()).ok_or(Refusal::NotFound)?)
    }

    fn path(&self) -> String {
        match &self.repo {
            Some(repo) => format!("/repos/{}/{repo}", self.owner),
            None => format!("/orgs/{}", self.owner),
        }
    }
}

async fn registration_token(state: State<Served>, place: Path<Place>) -> Result<Response, StandInFailure> {
    mint(&state, &place, TokenKind::Registration)
}

async fn removal_token(state: State<Served>, place: Path<Place>) -> Result<Response, StandInFailure> {
    mint(&state, &place, TokenKind::Removal)
}

fn mint(served: &Served, place: &Place, kind: TokenKind) -> Result<Response, StandInFailure> {
    let value = secret().to_ascii_uppercase();
    let token = served.shared.change(|state, now| Ok(state.mint_token(kind, &place.scope(), value, now)))?;
    let body = json!({"token": token.value(), "expires_at": render::time(token.expires_at)});
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// `deny_unknown_fields`, which GitHub does not do: a misspelt field of ours must not go unnoticed here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobConfigRequest {
    name: String,
    runner_group_id: u64,
    labels: Vec<String>,
    #[serde(default = "default_work_folder")]
    work_folder: String,
}

fn default_work_folder() -> String {
    "_work".to_owned()
}

async fn job_config(
    State(served): State<Served>,
    Path(place): Path<Place>,
    body: String,
) -> Result<Response, StandInFailure> {
    let request: JobConfigRequest = parse(&body)?;
    if request.labels.is_empty() || request.labels.len() > 100 {
        return Err(Refusal::Invalid("labels must hold 1 to 100 names".to_owned()).into());
    }
    let credential = secret();
    let registration = Registration {
        scope: place.scope(),
        name: request.name,
        labels: request.labels,
        group_id: request.runner_group_id,
        ..Registration::default()
    };
    let stored = credential.clone();
    let runner = served.shared.change(|state, now| state.create_single_use(registration, stored, now))?;
    let config = RunnerConfig {
        url: served.shared.url(),
        scope: runner.scope.clone(),
        runner_id: runner.id,
        name: runner.name.clone(),
        ephemeral: true,
        work_folder: request.work_folder,
        // GitHub does not set it for single-use runners (actions/runner, `ConfigurationManager.cs` alone sets it).
        admin_flow: false,
    };
    let encoded = config.single_use(&credential);
    let shown = served.shared.read(|state| render::runner(state, &runner))?;
    let body = json!({"runner": shown, "encoded_jit_config": encoded});
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

#[derive(Deserialize)]
struct ListQuery {
    name: Option<String>,
    per_page: Option<u64>,
    page: Option<u64>,
}

async fn list(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(query): Query<ListQuery>,
) -> Result<Response, StandInFailure> {
    let size = query.per_page.unwrap_or(PAGE_SIZE).clamp(1, MAX_PAGE_SIZE);
    let page = query.page.unwrap_or(1).max(1);
    let runners: Vec<Value> = served.shared.read(|state| {
        let wanted = |name: &str| query.name.as_deref().is_none_or(|q| q.eq_ignore_ascii_case(name));
        state.in_scope(&place.scope()).filter(|r| wanted(&r.name)).map(|r| render::runner(state, r)).collect()
    })?;
    let total = runners.len() as u64;
    let skip = usize::try_from((page - 1).saturating_mul(size)).unwrap_or(usize::MAX);
    let shown: Vec<Value> = runners.into_iter().skip(skip).take(size as usize).collect();
    let base = format!("{}{}/actions/runners?per_page={size}", served.shared.url(), place.path());
    let body = Json(json!({"total_count": total, "runners": shown}));
    Ok((links(&base, page, total.div_ceil(size).max(1)), body).into_response())
}

async fn one(State(served): State<Served>, Path(place): Path<Place>) -> Result<Json<Value>, StandInFailure> {
    let id = place.runner()?;
    let found = served.shared.read(|state| {
        state.in_scope(&place.scope()).find(|r| r.id == id).map(|r| render::runner(state, r))
    })?;
    Ok(Json(found.ok_or(Refusal::NotFound)?))
}

async fn remove(
    State(served): State<Served>,
    Path(place): Path<Place>,
) -> Result<StatusCode, StandInFailure> {
    let id = place.runner()?;
    served.shared.change(|state, now| state.remove_runner(&place.scope(), id, now))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn labels(
    State(served): State<Served>,
    Path(place): Path<Place>,
) -> Result<Json<Value>, StandInFailure> {
    let id = place.runner()?;
    let found = served.shared.read(|state| {
        state.in_scope(&place.scope()).find(|r| r.id == id).map(|r| render::label_list(&r.labels))
    })?;
    Ok(Json(found.ok_or(Refusal::NotFound)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelsRequest {
    labels: Vec<String>,
}

/// Sets the labels when the response is sent: a caller that gives up waiting for it cannot know whether they were set.
async fn set_labels(
    State(served): State<Served>,
    Path(place): Path<Place>,
    body: String,
) -> Result<Json<Value>, StandInFailure> {
    let (id, request): (_, LabelsRequest) = (place.runner()?, parse(&body)?);
    let takes = served.shared.read(|state| state.behaviour().labels_answer)?;
    tokio::time::sleep(takes).await;
    let runner =
        served.shared.change(|state, now| state.set_labels(&place.scope(), id, &request.labels, now))?;
    Ok(Json(render::label_list(&runner.labels)))
}

/// Lists what runs on the machines of this stand-in: its one package.
async fn downloads(State(served): State<Served>) -> Json<Value> {
    let package = served.shared.package();
    let file = format!("actions-runner-linux-x64-{}.tar.gz", package.version);
    let url = format!("{}{}", served.shared.url(), super::PACKAGE_PATH);
    Json(json!([{
        "os": "linux", "architecture": "x64", "download_url": url, "filename": file,
        "sha256_checksum": package.sha256,
    }]))
}

async fn deprecation(
    State(served): State<Served>,
    Path(place): Path<Place>,
) -> Result<Json<Value>, StandInFailure> {
    let version = place.version.unwrap_or_default();
    let found =
        served.shared.read(|state| state.behaviour().end_of_life(&version).map(render::end_of_life))?;
    Ok(Json(found.ok_or(Refusal::NotFound)?))
}

/// Parses a body; a mistake in it is reported as GitHub does, with a sentence.
pub(super) fn parse<T: serde::de::DeserializeOwned>(body: &str) -> Result<T, StandInFailure> {
    Ok(serde_json::from_str(body).map_err(|e| Refusal::Invalid(format!("Invalid request: {e}")))?)
}
