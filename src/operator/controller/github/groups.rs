//! Looks up the numeric ids of runner groups by their names and caches them for an hour, so that a recreated group is
//! found.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

/// How long a number is cached.
const BELIEVED: SignedDuration = SignedDuration::from_hours(1);

/// The cached numbers, by organisation and name.
#[derive(Default)]
pub(crate) struct Groups(Mutex<BTreeMap<(String, String), (u64, Timestamp)>>);

impl Groups {
    /// Returns the number, if it is cached and recent.
    pub(crate) fn known(&self, owner: &str, name: &str, now: Timestamp) -> Option<u64> {
        let kept = self.0.lock().expect("nobody panics while holding the groups");
        let (id, since) = kept.get(&(owner.to_owned(), name.to_owned()))?;
        (now.duration_since(*since) < BELIEVED).then_some(*id)
    }

    /// Caches a number.
    pub(crate) fn keep(&self, owner: &str, name: &str, id: u64, now: Timestamp) {
        let mut kept = self.0.lock().expect("nobody panics while holding the groups");
        kept.insert((owner.to_owned(), name.to_owned()), (id, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_believed_for_an_hour_and_for_its_organisation_alone() {
        let groups = Groups::default();
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        groups.keep("acme", "builders", 7, now);
        assert_eq!(groups.known("acme", "builders", now + SignedDuration::from_mins(59)), Some(7));
        assert_eq!(groups.known("acme", "builders", now + SignedDuration::from_mins(60)), None);
        assert_eq!(groups.known("other", "builders", now), None);
    }
}
