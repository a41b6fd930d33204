//! Sets and runner groups.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use runyard_core::ports::scale_sets::SetSpec;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Served;
use super::answers::{self, ServiceResult, parse, say};
use super::{Place, call};

/// The number of the default group.
const DEFAULT_GROUP: u64 = 1;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Filter {
    runner_group_id: Option<u64>,
    name: Option<String>,
    group_name: Option<String>,
}

/// A set as a caller sends it. A field that is left out of a change stays as it was.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    #[serde(default)]
    name: String,
    runner_group_id: Option<u64>,
    #[serde(default)]
    labels: Vec<Label>,
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

impl Wanted {
    fn spec(self) -> SetSpec {
        SetSpec {
            name: self.name,
            labels: self.labels.into_iter().map(|label| label.name).collect(),
            group_id: self.runner_group_id.filter(|id| *id > 0).unwrap_or(DEFAULT_GROUP),
        }
    }
}

/// Lists the only group, if it is meant.
pub(super) async fn groups(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    call(&served, &headers, &place.scope(), |_, _| Ok(()))?;
    let meant = filter.group_name.is_none_or(|name| name.eq_ignore_ascii_case("Default"));
    let group = json!({"id": DEFAULT_GROUP, "name": "Default", "size": 0, "isDefaultGroup": true});
    let all: Vec<Value> = meant.then_some(group).into_iter().collect();
    say(&served, answers::list(&all))
}

pub(super) async fn list(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    let scope = place.scope();
    let found: Vec<Value> = call(&served, &headers, &scope, |state, _| {
        let service = state.scale_sets();
        let here = service.sets().filter(|set| set.scope.eq_ignore_ascii_case(&scope));
        let here = here.filter(|set| filter.runner_group_id.is_none_or(|id| set.group_id == id));
        let here =
            here.filter(|set| filter.name.as_ref().is_none_or(|name| set.name.eq_ignore_ascii_case(name)));
        Ok(here.map(|set| answers::set(set, service.statistics(set.id))).collect())
    })?;
    say(&served, answers::list(&found))
}

pub(super) async fn create(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    body: String,
) -> ServiceResult<Response> {
    let wanted: Wanted = parse(&body)?;
    let scope = place.scope();
    let made = call(&served, &headers, &scope, |state, now| {
        let set = state.change_scale_sets(now, |service| service.create_set(&scope, &wanted.spec(), now))?;
        Ok(answers::set(&set, state.scale_sets().statistics(set.id)))
    })?;
    say(&served, made)
}

pub(super) async fn one(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    let scope = place.scope();
    let found = call(&served, &headers, &scope, |state, _| {
        let set = state.scale_sets().set_in(&scope, place.set())?;
        Ok(answers::set(set, state.scale_sets().statistics(set.id)))
    })?;
    say(&served, found)
}

pub(super) async fn update(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    body: String,
) -> ServiceResult<Response> {
    let wanted: Wanted = parse(&body)?;
    let scope = place.scope();
    let changed = call(&served, &headers, &scope, |state, now| {
        let set = state.scale_sets().set_in(&scope, place.set())?;
        let (name, labels, group) = (set.name.clone(), set.labels.clone(), set.group_id);
        let mut spec = Wanted { runner_group_id: wanted.runner_group_id.or(Some(group)), ..wanted }.spec();
        if spec.name.is_empty() {
            spec.name = name;
        }
        if spec.labels.is_empty() {
            spec.labels = labels;
        }
        let set = state.change_scale_sets(now, |service| service.update_set(&scope, place.set(), &spec))?;
        Ok(answers::set(&set, state.scale_sets().statistics(set.id)))
    })?;
    say(&served, changed)
}

pub(super) async fn delete(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<StatusCode> {
    let scope = place.scope();
    call(&served, &headers, &scope, |state, now| {
        state.change_scale_sets(now, |service| service.delete_set(&scope, place.set(), now))
    })?;
    Ok(StatusCode::NO_CONTENT)
}
