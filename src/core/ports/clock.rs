//! Time and chance, so that a test or a simulation can decide both.

use std::time::Duration;

use jiff::Timestamp;

/// Tells the time. Waiting is tokio's business, whose time tests can pause.
pub trait Clock: Send + Sync {
    /// The wall clock, cut to milliseconds. For what people and records see; never compared with another machine's.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment of this process, which never jumps. For ages and back-offs.
    fn elapsed(&self) -> Duration;
}

/// Makes names that nobody else makes.
pub trait Entropy: Send + Sync {
    /// 16 lower-case hexadecimal digits, fresh.
    fn hex(&self) -> String;
    /// Fills a buffer; fit for keys.
    fn fill(&self, buffer: &mut [u8]);
}
