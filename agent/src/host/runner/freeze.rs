//! Suspends a listening runner with all of its processes, so that no job begins while the operator asks GitHub to remove
//! it. The look for a job comes after the last process is suspended: what GitHub calls a busy runner is up to a minute
//! late. A listener that was suspended while it acquired a job has no worker yet; it has an answer to read soon.

use std::collections::BTreeSet;
use std::time::Duration;
use std::{fs, io};

use runyard_core::model::ClaimId;
use tokio::time::sleep;

use crate::host::Host;
use crate::host::scripts::scope::Scope;
use crate::host::users::processes;
use crate::task::{RunnerProcess, TaskOutcome};

/// The process that runs a job: the listener starts it with the job's message, and it ends with the job (actions/runner,
/// `JobDispatcher.cs`).
const WORKER: &str = "Runner.Worker";
/// How long the listener is suspended before the last look, so that the answer to a call in flight has come.
const IN_FLIGHT: Duration = Duration::from_millis(1500);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How many looks are made until each process is suspended.
const LOOKS: u32 = 100;
/// After how many looks everything is resumed once and suspended anew.
const STUCK: u32 = 10;
/// How many looks in a row must find nothing but suspended processes: one that a process made just before it was
/// suspended is found by the next look.
const QUIET: u32 = 2;

impl Host {
    /// Suspends the processes of a claim, and returns whether its runner has a job. If it has one, or if that cannot be
    /// known, everything runs on.
    pub(crate) async fn freeze(&self, claim: &ClaimId, runner: RunnerProcess) -> TaskOutcome {
        let scope = self.claim_scope(claim, Some(runner), None);
        let free = match suspended(&scope).await {
            Ok(free) => free,
            Err(error) => {
                tracing::warn!(%error, %claim, "cannot suspend a runner");
                false
            }
        };
        if !free {
            self.resume(&scope, runner).await;
        }
        TaskOutcome::Frozen { busy: !free }
    }

    /// Lets the processes of a claim run, if its runner was suspended.
    pub(crate) async fn thaw(&self, claim: &ClaimId, runner: RunnerProcess) {
        if processes::is_suspended(runner) {
            self.resume(&self.claim_scope(claim, Some(runner), None), runner).await;
        }
    }

    async fn resume(&self, scope: &Scope, runner: RunnerProcess) {
        match found(scope).await {
            // The first process tells whether this was done: it is resumed last.
            Ok(found) => {
                let (first, others): (Vec<_>, Vec<_>) =
                    found.iter().partition(|process| process.pid == runner.pid);
                others.into_iter().chain(first).for_each(processes::resume);
            }
            Err(error) => tracing::warn!(%error, "cannot resume a runner"),
        }
    }
}

/// Suspends each process, until there is none that runs. Returns whether none of them runs a job.
async fn suspended(scope: &Scope) -> io::Result<bool> {
    let mut quiet = 0;
    for look in 1..=LOOKS {
        let found = found(scope).await?;
        if found.iter().any(|process| process.name == WORKER) {
            return Ok(false);
        }
        let running = found.iter().filter(|process| !process.stopped);
        quiet = if running.clone().count() == 0 { quiet + 1 } else { 0 };
        if quiet == QUIET {
            sleep(IN_FLIGHT).await;
            return Ok(!found.iter().any(|process| has_unread(process.pid)));
        }
        // A process that made another by `vfork` is suspended only once that one runs its program, which a suspended one
        // never does.
        if look % STUCK == 0 {
            found.iter().for_each(processes::resume)
        } else {
            running.for_each(processes::suspend)
        }
        sleep(LOOK).await;
    }
    Ok(false)
}

async fn found(scope: &Scope) -> io::Result<Vec<processes::Process>> {
    let scope = scope.clone();
    tokio::task::spawn_blocking(move || scope.find()).await.map_err(io::Error::other)?
}

/// Returns whether something has come for a process over the network that it has not read yet. A process that cannot be
/// inspected counts as one with something to read.
fn has_unread(pid: i32) -> bool {
    let Ok(own) = sockets(pid) else { return processes::Process::of(pid).is_some() };
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let [four, six] = ["tcp", "tcp6"].map(table);
    four.lines().chain(six.lines()).filter_map(unread).any(|inode| own.contains(&inode))
}

/// Returns the inodes of a process's sockets.
fn sockets(pid: i32) -> io::Result<BTreeSet<u64>> {
    let open =
        fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inode = |target: std::path::PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Ok(open.filter_map(inode).collect())
}

/// Returns the inode of a socket with unread bytes, from its line in `proc_pid_net(5)`: the state is the fourth field,
/// `tx_queue:rx_queue` the fifth, and the inode the tenth. The end of a stream that its peer closed counts as one byte.
fn unread(line: &str) -> Option<u64> {
    const CLOSED_BY_PEER: &str = "08";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, waits) = fields.get(4)?.split_once(':')?;
    let end = u64::from(*fields.get(3)? == CLOSED_BY_PEER);
    let bytes = u64::from_str_radix(waits, 16).ok().filter(|bytes| *bytes > end);
    bytes.and(fields.get(9)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A job that came just before the runner was suspended is in its socket.
    #[test]
    fn bytes_that_a_process_has_not_read_are_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let inode = |stream: &TcpStream| {
            use std::os::fd::AsRawFd;
            let link = fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap();
            link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap()
        };
        let unread_now = || {
            let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
            table.lines().filter_map(unread).collect::<Vec<_>>()
        };
        assert!(sockets(own).unwrap().contains(&inode(&receiver)));
        assert!(!unread_now().contains(&inode(&receiver)));
        sender.write_all(b"a job").unwrap();
        // The bytes are there once the write to loopback has returned.
        assert!(unread_now().contains(&inode(&receiver)) && has_unread(own));
        assert!(has_unread(1) || sockets(1).is_ok(), "what cannot be inspected is not called quiet");
    }

    #[test]
    fn the_head_of_the_table_is_no_socket() {
        assert_eq!(
            unread("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"),
            None
        );
        let line =
            "  0: 0100007F:1F90 0100007F:9C40 01 00000000:00000005 00:00000000 00000000  1000  0 4711 1";
        assert_eq!(unread(line), Some(4711));
        assert_eq!(unread(&line.replace("00000005", "00000000")), None);
        let closed = line.replace(" 01 ", " 08 ");
        assert_eq!(unread(&closed), Some(4711));
        assert_eq!(unread(&closed.replace("00000005", "00000001")), None, "its peer has closed it, no more");
    }
}
