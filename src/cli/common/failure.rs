//! Errors of a verb: an exit code of the contract, and problems that each name a field, its value and the fix.

use std::fmt;
use std::process::ExitCode;

use super::environment::Environment;
use runyard_core::model::{FieldError, TableName, Unreadable};
use runyard_core::ports::StoreError;

/// A signal that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// SIGHUP: the terminal closed.
    Hangup,
    /// SIGINT: Ctrl-C, or a cancelled workflow.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Caught {
    const fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    /// Returns the signal's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// The kind of failure of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A failure, or a refusal after reading.
    Error,
    /// The table did not respond this time; a wait tries again.
    Unanswered,
    /// Wrong usage that was found without the network.
    Usage,
    /// The request failed.
    RequestFailed,
    /// The wait timed out.
    TimedOut,
    /// A signal ended the wait.
    Signal(Caught),
}

impl Exit {
    /// Returns the process's exit code by the contract.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Error | Self::Unanswered => 1,
            Self::Usage => 2,
            Self::RequestFailed => 3,
            Self::TimedOut => 4,
            Self::Signal(caught) => 128 + caught.number(),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The failure of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliFailure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// The problems; at least one.
    pub(crate) problems: Vec<FieldError>,
}

impl fmt::Display for CliFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&problems.join("; "))
    }
}

/// The result of verbs.
pub(crate) type CliResult<T = ()> = Result<T, CliFailure>;

impl CliFailure {
    /// Creates a usage failure with one problem.
    pub(crate) fn usage(problem: FieldError) -> Self {
        Self { exit: Exit::Usage, problems: vec![problem] }
    }

    /// Creates a usage failure with several problems, at least one.
    pub(crate) fn all_usage(problems: Vec<FieldError>) -> Self {
        Self { exit: Exit::Usage, problems }
    }

    /// Creates a failure with one problem that was found after reading.
    pub(crate) fn error(
        field: impl Into<String>,
        value: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { exit: Exit::Error, problems: vec![FieldError::new(field, value, message, fix)] }
    }

    /// Returns whether all problems are missing records.
    pub(crate) fn is_missing(&self) -> bool {
        self.problems.iter().all(|problem| problem.message.starts_with("there is no such "))
    }

    /// Returns the same failure with another exit code.
    #[must_use]
    pub(crate) fn exiting(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Converts an error of the table to a failure with its fix.
    pub(crate) fn of_store(table: &TableName, environment: &Environment, error: &StoreError) -> Self {
        let failure =
            Self::of_environment(environment, error).unwrap_or_else(|| Self::of_table(table, error));
        match error {
            StoreError::Unknown(_) | StoreError::Throttled | StoreError::Contended => {
                failure.exiting(Exit::Unanswered)
            }
            StoreError::Refused { .. }
            | StoreError::Denied(_)
            | StoreError::NoTable(_)
            | StoreError::Invalid(_) => failure,
        }
    }

    fn of_table(table: &TableName, error: &StoreError) -> Self {
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

    /// Describes in one sentence a problem of our own environment rather than of the table.
    fn of_environment(environment: &Environment, error: &StoreError) -> Option<Self> {
        match error {
            // Not a response of the service: without credentials nothing was sent.
            StoreError::Denied(why) if why.starts_with("dispatch failure") && why.contains("credential") => {
                Some(Self::no_credentials(environment, why))
            }
            StoreError::Unknown(why) => {
                let endpoint = environment.endpoint()?;
                if why.contains("failed to apply endpoint") {
                    let fix = "write it as http://HOST:PORT, or unset it";
                    return Some(Self::error(
                        "AWS_ENDPOINT_URL",
                        endpoint,
                        "is no address of a service",
                        fix,
                    ));
                }
                let local =
                    ["://127.", "://localhost", "://[::1]"].iter().any(|host| endpoint.contains(host));
                // Refused, or accepted and closed: the table is served by the operator's process.
                let refused = why.contains("refused") || why.contains("tcp connect");
                (local && refused).then(|| Self::nothing_listens(endpoint))
            }
            StoreError::Denied(_)
            | StoreError::Refused { .. }
            | StoreError::Contended
            | StoreError::Throttled
            | StoreError::NoTable(_)
            | StoreError::Invalid(_) => None,
        }
    }

    /// Returns the failure for a loopback address where no table is served.
    pub(crate) fn nothing_listens(endpoint: &str) -> Self {
        let fix = "start `runyard up` in its directory, or read the `env` of one that runs: `. DIR/env`";
        Self::error("AWS_ENDPOINT_URL", endpoint, "nothing listens there; is `runyard up` running?", fix)
    }

    /// Returns the failure for missing credentials, from the message of AWS's chain.
    fn no_credentials(environment: &Environment, why: &str) -> Self {
        let name = environment.get("AWS_PROFILE");
        let last = why.trim().trim_end_matches('.').rsplit(": ").next().unwrap_or_default();
        let none = ["no providers in chain", "no credentials found in chain", "IMDS is disabled"];
        let none = none.iter().any(|words| why.contains(words));
        let (said, profile) = (why.to_ascii_lowercase(), name.unwrap_or("default"));
        let (message, fix) = if !none && (said.contains("sso") || said.contains("login")) {
            let message = format!("the profile {profile} has not signed in, or its sign-in has expired");
            (message, format!("aws sso login --profile {profile}"))
        } else if !none && said.contains("process") {
            let message = format!("the profile {profile} names a program that gave none: {last}");
            (message, format!("see what it says: aws configure export-credentials --profile {profile}"))
        } else {
            let message = match name {
                _ if !none => format!("they cannot be loaded: {last}"),
                Some(name) => format!("the profile {name} has none, or is in no file of AWS's"),
                None => "there are none".to_owned(),
            };
            let fix = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a local yard: `. DIR/env` or \
                       --yard DIR";
            (message, fix.to_owned())
        };
        Self::error("AWS credentials", "", message, fix)
    }

    /// Returns the failure for a record that cannot be parsed.
    pub(crate) fn unreadable(record: &Unreadable) -> Self {
        Self::error(
            "record",
            record.key.to_string(),
            format!("cannot be read: {}", record.problem),
            "mend the attribute, or see `runyard doctor`",
        )
    }

    /// Returns the failure for a record of a newer program.
    pub(crate) fn newer(key: &str, schema: u64) -> Self {
        Self::error(
            "schema",
            schema.to_string(),
            format!("{key} was written by a newer runyard"),
            "update this one",
        )
    }
}

/// Collects problems, so that a person sees all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<FieldError>);

impl Problems {
    /// Adds a problem.
    pub(crate) fn add(&mut self, problem: FieldError) {
        self.0.push(problem);
    }

    /// Returns the value, or adds its problem and returns `None`.
    pub(crate) fn keep<T>(&mut self, result: Result<T, FieldError>) -> Option<T> {
        result.map_err(|problem| self.0.push(problem)).ok()
    }

    /// Returns a usage failure if there are problems.
    pub(crate) fn check(&mut self) -> CliResult {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(CliFailure { exit: Exit::Usage, problems: std::mem::take(&mut self.0) })
    }
}
