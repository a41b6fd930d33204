//! What would each request have needed? The least number of idle machines, kept all along, with which it would have
//! been served at once. No distribution is assumed: the class is simulated once for each number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{MOST_NEED, after};

/// One request's use of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// When the request was made.
    pub at: Timestamp,
    /// How many machines it requested.
    pub count: u32,
    /// When the machines were clean again; none where they never were.
    pub back: Option<Timestamp>,
}

/// Computes the need of each use, in the given order, which is that of time. `lead` is the time from a launch until its
/// machine is free, `idle` how long a machine stays free beyond the number that is kept.
///
/// # Guarantees
/// A need is at most [`MOST_NEED`]; above 8 it is rounded up to the next number that is tried.
pub fn needs(uses: &[Use], lead: Duration, idle: Duration) -> Vec<u32> {
    let mut needs = vec![MOST_NEED; uses.len()];
    let mut open = uses.len();
    for kept in ladder() {
        let served = served_at_once(uses, kept, lead, idle);
        for (need, _) in needs.iter_mut().zip(served).filter(|(need, served)| *served && **need > kept) {
            if *need == MOST_NEED && kept < MOST_NEED {
                open -= 1;
            }
            *need = kept;
        }
        if open == 0 {
            break;
        }
    }
    needs
}

/// Lists the numbers that are tried: each up to 8, then four for each doubling.
fn ladder() -> impl Iterator<Item = u32> {
    let coarse = (3..10).flat_map(|power| (5..=8).map(move |part| part << (power - 2)));
    (0..=8).chain(coarse)
}

/// Simulates the class with this many kept machines; returns for each use whether it would have been served at once.
fn served_at_once(uses: &[Use], kept: u32, lead: Duration, idle: Duration) -> Vec<bool> {
    let Some(first) = uses.first() else { return Vec::new() };
    let kept = kept as usize;
    // The time at which each free machine became free, the oldest first.
    let mut free: VecDeque<Timestamp> = std::iter::repeat_n(first.at, kept).collect();
    let mut coming: BinaryHeap<Reverse<(Timestamp, u32, bool)>> = BinaryHeap::new();
    let mut booting = 0_usize;
    let mut served = Vec::with_capacity(uses.len());
    for one in uses {
        while let Some(Reverse((at, count, ordered))) = coming.peek().copied()
            && at <= one.at
        {
            coming.pop();
            booting -= if ordered { count as usize } else { 0 };
            free.extend(std::iter::repeat_n(at, count as usize));
        }
        while free.len() > kept && free.front().is_some_and(|since| after(*since, idle) <= one.at) {
            free.pop_front();
        }
        let taken = free.len().min(one.count as usize);
        free.drain(..taken);
        served.push(taken == one.count as usize);
        if let Some(back) = one.back {
            coming.push(Reverse((back.max(one.at), one.count, false)));
        }
        let lacking = kept.saturating_sub(free.len() + booting);
        if lacking > 0 {
            booting += lacking;
            coming.push(Reverse((after(one.at, lead), lacking as u32, true)));
        }
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(at: i64, count: u32, back: i64) -> Use {
        let second = |second| Timestamp::from_second(1_000_000 + second).unwrap();
        Use { at: second(at), count, back: Some(second(back)) }
    }

    fn of(uses: &[Use]) -> Vec<u32> {
        needs(uses, Duration::from_secs(60), Duration::from_secs(300))
    }

    #[test]
    fn a_request_alone_needs_what_it_asks_for() {
        assert_eq!(of(&[used(0, 3, 600)]), [3]);
        assert_eq!(of(&[]), Vec::<u32>::new());
    }

    #[test]
    fn those_within_one_boot_need_machines_beside_each_other() {
        assert_eq!(of(&[used(0, 1, 600), used(30, 2, 600), used(59, 1, 600)]), [1, 3, 4]);
        assert_eq!(of(&[used(0, 1, 600), used(61, 1, 600)]), [1, 1], "what was taken is there again");
    }

    #[test]
    fn a_machine_that_came_back_serves_until_its_idle_time_is_over() {
        assert_eq!(of(&[used(0, 1, 100), used(200, 1, 900)]), [1, 0]);
        assert_eq!(of(&[used(0, 1, 100), used(401, 1, 900)]), [1, 1]);
    }

    #[test]
    fn a_need_beyond_eight_is_rounded_up_and_never_beyond_the_most() {
        assert_eq!(of(&[used(0, 9, 600)]), [10]);
        assert_eq!(of(&[used(0, 1000, 600)]), [1024]);
        assert_eq!(of(&[used(0, 5000, 600)]), [1024]);
    }
}
