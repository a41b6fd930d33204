//! What happens next? One source of numbers, drawn from the seed, that everything asks in turn.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The seed's numbers.
pub(crate) struct Chance(Mutex<StdRng>);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// True in so many of a million cases.
    pub(crate) fn in_a_million(&self, cases: u32) -> bool {
        self.0.lock().unwrap().random_range(0..1_000_000) < cases
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&self, cases: u32) -> bool {
        self.in_a_million(cases * 10_000)
    }

    pub(crate) fn number(&self, range: Range<u64>) -> u64 {
        self.0.lock().unwrap().random_range(range)
    }

    pub(crate) fn millis(&self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    pub(crate) fn seconds(&self, range: Range<u64>) -> Duration {
        Duration::from_secs(self.number(range))
    }

    /// One of these.
    pub(crate) fn one<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.number(0..of.len() as u64) as usize]
    }
}
