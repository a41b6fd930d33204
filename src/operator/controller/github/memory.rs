//! State that is remembered between calls to GitHub.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ports::GitHubError;
use crate::ports::github::Scope;

/// Maximum number of registrations ahead of claims within [`WINDOW`]: GitHub's own limit of registrations, which claims
/// need, is fifty times that.
const MOST: usize = 200;
const WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// The times of recent registrations ahead of claims.
#[derive(Default)]
pub(crate) struct Registered(Mutex<VecDeque<Timestamp>>);

impl Registered {
    /// Takes one registration of the window.
    ///
    /// # Errors
    /// The time until the next one is available.
    pub(super) fn take(&self, now: Timestamp) -> Result<(), GitHubError> {
        let mut at: MutexGuard<'_, _> = self.0.lock().expect("nobody panics while holding it");
        while at.front().is_some_and(|first| now.duration_since(*first) >= WINDOW) {
            at.pop_front();
        }
        if at.len() >= MOST {
            let first = at.front().map_or(WINDOW, |first| WINDOW - now.duration_since(*first));
            let retry_after = Duration::try_from(first).unwrap_or_default().max(Duration::from_secs(1));
            return Err(GitHubError::Deferred { retry_after });
        }
        at.push_back(now);
        Ok(())
    }
}

/// The numbers of runners whose removal was deferred by our own budget, by their names. They are not looked up again:
/// if many machines are released together, the lookups would use up the budget of the removals.
#[derive(Default)]
pub(crate) struct PutOff(Mutex<BTreeMap<(Scope, String), u64>>);

impl PutOff {
    pub(super) fn numbers(&self) -> MutexGuard<'_, BTreeMap<(Scope, String), u64>> {
        self.0.lock().expect("nobody panics while holding the numbers of runners")
    }

    pub(super) fn number(&self, scope: &Scope, name: &str) -> Option<u64> {
        self.numbers().get(&(scope.clone(), name.to_owned())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_ahead_of_claims_are_bounded_within_five_minutes() {
        let registered = Registered::default();
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        for _ in 0..MOST {
            assert_eq!(registered.take(at(0)), Ok(()));
        }
        let wait = GitHubError::Deferred { retry_after: Duration::from_secs(10) };
        assert_eq!(registered.take(at(290)), Err(wait));
        assert_eq!(registered.take(at(300)), Ok(()));
    }
}
