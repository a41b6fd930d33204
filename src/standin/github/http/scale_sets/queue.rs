//! The queue of a session: a poll that is held open, deletion, and acquiring. The session's own credential is theirs.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::super::super::state::scale_sets::SetRefusal;
use super::super::{Served, bearer};
use super::Place;
use super::answers::{self, ServiceResult, parse, say};

/// The header with the number of jobs that a set may hold.
const CAPACITY: &str = "x-scalesetmaxcapacity";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cursor {
    last_message_id: Option<u64>,
}

pub(super) async fn poll(
    State(served): State<Served>,
    Path(place): Path<Place>,
    Query(cursor): Query<Cursor>,
    headers: HeaderMap,
) -> ServiceResult<Response> {
    let token = bearer(&headers).unwrap_or_default();
    let capacity = headers.get(CAPACITY).and_then(|value| value.to_str().ok()?.parse().ok());
    let capacity = capacity.ok_or_else(|| SetRefusal::Invalid(format!("{CAPACITY} must be a number")))?;
    let held = served.shared.read(|state| state.behaviour().scale_sets.poll)?;
    let until = Instant::now() + held;
    loop {
        let changed = served.shared.next_change();
        let found = served.shared.change(|state, now| {
            Ok(state.change_scale_sets(now, |service| {
                let session = (place.session(), token);
                service.message(place.set(), session, cursor.last_message_id, capacity, now)
            }))
        })??;
        if let Some(batch) = found {
            return say(&served, answers::message(&batch));
        }
        if Instant::now() >= until || served.stop.is_cancelled() {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        tokio::select! {
            () = changed => {}
            () = served.stop.cancelled() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

pub(super) async fn delete(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
) -> ServiceResult<StatusCode> {
    let token = bearer(&headers).unwrap_or_default();
    served.shared.change(|state, now| {
        Ok(state.change_scale_sets(now, |service| {
            let session = (place.session(), token);
            service.delete_message(place.set(), session, place.message.unwrap_or_default(), now)
        }))
    })??;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn acquire(
    State(served): State<Served>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    body: String,
) -> ServiceResult<Response> {
    let numbers: Vec<u64> = parse(&body)?;
    let token = bearer(&headers).unwrap_or_default();
    let acquired = served.shared.change(|state, now| {
        Ok(state.change_scale_sets(now, |service| {
            service.set_in(&place.scope(), place.set())?;
            service.session_of(place.set(), token, now)?;
            Ok::<_, SetRefusal>(service.acquire(place.set(), &numbers, now))
        }))
    })??;
    let acquired: Vec<_> = acquired.into_iter().map(|number| json!(number)).collect();
    say(&served, answers::list(&acquired))
}
