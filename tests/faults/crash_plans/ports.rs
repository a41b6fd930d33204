//! What does the operator ask of whom? Every port, through a tap; each call is named by what it is about, so that a
//! plan finds the same call again in another run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{
    AttributeValue, ClassName, InstanceId, Item, Operation, PoolMessage, RecordId, Repository, State, Write,
};
use runyard_core::ports::github::{
    EndOfLife, JobConfig, Listed, RunState, Runner, RunnerSpec, Scope, Token, Waiting, WorkflowJob,
    WorkflowRun,
};
use runyard_core::ports::{
    Batch, Change, Compute, ComputeError, GitHub, GitHubError, LaunchOrder, Launched, Machine, MachineState,
    Notices, Page, PoolQueue, QueueError, Received, ScaleSets, Store, StoreError, Watch,
};
use runyard_operator::controller::Ports;

use crate::crash_plans::history::kind;
use crate::crash_plans::recorder::Life;
use crate::crash_plans::sets_port::TappedScaleSets;

/// How far behind a list of the table is that is stale.
const LAG: Duration = Duration::from_secs(2);

/// The same ports, through a tap.
pub(crate) fn tapped(ports: Ports, life: &Life, notices: bool) -> Ports {
    Ports {
        store: Arc::new(TappedStore { inner: ports.store, life: life.clone() }),
        queue: Arc::new(TappedQueue { inner: ports.queue, life: life.clone() }),
        compute: Arc::new(TappedCompute {
            inner: ports.compute,
            life: life.clone(),
            listed: Mutex::default(),
            described: Mutex::default(),
        }),
        github: ports.github.map(|inner| {
            let (one, all, runs) = (Mutex::default(), Mutex::default(), Mutex::default());
            Arc::new(TappedGitHub { inner, life: life.clone(), one, all, runs }) as Arc<dyn GitHub>
        }),
        scale_sets: ports
            .scale_sets
            .map(|inner| Arc::new(TappedScaleSets { inner, life: life.clone() }) as Arc<dyn ScaleSets>),
        notices: ports
            .notices
            .filter(|_| notices)
            .map(|inner| Arc::new(TappedNotices { inner, life: life.clone() }) as Arc<dyn Notices>),
        ..ports
    }
}

fn text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    match item.get(name) {
        Some(AttributeValue::S(text)) => Some(text),
        Some(_) | None => None,
    }
}

/// What a write is about: the kind of record and where it takes it.
fn about(write: &Write) -> String {
    let pk = write.key.pk();
    let kind = pk.split('#').next().unwrap_or_default();
    let becomes = |set: &Item| {
        let word = ["state", "phase", "holder"].iter().find_map(|name| text(set, name)).map(str::to_owned);
        let names = || {
            let told = |name: &&String| !matches!(name.as_str(), "version" | "updatedAt");
            set.keys().filter(told).map(String::as_str).collect::<Vec<_>>().join(",")
        };
        word.unwrap_or_else(names)
    };
    match &write.operation {
        Operation::Create(item) => format!("+{kind} {}", becomes(item)),
        Operation::Update { set, .. } => format!("{kind} {}", becomes(set)),
        Operation::Delete(_) => format!("-{kind}"),
        Operation::Check(_) => format!("?{kind}"),
    }
}

struct TappedStore {
    inner: Arc<dyn Store>,
    life: Life,
}

fn nobody_knows() -> StoreError {
    StoreError::Unknown("the answer was lost".into())
}

