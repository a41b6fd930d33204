//! Ends a machine, after its agent's death or on request: SIGTERM, some patience, then SIGKILL to every process that
//! carries its mark, until none is left.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use tokio::process::Child;

use crate::files;
use crate::model::InstanceId;
use crate::process::{self, Process};

use super::{Entry, KEPT, MachineStage, SharedMachines, directory};

/// How often an agent that is not a child process is checked.
const LOOK: Duration = Duration::from_millis(200);
/// How long one round of killing may take before it is reported.
const ROUND: Duration = Duration::from_secs(5);

/// Why a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// On request: its agent may finish what it is doing.
    Asked,
    /// Its agent is dead already.
    Dead,
}

/// Waits for an agent that this process started.
pub(super) async fn watch_child(shared: Arc<SharedMachines>, id: InstanceId, mut child: Child) {
    match child.wait().await {
        Ok(status) => tracing::info!(machine = %id, %status, "agent ended"),
        Err(error) => tracing::warn!(machine = %id, %error, "agent cannot be waited for"),
    }
    shared.end(&id, Manner::Dead);
}

/// Waits for an agent that an earlier operator started.
async fn watch_adopted(shared: Arc<SharedMachines>, id: InstanceId, process: Process) {
    while process.alive() {
        tokio::time::sleep(LOOK).await;
    }
    tracing::info!(machine = %id, "agent ended");
    shared.end(&id, Manner::Dead);
}

impl SharedMachines {
    /// Takes over the machines of an earlier operator.
    pub(super) fn adopt(self: &Arc<Self>) {
        let entries: Vec<_> = self.machines().values().cloned().collect();
        for entry in entries {
            let facts = &entry.facts;
            match entry.stage {
                MachineStage::Alive(process) if process.belongs_to(&facts.id) => {
                    if facts.endpoint == self.options.agent.endpoint && facts.table == self.options.table {
                        tracing::info!(machine = %facts.id, pid = process.pid, "machine adopted");
                        tokio::spawn(watch_adopted(Arc::clone(self), facts.id.clone(), process));
                    } else {
                        tracing::info!(machine = %facts.id, "machine of another table or endpoint is ended");
                        self.end(&facts.id, Manner::Asked);
                    }
                }
                MachineStage::Alive(_) => self.end(&facts.id, Manner::Dead),
                // It belongs to another table: its token will not be used again.
                MachineStage::Planned if facts.table != self.options.table => {
                    self.end(&facts.id, Manner::Dead)
                }
                MachineStage::Planned | MachineStage::Ending | MachineStage::Ended(_) => {}
            }
        }
    }

    /// Begins the end of a machine, which continues in the background. Unknown, ending and ended machines are left
    /// alone.
    pub(super) fn end(self: &Arc<Self>, id: &InstanceId, manner: Manner) {
        let agent = {
            let mut machines = self.machines();
            let Some(entry) = machines.get_mut(id) else { return };
            match std::mem::replace(&mut entry.stage, MachineStage::Ending) {
                MachineStage::Alive(process) => Some(process),
                MachineStage::Planned => None,
                MachineStage::Ending => return,
                ended @ MachineStage::Ended(_) => {
                    entry.stage = ended;
                    return;
                }
            }
        };
        self.changed.notify_waiters();
        tokio::spawn(Arc::clone(self).finish(id.clone(), agent, manner));
    }

    async fn finish(self: Arc<Self>, id: InstanceId, agent: Option<Process>, manner: Manner) {
        if let (Manner::Asked, Some(agent)) = (manner, agent.filter(|agent| agent.belongs_to(&id))) {
            self.ask(&id, &agent).await;
        }
        loop {
            let left = process::sweep(&id, ROUND).await;
            if left.is_empty() {
                break;
            }
            let pids: Vec<i32> = left.iter().map(|process| process.pid).collect();
            tracing::warn!(machine = %id, ?pids, "processes of the machine cannot be killed; retrying");
            tokio::time::sleep(ROUND).await;
        }
        let now = self.clock.now();
        if let Err(error) = self.directory.ended(&id, now) {
            tracing::warn!(machine = %id, %error, "the ended machine's files cannot be removed");
        }
        self.stage(&id, MachineStage::Ended(now));
        self.forget_old(now);
    }

    /// Kills a machine's processes, even if its agent was asked to end first.
    pub(super) async fn kill(&self, id: &InstanceId) {
        process::sweep(id, ROUND).await;
    }

    fn forget_old(&self, now: Timestamp) {
        let old = |entry: &Entry| match entry.stage {
            MachineStage::Ended(at) => directory::older(at, now, KEPT),
            MachineStage::Planned | MachineStage::Alive(_) | MachineStage::Ending => false,
        };
        let gone: Vec<InstanceId> =
            self.machines().extract_if(.., |_, entry| old(entry)).map(|(id, _)| id).collect();
        for id in gone {
            if let Err(error) = files::remove_dir(&self.directory.of(&id)) {
                tracing::warn!(machine = %id, %error, "the directory of a machine long gone cannot be removed");
            }
        }
    }

    /// Sends SIGTERM to a machine's processes and waits for its agent.
    async fn ask(&self, id: &InstanceId, agent: &Process) {
        let machine = id.clone();
        let told = tokio::task::spawn_blocking(move || {
            process::of_machine(&machine).iter().for_each(|process| process.signal(Signal::SIGTERM));
        });
        if told.await.is_err() {
            return;
        }
        let until = tokio::time::Instant::now() + self.options.patience;
        while agent.alive() && tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
