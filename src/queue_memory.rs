//! Who makes the queues when they live in this process? Nobody can from outside, so each is there as soon as it is
//! used. What dies with the process is a hint; the operator announces idle machines again.

use std::sync::Arc;

use async_trait::async_trait;

use crate::fakes::MemoryQueue;
use crate::model::{ClassName, PoolMessage};
use crate::ports::{Clock, PoolQueue, QueueDepth, QueueError, Received};

/// `queue.kind = "memory"`.
pub struct InProcessQueue(MemoryQueue);

impl InProcessQueue {
    /// No messages; hidden ones come back by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(MemoryQueue::new(clock))
    }
}

#[async_trait]
impl PoolQueue for InProcessQueue {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.0.ensure(class).await
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        self.0.ensure(&message.resource_class).await?;
        self.0.announce(message).await
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        self.0.ensure(class).await?;
        self.0.receive(class, most).await
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        self.0.delete(class, receipts).await
    }

    async fn give_back(&self, class: &ClassName, receipts: &[String]) -> Result<(), QueueError> {
        self.0.give_back(class, receipts).await
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        self.0.ensure(class).await?;
        self.0.depth(class).await
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.0.bury(class, receipt, raw).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::ManualClock;
    use crate::model::{InstanceId, UsageClass};

    #[tokio::test]
    async fn a_class_that_nobody_prepared_has_a_queue() {
        let queue = InProcessQueue::new(Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH)));
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
