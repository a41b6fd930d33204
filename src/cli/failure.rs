//! How does a verb end when it does not succeed? With an exit code of the contract and with problems that each name
//! a field, its value and the fix.

use std::process::ExitCode;

use crate::model::{FieldError, TableName, Unreadable};
use crate::ports::StoreError;

/// Why a verb ended without success; the number is the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Something went wrong, or was refused after looking.
    Error = 1,
    /// What could be refused without the network.
    Usage = 2,
    /// The request failed.
    RequestFailed = 3,
    /// The wait ended before what was waited for.
    TimedOut = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What a verb that did not succeed says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What is wrong; at least one.
    pub(crate) problems: Vec<FieldError>,
}

/// What verbs answer.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// One problem of the wrong-usage kind.
    pub(crate) fn usage(problem: FieldError) -> Self {
        Self { exit: Exit::Usage, problems: vec![problem] }
    }

    /// Several problems of the wrong-usage kind, at least one.
    pub(crate) fn all_usage(problems: Vec<FieldError>) -> Self {
        Self { exit: Exit::Usage, problems }
    }

    /// One problem found after looking.
    pub(crate) fn error(
        field: impl Into<String>,
        value: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { exit: Exit::Error, problems: vec![FieldError::new(field, value, message, fix)] }
    }

    /// The same with another exit code.
    #[must_use]
    pub(crate) fn exiting(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// What the table answered, with what a person does about it.
    pub(crate) fn of_store(table: &TableName, error: &StoreError) -> Self {
        let fix = match error {
            StoreError::Refused { .. } | StoreError::Contended => "run the command again",
            StoreError::Throttled => "wait a little and run the command again",
            StoreError::Unknown(_) => {
                "check the network, AWS_REGION, AWS_ENDPOINT_URL and the credentials, then run the command again"
            }
            StoreError::Denied(_) => "check the AWS credentials and their permissions on the table",
            StoreError::NoTable(_) => {
                "check --table (or RUNYARD_TABLE) and AWS_REGION; `runyard init` creates the table"
            }
            StoreError::Invalid(_) => "report this: the program asked for something that cannot be done",
        };
        Self::error("table", table.as_str(), error.to_string(), fix)
    }

    /// A record that is there and cannot be used.
    pub(crate) fn unreadable(record: &Unreadable) -> Self {
        Self::error(
            "record",
            record.key.to_string(),
            format!("cannot be read: {}", record.problem),
            "mend the attribute, or see `runyard doctor`",
        )
    }

    /// A record that a newer program wrote.
    pub(crate) fn newer(key: &str, schema: u64) -> Self {
        Self::error(
            "schema",
            schema.to_string(),
            format!("{key} was written by a newer runyard"),
            "update this one",
        )
    }
}

/// Gathers refusals, so that a person sees all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<FieldError>);

impl Problems {
    /// Keeps a refusal.
    pub(crate) fn add(&mut self, problem: FieldError) {
        self.0.push(problem);
    }

    /// The value, or nothing and its refusal kept.
    pub(crate) fn keep<T>(&mut self, result: Result<T, FieldError>) -> Option<T> {
        result.map_err(|problem| self.0.push(problem)).ok()
    }

    /// Fails as wrong usage if anything was refused.
    pub(crate) fn check(&mut self) -> Outcome {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Failure { exit: Exit::Usage, problems: std::mem::take(&mut self.0) })
    }
}
