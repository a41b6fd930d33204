//! Numbers over all records that gauges and the watches of GitHub need. They are updated with each change, so that
//! nobody walks the records for them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Instance, InstanceArn, Life, Reason, Repository, Request, RequestKey, UsageClass};

mod phases;
mod slots;
#[cfg(test)]
mod tests;

use phases::Phases;
use slots::SetSlots;
pub(crate) use slots::{SetKey, SlotsOfSet};

/// Most changed requests that are remembered; more are as good as all.
const MOST_CHANGED: usize = 10_000;

/// The numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(super) phases: Phases,
    pub(super) slots: SetSlots,
    /// How many requests there are of each repository.
    pub(super) repositories: BTreeMap<Repository, u32>,
    /// The requests that changed since they were last taken; none while all of them count as changed.
    pub(super) changed: Option<BTreeSet<RequestKey>>,
    /// How many machines out of the pool have their deadline in which second; classes have those of pooled machines.
    pub(super) deadlines: BTreeMap<i64, usize>,
    /// The spot machines that were taken back from a request.
    pub(super) lost: BTreeSet<InstanceArn>,
}

impl Sums {
    /// Takes in a change of a request.
    pub(crate) fn request(&mut self, key: &RequestKey, old: Option<&Request>, new: Option<&Request>) {
        self.phases.change(old, new);
        self.slots.change(key, old, new);
        match (old, new) {
            (None, Some(_)) => *self.repositories.entry(key.repository.clone()).or_default() += 1,
            (Some(_), None) => {
                if let Some(count) = self.repositories.get_mut(&key.repository) {
                    *count = count.saturating_sub(1);
                }
                if self.repositories.get(&key.repository) == Some(&0) {
                    self.repositories.remove(&key.repository);
                }
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
            if changed.len() > MOST_CHANGED {
                self.changed = None;
            }
        }
    }

    /// Takes in a change of a machine.
    pub(crate) fn machine(&mut self, old: Option<&Instance>, new: Option<&Instance>) {
        let deadline = |one: &Instance| {
            let set = one.threshold.filter(|_| one.pooled_at().is_none())?;
            Some(set.at.as_second())
        };
        let (before, after) = (old.and_then(deadline), new.and_then(deadline));
        if before != after {
            if let Some(Entry::Occupied(mut known)) = before.map(|before| self.deadlines.entry(before)) {
                *known.get_mut() -= 1;
                if *known.get() == 0 {
                    known.remove();
                }
            }
            if let Some(after) = after {
                *self.deadlines.entry(after).or_default() += 1;
            }
        }
        let lost = |one: &&Instance| taken_back(one);
        match (old.filter(lost), new.filter(lost)) {
            (None, Some(new)) => drop(self.lost.insert(new.facts.instance_arn.clone())),
            (Some(old), None) => drop(self.lost.remove(&old.facts.instance_arn)),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

/// Returns whether a spot machine was taken back from a request.
fn taken_back(instance: &Instance) -> bool {
    let ended = match instance.life {
        Life::Terminated { reason: Reason::Interrupted | Reason::Vanished, .. } => true,
        Life::Terminated { .. }
        | Life::Created { .. }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Idle { .. } => false,
    };
    ended && instance.claim.is_some() && instance.facts.usage_class == UsageClass::Spot
}
