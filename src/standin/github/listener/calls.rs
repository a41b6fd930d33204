//! The listener's calls to the stand-in, and the errors it distinguishes.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::http::wire;
use super::super::state::JobId;
use super::files::Identity;

/// Longer than the stand-in holds a request for a job open.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why a call did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// The credential or token is not or no longer accepted: for a configured runner, it was deleted.
    Unauthorized,
    /// The session or the runner does not exist.
    NotFound,
    /// The name is taken, or the runner is connected from elsewhere.
    Conflict(String),
    /// The job is not assigned to this runner any more.
    Gone,
    /// The runner has a job; with the stand-in's message.
    Busy(String),
    /// GitHub does not accept runners of this version any more; with the stand-in's message.
    Deprecated(String),
    /// There is no token for a session; with the token service's message.
    NoToken(String),
    /// Any other refusal; with the stand-in's message.
    Refused(String),
    /// No usable response; a retry may help.
    Unreachable(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unauthorized => f.write_str("Http response code: Unauthorized"),
            Self::NotFound => f.write_str("Http response code: NotFound"),
            Self::Gone => f.write_str("Http response code: Gone"),
            Self::Conflict(text)
            | Self::Busy(text)
            | Self::Deprecated(text)
            | Self::NoToken(text)
            | Self::Refused(text)
            | Self::Unreachable(text) => f.write_str(text),
        }
    }
}

/// The connection to one stand-in.
#[derive(Clone)]
pub(super) struct Calls {
    http: reqwest::Client,
    url: String,
    credential: String,
}

impl Calls {
    /// Connects before there is a credential.
    pub(super) fn anonymous(url: &str) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| format!("Cannot set up HTTP: {e}"))?;
        Ok(Self { http, url: url.to_owned(), credential: String::new() })
    }

    /// Returns its address, for people.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn of(identity: &Identity) -> Result<Self, String> {
        Ok(Self { credential: identity.credential.clone(), ..Self::anonymous(&identity.config.url)? })
    }

    pub(super) async fn register(&self, body: &wire::Register) -> Result<wire::Registered, CallError> {
        self.ask("register", body).await
    }

    pub(super) async fn deregister(&self, body: &wire::Deregister) -> Result<(), CallError> {
        self.tell("deregister", body).await
    }

    pub(super) async fn open_session(&self, version: &str) -> Result<u64, CallError> {
        let body = wire::OpenSession { version: version.to_owned() };
        self.ask("session", &body).await.map(|answer: wire::SessionRef| answer.session)
    }

    pub(super) async fn close_session(&self, session: u64) -> Result<(), CallError> {
        self.tell("session/close", &wire::SessionRef { session }).await
    }

    /// Reports that the runner is alive; returns whether the job should end.
    pub(super) async fn heartbeat(&self, session: u64) -> Result<bool, CallError> {
        self.ask("heartbeat", &wire::SessionRef { session })
            .await
            .map(|answer: wire::Heartbeat| answer.cancel)
    }

    pub(super) async fn next_job(&self, session: u64) -> Result<Option<wire::Assignment>, CallError> {
        self.ask("job", &wire::SessionRef { session }).await
    }

    pub(super) async fn begin(&self, session: u64, job_id: JobId) -> Result<(), CallError> {
        self.tell("job/begin", &wire::Begin { session, job_id }).await
    }

    pub(super) async fn finish(&self, body: &wire::Finish) -> Result<(), CallError> {
        self.tell("job/finish", body).await
    }

    async fn tell(&self, path: &str, body: &impl Serialize) -> Result<(), CallError> {
        self.send(path, body).await.map(|_| ())
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CallError> {
        self.send(path, body).await?.json().await.map_err(unreachable)
    }

    async fn send(&self, path: &str, body: &impl Serialize) -> Result<reqwest::Response, CallError> {
        let url = format!("{}/_runner/{path}", self.url);
        let answer =
            self.http.post(url).bearer_auth(&self.credential).json(body).send().await.map_err(unreachable)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body: serde_json::Value = answer.json().await.unwrap_or_default();
        let text = body["message"].as_str().unwrap_or("no reason given").to_owned();
        Err(match status {
            StatusCode::UNAUTHORIZED => CallError::Unauthorized,
            StatusCode::NOT_FOUND => CallError::NotFound,
            StatusCode::CONFLICT => CallError::Conflict(text),
            StatusCode::GONE => CallError::Gone,
            StatusCode::FORBIDDEN => CallError::Deprecated(text),
            StatusCode::FAILED_DEPENDENCY => CallError::NoToken(text),
            StatusCode::UNPROCESSABLE_ENTITY if path == "deregister" => CallError::Busy(text),
            other if other.is_server_error() => CallError::Unreachable(text),
            _ => CallError::Refused(text),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn unreachable(error: reqwest::Error) -> CallError {
    CallError::Unreachable(error.to_string())
}
