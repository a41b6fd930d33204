//! Why was an action not carried out, and what can a person do about it?

use crate::controller::github::credential_issuer::CredentialError;
use crate::controller::github::run_check::RunProblem;
use crate::decide::Effect;
use crate::model::RecordId;
use crate::ports::{ComputeError, GitHubError, StoreError};

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::controller) enum Failure {
    /// The condition of a write did not hold; the observations contain the present state.
    #[error("the record is not as it was read: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Lost(Vec<RecordId>),
    /// The table failed.
    #[error(transparent)]
    Store(StoreError),
    /// The compute provider failed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// GitHub failed, or a machine's key is unusable.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

impl Failure {
    /// Returns the kind of failure in one word: two failures with the same word have the same reason.
    pub(in crate::controller) const fn label(&self) -> &'static str {
        match self {
            Self::Lost(_) => "Refused",
            Self::Store(error) => error.label(),
            Self::Compute(_) => "Compute",
            Self::Credential(CredentialError::GitHub(_)) if self.refuses() => "GitHubRefuses",
            Self::Credential(CredentialError::GitHub(_)) => "GitHub",
            Self::Credential(CredentialError::Group { .. }) => "RunnerGroup",
            Self::Credential(CredentialError::Key) => "PublicKey",
            Self::Credential(CredentialError::Run { .. }) => "Run",
            Self::Credential(CredentialError::AtRest(_) | CredentialError::NotSeen(_)) => "RegisteredAhead",
            Self::Credential(CredentialError::Label(_) | CredentialError::Labelled) => "Label",
        }
    }

    /// Returns whether GitHub was unreachable, so that the action is retried once any call to GitHub succeeds.
    pub(in crate::controller) const fn github_away(&self) -> bool {
        match self {
            Self::Credential(
                CredentialError::GitHub(error)
                | CredentialError::Label(error)
                | CredentialError::Run { problem: RunProblem::GitHub(error), .. },
            ) => matches!(error, GitHubError::Unreachable(_) | GitHubError::Throttled { .. }),
            Self::Lost(_) | Self::Store(_) | Self::Compute(_) | Self::Credential(_) => false,
        }
    }

    /// Returns whether the failure resolves by itself, so that repeated failures need no report.
    pub(in crate::controller) const fn passes(&self) -> bool {
        matches!(
            self,
            Self::Credential(
                CredentialError::GitHub(GitHubError::Busy(_))
                    | CredentialError::Labelled
                    | CredentialError::AtRest(_)
                    | CredentialError::NotSeen(_)
            )
        )
    }

    /// Returns whether GitHub refuses the call until a person fixes the credential or its permissions.
    pub(in crate::controller) const fn refuses(&self) -> bool {
        matches!(
            self,
            Self::Credential(CredentialError::GitHub(GitHubError::Denied(_) | GitHubError::NotFound(_)))
        )
    }

    /// Returns the number of consecutive failures with one [`Self::label`] that count as persistent. A runner that was
    /// just registered is not visible everywhere at GitHub yet; a credential is.
    pub(in crate::controller) const fn persists_after(&self, effect: &Effect) -> u32 {
        if self.refuses() && matches!(effect, Effect::Credential(..)) { 3 } else { 10 }
    }

    /// Returns the fix for a repeated failure.
    pub(in crate::controller) const fn fix(&self) -> &'static str {
        match self {
            Self::Lost(_) => {
                "compare these records with each other and mend or delete the one that does not fit"
            }
            Self::Store(StoreError::Denied(_)) => {
                "give the operator the permissions of config/iam/operator.json"
            }
            Self::Store(StoreError::NoTable(_)) => "run `runyard init`",
            Self::Store(StoreError::Invalid(_)) => "look at the size and the attributes of the record",
            Self::Store(
                StoreError::Refused { .. }
                | StoreError::Contended
                | StoreError::Throttled
                | StoreError::Unknown(_),
            ) => "look at the table's metrics and the operator's network",
            Self::Compute(_) => "check the operator's permissions and quotas at EC2",
            Self::Credential(CredentialError::GitHub(GitHubError::Denied(_))) => {
                "renew the operator's credential at GitHub or give it its rights; `runyard doctor --config FILE` tries it"
            }
            Self::Credential(CredentialError::GitHub(GitHubError::NotFound(_))) => {
                "see that the operator's credential reaches that repository: the App's installation, or the token's rights"
            }
            Self::Credential(
                CredentialError::GitHub(_)
                | CredentialError::AtRest(_)
                | CredentialError::NotSeen(_)
                | CredentialError::Label(_)
                | CredentialError::Labelled,
            ) => "check the operator's access to GitHub",
            Self::Credential(CredentialError::Group { .. }) => "mend the runner group",
            Self::Credential(CredentialError::Run { .. }) => {
                "ask for machines from a workflow run of that repository"
            }
            Self::Credential(CredentialError::Key) => {
                "expire the machine: its agent shows no key that can be used"
            }
        }
    }
}
