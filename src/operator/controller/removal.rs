//! Is the runner of a claim really off GitHub's list? Asked before its machine goes to the pool, when a machine is gone,
//! and when a single-use runner's name turns out to be taken by an attempt whose answer was lost.

use crate::decide::StaleRunners;
use crate::ports::GitHubError;
use crate::ports::github::Scope;

use super::credential_issuer::CredentialIssuer;

impl CredentialIssuer {
    /// Sees to it that none of these runners is listed; a leftover is removed. One call for each where the agent did its
    /// part, since GitHub looks by name.
    ///
    /// # Errors
    /// What GitHub answered; [`GitHubError::Busy`] while the runner has, or seems to have, a job: look again later.
    pub async fn remove(&self, stale: &StaleRunners) -> Result<(), GitHubError> {
        let scope = self.scope_in(&stale.repository);
        for name in &stale.names {
            self.remove_named(&scope, name).await?;
        }
        Ok(())
    }

    /// Removes the runner of this name if it is listed.
    pub(super) async fn remove_named(&self, scope: &Scope, name: &str) -> Result<(), GitHubError> {
        match self.github.runner(scope, name).await? {
            Some(runner) => self.github.remove_runner(scope, runner.id).await,
            None => Ok(()),
        }
    }
}
