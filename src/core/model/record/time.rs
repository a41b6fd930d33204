//! Times as the contract writes them: RFC 3339 UTC, at most milliseconds.

use jiff::{SignedDuration, Timestamp};

/// A duration in whole seconds, as records carry it.
pub type Seconds = u64;

/// Cuts a time to the precision that records carry.
pub fn millis(at: Timestamp) -> Timestamp {
    // jiff counts milliseconds up to the last whole second of time only.
    let whole = Timestamp::from_millisecond(at.as_millisecond());
    whole
        .or_else(|_| Timestamp::from_second(at.as_second()))
        .expect("a valid timestamp is still valid with less precision")
}

/// Returns `at` plus `by`, saturating at the ends of time.
pub(crate) fn after(at: Timestamp, by: std::time::Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    millis(at.saturating_add(by).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_to_milliseconds_and_printed_with_z() {
        let at: Timestamp = "2026-01-02T03:04:05.678912Z".parse().unwrap();
        assert_eq!(millis(at).to_string(), "2026-01-02T03:04:05.678Z");
    }

    #[test]
    fn adding_too_much_stays_at_the_end_of_time() {
        assert!(
            after(Timestamp::UNIX_EPOCH, std::time::Duration::MAX) > "9998-01-01T00:00:00Z".parse().unwrap()
        );
    }
}
