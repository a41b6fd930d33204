//! Runners registered ahead of a claim: minted for a pooled machine with an unguessable label, confirmed by GitHub,
//! given the label of a run, and deleted if the claim registers normally.

use crate::decide::RunnerConfig;
use crate::model::{
    Ahead, AheadPlace, ClaimId, Instance, Registration, RegistrationCredential, Repository, millis, seal,
};
use crate::ports::GitHubError;
use crate::ports::github::Scope;

use super::credential_issuer::{CredentialError, CredentialIssuer, Random};
use super::tokens::Purpose;

impl CredentialIssuer {
    /// Returns the scope in which a runner is registered ahead.
    ///
    /// # Errors
    /// A trust domain that names no repository.
    pub(crate) fn scope_ahead(&self, place: &AheadPlace) -> Result<Scope, GitHubError> {
        match place {
            AheadPlace::Repository(name) => {
                let repository = Repository::parse_at_github(name);
                let scope = repository.map(|repository| self.scope_in(&repository));
                scope.map_err(|error| GitHubError::Invalid(error.to_string()))
            }
            AheadPlace::Owner(owner) => Ok(Scope::Organization { owner: owner.clone() }),
        }
    }

    /// Mints a credential with which a pooled machine registers its runner, and attaches it to its record. The
    /// machine's previous runner is removed.
    ///
    /// # Errors
    /// [`CredentialError::AtRest`] with GitHub's error, or because there were too many registrations lately; or the
    /// machine's key is invalid.
    pub async fn register_ahead(
        &self,
        next: &mut Instance,
        place: &AheadPlace,
        group: &str,
        former: Option<u64>,
    ) -> Result<(), CredentialError> {
        let scope = self.scope_ahead(place).map_err(CredentialError::AtRest)?;
        self.ahead.take(self.clock.now()).map_err(CredentialError::AtRest)?;
        let token = self.tokens.get(Purpose::Registration, &scope).await.map_err(CredentialError::AtRest)?;
        if let Some(number) = former {
            self.forget_at_rest(&scope, number).await?;
        }
        let key = next.public_key.as_ref().ok_or(CredentialError::Key)?;
        let id = ClaimId::of(&next.facts.instance_id, next.version);
        let seq = next.registration_seq + 1;
        let mut label = [0; 16];
        self.entropy.fill(&mut label);
        let label = label.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let payload = RegistrationCredential {
            claim_id: String::new(),
            ahead_id: Some(id.to_string()),
            seq,
            url: self.github.runner_url(&scope),
            token: Some(token.value),
            jit_config: None,
            runner_id: None,
            runner_name: Ahead::name_of(&id),
            labels: vec![label],
            runner_group: if self.organization { group.to_owned() } else { String::new() },
            keep: Vec::new(),
            expires_at: token.expires_at,
        };
        let sealed =
            seal(&payload, key, &mut Random(self.entropy.as_ref())).map_err(|_| CredentialError::Key)?;
        next.registration = Some(Registration { sealed, expires_at: Some(millis(token.expires_at)) });
        next.registration_seq = seq;
        next.ahead = Some(Ahead { id, runner_id: None });
        Ok(())
    }

    /// Asks GitHub whether the runner with this number has this name and listens, since the number comes from its
    /// agent.
    ///
    /// # Errors
    /// [`CredentialError::AtRest`] with GitHub's error; [`CredentialError::NotSeen`] if it is not so, or not yet.
    pub async fn confirm_ahead(
        &self,
        place: &AheadPlace,
        number: u64,
        name: &str,
    ) -> Result<(), CredentialError> {
        let scope = self.scope_ahead(place).map_err(CredentialError::AtRest)?;
        let runner = self.github.runner_by_id(&scope, number).await.map_err(CredentialError::AtRest)?;
        if runner.is_some_and(|runner| runner.name == name && runner.online) {
            return Ok(());
        }
        Err(CredentialError::NotSeen(number))
    }

    /// Gives a runner that was registered ahead the labels of a claim, which is written already. Its run is confirmed
    /// before.
    ///
    /// # Errors
    /// The run does not exist, or [`CredentialError::Label`] with GitHub's error.
    pub async fn label(&self, runner: &RunnerConfig, number: u64) -> Result<(), CredentialError> {
        if !runner.trial {
            self.confirm_run(&runner.request).await?;
        }
        let scope = self.scope_in(&runner.request.repository);
        self.github.set_labels(&scope, number, &runner.labels).await.map_err(CredentialError::Label)
    }

    /// Deletes a runner that was registered ahead.
    ///
    /// # Errors
    /// GitHub's error; [`CredentialError::Labelled`] if the runner of a claim has a job, so it has its label.
    pub async fn forget_ahead(
        &self,
        place: &AheadPlace,
        number: u64,
        runner: Option<&RunnerConfig>,
    ) -> Result<(), CredentialError> {
        let scope = self.scope_ahead(place)?;
        if runner.is_none() {
            return self.forget_at_rest(&scope, number).await;
        }
        match self.github.remove_runner(&scope, number).await {
            Err(GitHubError::Busy(_)) => Err(CredentialError::Labelled),
            answer => Ok(answer?),
        }
    }

    /// Deletes such a runner that no claim took. Its label is unguessable and its agent ends it, so a runner that
    /// GitHub does not let us remove does not hold up anything.
    async fn forget_at_rest(&self, scope: &Scope, number: u64) -> Result<(), CredentialError> {
        match self.github.remove_runner(scope, number).await {
            Ok(()) | Err(GitHubError::Denied(_) | GitHubError::NotFound(_)) => Ok(()),
            Err(error) => Err(CredentialError::AtRest(error)),
        }
    }
}
