//! A yard for tests: the real loop on fakes of the ports, in paused time, with the invariants checked on every record
//! it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{
    Instance, Item, Life, Pool, PoolSpec, PoolStatus, Reading, Record, RecordId, Request, State, Versioned,
    Write, read,
};
use runyard_core::ports::{Clock, Compute, Store};
use runyard_fakes::{
    FakeCompute, FakeGitHub, FakeScaleSets, MemoryNotices, MemoryQueue, MemoryStore, SeededEntropy,
    TokioClock, as_shipped,
};
use runyard_operator::controller::{GitHubWatch, Ports, Settings, run};
use runyard_operator::metrics::Metrics;
use runyard_operator::status::Health;
use tokio_util::sync::CancellationToken;

use crate::agents::{Agents, Habit};
use runyard_support::counting::{Calls, Counting};

pub struct World {
    pub store: MemoryStore,
    pub queue: MemoryQueue,
    pub compute: FakeCompute,
    pub github: FakeGitHub,
    /// GitHub's scale sets, which operators of a yard with a GitHub listen to.
    pub sets: FakeScaleSets,
    pub notices: MemoryNotices,
    pub clock: TokioClock,
    pub agents: Agents,
    /// What the operators asked of the table and the queues.
    pub calls: Calls,
    /// What they counted.
    pub metrics: Metrics,
    operators: Mutex<Vec<(CancellationToken, tokio::task::JoinHandle<()>)>>,
    with_github: bool,
    settings: Settings,
}

pub fn settings(identity: &str) -> Settings {
    Settings {
        identity: identity.into(),
        table: "runyard".parse().unwrap(),
        organization: false,
        rebalance: runyard_core::model::Rebalance::Last,
        timing: as_shipped(),
        requests_per_repository: 2000,
        runner_version: None,
        following: Default::default(),
        sharing: Default::default(),
        prices: Default::default(),
        sweep: Duration::from_secs(60),
        github: watch(),
        ended_stays: runyard_core::decide::Policy::ENDED_STAYS,
    }
}

/// What is asked of GitHub where a test says nothing else: its runs are those that a test told it of.
pub fn watch() -> GitHubWatch {
    GitHubWatch { verify_run: false, ..GitHubWatch::default() }
}

impl World {
    /// A yard with no operator yet.
    pub fn new() -> Self {
        Self::on(MemoryStore::new(), false)
    }

    /// A yard whose runners are registered at a GitHub.
    pub fn with_github() -> Self {
        Self::on(MemoryStore::new(), true)
    }

