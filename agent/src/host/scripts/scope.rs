//! Selects the processes of a claim: those that carry its mark, belong to its runner's process group, work in its
//! directories, descend from the agent and started after its runner, belong to the job user, or are in the control
//! group of jobs, which no job can leave. A job can remove some of these properties, but hardly all.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::host::users::ids::Ids;
use crate::host::users::processes;
use crate::host::users::processes::Process;
use crate::host::users::user_mounts::UserMounts;
use crate::host::{Host, JobGroup};
use crate::task::RunnerProcess;

/// Time limit for killed processes to disappear.
const GONE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// Number of consecutive checks that must find nothing: a process that is created during one check is found by the
/// next.
const QUIET: u32 = 2;
/// The maximum number of processes that an error names.
const NAMED: usize = 5;

/// The criteria for the processes of a claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// An entry of their environment.
    pub(crate) mark: String,
    /// The first process of their group or session.
    pub(crate) runner: Option<RunnerProcess>,
    /// The directory in which they work.
    pub(crate) under: Option<PathBuf>,
    /// Descendants of the agent that are not older than this (ticks since boot), through parents that are not older
    /// either.
    pub(crate) since: Option<u64>,
    /// The ids of their user.
    pub(crate) ids: Option<Ids>,
    /// The control group in which they were started.
    pub(crate) group: Option<JobGroup>,
    /// FUSE file systems: a process that waits for one of them cannot end.
    pub(crate) mounts: Option<UserMounts>,
}

impl Scope {
    /// Returns the current processes. Ended ones do not count.
    pub(crate) fn find(&self) -> io::Result<Vec<Process>> {
        let own = i32::try_from(std::process::id()).expect("process ids are small");
        let all = processes::all()?;
        let below = self.since.map_or_else(BTreeSet::new, |since| descendants(&all, own, since));
        for process in all.iter().filter(|p| p.zombie && p.parent == own && self.since.is_some()) {
            processes::reap(process.pid);
        }
        let ours = |p: &Process| {
            self.runner.is_some_and(|runner| in_group_of(p, runner))
                || below.contains(&p.pid)
                || p.carries(&self.mark)
                || self.under.as_deref().is_some_and(|directory| p.is_under(directory))
                || self.ids.as_ref().is_some_and(|ids| ids.run(p.pid))
        };
        Ok(all.into_iter().filter(|p| p.pid != own && !p.zombie && ours(p)).collect())
    }

    /// Kills all of them once. Returns those that were found, and whether the kernel reports that their group is empty,
    /// if they have one.
    fn look(&self) -> io::Result<(Vec<Process>, bool)> {
        self.abort_mounts();
        if let Some(group) = &self.group {
            group.end()?;
        }
        let found = self.find().map_err(|e| io::Error::new(e.kind(), format!("/proc: {e}")))?;
        found.iter().for_each(processes::end);
        // File systems that were mounted meanwhile.
        self.abort_mounts();
        Ok((found, self.group.as_ref().map_or(Ok(true), JobGroup::is_empty)?))
    }

    /// Aborts the FUSE connections. An error is only logged, because a process that cannot be killed for this reason is
    /// reported by itself.
    fn abort_mounts(&self) {
        match self.mounts.as_ref().map_or(Ok(0), UserMounts::abort) {
            Ok(0) => {}
            Ok(aborted) => tracing::info!(aborted, "aborted the FUSE connections of a claim"),
            Err(error) => tracing::debug!(%error, "the FUSE connections of a claim cannot be aborted"),
        }
    }

    /// Checks that there are none, without killing any: processes that wait in jails for the next claim are in the same
    /// group.
    ///
    /// # Errors
    /// Names the processes that exist.
    pub(crate) async fn prove_empty(self) -> Result<(), String> {
        let look = tokio::task::spawn_blocking(move || self.find());
        let found = look.await.map_err(io::Error::other).flatten().map_err(|e| e.to_string())?;
        if found.is_empty() { Ok(()) } else { Err(format!("there are already {}", named(&found))) }
    }

