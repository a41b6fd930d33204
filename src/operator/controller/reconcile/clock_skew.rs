//! Detects clock skew between operators. If the lease's `updatedAt` is later than now, one of the two clocks is wrong,
//! and deadlines that one operator sets pass too early or too late for the other.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::Lease;

/// The skew that is tolerated without a warning; time synchronisation keeps a host's clock within a fraction of it.
const TOLERATED_SKEW: SignedDuration = SignedDuration::from_secs(30);
/// The minimum interval between two warnings.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// When a skew was last reported, in monotonic time.
#[derive(Debug, Default)]
pub(super) struct ClockSkew(Option<Duration>);

impl ClockSkew {
    /// Returns how far the clock of the lease's writer is ahead of ours, if a warning is due.
    pub(super) fn ahead(&mut self, lease: &Lease, wall: Timestamp, mono: Duration) -> Option<SignedDuration> {
        let ahead = lease.updated_at?.duration_since(wall);
        if ahead <= TOLERATED_SKEW || self.0.is_some_and(|said| mono < said + REPORT_INTERVAL) {
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
    fn a_clock_ahead_is_reported_once_in_ten_minutes() {
        let wall: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
        let lease = |seconds| Lease {
            name: Lease::OPERATOR.into(),
            holder: "other".into(),
            token: 1,
            renewals: 7,
            term_seconds: 15.0,
            requested_at: None,
            completed_at: None,
            operator_version: None,
            history_until: None,
            version: 7,
            updated_at: Some(wall.saturating_add(SignedDuration::from_secs(seconds)).unwrap()),
        };
        let mono = Duration::from_secs(100);
        let mut clock_skew = ClockSkew::default();
        for agreed in [-3600, 0, 30] {
            assert_eq!(clock_skew.ahead(&lease(agreed), wall, mono), None, "a lease may be old: {agreed}");
        }
        assert_eq!(clock_skew.ahead(&lease(31), wall, mono), Some(SignedDuration::from_secs(31)));
        assert_eq!(
            clock_skew.ahead(&lease(3600), wall, mono + REPORT_INTERVAL - Duration::from_secs(1)),
            None
        );
        assert_eq!(
            clock_skew.ahead(&lease(3600), wall, mono + REPORT_INTERVAL),
            Some(SignedDuration::from_hours(1))
        );
    }
}
