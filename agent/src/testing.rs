//! Fakes for the unit tests: records in memory, a clock that tokio can pause, sealed boxes, an executor that returns
//! what a test scripts, and a runner package of a few lines of shell.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crypto_box::aead::OsRng;
use jiff::Timestamp;
use runyard_core::model::{
    Agent, AgentKey, AttributeValue, InstanceArn, Item, Reading, Record, RegistrationCredential,
    RemovalCredential, Signal, read, seal,
};
use runyard_core::ports::{Clock, StoreError};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::records::{Change, Records};
use crate::step::Stored;
use crate::step::orders::Sight;
use crate::task::{Executor, Task, TaskOutcome, Written};

pub(crate) fn arn() -> InstanceArn {
    InstanceArn::parse("arn:aws:ec2:local:000000000000:instance/i-1").unwrap()
}

/// Returns the attributes of an instance record that an agent reads.
pub(crate) fn instance(state: &str, run: &str, claim: &str) -> Item {
    let pairs = [
        ("state", state),
        ("runId", run),
        ("claimId", claim),
        ("threshold", "2026-01-01T00:15:00Z"),
        ("thresholdSetAt", "2026-01-01T00:00:00Z"),
    ];
    pairs.iter().map(|(k, v)| ((*k).to_owned(), AttributeValue::S((*v).to_owned()))).collect()
}

pub(crate) fn with(mut item: Item, name: &str, value: String) -> Item {
    item.insert(name.to_owned(), AttributeValue::S(value));
    item
}

pub(crate) fn run_credential(claim: &str) -> RegistrationCredential {
    RegistrationCredential {
        ahead_id: None,
        claim_id: claim.to_owned(),
        seq: 1,
        url: "https://github.invalid/a/b".to_owned(),
        token: Some("TOKEN-SECRET".to_owned()),
        jit_config: None,
        runner_id: None,
        runner_name: format!("runyard-{claim}"),
        labels: vec!["42".to_owned()],
        runner_group: String::new(),
        keep: Vec::new(),
        expires_at: Timestamp::UNIX_EPOCH,
    }
}

pub(crate) fn job_credential(claim: &str, seq: u64) -> RegistrationCredential {
    RegistrationCredential {
        ahead_id: None,
        seq,
        token: None,
        jit_config: Some("JIT-SECRET".to_owned()),
        runner_id: Some(70 + seq),
        ..run_credential(claim)
    }
}

pub(crate) fn removal_credential(claim: &str) -> RemovalCredential {
    RemovalCredential {
        claim_id: claim.to_owned(),
        url: "https://github.invalid/a/b".to_owned(),
        token: "REMOVAL-SECRET".to_owned(),
        expires_at: Timestamp::UNIX_EPOCH,
    }
}

pub(crate) fn sealed<T: serde::Serialize>(payload: &T, public_key: &str) -> String {
    seal(payload, public_key, &mut OsRng).unwrap()
}

pub(crate) fn key() -> AgentKey {
    AgentKey::from_bytes([7; 32])
}

/// A machine's two records, in memory.
#[derive(Default)]
pub(crate) struct FakeRecords {
    pub(crate) instance: Mutex<Option<Item>>,
    pub(crate) agent: Mutex<Option<Item>>,
    pub(crate) away: Mutex<bool>,
    pub(crate) changes: Mutex<Vec<Change>>,
    pub(crate) reads: Mutex<u32>,
    pub(crate) glances: Mutex<u32>,
    /// What glances return in turn, as replicas have it; without any, the record.
    pub(crate) replicas: Mutex<VecDeque<Option<Item>>>,
    /// The `log` record, once for each write.
    pub(crate) logs: Mutex<Vec<Item>>,
    pub(crate) written: Notify,
}

impl FakeRecords {
    /// Creates both records.
    pub(crate) fn new(instance: Item) -> Arc<Self> {
        let born = Agent::born(&arn(), Timestamp::UNIX_EPOCH).to_item();
        Arc::new(Self {
            instance: Mutex::new(Some(instance)),
            agent: Mutex::new(Some(born)),
            ..Self::default()
        })
    }

    pub(crate) fn set(&self, instance: Option<Item>) {
        *self.instance.lock().unwrap() = instance;
    }

    pub(crate) fn shown(&self) -> Option<Agent> {
        match self.agent.lock().unwrap().as_ref().map(read::<Agent>) {
            Some(Reading::Record(agent)) => Some(agent),
            Some(Reading::Newer { .. } | Reading::Unreadable(_)) | None => None,
        }
    }

    /// Waits until the record shows this signal for this claim.
    pub(crate) async fn says(&self, signal: Signal, claim: &str) {
        let shown = async {
            while self.shown().and_then(|agent| agent.says(claim)) != Some(signal) {
                let _ = tokio::time::timeout(Duration::from_millis(20), self.written.notified()).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(600), shown).await;
        assert!(waited.is_ok(), "never said {signal} for {claim:?}: {:?}", self.shown());
    }

    fn answer<T>(&self, value: impl FnOnce() -> T) -> Result<T, StoreError> {
        if *self.away.lock().unwrap() { Err(StoreError::Unknown("away".to_owned())) } else { Ok(value()) }
    }
}

fn stored(item: Option<&Item>) -> Stored {
    match item.map(read::<Agent>) {
        Some(Reading::Record(agent)) => Stored::Known(Box::new(agent)),
        Some(Reading::Newer { .. } | Reading::Unreadable(_)) => Stored::Unknown,
        None => Stored::Absent,
    }
}

#[async_trait]
impl Records for FakeRecords {
    async fn instance(&self) -> Result<Sight, StoreError> {
        *self.reads.lock().unwrap() += 1;
        self.answer(|| Sight::of(self.instance.lock().unwrap().as_ref()))
    }

