//! Units that are judged in slices: those of a full list, and whatever else becomes due at once. Changes are judged
//! between two slices, so that none waits for more than one.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use crate::yard::Unit;

use super::{LONGEST_SLEEP, Loop};

/// Most units of a slice: at 4 µs a judgement a change waits for about a millisecond.
pub(super) const SLICE: usize = 256;

/// Units to be judged when no change waits.
#[derive(Debug, Default)]
pub(super) struct Slices {
    units: BTreeSet<Unit>,
    /// The last unit of the last slice. The next slice begins behind it, so that no unit is passed over for ever.
    reached: Option<Unit>,
}

impl Slices {
    pub(super) fn extend(&mut self, units: impl IntoIterator<Item = Unit>) {
        self.units.extend(units);
    }

    /// Removes a unit that was judged for another reason.
    pub(super) fn remove(&mut self, unit: &Unit) {
        self.units.remove(unit);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Removes and returns the units of the next slice.
    pub(super) fn next(&mut self) -> BTreeSet<Unit> {
        if self.units.len() <= SLICE {
            self.reached = None;
            return std::mem::take(&mut self.units);
        }
        let begin = self.reached.take().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.units.range((begin, Bound::Unbounded));
        let slice: Vec<Unit> = behind.chain(&self.units).take(SLICE).cloned().collect();
        self.reached = slice.last().cloned();
        slice.iter().for_each(|unit| self.remove(unit));
        slice.into_iter().collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }
}

/// Waits this long; where there is nothing to wait for, only lets other tasks run, and what is ready go first.
pub(super) async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => tokio::task::yield_now().await,
    }
}

impl Loop {
    /// Returns how long the loop may sleep; none while there are more slices to judge. Before the first full list
    /// nothing is judged.
    pub(super) fn wait(&self, now: Duration) -> Option<Duration> {
        let more = self.yard.listed.is_some() && !self.slices.is_empty();
        let next = self.timers.next().map_or(LONGEST_SLEEP, |at| at.saturating_sub(now));
        (!more).then_some(next)
    }

    /// Marks units to be judged: at once, or in slices where they are more than one.
    pub(super) fn mark(&mut self, units: BTreeSet<Unit>) {
        if units.len() > SLICE {
            self.slices.extend(units);
        } else {
            self.dirty.extend(units);
        }
    }

    /// Judges all dirty units and one slice of the others. Before the first full list the slices wait.
    pub(super) fn settle_with_slice(&mut self) {
        if self.yard.listed.is_some() {
            let slice = self.slices.next();
            self.dirty.extend(slice);
        }
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ClassName;

    fn units(from: usize, to: usize) -> impl Iterator<Item = Unit> {
        (from..to).map(|n| Unit::Class(ClassName::parse(&format!("c{n:05}")).unwrap()))
    }

    #[test]
    fn a_slice_is_bounded_and_each_unit_is_in_one() {
        let mut slices = Slices::default();
        slices.extend(units(0, 2 * SLICE + 7));
        let mut sizes = Vec::new();
        let mut all = BTreeSet::new();
        while !slices.is_empty() {
            let next = slices.next();
            sizes.push(next.len());
            assert!(next.into_iter().all(|unit| all.insert(unit)), "one is in two slices");
        }
        assert_eq!(sizes, [SLICE, SLICE, 7]);
        assert_eq!(all, units(0, 2 * SLICE + 7).collect());
    }

    #[test]
    fn units_that_come_again_and_again_do_not_hold_up_the_others() {
        let mut slices = Slices::default();
        slices.extend(units(0, 3 * SLICE));
        let mut judged = BTreeSet::new();
        for _ in 0..3 {
            judged.extend(slices.next());
            slices.extend(units(0, 2 * SLICE));
        }
        assert_eq!(judged, units(0, 3 * SLICE).collect());
    }

    #[test]
    fn a_unit_that_was_judged_for_a_change_is_in_no_slice() {
        let mut slices = Slices::default();
        slices.extend(units(0, 2));
        slices.remove(&units(0, 1).next().unwrap());
        assert_eq!(slices.next(), units(1, 2).collect());
    }
}
