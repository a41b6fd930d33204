//! Makes sure that the runner of a claim is off GitHub's list: before its machine goes to the pool, when a machine is
//! gone, and when a single-use runner's name is taken by an attempt whose answer was lost.

use crate::decide::StaleRunners;
use crate::ports::GitHubError;
use crate::ports::github::Scope;

use super::credential_issuer::CredentialIssuer;

impl CredentialIssuer {
    /// Sees to it that none of these runners is listed. One whose number is known is removed by it, if it has one of
    /// their names: the number is its agent's word. Otherwise they are looked for, with one call for each name.
    ///
    /// # Errors
    /// What GitHub answered; [`GitHubError::Busy`] while the runner has, or seems to have, a job: look again later.
    pub async fn remove(&self, stale: &StaleRunners) -> Result<(), GitHubError> {
        // Where this operator registers nobody it has nobody to remove.
        let Ok(scope) = self.scope_ahead(&stale.place) else { return Ok(()) };
        if let Some(number) = stale.number
            && let Some(runner) = self.github.runner_by_id(&scope, number).await?
            && stale.names.contains(&runner.name)
        {
            return self.github.remove_runner(&scope, runner.id).await;
        }
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
