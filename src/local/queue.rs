//! The pool queue without SQS: what must it do alike? Hide what was received for a while, show it again at once when
//! it is given back, and forget it when it is deleted. It lives in memory: what dies with the process is a hint, and
//! the operator announces idle machines again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::model::{ClassName, PoolMessage};
use crate::ports::{PoolQueue, QueueError, Received};

/// SQS's default visibility timeout.
const HIDDEN: Duration = Duration::from_secs(30);
/// SQS's own limit, in time here: messages beyond it are long stale.
const RETENTION: Duration = Duration::from_secs(4 * 24 * 3600);

struct Message {
    id: u64,
    body: PoolMessage,
    sent: Instant,
    visible: Instant,
}

#[derive(Default)]
struct State {
    last: u64,
    classes: BTreeMap<ClassName, VecDeque<Message>>,
}

/// An in-process pool queue for every class.
#[derive(Default)]
pub struct LocalQueue {
    state: Mutex<State>,
}

impl LocalQueue {
    /// No classes, no messages.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&mut self, class: &ClassName) -> Result<&mut VecDeque<Message>, QueueError> {
        self.classes.get_mut(class).ok_or(QueueError::Missing)
    }
}

fn names(receipts: &[String], message: &Message) -> bool {
    receipts.iter().any(|receipt| *receipt == message.id.to_string())
}

#[async_trait]
impl PoolQueue for LocalQueue {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.state().classes.entry(class.clone()).or_default();
        Ok(())
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let now = Instant::now();
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        let queue = state.queue(&message.resource_class)?;
        queue.retain(|old| now - old.sent < RETENTION);
        queue.push_back(Message { id, body: message.clone(), sent: now, visible: now });
        Ok(())
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        let now = Instant::now();
        let mut state = self.state();
        let visible = state.queue(class)?.iter_mut().filter(|message| message.visible <= now);
        let received = visible.take(most as usize).map(|message| {
            message.visible = now + HIDDEN;
            Received { receipt: message.id.to_string(), body: Ok(message.body.clone()) }
        });
        Ok(received.collect())
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        self.state().queue(class)?.retain(|message| !names(receipts, message));
        Ok(Vec::new())
    }

    async fn give_back(&self, class: &ClassName, receipts: &[String]) -> Result<(), QueueError> {
        let now = Instant::now();
        let mut state = self.state();
        let given = state.queue(class)?.iter_mut().filter(|message| names(receipts, message));
        given.for_each(|message| message.visible = now);
        Ok(())
    }

    async fn bury(&self, class: &ClassName, receipt: &str, _: &str) -> Result<(), QueueError> {
        // Nothing unreadable can be sent here; a burial asked for all the same is a removal.
        self.delete(class, &[receipt.to_owned()]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{InstanceId, UsageClass};

    fn class() -> ClassName {
        ClassName::parse("small").unwrap()
    }

    fn message(id: &str) -> PoolMessage {
        PoolMessage {
            instance_id: InstanceId::parse(id).unwrap(),
            resource_class: class(),
            instance_type: "local".into(),
            cpu: 2,
            mmem: 2048,
            usage_class: UsageClass::OnDemand,
            claim_id: String::new(),
        }
    }

    #[tokio::test]
    async fn a_class_without_a_queue_is_missing() {
        let queue = LocalQueue::new();
        assert_eq!(queue.announce(&message("i-1")).await, Err(QueueError::Missing));
        assert_eq!(queue.receive(&class(), 10).await, Err(QueueError::Missing));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_received_is_hidden_until_it_is_given_back_or_its_time_is_over() {
        let queue = LocalQueue::new();
        queue.ensure(&class()).await.unwrap();
        queue.announce(&message("i-1")).await.unwrap();
        queue.announce(&message("i-2")).await.unwrap();
        let first = queue.receive(&class(), 1).await.unwrap();
        assert_eq!(first[0].body, Ok(message("i-1")));
        let second = queue.receive(&class(), 10).await.unwrap();
        assert_eq!(second.len(), 1);
        assert_eq!(queue.receive(&class(), 10).await.unwrap(), []);
        queue.give_back(&class(), &[first[0].receipt.clone()]).await.unwrap();
        assert_eq!(queue.receive(&class(), 10).await.unwrap(), first);
        tokio::time::advance(HIDDEN).await;
        assert_eq!(queue.receive(&class(), 10).await.unwrap().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_message_never_comes_back() {
        let queue = LocalQueue::new();
        queue.ensure(&class()).await.unwrap();
        queue.announce(&message("i-1")).await.unwrap();
        let received = queue.receive(&class(), 10).await.unwrap();
        assert!(queue.delete(&class(), &[received[0].receipt.clone()]).await.unwrap().is_empty());
        tokio::time::advance(HIDDEN * 2).await;
        assert_eq!(queue.receive(&class(), 10).await.unwrap(), []);
    }
}
