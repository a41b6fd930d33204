//! Machines as child processes: how are they launched once per token, found again after the operator was killed, and
//! ended without a trace? A machine is a directory and an agent in a session of its own; the agent's death is the
//! machine's. Every step is written down before it is done (`directory`), so that the next process that opens the
//! directory can finish it.

mod agent;
mod directory;
mod end;
mod launch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::model::{InstanceId, TableName};
use crate::ports::{Clock, Compute, ComputeError, Entropy, LaunchOrder, Launched, Machine, MachineState};

use super::process::Process;
pub use agent::{AgentOptions, RunnerPackage};
use directory::{Directory, Facts};

/// How long an ended machine is remembered: long enough to report its state, and to read its log.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The configuration of local machines.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The directory of the machines; no other process may use it meanwhile.
    pub dir: PathBuf,
    /// The table they belong to.
    pub table: TableName,
    /// The agent that each machine runs.
    pub agent: AgentOptions,
    /// How long an agent may take to end on SIGTERM.
    pub patience: Duration,
}

/// Why local machines are not available.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Another operator uses the directory.
    #[error("{} is in use by another operator: stop that one, or give this one another directory", .0.display())]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("{} cannot be used: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The stage of a machine's process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MachineStage {
    /// Recorded; no process runs.
    Planned,
    /// Its agent runs.
    Alive(Process),
    /// Its processes are being ended.
    Ending,
    /// None of its processes runs any more.
    Ended(Timestamp),
}

impl MachineStage {
    const fn state(&self) -> MachineState {
        match self {
            Self::Planned => MachineState::Pending,
            Self::Alive(_) => MachineState::Running,
            Self::Ending => MachineState::ShuttingDown,
            Self::Ended(_) => MachineState::Terminated,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    facts: Facts,
    stage: MachineStage,
}

/// `compute.kind = "local"`.
pub struct LocalCompute {
    shared: Arc<SharedMachines>,
}

/// The state shared by the port and the tasks that watch agents.
struct SharedMachines {
    options: LocalOptions,
    directory: Directory,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    machines: Mutex<BTreeMap<InstanceId, Entry>>,
    /// Held through a launch: two launches with one token must not both find no machines.
    launching: tokio::sync::Mutex<()>,
    /// Notified of every change of stage.
    changed: Notify,
    /// Held as long as this process may change the directory.
    _lock: File,
}

impl SharedMachines {
    fn machines(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Entry>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage(&self, id: &InstanceId, stage: MachineStage) {
        if let Some(entry) = self.machines().get_mut(id) {
            entry.stage = stage;
        }
        self.changed.notify_waiters();
    }
}

impl LocalCompute {
    /// Takes over a directory: living agents of an earlier operator are kept, leftovers of dead ones are ended. Call it
    /// within a tokio runtime, which watches the agents from then on.
    ///
    /// # Errors
    /// Another operator uses the directory, or it cannot be used.
    pub fn open(
        options: LocalOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, LocalError> {
        let directory = Directory::new(options.dir.join("machines"));
        let lock = directory.lock()?;
        let now = clock.now();
        let machines = directory.load(now, KEPT)?;
        let shared = SharedMachines {
            options,
            directory,
            clock,
            entropy,
            machines: Mutex::new(machines),
            launching: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
            _lock: lock,
        };
        let compute = Self { shared: Arc::new(shared) };
        compute.shared.adopt();
        Ok(compute)
    }

    /// Ends every machine and waits until none of their processes runs.
    pub async fn end_all(&self) {
        let ids: Vec<InstanceId> = self.shared.machines().keys().cloned().collect();
        for id in &ids {
            self.shared.end(id, end::Manner::Asked);
        }
        self.ended().await;
    }

    /// Kills every machine's processes without asking its agent, and waits until none of them runs.
    pub async fn kill_all(&self) {
        let ids: Vec<InstanceId> = self.shared.machines().keys().cloned().collect();
        for id in &ids {
            self.shared.end(id, end::Manner::Dead);
            self.shared.kill(id).await;
        }
        self.ended().await;
    }

    async fn ended(&self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no change is missed.
            changed.as_mut().enable();
            let done = |entry: &Entry| match entry.stage {
                MachineStage::Ended(_) => true,
                MachineStage::Planned | MachineStage::Alive(_) | MachineStage::Ending => false,
            };
            if self.shared.machines().values().all(done) {
                return;
            }
            changed.await;
        }
    }
}

#[async_trait]
impl Compute for LocalCompute {
    fn keeps_inventory(&self) -> bool {
        true
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let _turn = self.shared.launching.lock().await;
        self.shared.launch(order).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        for id in ids {
            self.shared.end(id, end::Manner::Asked);
        }
        Ok(())
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        let machines = self.shared.machines();
        let known = ids.iter().filter_map(|id| Some((id.clone(), machines.get(id)?.stage.state())));
        Ok(known.collect())
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        let machines = self.shared.machines();
        let ours = machines.values().filter(|entry| entry.facts.table == self.shared.options.table);
        Ok(ours.map(|entry| entry.facts.machine(entry.stage.state())).collect())
    }
}
