//! Issues credentials to machines: it mints them at GitHub, caches the reusable ones, and seals them to a machine's
//! public key. No credential is ever printed.

use std::sync::Arc;

use crypto_box::aead::rand_core::{CryptoRng, RngCore};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::decide::RunnerConfig;
use crate::model::{
    Instance, Registration, RegistrationCredential, RegistrationMode, RemovalCredential, Repository,
    RequestKey, runner_name, seal,
};
use crate::ports::github::{JobConfig, RunnerSpec, Scope, Token, WorkflowRun};
use crate::ports::scale_sets::ScaleSetError;
use crate::ports::{Clock, Entropy, GitHub, GitHubError, ScaleSets};

use super::groups::Groups;
use super::run_check::{RunCheck, RunProblem};
use super::site::Site;
use super::tokens::{Purpose, Tokens};
use crate::controller::github::memory::PutOff;
use crate::controller::github::memory::Registered;

/// The number of every organisation's default group, and of the only group for a repository's runners.
const DEFAULT_GROUP: u64 = 1;

/// The folder in which jobs work, relative to the runner's own.
const WORK_FOLDER: &str = "_work";
/// How long a single-use configuration is used; GitHub refuses it an hour after it was made.
const JOB_CONFIG: SignedDuration = SignedDuration::from_mins(55);

/// A runner group that an organisation does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the organisation {owner} has no runner group {name:?}; create it, or change the class's runnerGroup"
)]
pub struct UnknownGroup {
    /// The organisation.
    pub owner: String,
    /// The group in the pool record.
    pub name: String,
}

/// The reason why a machine did not get its credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// GitHub failed or refused.
    #[error(transparent)]
    GitHub(#[from] GitHubError),
    /// The class of the request names a runner group that the organisation does not have.
    #[error("{problem}")]
    Group {
        /// The request.
        request: Box<RequestKey>,
        /// The missing group and its organisation.
        problem: UnknownGroup,
    },
    /// The machine has no usable key in its record.
    #[error("the machine's public key cannot be used")]
    Key,
    /// A call that only registration ahead needs failed; nothing waits for it.
    #[error("the runner was not registered ahead of a claim: {0}")]
    AtRest(GitHubError),
    /// GitHub does not list the runner with this number, or not as its agent reports it.
    #[error("GitHub does not show a runner {0} of that name that listens")]
    NotSeen(u64),
    /// GitHub did not set the label of a claim on a runner that was registered ahead.
    #[error("the label was not set: {0}")]
    Label(GitHubError),
    /// A runner that was to be deleted has a job, so it has the label of its claim.
    #[error("the runner has a job already")]
    Labelled,
    /// GitHub has no such run.
    #[error("{problem}")]
    Run {
        /// The request.
        request: Box<RequestKey>,
        /// The problem with its run.
        problem: RunProblem,
    },
}

/// Mints, caches and seals credentials.
pub struct CredentialIssuer {
    pub(crate) github: Arc<dyn GitHub>,
    /// The scale sets, whose slots have runners of their own kind.
    pub(crate) sets: Option<Arc<dyn ScaleSets>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) organization: bool,
    pub(crate) tokens: Tokens,
    pub(crate) ahead: Registered,
    pub(crate) put_off: PutOff,
    /// Notified when a machine reports that GitHub no longer accepts its runner version.
    pub(crate) doubted: Notify,
    /// The check of runs; `None` trusts requests.
    runs: Option<RunCheck>,
    groups: Groups,
}

/// The operator's randomness, for ciphers.
pub(crate) struct Random<'a>(pub(crate) &'a dyn Entropy);

impl RngCore for Random<'_> {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), crypto_box::aead::rand_core::Error> {
        self.0.fill(buffer);
        Ok(())
    }
}

impl CryptoRng for Random<'_> {}

impl CredentialIssuer {
    /// Creates an issuer for one GitHub; `verify_run` is the setting `github.verify_run`.
    pub fn new(
        github: Arc<dyn GitHub>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        organization: bool,
        verify_run: bool,
        sets: Option<Arc<dyn ScaleSets>>,
    ) -> Self {
        let tokens = Tokens::new(Arc::clone(&github), Arc::clone(&clock));
        let runs = verify_run.then(|| RunCheck::new(Arc::clone(&github), Arc::clone(&clock)));
        let (groups, ahead, put_off) = (Groups::default(), Registered::default(), PutOff::default());
        let doubted = Notify::new();
        Self { github, sets, clock, entropy, organization, tokens, ahead, put_off, doubted, runs, groups }
    }

