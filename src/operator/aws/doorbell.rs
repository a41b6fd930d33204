//! The doorbell on SQS: the standard queue `<table>-doorbell`, whose messages are empty signals and expire after a
//! minute.

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::listened::ListenedQueue;
use crate::model::{DOORBELL, TableName};
use crate::ports::{Doorbell, QueueError};

/// How long a received message is hidden, in seconds: longer than it lives, so that no call deletes it.
const HIDDEN: i32 = 10 * RETENTION;
/// How long a message lives, in seconds: the minimum of SQS. A listener needs no older ring, because it has looked
/// since.
pub(super) const RETENTION: i32 = 60;

/// The doorbell of one table on SQS.
#[derive(Debug)]
pub struct SqsDoorbell(ListenedQueue);

impl SqsDoorbell {
    /// Connects a listener to the doorbell of `table`, configured by `config`. No call is made yet.
    pub fn connect(table: &TableName, config: &SdkConfig) -> Self {
        Self(ListenedQueue::connect(format!("{table}-{DOORBELL}"), config))
    }

    /// Connects a ringer: none of its calls waits for a message.
    pub fn impatient(table: &TableName, config: &SdkConfig) -> Self {
        Self(ListenedQueue::impatient(format!("{table}-{DOORBELL}"), config))
    }
}

#[async_trait]
impl Doorbell for SqsDoorbell {
    async fn find(&self) -> Result<(), QueueError> {
        self.0.url().await.map(|_| ())
    }

    async fn ring(&self) -> Result<(), QueueError> {
        // SQS refuses an empty body.
        self.0.send("ring").await
    }

    async fn rung(&self) -> Result<bool, QueueError> {
        Ok(!self.0.receive(HIDDEN).await?.is_empty())
    }
}
