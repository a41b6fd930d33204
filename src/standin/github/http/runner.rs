//! The interface between a runner and the stand-in. GitHub's own is private, so this one is invented: register,
//! connect, wait for a job, begin it, report its end, disconnect, deregister.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use tokio::time::Instant;

use super::super::shared_state::{StandInFailure, secret};
use super::super::state::{Refusal, Registration};
use super::rest::parse;
use super::{Served, bearer};

/// How long a request for a job is held open.
const LONG_POLL: Duration = Duration::from_secs(5);

/// The bodies, shared with the listener.
pub(in super::super) mod wire {
    use serde::{Deserialize, Serialize};

    use super::super::super::state::{Conclusion, JobId, JobSpec, RunId, RunnerId};

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct Register {
        pub(in super::super::super) token: String,
        pub(in super::super::super) scope: String,
        pub(in super::super::super) name: String,
        pub(in super::super::super) labels: Vec<String>,
        pub(in super::super::super) no_default_labels: bool,
        pub(in super::super::super) replace: bool,
        pub(in super::super::super) ephemeral: bool,
        #[serde(default)]
        pub(in super::super::super) version: String,
    }

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct Registered {
        pub(in super::super::super) runner_id: RunnerId,
        pub(in super::super::super) credential: String,
        #[serde(default)]
        pub(in super::super::super) admin_flow: bool,
    }

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct Deregister {
        pub(in super::super::super) token: String,
        pub(in super::super::super) scope: String,
        pub(in super::super::super) runner_id: RunnerId,
    }

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct OpenSession {
        pub(in super::super::super) version: String,
    }

    #[derive(Clone, Copy, Serialize, Deserialize)]
    pub(in super::super::super) struct SessionRef {
        pub(in super::super::super) session: u64,
    }

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct Heartbeat {
        pub(in super::super::super) cancel: bool,
    }

    #[derive(Clone, Debug, Serialize, Deserialize)]
    pub(in super::super::super) struct Assignment {
        pub(in super::super::super) job_id: JobId,
        pub(in super::super::super) run_id: RunId,
        pub(in super::super::super) attempt: u32,
        pub(in super::super::super) repository: String,
        pub(in super::super::super) workflow: String,
        pub(in super::super::super) spec: JobSpec,
    }

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct Begin {
        pub(in super::super::super) session: u64,
        pub(in super::super::super) job_id: JobId,
    }

    #[derive(Serialize, Deserialize)]
    pub(in super::super::super) struct Finish {
        pub(in super::super::super) session: u64,
        pub(in super::super::super) job_id: JobId,
        pub(in super::super::super) conclusion: Conclusion,
        pub(in super::super::super) exit_code: Option<i32>,
        pub(in super::super::super) log: String,
    }
}

pub(super) fn routes() -> Router<Served> {
    Router::new()
        .route("/_runner/register", post(register))
        .route("/_runner/deregister", post(deregister))
        .route("/_runner/session", post(open))
        .route("/_runner/session/close", post(close))
        .route("/_runner/heartbeat", post(heartbeat))
        .route("/_runner/job", post(job))
        .route("/_runner/job/begin", post(begin))
        .route("/_runner/job/finish", post(finish))
}

fn credential(headers: &HeaderMap) -> Result<&str, StandInFailure> {
    Ok(bearer(headers).ok_or(Refusal::Unauthorized)?)
}

async fn register(
    State(served): State<Served>,
    body: String,
) -> Result<Json<wire::Registered>, StandInFailure> {
    let body: wire::Register = parse(&body)?;
    let credential = secret();
    let registration = Registration {
        scope: body.scope,
        name: body.name,
        labels: body.labels,
        no_default_labels: body.no_default_labels,
        replace: body.replace,
        ephemeral: body.ephemeral,
        group_id: 1,
        version: body.version,
    };
    let stored = credential.clone();
    let (runner_id, admin_flow) = served.shared.change(|state, now| {
        let runner = state.register(&body.token, registration, stored, now)?;
        Ok((runner.id, state.behaviour().admin_flow))
    })?;
    Ok(Json(wire::Registered { runner_id, credential, admin_flow }))
}

async fn deregister(State(served): State<Served>, body: String) -> Result<StatusCode, StandInFailure> {
    let body: wire::Deregister = parse(&body)?;
    served.shared.change(|state, now| state.deregister(&body.token, &body.scope, body.runner_id, now))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn open(
    State(served): State<Served>,
    headers: HeaderMap,
    body: String,
) -> Result<Json<wire::SessionRef>, StandInFailure> {
    let body: wire::OpenSession = parse(&body)?;
    let credential = credential(&headers)?;
    let session = served.shared.change(|state, now| state.open_session(credential, &body.version, now))?;
    Ok(Json(wire::SessionRef { session }))
}

async fn close(
    State(served): State<Served>,
    headers: HeaderMap,
    body: String,
) -> Result<StatusCode, StandInFailure> {
    let body: wire::SessionRef = parse(&body)?;
    let credential = credential(&headers)?;
    served.shared.change(|state, now| state.close_session(credential, body.session, now))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn heartbeat(
    State(served): State<Served>,
    headers: HeaderMap,
    body: String,
) -> Result<Json<wire::Heartbeat>, StandInFailure> {
    let body: wire::SessionRef = parse(&body)?;
    let credential = credential(&headers)?;
    let cancel = served.shared.change(|state, now| state.heartbeat(credential, body.session, now))?;
    Ok(Json(wire::Heartbeat { cancel }))
}

/// Waits for a job; returns `null` when there was none for a while, so that the runner asks again.
async fn job(
    State(served): State<Served>,
    headers: HeaderMap,
    body: String,
) -> Result<Json<Option<wire::Assignment>>, StandInFailure> {
    let body: wire::SessionRef = parse(&body)?;
    let credential = credential(&headers)?;
    let until = Instant::now() + LONG_POLL;
    loop {
        let changed = served.shared.next_change();
        let found = served.shared.change(|state, now| {
            let job = state.acquire(credential, body.session, now)?;
            Ok(job.map(|job| {
                let workflow = state.run(&job.repository, job.run_id).map(|run| run.name.clone());
                wire::Assignment {
                    job_id: job.id,
                    run_id: job.run_id,
                    attempt: job.attempt,
                    repository: job.repository,
                    workflow: workflow.unwrap_or_default(),
                    spec: job.spec,
                }
            }))
        })?;
        if found.is_some() || Instant::now() >= until || served.stop.is_cancelled() {
            return Ok(Json(found));
        }
        tokio::select! {
            () = changed => {}
            () = served.stop.cancelled() => {}
        }
    }
}

async fn begin(
    State(served): State<Served>,
    headers: HeaderMap,
    body: String,
) -> Result<StatusCode, StandInFailure> {
    let body: wire::Begin = parse(&body)?;
    let credential = credential(&headers)?;
    served.shared.change(|state, now| state.begin(credential, body.session, body.job_id, now))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn finish(
    State(served): State<Served>,
    headers: HeaderMap,
    body: String,
) -> Result<StatusCode, StandInFailure> {
    let body: wire::Finish = parse(&body)?;
    let credential = credential(&headers)?;
    let end = (body.job_id, body.conclusion, body.exit_code);
    served.shared.change(|state, now| state.finish(credential, body.session, end, &body.log, now))?;
    Ok(StatusCode::NO_CONTENT)
}
