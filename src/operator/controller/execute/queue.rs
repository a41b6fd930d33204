//! The pool queue: announcements, hints about free machines, and the deletion of its messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::metrics::QueueOutcome;
use crate::model::{ClassName, InstanceArn, PoolMessage};
use crate::ports::QueueError;
use crate::yard::Observation;

use super::Executor;

/// Queue receive timeout; afterwards the class claims without queue hints.
const QUEUE_PATIENCE: Duration = Duration::from_millis(300);

/// Received messages that are not settled yet, by class and machine.
pub(in crate::controller) type Receipts = Arc<Mutex<BTreeMap<ClassName, Vec<(PoolMessage, String)>>>>;

impl Executor {
    /// Deletes the received messages of claimed machines, and returns which machines can be announced again. A message
    /// that remains is recognised as stale when it is received again.
    pub(super) async fn claimed(&self, class: &ClassName, arns: &[&InstanceArn]) -> Vec<Observation> {
        let of = |message: &PoolMessage| {
            arns.iter().find(|arn| arn.instance_id() == message.instance_id.as_str()).copied()
        };
        let mut told = Vec::new();
        let spent = self.take_receipts(class, |message| {
            told.extend(of(message).cloned().map(Observation::Unannounced));
            of(message).is_some()
        });
        spent.iter().for_each(|_| self.ports.metrics.queue_message(QueueOutcome::Claimed));
        for receipts in spent.chunks(10) {
            match self.ports.queue.delete(class, receipts).await {
                Ok(left) if left.is_empty() => {}
                Ok(_) => return Vec::new(),
                Err(error) => {
                    tracing::debug!(%class, %error, "messages of claimed machines were not removed");
                    return Vec::new();
                }
            }
        }
        told
    }

    /// Removes the matching receipts of a class from the unsettled ones.
    pub(in crate::controller) fn take_receipts(
        &self,
        class: &ClassName,
        mut which: impl FnMut(&PoolMessage) -> bool,
    ) -> Vec<String> {
        let mut receipts = self.receipts.lock().expect("nobody panics while holding the receipts");
        let Some(held) = receipts.get_mut(class) else { return Vec::new() };
        let (taken, kept) = std::mem::take(held).into_iter().partition(|(message, _)| which(message));
        *held = kept;
        let taken: Vec<(PoolMessage, String)> = taken;
        taken.into_iter().map(|(_, receipt)| receipt).collect()
    }

    /// Announces a machine; creates the class's queue if it is missing.
    pub(super) async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        match self.ports.queue.announce(message).await {
            Err(QueueError::Missing) => {
                self.ports.queue.ensure(&message.resource_class).await?;
                self.ports.queue.announce(message).await
            }
            other => other,
        }
    }

    /// Receives the hints of the queue. If it does not respond in time it is not used.
    pub(super) async fn receive(&self, class: ClassName, most: u32) -> Vec<Observation> {
        let received = tokio::time::timeout(QUEUE_PATIENCE, self.ports.queue.receive(&class, most)).await;
        let messages = match received {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                tracing::debug!(%class, %error, "the pool queue gave no answer");
                return vec![Observation::QueueDown(class)];
            }
            Err(_) => return vec![Observation::QueueDown(class)],
        };
        let mut hints = Vec::new();
        for message in messages {
            match message.body {
                Ok(body) => {
                    hints.push(body.instance_id.clone());
                    let mut receipts =
                        self.receipts.lock().expect("nobody panics while holding the receipts");
                    receipts.entry(class.clone()).or_default().push((body, message.receipt));
                }
                Err(raw) => {
                    self.ports.metrics.queue_message(QueueOutcome::Unreadable);
                    tracing::warn!(%class, "a message of the pool queue cannot be read, moving it to the dead letters");
                    if let Err(error) = self.ports.queue.bury(&class, &message.receipt, &raw).await {
                        tracing::warn!(%class, %error, "it could not be moved");
                    }
                }
            }
        }
        vec![Observation::Hints(class, hints)]
    }
}
