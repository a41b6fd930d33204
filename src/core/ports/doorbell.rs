//! The ports of the doorbell. The writer of an intent rings it, as does a machine that signals something that somebody
//! waits for. The leader reads the record that a ring names at once, and the stream instead of at its next poll. Nothing
//! else of a ring counts: a lost, doubled, late or forged one costs time, or a read.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::queue::QueueError;
use crate::model::{JobRing, RecordId};

/// The end of the doorbell that rings.
#[async_trait]
pub trait Ringer: Send + Sync {
    /// Finds the bell before it is rung, so that a later ring takes one call.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no bell.
    async fn find(&self) -> Result<(), QueueError>;

    /// Rings the bell because this record was written.
    ///
    /// # Errors
    /// Those of the queues; nothing depends on whether the ring was received.
    async fn ring(&self, key: &RecordId) -> Result<(), QueueError>;
}

/// A ring that was heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// The record that was written, if the ring names one.
    pub key: Option<RecordId>,
    /// Who rang, as the queue knows it. The ringer cannot choose it.
    pub sender: Option<String>,
}

/// The end of the doorbell that the leader listens to.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Waits a while (20 s at most) and returns the rings since the last call, as many as one call of the queue gives.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where the yard has no bell.
    async fn rung(&self) -> Result<Vec<Ring>, QueueError>;
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
