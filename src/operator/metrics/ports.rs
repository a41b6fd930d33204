//! How often is each dependency called, with what outcome, and how long does it take? [`Metered`] wraps a port and
//! counts its calls; it does not change the port's behaviour.
//!
//! Over 400 lines: one short adapter for each port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::Metrics;
use crate::model::{ClassName, InstanceId, Item, PoolMessage, PoolSpec, RecordId, Repository, Write};
use crate::ports::github::{
    BranchFacts, EndOfLife, JobConfig, Listed, RunSource, RunState, Runner, RunnerApplication, RunnerSpec,
    Scope, Token, Waiting, WorkflowJob, WorkflowRun,
};
use crate::ports::{
    Batch, Change, Compute, ComputeError, Doorbell, GitHub, GitHubError, JobBell, JobRings, LaunchOrder,
    Launched, Machine, MachineState, Notices, Page, PoolQueue, QueueDepth, QueueError, Received, Ring,
    StateReason, Store, StoreError, Watch,
};
use crate::status::Health;

const OK: &str = "ok";

/// A read of a watch: counted, but not timed, because it waits for changes.
pub(super) const LOOK: &str = "next";

/// All series of the ports: service, operations, outcomes.
pub(super) const SERIES: &[(&str, &[&str], &[&str])] = &[
    (
        StoreError::SERVICE,
        &["get", "list", "query", "write", "transact", "append", "watch", LOOK],
        StoreError::OUTCOMES,
    ),
    (
        QueueError::SERVICE,
        &[
            "ensure",
            "announce",
            "receive",
            "delete",
            "bury",
            "depth",
            "notices",
            "acknowledge",
            "doorbell",
            "jobs",
        ],
        QueueError::OUTCOMES,
    ),
    (
        ComputeError::SERVICE,
        &["launch", "resolve", "terminate", "describe", "console", "list"],
        ComputeError::OUTCOMES,
    ),
    (
        GitHubError::SERVICE,
        &[
            "registration_token",
            "removal_token",
            "job_config",
            "runner_group",
            "runner",
            "runner_by_id",
            "runners",
            "remove_runner",
            "set_labels",
            "end_of_life",
            "runner_applications",
            "run",
            "repositories",
            "open_runs",
            "run_jobs",
            "run_source",
            "branch",
            "rerun_failed_jobs",
        ],
        GitHubError::OUTCOMES,
    ),
];

/// A port's error as a metric's label.
trait Outcome {
    /// The port's name.
    const SERVICE: &'static str;
    /// All outcomes, `ok` first.
    const OUTCOMES: &'static [&'static str];
    /// Returns the outcome of a failed call.
    fn outcome(&self) -> &'static str;
}

impl Outcome for StoreError {
    const SERVICE: &'static str = "store";
    const OUTCOMES: &'static [&'static str] =
        &[OK, "refused", "contended", "throttled", "unknown", "denied", "no-table", "invalid"];

    fn outcome(&self) -> &'static str {
        self.label()
    }
}

impl Outcome for QueueError {
    const SERVICE: &'static str = "queue";
    const OUTCOMES: &'static [&'static str] =
        &[OK, "missing", "no-service", "throttled", "unreachable", "denied", "invalid"];

    fn outcome(&self) -> &'static str {
        match self {
            Self::NoService(_) => "no-service",
            Self::Missing => "missing",
            Self::Throttled => "throttled",
            Self::Unreachable(_) => "unreachable",
            Self::Denied(_) => "denied",
            Self::Invalid(_) => "invalid",
        }
    }
}

impl Outcome for ComputeError {
    const SERVICE: &'static str = "compute";
    const OUTCOMES: &'static [&'static str] =
        &[OK, "throttled", "no-capacity", "unknown", "refused", "token-spent"];

    fn outcome(&self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::NoCapacity(_) => "no-capacity",
            Self::Unknown(_) => "unknown",
            Self::Refused(_) => "refused",
            Self::TokenSpent(_) => "token-spent",
        }
    }
}

impl Outcome for GitHubError {
    const SERVICE: &'static str = "github";
    const OUTCOMES: &'static [&'static str] =
        &[OK, "unreachable", "throttled", "deferred", "denied", "not-found", "name-taken", "busy", "invalid"];

    fn outcome(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Throttled { .. } => "throttled",
            Self::Deferred { .. } => "deferred",
            Self::Denied(_) => "denied",
            Self::NotFound(_) => "not-found",
            Self::NameTaken(_) => "name-taken",
            Self::Busy(_) => "busy",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// A port whose calls are counted.
pub struct Metered<T: ?Sized> {
    inner: Arc<T>,
    metrics: Metrics,
    health: Option<Arc<Health>>,
}

impl<T: ?Sized> fmt::Debug for Metered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered").finish_non_exhaustive()
    }
}

impl<T: ?Sized> Metered<T> {
    /// Wraps a port to count its calls.
    pub fn new(inner: Arc<T>, metrics: Metrics) -> Self {
        Self { inner, metrics, health: None }
    }

    /// Also reports the table's responses to the health.
    #[must_use]
    pub fn telling(mut self, health: Arc<Health>) -> Self {
        self.health = Some(health);
        self
    }

