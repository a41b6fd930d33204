//! The listener in the stand-in's runner package, behind `config.sh` and `run.sh`. Its command line, files, messages
//! and exit codes are those of the real one, as far as an agent can tell them apart.

mod args;
mod calls;
mod configure;
mod files;
mod job;
mod listen;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use super::shared_state::Clock;
use args::Command;

/// Names the script that is called before each job.
const HOOK: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";

/// The real listener's exit codes, those that the stand-in can have a reason for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or asked to stop.
    Success,
    /// No use trying again.
    Terminated,
    /// Worth another try.
    Retryable,
    /// The runner is connected from elsewhere.
    SessionConflict,
}

impl Exit {
    /// The number for the operating system.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Terminated => 1,
            Self::Retryable => 2,
            Self::SessionConflict => 5,
        }
    }
}

/// Runs one command of the package: `configure …`, `remove …` or `run …`, as its scripts pass it on. `inputs` are the
/// environment variables that begin with `ACTIONS_RUNNER_`: some the package takes in place of options, one names its
/// hook. `root` is the package's folder. Speaks to standard output and error as the real one does.
pub async fn run(root: &Path, args: &[String], inputs: &BTreeMap<String, String>, clock: Clock) -> Exit {
    let outcome = match args::parse(args, inputs) {
        Ok(Command::Configure(options)) => configure::configure(root, options).await,
        Ok(Command::Remove(options)) => configure::remove(root, options).await,
        Ok(Command::Run(options)) => return listen::listen(root, options, hook(root, inputs), clock).await,
        Err(problem) => Err(problem),
    };
    match outcome {
        Ok(()) => Exit::Success,
        Err(problem) => {
            eprintln!("{problem}");
            Exit::Terminated
        }
    }
}

/// What is called before each job: as the environment says, or the file `.env` beside the package, which goes before it
/// as the real one has it (actions/runner, `Program.cs`).
fn hook(root: &Path, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let file = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
    let told = file.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| *name == HOOK);
    let named = told.map(|(_, path)| path.to_owned()).or_else(|| environment.get(HOOK).cloned());
    named.filter(|path| !path.is_empty()).map(PathBuf::from)
}
