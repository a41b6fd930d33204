//! Maps DynamoDB's errors to the port's. Codes are DynamoDB's and DynamoDB Streams' (API references, "Common Errors"
//! and each action's "Errors"); no other module contains them.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::CancellationReason;

use super::failure::Failure;
use super::items::from_sdk;
use crate::model::Write;
use crate::ports::{Refusal, StoreError};

/// Converts an error of any call to the port's error, except a refused condition, which only its operation can
/// interpret.
pub(super) fn classify<E>(error: &SdkError<E, HttpResponse>) -> StoreError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match Failure::of(error) {
        Failure::NoAnswer(text) => StoreError::Unknown(text),
        Failure::NotSent(text) => StoreError::Denied(text),
        Failure::Answered { code, status, message } => by_code(&code, status, message),
    }
}

fn by_code(code: &str, status: u16, message: String) -> StoreError {
    match code {
        "ConditionalCheckFailedException" => StoreError::Refused { refusals: Vec::new() },
        "TransactionConflictException" | "ReplicatedWriteConflictException" => StoreError::Contended,
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException" => StoreError::Throttled,
        "AccessDeniedException"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "NotAuthorized"
        | "OptInRequired" => StoreError::Denied(format!("{code}: {message}")),
        "ResourceNotFoundException" | "TableNotFoundException" => StoreError::NoTable(message),
        "ResourceInUseException" => StoreError::NoTable(format!("it is being changed: {message}")),
        // DynamoDB's text for a table with other keys; every other validation error is about the request.
        "ValidationException" if message.contains("does not match the schema") => {
            StoreError::NoTable(message)
        }
        "ExpiredIteratorException" | "TrimmedDataAccessException" => {
            StoreError::Invalid(format!("changes may have been missed: {message}"))
        }
        // An earlier attempt of this transaction is in progress, so its outcome is unknown.
        "InternalServerError"
        | "InternalFailure"
        | "ServiceUnavailable"
        | "TransactionInProgressException" => StoreError::Unknown(format!("{code}: {message}")),
        _ => by_status(code, status, message),
    }
}

/// Maps unknown codes, and bodies that are not DynamoDB's (a proxy's page), by their status.
fn by_status(code: &str, status: u16, message: String) -> StoreError {
    let told = format!("HTTP {status} {code}: {message}");
    match status {
        429 => StoreError::Throttled,
        401 | 403 | 407 => StoreError::Denied(told),
        400..=499 if !code.is_empty() => StoreError::Invalid(told),
        _ => StoreError::Unknown(told),
    }
}

/// Maps the reasons of a cancelled transaction, one for each write in order, to one error. A refusal outweighs all
/// others: a retry would only be refused later.
pub(super) fn cancelled(writes: &[Write], reasons: Vec<CancellationReason>) -> StoreError {
    if reasons.is_empty() {
        let refusals = writes.iter().map(|write| Refusal { key: write.key.clone(), current: None });
        return StoreError::Refused { refusals: refusals.collect() };
    }
    let mut refusals = Vec::new();
    let mut others = Vec::new();
    for (write, reason) in writes.iter().zip(reasons) {
        let message = || reason.message.clone().unwrap_or_default();
        match reason.code.as_deref().unwrap_or("None") {
            "None" => {}
            "ConditionalCheckFailed" => {
                refusals.push(Refusal { key: write.key.clone(), current: reason.item.map(from_sdk) });
            }
            "TransactionConflict" => others.push(StoreError::Contended),
            "ProvisionedThroughputExceeded" | "ThrottlingError" => others.push(StoreError::Throttled),
            "AccessDenied" => others.push(StoreError::Denied(message())),
            "ItemCollectionSizeLimitExceeded" | "ValidationError" => {
                others.push(StoreError::Invalid(format!("{}: {}", write.key, message())));
            }
            code => others.push(StoreError::Unknown(format!("{}: {code}: {}", write.key, message()))),
        }
    }
    if refusals.is_empty() {
        let unexplained = || StoreError::Unknown("a transaction was cancelled without a reason".into());
        others.into_iter().min_by_key(weight).unwrap_or_else(unexplained)
    } else {
        StoreError::Refused { refusals }
    }
}

