//! What does an answer of the service mean that is no success? Its exceptions are told by name; the name is not always
//! there, so the status decides where it is not. No text of an answer but its message is repeated.

use jiff::Timestamp;
use serde::Deserialize;

use super::super::errors::Answer;
use super::super::retry_after;
use crate::ports::scale_sets::ScaleSetError;

/// UTF-8's byte order mark, with which answers may begin.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// The maximum part of GitHub's message that an error contains.
const MESSAGE_CHARS: usize = 200;

/// The kind of a call: the same status means different things for different calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Exchanges a registration token.
    Exchange,
    /// Reads sets, groups or runners.
    Read,
    /// Creates or changes a set.
    ChangeSet,
    /// Deletes a set.
    DeleteSet,
    /// Opens a session.
    OpenSession,
    /// Renews a session.
    RenewSession,
    /// Closes a session.
    CloseSession,
    /// Waits for a message.
    Poll,
    /// Deletes a message.
    DeleteMessage,
    /// Acquires jobs.
    Acquire,
    /// Creates a runner.
    CreateRunner,
    /// Removes a runner.
    RemoveRunner,
}

impl Verb {
    /// Returns whether the credential of a session is its own.
    const fn by_session(self) -> bool {
        match self {
            Self::Poll | Self::DeleteMessage | Self::Acquire => true,
            Self::Exchange
            | Self::Read
            | Self::ChangeSet
            | Self::DeleteSet
            | Self::OpenSession
            | Self::RenewSession
            | Self::CloseSession
            | Self::CreateRunner
            | Self::RemoveRunner => false,
        }
    }
}

#[derive(Default, Deserialize)]
struct Exception {
    #[serde(default, rename = "typeName")]
    name: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// Returns a 2xx response without its byte order mark, and converts any other to an error by its meaning.
pub(super) fn accept(verb: Verb, mut answer: Answer, now: Timestamp) -> Result<Answer, ScaleSetError> {
    if answer.body.starts_with(MARK) {
        answer.body.drain(..MARK.len());
    }
    if answer.status.is_success() { Ok(answer) } else { Err(refusal(verb, &answer, now)) }
}

fn refusal(verb: Verb, answer: &Answer, now: Timestamp) -> ScaleSetError {
    let exception: Exception = serde_json::from_slice(&answer.body).unwrap_or_default();
    let name = exception.name.unwrap_or_default();
    let said: String = exception.message.unwrap_or_default();
    let said: String = said.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS).collect();
    let status = answer.status.as_u16();
    let message = match said.is_empty() {
        true => format!("{} ({status})", answer.what),
        false => format!("{}: {said} ({status})", answer.what),
    };
    let limited = match status {
        429 => true,
        401 | 403 => retry_after::is_rate_limit(&answer.headers),
        _ => false,
    };
    if limited {
        return ScaleSetError::Throttled { retry_after: retry_after::pause(&answer.headers, now) };
    }
    by_name(&name, &message).unwrap_or_else(|| by_status(verb, answer, message))
}

/// Returns the meaning of an exception that is known. Some have their namespace before them.
fn by_name(name: &str, message: &str) -> Option<ScaleSetError> {
    let is = |part: &str| name.contains(part);
    let message = || message.to_owned();
    match () {
        () if is("SessionConflictException") => Some(ScaleSetError::SessionHeld(message())),
        () if is("AgentExistsException") || is("ScaleSetExistsException") => {
            Some(ScaleSetError::NameTaken(message()))
        }
        () if is("AgentNotFoundException") => Some(ScaleSetError::NotFound(message())),
        () if is("JobStillRunningException") => Some(ScaleSetError::Busy(message())),
        () if is("SessionExpired") || is("SessionNotFound") => Some(ScaleSetError::SessionOver(message())),
        () => None,
    }
}

fn by_status(verb: Verb, answer: &Answer, message: String) -> ScaleSetError {
    match answer.status.as_u16() {
        300..=399 | 407 | 408 | 500..=599 => ScaleSetError::Unreachable(message),
        401 if verb.by_session() => ScaleSetError::Expired(message),
        401 | 403 => ScaleSetError::Denied(message),
        // A proxy's page is no evidence about GitHub's data, and a removal treats "not found" as done.
        404 | 410 if !answer.is_json() => {
            ScaleSetError::Unreachable(format!("{message}, and not in GitHub's words"))
        }
        404 | 410 => not_found(verb, message),
        409 => conflict(verb, message),
        // 1xx never gets here; the remaining 4xx mean that our request is wrong.
        _ => ScaleSetError::Invalid(message),
    }
}

fn not_found(verb: Verb, message: String) -> ScaleSetError {
    match verb {
        Verb::RenewSession | Verb::CloseSession | Verb::Poll | Verb::Acquire => {
            ScaleSetError::SessionOver(message)
        }
        Verb::Exchange
        | Verb::Read
        | Verb::ChangeSet
        | Verb::DeleteSet
        | Verb::OpenSession
        | Verb::DeleteMessage
        | Verb::CreateRunner
        | Verb::RemoveRunner => ScaleSetError::NotFound(message),
    }
}

fn conflict(verb: Verb, message: String) -> ScaleSetError {
    match verb {
        Verb::OpenSession => ScaleSetError::SessionHeld(message),
        Verb::ChangeSet | Verb::CreateRunner => ScaleSetError::NameTaken(message),
        Verb::RemoveRunner => ScaleSetError::Busy(message),
        Verb::Exchange
        | Verb::Read
        | Verb::DeleteSet
        | Verb::RenewSession
        | Verb::CloseSession
        | Verb::Poll
        | Verb::DeleteMessage
        | Verb::Acquire => ScaleSetError::Invalid(message),
    }
}
