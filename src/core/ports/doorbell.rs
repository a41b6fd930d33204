//! The port of the doorbell. The writer of an intent rings it, and the leader reads the table at once instead of at its
//! next poll. A ring carries no other information: a lost, doubled or late one costs time only.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::queue::QueueError;
use crate::model::JobRing;

/// The doorbell of a yard.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Finds the bell before it is rung, so that a later ring takes one call.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no bell.
    async fn find(&self) -> Result<(), QueueError>;

    /// Rings the bell.
    ///
    /// # Errors
    /// Those of the queues; nothing depends on whether the ring was received.
    async fn ring(&self) -> Result<(), QueueError>;

    /// Waits a while (20 s at most) and returns whether the bell was rung. Rings before the call count once.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no bell.
    async fn rung(&self) -> Result<bool, QueueError>;
}

/// The result of one wait for GitHub's word that jobs were queued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRings {
    /// The runs whose jobs were queued, each once.
    pub rings: BTreeSet<JobRing>,
    /// How many messages named no job of a repository. Anybody may send them, so nothing of them is passed on.
    pub ignored: usize,
}

/// GitHub's word that jobs were queued, as a webhook brings it. It is never the truth: a forged, lost, doubled or late
/// one costs one look at a repository, or the wait until the next.
#[async_trait]
pub trait JobBell: Send + Sync {
    /// Waits a while (20 s at most) and returns what was said meanwhile.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no such queue.
    async fn queued(&self) -> Result<JobRings, QueueError>;
}
