//! Is the runner of a claim really off GitHub's list? Asked before its machine goes to the pool, when a machine is gone,
//! and when a single-use runner's name turns out to be taken by an attempt whose answer was lost.

use std::collections::BTreeSet;

use crate::model::{Claim, Instance, Pool, RegistrationMode, runner_name};
use crate::ports::GitHubError;
use crate::ports::github::Scope;

use super::courier::Courier;

impl Courier {
    /// Sees to it that no runner of the machine's last claim is listed; a leftover is removed. One call where the
    /// agent did its part, since GitHub looks by name.
    ///
    /// # Errors
    /// What GitHub answered; [`GitHubError::Busy`] while the runner has, or seems to have, a job: look again later.
    pub async fn verify_removed(&self, instance: &Instance, pool: Option<&Pool>) -> Result<(), GitHubError> {
        let Some(claim) = &instance.claim else { return Ok(()) };
        let Some(scope) = self.scope_of(claim) else { return Ok(()) };
        // With tokens a claim has one runner. Of single-use ones GitHub drops what served its job: only the last is left.
        let last = instance.registration_seq.max(1);
        let numbers = match pool.map(|pool| pool.spec.registration_mode) {
            Some(RegistrationMode::Run) => BTreeSet::from([1]),
            Some(RegistrationMode::Job) => BTreeSet::from([last]),
            None => BTreeSet::from([1, last]),
        };
        for number in numbers {
            self.remove_named(&scope, &runner_name(&claim.id, number)).await?;
        }
        Ok(())
    }

    /// Removes every runner that an ended machine's last claim may have left.
    ///
    /// # Errors
    /// What GitHub answered.
    pub async fn sweep(&self, instance: &Instance) -> Result<(), GitHubError> {
        let Some(claim) = &instance.claim else { return Ok(()) };
        let Some(scope) = self.scope_of(claim) else { return Ok(()) };
        for number in BTreeSet::from([1, instance.registration_seq.max(1)]) {
            self.remove_named(&scope, &runner_name(&claim.id, number)).await?;
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

    /// Where a claim's runners are registered, by its request's key alone: the request may be gone already.
    pub(super) fn scope_of(&self, claim: &Claim) -> Option<Scope> {
        claim.request.request().map(|id| self.scope_in(&id.repository))
    }
}