/// Returns the rank of an error: errors that a retry cannot fix come first.
fn weight(error: &StoreError) -> u8 {
    match error {
        StoreError::Refused { .. } => 0,
        StoreError::Denied(_) | StoreError::NoTable(_) => 1,
        StoreError::Invalid(_) => 2,
        StoreError::Unknown(_) => 3,
        StoreError::Contended => 4,
        StoreError::Throttled => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Guard, RecordId};

    fn label(code: &str, status: u16, message: &str) -> &'static str {
        by_code(code, status, message.to_owned()).label()
    }

    #[test]
    fn every_code_is_something_somebody_acts_on() {
        for (code, status, wanted) in [
            ("ConditionalCheckFailedException", 400, "refused"),
            ("TransactionConflictException", 400, "contended"),
            ("TransactionInProgressException", 400, "unknown"),
            ("ProvisionedThroughputExceededException", 400, "throttled"),
            ("ThrottlingException", 400, "throttled"),
            ("RequestLimitExceeded", 400, "throttled"),
            ("LimitExceededException", 400, "throttled"),
            ("AccessDeniedException", 400, "denied"),
            ("UnrecognizedClientException", 400, "denied"),
            ("ExpiredTokenException", 400, "denied"),
            ("ResourceNotFoundException", 400, "no-table"),
            ("ResourceInUseException", 400, "no-table"),
            ("ValidationException", 400, "invalid"),
            ("IdempotentParameterMismatchException", 400, "invalid"),
            ("ItemCollectionSizeLimitExceededException", 400, "invalid"),
            ("InternalServerError", 500, "unknown"),
            ("", 503, "unknown"),
            ("", 200, "unknown"),
            ("", 429, "throttled"),
            ("", 403, "denied"),
            ("", 404, "unknown"),
            ("SomethingNew", 400, "invalid"),
        ] {
            assert_eq!(label(code, status, "m"), wanted, "{code} {status}");
        }
        let keys = "The provided key element does not match the schema";
        assert_eq!(label("ValidationException", 400, keys), "no-table");
    }

    fn verdict(codes: &[&str]) -> StoreError {
        let write = |at: usize| Write::check(RecordId::new(format!("p{at}"), "s"), Guard::Exists);
        let writes: Vec<_> = (0..codes.len()).map(write).collect();
        let reason = |code: &&str| CancellationReason::builder().code(*code).message("why").build();
        cancelled(&writes, codes.iter().map(reason).collect())
    }

    #[test]
    fn a_refusal_outweighs_every_other_reason_and_names_its_record() {
        let mixed = ["ThrottlingError", "None", "ConditionalCheckFailed", "TransactionConflict"];
        let StoreError::Refused { refusals } = verdict(&mixed) else { panic!("a refusal") };
        assert_eq!(refusals.len(), 1);
        assert_eq!(refusals[0].key.pk(), "p2");
    }

    #[test]
    fn other_reasons_are_told_by_what_can_be_done() {
        for (codes, wanted) in [
            (&["TransactionConflict", "None"][..], "contended"),
            (&["ThrottlingError"], "throttled"),
            (&["ProvisionedThroughputExceeded"], "throttled"),
            (&["TransactionConflict", "ThrottlingError"], "contended"),
            (&["ValidationError", "TransactionConflict"], "invalid"),
            (&["ItemCollectionSizeLimitExceeded"], "invalid"),
            (&["AccessDenied"], "denied"),
            (&["None"], "unknown"),
            (&["Newfangled"], "unknown"),
        ] {
            assert_eq!(verdict(codes).label(), wanted, "{codes:?}");
        }
    }

    #[test]
    fn a_cancellation_without_reasons_sends_us_back_to_read_them_all() {
        let write = Write::check(RecordId::new("p", "s"), Guard::Exists);
        let StoreError::Refused { refusals } = cancelled(&[write], Vec::new()) else { panic!("a refusal") };
        assert_eq!(refusals.len(), 1);
    }
}
