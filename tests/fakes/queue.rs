//! The pool queues in memory: visibility, receipts, retention, dead letters and redrive as SQS has them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::script::{Fault, Script, locked};
use runyard_core::memory_queue::MemoryQueue as Queue;
use runyard_core::model::{ClassName, PoolMessage};
use runyard_core::ports::{Clock, PoolQueue, QueueDepth, QueueError, Received};

/// Most messages of one call (SQS).
const BATCH: usize = 10;

/// Queues in memory. Clones share them.
#[derive(Clone)]
pub struct MemoryQueue(Arc<Inner>);

/// How long a message is kept: twice the default of `timing.reannounce`.
const RETENTION: Duration = Duration::from_secs(600);

struct Inner {
    clock: Arc<dyn Clock>,
    queues: Mutex<BTreeMap<ClassName, Queue>>,
    faults: Script<QueueError>,
}

impl MemoryQueue {
    /// No queues yet; hidden messages come back by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, queues: Mutex::default(), faults: Script::default() }))
    }

    /// What the next call meets; several stand in line.
    pub fn next(&self, fault: Fault<QueueError>) {
        self.0.faults.add(fault);
    }

    /// Forgets the faults that nothing has met yet.
    pub fn heal(&self) {
        self.0.faults.clear();
    }

    /// Puts a body there as it is, as a foreign client does.
    pub fn post(&self, class: &ClassName, body: &str) {
        let now = self.0.clock.elapsed();
        locked(&self.0.queues).entry(class.clone()).or_insert_with(made).send(body.to_owned(), now);
    }

    /// Loses every message of every class.
    pub fn lose_all(&self) {
        locked(&self.0.queues).values_mut().for_each(|queue| queue.messages.clear());
    }

    /// Doubles every message of every class.
    pub fn double_all(&self) {
        let now = self.0.clock.elapsed();
        for queue in locked(&self.0.queues).values_mut() {
            queue.expire(now);
            let bodies: Vec<_> = queue.messages.iter().map(|message| message.body.clone()).collect();
            bodies.into_iter().for_each(|body| queue.send(body, now));
        }
    }

    /// Turns the order of every class's messages round.
    pub fn reverse_all(&self) {
        locked(&self.0.queues).values_mut().for_each(|queue| queue.messages.make_contiguous().reverse());
    }

    /// Makes received messages visible again at once.
    pub fn show_again(&self, class: &ClassName, receipts: &[String]) {
        let now = self.0.clock.elapsed();
        let mut queues = locked(&self.0.queues);
        let messages = queues.get_mut(class).into_iter().flat_map(|queue| &mut queue.messages);
        let received = messages.filter(|message| receipts.contains(&message.receipt()));
        received.for_each(|message| message.visible_at = now);
    }

    /// The bodies waiting or hidden, oldest first.
    pub fn bodies(&self, class: &ClassName) -> Vec<String> {
        let mut queues = locked(&self.0.queues);
        let messages = queues.get_mut(class).map(|queue| {
            queue.expire(self.0.clock.elapsed());
            queue.messages.iter()
        });
        messages.into_iter().flatten().map(|message| message.body.clone()).collect()
    }

    /// The dead letters, oldest first.
    pub fn dead(&self, class: &ClassName) -> Vec<String> {
        locked(&self.0.queues).get(class).map(|queue| queue.dead.clone()).unwrap_or_default()
    }

    fn with<T>(&self, class: &ClassName, act: impl FnOnce(&mut Queue) -> T) -> Result<T, QueueError> {
        let exit = self.0.faults.enter()?;
        let done = locked(&self.0.queues).get_mut(class).map(act);
        exit.answer(done.ok_or(QueueError::Missing))
    }
}

const fn made() -> Queue {
    Queue::new(RETENTION)
}

fn batch(count: usize) -> Result<(), QueueError> {
    let told = || QueueError::Invalid(format!("{count} messages in one call, at most {BATCH} are possible"));
    if count <= BATCH { Ok(()) } else { Err(told()) }
}

#[async_trait]
impl PoolQueue for MemoryQueue {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        let exit = self.0.faults.enter()?;
        locked(&self.0.queues).entry(class.clone()).or_insert_with(made);
        exit.answer(Ok(()))
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let body = serde_json::to_string(message).map_err(|error| QueueError::Invalid(error.to_string()))?;
        let now = self.0.clock.elapsed();
        self.with(&message.resource_class, |queue| queue.send(body, now))
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        batch(most)?;
        if most == 0 {
            return Err(QueueError::Invalid("at least 1 message is to be asked for".into()));
        }
        let now = self.0.clock.elapsed();
        self.with(class, |queue| queue.receive(most, now))
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        batch(receipts.len())?;
        self.with(class, |queue| receipts.iter().filter(|receipt| !queue.delete(receipt)).cloned().collect())
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        // Asked for in passing, it meets no fault that is meant for another call.
        let mut queues = locked(&self.0.queues);
        let queue = queues.get_mut(class).ok_or(QueueError::Missing)?;
        Ok(Some(queue.depth(self.0.clock.elapsed())))
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.with(class, |queue| queue.bury(receipt, raw))
    }
}