    pub fn on(store: MemoryStore, with_github: bool) -> Self {
        let clock = TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap());
        let shared: Arc<dyn Clock> = Arc::new(clock);
        let compute = FakeCompute::new(shared.clone(), Arc::new(SeededEntropy::new(7)));
        let agents = Agents::new(store.clone(), compute.clone(), clock);
        Self {
            queue: MemoryQueue::new(shared.clone()),
            github: FakeGitHub::new(shared.clone()),
            sets: FakeScaleSets::new(shared.clone()),
            notices: MemoryNotices::new(shared),
            store,
            compute,
            clock,
            agents,
            calls: Calls::default(),
            metrics: Metrics::new(Arc::new(clock)),
            operators: Mutex::default(),
            with_github,
            settings: settings("one"),
        }
    }

    /// The same, with other questions asked of GitHub.
    pub fn watching(mut self, github: GitHubWatch) -> Self {
        self.settings.github = github;
        self
    }

    /// The same, with other settings.
    #[allow(dead_code, reason = "each test crate takes the parts it needs")]
    pub fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Starts an operator and the agents' keeper.
    pub fn start(&self) -> CancellationToken {
        self.start_as("one")
    }

    pub fn start_as(&self, identity: &str) -> CancellationToken {
        self.start_over(identity, |ports| ports)
    }

    /// Starts an operator that reaches the table in its own way.
    pub fn start_on(&self, identity: &str, store: Arc<dyn Store>) -> CancellationToken {
        self.start_over(identity, |ports| Ports { store, ..ports })
    }

    /// The ports of an operator that talks to them through something.
    pub fn ports(&self, identity: &str, over: impl FnOnce(Ports) -> Ports) -> Ports {
        let seed = identity.bytes().map(u64::from).sum();
        over(Ports {
            store: Arc::new(Counting::new(self.store.clone(), self.calls.clone())),
            queue: Arc::new(Counting::new(self.queue.clone(), self.calls.clone())),
            compute: Arc::new(self.compute.clone()),
            github: self.with_github.then(|| Arc::new(self.github.clone()) as _),
            notices: Some(Arc::new(self.notices.clone())),
            doorbell: None,
            scale_sets: self.with_github.then(|| Arc::new(self.sets.clone()) as _),
            job_bell: None,
            history: None,
            clock: Arc::new(self.clock),
            entropy: Arc::new(SeededEntropy::new(seed)),
            metrics: self.metrics.clone(),
        })
    }

    /// Starts such an operator.
    pub fn start_over(&self, identity: &str, over: impl FnOnce(Ports) -> Ports) -> CancellationToken {
        let ports = self.ports(identity, over);
        let stop = CancellationToken::new();
        let settings = Settings { identity: identity.into(), ..self.settings.clone() };
        let (token, running) =
            (stop.clone(), run(ports, settings, Arc::new(Health::new(Arc::new(self.clock))), stop.clone()));
        let task = tokio::spawn(async move { running.await.expect("the table is there") });
        self.operators.lock().unwrap().push((token, task));
        self.agents.keep();
        stop
    }

    /// Starts an operator with settings and machines of its own, and nobody who plays the agents.
    pub fn start_with(&self, settings: Settings, compute: Arc<dyn Compute>) -> CancellationToken {
        let ports = Ports {
            store: Arc::new(self.store.clone()),
            queue: Arc::new(self.queue.clone()),
            compute,
            github: None,
            notices: None,
            doorbell: None,
            scale_sets: None,
            job_bell: None,
            history: None,
            clock: Arc::new(self.clock),
            entropy: Arc::new(SeededEntropy::new(11)),
            metrics: self.metrics.clone(),
        };
        let stop = CancellationToken::new();
        let (token, health) = (stop.clone(), Arc::new(Health::new(Arc::new(self.clock))));
        let running = run(ports, settings, health, stop.clone());
        let task = tokio::spawn(async move { running.await.expect("the table is there") });
        self.operators.lock().unwrap().push((token, task));
        stop
    }

    /// Stops every operator, as a deployment does, and waits for them.
    pub async fn stop(&self) {
        let operators = std::mem::take(&mut *self.operators.lock().unwrap());
        for (token, task) in operators {
            token.cancel();
            task.await.unwrap();
        }
    }

    /// Kills every operator where it stands.
    pub fn kill(&self) {
        for (_, task) in self.operators.lock().unwrap().drain(..) {
            task.abort();
        }
    }

    /// Kills the operator that this token stops.
    pub fn hang(&self, _first: &CancellationToken) {
        self.operators.lock().unwrap().remove(0).1.abort();
    }

    pub fn at(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn pool(&self, spec: serde_json::Value) {
        let spec: PoolSpec = serde_json::from_value(spec).unwrap();
        let pool = Pool {
            spec,
            scale: None,
            status: PoolStatus::default(),
            uid: None,
            version: 1,
            updated_at: None,
        };
        self.store.write(&pool.creating()).await.unwrap();
    }

    /// Writes an intent as a workflow does: with nothing but what the contract asks of it.
    pub async fn provision(&self, run: &str, class: &str, count: u32, more: serde_json::Value) -> RecordId {
        let key = RecordId::new(format!("request#acme/web#{run}"), "request#default#1");
        let mut intent = serde_json::json!({
            "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 1, "runId": run, "attempt": 1,
            "repository": "acme/web", "name": "default", "resourceClass": class, "count": count,
            "desired": "provisioned", "generation": 1,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            intent[name] = value.clone();
        }
        let key = RecordId::new(intent["pk"].as_str().unwrap(), intent["sk"].as_str().unwrap());
        self.store.write(&Write::create(key.clone(), item(&intent))).await.unwrap();
        key
    }

    pub async fn release(&self, key: &RecordId) {
        let set = item(&serde_json::json!({"desired": "released"}));
        let add = BTreeMap::from([("version".to_owned(), 1), ("generation".to_owned(), 1)]);
        let write = Write::update(key.clone(), runyard_core::model::Guard::StillProvisioned, set, add);
        self.store.write(&write).await.unwrap();
    }

    pub async fn get<T: Record>(&self, key: &RecordId) -> Option<T> {
        let item = self.store.get(key).await.unwrap()?;
        match read::<T>(&item) {
            Reading::Record(record) => Some(record),
            other => panic!(
                "{key}: {}",
                match other {
                    Reading::Unreadable(u) => u.problem,
                    _ => "newer".into(),
                }
            ),
        }
    }

    pub async fn request(&self, key: &RecordId) -> Request {
        self.get(key).await.expect("the request is there")
    }

    pub async fn phase(&self, key: &RecordId) -> String {
        self.request(key).await.status.phase.map_or("new".into(), |phase| phase.to_string())
    }

    /// Waits until a condition holds, in paused time.
    pub async fn until<F: AsyncFnMut() -> bool>(&self, what: &str, within: Duration, mut condition: F) {
        let end = tokio::time::Instant::now() + within;
        while !condition().await {
            if tokio::time::Instant::now() >= end {
                panic!("not within {within:?}: {what}\n{}", self.show());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.check();
    }

    pub async fn until_phase(&self, key: &RecordId, phase: &str, within: u64) {
        let what = format!("{key} is {phase}");
        self.until(&what, Duration::from_secs(within), async || self.phase(key).await == phase).await;
    }

    pub async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.check();
    }

    pub fn all<T: Record>(&self) -> Vec<T> {
        let items = self.store.records();
        items
            .iter()
            .filter_map(|item| match read::<T>(item) {
                Reading::Record(record) => Some(record),
                _ => None,
            })
            .collect()
    }

    pub fn instances(&self) -> Vec<Instance> {
        self.all()
    }

    pub fn live(&self) -> Vec<Instance> {
        self.instances().into_iter().filter(|instance| instance.state().live()).collect()
    }

    pub fn in_state(&self, state: State) -> Vec<Instance> {
        self.instances().into_iter().filter(|instance| instance.state() == state).collect()
    }

    pub fn pooled(&self) -> Vec<Instance> {
        self.instances().into_iter().filter(|instance| instance.pooled_at().is_some()).collect()
    }

    pub fn reasons(&self) -> Vec<String> {
        let reason = |instance: &Instance| match instance.life {
            Life::Terminated { reason, .. } => Some(reason.to_string()),
            _ => None,
        };
        self.instances().iter().filter_map(reason).collect()
    }

    /// S1 and S2, on the records as they stand.
    pub fn check(&self) {
        let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in self.all::<Request>() {
            let phase = request.status.phase;
            let holding = phase.is_some_and(|phase| phase.wants_machines());
            assert!(
                request.status.instances.len() <= request.intent.count as usize,
                "{} holds more than it asked for: {:?}",
                request.id,
                request.status.instances
            );
            for id in request.status.instances.iter().filter(|_| holding) {
                holders.entry(id.to_string()).or_default().insert(request.id.to_string());
            }
        }
        for (id, requests) in holders {
            assert!(requests.len() == 1, "{id} is held by {requests:?}\n{}", self.show());
        }
    }

    /// The records, for a person.
    pub fn show(&self) -> String {
        let mut lines = Vec::new();
        for instance in self.instances() {
            lines.push(format!(
                "{} {} claim={:?} threshold={:?} v{}",
                instance.facts.instance_id,
                instance.state(),
                instance.claim.as_ref().map(|claim| claim.id.to_string()),
                instance.threshold.map(|threshold| threshold.at.to_string()),
                instance.version
            ));
        }
        for request in self.all::<Request>() {
            let status = &request.status;
            lines
                .push(format!("{} {:?} {:?} {}", request.id, status.phase, status.instances, status.message));
        }
        for launch in self.all::<runyard_core::model::Launch>() {
            lines.push(format!("{} {} {} {}", launch.launch_id, launch.phase, launch.count, launch.message));
        }
        lines.push(format!("at {}", self.clock.now()));
        lines.join("\n")
    }
}

/// A pool of two-core machines.
pub fn linux(desired: u32, max: u32) -> serde_json::Value {
    serde_json::json!({"resourceClass": "linux", "cpu": 2, "mmem": 4096, "desired": desired, "max": max})
}

pub fn item(value: &serde_json::Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    item.into_inner().into_iter().collect()
}

/// Agents that do all they should.
pub const GOOD: Habit = Habit::Good;
