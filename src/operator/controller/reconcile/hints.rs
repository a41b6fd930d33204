//! Settles a queue's messages after its class was served.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::metrics::QueueOutcome;
use crate::model::{ClassName, InstanceId, PoolMessage, Record};

use super::Loop;

/// When the message of each machine was last made visible again, on the monotonic clock.
pub(super) type GivenBack = BTreeMap<InstanceId, Duration>;

impl Loop {
    /// After a class was served with its queue's hints, deletes stale messages and makes the others visible again. A free
    /// machine is announced again every `timing.reannounce`, so its message is given back once in that time and only
    /// while a request waits: else the queue would grow, and what is read again and again would become a dead letter.
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
        let (now, reannounce) = (self.ports.clock.elapsed(), self.policy.timing.reannounce);
        let asked_for = yard.class(class).is_some_and(|class| class.is_waited_for());
        self.given_back.retain(|_, at| at.saturating_add(reannounce) > now);
        let given = &self.given_back;
        let wanted = |message: &PoolMessage| asked_for && !given.contains_key(&message.instance_id);
        let mut named = Vec::new();
        let back = self.executor.take_receipts(class, |message| {
            let back = true_still(message) == Some(true) && wanted(message);
            named.extend(back.then(|| message.instance_id.clone()));
            back
        });
        let stale = self.executor.take_receipts(class, |message| true_still(message).is_some());
        self.given_back.extend(named.into_iter().map(|id| (id, now)));
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
