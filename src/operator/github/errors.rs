//! What does an unexpected response mean? Every status and header is interpreted here and nowhere else.

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{StatusCode, Url};

use super::retry_after;
use super::wire::ErrorBody;
use crate::ports::github::GitHubError;

/// The maximum part of GitHub's message that an error contains.
const MESSAGE_CHARS: usize = 200;

/// The adapter cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The App's key is invalid.
    #[error(
        "github.app_key_file holds no RSA private key in PEM form; download one on the App's settings page"
    )]
    AppKey,
    /// TLS could not be set up, for example without root certificates.
    #[error("cannot set up HTTPS: {0}")]
    Transport(String),
}

/// The kind of call: the same status means different things for different calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// Reads something.
    Read,
    /// Mints a token, of a runner or of an App.
    MintToken,
    /// Creates a runner.
    CreateRunner,
    /// Removes a runner.
    RemoveRunner,
    /// Sets the labels of a runner.
    SetLabels,
    /// Re-runs failed jobs.
    Rerun,
}

impl Call {
    /// Returns the cost in GitHub's points per minute.
    pub(super) const fn points(self) -> u32 {
        match self {
            Self::Read => 1,
            Self::MintToken | Self::CreateRunner | Self::RemoveRunner | Self::SetLabels | Self::Rerun => 5,
        }
    }

    /// Returns whether the call creates something at GitHub.
    pub(super) const fn creates(self) -> bool {
        match self {
            Self::MintToken | Self::CreateRunner | Self::Rerun => true,
            Self::Read | Self::RemoveRunner | Self::SetLabels => false,
        }
    }
}

/// A complete response of any status.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Method and path, for messages. Never contains a secret.
    pub(super) what: String,
}

impl Answer {
    /// Returns whether the body is declared as JSON, as all of GitHub's own responses are.
    pub(super) fn is_json(&self) -> bool {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        kind.starts_with("application/") && kind.contains("json")
    }

    fn message(&self) -> String {
        let said =
            serde_json::from_slice::<ErrorBody>(&self.body).ok().and_then(|b| b.message).unwrap_or_default();
        let said: String = said.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS).collect();
        let status = self.status.as_u16();
        if said.is_empty() {
            format!("{} ({status})", self.what)
        } else {
            format!("{}: {said} ({status})", self.what)
        }
    }
}

/// Returns a 2xx response, and converts any other to an error by its meaning.
pub(super) fn accept(call: Call, answer: Answer, now: Timestamp) -> Result<Answer, GitHubError> {
    let status = answer.status;
    if status.is_success() { Ok(answer) } else { Err(refusal(call, &answer, now)) }
}

fn refusal(call: Call, answer: &Answer, now: Timestamp) -> GitHubError {
    let throttled = || GitHubError::Throttled { retry_after: retry_after::pause(&answer.headers, now) };
    let message = answer.message();
    match answer.status.as_u16() {
        300..=399 => GitHubError::Unreachable(format!("{message}, redirected to {}", redirect_host(answer))),
        429 => throttled(),
        401 | 403 if retry_after::is_rate_limit(&answer.headers) || mentions_rate_limit(&message) => {
            throttled()
        }
        401 | 403 => GitHubError::Denied(message),
        // A proxy's page is no evidence about GitHub's data, and a removal treats "not found" as done.
        404 | 410 if !answer.is_json() => {
            GitHubError::Unreachable(format!("{message}, and not in GitHub's words"))
        }
        404 | 410 => GitHubError::NotFound(message),
        409 => conflict(call, message),
        422 => unprocessable(call, message),
        407 | 408 | 500..=599 => GitHubError::Unreachable(message),
        // 1xx never gets here; the remaining 4xx mean that our request is wrong.
        _ => GitHubError::Invalid(message),
    }
}

fn conflict(call: Call, message: String) -> GitHubError {
    match call {
        Call::CreateRunner => GitHubError::NameTaken(message),
        Call::RemoveRunner => GitHubError::Busy(message),
        Call::Read | Call::MintToken | Call::SetLabels | Call::Rerun => GitHubError::Invalid(message),
    }
}

fn unprocessable(call: Call, message: String) -> GitHubError {
    match call {
        Call::RemoveRunner => GitHubError::Busy(message),
        Call::CreateRunner if message.to_ascii_lowercase().contains("already exists") => {
            GitHubError::NameTaken(message)
        }
        Call::Read | Call::MintToken | Call::CreateRunner | Call::SetLabels | Call::Rerun => {
            GitHubError::Invalid(message)
        }
    }
}

/// Returns whether the message mentions a rate limit, since secondary limits sometimes appear only there.
fn mentions_rate_limit(message: &str) -> bool {
    message.to_ascii_lowercase().contains("rate limit")
}