    async fn glance(&self) -> Result<Sight, StoreError> {
        *self.glances.lock().unwrap() += 1;
        let replica = self.replicas.lock().unwrap().pop_front();
        let found = replica.unwrap_or_else(|| self.instance.lock().unwrap().clone());
        self.answer(|| Sight::of(found.as_ref()))
    }

    async fn own(&self) -> Result<Stored, StoreError> {
        self.answer(|| stored(self.agent.lock().unwrap().as_ref()))
    }

    async fn write(&self, change: &Change) -> Result<Stored, StoreError> {
        let written = self.answer(|| {
            let mut agent = self.agent.lock().unwrap();
            let Some(item) = agent.as_mut() else { return Stored::Absent };
            item.extend(change.set.clone());
            item.retain(|name, _| !change.remove.contains(name));
            let beat = match &item["heartbeatSeq"] {
                AttributeValue::N(n) => n.parse::<u64>().unwrap() + 1,
                other => panic!("heartbeatSeq is {other:?}"),
            };
            item.insert("heartbeatSeq".to_owned(), AttributeValue::N(beat.to_string()));
            self.changes.lock().unwrap().push(change.clone());
            stored(Some(item))
        })?;
        self.written.notify_one();
        Ok(written)
    }

    async fn log(&self, item: &Item) -> Result<(), StoreError> {
        self.answer(|| self.logs.lock().unwrap().push(item.clone()))?;
        self.written.notify_one();
        Ok(())
    }
}

/// Tokio's time as both clocks, so that pausing one pauses the other.
pub(crate) struct TestClock(Instant);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let at = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
        runyard_core::model::millis(at + self.0.elapsed())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(1000) + self.0.elapsed()
    }
}

/// An executor that returns the outcomes that a test scripts, and never completes any other task.
#[derive(Default)]
pub(crate) struct FakeExecutor {
    answers: Mutex<VecDeque<(&'static str, TaskOutcome)>>,
    pub(crate) asked: Mutex<Vec<String>>,
    pub(crate) killed: Mutex<u32>,
    /// The output of its machine.
    pub(crate) said: Mutex<Written>,
    /// The number of tasks before each request to prepare the next claim.
    pub(crate) prepared: Mutex<Vec<usize>>,
}

impl FakeExecutor {
    pub(crate) fn answering(answers: impl IntoIterator<Item = (&'static str, TaskOutcome)>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), ..Self::default() })
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Executor for FakeExecutor {
    async fn execute(&self, task: Task) -> TaskOutcome {
        self.asked.lock().unwrap().push(format!("{task:?}"));
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.front().is_some_and(|(label, _)| *label == task.label()) {
                answers.pop_front()
            } else {
                None
            }
        };
        match answer {
            Some((_, outcome)) => outcome,
            None => std::future::pending().await,
        }
    }

    async fn prepare(&self) {
        let asked = self.asked.lock().unwrap().len();
        self.prepared.lock().unwrap().push(asked);
    }

    fn logs(&self) -> Written {
        self.said.lock().unwrap().clone()
    }

    async fn kill_everything(&self) {
        *self.killed.lock().unwrap() += 1;
    }
}

/// Builds a runner package from these two scripts. Returns it with its digest.
pub(crate) fn package(config: &str, run: &str) -> (Vec<u8>, String) {
    let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gz);
    for (name, script) in [("config.sh", config), ("run.sh", run)] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(script.len() as u64);
        tar.append_data(&mut header, name, script.as_bytes()).unwrap();
    }
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    (archive, sha256)
}

/// Returns a `config.sh` that records its arguments and creates a registration.
pub(crate) fn config_script(calls: &Path) -> String {
    format!(
        "#!/bin/sh\necho \"config $* with $ACTIONS_RUNNER_INPUT_TOKEN\" >> {calls}\n\
         if [ \"$1\" = remove ]; then [ -f .runner ] || {{ echo not registered; exit 1; }}; exit 0; fi\n\
         echo registered > .runner\n",
        calls = calls.display()
    )
}

/// Returns a `run.sh` that leaves files and processes as a job might, listens, and exits when it is interrupted.
pub(crate) fn run_script(calls: &Path) -> String {
    format!(
        "#!/bin/sh\necho \"run $*\" >> {calls}\n\
         trap 'echo interrupted >> {calls}; exit 0' INT\n\
         mkdir -p _work; echo secret > _work/left; echo secret > \"$HOME/.netrc\"; echo secret > \"$TMPDIR/left\"\n\
         setsid sleep 600 &\nnohup sleep 600 > /dev/null 2>&1 &\n\
         echo 'Listening for Jobs'\n\
         while :; do sleep 0.05; done\n",
        calls = calls.display()
    )
}
