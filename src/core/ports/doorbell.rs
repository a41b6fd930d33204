//! The port of the doorbell. Whoever writes an intent rings, and the leader looks at the table at once instead of at its
//! next poll. A ring says nothing else: lost, doubled or late it costs time only.

use async_trait::async_trait;

use super::queue::QueueError;

/// The doorbell of a yard.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Finds the bell before it is rung, so that a later ring takes one call.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no bell.
    async fn find(&self) -> Result<(), QueueError>;

    /// Rings.
    ///
    /// # Errors
    /// Those of the queues; nothing depends on whether it was heard.
    async fn ring(&self) -> Result<(), QueueError>;

    /// Waits a while (20 s at most) and returns whether somebody rang. Rings before the call count once.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no bell.
    async fn rung(&self) -> Result<bool, QueueError>;
}