    /// Kills all of them, until none is left. Returns whether there were any.
    ///
    /// # Errors
    /// Names the processes that are left after the time limit.
    async fn end(self) -> Result<bool, String> {
        let until = Instant::now() + GONE;
        let (mut quiet, mut any) = (0, false);
        loop {
            let scope = self.clone();
            let look = tokio::task::spawn_blocking(move || scope.look());
            let (found, proved) =
                look.await.map_err(io::Error::other).flatten().map_err(|e| e.to_string())?;
            any |= !found.is_empty();
            quiet = if found.is_empty() && proved { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return Ok(any);
            }
            if Instant::now() >= until {
                if found.is_empty() {
                    return Err("their control group does not become empty".to_owned());
                }
                return Err(format!("{} processes do not end: {}", found.len(), named(&found)));
            }
            sleep(LOOK).await;
        }
    }
}

fn named(found: &[Process]) -> String {
    let names = found.iter().take(NAMED).map(|p| format!("{} ({})", p.pid, p.name));
    names.collect::<Vec<_>>().join(", ")
}

/// Returns whether a process is in the runner's group or session. One that is older than the runner is in another
/// process's group of that number.
fn in_group_of(process: &Process, runner: RunnerProcess) -> bool {
    (process.group == runner.pid || process.session == runner.pid) && process.started >= runner.started
}

/// Returns the descendants of a process that are not older than `since`. A chain through an older process does not lead
/// to a job: every process of a job is younger than its runner, and becomes a child of the agent once its own parents
/// have ended. A daemon of the pre-runner script may create children at any time.
fn descendants(all: &[Process], of: i32, since: u64) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let more: Vec<i32> = all
            .iter()
            .filter(|p| p.started >= since && found.contains(&p.parent) && !found.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            found.remove(&of);
            return found;
        }
        found.extend(more);
    }
}

impl Host {
    /// Selects the processes of a claim.
    pub(crate) fn claim_scope(
        &self,
        claim: &runyard_core::model::ClaimId,
        runner: Option<RunnerProcess>,
        since: Option<u64>,
    ) -> Scope {
        Scope {
            mark: super::shell::claim_mark(claim),
            runner,
            under: Some(self.layout.claims()),
            since: since.filter(|_| self.settings.adopts_orphans),
            ids: self.ids.clone(),
            group: self.settings.group.clone(),
            mounts: self.mounts.clone(),
        }
    }

    /// Selects every process that this machine has started.
    pub(crate) fn machine_scope(&self) -> Scope {
        Scope {
            mark: super::shell::machine_mark(&self.settings.machine),
            runner: None,
            under: Some(self.layout.claims()),
            since: self.settings.adopts_orphans.then_some(0),
            ids: self.ids.clone(),
            group: self.settings.group.clone(),
            mounts: self.mounts.clone(),
        }
    }

    /// Kills all processes of a scope. Returns whether there were any.
    ///
    /// # Errors
    /// Names the processes that are left.
    pub(crate) async fn end(&self, scope: Scope) -> Result<bool, String> {
        scope.end().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a process from its id, its parent, and its start time.
    fn process((pid, parent, started): (i32, i32, u64)) -> Process {
        Process {
            pid,
            parent,
            group: pid,
            session: pid,
            started,
            zombie: false,
            stopped: false,
            name: String::new(),
        }
    }

    #[test]
    fn a_job_descends_from_the_agent_by_processes_that_are_all_younger_than_its_runner() {
        let all = [
            (10, 1, 100),
            // A daemon of the pre-runner script, its current child, and the child of that one.
            (20, 10, 200),
            (21, 20, 900),
            (22, 21, 901),
            // The runner, its job, and an orphan of that job with a child.
            (30, 10, 500),
            (31, 30, 501),
            (32, 10, 600),
            (33, 32, 600),
            // A process of neither.
            (40, 1, 700),
        ];
        let all = all.map(process);
        let found = |since| descendants(&all, 10, since).into_iter().collect::<Vec<_>>();
        assert_eq!(found(500), [30, 31, 32, 33]);
        assert_eq!(found(0), [20, 21, 22, 30, 31, 32, 33], "of a machine that ends, all are");
    }
}