    async fn counted<O, E: Outcome>(
        &self,
        operation: &str,
        call: impl Future<Output = Result<O, E>> + Send,
    ) -> Result<O, E> {
        let begun = self.metrics.elapsed();
        let result = call.await;
        count(&self.metrics, operation, begun, &result);
        result
    }

    /// Counts and times a call of the table.
    async fn asked<O>(
        &self,
        operation: &str,
        call: impl Future<Output = Result<O, StoreError>> + Send,
    ) -> Result<O, StoreError> {
        let result = self.counted(operation, call).await;
        if let Some(health) = self.health.as_ref().filter(|_| answered(&result)) {
            health.table_answered(self.metrics.elapsed());
        }
        result
    }
}

fn outcome_of<O, E: Outcome>(result: &Result<O, E>) -> &'static str {
    result.as_ref().map_or_else(E::outcome, |_| OK)
}

fn count<O, E: Outcome>(
    metrics: &Metrics,
    operation: &str,
    begun: std::time::Duration,
    result: &Result<O, E>,
) {
    metrics.backend(E::SERVICE, operation, outcome_of(result), metrics.elapsed().saturating_sub(begun));
}

/// Returns whether the table is available to us: a lost race is a response, throttling and denial are not.
fn answered<O>(result: &Result<O, StoreError>) -> bool {
    match result {
        Ok(_) | Err(StoreError::Refused { .. } | StoreError::Contended) => true,
        Err(
            StoreError::Throttled
            | StoreError::Unknown(_)
            | StoreError::Denied(_)
            | StoreError::NoTable(_)
            | StoreError::Invalid(_),
        ) => false,
    }
}

#[async_trait]
impl<T: Store + ?Sized> Store for Metered<T> {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.asked("get", self.inner.get(key)).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.asked("list", self.inner.list(after)).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.asked("query", self.inner.query(pk, sk_prefix, after)).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.asked("write", self.inner.write(write)).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.asked("transact", self.inner.transact(writes)).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.asked("append", self.inner.append(items)).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        let inner = self.counted("watch", self.inner.watch()).await?;
        self.metrics.stream_read();
        Ok(Box::new(MeteredWatch { inner, metrics: self.metrics.clone() }))
    }
}

/// A watch whose reads are counted.
struct MeteredWatch {
    inner: Box<dyn Watch>,
    metrics: Metrics,
}

#[async_trait]
impl Watch for MeteredWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let result = self.inner.next().await;
        // No await from here on: changes that were read cannot be lost.
        self.metrics.look(StoreError::SERVICE, LOOK, outcome_of(&result));
        // A stalled stream responds, too; a working one returns at least the renewals of the lease.
        if result.as_ref().is_ok_and(|changes| !changes.is_empty()) {
            self.metrics.stream_read();
        }
        result
    }
}

#[async_trait]
impl<T: PoolQueue + ?Sized> PoolQueue for Metered<T> {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.counted("ensure", self.inner.ensure(class)).await
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        self.counted("announce", self.inner.announce(message)).await
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        self.counted("receive", self.inner.receive(class, most)).await
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        self.counted("delete", self.inner.delete(class, receipts)).await
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.counted("bury", self.inner.bury(class, receipt, raw)).await
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        self.counted("depth", self.inner.depth(class)).await
    }
}

#[async_trait]
impl<T: Notices + ?Sized> Notices for Metered<T> {
    async fn receive(&self) -> Result<Batch, QueueError> {
        // Counted, but not timed, because it waits for messages.
        let result = self.inner.receive().await;
        self.metrics.look(QueueError::SERVICE, "notices", outcome_of(&result));
        result
    }

    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError> {
        self.counted("acknowledge", self.inner.acknowledge(receipts)).await
    }
}

#[async_trait]
impl<T: Doorbell + ?Sized> Doorbell for Metered<T> {
    async fn rung(&self) -> Result<Vec<Ring>, QueueError> {
        // Counted, but not timed, because it waits for a ring.
        let result = self.inner.rung().await;
        self.metrics.look(QueueError::SERVICE, "doorbell", outcome_of(&result));
        result
    }
}

#[async_trait]
impl<T: JobBell + ?Sized> JobBell for Metered<T> {
    async fn queued(&self) -> Result<JobRings, QueueError> {
        // Counted, but not timed, because it waits for a message.
        let result = self.inner.queued().await;
        self.metrics.look(QueueError::SERVICE, "jobs", outcome_of(&result));
        result
    }
}

#[async_trait]
impl<T: Compute + ?Sized> Compute for Metered<T> {
    fn keeps_inventory(&self) -> bool {
        self.inner.keeps_inventory()
    }

    fn why_ended(&self, id: &InstanceId) -> Option<StateReason> {
        self.inner.why_ended(id)
    }

    fn stop(&self) {
        self.inner.stop();
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        self.counted("launch", self.inner.launch(order)).await
    }

    async fn check(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        self.counted("check", self.inner.check(spec)).await
    }

