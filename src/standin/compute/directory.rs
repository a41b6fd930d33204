//! The files of a machine: `machine.json` (its facts, written before its start), `agent.pid` (its agent's process) and
//! `ended.json` (no process of it is left); beside them the agent's own configuration, log, state and work.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::model::{ClassName, InstanceArn, InstanceId, LaunchId, TableName, UsageClass};
use crate::ports::{Machine, MachineState};
use crate::process::Process;

use super::{Entry, LocalError, MachineStage};

/// A machine's unchanging part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Facts {
    pub(super) id: InstanceId,
    pub(super) table: TableName,
    /// The launch's client token, and the number of the machine in that launch.
    pub(super) token: String,
    pub(super) index: u32,
    pub(super) class: ClassName,
    pub(super) launch: LaunchId,
    pub(super) attempt: u32,
    pub(super) count: u32,
    pub(super) instance_type: String,
    pub(super) usage_class: UsageClass,
    pub(super) cpu: u32,
    pub(super) mmem: u32,
    pub(super) launched_at: Timestamp,
    /// The table endpoint that its agent was started with: a running agent cannot be given another.
    pub(super) endpoint: String,
}

impl Facts {
    pub(super) fn machine(&self, state: MachineState) -> Machine {
        Machine {
            id: self.id.clone(),
            arn: InstanceArn::local(&self.id),
            class: Some(self.class.clone()),
            launch: Some(self.launch.clone()),
            attempt: self.attempt,
            instance_type: self.instance_type.clone(),
            usage_class: self.usage_class,
            cpu: self.cpu,
            mmem: self.mmem,
            zone: "local".into(),
            state,
            launched_at: self.launched_at,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct EndedFile {
    at: Timestamp,
}

/// The directory `machines`.
#[derive(Debug)]
pub(super) struct Directory {
    root: PathBuf,
}

impl Directory {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn of(&self, id: &InstanceId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Locks the directory against other processes for as long as the file is held.
    pub(super) fn lock(&self) -> Result<File, LocalError> {
        let path = self.root.join("lock");
        let failed = |source| LocalError::Io { path: path.clone(), source };
        files::private_dir(&self.root).map_err(failed)?;
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match files::lock(&file) {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(LocalError::Locked(self.root.clone())),
            Err(fs::TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Loads every machine on disk in its last state; those that ended longer ago than `kept` are removed.
    pub(super) fn load(
        &self,
        now: Timestamp,
        kept: Duration,
    ) -> Result<BTreeMap<InstanceId, Entry>, LocalError> {
        let failed = |source| LocalError::Io { path: self.root.clone(), source };
        let mut machines = BTreeMap::new();
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if !path.is_dir() {
                continue;
            }
            let loaded = load(&path).map_err(|source| LocalError::Io { path: path.clone(), source })?;
            match loaded {
                Some(Entry { stage: MachineStage::Ended(at), .. }) if older(at, now, kept) => {
                    files::remove_dir(&path).map_err(|source| LocalError::Io { path, source })?;
                }
                Some(entry) => {
                    machines.insert(entry.facts.id.clone(), entry);
                }
                // Created, but killed before the first file was in it.
                None => files::remove_dir(&path).map_err(|source| LocalError::Io { path, source })?,
            }
        }
        Ok(machines)
    }

    pub(super) fn plan(&self, facts: &Facts) -> io::Result<()> {
        let dir = self.of(&facts.id);
        files::private_dir(&dir)?;
        files::replace_json(&dir.join("machine.json"), facts)
    }

    pub(super) fn started(&self, id: &InstanceId, process: &Process) -> io::Result<()> {
        files::replace_json(&self.of(id).join("agent.pid"), process)
    }

    /// Records the end and removes all but the facts and the log.
    pub(super) fn ended(&self, id: &InstanceId, at: Timestamp) -> io::Result<()> {
        let dir = self.of(id);
        files::replace_json(&dir.join("ended.json"), &EndedFile { at })?;
        files::remove_dir(&dir.join("state"))?;
        files::remove_dir(&dir.join("work"))
    }
}

fn load(dir: &Path) -> io::Result<Option<Entry>> {
    let Some(facts) = files::read_json(&dir.join("machine.json"))? else { return Ok(None) };
    let stage = match files::read_json::<EndedFile>(&dir.join("ended.json"))? {
        Some(ended) => MachineStage::Ended(ended.at),
        None => files::read_json(&dir.join("agent.pid"))?.map_or(MachineStage::Planned, MachineStage::Alive),
    };
    Ok(Some(Entry { facts, stage }))
}

pub(super) fn older(at: Timestamp, now: Timestamp, than: Duration) -> bool {
    now.duration_since(at).as_secs() > i64::try_from(than.as_secs()).unwrap_or(i64::MAX)
}
