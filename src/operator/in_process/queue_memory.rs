//! `queue.kind = "memory"`: queues in this process. They cannot be created from outside, so each exists as soon as it
//! is used. Only hints are lost with the process; the operator announces idle machines again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::memory_queue::MemoryQueue;

use crate::model::{ClassName, PoolMessage};
use crate::ports::{Clock, PoolQueue, QueueDepth, QueueError, Received};

/// `queue.kind = "memory"`.
pub struct InProcessQueue {
    clock: Arc<dyn Clock>,
    retention: Duration,
    queues: Mutex<BTreeMap<ClassName, MemoryQueue>>,
}

impl InProcessQueue {
    /// Creates empty queues that keep each message for `retention`, by this clock.
    pub fn new(clock: Arc<dyn Clock>, retention: Duration) -> Self {
        Self { clock, retention, queues: Mutex::default() }
    }

    fn with<T>(&self, class: &ClassName, act: impl FnOnce(&mut MemoryQueue) -> T) -> T {
        // No queue is ever left half changed, so a panic elsewhere does not affect it.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        act(queues.entry(class.clone()).or_insert_with(|| MemoryQueue::new(self.retention)))
    }
}

#[async_trait]
impl PoolQueue for InProcessQueue {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.with(class, |_| ());
        Ok(())
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let body = serde_json::to_string(message).map_err(|error| QueueError::Invalid(error.to_string()))?;
        let now = self.clock.elapsed();
        self.with(&message.resource_class, |queue| queue.send(body, now));
        Ok(())
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        let now = self.clock.elapsed();
        Ok(self.with(class, |queue| queue.receive(usize::try_from(most).unwrap_or(usize::MAX), now)))
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        let unknown = |queue: &mut MemoryQueue| {
            receipts.iter().filter(|receipt| !queue.delete(receipt)).cloned().collect()
        };
        Ok(self.with(class, unknown))
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        let now = self.clock.elapsed();
        Ok(Some(self.with(class, |queue| queue.depth(now))))
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.with(class, |queue| queue.bury(receipt, raw));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{InstanceId, UsageClass};
    use runyard_fakes::ManualClock;

    #[tokio::test]
    async fn a_class_that_nobody_prepared_has_a_queue() {
        let queue = InProcessQueue::new(
            Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH)),
            Duration::from_secs(600),
        );
        let class = ClassName::parse("small").unwrap();
        assert_eq!(queue.receive(&class, 10).await, Ok(Vec::new()));
        let message = PoolMessage {
            instance_id: InstanceId::parse("i-1").unwrap(),
            resource_class: ClassName::parse("other").unwrap(),
            instance_type: "local".into(),
            cpu: 2,
            mmem: 2048,
            usage_class: UsageClass::OnDemand,
            claim_id: String::new(),
        };
        queue.announce(&message).await.unwrap();
        let received = queue.receive(&message.resource_class, 10).await.unwrap();
        assert_eq!(received[0].body, Ok(message));
    }
}
