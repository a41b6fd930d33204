//! Time that a test decides: by hand, or by tokio's clock, which tests can pause.

use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::script::locked;
use runyard_core::model::millis;
use runyard_core::ports::Clock;

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(Mutex<(Timestamp, Duration)>);

impl ManualClock {
    /// A clock that shows `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(Mutex::new((at, Duration::ZERO)))
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let mut time = locked(&self.0);
        time.0 = moved(time.0, SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX));
        time.1 += by;
    }

    /// Sets the wall clock forwards or back, as an administrator or a time server does; no time passes.
    pub fn step(&self, by: SignedDuration) {
        let mut time = locked(&self.0);
        time.0 = moved(time.0, by);
    }
}

fn moved(at: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.saturating_add(by).unwrap_or(end)
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        millis(locked(&self.0).0)
    }

    fn elapsed(&self) -> Duration {
        locked(&self.0).1
    }
}

/// A clock that goes with tokio's, so that paused time is paused for the records too.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    epoch: Timestamp,
    start: Instant,
}

impl TokioClock {
    /// A clock that shows `epoch` now.
    pub fn starting(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        millis(moved(self.epoch, passed))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_no_passing_of_time() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_secs(60));
        clock.step(SignedDuration::from_hours(-24));
        assert_eq!(clock.elapsed(), Duration::from_secs(60));
        assert_eq!(clock.now().as_second(), 60 - 86_400);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_follows_paused_time() {
        let clock = TokioClock::starting(Timestamp::UNIX_EPOCH);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().as_second(), 3600);
    }
}
