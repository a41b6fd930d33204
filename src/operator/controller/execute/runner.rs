//! Writes that depend on calls to GitHub: credentials, and the removal of runners.

use crate::controller::github::credential_issuer::{CredentialError, CredentialIssuer, Name};
use crate::decide::{AtGitHub, Credential, Effect, StaleRunners, Step};
use crate::model::{Instance, InstanceArn, RecordId};
use crate::ports::GitHubError;
use crate::yard::Observation;

use super::{Executor, Failure};

impl Executor {
    /// Makes the required calls to GitHub about a machine's runner, then writes the machine's record.
    pub(super) async fn instance(
        &self,
        mut step: Step<Instance>,
        github: AtGitHub,
    ) -> Result<Vec<Observation>, Failure> {
        let (mut labelled, arn) = (None, step.before.facts.instance_arn.clone());
        let answered = match github {
            AtGitHub::Nothing => false,
            AtGitHub::AttachRemoval(repository) => {
                self.issuer().attach_removal(&mut step.after, &repository);
                false
            }
            // An agent that reports the number of its runner leaves the removal to the operator.
            AtGitHub::ConfirmRemoved(stale) if self.verify_removed || stale.number.is_some() => {
                self.issuer().remove(&stale).await.map_err(CredentialError::from)?;
                true
            }
            AtGitHub::ConfirmRemoved(_) => false,
            AtGitHub::Confirm { place, number, name } => {
                self.issuer().confirm_ahead(&place, number, &name).await?;
                true
            }
            AtGitHub::Label { runner, number } => {
                self.issuer().label(&runner, number).await?;
                labelled = Some(Observation::LabelGiven(arn.clone()));
                true
            }
            AtGitHub::Forget { number, runner } => {
                if let Some((place, number)) = &number {
                    self.issuer().forget_ahead(place, *number, runner.as_ref()).await?;
                }
                if let Some(runner) = &runner {
                    self.issuer().attach_registration(&mut step.after, runner);
                }
                number.is_some()
            }
        };
        let mut seen = self.replace(&step).await?;
        seen.extend(answered.then_some(Observation::GitHub(arn, true)).into_iter().chain(labelled));
        Ok(seen)
    }

    /// Returns the issuer of credentials.
    pub(super) fn issuer(&self) -> &CredentialIssuer {
        self.issuer.as_ref().expect("credentials are planned only where there is a GitHub (`Policy::github`)")
    }

    pub(super) async fn credential(
        &self,
        mut step: Step<Instance>,
        credential: &Credential,
    ) -> Result<Vec<Observation>, Failure> {
        match credential {
            Credential::Registration(runner) => {
                self.issuer().register(&mut step.after, runner, Name::Usual).await?;
            }
            Credential::Anew { runner, .. } => {
                self.issuer().register(&mut step.after, runner, Name::Next).await?;
            }
            Credential::Ahead { place, group, former } => {
                self.issuer().register_ahead(&mut step.after, place, group, *former).await?;
            }
            Credential::Removal(repository) => self.issuer().deregister(&mut step.after, repository).await?,
            Credential::Promotion(question) => {
                self.issuer().judge_kept(&mut step.after, question).await.map_err(CredentialError::from)?;
            }
        }
        let mut seen = self.replace(&step).await?;
        seen.push(Observation::GitHub(step.before.facts.instance_arn.clone(), true));
        if let Credential::Anew { dead: Some(dead), .. } = credential
            && let Err(error) = self.issuer().remove(dead).await
        {
            // Nothing waits for it: it is removed with the claim or by the garbage collection of runners.
            tracing::warn!(%error, names = ?dead.names, "a runner that ended cannot be removed at GitHub yet");
        }
        Ok(seen)
    }

    pub(super) async fn sweep(
        &self,
        arn: InstanceArn,
        stale: Option<&StaleRunners>,
    ) -> Result<Vec<Observation>, Failure> {
        let Some(stale) = stale else { return Ok(vec![Observation::Swept(arn)]) };
        match self.issuer().remove(stale).await {
            // GitHub takes a while to notice that the machine is gone, and a repository that is not visible may become
            // visible again: the next garbage collection of runners is early enough.
            Ok(()) | Err(GitHubError::Busy(_) | GitHubError::Denied(_) | GitHubError::NotFound(_)) => {}
            Err(error) => return Err(CredentialError::from(error).into()),
        }
        Ok(vec![Observation::Swept(arn.clone()), Observation::GitHub(arn, true)])
    }
}

