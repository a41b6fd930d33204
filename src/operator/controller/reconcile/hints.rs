//! Settles a queue's messages after its class was served.

use std::collections::{BTreeMap, BTreeSet};

use crate::metrics::QueueOutcome;
use crate::model::{ClassName, InstanceId, PoolMessage, Record};

use super::Loop;

/// How often one message is made visible again before a new one replaces it: a queue moves a message that was received
/// a thousand times to the dead letters, which are for unreadable messages.
const SHOWN: u32 = 100;

/// How often the message of each free machine was made visible again.
pub(super) type GivenBack = BTreeMap<InstanceId, u32>;

impl Loop {
    /// Settles the hints with which a class was served: deletes stale messages and duplicates of a machine's message,
    /// and makes the others visible again; machines whose message was made visible often are announced anew.
    pub(super) fn settle_hints(&mut self, class: &ClassName) {
        // Decides the class now, so that its claims are known before the other messages become visible.
        self.settle();
        let yard = &self.yard;
        // `None` while the records are about to change.
        let true_still = |message: &PoolMessage| {
            let Some(tracked) = yard.by_id(&message.instance_id) else { return Some(false) };
            let instance = &tracked.instance;
            let here = || message.resource_class == *class && message.describes(instance);
            (!yard.is_busy(instance.key())).then(here)
        };
        let (shown, mut seen, mut anew) = (&mut self.given_back, BTreeSet::new(), Vec::new());
        let back = self.executor.take_receipts(class, |message| match true_still(message) {
            Some(true) if seen.insert(message.instance_id.clone()) => {
                let times = shown.entry(message.instance_id.clone()).or_default();
                *times = (*times + 1) % SHOWN;
                let again = *times > 0;
                anew.extend((!again).then(|| message.clone()));
                again
            }
            Some(_) | None => false,
        });
        let spent = self.executor.take_receipts(class, |message| true_still(message).is_some());
        shown.retain(|id, _| yard.by_id(id).is_some());
        if back.is_empty() && spent.is_empty() {
            return;
        }
        let (queue, metrics, class) = (self.ports.queue.clone(), self.ports.metrics.clone(), class.clone());
        self.tasks.spawn(async move {
            for message in &anew {
                match queue.announce(message).await {
                    Ok(()) => metrics.queue_message(QueueOutcome::Announced),
                    Err(error) => {
                        tracing::debug!(%class, %error, "a machine was not announced anew; it is after timing.reannounce");
                    }
                }
            }
            for receipts in spent.chunks(10) {
                receipts.iter().for_each(|_| metrics.queue_message(QueueOutcome::Stale));
                if let Err(error) = queue.delete(&class, receipts).await {
                    tracing::debug!(%class, %error, "spent messages were not removed");
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
