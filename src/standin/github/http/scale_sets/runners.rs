//! The runners of sets.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::super::settings_file::RunnerConfig;
use super::super::super::shared_state::secret;
use super::super::Served;
use super::answers::{self, ServiceResult, parse, say};
use super::{Place, call};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    name: String,
    #[serde(default)]
    work_folder: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named {
    agent_name: String,
}

/// Creates a runner of a set: its configuration has the form of every single-use one.
pub(super) async fn job_config(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    body: String,
) -> ServiceResult<Response> {
    let wanted: Wanted = parse(&body)?;
    let (credential, scope) = (secret(), place.scope());
    let made = call(&served, &headers, &scope, |state, now| {
        let stored = credential.clone();
        let runner = state.create_set_runner(&scope, place.set(), &wanted.name, stored, now)?;
        let shown = answers::runner(state.scale_sets().runner_in(&scope, runner.id)?);
        Ok((runner, shown))
    })?;
    let (runner, shown) = made;
    let folder = if wanted.work_folder.is_empty() { "_work".to_owned() } else { wanted.work_folder };
    let config = RunnerConfig {
        url: served.shared.url(),
        scope: runner.scope,
        runner_id: runner.id,
        name: runner.name,
        ephemeral: true,
        work_folder: folder,
        admin_flow: false,
    };
    say(&served, json!({"runner": shown, "encodedJITConfig": config.single_use(&credential)}))
}

pub(super) async fn named(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    let scope = place.scope();
    let found: Vec<Value> = call(&served, &headers, &scope, |state, _| {
        let here = state.scale_sets().runners_in(&scope);
        let here = here.filter(|runner| runner.name.eq_ignore_ascii_case(&named.agent_name));
        Ok(here.map(answers::runner).collect())
    })?;
    say(&served, answers::list(&found))
}

pub(super) async fn one(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    let scope = place.scope();
    let found = call(&served, &headers, &scope, |state, _| {
        Ok(answers::runner(state.scale_sets().runner_in(&scope, place.runner())?))
    })?;
    say(&served, found)
}

pub(super) async fn remove(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<StatusCode> {
    let scope = place.scope();
    call(&served, &headers, &scope, |state, now| state.remove_set_runner(&scope, place.runner(), now))?;
    Ok(StatusCode::NO_CONTENT)
}
