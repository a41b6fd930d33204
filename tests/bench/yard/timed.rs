//! What does the operator ask of its table and queue, when, and with what answer? A store and a queue that pass
//! everything on, after a delay if AWS is to be imitated, and write down each call.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rand::Rng as _;
use runyard_core::model::{ClassName, Item, PoolMessage, RecordId, Write};
use runyard_core::ports::{
    Change, Compute, ComputeError, Doorbell, LaunchOrder, Launched, Machine, MachineState, Page, PoolQueue,
    QueueError, Received, Ring, Ringer, Store, StoreError, Watch,
};
use tokio::sync::Notify;

/// One call, or one answer of the watch.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) keys: Vec<RecordId>,
    pub(crate) ok: bool,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

/// Every call so far. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Calls {
    made: Arc<Mutex<Vec<Call>>>,
    news: Arc<Notify>,
}

impl Calls {
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.made.lock().unwrap())
    }

    /// Waits until something was called.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// An agent wrote.
    pub(crate) fn said(&self, key: &RecordId, begun: Instant, ok: bool) {
        self.note("said", vec![key.clone()], ok, begun);
    }

    fn note(&self, name: &'static str, keys: Vec<RecordId>, ok: bool, begun: Instant) {
        self.made.lock().unwrap().push(Call { name, keys, ok, begun, ended: Instant::now() });
        self.news.notify_one();
    }
}

/// How long a service takes: a median and a 99th percentile, log-normal between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) median: f64,
    pub(crate) late: f64,
}

impl Latency {
    /// Waits as long as a call takes.
    async fn pass(self) {
        let (a, b): (f64, f64) = (rand::rng().random_range(f64::EPSILON..1.0), rand::rng().random());
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        let sigma = (self.late / self.median).ln() / 2.326;
        let millis = self.median * (sigma * normal).exp();
        tokio::time::sleep(Duration::from_secs_f64(millis / 1000.0)).await;
    }
}

/// A port whose calls are timed and perhaps delayed.
#[derive(Clone)]
pub(crate) struct Timed<T> {
    pub(crate) inner: T,
    pub(crate) calls: Calls,
    pub(crate) latency: Option<Latency>,
}

impl<T> Timed<T> {
    async fn delay(&self) {
        if let Some(latency) = self.latency {
            latency.pass().await;
        }
    }
}

fn keys(writes: &[Write]) -> Vec<RecordId> {
    writes.iter().map(|write| write.key.clone()).collect()
}

#[async_trait]
impl<T: Store> Store for Timed<T> {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.get(key).await;
        self.calls.note("get", vec![key.clone()], outcome.is_ok(), begun);
        outcome
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.list(after).await;
        self.calls.note("list", Vec::new(), outcome.is_ok(), begun);
        outcome
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.inner.query(pk, sk_prefix, after).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.write(write).await;
        self.calls.note("write", vec![write.key.clone()], outcome.is_ok(), begun);
        outcome
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.transact(writes).await;
        self.calls.note("transact", keys(writes), outcome.is_ok(), begun);
        outcome
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        let begun = Instant::now();
        let outcome = self.inner.append(items).await;
        self.calls.note("append", Vec::new(), outcome.is_ok(), begun);
        outcome
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        Ok(Box::new(Delivery { inner: self.inner.watch().await?, calls: self.calls.clone() }))
    }
}

/// A watch whose answers are written down.
struct Delivery {
    inner: Box<dyn Watch>,
    calls: Calls,
}

#[async_trait]
impl Watch for Delivery {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let told = self.inner.next().await;
        if let Ok(changes) = &told {
            let keys = changes.iter().map(|change| change.key.clone()).collect();
            self.calls.note("told", keys, true, Instant::now());
        }
        told
    }
}

#[async_trait]
impl<T: PoolQueue> PoolQueue for Timed<T> {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.inner.ensure(class).await
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.announce(message).await;
        self.calls.note("announce", Vec::new(), outcome.is_ok(), begun);
        outcome
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.receive(class, most).await;
        self.calls.note("receive", Vec::new(), outcome.is_ok(), begun);
        outcome
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        let begun = Instant::now();
        self.delay().await;
        let outcome = self.inner.delete(class, receipts).await;
        self.calls.note("delete", Vec::new(), outcome.is_ok(), begun);
        outcome
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.inner.bury(class, receipt, raw).await
    }
}

/// A doorbell of SQS's latencies: a ring takes a call, and so does hearing it.
#[derive(Default)]
pub(crate) struct SlowBell {
    keys: std::sync::Mutex<Vec<RecordId>>,
    sent: Notify,
}

impl SlowBell {
    const LATENCY: Latency = Latency { median: 16.0, late: 105.0 };
}

#[async_trait]
impl Ringer for SlowBell {
    async fn find(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn ring(&self, key: &RecordId) -> Result<(), QueueError> {
        Self::LATENCY.pass().await;
        self.keys.lock().unwrap().push(key.clone());
        self.sent.notify_one();
        Ok(())
    }
}

#[async_trait]
impl Doorbell for SlowBell {
    async fn rung(&self) -> Result<Vec<Ring>, QueueError> {
        let sent = async {
            while self.keys.lock().unwrap().is_empty() {
                self.sent.notified().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(20), sent).await;
        Self::LATENCY.pass().await;
        let keys = std::mem::take(&mut *self.keys.lock().unwrap());
        Ok(keys.into_iter().map(|key| Ring { key: Some(key), sender: None }).collect())
    }
}

/// A compute provider that takes as long for a fleet as EC2 does.
pub(crate) struct Slow<T> {
    pub(crate) inner: T,
    pub(crate) fleet: Duration,
}

#[async_trait]
impl<T: Compute> Compute for Slow<T> {
    fn keeps_inventory(&self) -> bool {
        self.inner.keeps_inventory()
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        tokio::time::sleep(self.fleet).await;
        self.inner.launch(order).await
    }

    async fn terminate(&self, ids: &[runyard_core::model::InstanceId]) -> Result<(), ComputeError> {
        self.inner.terminate(ids).await
    }

    async fn describe(
        &self,
        ids: &[runyard_core::model::InstanceId],
    ) -> Result<std::collections::BTreeMap<runyard_core::model::InstanceId, MachineState>, ComputeError> {
        self.inner.describe(ids).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.inner.list().await
    }
}
