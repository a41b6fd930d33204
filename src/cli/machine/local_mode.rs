//! The verbs of local mode: `runyard up`, `runyard demo`, and the process inside the stand-in's runner package.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser};

use super::daemon::{environment_variables, of_wire, runtime, said};
use crate::common::failure::{CliFailure, CliResult};
use crate::machine::opened_environment::LocalModeError;
use crate::machine::{demo, up};
use runyard_core::model::TableName;
use runyard_core::ports::Clock as _;
use runyard_operator::config;
use runyard_operator::process::clock::SystemClock;
use runyard_standin::github::listener;
use runyard_standin::local_environment::LocalEnvironmentError;

/// Runs everything on this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
The table is an embedded engine on loopback, machines are child processes, GitHub is a stand-in unless the environment \
names a real one (RUNYARD_GITHUB__TOKEN_FILE or RUNYARD_GITHUB__APP_ID, and the runner package by RUNYARD_AGENT__RUNNER_URL, \
_SHA256 and _VERSION). Ctrl-C ends it and its machines; the directory keeps the table, and what still wants machines gets \
new ones at the next start. After a kill -9 the next start finds its machines again.

Example:
  runyard up --dir ~/yard")]
pub(crate) struct UpArgs {
    /// Data directory [default: $RUNYARD_DIR, else .runyard in the working directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The first argument with which the scripts of the stand-in's runner package start the process inside it. It is not a
/// verb, so that help and completions do not show it.
pub(crate) const STAND_IN_RUNNER: &str = "stand-in-runner";

/// The process inside the stand-in's runner package.
#[derive(Debug, Parser)]
pub(crate) struct RunnerArgs {
    /// The package's folder
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// As the package's scripts pass them on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Runs `runyard up`.
pub(crate) fn up(args: UpArgs, table: Option<TableName>) -> CliResult {
    runtime()?.block_on(up::run(args.dir, &environment_variables(table))).map_err(|error| of_local(&error))
}

/// Runs `runyard demo`.
pub(crate) fn demo(table: Option<TableName>) -> CliResult {
    let good =
        runtime()?.block_on(demo::run(&environment_variables(table))).map_err(|error| of_local(&error))?;
    if good {
        return Ok(());
    }
    let fix = "look at what it says above and at the directory it left";
    Err(CliFailure::error("demo", "", "not everything went as it should", fix))
}

/// Runs `runyard stand-in-runner`: its exit codes are the real runner's, not ours.
pub(crate) fn stand_in_runner(args: &RunnerArgs) -> CliResult<ExitCode> {
    let inputs = config::environment().filter(|(name, _)| name.starts_with("ACTIONS_RUNNER_")).collect();
    let exit = runtime()?.block_on(async {
        let clock = SystemClock::new();
        listener::run(&args.root, &args.arguments, &inputs, Arc::new(move || clock.now())).await
    });
    Ok(ExitCode::from(exit.code()))
}

fn of_local(error: &LocalModeError) -> CliFailure {
    match error {
        LocalModeError::Wire(error) => of_wire(error),
        LocalModeError::Environment(LocalEnvironmentError::Locked { dir, pid }) => {
            let message = format!("is served by another `runyard` (pid {pid})");
            let fix = "stop that one, or use another --dir";
            CliFailure::error("--dir", dir.display().to_string(), message, fix)
        }
        LocalModeError::Environment(LocalEnvironmentError::Io { path, source }) => {
            let message = format!("cannot be used: {source}");
            CliFailure::error("--dir", path.display().to_string(), message, of_kind(source.kind()))
        }
        LocalModeError::Environment(_)
        | LocalModeError::Table(_)
        | LocalModeError::Shape { .. }
        | LocalModeError::Demo(_)
        | LocalModeError::System(..) => {
            CliFailure::error("local", "", said(error), "mend what is said, then start it again")
        }
    }
}

/// Returns the fix for a data directory that the system refuses.
fn of_kind(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "name a directory, or a path where one can be made"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "name a directory that you may write to"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there, or name another --dir",
        // `ErrorKind` is not exhaustive.
        _ => "check that path, or name another --dir",
    }
}
