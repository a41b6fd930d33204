//! Orders that EC2 refused because of a request's own choice: its own types, or a usage class that is not its class's.
//! Such a refusal belongs to the offering. It holds back no other order of the class, and the second one fails the
//! requests that want the offering.

use std::time::Duration;

use jiff::Timestamp;

use crate::yard::now::Now;

/// First pause of an offering that EC2 refused.
const FIRST: Duration = Duration::from_secs(2);
/// Longest such pause.
const LONGEST: Duration = Duration::from_secs(60);

/// EC2's responses to the orders of an offering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfferingRefusal {
    /// The last error message.
    why: String,
    /// The number of refusals in a row.
    times: u32,
    /// No such machine is ordered before this moment.
    until: Duration,
    /// The time of the last refusal.
    last: Timestamp,
    /// The time of the refusal before it.
    before: Option<Timestamp>,
}

impl OfferingRefusal {
    /// Creates the state of an offering that EC2 did not refuse yet.
    pub(crate) const fn new(now: &Now) -> Self {
        Self { why: String::new(), times: 0, until: Duration::ZERO, last: now.wall, before: None }
    }

    /// Records that EC2 refused an order. Orders that were on their way together count once.
    pub(crate) fn again(&mut self, why: String, now: &Now) {
        self.why = why;
        if now.mono >= self.until {
            self.until = now.mono + (FIRST * 2_u32.pow(self.times.min(8))).min(LONGEST);
            self.before = (self.times > 0).then_some(self.last);
            self.last = now.wall;
            self.times = self.times.saturating_add(1);
        }
    }

    /// Returns until when no such machine is ordered.
    pub(crate) const fn until(&self) -> Duration {
        self.until
    }

    /// Returns EC2's last error message.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Returns EC2's last error message, if it refused twice since a moment.
    pub(crate) fn twice_since(&self, since: Timestamp) -> Option<&str> {
        self.before.filter(|before| *before >= since).map(|_| self.why.as_str())
    }
}

#[cfg(test)]
mod tests;
