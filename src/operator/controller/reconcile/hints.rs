//! Settles a queue's messages after its class was served.

use crate::metrics::QueueOutcome;
use crate::model::{ClassName, PoolMessage, Record};

use super::Loop;

impl Loop {
    /// After a class was served with its queue's hints, deletes stale messages and makes the others visible again.
    pub(super) fn settle_hints(&mut self, class: &ClassName) {
        // Decides the class now, so that its claims are known before the other messages become visible.
        self.settle();
        let yard = &self.yard;
        // None while the records are about to change.
        let true_still = |message: &PoolMessage| {
            let Some(tracked) = yard.by_id(&message.instance_id) else { return Some(false) };
            let instance = &tracked.instance;
            let here = || message.resource_class == *class && message.describes(instance);
            (!yard.is_busy(instance.key())).then(here)
        };
        let back = self.executor.take_receipts(class, |message| true_still(message) == Some(true));
        let stale = self.executor.take_receipts(class, |message| true_still(message) == Some(false));
        if back.is_empty() && stale.is_empty() {
            return;
        }
        let (queue, metrics, class) = (self.ports.queue.clone(), self.ports.metrics.clone(), class.clone());
        self.tasks.spawn(async move {
            for receipts in stale.chunks(10) {
                receipts.iter().for_each(|_| metrics.queue_message(QueueOutcome::Stale));
                if let Err(error) = queue.delete(&class, receipts).await {
                    tracing::debug!(%class, %error, "stale messages were not removed");
                }
            }
            for receipts in back.chunks(10) {
                receipts.iter().for_each(|_| metrics.queue_message(QueueOutcome::Returned));
                if let Err(error) = queue.give_back(&class, receipts).await {
                    tracing::debug!(%class, %error, "messages were not made visible again; they reappear after their time-out");
                }
            }
        });
    }
}
