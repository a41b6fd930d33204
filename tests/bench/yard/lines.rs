//! How long do many requests take at once, and what does the operator use for them? Bursts, lines of known length,
//! which stand there when the operator begins to look, and a request of one class behind a flood of another. The
//! operator is a process of its own on the embedded engine over HTTP; its machines are warm, and their agents answer at
//! once.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use runyard_core::model::{
    Agent, AttributeValue, Guard, Instance, Item, Life, Operation, Pool, PoolSpec, PoolStatus, Reading,
    RecordId, Request, Versioned as _, Write, millis, read,
};
use runyard_core::ports::{Clock as _, Store as _, StoreError};
use runyard_operator::process::clock::SystemClock;
use runyard_standin::engine::Engine;
use runyard_store::{DynamoStore, Watching};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::beating::{Operator, address, machine, text};
use super::fixture::{CLASS, intent, key, sdk_as, table};
use super::floors::Figures;

/// Longest one measurement may take.
const LIMIT: Duration = Duration::from_secs(300);
/// Writes of the workflows and of the agents that are in progress at the same time.
const AT_ONCE: usize = 16;
/// The class that nobody floods.
const HONEST: &str = "honest";

/// An engine with an operator, warm machines and their agents.
struct Scene {
    store: DynamoStore,
    clock: SystemClock,
    operator: Operator,
    admin: String,
    /// Plays the agents; tells each request that became ready.
    agents: JoinHandle<()>,
    /// Each request, and when it became ready as its record says: whoever plays the agents looks late.
    ready: tokio::sync::mpsc::UnboundedReceiver<Timestamp>,
    _engine: Engine,
    _dir: tempfile::TempDir,
}

async fn pool(store: &DynamoStore, clock: &SystemClock, class: &str, machines: usize) {
    let spec = serde_json::json!({
        "resourceClass": class, "cpu": 2, "mmem": 4096, "desired": machines, "max": machines,
        "idleSeconds": 86400, "maxUses": 1_000_000,
    });
    let spec: PoolSpec = serde_json::from_value(spec).unwrap();
    let mut pool =
        Pool { spec, scale: None, status: PoolStatus::default(), uid: None, version: 0, updated_at: None };
    pool.advance(clock.now());
    store.write(&pool.creating()).await.unwrap();
}

/// What an agent says to its record as it is now, if anything.
fn says(item: &Item, clock: &SystemClock) -> Option<Write> {
    let Reading::Record(instance) = read::<Instance>(item) else { return None };
    let signal = match instance.life {
        Life::Claimed { .. } => "UD_REG_OK",
        Life::Idle { pooled_at: None } => "UD_REMOVE_REG_OK",
        Life::Created { .. } | Life::Running { .. } | Life::Idle { .. } | Life::Terminated { .. } => {
            return None;
        }
    };
    let claim = instance.claim.as_ref().map_or(String::new(), |claim| claim.id.to_string());
    let set = Item::from([
        ("signal".to_owned(), text(signal)),
        ("signalClaimId".to_owned(), text(&claim)),
        ("updatedAt".to_owned(), text(&millis(clock.now()).to_string())),
    ]);
    let key = Agent::key_of(&instance.facts.instance_arn);
    Some(Write::update(key, Guard::Exists, set, [("heartbeatSeq".to_owned(), 1)].into()))
}

