//! The stand-in's HTTP interface: GitHub's REST API as published (`rest`), and two interfaces of its own where GitHub's
//! are private or on a web page: `/_runner/…` for its runner package, `/_workflow/…` for simulated workflows. GitHub's
//! service of runner scale sets (`scale_sets`) has no public description; it is served as its public clients call it.

mod apps;
pub(super) mod exchanges;
mod marks;
mod pages;
mod render;
mod rest;
mod runner;
mod runs;
mod scale_sets;
mod workflow;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::call_counter::Call;
use super::shared_state::{SharedState, StandInFailure};
use super::state::Refusal;

pub(super) use exchanges::Exchanges;
pub(super) use runner::wire;

/// The path of the runner package.
pub(super) const PACKAGE_PATH: &str = "/_runner/package.tar.gz";

const DOCUMENTATION: &str = "https://docs.github.com/rest";

/// The shared state of all handlers.
#[derive(Clone)]
pub(super) struct Served {
    shared: Arc<SharedState>,
    stop: CancellationToken,
}

/// Builds all routes. A runner's own calls carry the runner's credential, an App's its assertion; all others the API
/// token, or the token of an App's installation in the account that they are about.
pub(super) fn router(shared: Arc<SharedState>, kept: Option<Exchanges>, stop: CancellationToken) -> Router {
    let served = Served { shared, stop };
    let published = match kept {
        Some(file) => rest::routes().layer(from_fn_with_state(file, exchanges::keep)),
        None => rest::routes(),
    };
    published
        .layer(from_fn(marks::mark))
        .merge(workflow::routes())
        .layer(from_fn_with_state(served.clone(), require_token))
        .merge(runner::routes())
        .merge(apps::routes())
        .merge(scale_sets::routes())
        .route(PACKAGE_PATH, get(package))
        .layer(from_fn_with_state(served.clone(), count))
        .fallback(|| async { StandInFailure::Refused(Refusal::NotFound) })
        .with_state(served)
}

/// Counts a call once its response is known. A call that its caller gave up is not counted.
async fn count(State(served): State<Served>, request: Request, next: Next) -> Response {
    let method = request.method().to_string();
    let route = request.extensions().get::<MatchedPath>().map(|path| exchanges::as_published(path.as_str()));
    let answer = next.run(request).await;
    let status = answer.status().as_u16();
    served.shared.calls().count(Call { method, path: route.unwrap_or_default(), status });
    answer
}

async fn require_token(State(served): State<Served>, request: Request, next: Next) -> Response {
    let given = bearer(request.headers());
    // `/repos/OWNER/…` and `/orgs/OWNER/…`.
    let account = request.uri().path().split('/').nth(2).unwrap_or_default();
    let of_an_app = |token| served.shared.read(|state| state.token_reaches(token, account)).unwrap_or(false);
    if given == Some(served.shared.api_token()) || given.is_some_and(of_an_app) {
        next.run(request).await
    } else {
        StandInFailure::Refused(Refusal::Unauthorized).into_response()
    }
}

async fn package(State(served): State<Served>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/gzip")], served.shared.package().archive.clone())
}

/// Returns the secret of an `Authorization` header, in either of the forms that GitHub accepts.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = value.split_once(' ')?;
    let known = scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token");
    known.then_some(secret.trim())
}

/// Builds GitHub's response body for an error.
fn error(status: StatusCode, message: &str) -> Response {
    let body = json!({"message": message, "documentation_url": DOCUMENTATION, "status": status.as_u16().to_string()});
    (status, Json(body)).into_response()
}

impl IntoResponse for StandInFailure {
    fn into_response(self) -> Response {
        let refusal = match self {
            Self::Storage(problem) => {
                tracing::error!(%problem, "the stand-in GitHub cannot store its state");
                return error(StatusCode::INTERNAL_SERVER_ERROR, "the state cannot be stored");
            }
            Self::Refused(refusal) => refusal,
        };
        let status = match refusal {
            Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
            Refusal::NotFound => StatusCode::NOT_FOUND,
            Refusal::NameTaken(_) | Refusal::SessionConflict => StatusCode::CONFLICT,
            Refusal::NotYours => StatusCode::GONE,
            Refusal::Forbidden(_) | Refusal::Deprecated(_) => StatusCode::FORBIDDEN,
            Refusal::Busy(_) | Refusal::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            // The invented protocol has no token service: this code distinguishes its response from one of the
            // session's.
            Refusal::NoToken => StatusCode::FAILED_DEPENDENCY,
        };
        error(status, &refusal.to_string())
    }
}
