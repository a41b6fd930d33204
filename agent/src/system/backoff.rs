//! Backoff: computes the wait before the next attempt. Calls to the table and everything that needs GitHub use it.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use runyard_core::ports::Entropy;

/// Waits that double, with jitter, up to a limit.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    waits: ExponentialBackoff,
}

impl Backoff {
    /// Creates waits from `first` up to about `limit`, without end.
    pub fn new(first: Duration, limit: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(limit.max(first))
            .without_max_times()
            .with_jitter();
        Self { builder, waits: builder.build() }
    }

    /// Creates the same waits, with jitter from this source.
    pub fn drawn(first: Duration, limit: Duration, entropy: &dyn Entropy) -> Self {
        let Self { builder, .. } = Self::new(first, limit);
        let mut seed = [0; 8];
        entropy.fill(&mut seed);
        let builder = builder.with_jitter_seed(u64::from_le_bytes(seed));
        Self { builder, waits: builder.build() }
    }

    /// Returns the current wait.
    pub fn wait(&mut self) -> Duration {
        self.waits.next().expect("the waits have no end")
    }

    /// Restarts from the first wait, after a success.
    pub fn reset(&mut self) {
        self.waits = self.builder.build();
    }
}

/// Returns a random number from 0 to 1.
pub fn chance(entropy: &dyn Entropy) -> f64 {
    let mut bytes = [0; 4];
    entropy.fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// Returns the wait after so many failures in a row (from 1), between half and all of 1 s, 2 s, 4 s … 30 s; `chance` is
/// between 0 and 1.
pub fn after_failures(failures: u32, chance: f64) -> Duration {
    let whole = Duration::from_secs(1 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(30));
    whole.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_begin_again_after_a_success() {
        let (first, limit) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, limit);
        let waits: Vec<_> = (0..20).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|w| *w >= first && *w <= limit * 2), "{waits:?}");
        assert!(waits[19] >= limit);
        backoff.reset();
        assert!(backoff.wait() <= first * 2);
    }

    #[test]
    fn failures_double_the_wait_up_to_half_a_minute() {
        assert_eq!(after_failures(1, 1.0), Duration::from_secs(1));
        assert_eq!(after_failures(3, 0.0), Duration::from_secs(2));
        assert_eq!(after_failures(u32::MAX, 1.0), Duration::from_secs(30));
    }
}
