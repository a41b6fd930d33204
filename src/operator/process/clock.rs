//! The system's time and randomness, read only here.

use std::time::Duration;

use jiff::Timestamp;
use rand::TryRngCore;
use rand::rngs::OsRng;
use tokio::time::Instant;

use crate::model::millis;
use crate::ports::{Clock, Entropy};

/// The system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// When this clock was created; tokio's, so that a test that pauses time pauses ages as well.
    start: Instant,
}

impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        millis(Timestamp::now())
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The operating system's source of randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn hex(&self) -> String {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        format!("{:016x}", u64::from_be_bytes(bytes))
    }

    fn fill(&self, buffer: &mut [u8]) {
        // Without randomness neither keys nor names would be safe: no operator is better than a guessable one.
        OsRng.try_fill_bytes(buffer).expect("the operating system gives random bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ages_follow_tokios_time() {
        let clock = SystemClock::new();
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(90));
    }

    #[test]
    fn the_wall_clock_is_cut_to_milliseconds() {
        let now = SystemClock::new().now();
        assert_eq!(now, millis(now));
        assert!(now > "2025-01-01T00:00:00Z".parse().unwrap());
    }

    #[test]
    fn names_are_sixteen_hexadecimal_digits_and_differ() {
        let (one, other) = (SystemEntropy.hex(), SystemEntropy.hex());
        assert_ne!(one, other);
        for name in [one, other] {
            assert_eq!(name.len(), 16);
            assert!(name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{name}");
        }
    }

    #[test]
    fn a_filled_buffer_is_not_left_as_it_was() {
        let mut key = [0_u8; 32];
        SystemEntropy.fill(&mut key);
        assert_ne!(key, [0; 32]);
    }
}
