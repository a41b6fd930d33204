//! Makes sure that the runner of a claim is not listed at GitHub: before its machine goes to the pool, when a machine
//! is gone, and when a single-use runner's name is taken by an attempt whose response was lost.

use crate::decide::StaleRunners;
use crate::model::Repository;
use crate::ports::GitHubError;
use crate::ports::github::{Runner, Scope};

use super::credential_issuer::CredentialIssuer;
use super::site::Site;

impl CredentialIssuer {
    /// Returns where runners that may be left over are.
    fn site(&self, stale: &StaleRunners) -> Result<Site, GitHubError> {
        if !stale.of_set {
            return self.scope_ahead(&stale.place).map(Site::Rest);
        }
        let repository = stale.place.to_string().parse::<Repository>();
        let repository = repository.map_err(|error| GitHubError::Invalid(error.to_string()))?;
        Ok(Site::Sets(Scope::of_slots(&repository)))
    }

    async fn with_number(&self, site: &Site, number: u64) -> Result<Option<Runner>, GitHubError> {
        match site {
            Site::Rest(scope) => self.github.runner_by_id(scope, number).await,
            Site::Sets(scope) => Ok(self.of_sets()?.runner_by_id(scope, number).await?),
        }
    }

    async fn with_name(&self, site: &Site, name: &str) -> Result<Option<Runner>, GitHubError> {
        match site {
            Site::Rest(scope) => self.github.runner(scope, name).await,
            Site::Sets(scope) => Ok(self.of_sets()?.runner(scope, name).await?),
        }
    }

    /// Removes all of these runners that are listed. A runner with a known number is removed by it if it has one of
    /// their names, since the number comes from its agent. Otherwise they are searched, with one call for each name.
    ///
    /// # Errors
    /// GitHub's error; [`GitHubError::Busy`] while the runner has, or seems to have, a job: check again later.
    pub async fn remove(&self, stale: &StaleRunners) -> Result<(), GitHubError> {
        // This operator registers no runners in other scopes, so there is nothing to remove.
        let Ok(site) = self.site(stale) else { return Ok(()) };
        let removed = match stale.number {
            Some(number) => self.remove_numbered(&site, stale, number).await?,
            None => None,
        };
        if removed.is_some_and(|name| !is_registered_anew(stale, name)) {
            return Ok(());
        }
        for name in stale.names.iter().filter(|name| removed != Some(*name)) {
            self.remove_named(&site, name).await?;
        }
        Ok(())
    }

    /// Removes the runner with a number if it is listed under one of these names; returns the name.
    async fn remove_numbered<'a>(
        &self,
        site: &Site,
        stale: &'a StaleRunners,
        number: u64,
    ) -> Result<Option<&'a String>, GitHubError> {
        let put_off = stale.names.iter().find(|name| self.put_off.number(site.scope(), name) == Some(number));
        let listed = match put_off {
            Some(name) => Some(name),
            None => {
                let runner = self.with_number(site, number).await?;
                runner.and_then(|runner| stale.names.iter().find(|name| **name == runner.name))
            }
        };
        if let Some(name) = listed {
            self.remove_listed(site, name, number).await?;
        }
        Ok(listed)
    }

    /// Removes the runner with this name if it is listed.
    pub(super) async fn remove_named(&self, site: &Site, name: &str) -> Result<(), GitHubError> {
        let number = match self.put_off.number(site.scope(), name) {
            Some(number) => Some(number),
            None => self.with_name(site, name).await?.map(|runner| runner.id),
        };
        match number {
            Some(number) => self.remove_listed(site, name, number).await,
            None => Ok(()),
        }
    }

    /// Removes a runner that was looked up, and remembers it while its removal is deferred.
    async fn remove_listed(&self, site: &Site, name: &str, number: u64) -> Result<(), GitHubError> {
        let removed = match site {
            Site::Rest(scope) => self.github.remove_runner(scope, number).await,
            Site::Sets(scope) => Ok(self.of_sets()?.remove_runner(scope, number).await?),
        };
        let key = (site.scope().clone(), name.to_owned());
        match &removed {
            Err(GitHubError::Deferred { .. }) => drop(self.put_off.numbers().insert(key, number)),
            Ok(()) | Err(_) => drop(self.put_off.numbers().remove(&key)),
        }
        removed
    }
}

/// Returns whether a runner is one that a claim registered after another had ended: the earlier one may still be listed
/// if its removal failed.
fn is_registered_anew(stale: &StaleRunners, name: &str) -> bool {
    let first = stale.names.first().and_then(|first| name.strip_prefix(first.as_str()));
    first.is_some_and(|number| number.starts_with('-'))
}