/// Writes for a workflow or an agent; what is refused was written by an attempt whose answer was lost.
async fn put(store: &DynamoStore, write: &Write) {
    loop {
        match store.write(write).await {
            Ok(_) | Err(StoreError::Refused { .. }) => return,
            Err(StoreError::Unknown(_) | StoreError::Throttled | StoreError::Contended) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

impl Scene {
    /// So many warm machines of the class, and one of the class that nobody floods.
    async fn lay(machines: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::start(dir.path()).await.unwrap();
        let often = Watching { every: Duration::from_millis(20), ..Watching::default() };
        let store = DynamoStore::connect(table(), &sdk_as(engine.key(), &engine.endpoint())).watching(often);
        let clock = SystemClock::new();
        store.create_table().await.unwrap();
        pool(&store, &clock, CLASS, machines).await;
        pool(&store, &clock, HONEST, 1).await;
        let mut records: Vec<[Item; 2]> =
            (0..=machines).map(|number| machine(number, clock.now()).1).collect();
        records[machines][0].insert("resourceClass".to_owned(), text(HONEST));
        for some in records.concat().chunks(25) {
            assert_eq!(store.append(some).await.unwrap(), 0, "the table takes them all");
        }
        let log = dir.path().join("operator.log");
        let operator = Operator::start(engine.key(), &engine.endpoint(), &log);
        let admin = address(&log).await;
        let (told, ready) = tokio::sync::mpsc::unbounded_channel();
        let mut watch = store.watch().await.unwrap();
        let (table, agents_clock) = (store.clone(), SystemClock::new());
        let agents = tokio::spawn(async move {
            let mut known = BTreeSet::new();
            loop {
                let changes = match watch.next().await {
                    Ok(changes) => changes,
                    Err(StoreError::Unknown(_) | StoreError::Throttled) => continue,
                    Err(error) => panic!("{error}"),
                };
                let items: Vec<Item> = changes.into_iter().filter_map(|change| change.item).collect();
                for item in &items {
                    if let Reading::Record(request) = read::<Request>(item)
                        && let Some(at) = request.status.ready_at
                        && RecordId::of(item).is_some_and(|key| known.insert(key))
                    {
                        let _ = told.send(at);
                    }
                }
                let writes = items.iter().filter_map(|item| says(item, &agents_clock));
                let saying = stream::iter(writes.collect::<Vec<_>>());
                saying.for_each_concurrent(AT_ONCE, async |write| put(&table, &write).await).await;
            }
        });
        let scene = Self { store, clock, operator, admin, agents, ready, _engine: engine, _dir: dir };
        while !scene.answers("readyz").await {
            sleep(Duration::from_millis(50)).await;
        }
        // Announced, taken in, and at rest.
        sleep(Duration::from_secs(5)).await;
        scene
    }

    /// Whether the operator answers with success.
    async fn answers(&self, path: &str) -> bool {
        let url = format!("http://{}/{path}", self.admin);
        reqwest::get(url).await.is_ok_and(|answer| answer.status().is_success())
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.operator.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Writes so many intents.
    async fn ask(&self, intents: impl Iterator<Item = Write>) {
        let asking = stream::iter(intents.collect::<Vec<_>>());
        asking.for_each_concurrent(AT_ONCE, async |write| put(&self.store, &write).await).await;
    }

    /// When each of so many requests became ready.
    async fn become_ready(&mut self, requests: usize) -> Vec<Timestamp> {
        let mut moments = Vec::new();
        while moments.len() < requests {
            let next = timeout(LIMIT, self.ready.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("{} of {requests} became ready", moments.len()));
            moments.push(next.expect("the agents go on"));
        }
        moments
    }

    /// The most memory that the operator ever used, in MiB.
    fn peak(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.operator.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.agents.abort();
    }
}

fn with(write: Write, more: &[(&str, AttributeValue)]) -> Write {
    let Operation::Create(mut item) = write.operation else { unreachable!("an intent creates") };
    item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Write::create(RecordId::of(&item).unwrap_or(write.key), item)
}

/// A number of requests of a number of machines each; when `stands`, the operator sees all of them at once.
async fn line(requests: usize, count: usize, stands: bool) -> f64 {
    let mut scene = Scene::lay(requests * count).await;
    let (before, mut begun) = (scene.operator.used().0, millis(scene.clock.now()));
    let intents = (0..requests).map(|run| {
        let count = AttributeValue::N(count.to_string());
        with(intent(run, scene.clock.now()), &[("count", count)])
    });
    if stands {
        scene.signal("-STOP");
        scene.ask(intents).await;
        scene.signal("-CONT");
        begun = millis(scene.clock.now());
    } else {
        scene.ask(intents).await;
    }
    let mut ready = scene.become_ready(requests).await;
    ready.sort();
    let at = |moment: Timestamp| moment.duration_since(begun).as_secs_f64();
    let processor = (scene.operator.used().0 - before).as_secs_f64();
    println!(
        "{} {requests} × {count}: first ready {:.2} s, half {:.2} s, all {:.2} s, operator {processor:.2} s of processor, {:.0} MiB at most",
        if stands { "line " } else { "burst" },
        at(ready[0]),
        at(ready[ready.len() / 2]),
        at(ready[ready.len() - 1]),
        scene.peak(),
    );
    processor
}

/// A request of a class that nobody else wants, alone and while many of another class are open.
async fn flood(open: usize, repositories: usize) -> f64 {
    let mut scene = Scene::lay(1).await;
    let honest = |run: usize, now| with(intent(run, now), &[("resourceClass", text(HONEST))]);
    let mut alone = Vec::new();
    let took = async |scene: &mut Scene, run: usize| {
        let begun = millis(scene.clock.now());
        put(&scene.store, &honest(run, scene.clock.now())).await;
        let at = scene.become_ready(1).await[0].duration_since(begun);
        put(&scene.store, &super::fixture::release(run)).await;
        // Cleaned and pooled again before the next.
        sleep(Duration::from_secs(2)).await;
        at.as_secs_f64()
    };
    for run in 0..5 {
        alone.push(took(&mut scene, 9_000_000 + run).await);
    }
    let (before, begun) = (scene.operator.used().0, Instant::now());
    let intents = (0..open).map(|run| {
        let (repository, key) = (format!("acme/flood-{}", run % repositories), key(run));
        let pk = key.pk().replace("acme/web", &repository);
        let wait = AttributeValue::N("86400".into());
        let more = [
            ("pk", text(&pk)),
            ("repository", text(&repository)),
            ("resourceClass", text(CLASS)),
            ("timeoutSeconds", wait),
        ];
        with(intent(run, scene.clock.now()), &more)
    });
    scene.ask(intents).await;
    let written = begun.elapsed().as_secs_f64();
    let mut behind = Vec::new();
    for run in 0..5 {
        behind.push(took(&mut scene, 9_100_000 + run).await);
    }
    let ready = (scene.answers("readyz").await, scene.answers("status.json").await);
    let processor = (scene.operator.used().0 - before).as_secs_f64();
    let (first, alone, behind) = (behind[0], middle(&mut alone), middle(&mut behind));
    println!(
        "flood of {open} of another class, written in {written:.1} s: a request is ready after {behind:.2} s (the first {first:.2} s), alone after {alone:.2} s; operator {processor:.2} s of processor, {:.0} MiB at most, ready and status {ready:?}",
        scene.peak(),
    );
    behind / alone
}

/// Bursts and lines.
pub(crate) async fn measure(figures: &mut Figures) {
    println!();
    for (requests, count) in [(300, 1), (1, 300), (1000, 1)] {
        line(requests, count, false).await;
    }
    // One after the other, so that what else the machine does meets all lengths alike.
    let lengths = [250, 500, 1000];
    let mut used = lengths.map(|_| Vec::new());
    for _ in 0..3 {
        for (requests, used) in lengths.into_iter().zip(&mut used) {
            used.push(line(requests, 1, true).await);
        }
    }
    let [few, _, many] = used.each_mut().map(|used| middle(used));
    figures.add("a line: exponent of the processor time from 250 to 1000", (many / few).ln() / 4_f64.ln());
}

fn middle(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Floods.
pub(crate) async fn floods(figures: &mut Figures) {
    println!();
    figures.add("a request behind a flood of 10 000 over alone", flood(10_000, 10).await);
}
