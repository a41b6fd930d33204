//! The page on loopback that sends a browser to GitHub with the manifest and receives it back with the code. Its
//! address and the state are unguessable, so that another user of this machine can neither read the page nor submit the
//! code of an App of their own.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::common::failure::{CliFailure, CliResult};
use runyard_operator::admin::server;

/// A served page; dropping it stops the server.
pub(super) struct Page {
    url: String,
    base: String,
    shared: Arc<Shared>,
    code: watch::Receiver<Option<String>>,
    _stop: DropGuard,
}

struct Shared {
    state: String,
    form: Mutex<String>,
    install: Mutex<Option<String>>,
    code: watch::Sender<Option<String>>,
}

#[derive(Deserialize)]
struct Back {
    code: Option<String>,
    state: Option<String>,
}

impl Page {
    /// Serves on a free port of loopback, under an unguessable path.
    pub(super) async fn open(path: &str, state: &str) -> CliResult<Self> {
        let failed = |error: std::io::Error| {
            CliFailure::error("127.0.0.1", "", format!("cannot be listened on: {error}"), "free a port")
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let base = format!("http://{}", listener.local_addr().map_err(failed)?);
        let (sender, code) = watch::channel(None);
        let shared = Arc::new(Shared {
            state: state.to_owned(),
            form: Mutex::default(),
            install: Mutex::default(),
            code: sender,
        });
        let router = Router::new()
            .route(&format!("/{path}"), get(form))
            .route("/created", get(created))
            .layer(from_fn(refuse_pages))
            .with_state(Arc::clone(&shared));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            if let Err(error) = server::serve(listener, router, stopped).await {
                tracing::warn!(%error, "the page for the browser ended");
            }
        });
        Ok(Self { url: format!("{base}/{path}"), base, shared, code, _stop: stop.drop_guard() })
    }

    /// Returns the address for the person's browser.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address to which GitHub redirects the browser.
    pub(super) fn redirect_url(&self) -> String {
        format!("{}/created", self.base)
    }

    /// Sets the form of the page.
    pub(super) fn show(&self, address: &str, manifest: &Value) {
        let text = format!(
            "<!doctype html><meta charset=utf-8><title>Runyard</title><h1>Make the GitHub App</h1>\
             <p>The next page is GitHub's. It shows what the App may do.</p>\
             <form method=post action=\"{}\"><input type=hidden name=manifest value=\"{}\">\
             <button autofocus>Go on to GitHub</button></form>",
            escaped(address),
            escaped(&manifest.to_string())
        );
        *self.shared.form.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Waits for the code that GitHub sends with our state.
    pub(super) async fn code(&self) -> String {
        let mut code = self.code.clone();
        match code.wait_for(Option::is_some).await {
            Ok(code) => code.clone().unwrap_or_default(),
            // The page holds the sender, so it is never dropped.
            Err(_) => std::future::pending().await,
        }
    }

    /// Sets the installation address, for a browser that opens the page again.
    pub(super) fn made(&self, install: &str) {
        *self.shared.install.lock().unwrap_or_else(PoisonError::into_inner) = Some(install.to_owned());
    }
}

fn html(status: StatusCode, text: String) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    ];
    (status, headers, Html(text)).into_response()
}

async fn form(State(shared): State<Arc<Shared>>) -> Response {
    html(StatusCode::OK, shared.form.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

async fn created(State(shared): State<Arc<Shared>>, Query(back): Query<Back>) -> Response {
    let (Some(code), Some(state)) = (back.code, back.state) else {
        return html(StatusCode::BAD_REQUEST, "<p>This is no answer of GitHub's.".to_owned());
    };
    if state != shared.state {
        return html(StatusCode::FORBIDDEN, "<p>This answer belongs to another attempt.".to_owned());
    }
    shared.code.send_if_modified(|known| known.is_none() && known.replace(code).is_none());
    let install = shared.install.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let next = install.map_or_else(
        || "The terminal tells where it is installed.".to_owned(),
        |install| format!("<a href=\"{}\">Install it.</a>", escaped(&install)),
    );
    html(StatusCode::OK, format!("<!doctype html><meta charset=utf-8><p>The App is being made. {next}"))
}

/// Refuses requests from pages with another host name (DNS rebinding). GitHub's redirect sends no `Origin`.
async fn refuse_pages(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if runyard_core::host::of_a_page(text(header::HOST), text(header::ORIGIN)) {
        return html(StatusCode::FORBIDDEN, "<p>This answers under its address only.".to_owned());
    }
    next.run(request).await
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
