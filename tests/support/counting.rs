//! What did the operator ask of its table and its queues? A store and a queue that pass everything on and keep a record
//! of each call, by name, with the keys that were touched and how it ended.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use runyard_core::model::{ClassName, Item, Operation, PoolMessage, RecordId, Write};
use runyard_core::ports::{Page, PoolQueue, QueueDepth, QueueError, Received, Store, StoreError, Watch};

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The port's method.
    pub name: &'static str,
    /// The records that were to be written or read.
    pub keys: Vec<RecordId>,
    /// `ok`, or the error's label.
    pub outcome: &'static str,
}

/// Every call so far, in the order of their ends. Clones share it.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<Call>>>);

#[allow(dead_code, reason = "each test crate takes the parts it needs")]
impl Calls {
    fn note(&self, name: &'static str, keys: Vec<RecordId>, outcome: &'static str) {
        self.0.lock().unwrap().push(Call { name, keys, outcome });
    }

    /// All that were made so far.
    pub fn all(&self) -> Vec<Call> {
        self.0.lock().unwrap().clone()
    }

    /// All that were made since the last time this was asked.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A port whose calls are kept.
pub struct Counting<T> {
    inner: T,
    calls: Calls,
}

impl<T> Counting<T> {
    pub fn new(inner: T, calls: Calls) -> Self {
        Self { inner, calls }
    }
}

fn keys(writes: &[Write]) -> Vec<RecordId> {
    let changes = |write: &&Write| !matches!(write.operation, Operation::Check(_));
    writes.iter().filter(changes).map(|write| write.key.clone()).collect()
}

fn label<T>(outcome: &Result<T, StoreError>) -> &'static str {
    outcome.as_ref().map_or_else(StoreError::label, |_| "ok")
}

fn ended<T>(outcome: &Result<T, QueueError>) -> &'static str {
    if outcome.is_ok() { "ok" } else { "failed" }
}

#[async_trait]
impl<T: Store> Store for Counting<T> {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        let outcome = self.inner.get(key).await;
        self.calls.note("get", vec![key.clone()], label(&outcome));
        outcome
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let outcome = self.inner.list(after).await;
        self.calls.note("list", Vec::new(), label(&outcome));
        outcome
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let outcome = self.inner.query(pk, sk_prefix, after).await;
        self.calls.note("query", Vec::new(), label(&outcome));
        outcome
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        let outcome = self.inner.write(write).await;
        self.calls.note("write", vec![write.key.clone()], label(&outcome));
        outcome
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        let outcome = self.inner.transact(writes).await;
        self.calls.note("transact", keys(writes), label(&outcome));
        outcome
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        let outcome = self.inner.append(items).await;
        self.calls.note("append", Vec::new(), label(&outcome));
        outcome
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.inner.watch().await
    }
}

#[async_trait]
impl<T: PoolQueue> PoolQueue for Counting<T> {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        let outcome = self.inner.ensure(class).await;
        self.calls.note("ensure", Vec::new(), ended(&outcome));
        outcome
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let outcome = self.inner.announce(message).await;
        self.calls.note("announce", Vec::new(), ended(&outcome));
        outcome
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        let outcome = self.inner.receive(class, most).await;
        self.calls.note("receive", Vec::new(), ended(&outcome));
        outcome
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        let outcome = self.inner.delete(class, receipts).await;
        self.calls.note("delete", Vec::new(), ended(&outcome));
        outcome
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        // Asked once a minute for people: no call that a machine's life costs.
        self.inner.depth(class).await
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        let outcome = self.inner.bury(class, receipt, raw).await;
        self.calls.note("bury", Vec::new(), ended(&outcome));
        outcome
    }
}
