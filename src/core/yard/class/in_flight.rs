//! The in-flight launches of a class: machines of open intents, and machines of bound launches whose records were not
//! seen yet. A launch and its machines are written together, but a reader may see the launch first. Without this count
//! they would be launched again, above `max` (S7).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{InstanceId, Launch, LaunchId, LaunchPhase, RecordId, RequestKey};

/// One launch and the machines it may still add.
#[derive(Clone, Debug)]
struct InFlightLaunch {
    request: Option<RecordId>,
    machines: Machines,
}

#[derive(Clone, Debug)]
enum Machines {
    /// Up to this many machines, of an intent.
    UpTo(u32),
    /// Machines of a bound launch whose records were not seen yet, and when the launch was seen to be bound.
    Unseen(BTreeSet<InstanceId>, Duration),
}

impl InFlightLaunch {
    fn count(&self) -> u64 {
        match &self.machines {
            Machines::UpTo(count) => u64::from(*count),
            Machines::Unseen(machines, _) => machines.len() as u64,
        }
    }
}

/// The launches of a class that may still add machines.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    launches: BTreeMap<LaunchId, InFlightLaunch>,
    /// The sums for each request and for the class itself. Wider than the counts, so that each added count can be
    /// subtracted.
    coming: BTreeMap<Option<RecordId>, u64>,
}

impl InFlight {
    /// Counts the machines in flight for a request, or for the class itself.
    pub(crate) fn of(&self, request: Option<&RequestKey>) -> u32 {
        clamp(self.coming.get(&request.map(RecordId::from)).copied().unwrap_or(0))
    }

    /// Counts all machines in flight.
    pub fn total(&self) -> u32 {
        clamp(self.coming.values().fold(0, |sum, count| sum.saturating_add(*count)))
    }

    /// Lists the open intents.
    pub fn open(&self) -> impl Iterator<Item = &LaunchId> {
        self.launches
            .iter()
            .filter(|(_, entry)| matches!(entry.machines, Machines::UpTo(_)))
            .map(|(id, _)| id)
    }

    /// Processes the newest image of a launch.
    pub(crate) fn is(&mut self, launch: &Launch, seen: impl Fn(&InstanceId) -> bool, at: Duration) {
        self.forget(&launch.launch_id);
        let machines = match launch.phase {
            LaunchPhase::Intent => Machines::UpTo(launch.count),
            LaunchPhase::Bound => {
                let unseen: BTreeSet<InstanceId> =
                    launch.instances.iter().filter(|id| !seen(id)).cloned().collect();
                if unseen.is_empty() {
                    return;
                }
                Machines::Unseen(unseen, at)
            }
            LaunchPhase::Failed => return,
        };
        let entry = InFlightLaunch { request: launch.request.clone(), machines };
        self.add(&entry);
        self.launches.insert(launch.launch_id.clone(), entry);
    }

    /// Removes a launch whose record is gone.
    pub(crate) fn forget(&mut self, launch: &LaunchId) {
        if let Some(entry) = self.launches.remove(launch) {
            self.take_out(&entry);
        }
    }

    /// Stops counting a machine whose record was seen, so that it is counted there.
    pub(crate) fn seen(&mut self, launch: &LaunchId, machine: &InstanceId) {
        let Some(mut entry) = self.launches.remove(launch) else { return };
        self.take_out(&entry);
        if let Machines::Unseen(machines, _) = &mut entry.machines {
            machines.remove(machine);
        }
        if entry.count() > 0 {
            self.add(&entry);
            self.launches.insert(launch.clone(), entry);
        }
    }

    /// Processes a complete list of the table that began at this moment: machines of launches bound before that are not
    /// on it are gone.
    pub(crate) fn listed(&mut self, begun: Duration) {
        let gone: Vec<LaunchId> = self
            .launches
            .iter()
            .filter(|(_, entry)| matches!(entry.machines, Machines::Unseen(_, at) if at < begun))
            .map(|(id, _)| id.clone())
            .collect();
        for launch in gone {
            self.forget(&launch);
        }
    }

    fn add(&mut self, entry: &InFlightLaunch) {
        let count = self.coming.entry(entry.request.clone()).or_default();
        *count = count.saturating_add(entry.count());
    }

    fn take_out(&mut self, entry: &InFlightLaunch) {
        let Some(count) = self.coming.get_mut(&entry.request) else { return };
        *count = count.saturating_sub(entry.count());
        if *count == 0 {
            self.coming.remove(&entry.request);
        }
    }
}

fn clamp(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
