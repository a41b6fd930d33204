//! A class's queue in memory, with visibility, receipts, retention and dead letters as in SQS: for one process
//! (`queue.kind = "memory"`) and for tests.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::PoolMessage;
use crate::ports::{QueueDepth, Received};

/// How long a received message stays hidden.
const VISIBILITY: Duration = Duration::from_secs(30);
/// How often a message is received before it becomes a dead letter.
const RECEIVES: u32 = 1000;

/// One class's queue.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    /// Waiting or hidden, oldest first.
    pub messages: VecDeque<Message>,
    /// Dead letters, oldest first.
    pub dead: Vec<String>,
    sent: u64,
    /// How long a message is kept.
    retention: Duration,
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// The body as it was sent.
    pub body: String,
    id: u64,
    until: Duration,
    /// When it is visible again.
    pub visible_at: Duration,
    receives: u32,
}

impl Message {
    /// Returns the last receipt; older ones are void.
    pub fn receipt(&self) -> String {
        format!("{}#{}", self.id, self.receives)
    }
}

impl MemoryQueue {
    /// Creates an empty queue that keeps each message for `retention`.
    pub const fn new(retention: Duration) -> Self {
        Self { messages: VecDeque::new(), dead: Vec::new(), sent: 0, retention }
    }

    /// Adds a message that is visible at once; `now` is monotonic time.
    pub fn send(&mut self, body: String, now: Duration) {
        self.expire(now);
        self.sent += 1;
        let until = now.saturating_add(self.retention);
        self.messages.push_back(Message {
            id: self.sent,
            body,
            until,
            visible_at: Duration::ZERO,
            receives: 0,
        });
    }

    /// Forgets the messages whose time is over, hidden ones too.
    pub fn expire(&mut self, now: Duration) {
        self.messages.retain(|message| message.until > now);
    }

    /// Returns the oldest visible messages, at most `most`, and hides them from now on (monotonic time).
    pub fn receive(&mut self, most: usize, now: Duration) -> Vec<Received> {
        self.expire(now);
        let mut received = Vec::new();
        let mut kept = VecDeque::new();
        for mut message in self.messages.drain(..) {
            if received.len() < most && message.visible_at <= now {
                message.receives += 1;
                if message.receives > RECEIVES {
                    self.dead.push(message.body);
                    continue;
                }
                message.visible_at = now + VISIBILITY;
                let body = PoolMessage::read(&message.body);
                received.push(Received { receipt: message.receipt(), body });
            }
            kept.push_back(message);
        }
        self.messages = kept;
        received
    }

    /// Deletes a message; returns false when the receipt is void.
    pub fn delete(&mut self, receipt: &str) -> bool {
        let before = self.messages.len();
        self.messages.retain(|message| message.receipt() != receipt);
        self.messages.len() < before
    }

    /// Makes a message a dead letter.
    pub fn bury(&mut self, receipt: &str, raw: &str) {
        self.dead.push(raw.to_owned());
        self.delete(receipt);
    }

    /// Counts the messages.
    pub fn depth(&mut self, now: Duration) -> QueueDepth {
        self.expire(now);
        QueueDepth { waiting: self.messages.len() as u64, dead: self.dead.len() as u64 }
    }
}
