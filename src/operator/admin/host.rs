//! Refuses requests on loopback that only web pages send (`runyard_core::host`).

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runyard_core::host::of_a_page;

/// Refuses requests to a host name, and those from a page of another origin.
pub(crate) async fn refuse_pages(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if !of_a_page(text(HOST), text(ORIGIN)) {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "this answers under its address only, and no page of another origin\n")
        .into_response()
}
