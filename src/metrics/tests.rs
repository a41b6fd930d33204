//! The names are the contract's, every series is there from the start, labels stay bounded, and standing before a
//! port changes nothing but the numbers.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::ports::Metered;
use super::*;
use crate::admin::{Health, Unready};
use crate::clock::SystemClock;
use crate::model::{Item, Key, PoolMessage, Write};
use crate::ports::github::Scope;
use crate::ports::{
    Change, Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState, Page, PoolQueue, QueueError,
    Received, Store, StoreError, Watch,
};

/// Name, type, labels of every family of ours.
const GOLDEN: &str = "\
runyard_backend_request_seconds histogram operation,service
runyard_backend_requests_total counter operation,outcome,service
runyard_events_dropped_total counter
runyard_instances gauge resource_class,state
runyard_leader gauge
runyard_newer_records gauge
runyard_oldest_waiting_request_seconds gauge resource_class
runyard_over_threshold_instances gauge
runyard_pool_desired gauge resource_class
runyard_queue_messages_total counter outcome
runyard_reconcile_seconds histogram
runyard_request_ready_seconds histogram resource_class,source
runyard_requests gauge phase,resource_class
runyard_resync_age_seconds gauge
runyard_stream_lag_seconds gauge
runyard_terminations_total counter reason
runyard_transitions_total counter from,to
runyard_unreadable_records gauge
";

fn metrics() -> Metrics {
    Metrics::new(Arc::new(SystemClock::new()))
}

fn class(name: &str) -> ClassName {
    ClassName::parse(name).unwrap()
}

/// The value of the one series that begins so.
fn value(text: &str, series: &str) -> f64 {
    let prefix = format!("{series} ");
    let mut found = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = found.next().unwrap_or_else(|| panic!("no {series} in\n{text}"));
    value.parse().unwrap()
}

#[tokio::test]
async fn the_names_types_and_labels_are_the_contracts() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let text = metrics.render();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE runyard_")).map(|family| {
        let (name, kind) = family.split_once(' ').unwrap();
        let series = text.lines().find(|line| {
            line.strip_prefix("runyard_")
                .and_then(|rest| rest.strip_prefix(name))
                .and_then(|rest| rest.strip_prefix(if kind == "histogram" { "_count" } else { "" }))
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let series = series.unwrap_or_else(|| panic!("{name} has no series"));
        let labels = series.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
        let mut labels: Vec<_> = labels.split(',').map(|label| label.split('=').next().unwrap()).collect();
        labels.sort_unstable();
        format!("runyard_{name} {kind} {}", labels.join(",")).trim_end().to_owned()
    });
    assert_eq!(families.collect::<Vec<_>>().join("\n") + "\n", GOLDEN);
}

#[tokio::test]
async fn every_series_a_rule_needs_is_at_zero_from_the_start() {
    let text = metrics().render();
    for (from, to) in [("none", "created"), ("idle", "claimed"), ("idle", "idle"), ("running", "terminated")]
    {
        assert_eq!(value(&text, &format!("runyard_transitions_total{{from=\"{from}\",to=\"{to}\"}}")), 0.0);
    }
    assert!(!text.contains("from=\"terminated\""), "nothing leaves terminated");
    for reason in Reason::ALL {
        assert_eq!(value(&text, &format!("runyard_terminations_total{{reason=\"{reason}\"}}")), 0.0);
    }
    for outcome in QueueOutcome::ALL {
        assert_eq!(value(&text, &format!("runyard_queue_messages_total{{outcome=\"{outcome}\"}}")), 0.0);
    }
    for (service, operation, outcome) in [
        ("store", "transact", "refused"),
        ("queue", "receive", "ok"),
        ("compute", "launch", "no-capacity"),
        ("github", "registration_token", "unreachable"),
    ] {
        let labels = format!("operation=\"{operation}\",outcome=\"{outcome}\",service=\"{service}\"");
        assert_eq!(value(&text, &format!("runyard_backend_requests_total{{{labels}}}")), 0.0);
    }
    assert_eq!(value(&text, "runyard_reconcile_seconds_count"), 0.0);
}

