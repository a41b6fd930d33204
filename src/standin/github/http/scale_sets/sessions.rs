//! The session of a set's listener.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::super::shared_state::secret;
use super::super::super::state::State as Everything;
use super::super::Served;
use super::answers::{self, ServiceResult, parse, say};
use super::{Place, address, call};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opening {
    #[serde(default)]
    owner_name: String,
}

pub(super) async fn open(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    body: String,
) -> ServiceResult<Response> {
    let opening: Opening = parse(&body)?;
    let (id, token, scope) = (secret(), secret(), place.scope());
    let base = address(&served, &scope);
    let opened = call(&served, &headers, &scope, |state, now| {
        state.scale_sets().set_in(&scope, place.set())?;
        state.change_scale_sets(now, |service| {
            service.open(place.set(), &opening.owner_name, (&id, &token), now)
        })?;
        Ok(session(state, &base, place.set(), (&id, &token)))
    })?;
    say(&served, opened)
}

pub(super) async fn renew(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    let (token, scope) = (secret(), place.scope());
    let base = address(&served, &scope);
    let renewed = call(&served, &headers, &scope, |state, now| {
        state.scale_sets().set_in(&scope, place.set())?;
        state.change_scale_sets(now, |service| service.renew(place.set(), place.session(), &token, now))?;
        Ok(session(state, &base, place.set(), (place.session(), &token)))
    })?;
    say(&served, renewed)
}

pub(super) async fn close(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<StatusCode> {
    let scope = place.scope();
    call(&served, &headers, &scope, |state, now| {
        state.scale_sets().set_in(&scope, place.set())?;
        state.change_scale_sets(now, |service| service.close(place.set(), place.session(), now))
    })?;
    Ok(StatusCode::NO_CONTENT)
}

fn session(state: &Everything, base: &str, set: u64, (id, token): (&str, &str)) -> Value {
    let queue = match state.behaviour().scale_sets.no_queue_url {
        true => String::new(),
        false => format!("{base}/_queue/{set}/{id}"),
    };
    let service = state.scale_sets();
    let open = service.sets().find(|one| one.id == set);
    let owner = open.and_then(|set| set.session.as_ref()).map(|session| session.owner.clone());
    json!({
        "sessionId": id, "ownerName": owner, "messageQueueUrl": queue, "messageQueueAccessToken": token,
        "runnerScaleSet": open.map(|set| answers::set(set, service.statistics(set.id))),
        "statistics": answers::counts(service.statistics(set)),
    })
}
