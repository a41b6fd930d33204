//! Why a look at re-runs was interrupted, and what else that holds up.

use std::time::Duration;

use crate::ports::{GitHubError, StoreError};

use super::Look;

/// The pause of an account of which GitHub gave no answer, and of all after the table gave none.
pub(super) const REST: Duration = Duration::from_secs(30);

/// Why a look was interrupted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfinished {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
}

impl Unfinished {
    /// Whether another run of the repository may be answered all the same: GitHub fails at some runs alone, such as those
    /// of many jobs.
    pub(super) fn is_of_one_run(&self) -> bool {
        match self {
            Self::Store(_) | Self::GitHub(GitHubError::Throttled { .. } | GitHubError::Deferred { .. }) => {
                false
            }
            Self::GitHub(
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

/// What an error holds up.
pub(super) enum Held {
    /// This look alone.
    Look,
    /// All looks at the account, for so long.
    Account(Duration),
    /// All looks, for so long: the table gave no answer.
    All(Duration),
}

/// What an error of this look holds up.
pub(super) fn held(look: &Look, error: Unfinished) -> Held {
    match error {
        Unfinished::GitHub(
            GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after },
        ) => Held::Account(retry_after),
        Unfinished::GitHub(GitHubError::Unreachable(_)) => {
            tracing::warn!(?look, %error, "re-runs could not be looked for");
            Held::Account(REST)
        }
        Unfinished::Store(_) => {
            tracing::warn!(?look, %error, "re-runs could not be looked for");
            Held::All(REST)
        }
        // A repository that is gone, or not to be seen, holds up no other.
        Unfinished::GitHub(
            GitHubError::Denied(_)
            | GitHubError::NotFound(_)
            | GitHubError::NameTaken(_)
            | GitHubError::Busy(_)
            | GitHubError::Invalid(_),
        ) => {
            tracing::debug!(?look, %error, "re-runs could not be looked for");
            Held::Look
        }
    }
}
