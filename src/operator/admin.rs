//! The operator's HTTP port for liveness, readiness, metrics and the status page. Its requests change nothing, and no
//! response contains a secret.

mod compress;
pub(crate) mod host;
mod page;
pub mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::status::Health;

/// The data of the responses.
#[derive(Clone, Debug)]
pub struct Admin {
    /// For `/readyz`.
    pub health: Arc<Health>,
    /// For `/metrics`.
    pub metrics: Metrics,
}

/// Serves until `shutdown`, then finishes requests in progress for at most two seconds. The address is logged as the
/// field `listen`. On loopback only requests to an address are served, since a web page can make its own name resolve
/// to it.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(listener: TcpListener, admin: Admin, shutdown: CancellationToken) -> io::Result<()> {
    let listen = listener.local_addr()?;
    tracing::info!(%listen, "admin port open");
    let router = router(admin);
    let router = if listen.ip().is_loopback() { router.layer(from_fn(host::refuse_pages)) } else { router };
    server::serve(listener, router, shutdown).await
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/icon.svg", get(page::icon))
        .route("/status.json", get(status))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "there are /, /livez, /readyz, /metrics and /status.json\n")
        })
        .with_state(admin)
}

/// The state of the client.
#[derive(Debug, Deserialize)]
struct Seen {
    /// The `mark` of its previous response.
    since: Option<String>,
}

async fn status(State(admin): State<Admin>, Query(seen): Query<Seen>, asked: HeaderMap) -> Response {
    match admin.health.snapshots().snapshot(admin.health.elapsed(), seen.since.as_deref()).await {
        Ok(text) => compress::json(text, &asked),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    match admin.health.verdict() {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], admin.metrics.render()).into_response()
}