#[tokio::test]
async fn a_class_that_is_declared_has_all_its_series_at_zero() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let text = metrics.render();
    for state in State::ALL {
        let series = format!("runyard_instances{{resource_class=\"linux\",state=\"{state}\"}}");
        assert_eq!(value(&text, &series), 0.0);
    }
    for phase in Phase::ALL {
        assert_eq!(
            value(&text, &format!("runyard_requests{{phase=\"{phase}\",resource_class=\"linux\"}}")),
            0.0
        );
    }
    for source in Source::ALL {
        let series =
            format!("runyard_request_ready_seconds_count{{resource_class=\"linux\",source=\"{source}\"}}");
        assert_eq!(value(&text, &series), 0.0);
    }
    assert_eq!(value(&text, "runyard_pool_desired{resource_class=\"linux\"}"), 0.0);
    assert_eq!(value(&text, "runyard_oldest_waiting_request_seconds{resource_class=\"linux\"}"), 0.0);
}

#[tokio::test]
async fn what_is_told_is_shown() {
    let metrics = metrics();
    metrics.instances(&class("linux"), State::Idle, 3);
    metrics.pool_desired(&class("linux"), 5);
    metrics.requests("linux", Phase::Pending, 2);
    metrics.request_ready("linux", Source::Warm, Duration::from_millis(1500));
    metrics.transition(None, State::Created);
    metrics.transition(Some(State::Idle), State::Claimed);
    metrics.termination(Reason::Surplus);
    metrics.reconcile(Duration::from_millis(2));
    metrics.unreadable(4);
    metrics.newer(6);
    metrics.over_threshold(1);
    metrics.events_dropped(7);
    metrics.queue_message(QueueOutcome::Stale);
    metrics.clone().leader(true);
    let text = metrics.render();
    for (series, expected) in [
        ("runyard_instances{resource_class=\"linux\",state=\"idle\"}", 3.0),
        ("runyard_pool_desired{resource_class=\"linux\"}", 5.0),
        ("runyard_requests{phase=\"Pending\",resource_class=\"linux\"}", 2.0),
        ("runyard_request_ready_seconds_sum{resource_class=\"linux\",source=\"warm\"}", 1.5),
        ("runyard_transitions_total{from=\"none\",to=\"created\"}", 1.0),
        ("runyard_transitions_total{from=\"idle\",to=\"claimed\"}", 1.0),
        ("runyard_terminations_total{reason=\"surplus\"}", 1.0),
        ("runyard_reconcile_seconds_sum", 0.002),
        ("runyard_unreadable_records", 4.0),
        ("runyard_newer_records", 6.0),
        ("runyard_over_threshold_instances", 1.0),
        ("runyard_events_dropped_total", 7.0),
        ("runyard_queue_messages_total{outcome=\"stale\"}", 1.0),
        ("runyard_leader", 1.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
    metrics.leader(false);
    assert_eq!(value(&metrics.render(), "runyard_leader"), 0.0);
}

#[tokio::test]
async fn unknown_classes_are_summed_up_under_one_label() {
    let metrics = metrics();
    for n in 0..1000 {
        metrics.requests(&format!("typo-{n}"), Phase::Failed, 1);
        metrics.request_ready(&format!("typo-{n}"), Source::Cold, Duration::from_secs(1));
    }
    let failed = "runyard_requests{phase=\"Failed\",resource_class=\"_other\"}";
    let text = metrics.render();
    assert_eq!(value(&text, failed), 1000.0);
    assert!(!text.contains("typo"), "{text}");

    metrics.requests("typo-1", Phase::Failed, 0);
    metrics.requests("typo-2", Phase::Failed, 5);
    assert_eq!(value(&metrics.render(), failed), 1003.0);
}

#[tokio::test]
async fn a_class_declared_late_takes_what_was_said_of_it() {
    let metrics = metrics();
    metrics.requests("linux", Phase::Pending, 2);
    metrics.requests("typo", Phase::Pending, 1);
    metrics.class(&class("linux"));
    let text = metrics.render();
    assert_eq!(value(&text, "runyard_requests{phase=\"Pending\",resource_class=\"linux\"}"), 2.0);
    assert_eq!(value(&text, "runyard_requests{phase=\"Pending\",resource_class=\"_other\"}"), 1.0);
}

#[tokio::test]
async fn more_classes_than_the_limit_share_a_label_and_lose_no_machine() {
    let metrics = metrics();
    for n in 0..250 {
        metrics.instances(&class(&format!("c{n}")), State::Running, 2);
    }
    let text = metrics.render();
    let own = text.lines().filter(|l| l.starts_with("runyard_instances{") && l.contains("running")).count();
    assert_eq!(own, 201);
    assert_eq!(value(&text, "runyard_instances{resource_class=\"_other\",state=\"running\"}"), 100.0);
}

#[tokio::test]
async fn a_forgotten_class_leaves_no_series() {
    let metrics = metrics();
    metrics.instances(&class("linux"), State::Running, 2);
    metrics.oldest_waiting("linux", Some(SystemClock::new().now()));
    metrics.render();
    metrics.forget(&class("linux"));
    assert!(!metrics.render().contains("linux"));
}

#[tokio::test(start_paused = true)]
async fn ages_grow_while_nobody_says_anything() {
    let metrics = metrics();
    metrics.stream_read();
    tokio::time::advance(Duration::from_secs(30)).await;
    metrics.resynced();
    tokio::time::advance(Duration::from_secs(12)).await;
    let text = metrics.render();
    assert_eq!(value(&text, "runyard_resync_age_seconds"), 12.0);
    assert_eq!(value(&text, "runyard_stream_lag_seconds"), 42.0);
}

#[tokio::test]
async fn the_oldest_waiting_request_ages_by_the_wall_clock_and_never_below_zero() {
    let metrics = metrics();
    metrics.class(&class("linux"));
    let now = SystemClock::new().now();
    let before = |seconds| Some(now - jiff::SignedDuration::from_secs(seconds));
    metrics.oldest_waiting("linux", before(100));
    metrics.oldest_waiting("typo-a", before(500));
    metrics.oldest_waiting("typo-b", before(-500));
    let text = metrics.render();
    let age = |class: &str| {
        value(&text, &format!("runyard_oldest_waiting_request_seconds{{resource_class=\"{class}\"}}"))
    };
    assert!((100.0..130.0).contains(&age("linux")), "{}", age("linux"));
    assert!((500.0..530.0).contains(&age("_other")), "{}", age("_other"));

    metrics.oldest_waiting("typo-a", None);
    metrics.oldest_waiting("linux", None);
    let text = metrics.render();
    for class in ["linux", "_other"] {
        let series = format!("runyard_oldest_waiting_request_seconds{{resource_class=\"{class}\"}}");
        assert_eq!(value(&text, &series), 0.0);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_process_is_measured_too() {
    assert!(value(&metrics().render(), "process_resident_memory_bytes") > 0.0);
}

/// A port that fails as it is told, call by call.
struct Failing {
    error: Mutex<Option<StoreError>>,
    looks: AtomicUsize,
}

impl Failing {
    fn with(error: Option<StoreError>) -> Self {
        Self { error: Mutex::new(error), looks: AtomicUsize::new(0) }
    }

    async fn answer<T: Default>(&self) -> Result<T, StoreError> {
        tokio::time::sleep(Duration::from_millis(40)).await;
        self.error.lock().unwrap().clone().map_or_else(|| Ok(T::default()), Err)
    }
}

#[async_trait]
impl Store for Failing {
    async fn get(&self, _: &Key) -> Result<Option<Item>, StoreError> {
        self.answer().await
    }
    async fn list(&self, _: Option<&Key>) -> Result<Page, StoreError> {
        self.answer().await
    }
    async fn query(&self, _: &str, _: &str, _: Option<&Key>) -> Result<Page, StoreError> {
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
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.answer::<()>().await?;
        Ok(Box::new(Quiet))
    }
}

struct Quiet;

#[async_trait]
impl Watch for Quiet {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(vec![Change { key: Key::new("p", "s"), item: None }])
    }
}

fn calls(metrics: &Metrics, service: &str, operation: &str, outcome: &str) -> f64 {
    let labels = format!("operation=\"{operation}\",outcome=\"{outcome}\",service=\"{service}\"");
    value(&metrics.render(), &format!("runyard_backend_requests_total{{{labels}}}"))
}

#[tokio::test(start_paused = true)]
async fn each_call_of_the_table_is_counted_with_its_outcome_and_time() {
    let metrics = metrics();
    let inner: Arc<dyn Store> = Arc::new(Failing::with(None));
    let store = Metered::new(inner, metrics.clone());
    let key = Key::new("p", "s");
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
    let key = Key::new("p", "s");
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
        let store = Metered::new(Arc::new(Failing::with(Some(error.clone()))), metrics.clone());
        assert_eq!(store.get(&key).await.unwrap_err(), error);
        assert_eq!(calls(&metrics, "store", "get", error.label()), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_passed_on_and_shows_that_the_stream_answers() {
    let metrics = metrics();
    let store = Metered::new(Arc::new(Failing::with(None)), metrics.clone());
    let mut watch = store.watch().await.unwrap();
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(value(&metrics.render(), "runyard_stream_lag_seconds"), 20.0);
    assert_eq!(watch.next().await.unwrap().len(), 1);
    assert_eq!(value(&metrics.render(), "runyard_stream_lag_seconds"), 0.0);
    assert_eq!(calls(&metrics, "store", "watch", "ok"), 1.0);
    assert_eq!(calls(&metrics, "store", "next", "ok"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn the_health_hears_of_answers_and_of_nothing_else() {
    let key = Key::new("p", "s");
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
        let inner = Arc::new(Failing::with(error.clone()));
        let store = Metered::new(inner, Metrics::new(clock)).telling(health.clone());
        let _ = store.get(&key).await;
        let expected = if answers { Ok(()) } else { Err(Unready::Silent(None)) };
        assert_eq!(health.verdict(), expected, "{error:?}");
    }
}

/// A queue and a compute that only ever refuse.
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
    async fn give_back(&self, _: &ClassName, _: &[String]) -> Result<(), QueueError> {
        Err(QueueError::Denied(String::new()))
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
    async fn terminate(&self, _: &[crate::model::InstanceId]) -> Result<(), ComputeError> {
        Err(ComputeError::Refused(String::new()))
    }
    async fn describe(
        &self,
        _: &[crate::model::InstanceId],
    ) -> Result<BTreeMap<crate::model::InstanceId, MachineState>, ComputeError> {
        Err(ComputeError::Unknown(String::new()))
    }
    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn queue_and_compute_are_passed_on_and_counted_by_outcome() {
    let metrics = metrics();
    let metered = Metered::new(Arc::new(Refusing), metrics.clone());
    let linux = class("linux");
    let receipts = ["a".to_owned()];
    assert_eq!(PoolQueue::ensure(&metered, &linux).await, Err(QueueError::Missing));
    assert!(metered.receive(&linux, 1).await.is_err());
    assert_eq!(metered.delete(&linux, &receipts).await.unwrap(), receipts);
    assert!(metered.give_back(&linux, &receipts).await.is_err());
    assert!(metered.bury(&linux, "a", "x").await.is_err());
    assert!(metered.terminate(&[]).await.is_err());
    assert!(metered.describe(&[]).await.is_err());
    assert!(Compute::list(&metered).await.unwrap().is_empty());
    assert!(metered.keeps_inventory());
    for (service, operation, outcome) in [
        ("queue", "ensure", "missing"),
        ("queue", "receive", "unreachable"),
        ("queue", "delete", "ok"),
        ("queue", "give_back", "denied"),
        ("queue", "bury", "invalid"),
        ("compute", "terminate", "refused"),
        ("compute", "describe", "unknown"),
        ("compute", "list", "ok"),
    ] {
        assert_eq!(calls(&metrics, service, operation, outcome), 1.0, "{service} {operation} {outcome}");
    }
}