#[async_trait]
impl Store for TappedStore {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        let label = format!("get {}", key.pk().split('#').next().unwrap_or_default());
        let history = self.life.recorder().history().clone();
        let before = |fresh: &Option<Item>| history.before(key).filter(|before| before != fresh);
        self.life.read(label, self.inner.get(key), before).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let history = self.life.recorder().history().clone();
        let before = |fresh: &Page| {
            let items = history.ago(LAG);
            let steady = |items: &[Item]| {
                let told = |item: &&Item| !matches!(kind(item), "agent" | "lease" | "event");
                items.iter().filter(told).cloned().collect::<Vec<_>>()
            };
            (steady(&items) != steady(&fresh.items)).then_some(Page { items, next: None })
        };
        self.life.read("list".into(), self.inner.list(after), before).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.life.read("query".into(), self.inner.query(pk, sk_prefix, after), |_| None).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        let label = format!("write {}", about(write));
        self.life.effect(label, nobody_knows(), self.inner.write(write)).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        let about = writes.iter().map(about).collect::<Vec<_>>().join(" & ");
        self.life.effect(format!("transact {about}"), nobody_knows(), self.inner.transact(writes)).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.life.effect("append events".into(), nobody_knows(), self.inner.append(items)).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        let inner = self.life.read("watch".into(), self.inner.watch(), |_| None).await?;
        Ok(Box::new(TappedWatch { inner, life: self.life.clone(), told: BTreeMap::new() }))
    }
}

struct TappedWatch {
    inner: Box<dyn Watch>,
    life: Life,
    /// What was told last of each record, without what changes all the time.
    told: BTreeMap<RecordId, Option<Item>>,
}

impl TappedWatch {
    /// What is news among some changes, by kind of record.
    fn news(told: &mut BTreeMap<RecordId, Option<Item>>, changes: &[Change]) -> Vec<String> {
        let mut news = Vec::new();
        for change in changes {
            let mut item = change.item.clone();
            for name in ["heartbeatSeq", "updatedAt", "renewals", "version"] {
                item.as_mut().map(|item| item.remove(name));
            }
            let kind = change.key.pk().split('#').next().unwrap_or_default().to_owned();
            let event = change.key.sk().starts_with("event#") || kind == "lease";
            if told.insert(change.key.clone(), item.clone()) != Some(item) && !event {
                news.push(kind);
            }
        }
        news
    }
}

#[async_trait]
impl Watch for TappedWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let told = &mut self.told;
        let mut label = String::from("changes");
        let fresh = self.inner.next().await?;
        let news = Self::news(told, &fresh);
        news.iter().for_each(|kind| label = format!("{label} {kind}"));
        // What a stale answer leaves out is never told again.
        let before = |_: &Vec<Change>| (!news.is_empty()).then(Vec::new);
        self.life.read(label, std::future::ready(Ok(fresh)), before).await
    }
}

struct TappedQueue {
    inner: Arc<dyn PoolQueue>,
    life: Life,
}

fn unheard() -> QueueError {
    QueueError::Unreachable("the answer was lost".into())
}

#[async_trait]
impl PoolQueue for TappedQueue {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.life.effect("queue ensure".into(), unheard(), self.inner.ensure(class)).await
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        self.life.effect("queue announce".into(), unheard(), self.inner.announce(message)).await
    }

    /// A receive takes messages out of sight, so it is an effect; that there are none is its stale answer, which a lost
    /// one is as good as.
    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        self.life.effect("queue receive".into(), unheard(), self.inner.receive(class, most)).await
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        self.life.effect("queue delete".into(), unheard(), self.inner.delete(class, receipts)).await
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.life.effect("queue bury".into(), unheard(), self.inner.bury(class, receipt, raw)).await
    }
}

struct TappedCompute {
    inner: Arc<dyn Compute>,
    life: Life,
    listed: Mutex<BTreeMap<String, Vec<Machine>>>,
    described: Mutex<BTreeMap<String, BTreeMap<InstanceId, MachineState>>>,
}

fn unanswered() -> ComputeError {
    ComputeError::Unknown("the answer was lost".into())
}

impl TappedCompute {
    /// S5: nobody is ended whose record does not say so.
    fn tombstoned(&self, ids: &[InstanceId]) {
        let records = self.life.recorder().history().ago(Duration::ZERO);
        for id in ids {
            let says =
                |item: &&Item| kind(item) == "instance" && text(item, "instanceId") == Some(id.as_str());
            let state = records.iter().find(says).and_then(|item| text(item, "state"));
            if state != Some(State::Terminated.as_str()) {
                self.life.recorder().wrong(format!("{id} was to be ended while its record said {state:?}"));
            }
        }
    }
}

