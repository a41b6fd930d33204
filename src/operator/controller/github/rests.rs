//! Which GitHub accounts are paused? Limits, suspensions and permissions belong to an account, so a failure of one is
//! no reason to pause the others.

use std::collections::BTreeMap;
use std::time::Duration;

/// The paused accounts, in lower case, and the end of each pause on the monotonic clock.
#[derive(Default)]
pub(crate) struct Rests(BTreeMap<String, Duration>);

impl Rests {
    /// Pauses the account until then.
    pub(crate) fn begin(&mut self, owner: &str, until: Duration) {
        self.0.insert(owner.to_ascii_lowercase(), until);
    }

    /// Returns whether the account is paused.
    pub(crate) fn has(&self, owner: &str, now: Duration) -> bool {
        self.0.get(&owner.to_ascii_lowercase()).is_some_and(|until| now < *until)
    }

    /// Drops pauses that are over, so that only paused accounts are stored.
    pub(crate) fn forget(&mut self, now: Duration) {
        self.0.retain(|_, until| now < *until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_rests_until_its_time_however_it_is_written_and_is_then_forgotten() {
        let mut rests = Rests::default();
        let second = Duration::from_secs;
        rests.begin("Acme", second(30));
        rests.begin("zeta", second(60));
        assert!(rests.has("acme", second(29)) && rests.has("ACME", second(29)));
        assert!(!rests.has("acme", second(30)) && !rests.has("other", second(29)));
        rests.forget(second(30));
        assert_eq!(rests.0.len(), 1);
    }
}
