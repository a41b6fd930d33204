//! Maps SQS's error codes to the errors of the ports. The codes are those of the API reference (each action's "Errors")
//! and their older names, which the service still sends; no other module contains them.

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};

use crate::failure::Failure;
use crate::ports::QueueError;

/// Converts an error of any call to the queue port's error.
pub fn classify<E>(error: &SdkError<E, HttpResponse>) -> QueueError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match Failure::of(error) {
        Failure::NoAnswer(text) => QueueError::Unreachable(text),
        Failure::NotSent(text) => QueueError::Denied(text),
        Failure::Answered { code, status, message } => queue_by_code(&code, status, message),
    }
}

fn queue_by_code(code: &str, status: u16, message: String) -> QueueError {
    let told = format!("HTTP {status} {code}: {message}");
    match code.rsplit(['.', '#']).next().unwrap_or_default() {
        "NonExistentQueue" | "QueueDoesNotExist" => QueueError::Missing,
        "UnknownOperation" | "UnknownOperationException" | "InvalidAction" | "UnsupportedOperation" => {
            QueueError::NoService(told)
        }
        "RequestThrottled"
        | "Throttling"
        | "ThrottlingException"
        | "KmsThrottled"
        | "OverLimit"
        | "QueueDeletedRecently" => QueueError::Throttled,
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthFailure"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "KmsAccessDenied"
        | "KmsDisabled"
        | "KmsInvalidState"
        | "KmsNotFound"
        | "KmsOptInRequired"
        | "MissingAuthenticationToken"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => QueueError::Denied(told),
        code => match status {
            429 => QueueError::Throttled,
            401 | 403 | 407 => QueueError::Denied(told),
            400..=499 if !code.is_empty() => QueueError::Invalid(told),
            _ => QueueError::Unreachable(told),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_something_somebody_acts_on() {
        for (code, status, wanted) in [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, "missing"),
            ("QueueDoesNotExist", 400, "missing"),
            ("com.amazonaws.dynamodb.v20120810#UnknownOperationException", 400, "no-service"),
            ("UnknownOperationException", 400, "no-service"),
            ("InvalidAction", 400, "no-service"),
            ("RequestThrottled", 400, "throttled"),
            ("AWS.SimpleQueueService.QueueDeletedRecently", 400, "throttled"),
            ("OverLimit", 403, "throttled"),
            ("", 429, "throttled"),
            ("AccessDenied", 403, "denied"),
            ("InvalidClientTokenId", 403, "denied"),
            ("KmsDisabled", 400, "denied"),
            ("", 403, "denied"),
            ("ReceiptHandleIsInvalid", 400, "invalid"),
            ("InvalidMessageContents", 400, "invalid"),
            ("InternalFailure", 500, "unreachable"),
            ("ServiceUnavailable", 503, "unreachable"),
            ("", 200, "unreachable"),
            ("", 404, "unreachable"),
        ] {
            let label = match queue_by_code(code, status, "m".into()) {
                QueueError::Missing => "missing",
                QueueError::NoService(_) => "no-service",
                QueueError::Throttled => "throttled",
                QueueError::Unreachable(_) => "unreachable",
                QueueError::Denied(_) => "denied",
                QueueError::Invalid(_) => "invalid",
            };
            assert_eq!(label, wanted, "{code} {status}");
        }
    }
}
