//! Settles a queue's messages after its class was served.

use crate::metrics::QueueOutcome;
use crate::model::{ClassName, PoolMessage, Record};
use crate::yard::Observation;

use super::Loop;

impl Loop {
    /// Deletes the messages with which a class was served. A machine whose message is deleted and that is still free is
    /// announced once anew, so that there is one message of it.
    pub(super) fn settle_hints(&mut self, class: &ClassName) {
        // Decides the class now, so that its claims are known before the other messages are judged.
        self.settle();
        let (yard, mut told) = (&self.yard, Vec::new());
        let spent = self.executor.take_receipts(class, |message: &PoolMessage| {
            let Some(tracked) = yard.by_id(&message.instance_id) else {
                told.push((QueueOutcome::Stale, None));
                return true;
            };
            let instance = &tracked.instance;
            // The record is about to change: a claim of it deletes the message.
            if yard.is_busy(instance.key()) {
                return false;
            }
            let here = message.resource_class == *class && message.describes(instance);
            let outcome = if here { QueueOutcome::Returned } else { QueueOutcome::Stale };
            told.push((outcome, Some(instance.facts.instance_arn.clone())));
            true
        });
        for (outcome, arn) in told {
            self.ports.metrics.queue_message(outcome);
            if let Some(arn) = arn {
                self.observe(Observation::Unannounced(arn));
            }
        }
        if spent.is_empty() {
            return;
        }
        let (queue, class) = (self.ports.queue.clone(), class.clone());
        self.tasks.spawn(async move {
            for receipts in spent.chunks(10) {
                if let Err(error) = queue.delete(&class, receipts).await {
                    tracing::debug!(%class, %error, "received messages were not deleted; they reappear after their time-out");
                }
            }
        });
    }
}
