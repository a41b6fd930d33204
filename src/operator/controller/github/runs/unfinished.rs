//! Why a lookup of runs was interrupted, and which other lookups must wait.

use std::time::Duration;

use crate::ports::{GitHubError, StoreError};

use super::schedule::Look;

/// The pause of an account after a failure of GitHub, and of all accounts after a failure of the table.
pub(super) const REST: Duration = Duration::from_secs(30);

/// The reason why a lookup was interrupted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfinished {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
}

impl Unfinished {
    /// Returns whether another run of the repository may succeed nevertheless: GitHub fails at single runs, such as
    /// those with many jobs, and the table at single records.
    pub(super) fn is_of_one_run(&self) -> bool {
        match self {
            Self::Store(
                StoreError::Throttled
                | StoreError::Unknown(_)
                | StoreError::Denied(_)
                | StoreError::NoTable(_),
            )
            | Self::GitHub(GitHubError::Throttled { .. } | GitHubError::Deferred { .. }) => false,
            Self::Store(StoreError::Refused { .. } | StoreError::Contended | StoreError::Invalid(_))
            | Self::GitHub(
                GitHubError::Unreachable(_)
                | GitHubError::Denied(_)
                | GitHubError::NotFound(_)
                | GitHubError::NameTaken(_)
                | GitHubError::Busy(_)
                | GitHubError::Invalid(_),
            ) => true,
        }
    }
}

/// The lookups that must wait after an error.
pub(super) enum Held {
    /// Only this lookup.
    Look,
    /// All lookups of the account, for this long.
    Account(Duration),
    /// All lookups, for this long: the table did not respond.
    All(Duration),
}

/// Returns the lookups that must wait after an error of this one.
pub(super) fn held(look: &Look, error: Unfinished) -> Held {
    match error {
        Unfinished::GitHub(
            GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after },
        ) => Held::Account(retry_after),
        Unfinished::GitHub(GitHubError::Unreachable(_)) => {
            tracing::warn!(?look, %error, "runs could not be looked up");
            Held::Account(REST)
        }
        Unfinished::Store(StoreError::Refused { .. } | StoreError::Contended | StoreError::Invalid(_)) => {
            Held::Look
        }
        Unfinished::Store(_) => {
            tracing::warn!(?look, %error, "runs could not be looked up");
            Held::All(REST)
        }
        // A repository that is gone or not visible does not hold up the others.
        Unfinished::GitHub(
            GitHubError::Denied(_)
            | GitHubError::NotFound(_)
            | GitHubError::NameTaken(_)
            | GitHubError::Busy(_)
            | GitHubError::Invalid(_),
        ) => {
            tracing::debug!(?look, %error, "runs could not be looked up");
            Held::Look
        }
    }
}
