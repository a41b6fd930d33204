//! What no engine does to us: answers lost after the write was done, throttling, pages of HTML, silence, batches left
//! undone. A peer stands before the engine and does it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runyard_core::model::{AttributeValue, Guard, Item, RecordId, TableName, Write};
use runyard_core::ports::{Store, StoreError};
use runyard_store::DynamoStore;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ports::store::sdk_config;
use runyard_support::engine::Engine;

/// What the peer does with a call.
#[derive(Clone)]
pub(crate) enum Plan {
    /// The engine answers.
    Pass,
    /// The engine answers, and this is said instead.
    After(u16, String),
    /// Only this is said.
    Instead(u16, String),
    /// What becomes of the call once this is true.
    When(watch::Receiver<bool>, Box<Plan>),
    /// Nothing is said for a long time.
    Silence,
}

/// The name of a call, how many calls there were before, and its body.
pub(crate) type Judge = Arc<dyn Fn(&str, usize, &serde_json::Value) -> Plan + Send + Sync>;

#[derive(Clone)]
struct Peer {
    engine: String,
    judge: Judge,
    calls: Arc<AtomicUsize>,
    http: reqwest::Client,
}

/// Starts a peer before an engine; answers where it listens and how many calls it saw.
pub(crate) async fn peer(
    engine: &str,
    judge: impl Fn(&str, usize, &serde_json::Value) -> Plan + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let peer = Peer { engine: engine.to_owned(), judge: Arc::new(judge), calls: calls.clone(), http };
    let app = Router::new().fallback(answer).with_state(peer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (endpoint, calls)
}

async fn answer(State(peer): State<Peer>, headers: HeaderMap, body: Bytes) -> Response {
    let nth = peer.calls.fetch_add(1, Ordering::SeqCst);
    let target = headers.get("x-amz-target").map(|target| target.to_str().unwrap().to_owned());
    let target = target.unwrap_or_default();
    let call = target.rsplit('.').next().unwrap_or_default();
    let said = serde_json::from_slice(&body).unwrap_or_default();
    let mut plan = (peer.judge)(call, nth, &said);
    while let Plan::When(mut so, then) = plan {
        // Nobody is left to say so when the test is over.
        plan = if so.wait_for(|so| *so).await.is_ok() { *then } else { Plan::Silence };
    }
    let (status, text) = match plan {
        Plan::Pass => peer.forward(&headers, body).await,
        Plan::After(status, text) => {
            peer.forward(&headers, body).await;
            (status, text)
        }
        Plan::Instead(status, text) => (status, text),
        Plan::When(..) | Plan::Silence => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            (503, String::new())
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/x-amz-json-1.0")];
    (StatusCode::from_u16(status).unwrap(), kind, text).into_response()
}

impl Peer {
    async fn forward(&self, headers: &HeaderMap, body: Bytes) -> (u16, String) {
        let mut headers = headers.clone();
        headers.remove(header::HOST);
        let sent = self.http.post(&self.engine).headers(headers).body(body).send().await.unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    }
}

pub(crate) fn error(code: &str) -> String {
    format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"said by the peer"}}"#)
}

/// A store behind a peer, on a table that is there.
async fn behind(
    judge: impl Fn(&str, usize, &serde_json::Value) -> Plan + Send + Sync + 'static,
) -> (Engine, DynamoStore, DynamoStore, Arc<AtomicUsize>) {
    let engine = Engine::dynoxide_memory();
    let table = TableName::parse("runyard").unwrap();
    let direct = DynamoStore::connect(table.clone(), &sdk_config(engine.endpoint()).await);
    direct.create_table().await.unwrap();
    let (endpoint, calls) = peer(engine.endpoint(), judge).await;
    let store = DynamoStore::connect(table, &sdk_config(&endpoint).await);
    (engine, direct, store, calls)
}

fn key() -> RecordId {
    RecordId::new("instance#x", "instance")
}

fn at(version: u64) -> Item {
    [
        ("pk".to_owned(), AttributeValue::S(key().pk())),
        ("sk".to_owned(), AttributeValue::S(key().sk())),
        ("version".to_owned(), AttributeValue::N(version.to_string())),
    ]
    .into()
}

