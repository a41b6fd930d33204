//! Runs one step as a shell in a process group of its own, and ends it by SIGINT, SIGTERM and SIGKILL. A process that
//! left the group is found by the tracking id in its environment, so that no process of a job is left.

use std::fs::{self, File};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::process::carries;

/// The pauses of the real runner between SIGINT, SIGTERM and SIGKILL.
const AFTER_INTERRUPT: Duration = Duration::from_millis(7500);
const AFTER_TERMINATE: Duration = Duration::from_millis(2500);

/// A running step.
pub(super) struct Step {
    child: Child,
    group: Option<Pid>,
}

impl Step {
    /// Starts a command in a process group of its own, with both outputs in this file.
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

    /// Ends it with SIGINT, SIGTERM, then SIGKILL. Returns whether SIGINT was enough.
    pub(super) async fn stop(&mut self) -> bool {
        for (signal, pause) in [(Signal::SIGINT, AFTER_INTERRUPT), (Signal::SIGTERM, AFTER_TERMINATE)] {
            self.signal(signal);
            if tokio::time::timeout(pause, self.child.wait()).await.is_ok() {
                return signal == Signal::SIGINT;
            }
        }
        self.kill().await;
        false
    }

    /// Ends it at once.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        // SIGKILL cannot be refused; an error means that it is gone already.
        let _ = self.child.wait().await;
    }

    fn signal(&self, signal: Signal) {
        // Once its leader is reaped, the group's number may be reused by other processes.
        if let (Some(group), Some(_)) = (self.group, self.child.id()) {
            // An empty group is the desired result.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Kills every process whose environment holds this variable with this value, which must be unique.
pub(super) fn sweep(variable: &str, value: &str) {
    let mark = format!("{variable}={value}");
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| carries(*pid, mark.as_bytes())) {
        // A process that ended meanwhile is the desired result.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
