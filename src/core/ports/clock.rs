//! The ports of time and randomness, so that tests and simulations control both.

use std::time::Duration;

use jiff::Timestamp;

/// Tells the time. Waiting uses tokio, whose time tests can pause.
pub trait Clock: Send + Sync {
    /// The wall clock, cut to milliseconds. For times that people and records see; never compared with another
    /// machine's.
    fn now(&self) -> Timestamp;
    /// Returns the time since some fixed moment of this process, which never jumps. For ages and back-offs.
    fn elapsed(&self) -> Duration;
}

/// The port of randomness.
pub trait Entropy: Send + Sync {
    /// Returns 16 fresh lower-case hexadecimal digits.
    fn hex(&self) -> String;
    /// Fills a buffer; fit for keys.
    fn fill(&self, buffer: &mut [u8]);
}