    /// Takes in the runs of a repository that GitHub lists as not over.
    pub(crate) fn runs_listed<'a>(
        &self,
        repository: &(String, String),
        runs: impl Iterator<Item = &'a WorkflowRun>,
    ) {
        if let Some(check) = &self.runs {
            check.listed(repository, runs);
        }
    }

    /// Returns the scope in which the runners of a repository are registered.
    pub(crate) fn scope_in(&self, repository: &Repository) -> Scope {
        let owner = repository.owner().to_owned();
        if self.organization || repository.is_organization() {
            Scope::Organization { owner }
        } else {
            Scope::Repository { owner, name: repository.name().to_owned() }
        }
    }

    /// Attaches the registration credential to a claimed machine's record, if a token is cached. It never calls GitHub,
    /// so that no claim waits for it.
    pub fn attach_registration(&self, next: &mut Instance, runner: &RunnerConfig) {
        let scope = self.scope_in(&runner.request.repository);
        if runner.mode == RegistrationMode::Run
            && (runner.trial || self.runs.as_ref().is_none_or(|runs| runs.confirmed(&runner.request)))
            && let Some(token) = self.tokens.kept(Purpose::Registration, &scope)
        {
            // The write that follows reports an unusable key.
            let _ = self.seal_registration(next, runner, &scope, Secret::Token(token), Name::Usual);
        }
    }

    /// Attaches the removal credential to the record of a released machine, if a token is cached. It never calls
    /// GitHub, so that no release waits for it.
    pub fn attach_removal(&self, next: &mut Instance, repository: &Repository) {
        let scope = self.scope_in(repository);
        if next.registration_seq > 0
            && let Some(token) = self.tokens.kept(Purpose::Removal, &scope)
        {
            let _ = self.seal_removal(next, &scope, &token);
        }
    }

    /// Mints a registration credential and attaches it to a machine's record.
    ///
    /// # Errors
    /// GitHub's error, or the machine's key is invalid.
    pub async fn register(
        &self,
        next: &mut Instance,
        runner: &RunnerConfig,
        name: Name,
    ) -> Result<(), CredentialError> {
        if let Some(set) = runner.request.set() {
            return self.register_slot(next, runner, set).await;
        }
        let scope = self.scope_in(&runner.request.repository);
        if !runner.trial {
            self.confirm_run(&runner.request).await?;
        }
        let secret = match runner.mode {
            RegistrationMode::Run => Secret::Token(self.tokens.get(Purpose::Registration, &scope).await?),
            RegistrationMode::Job => {
                let claim = next.claim.as_ref().ok_or(CredentialError::Key)?;
                let spec = RunnerSpec {
                    name: runner_name(&claim.id, next.registration_seq + 1),
                    labels: runner.labels.clone(),
                    group_id: self.group(&scope, runner).await?,
                    work_folder: WORK_FOLDER.into(),
                };
                let config = self.job_config(&scope, &spec).await?;
                let expires_at = self.clock.now().saturating_add(JOB_CONFIG);
                Secret::Job(config, expires_at.unwrap_or(Timestamp::MAX))
            }
        };
        self.seal_registration(next, runner, &scope, secret, name)
    }

    /// Creates the runner of a slot: one of its scale set, which serves any one job of the set.
    async fn register_slot(
        &self,
        next: &mut Instance,
        runner: &RunnerConfig,
        set: u64,
    ) -> Result<(), CredentialError> {
        let scope = Scope::of_slots(&runner.request.repository);
        let claim = next.claim.as_ref().ok_or(CredentialError::Key)?;
        let name = runner_name(&claim.id, next.registration_seq + 1);
        let sets = self.of_sets()?;
        let config = match sets.job_config(&scope, set, &name, WORK_FOLDER).await {
            // The answer to an earlier attempt was lost, and its configuration with it.
            Err(ScaleSetError::NameTaken(_)) => {
                self.remove_named(&Site::Sets(scope.clone()), &name).await?;
                sets.job_config(&scope, set, &name, WORK_FOLDER).await
            }
            other => other,
        };
        let config = config.map_err(GitHubError::from)?;
        let expires_at = self.clock.now().saturating_add(JOB_CONFIG);
        let secret = Secret::Job(config, expires_at.unwrap_or(Timestamp::MAX));
        self.seal_registration(next, runner, &scope, secret, Name::Usual)
    }

    /// Returns the scale sets.
    pub(super) fn of_sets(&self) -> Result<&dyn ScaleSets, GitHubError> {
        let missing = || GitHubError::Invalid("this operator listens to no scale sets".into());
        self.sets.as_deref().ok_or_else(missing)
    }

    /// Checks at GitHub that the request's run exists, before a credential is issued for it.
    pub(crate) async fn confirm_run(&self, request: &RequestKey) -> Result<(), CredentialError> {
        let Some(runs) = &self.runs else { return Ok(()) };
        runs.confirm(request).await.map_err(|problem| match problem {
            RunProblem::GitHub(error) => CredentialError::GitHub(error),
            RunProblem::Doubtful(_) | RunProblem::Refused(_) => {
                CredentialError::Run { request: Box::new(request.clone()), problem }
            }
        })
    }

    /// Mints a removal credential and attaches it to a machine's record.
    ///
    /// # Errors
    /// GitHub's error, or the machine's key is invalid.
    pub async fn deregister(
        &self,
        next: &mut Instance,
        repository: &Repository,
    ) -> Result<(), CredentialError> {
        let scope = self.scope_in(repository);
        let token = self.tokens.get(Purpose::Removal, &scope).await?;
        self.seal_removal(next, &scope, &token)
    }

    /// Returns the number of a runner group, looked up once an hour. A repository's own runners have no groups.
    async fn group(&self, scope: &Scope, runner: &RunnerConfig) -> Result<u64, CredentialError> {
        let (Scope::Organization { owner }, name) = (scope, &runner.group) else { return Ok(DEFAULT_GROUP) };
        if name.is_empty() {
            return Ok(DEFAULT_GROUP);
        }
        let now = self.clock.now();
        if let Some(id) = self.groups.known(owner, name, now) {
            return Ok(id);
        }
        let id = self.github.runner_group(owner, name).await?;
        let id = id.ok_or_else(|| CredentialError::Group {
            request: Box::new(runner.request.clone()),
            problem: UnknownGroup { owner: owner.clone(), name: name.clone() },
        })?;
        self.groups.keep(owner, name, id, now);
        Ok(id)
    }

    /// Creates a single-use runner. If its name is taken, it belongs to an attempt whose response was lost; its
    /// configuration is lost too, so it is removed and created again.
    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        match self.github.job_config(scope, spec).await {
            Err(GitHubError::NameTaken(_)) => {
                self.remove_named(&Site::Rest(scope.clone()), &spec.name).await?;
                self.github.job_config(scope, spec).await
            }
            other => other,
        }
    }

    fn seal_registration(
        &self,
        next: &mut Instance,
        runner: &RunnerConfig,
        scope: &Scope,
        secret: Secret,
        name: Name,
    ) -> Result<(), CredentialError> {
        let (Some(claim), Some(key)) = (&next.claim, &next.public_key) else {
            return Err(CredentialError::Key);
        };
        let seq = next.registration_seq + 1;
        let name_seq = match (&secret, name) {
            (Secret::Token(_), Name::Usual) => 1,
            (Secret::Token(_), Name::Next) | (Secret::Job(..), _) => seq,
        };
        let (token, job, expires_at) = match secret {
            Secret::Token(token) => (Some(token.value), None, token.expires_at),
            Secret::Job(config, expires_at) => (None, Some(config), expires_at),
        };
        let (jit_config, runner_id) = job.map(|job| (job.encoded, job.runner_id)).unzip();
        let payload = RegistrationCredential {
            claim_id: claim.id.to_string(),
            ahead_id: None,
            seq,
            url: self.github.runner_url(scope),
            token,
            jit_config,
            runner_id,
            runner_name: runner_name(&claim.id, name_seq),
            labels: runner.labels.clone(),
            runner_group: runner.group.clone(),
            keep: runner.keep.clone(),
            expires_at,
        };
        let sealed =
            seal(&payload, key, &mut Random(self.entropy.as_ref())).map_err(|_| CredentialError::Key)?;
        next.registration = Some(Registration { sealed, expires_at: Some(crate::model::millis(expires_at)) });
        next.registration_seq = seq;
        Ok(())
    }

    fn seal_removal(&self, next: &mut Instance, scope: &Scope, token: &Token) -> Result<(), CredentialError> {
        let (Some(claim), Some(key)) = (&next.claim, &next.public_key) else {
            return Err(CredentialError::Key);
        };
        let payload = RemovalCredential {
            claim_id: claim.id.to_string(),
            url: self.github.runner_url(scope),
            token: token.value.clone(),
            expires_at: token.expires_at,
        };
        let sealed =
            seal(&payload, key, &mut Random(self.entropy.as_ref())).map_err(|_| CredentialError::Key)?;
        next.removal =
            Some(Registration { sealed, expires_at: Some(crate::model::millis(token.expires_at)) });
        Ok(())
    }
}

/// The choice among a claim's names under which its runner is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The usual name: with tokens a claim has one runner, and each single-use runner has the next name.
    Usual,
    /// Always the next name.
    Next,
}

enum Secret {
    Token(Token),
    Job(JobConfig, Timestamp),
}
