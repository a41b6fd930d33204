//! The queue of notices in memory: bodies as EventBridge writes them, hidden while received, gone when acknowledged.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::script::{Fault, Script, locked};
use runyard_core::model::read_notices;
use runyard_core::ports::notices::HIDDEN;
use runyard_core::ports::{Batch, Clock, Delivery, Notices, QueueError};

/// How long a receive waits for messages, and how often it looks.
const WAIT: (Duration, Duration) = (Duration::from_secs(20), Duration::from_millis(100));

/// Notices in memory. Clones share them.
#[derive(Clone)]
pub struct MemoryNotices(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    messages: Mutex<Vec<Message>>,
    faults: Script<QueueError>,
}

struct Message {
    body: String,
    receipts: Vec<String>,
    visible_at: Duration,
}

impl MemoryNotices {
    /// An empty queue; hidden messages come back by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, messages: Mutex::default(), faults: Script::default() }))
    }

    /// What the next call meets; several stand in line.
    pub fn next(&self, fault: Fault<QueueError>) {
        self.0.faults.add(fault);
    }

    /// Puts a body there as it is.
    pub fn post(&self, body: &str) {
        let message = Message { body: body.to_owned(), receipts: Vec::new(), visible_at: Duration::ZERO };
        locked(&self.0.messages).push(message);
    }

    /// The bodies that nobody acknowledged.
    pub fn bodies(&self) -> Vec<String> {
        locked(&self.0.messages).iter().map(|message| message.body.clone()).collect()
    }

    fn take(&self) -> Batch {
        let now = self.0.clock.elapsed();
        let mut batch = Batch::default();
        for (n, message) in locked(&self.0.messages).iter_mut().enumerate() {
            if message.visible_at > now || batch.deliveries.len() + batch.unreadable.len() >= 10 {
                continue;
            }
            message.visible_at = now + HIDDEN;
            match read_notices(&message.body) {
                Ok(notices) => {
                    let receipt = format!("{n}-{}", now.as_nanos());
                    message.receipts.push(receipt.clone());
                    batch.deliveries.push(Delivery { receipt, notices });
                }
                Err(why) => batch.unreadable.push(why),
            }
        }
        batch
    }
}

#[async_trait]
impl Notices for MemoryNotices {
    async fn receive(&self) -> Result<Batch, QueueError> {
        let exit = self.0.faults.enter()?;
        let mut waited = Duration::ZERO;
        loop {
            let batch = self.take();
            if !batch.deliveries.is_empty() || !batch.unreadable.is_empty() || waited >= WAIT.0 {
                return exit.answer(Ok(batch));
            }
            tokio::time::sleep(WAIT.1).await;
            waited += WAIT.1;
        }
    }

    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError> {
        let exit = self.0.faults.enter()?;
        let named = |message: &Message| message.receipts.iter().any(|receipt| receipts.contains(receipt));
        locked(&self.0.messages).retain(|message| !named(message));
        exit.answer(Ok(()))
    }
}
