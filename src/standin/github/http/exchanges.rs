//! Records the API's requests and responses, one JSON object per line, if a file exists for them, so that a whole day
//! can be checked against GitHub's published description. Tokens are left out.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::StandInFailure;
use crate::github::state::Refusal;

/// The file's name, beside the stand-in's state.
const FILE: &str = "exchanges.jsonl";
/// Largest accepted body of a request, in bytes.
const LARGEST: usize = 1 << 20;
/// The replacement for a secret.
const LEFT_OUT: &str = "left out";

/// The file in which exchanges are recorded.
pub(in super::super) type Exchanges = Arc<Mutex<File>>;

/// Opens that file, if it exists.
pub(in super::super) fn kept_in(dir: &Path) -> Option<Exchanges> {
    let file = File::options().append(true).open(dir.join(FILE)).ok()?;
    Some(Arc::new(Mutex::new(file)))
}

/// Records an exchange of the API.
pub(super) async fn keep(State(file): State<Exchanges>, request: Request, next: Next) -> Response {
    let method = request.method().to_string();
    let path = request.extensions().get::<MatchedPath>().map(|path| as_published(path.as_str()));
    let (head, body) = request.into_parts();
    let Ok(asked) = to_bytes(body, LARGEST).await else {
        return StandInFailure::Refused(Refusal::Invalid(format!("a body of more than {LARGEST} bytes")))
            .into_response();
    };
    let answer = next.run(Request::from_parts(head, Body::from(asked.clone()))).await;
    let (head, body) = answer.into_parts();
    let said = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let line = json!({
        "method": method, "path": path, "request": shown(&asked), "status": head.status.as_u16(),
        "body": shown(&said), "link": head.headers.contains_key("link"),
    });
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = writeln!(file, "{line}") {
        tracing::warn!(%error, "an exchange was not kept");
    }
    drop(file);
    Response::from_parts(head, Body::from(said))
}

/// Returns a route by its name in the description.
pub(super) fn as_published(route: &str) -> String {
    route.replacen("/orgs/{owner}", "/orgs/{org}", 1)
}

fn shown(body: &Bytes) -> Value {
    let mut value: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for name in ["token", "encoded_jit_config", "pem", "client_secret", "webhook_secret"] {
            if let Some(secret) = fields.get_mut(name) {
                *secret = LEFT_OUT.into();
            }
        }
    }
    value
}
