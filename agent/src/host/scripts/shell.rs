//! Starts scripts with a minimal environment, in a process group of their own, and with marks that identify them and
//! all their descendants.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use runyard_core::model::ClaimId;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::host::files::layout::ClaimDirs;
use crate::host::users::child::PATH;
use crate::host::users::keys::in_own_session;
use crate::host::{Host, JobGroup};

/// Time limit while a script is still open for writing, and the interval between two attempts.
const WRITTEN: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(10);

/// The result of a script.
#[derive(Debug)]
pub(crate) enum ScriptEnd {
    /// It succeeded.
    Done,
    /// It failed, with a description.
    Failed(String),
    /// It exceeded its time limit.
    TimedOut,
}

/// Returns the mark of a claim's processes.
pub(crate) fn claim_mark(claim: &ClaimId) -> String {
    format!("RUNYARD_CLAIM={claim}")
}

/// Returns the mark of a machine's processes.
pub(crate) fn machine_mark(machine: &str) -> String {
    format!("RUNYARD_MACHINE={machine}")
}

impl Host {
    /// Creates a command with the environment that every script of this machine gets.
    pub(crate) fn script(&self, path: &Path, home: &Path, tmp: &Path) -> Command {
        let mut command = Command::new(path);
        command
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .envs(self.settings.variables.iter().map(|(name, value)| (name, value)))
            .env("HOME", home)
            .env("TMPDIR", tmp)
            .env("RUNYARD_MACHINE", &self.settings.machine)
            .process_group(0)
            .stdin(Stdio::null());
        command
    }

    /// Creates the command for a script of the runner package, for a claim, as the job user; if jobs are isolated, with
    /// its path inside the jail. An `open` machine belongs to its jobs, and only there can a script become root.
    pub(crate) fn runner_script(
        &self,
        name: &str,
        package: &Path,
        claim: &ClaimId,
        dirs: &ClaimDirs,
        open: bool,
    ) -> Command {
        let isolation = self.settings.isolation.as_ref().filter(|_| !open);
        let mut command = match isolation {
            Some(isolation) => {
                let package =
                    self.layout.inside().root.join(package.strip_prefix(&dirs.root).unwrap_or(package));
                let mut command = self.script(&package.join(name), &isolation.home, Path::new("/tmp"));
                command.current_dir(package);
                command
            }
            None => {
                let script = package.join(name);
                let mut command = if self.settings.account.is_some() && !open {
                    let mut tamed = self.script(Path::new("setpriv"), &dirs.home(), &dirs.tmp());
                    tamed.arg("--no-new-privs").arg(script);
                    tamed
                } else {
                    self.script(&script, &dirs.home(), &dirs.tmp())
                };
                command.current_dir(package);
                command
            }
        };
        command.env("RUNYARD_CLAIM", claim.as_str());
        match &self.settings.account {
            // The jail switches to the user at the end of its setup.
            Some(account) if isolation.is_some() => {
                command.env("USER", &account.name).env("LOGNAME", &account.name);
            }
            Some(account) => {
                command.uid(account.uid).gid(account.gid);
                command.env("USER", &account.name).env("LOGNAME", &account.name);
            }
            // GitHub's scripts refuse to run as root unless this is set.
            None if nix::unistd::geteuid().is_root() => drop(command.env("RUNNER_ALLOW_RUNASROOT", "1")),
            None => {}
        }
        command
    }
}

/// Starts a script that writes to a new log, in a control group if one is given.
pub(crate) async fn spawn(mut command: Command, log: &Path, group: Option<&JobGroup>) -> io::Result<Child> {
    let out = crate::system::disk::create_anew(log)?;
    command.stdout(out.try_clone()?).stderr(out);
    let end = Instant::now() + WRITTEN;
    loop {
        let started = match group {
            Some(group) => group.start(|| in_own_session(|| command.spawn())),
            None => in_own_session(|| command.spawn()),
        };
        match started {
            // Another child that was forked while the script was written holds its descriptor until it calls `exec`.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                sleep(AGAIN).await;
            }
            started => return started,
        }
    }
}

/// Runs a script to its end. If the future is dropped, the script is killed; its descendants are identified by their
/// marks.
pub(crate) async fn run(
    mut command: Command,
    log: &Path,
    limit: Duration,
    group: Option<&JobGroup>,
) -> ScriptEnd {
    command.kill_on_drop(true);
    finished(spawn(command, log, group).await, limit).await
}

/// Waits for the end of a script, if it could be started.
pub(crate) async fn finished(child: io::Result<Child>, limit: Duration) -> ScriptEnd {
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return ScriptEnd::Failed(format!("cannot be started: {error}")),
    };
    match tokio::time::timeout(limit, child.wait()).await {
        Ok(Ok(status)) if status.success() => ScriptEnd::Done,
        Ok(Ok(status)) => ScriptEnd::Failed(format!("ended with {status}")),
        Ok(Err(error)) => ScriptEnd::Failed(error.to_string()),
        Err(_) => ScriptEnd::TimedOut,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_script_that_is_open_for_writing_is_started_once_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let held = fs::File::options().append(true).open(&script).unwrap();
        let refused = Command::new(&script).spawn().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ExecutableFileBusy);
        let log = dir.path().join("log");
        // The first future is polled before the second.
        let (child, ()) = tokio::join!(spawn(Command::new(&script), &log, None), async { drop(held) });
        assert!(matches!(finished(child, Duration::from_secs(600)).await, ScriptEnd::Done));
    }
}
