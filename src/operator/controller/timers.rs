//! The timers of units: at most one per unit, the earliest first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::yard::Unit;

/// Timers on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Timers {
    at: BTreeMap<Unit, Duration>,
    order: BTreeSet<(Duration, Unit)>,
}

impl Timers {
    /// Sets, moves or removes a unit's timer.
    pub(super) fn set(&mut self, unit: &Unit, at: Option<Duration>) {
        if let Some(old) = self.at.remove(unit) {
            self.order.remove(&(old, unit.clone()));
        }
        if let Some(at) = at {
            self.at.insert(unit.clone(), at);
            self.order.insert((at, unit.clone()));
        }
    }

    /// Returns the next due time.
    pub(super) fn next(&self) -> Option<Duration> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes and returns the due units.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Unit> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.order.first()
            && *at <= now
        {
            let (_, unit) = self.order.pop_first().expect("there is a first");
            self.at.remove(&unit);
            due.push(unit);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ClassName;

    fn unit(name: &str) -> Unit {
        Unit::Class(ClassName::parse(name).unwrap())
    }

    #[test]
    fn a_unit_has_one_moment_the_last_that_was_set() {
        let mut timers = Timers::default();
        timers.set(&unit("a"), Some(Duration::from_secs(5)));
        timers.set(&unit("a"), Some(Duration::from_secs(2)));
        timers.set(&unit("b"), Some(Duration::from_secs(3)));
        assert_eq!(timers.next(), Some(Duration::from_secs(2)));
        assert_eq!(timers.due(Duration::from_secs(2)), [unit("a")]);
        timers.set(&unit("b"), None);
        assert_eq!(timers.next(), None);
        assert!(timers.due(Duration::from_secs(9)).is_empty());
    }
}