#[async_trait]
impl Compute for TappedCompute {
    fn keeps_inventory(&self) -> bool {
        self.inner.keeps_inventory()
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        self.life.effect("compute launch".into(), unanswered(), self.inner.launch(order)).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.tombstoned(ids);
        self.life.effect("compute terminate".into(), unanswered(), self.inner.terminate(ids)).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        let label = "compute describe".to_owned();
        self.life.read_outside(label, &self.described, self.inner.describe(ids)).await
    }

    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        self.inner.console(id).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.life.read_outside("compute list".into(), &self.listed, self.inner.list()).await
    }
}

struct TappedGitHub {
    inner: Arc<dyn GitHub>,
    life: Life,
    one: Mutex<BTreeMap<String, Option<Runner>>>,
    all: Mutex<BTreeMap<String, Vec<Runner>>>,
    runs: Mutex<BTreeMap<String, RunState>>,
}

fn silent() -> GitHubError {
    GitHubError::Unreachable("the answer was lost".into())
}

#[async_trait]
impl GitHub for TappedGitHub {
    fn runner_url(&self, scope: &Scope) -> String {
        self.inner.runner_url(scope)
    }

    async fn registration_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        let call = self.inner.registration_token(scope);
        self.life.effect("github registration token".into(), silent(), call).await
    }

    async fn removal_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.life.effect("github removal token".into(), silent(), self.inner.removal_token(scope)).await
    }

    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        self.life.effect("github job config".into(), silent(), self.inner.job_config(scope, spec)).await
    }

    async fn runner_group(&self, owner: &str, name: &str) -> Result<Option<u64>, GitHubError> {
        self.life.read("github group".into(), self.inner.runner_group(owner, name), |_| None).await
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, GitHubError> {
        let label = format!("github runner {name}");
        self.life.read_outside(label, &self.one, self.inner.runner(scope, name)).await
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, GitHubError> {
        self.life
            .read_outside("github runner by id".into(), &self.one, self.inner.runner_by_id(scope, id))
            .await
    }

    async fn runners(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.life.read_outside("github runners".into(), &self.all, self.inner.runners(scope)).await
    }

    async fn runners_seen(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.life.read_outside("github runners".into(), &self.all, self.inner.runners_seen(scope)).await
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), GitHubError> {
        self.life.effect("github remove".into(), silent(), self.inner.remove_runner(scope, id)).await
    }

    async fn set_labels(&self, scope: &Scope, id: u64, labels: &[String]) -> Result<(), GitHubError> {
        self.life.effect("github labels".into(), silent(), self.inner.set_labels(scope, id, labels)).await
    }

    async fn end_of_life(&self, scope: &Scope, version: &str) -> Result<EndOfLife, GitHubError> {
        self.inner.end_of_life(scope, version).await
    }

    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        self.inner.repositories().await
    }

    async fn run(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        waiting: Waiting,
    ) -> Result<RunState, GitHubError> {
        let call = self.inner.run(owner, name, run_id, waiting);
        self.life.read_outside("github run".into(), &self.runs, call).await
    }

    async fn open_runs(
        &self,
        owner: &str,
        name: &str,
        listed: Listed,
    ) -> Result<Vec<WorkflowRun>, GitHubError> {
        self.inner.open_runs(owner, name, listed).await
    }

    async fn run_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
    ) -> Result<Vec<WorkflowJob>, GitHubError> {
        self.inner.run_jobs(owner, name, run_id, attempt).await
    }

    async fn rerun_failed_jobs(&self, owner: &str, name: &str, run_id: u64) -> Result<(), GitHubError> {
        self.inner.rerun_failed_jobs(owner, name, run_id).await
    }
}

struct TappedNotices {
    inner: Arc<dyn Notices>,
    life: Life,
}

#[async_trait]
impl Notices for TappedNotices {
    async fn receive(&self) -> Result<Batch, QueueError> {
        let batch = self.life.read("notices".into(), self.inner.receive(), |_| None).await?;
        if batch == Batch::default() {
            return Ok(batch);
        }
        // What was received is out of sight for a while, whatever becomes of the answer.
        let received = std::future::ready(Ok(batch));
        self.life.effect("notices receive".into(), unheard(), received).await
    }

    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError> {
        self.life.effect("notices acknowledge".into(), unheard(), self.inner.acknowledge(receipts)).await
    }
}
