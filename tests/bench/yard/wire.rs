//! A wire with AWS's latencies before an engine, and a stream of more shards than it has: a table that was busy once,
//! or is large, has shards in which nothing happens.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// What empty shards and their iterators are called.
const EMPTY: &str = "shardId-empty-";

#[derive(Clone)]
struct Wire {
    engine: String,
    empty: usize,
    http: reqwest::Client,
}

/// Starts one; answers where it listens.
pub(crate) async fn before(engine: &str, shards: usize) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let wire = Wire { engine: engine.to_owned(), empty: shards - 1, http };
    let app = Router::new().fallback(answer).with_state(wire);
    tokio::spawn(async move { axum::serve(listener, app).await });
    endpoint
}

async fn answer(State(wire): State<Wire>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let call = target.rsplit('.').next().unwrap_or_default().to_owned();
    let millis = match call.as_str() {
        "Scan" => 60,
        "GetRecords" => 10,
        _ => 5,
    };
    tokio::time::sleep(Duration::from_millis(millis)).await;
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| said[name].as_str().filter(|text| text.starts_with(EMPTY));
    let (status, text) = match (text("ShardId"), text("ShardIterator")) {
        (Some(shard), _) => (200, json!({ "ShardIterator": shard }).to_string()),
        (None, Some(iterator)) => (200, json!({ "Records": [], "NextShardIterator": iterator }).to_string()),
        (None, None) => {
            let (status, text) = wire.forward(headers, body).await;
            let text = if call == "DescribeStream" { wire.with_empty(&text) } else { text };
            (status, text)
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/x-amz-json-1.0")];
    (StatusCode::from_u16(status).unwrap(), kind, text).into_response()
}

impl Wire {
    async fn forward(&self, mut headers: HeaderMap, body: Bytes) -> (u16, String) {
        headers.remove(header::HOST);
        let sent = self.http.post(&self.engine).headers(headers).body(body).send().await.unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    }

    /// The stream's description with the empty shards on its last page.
    fn with_empty(&self, text: &str) -> String {
        let mut told: Value = serde_json::from_str(text).unwrap();
        let stream = &mut told["StreamDescription"];
        if stream["LastEvaluatedShardId"].is_null()
            && let Some(shards) = stream["Shards"].as_array_mut()
        {
            let range = json!({ "StartingSequenceNumber": "1" });
            let empty = |n| json!({ "ShardId": format!("{EMPTY}{n}"), "SequenceNumberRange": range });
            shards.extend((0..self.empty).map(empty));
        }
        told.to_string()
    }
}