/// Returns the observations after a failed registration ahead of a claim, or after a failure to set or remove its
/// label.
pub(super) fn ahead(failure: &CredentialError, records: &[RecordId]) -> Vec<Observation> {
    let machine = records.iter().find_map(|key| key.instance().cloned());
    let Some(arn) = machine else { return Vec::new() };
    let health = |answered: Option<bool>| answered.map(|answered| Observation::GitHub(arn.clone(), answered));
    let (seen, answered) = match failure {
        CredentialError::Labelled => (Some(Observation::LabelSet(arn.clone())), Some(true)),
        CredentialError::Label(error) => {
            let words = refuses(error).then(|| error.to_string());
            (Some(Observation::LabelFailed(arn.clone(), words)), answered(error))
        }
        CredentialError::AtRest(error) => {
            (refuses(error).then(|| Observation::AheadRefused(arn.clone())), answered(error))
        }
        CredentialError::NotSeen(_) => (None, Some(true)),
        CredentialError::GitHub(_)
        | CredentialError::Group { .. }
        | CredentialError::Key
        | CredentialError::Run { .. } => (None, None),
    };
    seen.into_iter().chain(health(answered)).collect()
}

/// Returns the observation that GitHub responded to a call for these records.
pub(super) fn answers(records: &[RecordId]) -> Option<Observation> {
    records.iter().find_map(|key| key.instance().cloned()).map(|arn| Observation::GitHub(arn, true))
}

/// Returns whether GitHub would refuse the call again.
fn refuses(error: &GitHubError) -> bool {
    match error {
        GitHubError::Unreachable(_) | GitHubError::Throttled { .. } | GitHubError::Deferred { .. } => false,
        GitHubError::Denied(_)
        | GitHubError::NotFound(_)
        | GitHubError::NameTaken(_)
        | GitHubError::Busy(_)
        | GitHubError::Invalid(_) => true,
    }
}

/// Returns whether a machine waits for the effect's call to GitHub. It waits for its runner's credentials and removal,
/// and not for the judgement about its kept directories.
pub(super) fn waits_for_github(effect: &Effect) -> bool {
    let judges = |credential: &Credential| matches!(credential, Credential::Promotion(_));
    !matches!(effect, Effect::Credential(_, credential) if judges(credential))
}

/// Returns the observations after a failed call to GitHub: whether GitHub is reachable, and for the machine whether its
/// runner is busy or its call was deferred to stay within GitHub's limits.
pub(super) fn learned(error: &GitHubError, records: &[RecordId], waits: bool) -> Vec<Observation> {
    let about = |arn| match error {
        GitHubError::Busy(_) => Some(Observation::RunnerBusy(arn)),
        GitHubError::Deferred { retry_after } => waits.then_some(Observation::PutOff(arn, *retry_after)),
        GitHubError::Unreachable(_)
        | GitHubError::Throttled { .. }
        | GitHubError::Denied(_)
        | GitHubError::NotFound(_)
        | GitHubError::NameTaken(_)
        | GitHubError::Invalid(_) => None,
    };
    let machines = || records.iter().filter_map(|key| key.instance().cloned());
    // One unreadable response is not an outage for those who do not need it.
    let health = answered(error).filter(|answered| *answered || waits);
    let health =
        health.into_iter().flat_map(|answered| machines().map(move |arn| Observation::GitHub(arn, answered)));
    health.chain(machines().filter_map(about)).collect()
}

/// Returns whether GitHub responded; `None` if no call was sent, because our own budget is no evidence about GitHub's
/// health.
fn answered(error: &GitHubError) -> Option<bool> {
    match error {
        GitHubError::Deferred { .. } => None,
        GitHubError::Unreachable(_) | GitHubError::Throttled { .. } => Some(false),
        GitHubError::Denied(_)
        | GitHubError::NotFound(_)
        | GitHubError::NameTaken(_)
        | GitHubError::Busy(_)
        | GitHubError::Invalid(_) => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_nobody_waits_for_is_no_outage_when_it_cannot_be_read() {
        let unreadable = GitHubError::Unreachable("the answer is unreadable".into());
        assert_eq!(format!("{:?}", learned(&unreadable, &[], false)), "[]");
        let machine = [Instance::key_of(&"arn:aws:ec2:local:000000000000:instance/i-1".parse().unwrap())];
        assert_eq!(format!("{:?}", learned(&unreadable, &machine, false)), "[]");
        assert_eq!(learned(&unreadable, &machine, true).len(), 1);
    }
}