fn second() -> Write {
    let set = [("version".to_owned(), AttributeValue::N("2".into()))];
    Write::update(key(), Guard::Version(1), set.into(), [].into())
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_meets_its_own_result_and_succeeds() {
    let lost = |call: &str, nth: usize, _: &serde_json::Value| match (call, nth) {
        // Each call's first attempt is done and its answer lost; the SDK's second gets the engine's own.
        ("UpdateItem" | "DeleteItem" | "TransactWriteItems", nth) if nth % 2 == 0 => {
            Plan::After(500, error("InternalServerError"))
        }
        _ => Plan::Pass,
    };
    let (_engine, direct, store, calls) = behind(lost).await;
    assert_eq!(store.write(&Write::create(key(), at(1))).await.unwrap(), at(1));
    assert_eq!(store.write(&second()).await.unwrap(), at(2));
    assert_eq!(direct.get(&key()).await.unwrap(), Some(at(2)));
    let set = [("version".to_owned(), AttributeValue::N("3".into()))];
    let third = Write::update(key(), Guard::Version(2), set.into(), [].into());
    store.transact(&[third]).await.unwrap();
    assert_eq!(direct.get(&key()).await.unwrap(), Some(at(3)));
    assert_eq!(calls.load(Ordering::SeqCst), 6, "each was sent twice");
    store.write(&Write::delete(key(), Guard::Version(3))).await.unwrap();
    assert_eq!(direct.get(&key()).await.unwrap(), None);
}

#[tokio::test]
async fn whatever_the_wire_says_is_something_somebody_acts_on() {
    let html = "<html><body>Bad gateway</body></html>".to_owned();
    for (status, body, wanted) in [
        (400, error("ThrottlingException"), "throttled"),
        (400, error("ProvisionedThroughputExceededException"), "throttled"),
        (400, error("AccessDeniedException"), "denied"),
        (400, error("UnrecognizedClientException"), "denied"),
        (400, error("ResourceNotFoundException"), "no-table"),
        (400, error("TransactionConflictException"), "contended"),
        (400, error("ValidationException"), "invalid"),
        (500, error("InternalServerError"), "unknown"),
        (502, html.clone(), "unknown"),
        (403, html.clone(), "denied"),
        (200, html, "unknown"),
        (200, "{\"Item\": {\"pk\": ".to_owned(), "unknown"),
    ] {
        let told = format!("{status} {body}");
        let (_engine, _direct, store, calls) =
            behind(move |_, _, _| Plan::Instead(status, body.clone())).await;
        let errors: [Option<StoreError>; 5] = [
            store.get(&key()).await.err(),
            store.list(None).await.err(),
            store.write(&second()).await.err(),
            store.write(&Write::delete(key(), Guard::Version(1))).await.err(),
            store.transact(&[second()]).await.err(),
        ];
        let labels: Vec<_> = errors.iter().map(|e| e.as_ref().map_or("success", StoreError::label)).collect();
        assert_eq!(labels, [wanted; 5], "{told}: {errors:?}");
        assert!(calls.load(Ordering::SeqCst) <= 5 * 6, "{told}: at most six attempts a call");
    }
}

#[tokio::test]
async fn silence_ends_after_ten_seconds() {
    let (_engine, _direct, store, _) = behind(|_, _, _| Plan::Silence).await;
    tokio::time::pause();
    let started = Instant::now();
    assert_eq!(store.get(&key()).await.unwrap_err().label(), "unknown");
    let waited = started.elapsed();
    assert!((10.0..10.1).contains(&waited.as_secs_f64()), "{waited:?}");
}

#[tokio::test]
async fn what_a_batch_leaves_undone_is_sent_again_and_then_dropped() {
    // The peer takes nothing; every answer hands all records back.
    let undone = |call: &str, _: usize, body: &serde_json::Value| match call {
        "BatchWriteItem" => {
            Plan::Instead(200, serde_json::json!({ "UnprocessedItems": body["RequestItems"] }).to_string())
        }
        _ => Plan::Pass,
    };
    let (_engine, direct, store, calls) = behind(undone).await;
    assert_eq!(store.append(&[at(1)]).await.unwrap(), 1);
    assert_eq!(calls.load(Ordering::SeqCst), 5, "once, and four times again");
    assert_eq!(direct.get(&key()).await.unwrap(), None);

    let at_first = |call: &str, nth: usize, body: &serde_json::Value| match (call, nth) {
        ("BatchWriteItem", 0) => {
            Plan::Instead(200, serde_json::json!({ "UnprocessedItems": body["RequestItems"] }).to_string())
        }
        _ => Plan::Pass,
    };
    let (_engine, direct, store, _) = behind(at_first).await;
    assert_eq!(store.append(&[at(1)]).await.unwrap(), 0);
    assert_eq!(direct.get(&key()).await.unwrap(), Some(at(1)));
}
