//! The slots of each runner scale set: those that are not over, those that failed, and the last.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::{Phase, Request, RequestKey, SetPlace, slot_number};

/// A set: its place and its number there.
pub(crate) type SetKey = (SetPlace, u64);

/// A slot by its number.
type Numbered = (Option<u64>, RequestKey);

/// The slots of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotsOfSet {
    all: BTreeSet<Numbered>,
    open: BTreeSet<Numbered>,
    failed: BTreeSet<(Timestamp, RequestKey)>,
}

impl SlotsOfSet {
    /// Lists those that are not over, in their order.
    pub(crate) fn open(&self) -> impl Iterator<Item = &RequestKey> {
        self.open.iter().map(|(_, key)| key)
    }

    /// Returns when the last one failed.
    pub(crate) fn failed_at(&self) -> Option<Timestamp> {
        self.failed.last().map(|(at, _)| *at)
    }

    /// Returns the last one, over or not, with its number.
    pub(crate) fn last(&self) -> Option<(u64, &RequestKey)> {
        self.all.last().map(|(number, key)| (number.unwrap_or(0), key))
    }
}

/// The slots of all sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetSlots(BTreeMap<SetKey, SlotsOfSet>);

impl SetSlots {
    pub(super) fn change(&mut self, key: &RequestKey, old: Option<&Request>, new: Option<&Request>) {
        let is_slot = |request: &&Request| request.is_slot();
        let (old, new) = (old.filter(is_slot), new.filter(is_slot));
        let Some(set) = key.set().filter(|_| old.is_some() || new.is_some()) else { return };
        let set = (SetPlace::repository(&key.repository), set);
        let place = (slot_number(key), key.clone());
        let of_set = self.0.entry(set.clone()).or_default();
        let failed =
            |of: &Request| Some((of.updated_at.filter(|_| of.phase() == Phase::Failed)?, key.clone()));
        if let Some(old) = old {
            of_set.all.remove(&place);
            of_set.open.remove(&place);
            failed(old).map(|failed| of_set.failed.remove(&failed));
        }
        if let Some(new) = new {
            if !new.is_released() && new.phase().wants_machines() {
                of_set.open.insert(place.clone());
            }
            of_set.failed.extend(failed(new));
            of_set.all.insert(place);
        }
        if of_set.all.is_empty() {
            self.0.remove(&set);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&SetKey, &SlotsOfSet)> {
        self.0.iter()
    }
}
