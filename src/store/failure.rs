//! The outcome of a failed call to AWS, before the service's codes are interpreted: no response, not sent, or a
//! response with a code. Shared by the adapters; each maps the codes of its service in one file of its own.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

/// Maximum length of a message, in characters: these are stored in records and log lines.
const SHOWN: usize = 300;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No usable response: the call may or may not have been applied.
    NoAnswer(String),
    /// The call was not sent: no credentials, no region.
    NotSent(String),
    /// The service responded with an error.
    Answered {
        /// Its code, for example `ThrottlingException`; empty if the body was not the service's.
        code: String,
        /// The HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
}

impl Failure {
    /// Converts an error of any operation.
    pub fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match error {
            SdkError::ConstructionFailure(_) => Self::NotSent(chain(error)),
            // Credentials and region are resolved while a request is dispatched, so their absence has this type, and
            // only its text distinguishes it from other failures.
            SdkError::DispatchFailure(failure) if !failure.is_io() && !failure.is_timeout() => {
                let text = chain(error);
                let setup = text.contains("credentials") || text.contains("region");
                if setup { Self::NotSent(text) } else { Self::NoAnswer(text) }
            }
            SdkError::ServiceError(answer) => Self::Answered {
                code: answer.err().code().unwrap_or_default().to_owned(),
                status: answer.raw().status().as_u16(),
                message: cut(answer.err().message().unwrap_or("no message")),
            },
            _ => Self::NoAnswer(chain(error)),
        }
    }
}

/// Joins an error and its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    cut(&causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

/// Returns the first line, cut. AWS repeats a signed request's headers, the session token among them, on the following
/// lines.
fn cut(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_a_message_is_kept() {
        let told = "The signature does not match.\n\nx-amz-security-token:SECRET";
        assert_eq!(cut(told), "The signature does not match.");
        assert_eq!(cut(&"x".repeat(1000)).len(), SHOWN);
        assert_eq!(cut(""), "");
    }
}
