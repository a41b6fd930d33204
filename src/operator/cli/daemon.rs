//! `runyard operator`: starts the operator with its environment and maps its end to an exit code.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::failure::{CliFailure, CliResult};
use crate::config::{self, Config};
use crate::model::{FieldError, TableName};
use crate::telemetry;
use crate::wire::{self, WireError};

/// Runs the daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Every key of the file can be set by the environment too: RUNYARD_<SECTION>__<KEY>, such as RUNYARD_TIMING__STALE=90s.

Example:
  runyard operator --config /etc/runyard/runyard.toml")]
pub(crate) struct OperatorArgs {
    /// The configuration; config/default.toml is its reference
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// `runyard operator`.
pub(crate) fn operator(args: &OperatorArgs, table: Option<TableName>) -> CliResult {
    let environment_variables = environment_variables(table);
    let config = Config::load(args.config.as_deref(), environment_variables.clone().into_iter())
        .map_err(|errors| of_wire(&WireError::Config(errors)))?;
    telemetry::init(&config.log)
        .map_err(|error| CliFailure::error("log", "", error.to_string(), "run the command again"))?;
    runtime()?.block_on(wire::operator(&config, &environment_variables)).map_err(|error| of_wire(&error))
}

/// The environment, with what the command line says over it.
pub(super) fn environment_variables(table: Option<TableName>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = config::environment().collect();
    all.extend(table.map(|table| ("RUNYARD_TABLE".to_owned(), table.to_string())));
    all
}

pub(super) fn runtime() -> CliResult<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| CliFailure::error("runtime", "", error.to_string(), "run the command again"))
}

/// Why the operator did not start or stopped, with the configuration's problems as wrong usage.
pub(super) fn of_wire(error: &WireError) -> CliFailure {
    let problem = match error {
        WireError::Config(errors) => Some(CliFailure::all_usage(errors.problems().to_vec())),
        WireError::Key(problem) => Some(CliFailure::usage(problem.clone())),
        WireError::ApiUrl(error) => {
            let fix = "use https://api.github.com or your server's https://HOST/api/v3";
            Some(CliFailure::usage(FieldError::new("github.api_url", "", error.to_string(), fix)))
        }
        #[cfg(feature = "local")]
        WireError::Local(_) => None,
        WireError::GitHub(_) | WireError::Operator(_) | WireError::System(..) | WireError::Aborted => None,
    };
    problem.unwrap_or_else(|| {
        CliFailure::error("operator", "", said(error), "mend what is said, then start it again")
    })
}

/// An error and what caused it.
pub(super) fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
