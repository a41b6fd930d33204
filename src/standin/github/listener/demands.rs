//! The requirements of GitHub's runner on its environment, and how it ends where GitHub refuses it: the list of
//! everything that the stand-in's package must refuse too, with the lines of actions/runner 2.336.0 (258d6c8) that each
//! comes from, and the checks that are not in the scripts. `tests/contracts/standin/demands.rs` has an environment that
//! lacks each.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use super::Exit;
use super::files::DIAG;
use crate::github::shared_state::Clock;

/// A requirement on the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A user other than root, or `RUNNER_ALLOW_RUNASROOT`.
    User,
    /// `ldd` in `PATH`.
    Ldd,
    /// Every library that three of the package's own are linked with. The stand-in's are linked with the same ones as
    /// .NET's.
    Libraries,
    /// `libicu` in the list of `ldconfig -NXv`, by `PATH` or in `/sbin`. Checked where [`PackageBehaviour::libicu`] is
    /// set, since a developer's machine may have none.
    ///
    /// [`PackageBehaviour::libicu`]: super::super::behaviour::PackageBehaviour::libicu
    Libicu,
    /// Of the programs in `PATH`, `cp` (`run.sh`) and `grep` (`config.sh`). Without `id`, `uname`, `dirname`, `touch`
    /// and `chmod` it continues, and leaves something out: the checks, `.env`, the mode of the key.
    Programs,
    /// The real path of `bin` is its apparent path: .NET derives the root from the real path of its program.
    RealPath,
    /// A root that its user can write to: `_diag` at each start, `run-helper.sh` in each round of `run.sh`, `.env`,
    /// `.path`, `svc.sh`, `.runner`.
    WritableRoot,
    /// Each directory from the root up to `/` can be listed, at each start.
    ListableRoot,
    /// The root is that of a registered runner.
    Registered,
    /// The same for `_work`, which it makes, before its session.
    ListableWork,
    /// The same for `_work`, by the worker for each job.
    ListableWorkOfJob,
    /// The template of `svc.sh` in `bin`, after the registration.
    ServiceTemplate,
}

impl Demand {
    /// All requirements, in the order in which they are checked.
    pub const ALL: [Self; 12] = [
        Self::User,
        Self::Ldd,
        Self::Libraries,
        Self::Libicu,
        Self::Programs,
        Self::RealPath,
        Self::WritableRoot,
        Self::ListableRoot,
        Self::Registered,
        Self::ListableWork,
        Self::ListableWorkOfJob,
        Self::ServiceTemplate,
    ];

    /// Returns the lines of actions/runner that check it, below `src`.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::User => "Misc/layoutroot/config.sh:6, run-helper.sh.template:5",
            Self::Ldd => "Misc/layoutroot/config.sh:14",
            Self::Libraries => "Misc/layoutroot/config.sh:23, :30, :37",
            Self::Libicu => "Misc/layoutroot/config.sh:55",
            Self::Programs => "Misc/layoutroot/run.sh:17, config.sh:55, env.sh:22",
            Self::RealPath => "Runner.Common/HostContext.cs:140, Runner.Listener/Program.cs:174",
            Self::WritableRoot => {
                "Runner.Common/HostTraceListener.cs:29, Misc/layoutroot/run.sh:17, env.sh:37"
            }
            Self::ListableRoot => "Runner.Sdk/Util/IOUtil.cs:431, Runner.Listener/Program.cs:93",
            Self::Registered => "Runner.Listener/Configuration/ConfigurationManager.cs:61",
            Self::ListableWork => "Runner.Listener/Runner.cs:419",
            Self::ListableWorkOfJob => "Runner.Worker/JobRunner.cs:151",
            Self::ServiceTemplate => "Runner.Listener/Configuration/SystemdControlManager.cs:30",
        }
    }

    /// Returns the runner's message where it is not met.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::User => "Must not run with sudo",
            Self::Ldd => "Can not find 'ldd'. Please install 'ldd' and try again.",
            Self::Libraries => "Dependencies is missing for Dotnet Core 6.0",
            Self::Libicu => "Libicu's dependencies is missing for Dotnet Core 6.0",
            Self::Programs => "cp: command not found",
            Self::RealPath | Self::WritableRoot => "Unhandled exception. System.UnauthorizedAccessException",
            Self::ListableRoot | Self::ListableWorkOfJob => {
                "Permission to read the directory contents is required for"
            }
            Self::Registered => {
                "An error occurred: Not configured. Run config.(sh/cmd) to configure the runner."
            }
            Self::ListableWork => "Fail to create and validate runner's work directory",
            Self::ServiceTemplate => "Could not find file",
        }
    }
}

/// How a listener ends, or continues, when GitHub refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its runner was deleted before it connected: it gets no token.
    DeletedBefore,
    /// Its runner was deleted while it listened.
    Deleted,
    /// Its version is refused when it asks for a message, and so after it reported that it listens. Exit code 7 only
    /// where the environment requests it.
    Deprecated,
    /// The session is refused, also for its version: never exit code 7.
    SessionRefused,
    /// Another session of the runner, dead or alive, is held: one attempt every 30 s, the eighth is the last.
    Conflict,
    /// The token service fails: it reports that it retries, and finally continues without a token, which is refused.
    NoToken,
    /// GitHub does not respond when it asks for a message: ten attempts, then exit code 2, upon which `run.sh` starts
    /// it again.
    PollFails,
    /// Its only job is done: its registration is removed.
    SpentSingleUse,
}

