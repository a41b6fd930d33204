//! A person's hold: a machine that is kept so that a person can look at it. It serves no request again, and ends when
//! its time is over.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// How long a machine of a class may be held, in seconds, where its pool does not set it: 4 hours.
pub const MAX_HOLD_SECONDS: u64 = 4 * 3600;

/// The person who wants to look at a machine, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The person.
    pub by: String,
    /// Until when it is wanted; the operator limits it to the longest hold of the class.
    pub until: Timestamp,
}

impl Hold {
    /// Returns when a machine held since `since` ends: at the requested time, and after `most_seconds` at the latest.
    pub fn ends(&self, since: Timestamp, most_seconds: u64) -> Timestamp {
        let most = SignedDuration::from_secs(i64::try_from(most_seconds).unwrap_or(i64::MAX));
        self.until.min(since.saturating_add(most).unwrap_or(Timestamp::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_as_asked_and_never_later_than_its_class_allows() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let hold = Hold { by: "ada".into(), until: at(5000) };
        assert_eq!(hold.ends(at(1000), 3600), at(4600));
        assert_eq!(hold.ends(at(1000), MAX_HOLD_SECONDS), at(5000));
        assert_eq!(hold.ends(at(1000), 0), at(1000));
        assert_eq!(hold.ends(at(1000), u64::MAX), at(5000));
    }
}
