//! The fixture of the benchmarks: a table, a class, existing records, and an agent that answers at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use jiff::Timestamp;
use runyard_core::model::{
    Agent, AttributeValue, Guard, Instance, InstanceArn, Item, Life, Pool, PoolSpec, PoolStatus, Reading,
    Reason, RecordId, Signal, TableName, Timing, Versioned as _, Write, millis, read,
};
use runyard_core::ports::{Clock, PoolQueue, Ringer as _, Store};
use runyard_operator::aws::SqsQueue;
use runyard_operator::controller::{Bell, GitHubWatch, Ports, Settings, run};
use runyard_operator::in_process::compute_none::NoCompute;
use runyard_operator::in_process::queue_memory::InProcessQueue;
use runyard_operator::metrics::Metrics;
use runyard_operator::process::clock::{SystemClock, SystemEntropy};
use runyard_operator::status::Health;
use runyard_standin::change_notifier;
use runyard_standin::engine::Engine as Embedded;
use runyard_store::{DynamoStore, Watching};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::timed::{Calls, Latency, Slow, SlowBell, Timed};
use super::wire;
use runyard_support::engine::Engine;

pub(crate) const CLASS: &str = "linux";

/// The services behind an operator.
pub(crate) enum Services {
    /// The embedded engine on a file, the queue in the process.
    Embedded,
    /// The same behind AWS's latencies, with the stream looked at as on AWS, and perhaps a doorbell.
    LikeAws(Bells),
    /// The embedded engine across a wire with AWS's latencies, its stream in so many shards, all but one of them empty.
    Wire(usize),
    /// The records in dynoxide, the hints in an SQS of the tests.
    Foreign(fn() -> Engine),
}

/// How sides that wait for each other are told, with AWS's latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bells {
    /// Not at all: the stream is looked at every 200 ms.
    None,
    /// The workflow rings. The agent looks every millisecond, as in the other measurements.
    Rung,
    /// The same, with an agent that looks as often as the real one does in the first seconds of its wait.
    RungWithPacedAgent,
}

/// An operator at work.
pub(crate) struct Fixture {
    /// The table, for the workflow's part: not timed, not delayed.
    pub(crate) store: DynamoStore,
    /// What the operator asked.
    pub(crate) calls: Calls,
    pub(crate) clock: Arc<SystemClock>,
    /// What the workflow and the agents ring.
    pub(crate) bell: Option<Arc<SlowBell>>,
    /// From the operator's start until its first list was taken in.
    pub(crate) listed_after: Duration,
    ports: Ports,
    stop: CancellationToken,
    operator: JoinHandle<()>,
    agents: JoinHandle<()>,
    _embedded: Option<Embedded>,
    _engines: Vec<Engine>,
    _dir: tempfile::TempDir,
}

pub(crate) fn sdk(endpoint: &str) -> SdkConfig {
    sdk_as("test", endpoint)
}

/// As whoever has this access key: that of a data directory, for the embedded engine.
pub(crate) fn sdk_as(key: &str, endpoint: &str) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            key,
            "test",
            None,
            None,
            "a benchmark",
        )))
        .endpoint_url(endpoint)
        .build()
}

fn settings() -> Settings {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    Settings {
        identity: "bench".into(),
        table: table(),
        organization: false,
        rebalance: runyard_core::model::Rebalance::Last,
        timing: Timing {
            created: minutes(30),
            claimed: minutes(30),
            cleanup: minutes(30),
            end: minutes(3),
            grace: minutes(5),
            heartbeat: minutes(5),
            stale: minutes(60),
            agent_poll: minutes(1),
            resync: minutes(60),
            reannounce: minutes(60),
            lease: Duration::from_secs(15),
            orphan: minutes(10),
            image: Duration::from_secs(3600),
        },
        requests_per_repository: 2000,
        runner_version: None,
        following: Default::default(),
        sharing: Default::default(),
        prices: Default::default(),
        sweep: minutes(60),
        github: GitHubWatch::default(),
        ended_stays: runyard_core::decide::Policy::ENDED_STAYS,
    }
}

pub(crate) fn table() -> TableName {
    TableName::parse("runyard").expect("a name")
}

