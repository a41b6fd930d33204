//! What is remembered of runners that are registered ahead: how often a machine was asked for one, and which classes
//! GitHub does not give the labels of their claims.

use std::time::Duration;

/// So many refused labels of a class in a row are no accident of one runner.
const STRIKES: u32 = 3;
/// How long such a class registers no runner ahead: twice as long each time, at most.
const REST: Duration = Duration::from_secs(3600);
const REST_MOST: Duration = Duration::from_secs(24 * 3600);
/// The pause before a pooled machine is asked for another runner, and the longest.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_MOST: Duration = Duration::from_secs(3600);

/// What GitHub answered for the labels of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedLabels {
    /// Refusals since the last label that was set.
    times: u32,
    /// Until when nothing is registered ahead, on the monotonic clock.
    until: Duration,
    /// GitHub's words.
    words: String,
}

impl RefusedLabels {
    /// GitHub refused a label.
    pub(super) fn refused(&mut self, words: String, now: Duration) {
        // Those that were under way say nothing new.
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

    /// Until when nothing is registered ahead, and why; none where it is.
    pub(crate) fn now(&self, now: Duration) -> Option<(Duration, &str)> {
        (now < self.until).then_some((self.until, self.words.as_str()))
    }
}

/// The registrations ahead of claims of a machine since it entered the pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RestOf {
    /// How many there were, or were refused.
    times: u32,
    /// When the last was, on the monotonic clock.
    at: Duration,
}

impl RestOf {
    /// Of a machine that is seen for the first time: whatever was made before may be a moment old.
    pub(super) const fn seen(now: Duration) -> Self {
        Self { times: 0, at: now }
    }

    /// A registration was made, or refused.
    pub(super) fn refused(&mut self, now: Duration) {
        *self = Self { times: self.times.saturating_add(1), at: now };
    }

    /// Since when the last registration is there.
    pub(crate) fn at(&self) -> Duration {
        self.at
    }

    /// When another may be made: each time later, so that a version or a group that GitHub refuses costs next to
    /// nothing.
    pub(crate) fn again_at(&self) -> Duration {
        let doubled = self.times.saturating_sub(1).min(16);
        self.at.saturating_add(AGAIN.saturating_mul(1 << doubled).min(AGAIN_MOST))
    }

    /// Whether none was made or refused since it entered the pool.
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
