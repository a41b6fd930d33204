//! How long do first boots of a class take, and after which silence does one count as hung?

use std::collections::VecDeque;
use std::time::Duration;

/// How many boots are remembered: enough for a percentile, few enough to follow a new image within a day.
const KEPT: usize = 32;
/// Fewer boots than this do not predict the next one.
const FEWEST: usize = 3;
/// No boot counts as hung before this.
const LEAST: Duration = Duration::from_secs(120);

/// The last completed boots of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Boots(VecDeque<Duration>);

impl Boots {
    /// Records how long after its record a machine was of use.
    pub(crate) fn took(&mut self, time: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(time);
    }

    /// Returns after which silence a boot counts as hung: three times the 95th percentile of the last ones, and two
    /// minutes at least. Where too few are known, a third of the boot deadline. Every operator that observed the same
    /// boots computes the same time; only the leader, which launches, acts on it.
    pub(crate) fn patience(&self, deadline: Duration) -> Duration {
        let mut times: Vec<Duration> = self.0.iter().copied().collect();
        times.sort_unstable();
        let at = (times.len() * 95).div_ceil(100).saturating_sub(1);
        match times.get(at) {
            Some(p95) if times.len() >= FEWEST => p95.saturating_mul(3).max(LEAST),
            Some(_) | None => (deadline / 3).max(LEAST),
        }
    }
}

impl Boots {
    /// Returns the time that 95 of 100 boots do not exceed; a minute where too few are known.
    pub(crate) fn usual(&self) -> Duration {
        let mut times: Vec<Duration> = self.0.iter().copied().collect();
        times.sort_unstable();
        let at = (times.len() * 95).div_ceil(100).saturating_sub(1);
        match times.get(at) {
            Some(p95) if times.len() >= FEWEST => *p95,
            Some(_) | None => Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> u64 {
        let mut boots = Boots::default();
        times.into_iter().for_each(|time| boots.took(Duration::from_secs(time)));
        boots.patience(Duration::from_secs(900)).as_secs()
    }

    #[test]
    fn a_boot_is_hung_after_three_times_the_95th_percentile_and_two_minutes_at_least() {
        assert_eq!(after([]), 300, "nothing is known: a third of the deadline");
        assert_eq!(after([50, 50]), 300, "too few");
        assert_eq!(after([20, 20, 20]), 120);
        assert_eq!(after([60, 50, 70]), 210);
        // One boot of twenty may be arbitrarily slow.
        assert_eq!(after(std::iter::repeat_n(60, 19).chain([800])), 180);
        assert_eq!(after(std::iter::repeat_n(60, 18).chain([800, 800])), 2400);
        // Only the last ones count.
        assert_eq!(after(std::iter::repeat_n(800, 40).chain(std::iter::repeat_n(60, 32))), 180);
    }
}
