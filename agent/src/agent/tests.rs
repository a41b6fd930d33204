//! Counts the exact number of requests that an agent sends to the table while a job runs.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use runyard_core::model::{Agent, Instance, Item, Operation, Record as _, RecordId, Signal, Write};
use runyard_core::ports::{Page, Store, StoreError, Watch};

use super::*;
use crate::records::TableRecords;
use crate::reports::logs::Ring;
use crate::shutdown::power::Exit;
use crate::system::clock::SystemEntropy;
use crate::task::{RunnerProcess, TaskOutcome};
use crate::testing::{
    FakeExecutor, FakeRecords, TestClock, arn, instance, key as kept, run_credential, sealed, with,
};

const HEARTBEAT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_secs(1);

/// A table with a machine's two records, which records every call. The number of other records makes no difference:
/// requests that would depend on it cannot be expressed.
struct CountingStore {
    records: Arc<FakeRecords>,
    calls: Mutex<Vec<(&'static str, RecordId)>>,
}

impl CountingStore {
    fn new(instance: Item) -> Arc<Self> {
        Arc::new(Self { records: FakeRecords::new(instance), calls: Mutex::default() })
    }

    fn note(&self, name: &'static str, key: &RecordId) {
        self.calls.lock().unwrap().push((name, key.clone()));
    }

    /// Returns the number of calls of each kind since the last time.
    fn counted(&self) -> BTreeMap<(&'static str, String), usize> {
        let mut counted = BTreeMap::new();
        for (name, key) in std::mem::take(&mut *self.calls.lock().unwrap()) {
            *counted.entry((name, key.sk())).or_default() += 1;
        }
        counted
    }

    fn found(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        let found = match key {
            key if *key == Instance::key_of(&arn()) => self.records.instance.lock().unwrap().clone(),
            key if *key == Agent::key_of(&arn()) => self.records.agent.lock().unwrap().clone(),
            key => panic!("an agent reads no other record: {key}"),
        };
        Ok(found)
    }

    fn beats(&self) -> u64 {
        self.records.shown().unwrap().heartbeat_seq
    }
}

#[async_trait]
impl Store for CountingStore {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.note("get", key);
        self.found(key)
    }

    async fn glance(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.note("glance", key);
        self.found(key)
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.note("write", &write.key);
        let Operation::Update { set, remove, .. } = &write.operation else {
            panic!("an agent does nothing but update: {write:?}")
        };
        assert_eq!(write.key, Agent::key_of(&arn()), "an agent writes no other record than its own");
        let change = crate::records::Change { set: set.clone(), remove: remove.clone() };
        crate::records::Records::write(self.records.as_ref(), &change).await?;
        Ok(self.records.shown().unwrap().to_item())
    }

    async fn list(&self, _: Option<&RecordId>) -> Result<Page, StoreError> {
        panic!("an agent lists nothing")
    }

    async fn query(&self, pk: &str, _: &str, _: Option<&RecordId>) -> Result<Page, StoreError> {
        panic!("an agent queries nothing: {pk}")
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        panic!("an agent has no transactions: {writes:?}")
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        panic!("an agent adds nothing: {items:?}")
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        panic!("an agent watches nothing")
    }
}

fn working(
    state: &Path,
    store: &Arc<CountingStore>,
    stop: &CancellationToken,
) -> impl Future<Output = io::Result<End>> + use<> {
    let runner = RunnerProcess { pid: 7, started: 70 };
    let answers = [
        ("boot", TaskOutcome::Booted(Ok(()))),
        ("configure", TaskOutcome::Configured),
        ("start", TaskOutcome::Started(runner)),
        ("listen", TaskOutcome::Listening),
    ];
    let parts = Parts {
        records: Arc::new(TableRecords::new(store.clone(), arn())),
        executor: FakeExecutor::answering(answers),
        clock: TestClock::new(),
        entropy: Arc::new(SystemEntropy),
        power: Arc::new(Exit),
        timing: Timing {
            heartbeat: HEARTBEAT,
            heartbeat_free: HEARTBEAT,
            poll: POLL,
            reregister: Duration::from_secs(2),
            guard: Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) },
        },
        state_dir: state.to_owned(),
        boot_id: "boot".to_owned(),
        ring: Ring::default(),
    };
    run(parts, stop.clone())
}

#[tokio::test(start_paused = true)]
async fn while_a_job_runs_an_agent_makes_one_write_per_beat_and_one_glance_per_poll_only() {
    let dir = tempfile::tempdir().unwrap();
    disk::replace(&dir.path().join("key"), &kept().to_bytes()).unwrap();
    let registered = with(
        instance("created", "42", "c1"),
        "registration",
        sealed(&run_credential("c1"), &kept().public()),
    );
    let store = CountingStore::new(registered);
    let stop = CancellationToken::new();
    let agent = tokio::spawn(working(dir.path(), &store, &stop));
    store.records.says(Signal::RegOk, "c1").await;
    store.records.set(Some(instance("running", "42", "c1")));
    tokio::time::sleep(POLL).await;

    // Between two polls, so that no call is at the edge of the interval.
    tokio::time::sleep(POLL / 2).await;
    store.counted();
    let (before, minutes) = (store.beats(), 5);
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    let beats = store.beats() - before;
    let wanted = BTreeMap::from([
        (("glance", "instance".to_owned()), 60 * minutes as usize),
        (("write", "agent".to_owned()), beats as usize),
    ]);
    assert_eq!(store.counted(), wanted);
    // A beat comes at most a tenth early, never late.
    assert!((30..=34).contains(&beats), "{beats} beats in {minutes} minutes");
    stop.cancel();
    assert_eq!(agent.await.unwrap().unwrap(), End::Stopped);
}
