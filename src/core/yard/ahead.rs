//! The observations about runners that are registered ahead: how often a runner was registered on a machine, and for
//! which classes GitHub refuses the labels of their claims.

use std::time::Duration;

/// After this many refused labels in a row, the cause is not a single runner.
const STRIKES: u32 = 3;
/// How long such a class registers no runner ahead; doubled each time, up to the limit below.
const REST: Duration = Duration::from_secs(3600);
const REST_MOST: Duration = Duration::from_secs(24 * 3600);
/// The pause before another runner is registered on a pooled machine, and the longest pause.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_MOST: Duration = Duration::from_secs(3600);

/// GitHub's refusals of the labels of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedLabels {
    /// Refusals since the last label that was set.
    times: u32,
    /// Until when nothing is registered ahead, on the monotonic clock.
    until: Duration,
    /// GitHub's error message.
    words: String,
}

impl RefusedLabels {
    /// Counts a label that GitHub refused.
    pub(super) fn refused(&mut self, words: String, now: Duration) {
        // Refusals of labels that were under way add no information.
        if now < self.until {
            return;
        }
        self.times = self.times.saturating_add(1);
        self.words = words;
        if self.times >= STRIKES {
            let doubled = (self.times - STRIKES).min(16);
            self.until = now.saturating_add(REST.saturating_mul(1 << doubled).min(REST_MOST));
        }
    }

    /// Returns until when nothing is registered ahead, and why; none where runners are registered ahead.
    pub(crate) fn now(&self, now: Duration) -> Option<(Duration, &str)> {
        (now < self.until).then_some((self.until, self.words.as_str()))
    }
}

/// The registrations ahead of claims of a machine since it entered the pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RestOf {
    /// How many registrations were made or refused.
    times: u32,
    /// The time of the last one, on the monotonic clock.
    at: Duration,
}

impl RestOf {
    /// Creates the value for a machine that is seen for the first time: an earlier registration may be a moment old.
    pub(super) const fn seen(now: Duration) -> Self {
        Self { times: 0, at: now }
    }

    /// Counts a registration that was made or refused.
    pub(super) fn refused(&mut self, now: Duration) {
        *self = Self { times: self.times.saturating_add(1), at: now };
    }

    /// Returns when the last registration was made or refused.
    pub(crate) fn at(&self) -> Duration {
        self.at
    }

    /// Returns when another registration may be made: after a longer pause each time, so that a version or a group that
    /// GitHub refuses costs next to nothing.
    pub(crate) fn again_at(&self) -> Duration {
        let doubled = self.times.saturating_sub(1).min(16);
        self.at.saturating_add(AGAIN.saturating_mul(1 << doubled).min(AGAIN_MOST))
    }

    /// Returns whether no registration was made or refused since the machine entered the pool.
    pub(crate) fn is_first(&self) -> bool {
        self.times == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn three_refused_labels_in_a_row_are_believed_and_longer_each_time() {
        let mut refused = RefusedLabels::default();
        let now = |refused: &RefusedLabels, hours: u32| refused.now(HOUR * hours).map(|(until, _)| until);
        refused.refused("404".into(), HOUR);
        refused.refused("404".into(), HOUR);
        assert_eq!(now(&refused, 1), None, "it may be the runner's own");
        refused.refused("403".into(), HOUR);
        assert_eq!(refused.now(HOUR), Some((HOUR * 2, "403")));
        assert_eq!(now(&refused, 2), None, "it is tried again");
        refused.refused("403".into(), HOUR * 2);
        assert_eq!(now(&refused, 2), Some(HOUR * 4));
        refused.refused("404".into(), HOUR * 3);
        assert_eq!(refused.now(HOUR * 3), Some((HOUR * 4, "403")), "a claim that was under way");
        for day in 1..40 {
            refused.refused("403".into(), HOUR * 24 * day);
        }
        assert_eq!(now(&refused, 24 * 39), Some(HOUR * 24 * 40), "a day at most");
    }

    #[test]
    fn each_registration_of_a_machine_waits_longer_than_the_one_before() {
        let waits = |times: u32| RestOf { times, at: HOUR }.again_at() - HOUR;
        let seconds = [0, 1, 2, 3, 7, 200].map(|times| waits(times).as_secs());
        assert_eq!(seconds, [60, 60, 120, 240, 3600, 3600]);
    }
}
