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
    /// SIGINT: Ctrl-C, or a workflow that was cancelled.
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

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// Why a verb ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Something went wrong, or was refused after looking.
    Error,
    /// The table did not answer this once: whoever waits asks again.
    Unanswered,
    /// What could be refused without the network.
    Usage,
    /// The request failed.
    RequestFailed,
    /// The wait ended before what was waited for.
    TimedOut,
    /// A signal ended the wait.
    Signal(Caught),
}

impl Exit {
    /// The process's exit code, as the contract has it.
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

/// What a verb that did not succeed says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliFailure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What is wrong; at least one.
    pub(crate) problems: Vec<FieldError>,
}

impl fmt::Display for CliFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&problems.join("; "))
    }
}

/// What verbs answer.
pub(crate) type CliResult<T = ()> = Result<T, CliFailure>;

impl CliFailure {
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

    /// Whether it says that what was named is not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.problems.iter().all(|problem| problem.message.starts_with("there is no such "))
    }

    /// The same with another exit code.
    #[must_use]
    pub(crate) fn exiting(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// What the table answered, with what a person does about it.
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

    /// What is wrong with our own surroundings rather than with the table, in one sentence.
    fn of_environment(environment: &Environment, error: &StoreError) -> Option<Self> {
        match error {
            // Not a service's answer: nothing was sent for want of them.
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
                // Refused, or accepted by somebody who hung up: the operator's process serves the table.
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

    /// Nobody serves a table at this address of our own machine.
    pub(crate) fn nothing_listens(endpoint: &str) -> Self {
        let fix = "start `runyard up` in its directory, or read the `env` of one that runs: `. DIR/env`";
        Self::error("AWS_ENDPOINT_URL", endpoint, "nothing listens there; is `runyard up` running?", fix)
    }

    /// What AWS's chain of credentials said when it had none.
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
    pub(crate) fn check(&mut self) -> CliResult {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(CliFailure { exit: Exit::Usage, problems: std::mem::take(&mut self.0) })
    }
}
