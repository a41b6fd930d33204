//! How does one step run? As a shell of its own process group, which is asked to stop, then told, then killed: in the
//! end nothing of it is left.

use std::fs::File;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// The pauses of the real runner between asking, telling and killing.
const AFTER_INTERRUPT: Duration = Duration::from_millis(7500);
const AFTER_TERMINATE: Duration = Duration::from_millis(2500);

/// A running step.
pub(super) struct Step {
    child: Child,
    group: Option<Pid>,
}

impl Step {
    /// Starts a command in a process group of its own, both its outputs in this file.
    pub(super) fn start(mut command: Command, log: &File) -> io::Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Self { child, group })
    }

    /// Waits for its end; may be dropped and called again.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it: asks, tells, kills.
    pub(super) async fn stop(&mut self) {
        for (signal, pause) in [(Signal::SIGINT, AFTER_INTERRUPT), (Signal::SIGTERM, AFTER_TERMINATE)] {
            self.signal(signal);
            if tokio::time::timeout(pause, self.child.wait()).await.is_ok() {
                return;
            }
        }
        self.kill().await;
    }

    /// Ends it at once.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        // It cannot refuse; an error means that it is gone already.
        let _ = self.child.wait().await;
    }

    /// Kills what it left behind.
    pub(super) fn sweep(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Nobody left in the group is what we want.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.sweep();
    }
}
