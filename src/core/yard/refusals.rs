//! Orders that EC2 refused for what a request chose itself: its own types, or a usage class that is not its class's.
//! Such a refusal belongs to the offering. It holds back no other order of the class, and the second one fails the
//! requests that want the offering.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::UsageClass;

use super::offerings::Offering;
use super::{Class, Now, Unit};

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
    /// Until when nothing of it is ordered.
    pub(super) const fn until(&self) -> Duration {
        self.until
    }
}

impl Class {
    /// Whether an offering is what a request chose itself, and not what the class's spec says.
    pub(super) fn is_chosen(&self, offering: &Offering) -> bool {
        let usage = |of: UsageClass| self.pool.as_ref().is_some_and(|pool| pool.spec.usage_class != of);
        !offering.types.is_empty() || usage(offering.usage)
    }

    /// EC2 refused an order of an offering that a request chose. Orders that were on their way together count once.
    /// Answers which requests are judged again.
    pub(super) fn refuse(&mut self, offering: &Offering, why: String, now: &Now) -> Vec<Unit> {
        let first = || OfferingRefusal {
            why: String::new(),
            times: 0,
            until: Duration::ZERO,
            last: now.wall,
            before: None,
        };
        let backoff = self.offerings.entry(offering.clone()).or_default();
        let refusal = backoff.refused.get_or_insert_with(first);
        refusal.why = why;
        if now.mono >= refusal.until {
            refusal.until = now.mono + (FIRST * 2_u32.pow(refusal.times.min(8))).min(LONGEST);
            refusal.before = (refusal.times > 0).then_some(refusal.last);
            refusal.last = now.wall;
            refusal.times = refusal.times.saturating_add(1);
        }
        let alike = self.waiting.demands().iter().filter(|(demand, _)| {
            demand.instance_types.as_deref().unwrap_or_default() == offering.types.as_slice()
        });
        let keys = alike.flat_map(|(_, places)| places.iter().map(|(_, key)| key.clone()));
        keys.map(Unit::Request).collect()
    }

    /// EC2's last words on an offering.
    pub(crate) fn refusal_of(&self, offering: &Offering) -> Option<&str> {
        self.offerings.get(offering)?.refused.as_ref().map(|refusal| refusal.why.as_str())
    }

    /// EC2's last words on an offering that it refused twice since a moment.
    pub(crate) fn refused_twice(&self, offering: &Offering, since: Timestamp) -> Option<&str> {
        let refusal = self.offerings.get(offering)?.refused.as_ref()?;
        refusal.before.filter(|before| *before >= since).map(|_| refusal.why.as_str())
    }
}

#[cfg(test)]
mod tests;
