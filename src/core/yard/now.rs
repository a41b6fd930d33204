//! One moment on three clocks. Observations carry it, and every decision is made at one.

use std::time::Duration;

use jiff::Timestamp;

/// One moment, on three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The operator's wall clock, for thresholds and for times that people read.
    pub wall: Timestamp,
    /// Its monotonic clock, for back-offs.
    pub mono: Duration,
    /// Monotonic time during which the table could be read: the age of heartbeats counts on it.
    pub seen: Duration,
}

impl Now {
    /// Returns when, on the monotonic clock, the wall clock will show `at`, if it continues at its rate.
    pub fn when(&self, at: Timestamp) -> Duration {
        let ahead = at.duration_since(self.wall);
        self.mono + Duration::try_from(ahead).unwrap_or(Duration::ZERO)
    }
}
