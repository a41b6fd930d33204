//! The stored form: items, and the only writes there are. Every write states what it replaces (`Guard`), so a write
//! that would overwrite another one cannot be expressed; a change carries the attributes that it changes and no others,
//! so unknown attributes survive it.

use std::collections::{BTreeMap, BTreeSet};

use super::identity::RecordId;
use super::ids::Uid;
use super::item::Item;

/// The precondition of a write. Each variant describes which other writes it fences off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No record exists: fences off a second creator, and the return of a removed record.
    Absent,
    /// Exactly the version that was read: fences off every writer since.
    Version(u64),
    /// Exactly the version that was read of this very record: fences off every writer since, and a creator of another
    /// record under the same key.
    Image(Uid, u64),
    /// The record exists: all that an agent needs for its own status, and it keeps a zombie from bringing the record
    /// back.
    Exists,
    /// The agent has not written since `heartbeatSeq` was read: fences a death for silence off from a late heartbeat.
    Beat(u64),
    /// The lease still carries this token: fences budgets off from a holder that was replaced.
    Lease(u64),
    /// The request is still `provisioned`: fences a release off from a second one, and from nothing else.
    StillProvisioned,
    /// Any record, or none: for the removal of an agent record, whose machine may have written anything into it, beside
    /// the guarded write of its instance in one transaction; and for the `log` record of a machine, which its agent
    /// alone writes and no decision uses.
    Anything,
    /// `expiresAt` is still this (epoch seconds): fences a deletion off from a record that was given more time.
    ExpiresAt(i64),
}

/// The operation on one record, under its guard.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Write a new record; the guard is `Absent`.
    Create(Item),
    /// Change some attributes.
    Update {
        /// The precondition.
        guard: Guard,
        /// Attributes and their new values.
        set: Item,
        /// Attributes that are removed.
        remove: BTreeSet<String>,
        /// Numbers that are added to the stored ones.
        add: BTreeMap<String, i64>,
    },
    /// Remove the record.
    Delete(Guard),
    /// Change nothing, but fail the transaction unless the guard holds.
    Check(Guard),
}

/// One conditional write of one record.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The record.
    pub key: RecordId,
    /// The operation on it.
    pub operation: Operation,
}

impl Write {
    /// Creates a record where there is none.
    pub fn create(key: RecordId, item: Item) -> Self {
        Self { key, operation: Operation::Create(item) }
    }

    /// Changes the attributes that differ between two forms of a record and no others.
    pub fn difference(key: RecordId, guard: Guard, before: &Item, after: &Item) -> Self {
        let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        let set = set.map(|(name, value)| (name.clone(), value.clone())).collect();
        let remove = before.keys().filter(|name| !after.contains_key(*name)).cloned().collect();
        Self { key, operation: Operation::Update { guard, set, remove, add: BTreeMap::new() } }
    }

    /// Sets attributes and adds to numbers, whatever the other attributes are.
    pub fn update(key: RecordId, guard: Guard, set: Item, add: BTreeMap<String, i64>) -> Self {
        Self { key, operation: Operation::Update { guard, set, remove: BTreeSet::new(), add } }
    }

    /// Removes a record.
    pub fn delete(key: RecordId, guard: Guard) -> Self {
        Self { key, operation: Operation::Delete(guard) }
    }

    /// Lets a transaction through only if the guard holds.
    pub fn check(key: RecordId, guard: Guard) -> Self {
        Self { key, operation: Operation::Check(guard) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AttributeValue;

    fn item(pairs: &[(&str, &str)]) -> Item {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), AttributeValue::S((*v).to_owned()))).collect()
    }

    #[test]
    fn a_difference_touches_only_what_changed() {
        let before = item(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = item(&[("a", "1"), ("b", "2"), ("d", "1")]);
        let write = Write::difference(RecordId::new("p", "s"), Guard::Version(3), &before, &after);
        let Operation::Update { guard, set, remove, add } = write.operation else { panic!("an update") };
        assert_eq!(guard, Guard::Version(3));
        assert_eq!(set, item(&[("b", "2"), ("d", "1")]));
        assert_eq!(remove.into_iter().collect::<Vec<_>>(), ["c"]);
        assert!(add.is_empty());
    }
}
