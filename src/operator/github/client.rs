//! The HTTP client for single requests: one exchange with one deadline, redirects only within the same origin, and a
//! limit on the body. The response is interpreted by [`super::errors`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::budget::Priority;
use super::errors::{Answer, Call, accept, unusable};
use super::origin::ApiUrl;
use crate::github::errors::SetupError;
use crate::ports::github::GitHubError;

/// A source of the current time; the wall clock in production.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A hundred runners with their labels are some 100 KiB; no response that we request comes near this.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// A renamed repository redirects once, to its number.
const MAX_REDIRECTS: usize = 3;
/// The version of the REST API that this client uses. A server without support for it responds 400.
const API_VERSION: &str = "2022-11-28";

/// One request, complete except for the credential.
pub(super) struct Question {
    pub(super) call: Call,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<Vec<u8>>,
    pub(super) priority: Priority,
    /// Whether the response may be "not modified".
    pub(super) conditional: bool,
    /// The ETag of the cached response.
    pub(super) mark: Option<HeaderValue>,
}

impl Question {
    pub(super) fn new(call: Call, method: Method, url: Url) -> Self {
        let priority = match call {
            Call::MintToken | Call::CreateRunner | Call::SetLabels => Priority::Register,
            Call::RemoveRunner => Priority::Deregister,
            Call::Read | Call::Rerun => Priority::Audit,
        };
        Self { call, method, url, body: None, priority, conditional: false, mark: None }
    }

    /// Sets the priority.
    pub(super) fn of(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Marks the request as a repeated one, so that it can be conditional.
    pub(super) fn conditional(mut self) -> Self {
        self.conditional = true;
        self
    }

    pub(super) fn with_body(mut self, body: &impl Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("our own request bodies have only string keys"));
        self
    }

    /// Returns method and path. The query is left out, as it may name a runner; neither contains a secret.
    fn what(&self) -> String {
        format!("{} {}", self.method, self.url.path())
    }
}

/// One call of a service beside the REST API, complete with its credential. It follows no redirect.
pub(super) struct ServiceCall {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<Vec<u8>>,
    /// The value of `Authorization`.
    pub(super) credential: HeaderValue,
    pub(super) headers: HeaderMap,
    pub(super) deadline: Duration,
}

/// The transport to one GitHub.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    pub(super) origin: ApiUrl,
    pub(super) deadline: Duration,
    pub(super) clock: Clock,
}

impl Client {
    pub(super) fn new(origin: ApiUrl, deadline: Duration, clock: Clock) -> Result<Self, SetupError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("runyard/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(default_headers());
        if origin.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| SetupError::Transport(chain(&e)))?;
        Ok(Self { http, origin, deadline, clock })
    }

    /// Sends a request within the deadline; a response that is not 2xx becomes an error by its meaning.
    pub(super) async fn ask(&self, question: &Question, secret: Option<&str>) -> Result<Answer, GitHubError> {
        accept(question.call, self.fetch(question, secret).await?, (self.clock)())
    }

    /// Sends a request within the deadline and returns the response uninterpreted.
    pub(super) async fn fetch(
        &self,
        question: &Question,
        secret: Option<&str>,
    ) -> Result<Answer, GitHubError> {
        let exchange = self.exchange(question, secret);
        tokio::time::timeout(self.deadline, exchange).await.map_err(|_| {
            GitHubError::Unreachable(format!("{}: no answer within {:?}", question.what(), self.deadline))
        })?
    }

    /// Sends a request and parses the response as JSON.
    pub(super) async fn ask_json<T: DeserializeOwned>(
        &self,
        question: &Question,
        secret: Option<&str>,
    ) -> Result<T, GitHubError> {
        json(&self.ask(question, secret).await?)
    }

    async fn exchange(&self, question: &Question, secret: Option<&str>) -> Result<Answer, GitHubError> {
        let mut url = question.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send(question, url.clone(), secret).await?;
            match same_origin_redirect(&url, &answer) {
                Some(next) => url = next,
                None => return Ok(answer),
            }
        }
        Err(unusable(&question.what(), "redirected too often"))
    }

    async fn send(&self, question: &Question, url: Url, secret: Option<&str>) -> Result<Answer, GitHubError> {
        let mut request = self.http.request(question.method.clone(), url);
        if let Some(secret) = secret {
            request = request.header(reqwest::header::AUTHORIZATION, bearer(secret)?);
        }
        if let Some(mark) = &question.mark {
            request = request.header(reqwest::header::IF_NONE_MATCH, mark.clone());
        }
        if let Some(body) = &question.body {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        answer(request, question.what()).await
    }

    /// Calls a service within the call's deadline and returns the response uninterpreted.
    pub(super) async fn call_service(&self, call: ServiceCall) -> Result<Answer, GitHubError> {
        let what = format!("{} {}", call.method, call.url.path());
        let mut request = self.http.request(call.method, call.url).headers(call.headers);
        request = request.header(reqwest::header::AUTHORIZATION, call.credential);
        if let Some(body) = call.body {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        let late = unusable(&what, format_args!("no answer within {:?}", call.deadline));
        tokio::time::timeout(call.deadline, answer(request, what)).await.map_err(|_| late)?
    }
}

/// Sends a request and reads the response to its end.
async fn answer(request: reqwest::RequestBuilder, what: String) -> Result<Answer, GitHubError> {
    let failed = |e: reqwest::Error| unusable(&what, chain(&e.without_url()));
    let mut response = request.send().await.map_err(failed)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(unusable(&what, format_args!("the answer exceeds {MAX_BODY_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, headers, body, what })
}

/// Parses a response as JSON.
pub(super) fn json<T: DeserializeOwned>(answer: &Answer) -> Result<T, GitHubError> {
    if !answer.is_json() {
        return Err(unusable(&answer.what, "the answer is not JSON"));
    }
    // The error contains a position in the text, never the text: it may contain a token.
    serde_json::from_slice(&answer.body).map_err(|e| {
        let (line, column, told) = (e.line(), e.column(), e.to_string());
        // The names of fields are our own.
        let field = told.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let field = field.map_or(String::new(), |field| format!(", where field {field:?} is missing"));
        unusable(&answer.what, format_args!("unreadable at line {line}, column {column}{field}"))
    })
}

fn default_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("x-github-api-version", HeaderValue::from_static(API_VERSION));
    headers
}

fn bearer(secret: &str) -> Result<HeaderValue, GitHubError> {
    credential("Bearer", secret)
}

/// Returns the value of `Authorization` for a secret; it is never printed.
pub(super) fn credential(scheme: &str, secret: &str) -> Result<HeaderValue, GitHubError> {
    let mut value = HeaderValue::from_str(&format!("{scheme} {secret}"))
        .map_err(|_| GitHubError::Denied("the token holds characters no token has".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the target of a redirect, verbatim; `None` for every other response and for another origin, which must not
/// get the token.
fn same_origin_redirect(from: &Url, answer: &Answer) -> Option<Url> {
    let redirects = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    if !redirects.contains(&answer.status) {
        return None;
    }
    let next = from.join(answer.headers.get(LOCATION)?.to_str().ok()?).ok()?;
    (next.origin() == from.origin()).then_some(next)
}

/// Formats an error with its causes: the outermost alone only states that a request failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
