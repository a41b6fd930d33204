//! The listener in the stand-in's runner package, behind `config.sh` and `run.sh`. Its command line, files, messages
//! and exit codes are those of the real one, as far as an agent can distinguish them.

mod args;
mod calls;
mod configure;
mod containers;
pub mod demands;
mod files;
mod job;
mod listen;
mod process;
mod trouble;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::behaviour::{Pace, PackageBehaviour};
use super::package::BEHAVIOUR;
pub use super::shared_state::Clock;
use args::Command;

/// Requests a separate exit code where GitHub does not accept runners of this version any more.
const TELL_DEPRECATED: &str = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE";
/// Names the script that is called before each job.
const HOOK: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";

/// When the package's script began, in seconds with six places.
const BEGAN: &str = "ACTIONS_RUNNER_STAND_IN_BEGAN";

/// The exit codes of the real listener that the stand-in can have a reason for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or asked to stop.
    Success,
    /// A retry is of no use.
    Terminated,
    /// A retry may help.
    Retryable,
    /// The runner is connected from elsewhere.
    SessionConflict,
    /// GitHub does not accept runners of this version any more, and the environment requests this exit code.
    Deprecated,
    /// .NET was terminated by an uncaught exception.
    Crashed,
}

impl Exit {
    /// Returns the exit code for the operating system.
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
/// environment variables that begin with `ACTIONS_RUNNER_`: the package uses some in place of options, and one names
/// its hook. `root` is the package's folder. Writes to standard output and error as the real one does.
pub async fn run(root: &Path, args: &[String], inputs: &BTreeMap<String, String>, clock: Clock) -> Exit {
    let (behaviour, inputs) = (behaviour(root), with_file(root, inputs));
    let pace = Takes::new(args, &inputs, behaviour.pace, &clock);
    tokio::time::sleep(pace.first_half(clock())).await;
    if let Err(problem) = demands::begin_log(root, &clock) {
        eprintln!("{problem}");
        return Exit::Crashed;
    }
    if let Err(problem) = demands::listable(root) {
        eprintln!("An error occurred: {problem}");
        return Exit::Terminated;
    }
    let outcome = match args::parse(args, &inputs) {
        Ok(Command::Configure(options)) => {
            let configured = configure::configure(root, options, &behaviour).await;
            tokio::time::sleep(pace.rest(clock())).await;
            configured
        }
        Ok(Command::Remove(options)) => configure::remove(root, options, &behaviour).await,
        Ok(Command::Run(options)) => {
            let (told, hook) = (flag(&inputs, TELL_DEPRECATED), hook(&inputs));
            return listen::listen(root, options, hook, clock, behaviour, (told, pace)).await;
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

/// When the package's script was started, and how long after that GitHub's script ends, or listens. The time that this
/// program takes is a part of it.
struct Takes {
    began: Timestamp,
    whole: Duration,
}

impl Takes {
    fn new(args: &[String], inputs: &BTreeMap<String, String>, pace: Pace, clock: &Clock) -> Self {
        let whole = match args.first().map(String::as_str) {
            Some("configure") => pace.config(),
            Some(_) | None => pace.listen(),
        };
        // Some languages use a comma in it.
        let told = inputs.get(BEGAN).and_then(|seconds| seconds.replace([',', '.'], "").parse().ok());
        let began = told.and_then(|micros| Timestamp::from_microsecond(micros).ok());
        Self { began: began.unwrap_or_else(clock.as_ref()), whole }
    }

    /// Returns the rest of the time before it does anything: a .NET start.
    fn first_half(&self, now: Timestamp) -> Duration {
        self.left(self.whole / 2, now)
    }

    /// Returns the rest of the whole time.
    fn rest(&self, now: Timestamp) -> Duration {
        self.left(self.whole, now)
    }

    fn left(&self, of: Duration, now: Timestamp) -> Duration {
        of.saturating_sub(Duration::try_from(now.duration_since(self.began)).unwrap_or_default())
    }
}

/// Returns the environment, overridden by the file `.env` beside the package (actions/runner, `Program.cs:153`).
fn with_file(root: &Path, inputs: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let file = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
    let lines = file.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| !name.is_empty());
    let told = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
    inputs.clone().into_iter().chain(told).collect()
}

/// Parses a flag as .NET's runner does (actions/runner, `StringUtil.cs`).
fn flag(inputs: &BTreeMap<String, String>, name: &str) -> bool {
    let value = inputs.get(name).map(|value| value.to_ascii_lowercase());
    value.is_some_and(|value| ["1", "true", "$true"].contains(&value.as_str()))
}

/// Returns the behaviour of the package; the default where it has no file.
fn behaviour(root: &Path) -> PackageBehaviour {
    let read = std::fs::read(root.join(BEHAVIOUR)).ok();
    read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Returns the script that is called before each job.
fn hook(inputs: &BTreeMap<String, String>) -> Option<PathBuf> {
    inputs.get(HOOK).filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(micros).unwrap()
    }

    #[test]
    fn it_takes_as_long_as_githubs_from_the_start_of_its_script() {
        let clock: Clock = Arc::new(|| at(5_100_000));
        for began in ["5.000000", "5,000000"] {
            let inputs = BTreeMap::from([(BEGAN.to_owned(), began.to_owned())]);
            let takes = Takes::new(&["configure".to_owned()], &inputs, Pace::Github, &clock);
            assert_eq!(takes.first_half(clock()), Duration::from_millis(250));
            assert_eq!(takes.rest(clock()), Duration::from_millis(600));
            assert_eq!(takes.rest(at(5_700_001)), Duration::ZERO);
        }
        let listens = Takes::new(&["run".to_owned()], &BTreeMap::new(), Pace::Github, &clock);
        assert_eq!(listens.rest(clock()), Duration::from_millis(520));
        let unpaced = Takes::new(&["run".to_owned()], &BTreeMap::new(), Pace::None, &clock);
        assert_eq!(unpaced.rest(clock()), Duration::ZERO);
    }

    #[test]
    fn the_file_env_goes_before_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = BTreeMap::from([(HOOK.to_owned(), "/hook.sh".to_owned())]);
        assert_eq!(hook(&with_file(dir.path(), &inputs)), Some("/hook.sh".into()));
        std::fs::write(dir.path().join(".env"), format!("LANG=C\n{HOOK}=\n")).unwrap();
        assert_eq!(hook(&with_file(dir.path(), &inputs)), None);
    }
}
