//! EC2's notices about machines, received from a queue. A lost notice costs time only: the provider's list, the agent
//! and the deadlines show the same later.

use async_trait::async_trait;

use super::queue::QueueError;
use crate::model::Notice;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The queue's handle for this delivery.
    pub receipt: String,
    /// The notices in the message; empty where it contains no known one.
    pub notices: Vec<Notice>,
}

/// The result of one receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The messages that can be read.
    pub deliveries: Vec<Delivery>,
    /// The problems of the messages that cannot be read. They are not acknowledged, so the queue delivers them again
    /// until its redrive policy moves them to the dead-letter queue.
    pub unreadable: Vec<String>,
}

/// The port of notices.
#[async_trait]
pub trait Notices: Send + Sync {
    /// Waits a while for messages, at most 10; they stay hidden from others for [`HIDDEN`] or until acknowledged.
    async fn receive(&self) -> Result<Batch, QueueError>;
    /// Acknowledges handled messages.
    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError>;
}

/// How long a received message is hidden. The successor of an operator that died receives it well within the two
/// minutes of a warning.
pub const HIDDEN: std::time::Duration = std::time::Duration::from_secs(30);
