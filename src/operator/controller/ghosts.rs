//! Which runners of ours does GitHub list although their claim is over? Looked for on an interval, apart from claims and
//! terminations, which never wait for it. GitHub is listed first and the record read after that, so a runner that
//! registers meanwhile is never taken for left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::decide::Yard;
use crate::model::{
    ClaimId, Instance, InstanceId, Kind, Life, Reading, Record as _, RecordId, Repository, read,
};
use crate::ports::github::{Runner, Scope};
use crate::ports::{GitHubError, Store, StoreError};

use super::courier::Courier;

/// When a look is repeated that GitHub, or a list that kept changing, did not let come to its end; and when runners are
/// looked at again that had a job.
const AGAIN: Duration = Duration::from_secs(300);
/// The first look after a start.
const FIRST: Duration = Duration::from_secs(60);

/// Asks the loop what it knows.
pub(super) type Ask = oneshot::Sender<Known>;

/// Looks for them until told to stop.
pub(super) struct Sweeper {
    pub(super) courier: Arc<Courier>,
    pub(super) store: Arc<dyn Store>,
    pub(super) every: Duration,
    pub(super) lease: watch::Receiver<Option<u64>>,
    pub(super) ask: mpsc::Sender<Ask>,
    /// Runners of machines that no record knows, which were not connected when they were last looked at.
    pub(super) strangers: BTreeSet<(Scope, u64)>,
}

/// What became of one look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    removed: usize,
    busy: usize,
}

/// What a look knows of the table.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where our runners may be.
    repositories: BTreeSet<Repository>,
    /// The records of our machines.
    machines: BTreeMap<InstanceId, RecordId>,
}

impl Known {
    /// What the loop knows; of records that it cannot read their keys.
    pub(super) fn of(yard: &Yard) -> Self {
        let mut known = Self::default();
        known.repositories.extend(yard.requests().map(|(_, request)| request.id.repository.clone()));
        let machines = yard.instances().map(|tracked| &tracked.instance);
        known.machines.extend(machines.map(|one| (one.facts.instance_id.clone(), one.key())));
        for key in yard.unreadable.keys().chain(yard.newer.keys()) {
            if let Some(id) = key.request() {
                known.repositories.insert(id.repository.clone());
            } else if key.kind() == Some(Kind::Instance)
                && let Some(id) = key.machine()
                && let Ok(id) = InstanceId::parse(id)
            {
                known.machines.insert(id, key.clone());
            }
        }
        known
    }
}

/// Why a look did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Unfinished {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
}

impl Sweeper {
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let mut wait = FIRST.min(self.every);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.every;
            if self.lease.borrow().is_none() {
                continue;
            }
            let looked = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                looked = self.look() => looked,
            };
            match looked {
                Ok(look) => {
                    if look.removed > 0 || look.busy > 0 {
                        tracing::info!(removed = look.removed, busy = look.busy, "runners without a claim");
                    }
                    if look.busy > 0 {
                        wait = AGAIN.min(self.every);
                    }
                }
                Err(error) => {
                    let pause = match &error {
                        Unfinished::GitHub(
                            GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after },
                        ) => *retry_after,
                        Unfinished::GitHub(_) | Unfinished::Store(_) => AGAIN,
                    };
                    wait = pause.max(AGAIN).min(self.every);
                    tracing::warn!(%error, "runners without a claim could not be looked for");
                }
            }
        }
    }

    async fn look(&mut self) -> Result<Look, Unfinished> {
        let Some(known) = self.known().await else { return Ok(Look::default()) };
        let mut look = Look::default();
        let mut strangers = BTreeSet::new();
        let mut failed = None;
        let scopes: BTreeSet<Scope> = known.repositories.iter().map(|of| self.courier.scope_in(of)).collect();
        for scope in &scopes {
            // A repository that is gone, or not ours to see, hides nobody else's.
            match self.look_in(scope, &known, &mut strangers, &mut look).await {
                Ok(()) => {}
                Err(Unfinished::GitHub(
                    error @ (GitHubError::NotFound(_) | GitHubError::Denied(_) | GitHubError::Invalid(_)),
                )) => tracing::debug!(?scope, %error, "its runners cannot be listed"),
                Err(error) => failed = Some(error),
            }
        }
        self.strangers = strangers;
        failed.map_or(Ok(look), Err)
    }

    /// What the loop knows; nothing when it ends.
    async fn known(&self) -> Option<Known> {
        let (ask, answer) = oneshot::channel();
        self.ask.send(ask).await.ok()?;
        answer.await.ok()
    }

    async fn look_in(
        &self,
        scope: &Scope,
        known: &Known,
        strangers: &mut BTreeSet<(Scope, u64)>,
        look: &mut Look,
    ) -> Result<(), Unfinished> {
        for runner in self.courier.github.runners(scope).await? {
            let Some((machine, version)) = claim_of(&runner.name) else { continue };
            let left = match known.machines.get(&machine) {
                Some(key) => match self.store.get(key).await? {
                    Some(item) => match read::<Instance>(&item) {
                        Reading::Record(instance) => is_over(&instance, version),
                        // What cannot be read is left alone, its runner too.
                        Reading::Newer { .. } | Reading::Unreadable(_) => false,
                    },
                    None => self.stranger(scope, &runner, strangers),
                },
                None => self.stranger(scope, &runner, strangers),
            };
            if !left {
                continue;
            }
            match self.courier.github.remove_runner(scope, runner.id).await {
                Ok(()) => look.removed += 1,
                Err(GitHubError::Busy(_)) => look.busy += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A runner named as ours whose machine no record knows: another yard's, a machine's that is only being recorded,
    /// or one's whose record is gone. It is left behind if it was not connected twice in a row.
    fn stranger(&self, scope: &Scope, runner: &Runner, strangers: &mut BTreeSet<(Scope, u64)>) -> bool {
        if runner.online || runner.busy {
            return false;
        }
        let seen = (scope.clone(), runner.id);
        let before = self.strangers.contains(&seen);
        strangers.insert(seen);
        before
    }
}

/// The machine and the version that a runner's name tells; nothing for a name that is not ours.
fn claim_of(name: &str) -> Option<(InstanceId, u64)> {
    let claim = name.strip_prefix("runyard-")?;
    let (machine, version) = claim.rsplit_once('.')?;
    let version = version.split_once('-').map_or(version, |(version, _)| version);
    Some((InstanceId::parse(machine).ok()?, version.parse().ok()?))
}

/// Whether the claim that the record had at this version is over and cleaned up after.
fn is_over(instance: &Instance, version: u64) -> bool {
    let current = instance.claim.as_ref().map_or(0, |claim| ClaimId::version(&claim.id));
    match instance.life {
        Life::Terminated { .. } => true,
        Life::Idle { pooled_at: Some(_) } => version <= current,
        Life::Created { .. }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Idle { pooled_at: None } => version < current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runners_name_tells_its_machine_and_version() {
        let id = |text: &str| InstanceId::parse(text).unwrap();
        let machine = "i-0123456789abcdef0";
        assert_eq!(claim_of(&format!("runyard-{machine}.12")), Some((id(machine), 12)));
        assert_eq!(claim_of(&format!("runyard-{machine}.12-3")), Some((id(machine), 12)));
        for other in ["runyard-x", "build-box", "runyard-i-1", &format!("{machine}.12"), "runyard-.1"] {
            assert_eq!(claim_of(other), None, "{other}");
        }
    }
}
