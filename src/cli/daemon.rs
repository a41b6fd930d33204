//! The verbs that stay: the operator, and local mode. They take their settings from the configuration and have a log of
//! their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::failure::{Exit, Failure, Outcome};
use crate::config::{Config, environment};
use crate::model::{FieldError, TableName};
use crate::wire::{self, WireError};

/// Runs the operator.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runyard operator --config /etc/runyard.toml
  RUNYARD_COMPUTE__KIND=none RUNYARD_QUEUE__KIND=memory runyard operator")]
pub struct OperatorArgs {
    /// The configuration; every key can also be set as RUNYARD_<SECTION>__<KEY>
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs everything on this machine.
#[cfg(feature = "local")]
#[derive(Debug, Args)]
#[command(after_help = "\
The table, the stand-in GitHub and the machines live in the directory and are found again by the next `up`, also after
a kill -9. Ctrl-C ends the machines; requests stay and are served again next time.
A real GitHub: set RUNYARD_GITHUB__TOKEN_FILE (or RUNYARD_GITHUB__APP_ID and RUNYARD_GITHUB__APP_KEY_FILE) and
RUNYARD_AGENT__RUNNER_URL, RUNYARD_AGENT__RUNNER_SHA256, RUNYARD_AGENT__RUNNER_VERSION.

Examples:
  runyard up
  runyard up --dir /var/lib/runyard")]
pub struct UpArgs {
    /// Where everything is kept [default: $RUNYARD_DIR, else .runyard]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What the stand-in's runner package calls.
#[cfg(feature = "local")]
#[derive(Debug, Args)]
pub struct RunnerArgs {
    /// The package's folder
    #[arg(long)]
    root: PathBuf,
    /// The command and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// What the daemon's configuration reads: our environment, with `--table` in it.
fn surroundings(table: Option<&TableName>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = environment().collect();
    all.extend(table.map(|table| ("RUNYARD_TABLE".to_owned(), table.to_string())));
    all
}

/// Runs the operator until a signal stops it.
pub async fn operator(args: &OperatorArgs, table: Option<&TableName>) -> Outcome {
    let environment = surroundings(table);
    let given = environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    let config = Config::load(args.config.as_deref(), given).map_err(|error| of_wire(error.into()))?;
    // There is no other subscriber in this process; if there were, it would do.
    let _ = crate::telemetry::init(&config.log);
    wire::operator(&config, &environment).await.map_err(of_wire)
}

/// Runs local mode until a signal stops it.
#[cfg(feature = "local")]
pub async fn up(args: &UpArgs, table: Option<&TableName>) -> Outcome {
    crate::local::up::run(args.dir.clone(), &surroundings(table)).await.map_err(of_local)
}

/// Runs the demonstration.
#[cfg(feature = "local")]
pub async fn demo(table: Option<&TableName>) -> Outcome {
    if crate::local::demo::run(&surroundings(table)).await.map_err(of_local)? {
        return Ok(());
    }
    Err(Failure::error("demo", "", "not everything is as it should be", "see the lines marked ✗ above"))
}

/// Plays the stand-in's runner; answers the exit code it ends with.
#[cfg(feature = "local")]
pub async fn runner(args: &RunnerArgs) -> u8 {
    use std::sync::Arc;

    use crate::clock::SystemClock;
    use crate::ports::Clock as _;

    let inputs = environment().filter(|(name, _)| name.starts_with("ACTIONS_RUNNER_INPUT_")).collect();
    let clock = SystemClock::new();
    let clock: crate::local::standin::listener::Clock = Arc::new(move || clock.now());
    crate::local::standin::listener::run(&args.root, &args.rest, &inputs, clock).await.code()
}

fn of_wire(error: WireError) -> Failure {
    match error {
        WireError::Config(errors) => Failure { exit: Exit::Usage, problems: errors.problems().to_vec() },
        WireError::Key(problem) => Failure { exit: Exit::Usage, problems: vec![problem] },
        other => stopped(&other),
    }
}

#[cfg(feature = "local")]
fn of_local(error: crate::local::setup::LocalModeError) -> Failure {
    match error {
        crate::local::setup::LocalModeError::Wire(error) => of_wire(error),
        other => stopped(&other),
    }
}

fn stopped(error: &dyn std::error::Error) -> Failure {
    let problem = FieldError::new("operator", "", error.to_string(), "see the log above");
    Failure { exit: Exit::Error, problems: vec![problem] }
}
