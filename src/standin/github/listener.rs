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

use super::behaviour::PackageBehaviour;
use super::package::BEHAVIOUR;
pub use super::shared_state::Clock;
use args::Command;
pub(super) use configure::split as scope_of;

/// Asks for an exit code of its own where GitHub takes no runner of this version any more.
const TELL_DEPRECATED: &str = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE";
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
    /// GitHub takes no runner of this version any more, and the environment asks for this number.
    Deprecated,
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
            Self::Deprecated => 7,
        }
    }
}

/// Runs one command of the package: `configure …`, `remove …` or `run …`, as its scripts pass it on. `inputs` are the
/// environment variables that begin with `ACTIONS_RUNNER_`: some the package takes in place of options, one names its
/// hook. `root` is the package's folder. Speaks to standard output and error as the real one does.
pub async fn run(root: &Path, args: &[String], inputs: &BTreeMap<String, String>, clock: Clock) -> Exit {
    let behaviour = behaviour(root);
    tokio::time::sleep(behaviour.start).await;
    let outcome = match args::parse(args, inputs) {
        Ok(Command::Configure(options)) => configure::configure(root, options, &behaviour).await,
        Ok(Command::Remove(options)) => configure::remove(root, options, &behaviour).await,
        Ok(Command::Run(options)) => {
            let exit = listen::listen(root, options, hook(root, inputs), clock, behaviour).await;
            let told =
                exit == Exit::Deprecated && inputs.get(TELL_DEPRECATED).is_none_or(|value| value != "1");
            return if told { Exit::Terminated } else { exit };
        }
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

/// How the package behaves; as usual where it does not say.
fn behaviour(root: &Path) -> PackageBehaviour {
    let read = std::fs::read(root.join(BEHAVIOUR)).ok();
    read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// What is called before each job: as the environment says, or the file `.env` beside the package, which goes before it
/// as the real one has it (actions/runner, `Program.cs`).
fn hook(root: &Path, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let file = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
    let told = file.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| *name == HOOK);
    let named = told.map(|(_, path)| path.to_owned()).or_else(|| environment.get(HOOK).cloned());
    named.filter(|path| !path.is_empty()).map(PathBuf::from)
}
