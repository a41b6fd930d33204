//! How many actions are under way at the same time? After a list, or when a whole yard's deadlines pass together, ten
//! thousand machines want the same thing at once: a call for each would open a connection for each. What finds no place
//! stays with its unit, which is judged again when its turn comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::decide::{Action, Unit};

/// Actions of one kind under way at the same time: some thousands a second of calls that take 20 to 100 ms. Kinds do not
/// wait for each other.
const PLACES: usize = 256;

/// The places of one kind of action.
#[derive(Default)]
struct Kind {
    taken: usize,
    /// Units that found no place, the one that waits longest first; each stands here once.
    line: VecDeque<Unit>,
    known: BTreeSet<Unit>,
}

/// The places of all kinds.
#[derive(Default)]
pub(super) struct Places(BTreeMap<&'static str, Kind>);

impl Places {
    /// Takes a place for an action of this unit; without one, the unit waits.
    pub(super) fn take(&mut self, unit: &Unit, action: &Action) -> bool {
        if unlimited(action) {
            return true;
        }
        let kind = self.0.entry(action.kind()).or_default();
        if kind.taken < PLACES {
            kind.taken += 1;
            return true;
        }
        if kind.known.insert(unit.clone()) {
            kind.line.push_back(unit.clone());
        }
        false
    }

    /// Gives the place of an action that is over.
    pub(super) fn give(&mut self, action: &Action) {
        if let Some(kind) = self.0.get_mut(action.kind()).filter(|_| !unlimited(action)) {
            kind.taken = kind.taken.saturating_sub(1);
        }
    }

    /// The next unit for which there is a place now; to be judged again, since it may want something else by now.
    pub(super) fn next(&mut self) -> Option<Unit> {
        let kind = self.0.values_mut().find(|kind| kind.taken < PLACES && !kind.line.is_empty())?;
        let unit = kind.line.pop_front()?;
        kind.known.remove(&unit);
        Some(unit)
    }
}

/// An order waits in the line of the account's limits, where classes take turns; a line before that one would undo it.
const fn unlimited(action: &Action) -> bool {
    matches!(action, Action::Order(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LaunchId, RecordId};

    fn unit(name: &str) -> Unit {
        Unit::Class(name.parse().expect("a class"))
    }

    fn look() -> Action {
        Action::Look(RecordId::new("instance#i-1", "instance"))
    }

    #[test]
    fn who_finds_no_place_is_called_once_in_the_order_of_coming() {
        let mut places = Places::default();
        assert!((0..PLACES).all(|_| places.take(&unit("first"), &look())));
        for name in ["b", "a", "b"] {
            assert!(!places.take(&unit(name), &look()));
        }
        assert_eq!(places.next(), None, "there is no place yet");
        places.give(&look());
        assert_eq!(places.next(), Some(unit("b")));
        assert!(places.take(&unit("b"), &look()));
        assert_eq!(places.next(), None);
        places.give(&look());
        assert_eq!([places.next(), places.next()], [Some(unit("a")), None]);
    }

    #[test]
    fn a_place_that_who_was_called_does_not_want_goes_to_the_next() {
        let mut places = Places::default();
        assert!((0..PLACES).all(|_| places.take(&unit("first"), &look())));
        assert!(!places.take(&unit("a"), &look()) && !places.take(&unit("b"), &look()));
        places.give(&look());
        assert_eq!([places.next(), places.next(), places.next()], [Some(unit("a")), Some(unit("b")), None]);
    }

    #[test]
    fn kinds_do_not_wait_for_each_other_and_orders_wait_elsewhere() {
        let mut places = Places::default();
        assert!((0..PLACES).all(|_| places.take(&unit("first"), &look())));
        let expire = Action::Expire(RecordId::new("event#1", "event"), 0);
        assert!(places.take(&unit("a"), &expire));
        let order = Action::Order(LaunchId::parse("0123456789abcdef0123456789abcdef").expect("an id"));
        assert!((0..2 * PLACES).all(|_| places.take(&unit("a"), &order)));
        places.give(&order);
        assert_eq!(places.next(), None);
    }
}
