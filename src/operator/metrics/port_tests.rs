//! Checks that metering a port changes nothing but the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Metrics;
use super::ports::Metered;
use super::tests::{class, metrics, value};
use crate::model::{ClassName, InstanceId, Item, PoolMessage, RecordId, Repository, Write};
use crate::ports::github::{
    EndOfLife, JobConfig, Listed, RunState, Runner, RunnerSpec, Scope, Token, Waiting, WorkflowJob,
    WorkflowRun,
};
use crate::ports::{
    Change, Compute, ComputeError, GitHub, GitHubError, LaunchOrder, Launched, Machine, MachineState, Page,
    PoolQueue, QueueError, Received, Store, StoreError, Watch,
};
use crate::process::clock::SystemClock;
use crate::status::{Health, Unready};

/// A table that takes 40 ms for each response, which is always the same.
struct Failing(Option<StoreError>);

impl Failing {
    async fn answer<T: Default>(&self) -> Result<T, StoreError> {
        tokio::time::sleep(Duration::from_millis(40)).await;
        self.0.clone().map_or_else(|| Ok(T::default()), Err)
    }
}

#[async_trait]
impl Store for Failing {
    async fn get(&self, _: &RecordId) -> Result<Option<Item>, StoreError> {
        self.answer().await
    }
    async fn list(&self, _: Option<&RecordId>) -> Result<Page, StoreError> {
        self.answer().await
    }
    async fn query(&self, _: &str, _: &str, _: Option<&RecordId>) -> Result<Page, StoreError> {
        self.answer().await
    }
    async fn write(&self, _: &Write) -> Result<Item, StoreError> {
        self.answer().await
    }
    async fn transact(&self, _: &[Write]) -> Result<(), StoreError> {
        self.answer().await
    }
    async fn append(&self, _: &[Item]) -> Result<usize, StoreError> {
        self.answer().await
    }
    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.answer::<()>().await?;
        Ok(Box::new(Quiet))
    }
}

struct Quiet;

#[async_trait]
impl Watch for Quiet {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(vec![Change { key: RecordId::new("p", "s"), item: None }])
    }
}

fn calls(metrics: &Metrics, service: &str, operation: &str, outcome: &str) -> f64 {
    let labels = format!("operation=\"{operation}\",outcome=\"{outcome}\",service=\"{service}\"");
    value(&metrics.render(), &format!("runyard_backend_requests_total{{{labels}}}"))
}

