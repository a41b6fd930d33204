//! The stored form: items, and the only writes there are. Every write says what it replaces (`Guard`), so a
//! write that would trample another one cannot be put into words; a change carries the attributes it changes and no
//! others, so attributes we do not know survive it.

use std::collections::{BTreeMap, BTreeSet};

use super::identity::RecordId;
use super::ids::Uid;
use super::item::Item;

/// What a write replaces. The name of each says what it fences off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing is there: fences off a second creator, and the resurrection of what was removed.
    Absent,
    /// Exactly the version that was read: fences off every writer since.
    Version(u64),
    /// Exactly the version that was read of this very record: fences off every writer since, and whoever made another
    /// record under the same key.
    Image(Uid, u64),
    /// The record is there: all an agent needs for its own status, and what stops a zombie from bringing it back.
    Exists,
    /// The agent has not spoken since `heartbeatSeq` was read: fences a death for silence off from a late beat.
    Beat(u64),
    /// The lease still carries this token: fences budgets off from a holder that was replaced.
    Lease(u64),
    /// The request still says `provisioned`: fences a release off from a second one, and from nothing else.
    StillProvisioned,
    /// Whatever is there, or nothing: for the removal of an agent record, whose machine may have written anything into
    /// it, beside the guarded write of its instance in one transaction; and for the `log` record of a machine, which
    /// its agent alone writes and nothing is decided by.
    Anything,
    /// `expiresAt` is still this (epoch seconds): fences a deletion off from a record that was given more time.
    ExpiresAt(i64),
}

/// What to do with one record, on its guard.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Write a new record; the guard is `Absent`.
    Create(Item),
    /// Change some attributes.
    Update {
        /// What it replaces.
        guard: Guard,
        /// Attributes and their new values.
        set: Item,
        /// Attributes that go.
        remove: BTreeSet<String>,
        /// Numbers that rise by so much, from what is stored.
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
    /// Which record.
    pub key: RecordId,
    /// What happens to it.
    pub operation: Operation,
}

impl Write {
    /// Creates a record where there is none.
    pub fn create(key: RecordId, item: Item) -> Self {
        Self { key, operation: Operation::Create(item) }
    }

    /// Changes what differs between two forms of a record and nothing else.
    pub fn difference(key: RecordId, guard: Guard, before: &Item, after: &Item) -> Self {
        let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        let set = set.map(|(name, value)| (name.clone(), value.clone())).collect();
        let remove = before.keys().filter(|name| !after.contains_key(*name)).cloned().collect();
        Self { key, operation: Operation::Update { guard, set, remove, add: BTreeMap::new() } }
    }

    /// Sets attributes and raises numbers, whatever the others are.
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
