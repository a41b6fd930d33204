//! Orders that EC2 refused for what a request chose itself: its own types, or a usage class that is not its class's.
//! Such a refusal belongs to the offering. It holds back no other order of the class, and the second one fails the
//! requests that want the offering.

use std::time::Duration;

use jiff::Timestamp;

use crate::yard::now::Now;

/// First pause of an offering that EC2 refused.
const FIRST: Duration = Duration::from_secs(2);
/// Longest such pause.
const LONGEST: Duration = Duration::from_secs(60);

/// What EC2 said of the orders of an offering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfferingRefusal {
    /// Its last words.
    why: String,
    /// How often in a row.
    times: u32,
    /// Nothing of it is ordered before this moment.
    until: Duration,
    /// When it was refused last.
    last: Timestamp,
    /// When it was refused the time before.
    before: Option<Timestamp>,
}

impl OfferingRefusal {
    /// Of an offering that EC2 did not refuse yet.
    pub(crate) const fn new(now: &Now) -> Self {
        Self { why: String::new(), times: 0, until: Duration::ZERO, last: now.wall, before: None }
    }

    /// EC2 refused an order. Orders that were on their way together count once.
    pub(crate) fn again(&mut self, why: String, now: &Now) {
        self.why = why;
        if now.mono >= self.until {
            self.until = now.mono + (FIRST * 2_u32.pow(self.times.min(8))).min(LONGEST);
            self.before = (self.times > 0).then_some(self.last);
            self.last = now.wall;
            self.times = self.times.saturating_add(1);
        }
    }

    /// Until when nothing of it is ordered.
    pub(crate) const fn until(&self) -> Duration {
        self.until
    }

    /// EC2's last words.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// EC2's last words, where it refused twice since a moment.
    pub(crate) fn twice_since(&self, since: Timestamp) -> Option<&str> {
        self.before.filter(|before| *before >= since).map(|_| self.why.as_str())
    }
}

#[cfg(test)]
mod tests;