#[tokio::test(start_paused = true)]
async fn each_call_of_the_table_is_counted_with_its_outcome_and_time() {
    let metrics = metrics();
    let inner: Arc<dyn Store> = Arc::new(Failing(None));
    let store = Metered::new(inner, metrics.clone());
    let key = RecordId::new("p", "s");
    store.get(&key).await.unwrap();
    store.get(&key).await.unwrap();
    store.list(None).await.unwrap();
    store.query("p", "", None).await.unwrap();
    store.write(&Write::create(key.clone(), Item::new())).await.unwrap();
    store.transact(&[]).await.unwrap();
    store.append(&[]).await.unwrap();
    assert_eq!(calls(&metrics, "store", "get", "ok"), 2.0);
    for operation in ["list", "query", "write", "transact", "append"] {
        assert_eq!(calls(&metrics, "store", operation, "ok"), 1.0, "{operation}");
    }
    let spent = "runyard_backend_request_seconds_sum{operation=\"get\",service=\"store\"}";
    assert!((value(&metrics.render(), spent) - 0.08).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn every_failure_has_a_series_that_was_there_before_it() {
    let key = RecordId::new("p", "s");
    for error in [
        StoreError::Refused { refusals: Vec::new() },
        StoreError::Contended,
        StoreError::Throttled,
        StoreError::Unknown(String::new()),
        StoreError::Denied(String::new()),
        StoreError::NoTable(String::new()),
        StoreError::Invalid(String::new()),
    ] {
        let metrics = metrics();
        assert_eq!(calls(&metrics, "store", "get", error.label()), 0.0);
        let store = Metered::new(Arc::new(Failing(Some(error.clone()))), metrics.clone());
        assert_eq!(store.get(&key).await.unwrap_err(), error);
        assert_eq!(calls(&metrics, "store", "get", error.label()), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_passed_on_and_shows_that_the_stream_tells_something() {
    let metrics = metrics();
    let store = Metered::new(Arc::new(Failing(None)), metrics.clone());
    let mut watch = store.watch().await.unwrap();
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(value(&metrics.render(), "runyard_stream_lag_seconds"), 20.0);
    assert_eq!(watch.next().await.unwrap().len(), 1);
    assert_eq!(value(&metrics.render(), "runyard_stream_lag_seconds"), 0.0);
    assert_eq!(calls(&metrics, "store", "watch", "ok"), 1.0);
    assert_eq!(calls(&metrics, "store", "next", "ok"), 1.0);
    let timed = "runyard_backend_request_seconds_count{operation=\"next\"";
    assert!(!metrics.render().contains(timed), "waiting for changes is no latency");
}

#[tokio::test(start_paused = true)]
async fn the_health_hears_of_answers_and_of_nothing_else() {
    let key = RecordId::new("p", "s");
    let rows = [
        (None, true),
        (Some(StoreError::Refused { refusals: Vec::new() }), true),
        (Some(StoreError::Contended), true),
        (Some(StoreError::Throttled), false),
        (Some(StoreError::Unknown(String::new())), false),
        (Some(StoreError::Denied(String::new())), false),
        (Some(StoreError::NoTable(String::new())), false),
        (Some(StoreError::Invalid(String::new())), false),
    ];
    for (error, answers) in rows {
        let clock = Arc::new(SystemClock::new());
        let health = Arc::new(Health::new(clock.clone()));
        health.listed();
        let inner = Arc::new(Failing(error.clone()));
        let store = Metered::new(inner, Metrics::new(clock)).telling(health.clone());
        let _ = store.get(&key).await;
        let expected = if answers { Ok(()) } else { Err(Unready::Silent(None)) };
        assert_eq!(health.verdict(), expected, "{error:?}");
    }
}

/// A queue, a compute provider and a GitHub that mostly refuse.
struct Refusing;

#[async_trait]
impl PoolQueue for Refusing {
    async fn ensure(&self, _: &ClassName) -> Result<(), QueueError> {
        Err(QueueError::Missing)
    }
    async fn announce(&self, _: &PoolMessage) -> Result<(), QueueError> {
        Err(QueueError::Throttled)
    }
    async fn receive(&self, _: &ClassName, _: u32) -> Result<Vec<Received>, QueueError> {
        Err(QueueError::Unreachable(String::new()))
    }
    async fn delete(&self, _: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        Ok(receipts.to_vec())
    }
    async fn bury(&self, _: &ClassName, _: &str, _: &str) -> Result<(), QueueError> {
        Err(QueueError::Invalid(String::new()))
    }
}

#[async_trait]
impl Compute for Refusing {
    fn keeps_inventory(&self) -> bool {
        true
    }
    async fn launch(&self, _: &LaunchOrder) -> Result<Launched, ComputeError> {
        Err(ComputeError::Throttled)
    }
    async fn terminate(&self, _: &[InstanceId]) -> Result<(), ComputeError> {
        Err(ComputeError::Refused(String::new()))
    }
    async fn describe(&self, _: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        Err(ComputeError::Unknown(String::new()))
    }
    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl GitHub for Refusing {
    fn runner_url(&self, _: &Scope) -> String {
        "https://github.example/acme".to_owned()
    }
    async fn registration_token(&self, _: &Scope) -> Result<Token, GitHubError> {
        Err(GitHubError::Unreachable(String::new()))
    }
    async fn removal_token(&self, _: &Scope) -> Result<Token, GitHubError> {
        Err(GitHubError::Throttled { retry_after: Duration::from_secs(1) })
    }
    async fn job_config(&self, _: &Scope, _: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        Err(GitHubError::NameTaken(String::new()))
    }
    async fn runner_group(&self, _: &str, _: &str) -> Result<Option<u64>, GitHubError> {
        Ok(None)
    }
    async fn runner(&self, _: &Scope, _: &str) -> Result<Option<Runner>, GitHubError> {
        Ok(None)
    }
    async fn set_labels(&self, _: &Scope, _: u64, _: &[String]) -> Result<(), GitHubError> {
        Err(GitHubError::Throttled { retry_after: Duration::from_secs(1) })
    }
    async fn runner_by_id(&self, _: &Scope, _: u64) -> Result<Option<Runner>, GitHubError> {
        Ok(None)
    }
    async fn end_of_life(&self, _: &Scope, _: &str) -> Result<EndOfLife, GitHubError> {
        Ok(EndOfLife::default())
    }
    async fn runners(&self, _: &Scope) -> Result<Vec<Runner>, GitHubError> {
        Err(GitHubError::Denied(String::new()))
    }
    async fn runners_seen(&self, _: &Scope) -> Result<Vec<Runner>, GitHubError> {
        Ok(Vec::new())
    }
    async fn remove_runner(&self, _: &Scope, _: u64) -> Result<(), GitHubError> {
        Err(GitHubError::Busy(String::new()))
    }
    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        Err(GitHubError::NotFound(String::new()))
    }
    fn budget_used(&self, _: &str, _: &str) -> f64 {
        0.25
    }
    async fn run(&self, _: &str, _: &str, _: u64, _: Waiting) -> Result<RunState, GitHubError> {
        Err(GitHubError::NotFound(String::new()))
    }
    async fn open_runs(&self, _: &str, _: &str, _: Listed) -> Result<Vec<WorkflowRun>, GitHubError> {
        Ok(Vec::new())
    }
    async fn run_jobs(&self, _: &str, _: &str, _: u64, _: u32) -> Result<Vec<WorkflowJob>, GitHubError> {
        Err(GitHubError::NotFound(String::new()))
    }
    async fn rerun_failed_jobs(&self, _: &str, _: &str, _: u64) -> Result<(), GitHubError> {
        Err(GitHubError::Denied(String::new()))
    }
}

/// Calls everything except `announce` and `launch`, which need complete records.
async fn call_all(metered: &Metered<Refusing>) {
    let (linux, receipts) = (class("linux"), ["a".to_owned()]);
    assert_eq!(metered.ensure(&linux).await, Err(QueueError::Missing));
    assert!(metered.receive(&linux, 1).await.is_err());
    assert_eq!(metered.delete(&linux, &receipts).await.unwrap(), receipts);
    assert!(metered.bury(&linux, "a", "x").await.is_err());
    assert!(metered.terminate(&[]).await.is_err());
    assert!(metered.describe(&[]).await.is_err());
    assert!(metered.list().await.unwrap().is_empty());
    assert!(metered.keeps_inventory());
    let scope = Scope::Organization { owner: "acme".to_owned() };
    let spec =
        RunnerSpec { name: String::new(), labels: Vec::new(), group_id: 1, work_folder: String::new() };
    assert_eq!(metered.runner_url(&scope), "https://github.example/acme");
    assert!(metered.registration_token(&scope).await.is_err());
    assert!(metered.removal_token(&scope).await.is_err());
    assert!(metered.job_config(&scope, &spec).await.is_err());
    assert_eq!(metered.runner_group("acme", "x").await.unwrap(), None);
    assert_eq!(metered.runner(&scope, "x").await.unwrap(), None);
    assert_eq!(metered.runner_by_id(&scope, 1).await.unwrap(), None);
    assert_eq!(metered.end_of_life(&scope, "2.330.0").await.unwrap(), EndOfLife::default());
    assert!(metered.runner_applications(&scope).await.is_err());
    assert!(metered.runners(&scope).await.is_err());
    assert_eq!(metered.runners_seen(&scope).await.unwrap(), []);
    assert!(metered.remove_runner(&scope, 1).await.is_err());
    assert!(metered.set_labels(&scope, 1, &[]).await.is_err());
    assert!(metered.run("acme", "web", 1, Waiting::Nobody).await.is_err());
    assert!(metered.repositories().await.is_err());
    assert_eq!(metered.budget_used("acme", "web"), 0.25);
    assert_eq!(metered.open_runs("acme", "web", Listed::Running).await.unwrap(), []);
    assert!(metered.run_jobs("acme", "web", 1, 2).await.is_err());
    assert!(metered.run_source("acme", "web", 1).await.is_err());
    assert!(metered.branch("acme", "web", "main", "1").await.is_err());
    assert!(metered.rerun_failed_jobs("acme", "web", 1).await.is_err());
}

#[tokio::test]
async fn queue_compute_and_github_are_passed_on_and_counted_in_series_that_were_there() {
    let metrics = metrics();
    let series =
        |text: &str| text.lines().filter(|l| l.starts_with("runyard_backend_requests_total{")).count();
    let before = series(&metrics.render());
    call_all(&Metered::new(Arc::new(Refusing), metrics.clone())).await;
    assert_eq!(series(&metrics.render()), before);
    for (service, operation, outcome) in [
        ("queue", "ensure", "missing"),
        ("queue", "receive", "unreachable"),
        ("queue", "delete", "ok"),
        ("queue", "bury", "invalid"),
        ("compute", "terminate", "refused"),
        ("compute", "describe", "unknown"),
        ("compute", "list", "ok"),
        ("github", "registration_token", "unreachable"),
        ("github", "removal_token", "throttled"),
        ("github", "job_config", "name-taken"),
        ("github", "runner_group", "ok"),
        ("github", "runner", "ok"),
        ("github", "runner_by_id", "ok"),
        ("github", "end_of_life", "ok"),
        ("github", "runner_applications", "not-found"),
        ("github", "runners", "denied"),
        ("github", "remove_runner", "busy"),
        ("github", "set_labels", "throttled"),
        ("github", "run", "not-found"),
        ("github", "repositories", "not-found"),
        ("github", "open_runs", "ok"),
        ("github", "run_jobs", "not-found"),
        ("github", "run_source", "not-found"),
        ("github", "branch", "not-found"),
        ("github", "rerun_failed_jobs", "denied"),
    ] {
        assert_eq!(calls(&metrics, service, operation, outcome), 1.0, "{service} {operation} {outcome}");
    }
}
