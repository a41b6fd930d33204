//! Do the operators' clocks agree? What stands in the lease cannot have been written later than now: when it was, one of
//! two clocks is off, and deadlines that one of them sets pass too early or too late by the other.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::Lease;

/// How far clocks may differ without a word; what keeps a host's clock keeps it within a fraction of that.
const MAY_DIFFER: SignedDuration = SignedDuration::from_secs(30);
/// How long it is not said again.
const SAID_FOR: Duration = Duration::from_secs(600);

/// When it was last said that they differ.
#[derive(Debug, Default)]
pub(super) struct Clocks(Option<Duration>);

impl Clocks {
    /// How far ahead of ours the clock is that this lease was written by, if it is time to say so.
    pub(super) fn ahead(&mut self, lease: &Lease, wall: Timestamp, mono: Duration) -> Option<SignedDuration> {
        let ahead = lease.updated_at?.duration_since(wall);
        if ahead <= MAY_DIFFER || self.0.is_some_and(|said| mono < said + SAID_FOR) {
            return None;
        }
        self.0 = Some(mono);
        Some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_ahead_is_told_once_in_ten_minutes() {
        let wall: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
        let lease = |seconds| Lease {
            name: Lease::OPERATOR.into(),
            holder: "other".into(),
            token: 1,
            renewals: 7,
            term_seconds: 15.0,
            requested_at: None,
            completed_at: None,
            version: 7,
            updated_at: Some(wall.saturating_add(SignedDuration::from_secs(seconds)).unwrap()),
        };
        let mono = Duration::from_secs(100);
        let mut clocks = Clocks::default();
        for agreed in [-3600, 0, 30] {
            assert_eq!(clocks.ahead(&lease(agreed), wall, mono), None, "a lease may be old: {agreed}");
        }
        assert_eq!(clocks.ahead(&lease(31), wall, mono), Some(SignedDuration::from_secs(31)));
        assert_eq!(clocks.ahead(&lease(3600), wall, mono + SAID_FOR - Duration::from_secs(1)), None);
        assert_eq!(clocks.ahead(&lease(3600), wall, mono + SAID_FOR), Some(SignedDuration::from_hours(1)));
    }
}
