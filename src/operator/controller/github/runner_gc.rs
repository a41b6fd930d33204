//! Garbage collection of stale runners, which GitHub still lists although their claim is over. It runs on an interval
//! and no claim or termination waits for it. It lists GitHub first and reads the records afterwards, so that it never
//! mistakes a runner that registers meanwhile for a stale one. It acts only on listed runners and concludes nothing
//! from one that is missing, so a list that changes while its pages are read is good enough: in a large organisation it
//! always does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::model::{
    Ahead, AheadPlace, ClaimId, Instance, InstanceId, Kind, Life, Reading, Record as _, RecordId, Repository,
    claim_of_runner, read,
};
use crate::ports::github::{Runner, Scope};
use crate::ports::{GitHubError, Store, StoreError};
use crate::yard::Yard;

use super::credential_issuer::CredentialIssuer;
use crate::controller::ordered_watch;

/// The pause after a pass that GitHub or the table interrupted, and before runners with a job are checked again.
const AGAIN: Duration = Duration::from_secs(300);
/// The delay of the first pass after a start.
const FIRST: Duration = Duration::from_secs(60);

/// A question to the loop for the input of a pass.
pub(crate) type Ask = oneshot::Sender<Known>;

/// Collects stale runners until stopped.
pub(crate) struct RunnerGc {
    pub(crate) issuer: Arc<CredentialIssuer>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) every: Duration,
    pub(crate) lease: ordered_watch::Receiver<Option<u64>>,
    pub(crate) ask: mpsc::Sender<Ask>,
    /// Runners without an instance record that were offline in the last pass.
    pub(crate) unknown: BTreeSet<(Scope, u64)>,
}

/// The result of one pass.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pass {
    removed: usize,
    busy: usize,
}

/// The input of a pass from the table.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The repositories for which our runners may be registered.
    repositories: BTreeSet<Repository>,
    /// The trust domains for which runners may be registered ahead of a claim.
    ahead: BTreeSet<String>,
    /// The records of our machines.
    machines: BTreeMap<InstanceId, RecordId>,
    /// The runner versions that classes adopted.
    pub(crate) versions: BTreeSet<String>,
}

