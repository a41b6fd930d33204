//! What does an operator use while a thousand or ten thousand agents beat? A process of its own on the embedded engine,
//! seen from outside: processor time and memory, as the kernel counts them.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use runyard_core::model::{
    Agent, AttributeValue, Guard, Instance, InstanceArn, Item, Pool, PoolSpec, PoolStatus, Versioned as _,
    Write, millis,
};
use runyard_core::ports::{Clock as _, Store as _};
use runyard_operator::process::clock::SystemClock;
use runyard_standin::engine::Engine;
use runyard_store::DynamoStore;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::fixture::{CLASS, sdk_as, table};
use super::floors::Figures;

/// How often an agent beats: the default of `timing.heartbeat`.
const BEAT: Duration = Duration::from_secs(10);
/// How long is looked at.
const WINDOW: Duration = Duration::from_secs(30);
/// Beats that are written at the same time, at most.
const AT_ONCE: usize = 16;

/// An operator process, ended with this.
pub(crate) struct Operator(pub(crate) Child);

impl Drop for Operator {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Operator {
    pub(crate) fn start(key: &str, endpoint: &str, log: &Path) -> Self {
        let file = File::create(log).unwrap();
        let settings = [
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", key),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("RUNYARD_COMPUTE__KIND", "none"),
            ("RUNYARD_GITHUB__KIND", "none"),
            ("RUNYARD_QUEUE__KIND", "memory"),
            ("RUNYARD_ADMIN__LISTEN", "127.0.0.1:0"),
            ("RUNYARD_LOG__FORMAT", "json"),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.arg("operator").env_clear().envs(settings).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self(command.spawn().unwrap())
    }

    /// Processor time so far, user and system; resident memory now, bytes.
    pub(crate) fn used(&self) -> (Duration, u64) {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let number = |index: usize| fields[index].parse::<u64>().unwrap();
        // Fields 14, 15 and 24 of `proc_pid_stat(5)`: hundredths of a second, and pages of 4 KiB.
        (Duration::from_millis(10 * (number(11) + number(12))), 4096 * number(21))
    }
}

/// Where its administration port is, once it says so.
pub(crate) async fn address(log: &Path) -> String {
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        if let Some(address) = lines.into_iter().find_map(|line| line["listen"].as_str().map(str::to_owned)) {
            return address;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn count(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn item(pairs: &[(&str, AttributeValue)]) -> Item {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// A machine in the pool, for a day, and its agent.
pub(crate) fn machine(number: usize, now: Timestamp) -> (InstanceArn, [Item; 2]) {
    let id = format!("i-{number:017x}");
    let arn = format!("arn:aws:ec2:local:000000000000:instance/{id}");
    let tomorrow = now.saturating_add(SignedDuration::from_hours(24)).unwrap().to_string();
    let now = now.to_string();
    let instance = item(&[
        ("pk", text(&format!("instance#{arn}"))),
        ("sk", text("instance")),
        ("kind", text("instance")),
        ("version", count(2)),
        ("instanceId", text(&id)),
        ("instanceArn", text(&arn)),
        ("state", text("idle")),
        ("pooledAt", text(&now)),
        ("runId", text("")),
        ("claimId", text("")),
        ("threshold", text(&tomorrow)),
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
        ("uses", count(0)),
    ]);
    let agent = item(&[
        ("pk", text(&format!("agent#{arn}"))),
        ("sk", text("agent")),
        ("kind", text("agent")),
        ("signal", text("UD_OK")),
        ("signalClaimId", text("")),
        ("heartbeatSeq", count(1)),
        ("agentVersion", text("0.1.0")),
        ("updatedAt", text(&now)),
    ]);
    (InstanceArn::parse(&arn).unwrap(), [instance, agent])
}

/// Every agent beats once in [`BEAT`], one after the other, for as long as this is polled.
async fn beat(store: &DynamoStore, agents: &[InstanceArn], clock: &SystemClock, beats: &AtomicU64) -> ! {
    let every = BEAT / u32::try_from(agents.len()).unwrap();
    let mut tick = interval(every.max(Duration::from_millis(5)));
    let (started, mut told) = (Instant::now(), 0);
    loop {
        tick.tick().await;
        let owed = usize::try_from(started.elapsed().as_nanos() / every.as_nanos()).unwrap();
        let writes = (told..owed).map(|turn| {
            let key = Agent::key_of(&agents[turn % agents.len()]);
            let now = millis(clock.now()).to_string();
            let set = item(&[("updatedAt", text(&now)), ("heartbeatAt", text(&now))]);
            Write::update(key, Guard::Exists, set, [("heartbeatSeq".to_owned(), 1)].into())
        });
        stream::iter(writes)
            .for_each_concurrent(AT_ONCE, async |write| {
                beats.fetch_add(u64::from(store.write(&write).await.is_ok()), Ordering::Relaxed);
            })
            .await;
        told = owed;
    }
}

/// Measures and prints.
pub(crate) async fn measure(machines: usize, figures: &mut Figures) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::start(dir.path()).await.unwrap();
    let store = DynamoStore::connect(table(), &sdk_as(engine.key(), &engine.endpoint()));
    let clock = SystemClock::new();
    store.create_table().await.unwrap();
    let spec = serde_json::json!({
        "resourceClass": CLASS, "cpu": 2, "mmem": 4096, "desired": machines, "max": machines, "idleSeconds": 86400
    });
    let spec: PoolSpec = serde_json::from_value(spec).unwrap();
    let mut pool =
        Pool { spec, scale: None, status: PoolStatus::default(), uid: None, version: 0, updated_at: None };
    pool.advance(clock.now());
    store.write(&pool.creating()).await.unwrap();
    let (agents, records): (Vec<InstanceArn>, Vec<[Item; 2]>) =
        (0..machines).map(|number| machine(number, clock.now())).unzip();
    for some in records.concat().chunks(25) {
        assert_eq!(store.append(some).await.unwrap(), 0, "the table takes them all");
    }
    let log = dir.path().join("operator.log");
    let operator = Operator::start(engine.key(), &engine.endpoint(), &log);
    let admin = address(&log).await;
    let beats = AtomicU64::new(0);
    let looking = async {
        while reqwest::get(format!("http://{admin}/readyz"))
            .await
            .map_or(true, |it| !it.status().is_success())
        {
            sleep(Duration::from_millis(50)).await;
        }
        // Announced, taken in, and at rest.
        sleep(BEAT).await;
        let (begun, before, beaten) = (Instant::now(), operator.used(), beats.load(Ordering::Relaxed));
        sleep_until(begun + WINDOW).await;
        let (after, took) = (operator.used(), begun.elapsed().as_secs_f64());
        let told = (beats.load(Ordering::Relaxed) - beaten) as f64;
        (after.0 - before.0, after.1, told / took, took)
    };
    let (processor, resident, rate, took) = tokio::select! {
        never = beat(&store, &agents, &clock, &beats) => never,
        looked = looking => looked,
    };
    let share = processor.as_secs_f64() / took;
    println!(
        "operator under {machines} agents: {rate:.0} beats a second told, {:.1} % of a core, {:.0} µs a beat, {:.1} MiB resident",
        100.0 * share,
        1e6 * share / rate,
        resident as f64 / f64::from(1 << 20)
    );
    let mut ended = 0;
    for arn in &agents {
        let found = store.get(&Instance::key_of(arn)).await.unwrap();
        ended += usize::from(found.is_none_or(|item| item.get("state") != Some(&text("idle"))));
    }
    figures.add(&format!("{machines} agents: machines lost though all beat"), ended as f64);
}
