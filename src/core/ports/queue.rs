//! The port of the pool queues: one per class, with hints that machines are free. A lost, doubled or late message costs
//! time only.

use async_trait::async_trait;

use crate::model::{ClassName, PoolMessage};

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The receipt handle.
    pub receipt: String,
    /// The message, or the raw text of an unreadable one (cut to a few KiB).
    pub body: Result<PoolMessage, String>,
}

/// The approximate number of messages in a class's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages in the queue, hidden ones included.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
}

/// Why a call to the queue failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The class has no queue (yet).
    #[error("no queue for the class")]
    Missing,
    /// The endpoint does not implement SQS: there are no queues, and the records alone are used.
    #[error("no queues at this endpoint: {0}")]
    NoService(String),
    /// Too many calls.
    #[error("the queue limits the rate of calls")]
    Throttled,
    /// No response.
    #[error("no answer from the queue: {0}")]
    Unreachable(String),
    /// A person must fix credentials or permissions.
    #[error("the queue denied the call: {0}")]
    Denied(String),
    /// The call is invalid.
    #[error("the queue refused the call: {0}")]
    Invalid(String),
}

/// The pool queue port.
#[async_trait]
pub trait PoolQueue: Send + Sync {
    /// Makes sure the class has its queue and dead-letter queue.
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError>;
    /// Announces that a machine is free.
    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError>;
    /// Receives at most `most` (1 to 10) messages in one short call; they stay hidden from others for a while.
    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError>;
    /// Deletes messages, in one batch of at most 10, and returns the receipts that were not deleted.
    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError>;
    /// Moves an unreadable message to the dead-letter queue: sent there first, then removed here.
    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError>;
    /// Returns the approximate number of messages; none where it is not known.
    async fn depth(&self, _class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        Ok(None)
    }
}
