//! Selects the generations that a machine has no room for. Pure, so that every mixture of ages and sizes can be tested.

use std::time::{Duration, SystemTime};

use runyard_core::model::MOST_REPORTED;

/// A generation, with the facts that its removal depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The time at which a claim last used it.
    pub(super) used: SystemTime,
    /// How long it is kept unused.
    pub(super) keeps: Duration,
    /// The space that its removal frees, in bytes.
    pub(super) bytes: u64,
}

/// Returns the indices of the generations to remove: those that are too old, then the least recently used ones until no
/// more are left than a record shows, and `short` bytes are freed.
pub(super) fn leaving(held: &[Held], now: SystemTime, short: u64) -> Vec<usize> {
    let age = |one: &Held| now.duration_since(one.used).unwrap_or_default();
    let mut gone: Vec<usize> = Vec::new();
    let mut freed = 0_u64;
    let mut by_use: Vec<usize> = (0..held.len()).collect();
    by_use.sort_by_key(|at| (held[*at].used, *at));
    for at in by_use {
        let one = &held[at];
        let too_many = held.len() - gone.len() > MOST_REPORTED;
        if age(one) > one.keeps || too_many || freed < short {
            freed = freed.saturating_add(one.bytes);
            gone.push(at);
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(days: &[u64]) -> Vec<Held> {
        let day = |days: u64| Duration::from_secs(days * 86_400);
        let now = SystemTime::UNIX_EPOCH + day(1000);
        days.iter().map(|ago| Held { used: now - day(*ago), keeps: day(30), bytes: 100 }).collect()
    }

    fn gone(days: &[u64], short: u64) -> Vec<usize> {
        leaving(&held(days), SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * 86_400), short)
    }

    #[test]
    fn what_is_old_goes_and_then_what_was_used_least_recently() {
        assert_eq!(gone(&[0, 1, 30], 0), Vec::<usize>::new());
        assert_eq!(gone(&[0, 31, 1, 99], 0), [3, 1]);
        assert_eq!(gone(&[0, 5, 3], 1), [1]);
        assert_eq!(gone(&[0, 5, 3], 101), [1, 2]);
        assert_eq!(gone(&[0, 5, 3], u64::MAX), [1, 2, 0]);
        assert_eq!(gone(&[40, 5, 3], 1), [0], "what went for its age counts");
    }

    #[test]
    fn no_more_are_kept_than_a_record_shows() {
        let many: Vec<u64> = (0..14).collect();
        assert_eq!(gone(&many, 0), [13, 12, 11, 10]);
    }

    #[test]
    fn a_clock_that_was_set_back_removes_nothing() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5 * 86_400);
        assert_eq!(leaving(&held(&[0, 1]), now, 0), Vec::<usize>::new());
    }
}
