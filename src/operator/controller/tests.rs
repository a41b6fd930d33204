//! Checks that an operator leaves nothing behind, however it ends.

use std::collections::BTreeMap;

use async_trait::async_trait;
use runyard_fakes::{
    FakeCompute, FakeGitHub, MemoryNotices, MemoryQueue, MemoryStore, SeededEntropy, TokioClock, as_shipped,
};

use super::*;
use crate::model::{AttributeValue, InstanceId, Item, PoolSpec};
use crate::ports::{ComputeError, LaunchOrder, Launched, Machine, MachineState};
use crate::yard::Unit;

/// A provider whose check of a class never returns.
struct NeverChecks(FakeCompute);

#[async_trait]
impl Compute for NeverChecks {
    fn keeps_inventory(&self) -> bool {
        self.0.keeps_inventory()
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        self.0.launch(order).await
    }

    async fn check(&self, _: &PoolSpec) -> Result<(), ComputeError> {
        std::future::pending().await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.0.terminate(ids).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.0.describe(ids).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.0.list().await
    }
}

/// Returns the record of a class that keeps two machines idle.
fn pool() -> Item {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let number = |value: u32| AttributeValue::N(value.to_string());
    let attributes = [
        ("pk", text("pool#linux")),
        ("sk", text("pool")),
        ("kind", text("pool")),
        ("version", number(1)),
        ("resourceClass", text("linux")),
        ("desired", number(2)),
        ("max", number(4)),
    ];
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn settings() -> Settings {
    Settings {
        identity: "one".into(),
        table: "runyard".parse().unwrap(),
        organization: false,
        rebalance: crate::model::Rebalance::Last,
        timing: as_shipped(),
        requests_per_repository: 2000,
        runner_version: None,
        following: Default::default(),
        sharing: Default::default(),
        prices: Default::default(),
        sweep: Duration::from_secs(60),
        github: GitHubWatch::default(),
        ended_stays: crate::decide::Policy::ENDED_STAYS,
    }
}

/// Runs an operator with all its background tasks, on a table in memory whose every call takes a moment.
async fn operator(stop: CancellationToken) {
    let clock = Arc::new(TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap()));
    let entropy = Arc::new(SeededEntropy::new(7));
    let store = MemoryStore::new();
    store.put(pool());
    store.every_call_takes(Duration::from_millis(20));
    let ports = Ports {
        store: Arc::new(store),
        queue: Arc::new(MemoryQueue::new(clock.clone())),
        compute: Arc::new(NeverChecks(FakeCompute::new(clock.clone(), entropy.clone()))),
        github: Some(Arc::new(FakeGitHub::new(clock.clone()))),
        notices: Some(Arc::new(MemoryNotices::new(clock.clone()))),
        doorbell: None,
        scale_sets: None,
        job_bell: None,
        history: None,
        metrics: Metrics::new(clock.clone()),
        clock: clock.clone(),
        entropy,
    };
    run(ports, settings(), Arc::new(Health::new(clock)), stop).await.expect("the table is there");
}

fn tasks_alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Moments of an operator's life: while it starts, while it launches, after its first resync.
const MOMENTS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_secs(5),
    Duration::from_secs(400),
];

#[tokio::test(start_paused = true)]
async fn no_task_outlives_an_operator_that_is_dropped() {
    for moment in MOMENTS {
        let mut running = Box::pin(operator(CancellationToken::new()));
        let still = tokio::time::timeout(moment, &mut running).await;
        assert!(still.is_err() && tasks_alive() > 3, "{} tasks after {moment:?}", tasks_alive());
        drop(running);
        // The runtime drops cancelled tasks a little later.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(tasks_alive(), 0, "dropped after {moment:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_outlives_an_operator_that_stops() {
    for moment in MOMENTS {
        let stop = CancellationToken::new();
        let stopping = async {
            tokio::time::sleep(moment).await;
            assert!(tasks_alive() > 3, "{} tasks after {moment:?}", tasks_alive());
            stop.cancel();
        };
        tokio::join!(operator(stop.clone()), stopping);
        assert_eq!(tasks_alive(), 0, "stopped after {moment:?}");
    }
}

/// One bad record must not delay the others, and must not end the operator again and again.
#[tokio::test(start_paused = true)]
async fn a_judgement_that_panics_costs_its_unit_alone_until_it_is_listed_again() {
    let clock = Arc::new(TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap()));
    let entropy = Arc::new(SeededEntropy::new(7));
    let (store, metrics) = (MemoryStore::new(), Metrics::new(clock.clone()));
    store.put(pool());
    let mut other = pool();
    other.insert("pk".into(), AttributeValue::S("pool#other".into()));
    other.insert("resourceClass".into(), AttributeValue::S("other".into()));
    store.put(other);
    let compute = FakeCompute::new(clock.clone(), entropy.clone());
    let ports = Ports {
        store: Arc::new(store),
        queue: Arc::new(MemoryQueue::new(clock.clone())),
        compute: Arc::new(compute.clone()),
        github: None,
        notices: None,
        doorbell: None,
        scale_sets: None,
        job_bell: None,
        history: None,
        metrics: metrics.clone(),
        clock: clock.clone(),
        entropy,
    };
    let launched = || compute.machines().into_iter().filter_map(|machine| machine.class).collect::<Vec<_>>();
    let shows = |series: &str| metrics.render().lines().any(|line| line == series);
    crate::process::panics::injected::set(vec![Unit::Class("other".parse().unwrap())]);
    let health = Arc::new(Health::new(clock));
    let mut running = Box::pin(run(ports, settings(), health, CancellationToken::new()));
    let still = tokio::time::timeout(Duration::from_secs(30), &mut running).await;
    assert!(still.is_err(), "{still:?}");
    assert!(launched().len() == 2 && launched().iter().all(|class| class.as_str() == "linux"));
    assert!(shows("runyard_decision_panics_total 1") && shows("runyard_unreadable_records 1"));
    crate::process::panics::injected::set(Vec::new());
    let still = tokio::time::timeout(Duration::from_secs(400), &mut running).await;
    assert!(still.is_err(), "{still:?}");
    assert!(launched().iter().any(|class| class.as_str() == "other"), "{:?}", launched());
    assert!(shows("runyard_decision_panics_total 1") && shows("runyard_unreadable_records 0"));
}