    async fn resolve(&self, spec: &PoolSpec) -> Result<String, ComputeError> {
        self.counted("resolve", self.inner.resolve(spec)).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.counted("terminate", self.inner.terminate(ids)).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.counted("describe", self.inner.describe(ids)).await
    }

    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        self.counted("console", self.inner.console(id)).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.counted("list", self.inner.list()).await
    }
}

#[async_trait]
impl<T: GitHub + ?Sized> GitHub for Metered<T> {
    fn runner_url(&self, scope: &Scope) -> String {
        self.inner.runner_url(scope)
    }

    async fn registration_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.counted("registration_token", self.inner.registration_token(scope)).await
    }

    async fn removal_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.counted("removal_token", self.inner.removal_token(scope)).await
    }

    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        self.counted("job_config", self.inner.job_config(scope, spec)).await
    }

    async fn runner_group(&self, owner: &str, name: &str) -> Result<Option<u64>, GitHubError> {
        self.counted("runner_group", self.inner.runner_group(owner, name)).await
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, GitHubError> {
        self.counted("runner", self.inner.runner(scope, name)).await
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, GitHubError> {
        self.counted("runner_by_id", self.inner.runner_by_id(scope, id)).await
    }

    async fn runners(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.counted("runners", self.inner.runners(scope)).await
    }

    async fn runners_seen(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.counted("runners", self.inner.runners_seen(scope)).await
    }

    async fn set_labels(&self, scope: &Scope, id: u64, labels: &[String]) -> Result<(), GitHubError> {
        self.counted("set_labels", self.inner.set_labels(scope, id, labels)).await
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), GitHubError> {
        self.counted("remove_runner", self.inner.remove_runner(scope, id)).await
    }

    async fn end_of_life(&self, scope: &Scope, version: &str) -> Result<EndOfLife, GitHubError> {
        self.counted("end_of_life", self.inner.end_of_life(scope, version)).await
    }

    async fn runner_applications(&self, scope: &Scope) -> Result<Vec<RunnerApplication>, GitHubError> {
        self.counted("runner_applications", self.inner.runner_applications(scope)).await
    }

    async fn run(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        waiting: Waiting,
    ) -> Result<RunState, GitHubError> {
        self.counted("run", self.inner.run(owner, name, run_id, waiting)).await
    }

    async fn open_runs(
        &self,
        owner: &str,
        name: &str,
        listed: Listed,
    ) -> Result<Vec<WorkflowRun>, GitHubError> {
        self.counted("open_runs", self.inner.open_runs(owner, name, listed)).await
    }

    async fn run_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
    ) -> Result<Vec<WorkflowJob>, GitHubError> {
        self.counted("run_jobs", self.inner.run_jobs(owner, name, run_id, attempt)).await
    }

    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        self.counted("repositories", self.inner.repositories()).await
    }

    fn budget_used(&self, owner: &str, name: &str) -> f64 {
        self.inner.budget_used(owner, name)
    }

    async fn run_source(&self, owner: &str, name: &str, run_id: u64) -> Result<RunSource, GitHubError> {
        self.counted("run_source", self.inner.run_source(owner, name, run_id)).await
    }

    async fn branch(
        &self,
        owner: &str,
        name: &str,
        branch: &str,
        sha: &str,
    ) -> Result<BranchFacts, GitHubError> {
        self.counted("branch", self.inner.branch(owner, name, branch, sha)).await
    }

    async fn rerun_failed_jobs(&self, owner: &str, name: &str, run_id: u64) -> Result<(), GitHubError> {
        self.counted("rerun_failed_jobs", self.inner.rerun_failed_jobs(owner, name, run_id)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every variant has a declared outcome, and every declared outcome a variant.
    fn check<E: Outcome>(every: &[E]) {
        let outcomes = every.iter().map(Outcome::outcome);
        assert_eq!([OK].into_iter().chain(outcomes).collect::<Vec<_>>(), E::OUTCOMES);
    }

    #[test]
    fn every_error_has_its_outcome() {
        let text = String::new;
        check(&[
            StoreError::Refused { refusals: Vec::new() },
            StoreError::Contended,
            StoreError::Throttled,
            StoreError::Unknown(text()),
            StoreError::Denied(text()),
            StoreError::NoTable(text()),
            StoreError::Invalid(text()),
        ]);
        check(&[
            QueueError::Missing,
            QueueError::NoService(text()),
            QueueError::Throttled,
            QueueError::Unreachable(text()),
            QueueError::Denied(text()),
            QueueError::Invalid(text()),
        ]);
        check(&[
            ComputeError::Throttled,
            ComputeError::NoCapacity(text()),
            ComputeError::Unknown(text()),
            ComputeError::Refused(text()),
            ComputeError::TokenSpent(text()),
        ]);
        check(&[
            GitHubError::Unreachable(text()),
            GitHubError::Throttled { retry_after: std::time::Duration::from_secs(1) },
            GitHubError::Deferred { retry_after: std::time::Duration::from_secs(1) },
            GitHubError::Denied(text()),
            GitHubError::NotFound(text()),
            GitHubError::NameTaken(text()),
            GitHubError::Busy(text()),
            GitHubError::Invalid(text()),
        ]);
    }
}
