//! GitHub's service of runner scale sets over HTTP: the exchange of a registration token for the service's address and
//! token, and the calls below that address (`/_services/…`). Errors are `{typeName, message}`, and any answer may begin
//! with a byte order mark (\[s\] actions/scaleset).

mod answers;
mod queue;
mod runners;
mod sessions;
mod sets;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;

use super::super::settings_file::split;
use super::super::shared_state::{StandInFailure, secret};
use super::super::state::scale_sets::SetRefusal;
use super::super::state::{State as Everything, TokenKind};
use super::{Served, bearer};
use answers::{ServiceFailure, ServiceResult, say};

pub(super) fn routes() -> Router<Served> {
    let mut router = Router::new().route("/actions/runner-registration", post(tenant));
    for base in ["/_services/repos/{owner}/{repo}", "/_services/orgs/{owner}"] {
        let at = |path: &str| format!("{base}{path}");
        let set = |path: &str| format!("{base}/_apis/runtime/runnerscalesets/{{set}}{path}");
        router = router
            .route(&at("/_apis/runtime/runnergroups/"), get(sets::groups))
            .route(&at("/_apis/runtime/runnerscalesets"), get(sets::list).post(sets::create))
            .route(&set(""), get(sets::one).patch(sets::update).delete(sets::delete))
            .route(&set("/generatejitconfig"), post(runners::job_config))
            .route(&set("/acquirejobs"), post(queue::acquire))
            .route(&set("/sessions"), post(sessions::open))
            .route(&set("/sessions/{session}"), axum::routing::patch(sessions::renew).delete(sessions::close))
            .route(&at("/_queue/{set}/{session}"), get(queue::poll))
            .route(&at("/_queue/{set}/{session}/{message}"), axum::routing::delete(queue::delete))
            .route(&at("/_apis/distributedtask/pools/0/agents"), get(runners::named))
            .route(
                &at("/_apis/distributedtask/pools/0/agents/{runner}"),
                get(runners::one).delete(runners::remove),
            );
    }
    router
}

/// The path of a call below the service's address.
#[derive(Deserialize)]
struct Place {
    owner: String,
    repo: Option<String>,
    set: Option<u64>,
    session: Option<String>,
    message: Option<u64>,
    runner: Option<u64>,
}

impl Place {
    fn scope(&self) -> String {
        match &self.repo {
            Some(repo) => format!("{}/{repo}", self.owner),
            None => self.owner.clone(),
        }
    }

    fn set(&self) -> u64 {
        self.set.unwrap_or_default()
    }

    fn session(&self) -> &str {
        self.session.as_deref().unwrap_or_default()
    }

    fn runner(&self) -> u64 {
        self.runner.unwrap_or_default()
    }
}

/// Returns the address of the service for a scope.
fn address(served: &Served, scope: &str) -> String {
    let kind = if scope.contains('/') { "repos" } else { "orgs" };
    format!("{}/_services/{kind}/{scope}", served.shared.url())
}

#[derive(Deserialize)]
struct Registration {
    url: String,
    runner_event: String,
}

/// Exchanges a registration token for the service's address and a token of it, a JWT that names its end.
async fn tenant(
    State(served): State<Served>,
    headers: HeaderMap,
    Json(body): Json<Registration>,
) -> ServiceResult<Response> {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|value| value.strip_prefix("RemoteAuth ")).unwrap_or_default();
    let refused = || ServiceFailure::from(SetRefusal::Unauthorized);
    let (_, scope) = split(&body.url).map_err(|problem| SetRefusal::Invalid(problem.clone()))?;
    if body.runner_event != "register" {
        return Err(SetRefusal::Invalid("runner_event must be register".to_owned()).into());
    }
    let value = served.shared.change(|state, now| {
        state.tick(now);
        state.check_token(TokenKind::Registration, &scope, token)?;
        let end = (now + super::super::state::TOKEN_LIFETIME).as_second();
        let part = |json: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
        let jwt = format!("{}.{}.{}", part(json!({"alg": "none"})), part(json!({"exp": end})), secret());
        Ok(state.mint_token(TokenKind::Service, &scope, jwt, now).value().to_owned())
    });
    let value = value.map_err(|failure| match failure {
        StandInFailure::Refused(_) => refused(),
        StandInFailure::Storage(_) => ServiceFailure::from(failure),
    })?;
    say(&served, json!({"url": address(&served, &scope), "token": value}))
}

/// Calls the service with the token of its scope.
fn call<T>(
    served: &Served,
    headers: &HeaderMap,
    scope: &str,
    act: impl FnOnce(&mut Everything, jiff::Timestamp) -> Result<T, SetRefusal>,
) -> ServiceResult<T> {
    let token = bearer(headers).unwrap_or_default();
    let outcome = served.shared.change(|state, now| {
        state.tick(now);
        let known = state.check_token(TokenKind::Service, scope, token);
        Ok(known.map_err(|_| SetRefusal::Unauthorized).and_then(|()| act(state, now)))
    })?;
    Ok(outcome?)
}