impl Ending {
    /// All endings.
    pub const ALL: [Self; 8] = [
        Self::DeletedBefore,
        Self::Deleted,
        Self::Deprecated,
        Self::SessionRefused,
        Self::Conflict,
        Self::NoToken,
        Self::PollFails,
        Self::SpentSingleUse,
    ];

    /// Returns the lines of actions/runner that it comes from, below `src`.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::DeletedBefore => "Runner.Listener/BrokerMessageListener.cs:193",
            Self::Deleted => "Runner.Listener/Runner.cs:823, :879",
            Self::Deprecated => "Sdk/WebApi/WebApi/BrokerHttpClient.cs:121, Runner.Listener/Program.cs:142",
            Self::SessionRefused => "Runner.Listener/BrokerMessageListener.cs:212",
            Self::Conflict => "Runner.Listener/BrokerMessageListener.cs:482",
            Self::NoToken => {
                "Sdk/WebApi/WebApi/OAuth/VssOAuthTokenProvider.cs:190, Runner.Listener/BrokerMessageListener.cs:518"
            }
            Self::PollFails => "Runner.Listener/BrokerMessageListener.cs:366",
            Self::SpentSingleUse => "Runner.Listener/Runner.cs:879",
        }
    }

    /// Returns its last message, on standard output or error.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::DeletedBefore => {
                "Failed to create a session. The runner registration has been deleted from the server, please \
                 re-configure. Runner registrations are automatically deleted for runners that have not connected to the \
                 service recently."
            }
            Self::Deleted => "The runner no longer exists on the server. Cleaning up local configuration.",
            Self::Deprecated => "is deprecated and cannot receive messages.",
            Self::SessionRefused => "Failed to create session. ",
            Self::Conflict => "Stop retry on SessionConflictException after retried for",
            Self::NoToken => "Failed to create session. You are not authorized to access",
            Self::PollFails => "An error occurred: ",
            Self::SpentSingleUse => "\u{221a} Removed .runner",
        }
    }

    /// Returns the exit code of the listener; `told` is whether the environment requests the code for a deprecated
    /// version.
    #[must_use]
    pub fn exit(self, told: bool) -> Exit {
        match self {
            Self::Deleted | Self::SpentSingleUse => Exit::Success,
            Self::DeletedBefore | Self::SessionRefused | Self::NoToken => Exit::Terminated,
            Self::Deprecated if told => Exit::Deprecated,
            Self::Deprecated => Exit::Terminated,
            Self::Conflict => Exit::SessionConflict,
            Self::PollFails => Exit::Retryable,
        }
    }
}

/// Checks that a directory, and each above it, can be listed.
///
/// # Errors
/// GitHub's message about the first that cannot.
pub(super) fn listable(directory: &Path) -> Result<(), String> {
    for place in directory.ancestors() {
        let looked = fs::read_dir(place).and_then(|mut entries| entries.next().transpose());
        match looked {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(format!(
                    "{} '{}' and each directory up the hierarchy. {}",
                    Demand::ListableRoot.words(),
                    directory.display(),
                    denied(place)
                ));
            }
            Err(error) => return Err(unlike(place, &error)),
        }
    }
    Ok(())
}

/// Creates the directory of jobs, which must be listable too.
pub(super) fn work_folder(work: &Path) -> Result<(), String> {
    fs::create_dir_all(work).map_err(|error| unlike(work, &error))?;
    listable(work)
}

/// Begins the log of this start.
///
/// # Errors
/// .NET's message when it is terminated.
pub(super) fn begin_log(root: &Path, clock: &Clock) -> Result<(), String> {
    let (diag, now) = (root.join(DIAG), clock());
    let log = diag.join(format!("Runner_{}-utc.log", now.strftime("%Y%m%d-%H%M%S")));
    let write = || -> io::Result<()> {
        fs::create_dir_all(&diag)?;
        writeln!(File::create(&log)?, "[{now}] Runner is built for Linux.")
    };
    write().map_err(|error| format!("{}: {}", Demand::WritableRoot.words(), unlike(&diag, &error)))
}

fn denied(place: &Path) -> String {
    format!("Access to the path '{}' is denied.", place.display())
}

/// Formats an error as .NET does.
fn unlike(place: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => denied(place),
        ErrorKind::NotFound => format!("Could not find a part of the path '{}'.", place.display()),
        _ => format!("{error} : '{}'", place.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_names_its_source_and_its_words() {
        for (source, words) in Demand::ALL.map(|one| (one.source(), one.words())) {
            assert!(source.contains(':') && !words.is_empty(), "{source} {words}");
        }
        for (source, words) in Ending::ALL.map(|one| (one.source(), one.words())) {
            assert!(source.contains(".cs:") && !words.is_empty(), "{source} {words}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused_in_the_words_of_dotnet() {
        let told = listable(Path::new("/nonexistent/runner")).unwrap_err();
        assert_eq!(told, "Could not find a part of the path '/nonexistent/runner'.");
    }
}
