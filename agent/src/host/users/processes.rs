//! Reads processes from `/proc`. A process that vanishes while it is read counts as ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::task::RunnerProcess;

/// The maximum number of reads, 1 ms apart, of a process that shows only a part of its environment.
const EXECUTING: u32 = 1000;

/// A process at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Ticks since boot.
    pub(crate) started: u64,
    /// Whether it has ended, with all its threads, and waits to be reaped by its parent.
    pub(crate) zombie: bool,
    /// Whether it is suspended by a signal.
    pub(crate) stopped: bool,
    pub(crate) name: String,
}

impl Process {
    /// Reads the process with this id.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Returns whether its environment contains exactly this entry; `false` for a process that hides it. While a
    /// process executes another program it shows no environment, or a part of one: the entry counts as missing only if
    /// the complete environment was read.
    pub(crate) fn carries(&self, entry: &str) -> bool {
        for _ in 0..EXECUTING {
            let Ok(environment) = fs::read(format!("/proc/{}/environ", self.pid)) else { return false };
            if environment.split(|b| *b == 0).any(|found| found == entry.as_bytes()) {
                return true;
            }
            let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
            if whole(&stat).is_none_or(|whole| whole == environment.len()) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Returns whether its working directory, its program or its root is below a directory.
    pub(crate) fn is_under(&self, directory: &Path) -> bool {
        let link = |name: &str| {
            fs::read_link(format!("/proc/{}/{name}", self.pid)).unwrap_or_else(|_| PathBuf::new())
        };
        ["cwd", "exe", "root"].into_iter().any(|name| link(name).starts_with(directory))
    }

    /// Returns the process as a `RunnerProcess`.
    pub(crate) fn runner_process(&self) -> RunnerProcess {
        RunnerProcess { pid: self.pid, started: self.started }
    }
}

/// Parses fields 3 and following of `proc_pid_stat(5)`; the name before them may contain any characters.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (name, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    Some(Process {
        pid,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        started: fields.get(19)?.parse().ok()?,
        // Its first thread may have ended alone: the others are still running, with access to the same resources.
        zombie: matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1,
        stopped: *fields.first()? == "T",
        name: name.split_once('(').map_or("", |(_, name)| name).to_owned(),
    })
}

/// Returns the size of a process's environment in bytes: from fields 50 and 51 of `proc_pid_stat(5)`, once the kernel
/// has set it up, which field 26 indicates. Before that, it returns more than is possible; for a process without
/// memory, `None`.
fn whole(stat: &str) -> Option<usize> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<usize>().ok();
    let [memory, code, begin, end] = [number(20)?, number(23)?, number(47)?, number(48)?];
    (memory > 0).then(|| if code == 0 { usize::MAX } else { end.saturating_sub(begin) })
}

/// Reads all processes.
///
/// # Errors
/// `/proc` cannot be listed: then nothing can be proved.
pub(crate) fn all() -> std::io::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids.filter_map(Process::of).collect())
}

/// Returns whether this same process is still running.
pub(crate) fn alive(runner: RunnerProcess) -> bool {
    Process::of(runner.pid).is_some_and(|process| process.started == runner.started && !process.zombie)
}

/// Sends SIGINT to a process group.
pub(crate) fn interrupt(runner: RunnerProcess) {
    let _ = killpg(Pid::from_raw(runner.pid), Signal::SIGINT);
}

/// Kills a process, unless another one has its id by now.
pub(crate) fn end(process: &Process) {
    send(process, Signal::SIGKILL);
}

/// Suspends a process, unless another one has its id by now.
pub(crate) fn suspend(process: &Process) {
    send(process, Signal::SIGSTOP);
}

/// Lets a suspended process run, unless another one has its id by now.
pub(crate) fn resume(process: &Process) {
    send(process, Signal::SIGCONT);
}

/// Returns whether this same process is suspended.
pub(crate) fn is_suspended(runner: RunnerProcess) -> bool {
    Process::of(runner.pid).is_some_and(|process| process.started == runner.started && process.stopped)
}

fn send(process: &Process, signal: Signal) {
    if alive(process.runner_process()) {
        match kill(Pid::from_raw(process.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => tracing::warn!(pid = process.pid, %errno, %signal, "cannot signal a process"),
        }
    }
}

/// Reaps an orphan that ended as a child of this process.
pub(crate) fn reap(pid: i32) {
    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between two programs a process shows no environment, or a part of one: a job's process must not be missed then.
    #[test]
    fn a_process_keeps_its_mark_while_it_executes_other_programs() {
        let entry = format!("RUNYARD_TEST=executing-{}", std::process::id());
        let (name, value) = entry.split_once('=').unwrap();
        let script = r#"test "$0" = 0 && exec sleep 60; exec sh -c "$SCRIPT" $(($0 - 1))"#;
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, "1500"]).env("SCRIPT", script).env(name, value);
        let mut child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut looks = 0;
        let last = loop {
            let process = Process::of(pid).unwrap();
            assert!(process.carries(&entry), "at look {looks}");
            looks += 1;
            if process.name == "sleep" {
                break process;
            }
        };
        assert!(looks > 10, "it was seen at {looks} moments only");
        assert!(!last.carries("RUNYARD_TEST=another"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_name_full_of_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) R (b c) S 1 5 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session, process.started), (1, 5, 6, 12345));
        assert_eq!((process.name.as_str(), process.zombie), ("a) R (b c", false));
        assert_eq!(parse(7, "7 (x) Z 1"), None);
        let ended = |state: &str, threads: u32| {
            let stat = format!("7 (x) {state} 1 5 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345 6 7");
            parse(7, &stat).unwrap().zombie
        };
        assert!(ended("Z", 1) && ended("X", 0) && !ended("S", 1));
        assert!(!ended("Z", 2), "a process whose first thread has ended lives on in the others");
    }

    #[test]
    fn this_process_is_alive_and_one_of_another_start_is_not() {
        let own = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(alive(own.runner_process()));
        assert!(!alive(RunnerProcess { pid: own.pid, started: own.started + 1 }));
        assert!(all().unwrap().iter().any(|process| process.pid == own.pid));
    }
}
