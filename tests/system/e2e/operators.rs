//! Several operators on one table: how are they started, told apart and counted? Real processes that launch nothing,
//! over an engine in this process; a workflow's writes are ours.

use std::time::Duration;

use futures::future::join_all;
use runyard_core::model::{
    AttributeValue, Guard, Item, Pool, PoolSpec, PoolStatus, RecordId, Repository, Request, RequestKey,
    RequestName, RunId, Versioned as _, Write, millis,
};
use runyard_core::ports::{Clock as _, Store as _, StoreError};
use runyard_operator::process::clock::SystemClock;
use runyard_store::DynamoStore;

use crate::e2e::history;
use crate::e2e::program::{Ended, Environment, Running, environment, verb};
use runyard_support::engine::Engine;

/// Patient deadlines, since nothing here is about one; a short lease, since the test is about that.
const SETTINGS: [(&str, &str); 16] = [
    ("RUNYARD_COMPUTE__KIND", "none"),
    ("RUNYARD_GITHUB__KIND", "none"),
    ("RUNYARD_QUEUE__KIND", "memory"),
    ("RUNYARD_ADMIN__LISTEN", "127.0.0.1:0"),
    ("RUNYARD_LOG__FORMAT", "json"),
    ("RUNYARD_TIMING__CREATED", "5m"),
    ("RUNYARD_TIMING__CLAIMED", "5m"),
    ("RUNYARD_TIMING__CLEANUP", "5m"),
    ("RUNYARD_TIMING__GRACE", "1m"),
    ("RUNYARD_TIMING__HEARTBEAT", "5s"),
    ("RUNYARD_TIMING__STALE", "5m"),
    ("RUNYARD_TIMING__AGENT_POLL", "1s"),
    ("RUNYARD_TIMING__RESYNC", "3s"),
    ("RUNYARD_TIMING__REANNOUNCE", "3s"),
    ("RUNYARD_TIMING__LEASE", "2s"),
    ("RUNYARD_TIMING__ORPHAN", "10s"),
];

/// A table on an engine of its own, with one class, and the operators on it.
pub(crate) struct Yard {
    engine: Engine,
    environment: Environment,
    scratch: tempfile::TempDir,
    started: usize,
    pub(crate) store: DynamoStore,
}

/// The workflows' side of a table.
pub(crate) struct Asking {
    pub(crate) store: DynamoStore,
}

/// An operator process.
pub(crate) struct Operator {
    pub(crate) process: Running,
    metrics: String,
}

impl Yard {
    /// A table with the class `linux`, whose machines end after so many uses.
    pub(crate) async fn new(desired: u32, max: u32, uses: u32) -> Self {
        let engine = Engine::dynoxide_memory();
        let store = history::store(engine.endpoint());
        store.create_table().await.expect("the table is made");
        let mut environment = environment(SETTINGS);
        environment.insert("AWS_ENDPOINT_URL".into(), engine.endpoint().into());
        let scratch = tempfile::tempdir().expect("a place for files");
        let yard = Self { engine, environment, scratch, started: 0, store };
        let spec = serde_json::json!({"resourceClass": "linux", "cpu": 2, "mmem": 4096, "desired": desired, "max": max, "maxUses": uses});
        let spec: PoolSpec = serde_json::from_value(spec).expect("a spec");
        let mut pool = Pool {
            spec,
            scale: None,
            status: PoolStatus::default(),
            uid: None,
            version: 0,
            updated_at: None,
        };
        pool.advance(SystemClock::new().now());
        yard.store.write(&pool.creating()).await.expect("the class is new");
        yard
    }

    /// Where the table is.
    pub(crate) fn endpoint(&self) -> &str {
        self.engine.endpoint()
    }

