//! Makes sure that the runner of a claim is off GitHub's list: before its machine goes to the pool, when a machine is
//! gone, and when a single-use runner's name is taken by an attempt whose answer was lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::decide::StaleRunners;
use crate::ports::GitHubError;
use crate::ports::github::Scope;

use super::credential_issuer::CredentialIssuer;

/// The numbers of runners whose removal our own budget put off, by their names. They are not looked up again: of many
/// machines that are given back together, the look-ups would take the budget of the removals.
#[derive(Default)]
pub(super) struct PutOff(Mutex<BTreeMap<(Scope, String), u64>>);

impl PutOff {
    fn numbers(&self) -> MutexGuard<'_, BTreeMap<(Scope, String), u64>> {
        self.0.lock().expect("nobody panics while holding the numbers of runners")
    }

    fn number(&self, scope: &Scope, name: &str) -> Option<u64> {
        self.numbers().get(&(scope.clone(), name.to_owned())).copied()
    }
}

impl CredentialIssuer {
    /// Sees to it that none of these runners is listed. One whose number is known is removed by it, if it has one of
    /// their names: the number is its agent's word. Otherwise they are looked for, with one call for each name.
    ///
    /// # Errors
    /// What GitHub answered; [`GitHubError::Busy`] while the runner has, or seems to have, a job: look again later.
    pub async fn remove(&self, stale: &StaleRunners) -> Result<(), GitHubError> {
        // Where this operator registers nobody it has nobody to remove.
        let Ok(scope) = self.scope_ahead(&stale.place) else { return Ok(()) };
        if let Some(number) = stale.number {
            let known = stale.names.iter().find(|name| self.put_off.number(&scope, name) == Some(number));
            if let Some(name) = known {
                return self.remove_listed(&scope, name, number).await;
            }
            if let Some(runner) = self.github.runner_by_id(&scope, number).await?
                && stale.names.contains(&runner.name)
            {
                return self.remove_listed(&scope, &runner.name, runner.id).await;
            }
        }
        for name in &stale.names {
            self.remove_named(&scope, name).await?;
        }
        Ok(())
    }

    /// Removes the runner of this name if it is listed.
    pub(super) async fn remove_named(&self, scope: &Scope, name: &str) -> Result<(), GitHubError> {
        let number = match self.put_off.number(scope, name) {
            Some(number) => Some(number),
            None => self.github.runner(scope, name).await?.map(|runner| runner.id),
        };
        match number {
            Some(number) => self.remove_listed(scope, name, number).await,
            None => Ok(()),
        }
    }

    /// Removes a runner that was looked up, and remembers it for as long as that is put off.
    async fn remove_listed(&self, scope: &Scope, name: &str, number: u64) -> Result<(), GitHubError> {
        let removed = self.github.remove_runner(scope, number).await;
        let key = (scope.clone(), name.to_owned());
        match &removed {
            Err(GitHubError::Deferred { .. }) => drop(self.put_off.numbers().insert(key, number)),
            Ok(()) | Err(_) => drop(self.put_off.numbers().remove(&key)),
        }
        removed
    }
}
