//! How many machines of a class are on their way and for whom: those of open intents, and those of launches that are
//! bound while their machines' records have not been seen. A launch and its machines are written together, but who reads
//! them may see the launch first; counted nowhere in between, they would be launched once more, over `max` (S7).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{InstanceId, Launch, LaunchId, LaunchPhase, RecordId, RequestKey};

/// What one launch may still bring.
#[derive(Clone, Debug)]
struct Share {
    request: Option<RecordId>,
    brings: Brings,
}

#[derive(Clone, Debug)]
enum Brings {
    /// So many machines, of an intent.
    UpTo(u32),
    /// The machines that a bound launch names and whose records were not seen, bound when it was seen so.
    Unseen(BTreeSet<InstanceId>, Duration),
}

impl Share {
    fn count(&self) -> u64 {
        match &self.brings {
            Brings::UpTo(count) => u64::from(*count),
            Brings::Unseen(machines, _) => machines.len() as u64,
        }
    }
}

/// The launches of a class that may still add to its machines.
#[derive(Clone, Debug, Default)]
pub struct UnderWay {
    shares: BTreeMap<LaunchId, Share>,
    /// The sums of the shares, for each request and for the class itself. Wider than any share, so that what is added can
    /// be taken out again.
    coming: BTreeMap<Option<RecordId>, u64>,
}

impl UnderWay {
    /// Machines on their way for a request, or for nobody yet.
    pub(crate) fn of(&self, request: Option<&RequestKey>) -> u32 {
        clamp(self.coming.get(&request.map(RecordId::from)).copied().unwrap_or(0))
    }

    /// Machines on their way in all.
    pub fn total(&self) -> u32 {
        clamp(self.coming.values().fold(0, |sum, count| sum.saturating_add(*count)))
    }

    /// Intents that were not answered yet.
    pub fn open(&self) -> impl Iterator<Item = &LaunchId> {
        self.shares.iter().filter(|(_, share)| matches!(share.brings, Brings::UpTo(_))).map(|(id, _)| id)
    }

    /// What a launch is now, as seen at this moment.
    pub(crate) fn is(&mut self, launch: &Launch, seen: impl Fn(&InstanceId) -> bool, at: Duration) {
        self.forget(&launch.launch_id);
        let brings = match launch.phase {
            LaunchPhase::Intent => Brings::UpTo(launch.count),
            LaunchPhase::Bound => {
                let unseen: BTreeSet<InstanceId> =
                    launch.instances.iter().filter(|id| !seen(id)).cloned().collect();
                if unseen.is_empty() {
                    return;
                }
                Brings::Unseen(unseen, at)
            }
            LaunchPhase::Failed => return,
        };
        let share = Share { request: launch.request.clone(), brings };
        self.add(&share);
        self.shares.insert(launch.launch_id.clone(), share);
    }

    /// A launch's record is gone.
    pub(crate) fn forget(&mut self, launch: &LaunchId) {
        if let Some(share) = self.shares.remove(launch) {
            self.take_out(&share);
        }
    }

    /// The record of a machine of a launch was seen: it counts there.
    pub(crate) fn seen(&mut self, launch: &LaunchId, machine: &InstanceId) {
        let Some(mut share) = self.shares.remove(launch) else { return };
        self.take_out(&share);
        if let Brings::Unseen(machines, _) = &mut share.brings {
            machines.remove(machine);
        }
        if share.count() > 0 {
            self.add(&share);
            self.shares.insert(launch.clone(), share);
        }
    }

    /// A complete list of the table was begun at this moment: what was bound before it and is not on it is gone.
    pub(crate) fn listed(&mut self, begun: Duration) {
        let gone: Vec<LaunchId> = self
            .shares
            .iter()
            .filter(|(_, share)| matches!(share.brings, Brings::Unseen(_, at) if at < begun))
            .map(|(id, _)| id.clone())
            .collect();
        for launch in gone {
            self.forget(&launch);
        }
    }

    fn add(&mut self, share: &Share) {
        let count = self.coming.entry(share.request.clone()).or_default();
        *count = count.saturating_add(share.count());
    }

    fn take_out(&mut self, share: &Share) {
        let Some(count) = self.coming.get_mut(&share.request) else { return };
        *count = count.saturating_sub(share.count());
        if *count == 0 {
            self.coming.remove(&share.request);
        }
    }
}

fn clamp(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
