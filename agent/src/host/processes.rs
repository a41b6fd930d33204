//! Which processes are there, and whose are they? As the kernel tells it in `/proc`; what vanishes meanwhile is gone.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::work::Leader;

/// A process at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Ticks since boot.
    pub(super) started: u64,
    /// It has ended and waits for its parent to notice.
    pub(super) zombie: bool,
    pub(super) name: String,
}

impl Process {
    /// The process with this id.
    pub(super) fn of(pid: i32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether its environment holds exactly this entry; no for one that hides it.
    pub(super) fn carries(&self, entry: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environment.split(|b| *b == 0).any(|found| found == entry.as_bytes())
    }

    /// Whether it works, or keeps a root, below a directory.
    pub(super) fn is_under(&self, directory: &Path) -> bool {
        let link = |name: &str| {
            fs::read_link(format!("/proc/{}/{name}", self.pid)).unwrap_or_else(|_| PathBuf::new())
        };
        ["cwd", "exe", "root"].into_iter().any(|name| link(name).starts_with(directory))
    }

    /// Whom it belongs to.
    pub(super) fn uid(&self) -> Option<u32> {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{}", self.pid)).ok().map(|metadata| metadata.uid())
    }

    /// As others address it.
    pub(super) fn leader(&self) -> Leader {
        Leader { pid: self.pid, started: self.started }
    }
}

/// Fields 3 and on of `proc_pid_stat(5)`; the name before them may hold anything.
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
        zombie: matches!(*fields.first()?, "Z" | "X"),
        name: name.split_once('(').map_or("", |(_, name)| name).to_owned(),
    })
}

/// All of them.
///
/// # Errors
/// `/proc` cannot be listed: then nothing can be proved.
pub(super) fn all() -> std::io::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids.filter_map(Process::of).collect())
}

/// Whether this very process is still at work.
pub(super) fn alive(leader: Leader) -> bool {
    Process::of(leader.pid).is_some_and(|process| process.started == leader.started && !process.zombie)
}

/// Asks a process group to finish.
pub(super) fn interrupt(leader: Leader) {
    let _ = killpg(Pid::from_raw(leader.pid), Signal::SIGINT);
}

/// Ends a process at once, unless another one has its number by now.
pub(super) fn end(process: &Process) {
    if alive(process.leader()) {
        match kill(Pid::from_raw(process.pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => tracing::warn!(pid = process.pid, %errno, "cannot end a process"),
        }
    }
}

/// Lets go of an orphan that ended as our child.
pub(super) fn reap(pid: i32) {
    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) R (b c) S 1 5 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7";
        let process = parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session, process.started), (1, 5, 6, 12345));
        assert_eq!((process.name.as_str(), process.zombie), ("a) R (b c", false));
        assert_eq!(parse(7, "7 (x) Z 1"), None);
    }

    #[test]
    fn this_process_is_alive_and_one_of_another_start_is_not() {
        let own = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(alive(own.leader()));
        assert!(!alive(Leader { pid: own.pid, started: own.started + 1 }));
        assert!(all().unwrap().iter().any(|process| process.pid == own.pid));
    }
}
