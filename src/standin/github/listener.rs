//! The listener in the stand-in's runner package, behind `config.sh` and `run.sh`. Its command line, files, messages
//! and exit codes are those of the real one, as far as an agent can tell them apart.

mod args;
mod calls;
mod configure;
pub mod demands;
mod files;
mod job;
mod listen;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::behaviour::{Pace, PackageBehaviour};
use super::package::BEHAVIOUR;
pub use super::shared_state::Clock;
use args::Command;
pub(super) use configure::split as scope_of;

/// Asks for an exit code of its own where GitHub takes no runner of this version any more.
const TELL_DEPRECATED: &str = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE";
/// Names the script that is called before each job.
const HOOK: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";

/// When the package's script began, in seconds with six places.
const BEGAN: &str = "ACTIONS_RUNNER_STAND_IN_BEGAN";

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
    /// .NET was torn down by an exception that nobody caught.
    Crashed,
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
            Self::Crashed => 134,
        }
    }
}

/// Runs one command of the package: `configure …`, `remove …` or `run …`, as its scripts pass it on. `inputs` are the
/// environment variables that begin with `ACTIONS_RUNNER_`: some the package takes in place of options, one names its
/// hook. `root` is the package's folder. Speaks to standard output and error as the real one does.
pub async fn run(root: &Path, args: &[String], inputs: &BTreeMap<String, String>, clock: Clock) -> Exit {
    let (behaviour, inputs) = (behaviour(root), with_file(root, inputs));
    let starts = Starts::new(args, &inputs, behaviour.pace, &clock);
    tokio::time::sleep(starts.wait(&clock)).await;
    if let Err(problem) = demands::begin_log(root, &clock) {
        eprintln!("{problem}");
        return Exit::Crashed;
    }
    if let Err(problem) = demands::listable(root) {
        eprintln!("An error occurred: {problem}");
        return Exit::Terminated;
    }
    let outcome = match args::parse(args, &inputs) {
        Ok(Command::Configure(options)) => configure::configure(root, options, &behaviour).await,
        Ok(Command::Remove(options)) => configure::remove(root, options, &behaviour).await,
        Ok(Command::Run(options)) => {
            let (told, hook) = (flag(&inputs, TELL_DEPRECATED), hook(&inputs));
            return listen::listen(root, options, hook, clock, behaviour, told).await;
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

/// When the package's script was started, and how long after that GitHub's listener is as far.
struct Starts {
    began: Timestamp,
    takes: Duration,
}

impl Starts {
    fn new(args: &[String], inputs: &BTreeMap<String, String>, pace: Pace, clock: &Clock) -> Self {
        let takes = match args.first().map(String::as_str) {
            Some("configure") => pace.config(),
            Some(_) | None => pace.listen(),
        };
        // Some languages have a comma in it.
        let told = inputs.get(BEGAN).and_then(|seconds| seconds.replace([',', '.'], "").parse().ok());
        let began = told.and_then(|micros| Timestamp::from_microsecond(micros).ok());
        Self { began: began.unwrap_or_else(clock.as_ref()), takes }
    }

    /// What is left of that time.
    fn wait(&self, clock: &Clock) -> Duration {
        let passed = Duration::try_from(clock().duration_since(self.began)).unwrap_or_default();
        self.takes.saturating_sub(passed)
    }
}

/// The environment, over which the file `.env` beside the package goes (actions/runner, `Program.cs:153`).
fn with_file(root: &Path, inputs: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let file = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
    let lines = file.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| !name.is_empty());
    let told = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
    inputs.clone().into_iter().chain(told).collect()
}

/// As .NET's runner reads a flag (actions/runner, `StringUtil.cs`).
fn flag(inputs: &BTreeMap<String, String>, name: &str) -> bool {
    let value = inputs.get(name).map(|value| value.to_ascii_lowercase());
    value.is_some_and(|value| ["1", "true", "$true"].contains(&value.as_str()))
}

/// How the package behaves; as usual where it does not say.
fn behaviour(root: &Path) -> PackageBehaviour {
    let read = std::fs::read(root.join(BEHAVIOUR)).ok();
    read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// What is called before each job.
fn hook(inputs: &BTreeMap<String, String>) -> Option<PathBuf> {
    inputs.get(HOOK).filter(|path| !path.is_empty()).map(PathBuf::from)
}