    /// The path of a file of the test's own.
    pub(crate) fn file(&self, name: &str) -> String {
        self.scratch.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Runs a verb to its end, with these variables more.
    pub(crate) async fn verb(&self, more: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let mut environment = self.environment.clone();
        environment.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        verb(&environment, arguments).await
    }

    /// Starts an operator and waits until it answers.
    pub(crate) async fn operator(&mut self) -> Operator {
        self.started += 1;
        let log = self.scratch.path().join(format!("operator-{}.log", self.started));
        let mut process = Running::start(&self.environment, &["operator"], log);
        let address = process.prints("the admin port's address", listen).await;
        Operator { process, metrics: format!("http://{address}/metrics") }
    }

    /// What workflows need to ask and to give back.
    pub(crate) fn asking(&self) -> Asking {
        Asking { store: self.store.clone() }
    }

    /// Asks for machines, as so many workflows at the same time.
    pub(crate) async fn ask(&self, runs: impl Iterator<Item = u32>, count: impl Fn(u32) -> u32) {
        self.asking().ask(runs, count).await;
    }

    /// Gives a request's machines back.
    pub(crate) async fn release(&self, request: &Request) {
        self.asking().release(request).await;
    }
}

impl Asking {
    /// Asks for machines, as so many workflows at the same time.
    pub(crate) async fn ask(&self, runs: impl Iterator<Item = u32>, count: impl Fn(u32) -> u32) {
        let asked = runs.map(|run| {
            let write = intent(run, count(run));
            async move { self.write(&write, "provisioned").await }
        });
        join_all(asked).await;
    }

    /// Gives a request's machines back.
    pub(crate) async fn release(&self, request: &Request) {
        let set = attributes(&[("desired", "released")]);
        let add = [("generation".to_owned(), 1), ("version".to_owned(), 1)].into();
        let key = Request::key_of(&request.id);
        let write = Write::update(key, Guard::StillProvisioned, set, add);
        self.write(&write, "released").await;
    }

    /// Writes what nobody else writes: refused only because an attempt whose answer came late was carried out.
    async fn write(&self, write: &Write, desired: &str) {
        match history::answered(|| self.store.write(write)).await {
            Ok(_) => {}
            Err(StoreError::Refused { refusals }) => {
                let current = refusals.first().and_then(|refusal| refusal.current.as_ref());
                let stands = current.and_then(|item| item.get("desired"));
                assert_eq!(stands, Some(&AttributeValue::S(desired.to_owned())), "{current:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Operator {
    /// What it measures; none while it does not answer.
    async fn measured(&self) -> Option<String> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(2)).build().ok()?;
        client.get(&self.metrics).send().await.ok()?.text().await.ok()
    }

    /// Whether it holds the lease.
    pub(crate) async fn leads(&self) -> Option<bool> {
        let text = self.measured().await?;
        text.lines().find_map(|line| Some(line.strip_prefix("runyard_leader ")? == "1"))
    }
}

/// The address in the line that tells it.
fn listen(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.into_iter().find_map(|line| line["listen"].as_str().map(str::to_owned))
}

fn intent(run: u32, count: u32) -> Write {
    let id = RequestKey {
        repository: Repository::parse("acme/web").expect("a repository"),
        run_id: RunId::parse(&run.to_string()).expect("a run's id"),
        name: RequestName::default_name(),
        attempt: 1,
    };
    let key = Request::key_of(&id);
    let mut item = attributes(&[
        ("pk", &key.pk()),
        ("sk", &key.sk()),
        ("kind", "request"),
        ("runId", id.run_id.as_str()),
        ("repository", id.repository.as_str()),
        ("name", id.name.as_str()),
        ("resourceClass", "linux"),
        ("desired", "provisioned"),
    ]);
    for (name, number) in [("version", 1), ("attempt", 1), ("generation", 1), ("count", count)] {
        item.insert(name.into(), AttributeValue::N(number.to_string()));
    }
    Write::create(RecordId::new(key.pk(), key.sk()), item)
}

/// Attributes of text, and when they are written.
pub(crate) fn attributes(texts: &[(&str, &str)]) -> Item {
    let now = millis(SystemClock::new().now()).to_string();
    let all = texts.iter().copied().chain([("updatedAt", now.as_str())]);
    all.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).collect()
}