impl Known {
    /// Collects the loop's records; of unreadable ones, their keys.
    pub(crate) fn of(yard: &Yard) -> Self {
        let mut known = Self::default();
        known.repositories.extend(yard.repositories().cloned());
        let pools = yard.classes().filter_map(|(_, class)| class.pool.as_ref());
        let adopted = pools.filter_map(|pool| pool.status.runner.adopted.as_ref());
        known.versions.extend(adopted.map(|package| package.version.clone()));
        let ahead = yard.instances().filter(|tracked| tracked.instance.ahead.is_some());
        known.ahead.extend(ahead.map(|tracked| tracked.instance.trust_domain.clone()));
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

    /// Returns the scopes in which our runners may be.
    pub(crate) fn scopes(&self, issuer: &CredentialIssuer) -> BTreeSet<Scope> {
        let ahead = self.ahead.iter().filter_map(|domain| AheadPlace::of(domain));
        let ahead = ahead.filter_map(|place| issuer.scope_ahead(&place).ok());
        self.repositories.iter().map(|of| issuer.scope_in(of)).chain(ahead).collect()
    }
}

/// The reason why a pass was interrupted.
#[derive(Debug, thiserror::Error)]
enum Unfinished {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
}

impl RunnerGc {
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut wait = FIRST.min(self.every);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.every;
            if self.lease.get().is_none() {
                continue;
            }
            let pass = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                pass = self.collect() => pass,
            };
            match pass {
                Ok(collect) => {
                    if collect.removed > 0 || collect.busy > 0 {
                        tracing::info!(
                            removed = collect.removed,
                            busy = collect.busy,
                            "runners without a claim"
                        );
                    }
                    if collect.busy > 0 {
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
                    tracing::warn!(%error, "cannot look for runners without a claim");
                }
            }
        }
    }

    async fn collect(&mut self) -> Result<Pass, Unfinished> {
        let Some(known) = self.known().await else { return Ok(Pass::default()) };
        let mut collect = Pass::default();
        let mut unknown = BTreeSet::new();
        let mut failed = None;
        let scopes = known.scopes(&self.issuer);
        for scope in &scopes {
            // A repository that is gone or not visible does not block the others.
            match self.collect_in(scope, &known, &mut unknown, &mut collect).await {
                Ok(()) => {}
                Err(Unfinished::GitHub(
                    error @ (GitHubError::NotFound(_) | GitHubError::Denied(_) | GitHubError::Invalid(_)),
                )) => tracing::debug!(?scope, %error, "the runners of the scope cannot be listed"),
                Err(error) => failed = Some(error),
            }
        }
        self.unknown = unknown;
        failed.map_or(Ok(collect), Err)
    }

    /// Returns the loop's records; `None` if the loop has ended.
    async fn known(&self) -> Option<Known> {
        let (ask, answer) = oneshot::channel();
        self.ask.send(ask).await.ok()?;
        answer.await.ok()
    }

    async fn collect_in(
        &self,
        scope: &Scope,
        known: &Known,
        unknown: &mut BTreeSet<(Scope, u64)>,
        collect: &mut Pass,
    ) -> Result<(), Unfinished> {
        for runner in self.issuer.github.runners_seen(scope).await? {
            let Some((machine, whose)) = Whose::of(&runner.name) else { continue };
            let left = match known.machines.get(&machine) {
                Some(key) => match self.store.get(key).await? {
                    Some(item) => match read::<Instance>(&item) {
                        Reading::Record(instance) => whose.is_over(&instance),
                        // The runner of an unreadable record remains.
                        Reading::Newer { .. } | Reading::Unreadable(_) => false,
                    },
                    None => self.is_stale_unknown(scope, &runner, unknown),
                },
                None => self.is_stale_unknown(scope, &runner, unknown),
            };
            if !left {
                continue;
            }
            match self.issuer.github.remove_runner(scope, runner.id).await {
                Ok(()) => collect.removed += 1,
                Err(GitHubError::Busy(_)) => collect.busy += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns whether a runner with a name like ours, but without an instance record, is stale: it was listed as
    /// offline in two consecutive passes. It may belong to another yard, to a machine that is being recorded, or to one
    /// whose record was deleted.
    fn is_stale_unknown(&self, scope: &Scope, runner: &Runner, unknown: &mut BTreeSet<(Scope, u64)>) -> bool {
        if runner.online || runner.busy {
            return false;
        }
        let seen = (scope.clone(), runner.id);
        let before = self.unknown.contains(&seen);
        unknown.insert(seen);
        before
    }
}

/// The purpose for which a runner of ours was registered.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// The claim of this version.
    Claim(u64),
    /// Ahead of any claim.
    Ahead(ClaimId),
}

impl Whose {
    /// Parses a runner's name into its machine and its purpose; `None` if the name is not ours.
    fn of(name: &str) -> Option<(InstanceId, Self)> {
        let ahead = Ahead::named(name).map(|(machine, id)| (machine, Self::Ahead(id)));
        ahead.or_else(|| claim_of_runner(name).map(|(machine, version)| (machine, Self::Claim(version))))
    }

    /// Returns whether the machine no longer uses the runner. The list of runners was read before the record, so it
    /// contains no runner registered since.
    fn is_over(&self, instance: &Instance) -> bool {
        match (self, &instance.life) {
            (_, Life::Terminated { .. }) => true,
            (Self::Claim(version), _) => is_over(instance, *version),
            (Self::Ahead(id), _) => instance.ahead.as_ref().is_none_or(|ahead| ahead.id != *id),
        }
    }
}

/// Returns whether the claim that the record had at this version is over and cleaned.
fn is_over(instance: &Instance, version: u64) -> bool {
    let current = instance.claim.as_ref().map_or(0, |claim| ClaimId::version(&claim.id));
    match instance.life {
        Life::Terminated { .. } => true,
        Life::Idle { pooled_at: Some(_) } => version <= current,
        Life::Idle { pooled_at: None } if instance.hold.is_some() => version <= current,
        Life::Created { .. }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Idle { pooled_at: None } => version < current,
    }
}
