//! A workflow's step on the caller's ports: `runyard provision` and `runyard release` without a process of their own.
//! The simulation runs the commands this way, so that the steps of workflows are tested under every fault too.

use std::iter;
use std::sync::Arc;

use clap::Parser as _;

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::output::screen::Screen;
use crate::session::context::CliContext;
use crate::session::verb::Verb as _;
use crate::session::yards;
use crate::verbs::{AnyVerb, Cli, Once};
use runyard_core::model::FieldError;
use runyard_core::ports::{Clock, Entropy, Store};

/// The ports of a step.
pub struct StepPorts {
    /// The table.
    pub store: Arc<dyn Store>,
    /// The wall clock of the machine it runs on.
    pub clock: Arc<dyn Clock>,
    /// The source of names of events.
    pub entropy: Arc<dyn Entropy>,
}

/// The failure of a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exit code {code}: {message}")]
pub struct StepFailed {
    /// The exit code by the contract: 1 to 4, or 128 plus a signal's number.
    pub code: u8,
    /// The command's message.
    pub message: String,
}

/// Runs `runyard` with these arguments and an empty environment; its output is discarded.
///
/// # Errors
/// The command does not succeed, or it is neither `provision` nor `release`.
pub async fn step(ports: StepPorts, arguments: &[&str]) -> Result<(), StepFailed> {
    let parsed = Cli::try_parse_from(iter::once(&"runyard").chain(arguments));
    let cli = match parsed {
        Ok(cli) => cli,
        // Help and versions.
        Err(error) if !error.use_stderr() => return Ok(()),
        Err(error) => return Err(StepFailed { code: Exit::Usage.code(), message: error.to_string() }),
    };
    run(ports, cli)
        .await
        .map_err(|failure| StepFailed { code: failure.exit.code(), message: failure.to_string() })
}

async fn run(ports: StepPorts, cli: Cli) -> CliResult {
    let environment = Environment::default();
    let StepPorts { store, clock, entropy } = ports;
    let (table, screen) = (
        yards::table_of(cli.common.table.as_ref(), &environment)?,
        Screen::nowhere(cli.common.output.format),
    );
    let mut context = CliContext {
        store,
        history: None,
        queue: None,
        doorbell: None,
        clock,
        entropy,
        table,
        environment,
        screen,
    };
    match &cli.verb {
        AnyVerb::Once(Once::Provision(args)) => return args.run_on(&mut context).await,
        AnyVerb::Once(Once::Release(args)) => return args.run_on(&mut context).await,
        AnyVerb::Once(_) | AnyVerb::Process(_) => {}
    }
    let problem = FieldError::new("verb", "", "is no step of a workflow", "use provision or release");
    Err(CliFailure::usage(problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_fakes::{MemoryStore, SeededEntropy, TokioClock};

    async fn on(store: &MemoryStore, line: &str) -> Result<(), u8> {
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let entropy = Arc::new(SeededEntropy::new(1));
        let ports = StepPorts { store: Arc::new(store.clone()), clock, entropy };
        let arguments: Vec<&str> = line.split(' ').collect();
        step(ports, &arguments).await.map_err(|failed| failed.code)
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_asks_and_gives_back_and_ends_with_the_codes_of_the_contract() {
        let store = MemoryStore::new();
        let run = "--run-id 1 --repository acme/web";
        assert_eq!(on(&store, "--help").await, Ok(()));
        assert_eq!(on(&store, "get instances").await, Err(2), "no step of a workflow");
        assert_eq!(on(&store, &format!("provision {run} --class linux --count 0")).await, Err(2));
        assert_eq!(store.records().len(), 0, "nothing was reached");
        assert_eq!(on(&store, &format!("provision {run} --class linux --count 1")).await, Ok(()));
        assert_eq!(on(&store, &format!("provision {run} --class linux --count 2")).await, Err(1), "another");
        assert_eq!(on(&store, &format!("release {run}")).await, Ok(()));
        let waited = format!("provision {run} --name late --class linux --count 1 --timeout 1s --wait");
        assert_eq!(on(&store, &waited).await, Err(4), "nobody serves it");
    }
}
