//! Caps concurrent actions per kind. After a list, or when a whole yard's deadlines pass together, ten thousand
//! machines need the same call at once, and each call would open a connection. A unit that finds no slot is queued and
//! judged again when one frees up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::decide::{Effect, Planned};
use crate::yard::Unit;

/// Maximum number of concurrent actions of one kind: with calls of 20 to 100 ms some thousands per second. Kinds do not
/// wait for each other.
const LIMIT: usize = 256;

/// The slots of one kind of action.
#[derive(Default)]
struct Kind {
    taken: usize,
    /// Units that found no slot, without duplicates, the longest waiting first.
    line: VecDeque<Unit>,
    known: BTreeSet<Unit>,
}

/// The slots of all kinds.
#[derive(Default)]
pub(super) struct ConcurrencyLimits(BTreeMap<&'static str, Kind>);

impl ConcurrencyLimits {
    /// Acquires a slot for an action of this unit; if none is free, queues the unit and returns false.
    pub(super) fn acquire(&mut self, unit: &Unit, action: &Planned) -> bool {
        if unlimited(action) {
            return true;
        }
        let kind = self.0.entry(action.kind).or_default();
        if kind.taken < LIMIT {
            kind.taken += 1;
            return true;
        }
        if kind.known.insert(unit.clone()) {
            kind.line.push_back(unit.clone());
        }
        false
    }

    /// Releases the slot of an action that has ended.
    pub(super) fn release(&mut self, action: &Planned) {
        if let Some(kind) = self.0.get_mut(action.kind).filter(|_| !unlimited(action)) {
            kind.taken = kind.taken.saturating_sub(1);
        }
    }

    /// Returns the next queued unit for which a slot is free. It must be judged again: its plan may have changed.
    pub(super) fn next(&mut self) -> Option<Unit> {
        let kind = self.0.values_mut().find(|kind| kind.taken < LIMIT && !kind.line.is_empty())?;
        let unit = kind.line.pop_front()?;
        kind.known.remove(&unit);
        Some(unit)
    }
}

/// Returns whether an action needs no slot. Launch orders are not limited here: they queue at the account's limits,
/// where classes take turns, and a queue before that one would defeat the turns.
const fn unlimited(action: &Planned) -> bool {
    matches!(action.effect, Effect::Order(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::execute::tests::intent;
    use crate::model::{InstanceTypes, RecordId};
    use crate::ports::LaunchOrder;

    fn unit(name: &str) -> Unit {
        Unit::Class(name.parse().expect("a class"))
    }

    fn look() -> Planned {
        Planned::look(RecordId::new("instance#i-1", "instance"))
    }

    #[test]
    fn units_without_a_slot_are_queued_once_in_order_of_arrival() {
        let mut limits = ConcurrencyLimits::default();
        assert!((0..LIMIT).all(|_| limits.acquire(&unit("first"), &look())));
        for name in ["b", "a", "b"] {
            assert!(!limits.acquire(&unit(name), &look()));
        }
        assert_eq!(limits.next(), None, "no slot is free yet");
        limits.release(&look());
        assert_eq!(limits.next(), Some(unit("b")));
        assert!(limits.acquire(&unit("b"), &look()));
        assert_eq!(limits.next(), None);
        limits.release(&look());
        assert_eq!([limits.next(), limits.next()], [Some(unit("a")), None]);
    }

    #[test]
    fn a_slot_that_the_next_unit_does_not_need_goes_to_the_one_after() {
        let mut limits = ConcurrencyLimits::default();
        assert!((0..LIMIT).all(|_| limits.acquire(&unit("first"), &look())));
        assert!(!limits.acquire(&unit("a"), &look()) && !limits.acquire(&unit("b"), &look()));
        limits.release(&look());
        assert_eq!([limits.next(), limits.next(), limits.next()], [Some(unit("a")), Some(unit("b")), None]);
    }

    #[test]
    fn kinds_do_not_wait_for_each_other_and_orders_wait_elsewhere() {
        let mut limits = ConcurrencyLimits::default();
        assert!((0..LIMIT).all(|_| limits.acquire(&unit("first"), &look())));
        let expire = Planned::expire(RecordId::new("event#1", "event"), 0);
        assert!(limits.acquire(&unit("a"), &expire));
        let Effect::Intend(launch, _) = intent().effect else { unreachable!("an intent") };
        let spec = serde_json::from_value(serde_json::json!({"resourceClass": "linux"})).expect("a spec");
        let types = InstanceTypes::default();
        let order = Planned::order(LaunchOrder { launch: *launch, spec, types, image: None });
        assert!((0..2 * LIMIT).all(|_| limits.acquire(&unit("a"), &order)));
        limits.release(&order);
        assert_eq!(limits.next(), None);
    }
}