/// A machine that ended, whose record is still there, and the request it served: two records.
fn ended(number: usize, now: Timestamp) -> [Item; 2] {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let count = |value: i64| AttributeValue::N(value.to_string());
    let id = format!("i-{number:017x}");
    let arn = format!("arn:aws:ec2:local:000000000000:instance/{id}");
    let (now, later) = (now.to_string(), now.as_second() + 86_400);
    let instance = [
        ("pk", text(&format!("instance#{arn}"))),
        ("sk", text("instance")),
        ("kind", text("instance")),
        ("version", count(9)),
        ("instanceId", text(&id)),
        ("instanceArn", text(&arn)),
        ("state", text("terminated")),
        ("runId", text("")),
        ("claimId", text("")),
        ("threshold", text("")),
        ("thresholdSetAt", text(&now)),
        ("resourceClass", text(CLASS)),
        ("instanceType", text("m7i.large")),
        ("usageClass", text("on-demand")),
        ("cpu", count(2)),
        ("mmem", count(4096)),
        ("availabilityZone", text("local")),
        ("stateSince", text(&now)),
        ("createdAt", text(&now)),
        ("updatedAt", text(&now)),
        ("reason", text(Reason::Threshold.as_str())),
        ("goneAt", text(&now)),
        ("uses", count(1)),
        ("trustDomain", text("owner:acme")),
        ("expiresAt", count(later)),
    ];
    let request = [
        ("pk", text(&format!("request#acme/old#{number}"))),
        ("sk", text("request#default#1")),
        ("kind", text("request")),
        ("version", count(6)),
        ("runId", text(&number.to_string())),
        ("attempt", count(1)),
        ("repository", text("acme/old")),
        ("repository", text("acme/old")),
        ("name", text("default")),
        ("resourceClass", text(CLASS)),
        ("count", count(1)),
        ("desired", text("released")),
        ("generation", count(2)),
        ("phase", text("Released")),
        ("acceptedAt", text(&now)),
        ("observedGeneration", count(2)),
        ("expiresAt", count(later)),
    ];
    let item = |pairs: &[(&str, AttributeValue)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    [item(&instance), item(&request)]
}

impl Fixture {
    /// An operator on these services, with so many records of ended things.
    #[expect(clippy::too_many_lines, reason = "one record after the other, as a yard has them")]
    pub(crate) async fn lay(services: Services, records: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bells = match services {
            Services::LikeAws(bells) => bells,
            Services::Embedded | Services::Wire(_) | Services::Foreign(_) => Bells::None,
        };
        let (embedded, engines, store, sqs, aws) = services_of(services, dir.path().to_owned()).await;
        let (look, looks) = watch::channel(());
        let bell = (bells != Bells::None).then(|| Arc::new(SlowBell::default()));
        let store = if bell.is_some() { store.woken_by(looks) } else { store };
        let doorbell = bell.clone().map(|port| Bell { port, look });
        let clock = Arc::new(SystemClock::new());
        store.create_table().await.unwrap();
        let spec = serde_json::json!({"resourceClass": CLASS, "cpu": 2, "mmem": 4096, "max": 50, "maxUses": 1_000_000});
        let spec: PoolSpec = serde_json::from_value(spec).unwrap();
        let mut pool = Pool {
            spec,
            scale: None,
            status: PoolStatus::default(),
            uid: None,
            version: 0,
            updated_at: None,
        };
        pool.advance(clock.now());
        store.write(&pool.creating()).await.unwrap();
        let items: Vec<Item> = (0..records / 2).flat_map(|number| ended(number, clock.now())).collect();
        for some in items.chunks(25) {
            assert_eq!(store.append(some).await.unwrap(), 0, "the table takes them all");
        }
        let calls = Calls::default();
        let latency = |median, late| aws.then_some(Latency { median, late });
        let port: Arc<dyn Clock> = clock.clone();
        let memory: Arc<dyn PoolQueue> = match &sqs {
            Some(endpoint) => {
                let queue = SqsQueue::connect(table(), &sdk(endpoint));
                queue.ensure(&CLASS.parse().unwrap()).await.unwrap();
                Arc::new(Timed { inner: queue, calls: calls.clone(), latency: None })
            }
            None => {
                let inner = InProcessQueue::new(port.clone(), runyard_core::model::ANNOUNCED);
                Arc::new(Timed { inner, calls: calls.clone(), latency: latency(16.0, 105.0) })
            }
        };
        let fleet = Duration::from_millis(if aws { 1500 } else { 0 });
        let ports = Ports {
            store: Arc::new(Timed {
                inner: store.clone(),
                calls: calls.clone(),
                latency: latency(5.0, 20.0),
            }),
            queue: memory,
            compute: Arc::new(Slow { inner: NoCompute::new(port.clone()), fleet }),
            github: None,
            notices: None,
            doorbell,
            scale_sets: None,
            job_bell: None,
            history: None,
            clock: port.clone(),
            entropy: Arc::new(SystemEntropy),
            metrics: Metrics::new(port.clone()),
        };
        let (stop, operator, listed_after) = operate(ports.clone()).await;
        let every = match bells {
            Bells::None | Bells::Rung => Duration::from_millis(1),
            Bells::RungWithPacedAgent => Duration::from_millis(50),
        };
        let agents = tokio::spawn(agents(store.clone(), bell.clone(), calls.clone(), clock.clone(), every));
        Self {
            store,
            calls,
            clock,
            bell,
            listed_after,
            ports,
            stop,
            operator,
            agents,
            _embedded: embedded,
            _engines: engines,
            _dir: dir,
        }
    }

    /// Ends the operator, does something while none is there, and starts another one.
    pub(crate) async fn restart<T>(&mut self, meanwhile: impl AsyncFnOnce(&DynamoStore) -> T) -> T {
        self.stop.cancel();
        (&mut self.operator).await.unwrap();
        let done = meanwhile(&self.store).await;
        (self.stop, self.operator, self.listed_after) = operate(self.ports.clone()).await;
        done
    }

    /// Ends the operator and the agents.
    pub(crate) async fn clear(self) {
        self.stop.cancel();
        self.agents.abort();
        self.operator.await.unwrap();
    }
}

/// Starts an operator; how long it took to take in its first list.
async fn operate(ports: Ports) -> (CancellationToken, JoinHandle<()>, Duration) {
    let (stop, health) = (CancellationToken::new(), Arc::new(Health::new(ports.clock.clone())));
    let begun = Instant::now();
    let running = run(ports, settings(), health.clone(), stop.clone());
    let operator = tokio::spawn(async move { running.await.expect("the table is there") });
    while health.verdict().is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (stop, operator, begun.elapsed())
}

type Behind = (Option<Embedded>, Vec<Engine>, DynamoStore, Option<String>, bool);

async fn services_of(services: Services, dir: PathBuf) -> Behind {
    match services {
        Services::Embedded => {
            let engine = Embedded::start(&dir).await.unwrap();
            let store = DynamoStore::connect(table(), &sdk_as(engine.key(), &engine.endpoint()));
            let store = store.woken_by(change_notifier::listen(&dir).unwrap());
            (Some(engine), Vec::new(), store, None, false)
        }
        Services::LikeAws(_) => {
            let engine = Embedded::start(&dir).await.unwrap();
            let store = DynamoStore::connect(table(), &sdk_as(engine.key(), &engine.endpoint()));
            (Some(engine), Vec::new(), store, None, true)
        }
        Services::Wire(shards) => {
            let engine = Embedded::start(&dir).await.unwrap();
            let endpoint = wire::before(&engine.endpoint(), shards).await;
            let store = DynamoStore::connect(table(), &sdk_as(engine.key(), &endpoint));
            (Some(engine), Vec::new(), store, None, false)
        }
        Services::Foreign(hints) => {
            let (records, hints) = (Engine::dynoxide_memory(), hints());
            let often = Watching { every: Duration::from_millis(2), ..Watching::default() };
            let store = DynamoStore::connect(table(), &sdk(records.endpoint())).watching(often);
            let sqs = Some(hints.endpoint().to_owned());
            (None, vec![records, hints], store, sqs, false)
        }
    }
}

/// The agents of all machines: each reads its record every millisecond and answers as soon as that says so.
async fn agents(
    store: DynamoStore,
    bell: Option<Arc<SlowBell>>,
    calls: Calls,
    clock: Arc<SystemClock>,
    every: Duration,
) {
    let mut told: BTreeMap<InstanceArn, String> = BTreeMap::new();
    let mut machines: Vec<InstanceArn> = Vec::new();
    let mut fruitless = 0_u32;
    loop {
        fruitless += 1;
        if machines.is_empty() || fruitless.is_multiple_of(500) {
            machines = born(&store).await;
        }
        for arn in &machines {
            if answer(&store, arn, &mut told, &clock, &calls).await {
                fruitless = 0;
                if let Some((bell, own)) = bell.clone().map(|bell| (bell, Agent::key_of(arn))) {
                    tokio::spawn(async move { bell.ring(&own).await });
                }
            }
        }
        tokio::time::sleep(every).await;
    }
}

/// The machines that live: the operator launched them.
async fn born(store: &DynamoStore) -> Vec<InstanceArn> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let Ok(page) = store.list(after.as_ref()).await else { return found };
        for item in &page.items {
            if let Reading::Record(instance) = read::<Instance>(item)
                && instance.state().live()
            {
                found.push(instance.facts.instance_arn);
            }
        }
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// Whether the machine had something to say.
async fn answer(
    store: &DynamoStore,
    arn: &InstanceArn,
    told: &mut BTreeMap<InstanceArn, String>,
    clock: &SystemClock,
    calls: &Calls,
) -> bool {
    let Ok(Some(item)) = store.get(&Instance::key_of(arn)).await else { return false };
    let Reading::Record(instance) = read::<Instance>(&item) else { return false };
    let claim = instance.claim.as_ref().map_or(String::new(), |claim| claim.id.to_string());
    let (signal, about) = match instance.life {
        Life::Created { run: None } => (Signal::Ok, String::new()),
        Life::Created { run: Some(_) } | Life::Claimed { .. } => (Signal::RegOk, claim),
        Life::Idle { pooled_at: None } => (Signal::RemoveRegOk, claim),
        Life::Running { .. } | Life::Idle { pooled_at: Some(_) } | Life::Terminated { .. } => return false,
    };
    let saying = format!("{signal} {about}");
    if told.get(arn) == Some(&saying) {
        return false;
    }
    let set = Item::from([
        ("signal".to_owned(), AttributeValue::S(signal.to_string())),
        ("signalClaimId".to_owned(), AttributeValue::S(about)),
        ("updatedAt".to_owned(), AttributeValue::S(millis(clock.now()).to_string())),
    ]);
    let add = BTreeMap::from([("heartbeatSeq".to_owned(), 1)]);
    let begun = Instant::now();
    let write = Write::update(Agent::key_of(arn), Guard::Exists, set, add);
    let ok = store.write(&write).await.is_ok();
    calls.said(&write.key, begun, ok);
    if ok {
        told.insert(arn.clone(), saying);
    }
    ok
}

/// A request's key.
pub(crate) fn key(run: usize) -> RecordId {
    RecordId::new(format!("request#acme/web#{run}"), "request#default#1")
}

/// An intent as a workflow writes it.
pub(crate) fn intent(run: usize, now: Timestamp) -> Write {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let number = |value: u64| AttributeValue::N(value.to_string());
    let key = key(run);
    let pairs = [
        ("pk", text(&key.pk())),
        ("sk", text(&key.sk())),
        ("kind", text("request")),
        ("version", number(1)),
        ("runId", text(&run.to_string())),
        ("attempt", number(1)),
        ("repository", text("acme/web")),
        ("repository", text("acme/web")),
        ("name", text("default")),
        ("resourceClass", text(CLASS)),
        ("count", number(1)),
        ("desired", text("provisioned")),
        ("generation", number(1)),
        ("createdAt", text(&now.to_string())),
    ];
    let item = pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Write::create(key, item)
}

/// A release as a workflow writes it.
pub(crate) fn release(run: usize) -> Write {
    let set = Item::from([("desired".to_owned(), AttributeValue::S("released".into()))]);
    let add = BTreeMap::from([("generation".to_owned(), 1), ("version".to_owned(), 1)]);
    Write::update(key(run), Guard::StillProvisioned, set, add)
}
