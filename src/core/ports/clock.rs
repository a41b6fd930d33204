//! The ports of time and randomness, so that tests and simulations control both.

use std::time::Duration;

use jiff::Timestamp;

/// Tells the time. Waiting is tokio's business, whose time tests can pause.
pub trait Clock: Send + Sync {
    /// The wall clock, cut to milliseconds. For what people and records see; never compared with another machine's.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment of this process, which never jumps. For ages and back-offs.
    fn elapsed(&self) -> Duration;
}

/// The port of randomness.
pub trait Entropy: Send + Sync {
    /// 16 lower-case hexadecimal digits, fresh.
    fn hex(&self) -> String;
    /// Fills a buffer; fit for keys.
    fn fill(&self, buffer: &mut [u8]);
}
