//! The matrix: every call of the service before every fault of the wire.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use runyard_core::ports::ScaleSets as _;
use runyard_core::ports::scale_sets::Session;
use runyard_operator::github::{ApiUrl, Credential, RestGitHub, RestScaleSets};
use serde_json::json;

use super::letter;
use super::suite::{scope, spec};
use crate::wire::judge::{Came, Cell, judge};
use crate::wire::matrix::SCALE_SETS;
use crate::wire::proxy::{Words, before};

const JSON: &str = "application/json; charset=utf-8; api-version=6.0-preview";
/// The service's own words.
pub(super) const WORDS: Words = Words {
    internal: (500, JSON, r#"{"typeName":"VssServiceException","message":"Server Error"}"#),
    throttled: (429, JSON, r#"{"typeName":"VssServiceException","message":"Too many requests"}"#),
    foreign: (200, "text/xml", "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"),
};

#[derive(Clone, Default)]
struct Service {
    /// Where callers find it, with the fault before it.
    wire: Arc<OnceLock<String>>,
    changes: Arc<AtomicUsize>,
}

async fn answer(State(service): State<Service>, method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let wire = service.wire.get().cloned().unwrap_or_default();
    if path.contains("/_service/") && method != Method::GET {
        service.changes.fetch_add(1, Ordering::SeqCst);
    }
    let set = json!({"id": 7, "name": "small", "runnerGroupId": 1, "labels": []});
    let session = json!({
        "sessionId": "s", "messageQueueUrl": format!("{wire}/_service/queue"), "messageQueueAccessToken": "t",
    });
    let message = json!({"messageId": 3, "messageType": "RunnerScaleSetJobMessages", "body": "[]"});
    let runner = json!({"id": 9, "name": "n"});
    let list = |one: serde_json::Value| json!({"count": 1, "value": [one]});
    let (status, body) = match path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default() {
        _ if method == Method::DELETE => return StatusCode::NO_CONTENT.into_response(),
        "registration-token" => (201, json!({"token": "T", "expires_at": "2030-01-01T00:00:00Z"})),
        "runner-registration" => (200, json!({"url": format!("{wire}/_service/"), "token": "t"})),
        "runnerscalesets" if method == Method::GET => (200, list(set)),
        "runnerscalesets" | "7" => (200, set),
        "runnergroups" => (200, list(json!({"id": 1, "name": "default"}))),
        "sessions" | "s" => (200, session),
        "queue" => (200, message),
        "acquirejobs" => (200, list(json!(5))),
        "generatejitconfig" => (200, json!({"runner": runner, "encodedJITConfig": "e"})),
        "agents" => (200, list(runner)),
        "9" => (200, runner),
        other => panic!("no answer for {other}"),
    };
    (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

async fn play(cell: Cell) -> Came {
    let service = Service::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(service.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let wire = before(&url, "/_service/", cell.fault, cell.lasting.times(), &WORDS).await;
    service.wire.set(wire.clone()).unwrap();
    let now = || "2026-03-01T12:00:00Z".parse().unwrap();
    let origin = ApiUrl::parse(&url).unwrap();
    let deadline = Duration::from_secs(8);
    let github = RestGitHub::new(origin, Credential::None, deadline, Arc::new(now)).unwrap();
    let github = RestScaleSets::new(Arc::new(github)).polling_for(deadline);
    let (here, spec) = (scope(), spec("small"));
    let session = Session {
        scope: scope(),
        set: 7,
        id: "s".into(),
        queue_url: format!("{wire}/_service/queue"),
        token: "t".into(),
        statistics: Default::default(),
    };
    let letter = match cell.call {
        "find" => letter(&github.find(&here, 1, "small").await),
        "create" => letter(&github.create(&here, &spec).await),
        "update" => letter(&github.update(&here, 7, &spec).await),
        "delete" => letter(&github.delete(&here, 7).await),
        "group" => letter(&github.group(&here, "default").await),
        "open" => letter(&github.open(&here, 7, "yard").await),
        "renew" => letter(&github.renew(&session).await),
        "close" => letter(&github.close(&session).await),
        "message" => letter(&github.message(&session, None, 1).await),
        "delete_message" => letter(&github.delete_message(&session, 3).await),
        "acquire" => letter(&github.acquire(&session, &[5]).await),
        "job_config" => letter(&github.job_config(&here, 7, "n", "_work").await),
        "runner" => letter(&github.runner(&here, "n").await),
        "runner_by_id" => letter(&github.runner_by_id(&here, 9).await),
        "remove_runner" => letter(&github.remove_runner(&here, 9).await),
        other => panic!("no call {other}"),
    };
    let changes = service.changes.load(Ordering::SeqCst);
    let wrong = changes > 1;
    Came { letter, wrong: wrong.then(|| format!("{cell:?}: {letter}, {changes} changes")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_scale_sets_makes_of_every_fault_what_its_row_says() {
    judge(&SCALE_SETS, async |cell| play(cell).await).await;
}
