//! Answers of the service, as its clients know them.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use runyard_core::ports::scale_sets::Statistics;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::super::shared_state::StandInFailure;
use super::super::super::state::scale_sets::{Batch, JobNews, NewsKind, Set, SetRefusal, SetRunner};
use super::super::{Served, render};

/// .NET's byte order mark before UTF-8.
const MARK: &str = "\u{feff}";

/// Why a call of the service fails.
pub(super) enum ServiceFailure {
    /// The service refuses it.
    Refused(SetRefusal),
    /// The stand-in cannot serve it.
    StandIn(StandInFailure),
}

pub(super) type ServiceResult<T> = Result<T, ServiceFailure>;

impl From<SetRefusal> for ServiceFailure {
    fn from(refusal: SetRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StandInFailure> for ServiceFailure {
    fn from(failure: StandInFailure) -> Self {
        Self::StandIn(failure)
    }
}

impl IntoResponse for ServiceFailure {
    fn into_response(self) -> Response {
        match self {
            Self::StandIn(failure) => failure.into_response(),
            Self::Refused(refusal) => {
                let (status, name) = refusal.wire();
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
                let body = json!({"typeName": name, "message": refusal.to_string(), "errorCode": 0});
                json_of(status, body.to_string())
            }
        }
    }
}

/// Answers with a body, with the mark before it or without a body where the behaviour has it so.
pub(super) fn say(served: &Served, body: Value) -> ServiceResult<Response> {
    let (mark, none) = served.shared.read(|state| {
        let behaviour = &state.behaviour().scale_sets;
        (behaviour.byte_order_mark, behaviour.no_body)
    })?;
    let mark = if mark { MARK } else { "" };
    Ok(json_of(StatusCode::OK, if none { String::new() } else { format!("{mark}{body}") }))
}

fn json_of(status: StatusCode, body: String) -> Response {
    let kind = "application/json; charset=utf-8; api-version=6.0-preview";
    (status, [(CONTENT_TYPE, kind)], Body::from(body)).into_response()
}

/// Parses the body of a call.
pub(super) fn parse<T: DeserializeOwned>(body: &str) -> ServiceResult<T> {
    Ok(serde_json::from_str(body)
        .map_err(|error| SetRefusal::Invalid(format!("Invalid request: {error}")))?)
}

/// Renders a list.
pub(super) fn list(all: &[Value]) -> Value {
    json!({"count": all.len(), "value": all})
}

/// Renders a set.
pub(super) fn set(set: &Set, statistics: Statistics) -> Value {
    let labels: Vec<_> = set.labels.iter().map(|name| json!({"name": name, "type": "System"})).collect();
    json!({
        "id": set.id, "name": set.name, "runnerGroupId": set.group_id, "runnerGroupName": "Default",
        "labels": labels, "RunnerSetting": {"ephemeral": true, "disableUpdate": true},
        "createdOn": "2026-01-01T00:00:00Z", "statistics": counts(statistics),
    })
}

/// Renders the counts of a set.
pub(super) fn counts(statistics: Statistics) -> Value {
    json!({
        "totalAvailableJobs": statistics.available, "totalAcquiredJobs": statistics.acquired,
        "totalAssignedJobs": statistics.assigned, "totalRunningJobs": statistics.running,
        "totalRegisteredRunners": statistics.registered, "totalBusyRunners": statistics.busy,
        "totalIdleRunners": statistics.idle,
    })
}

/// Renders a runner, with the fields that clients read (\[s\]).
pub(super) fn runner(runner: &SetRunner) -> Value {
    json!({"id": runner.id, "name": runner.name, "runnerScaleSetId": runner.set})
}

/// Renders a message: its body is JSON as text.
pub(super) fn message(batch: &Batch) -> Value {
    let body: Vec<Value> = batch.news.iter().map(news).collect();
    json!({
        "messageId": batch.id, "messageType": "RunnerScaleSetJobMessages", "body": json!(body).to_string(),
        "statistics": counts(batch.statistics),
    })
}

fn news(news: &JobNews) -> Value {
    // A time that has not come is .NET's first.
    let time = |at: Option<jiff::Timestamp>| at.map_or("0001-01-01T00:00:00Z".to_owned(), render::time);
    let job = &news.job;
    let mut shown = json!({
        "messageType": news.kind.as_str(), "runnerRequestId": job.number, "repositoryName": job.repository,
        "ownerName": job.owner, "jobId": job.job_id,
        "jobWorkflowRef": format!("{}/{}/.github/workflows/workflow.yml@refs/heads/main", job.owner, job.repository),
        "jobDisplayName": job.name, "workflowRunId": job.run_id, "eventName": "workflow_dispatch",
        "requestLabels": job.labels, "queueTime": time(Some(job.queued_at)),
        "scaleSetAssignTime": time(job.assigned_at), "runnerAssignTime": time(job.taken_at),
        "finishTime": time(job.finished_at),
    });
    match news.kind {
        NewsKind::Available => shown["acquireJobUrl"] = "".into(),
        NewsKind::Assigned | NewsKind::Unknown => {}
        NewsKind::Started | NewsKind::Completed => {
            let (id, name) = news.runner.clone().unwrap_or_default();
            (shown["runnerId"], shown["runnerName"]) = (id.into(), name.into());
            if news.kind == NewsKind::Completed {
                shown["result"] = news.result.clone().into();
            }
        }
    }
    shown
}