/// Returns only the host: the rest of the address may contain text that must not be logged.
fn redirect_host(answer: &Answer) -> String {
    let location = answer.headers.get(LOCATION).and_then(|v| v.to_str().ok());
    let host = location.and_then(|l| Url::parse(l).ok()).and_then(|u| u.host_str().map(str::to_owned));
    host.unwrap_or_else(|| "an unreadable address".to_owned())
}

/// Returns the error for a response of the right status whose content cannot be used: a proxy's page, or a changed
/// GitHub.
pub(super) fn unusable(what: &str, problem: impl std::fmt::Display) -> GitHubError {
    GitHubError::Unreachable(format!("{what}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
        let mut all: HeaderMap =
            headers.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
        all.entry(CONTENT_TYPE).or_insert("application/json; charset=utf-8".parse().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: all, body: body.as_bytes().to_vec(), what: "GET /x".to_owned() }
    }

    fn kind(call: Call, answer: Answer) -> &'static str {
        match accept(call, answer, Timestamp::UNIX_EPOCH).unwrap_err() {
            GitHubError::Unreachable(_) => "unreachable",
            GitHubError::Throttled { .. } => "throttled",
            GitHubError::Deferred { .. } => "deferred",
            GitHubError::Denied(_) => "denied",
            GitHubError::NotFound(_) => "not found",
            GitHubError::NameTaken(_) => "name taken",
            GitHubError::Busy(_) => "busy",
            GitHubError::Invalid(_) => "invalid",
        }
    }

    #[test]
    fn each_status_has_its_one_meaning() {
        let cases: [(Call, u16, &str); 22] = [
            (Call::Read, 301, "unreachable"),
            (Call::Read, 304, "unreachable"),
            (Call::Read, 400, "invalid"),
            (Call::Read, 401, "denied"),
            (Call::Read, 403, "denied"),
            (Call::Read, 404, "not found"),
            (Call::RemoveRunner, 404, "not found"),
            (Call::Read, 410, "not found"),
            (Call::Read, 407, "unreachable"),
            (Call::Read, 408, "unreachable"),
            (Call::CreateRunner, 409, "name taken"),
            (Call::RemoveRunner, 409, "busy"),
            (Call::Read, 409, "invalid"),
            (Call::RemoveRunner, 422, "busy"),
            (Call::CreateRunner, 422, "invalid"),
            (Call::MintToken, 422, "invalid"),
            (Call::Read, 418, "invalid"),
            (Call::Read, 429, "throttled"),
            (Call::Read, 500, "unreachable"),
            (Call::Read, 502, "unreachable"),
            (Call::Read, 503, "unreachable"),
            (Call::Read, 599, "unreachable"),
        ];
        for (call, status, meaning) in cases {
            assert_eq!(kind(call, answer(status, &[], "{}")), meaning, "{call:?} {status}");
        }
    }

    #[test]
    fn a_refusal_about_the_rate_is_not_a_denial() {
        for status in [401, 403] {
            assert_eq!(kind(Call::Read, answer(status, &[("retry-after", "0")], "{}")), "throttled");
            assert_eq!(
                kind(Call::Read, answer(status, &[("x-ratelimit-remaining", "0")], "{}")),
                "throttled"
            );
        }
        let body = r#"{"message":"You have exceeded a secondary rate limit."}"#;
        assert_eq!(kind(Call::Read, answer(403, &[], body)), "throttled");
        let throttled = accept(Call::Read, answer(429, &[("retry-after", "7")], ""), Timestamp::UNIX_EPOCH);
        assert_eq!(throttled.unwrap_err(), GitHubError::Throttled { retry_after: Duration::from_secs(7) });
    }

    #[test]
    fn a_proxys_page_is_no_proof_that_something_is_gone() {
        let page = answer(404, &[("content-type", "text/html")], "<html>not here</html>");
        assert_eq!(kind(Call::RemoveRunner, page), "unreachable");
    }

    #[test]
    fn a_taken_name_is_recognised_when_told_as_422() {
        let body = r#"{"message":"Already exists - A runner with the name x already exists."}"#;
        assert_eq!(kind(Call::CreateRunner, answer(422, &[], body)), "name taken");
    }

    #[test]
    fn github_s_words_are_repeated_in_part_and_on_one_line() {
        let body = format!(r#"{{"message":"a\nb{}"}}"#, "c".repeat(5000));
        let error =
            accept(Call::Read, answer(400, &[], &body), Timestamp::UNIX_EPOCH).unwrap_err().to_string();
        assert!(error.contains("GET /x: abcc") && error.len() < 300, "{error}");
    }

    #[test]
    fn a_redirect_s_query_is_not_repeated() {
        let moved = answer(302, &[("location", "https://evil.example/?token=hunter2")], "");
        let error = accept(Call::Read, moved, Timestamp::UNIX_EPOCH).unwrap_err().to_string();
        assert!(error.contains("evil.example") && !error.contains("hunter2"), "{error}");
    }
}
