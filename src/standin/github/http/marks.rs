//! Marks responses (`etag`), and responds with "304 not modified" to a caller that has the same one already.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

/// Marks the response to a request.
pub(super) async fn mark(request: Request, next: Next) -> Response {
    let asked = request.method() == Method::GET;
    let known = request.headers().get(IF_NONE_MATCH).cloned();
    let answer = next.run(request).await;
    if !asked || answer.status() != StatusCode::OK {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let said = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let digest: String = Sha256::digest(&said).iter().map(|byte| format!("{byte:02x}")).collect();
    let Ok(mark) = HeaderValue::from_str(&format!("W/\"{digest}\"")) else {
        return Response::from_parts(head, Body::from(said));
    };
    if known.as_ref() == Some(&mark) {
        return (StatusCode::NOT_MODIFIED, [(ETAG, mark)]).into_response();
    }
    head.headers.insert(ETAG, mark);
    Response::from_parts(head, Body::from(said))
}
