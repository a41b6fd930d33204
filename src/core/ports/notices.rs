//! What EC2 tells about machines from outside. A notice costs time when it is lost: the machine's own maker, its agent
//! and its deadlines say the same, later.

use async_trait::async_trait;

use super::queue::QueueError;
use crate::model::Notice;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What names this receipt to the queue.
    pub receipt: String,
    /// What it says; empty where it speaks of nothing we know.
    pub notices: Vec<Notice>,
}

/// What one receive brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The messages that can be read.
    pub told: Vec<Told>,
    /// What is wrong with those that cannot. They are left to the queue's own redrive policy: not acknowledged, they
    /// come again until it puts them aside.
    pub unreadable: Vec<String>,
}

/// The port of notices.
#[async_trait]
pub trait Notices: Send + Sync {
    /// Waits a while for messages, at most 10; they stay hidden from others for [`HIDDEN`] or until acknowledged.
    async fn receive(&self) -> Result<Batch, QueueError>;
    /// Removes messages that are dealt with.
    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError>;
}

/// How long a received message is hidden: what an operator that died had received is seen by its successor well within
/// the two minutes of a warning.
pub const HIDDEN: std::time::Duration = std::time::Duration::from_secs(30);
