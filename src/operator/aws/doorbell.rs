//! The end of the doorbell that the leader listens to, on SQS: the standard queue `<table>-doorbell`, whose messages
//! name a record at most, and expire after a minute.

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};

use super::listened::ListenedQueue;
use crate::model::{DOORBELL, TableName, rung_about};
use crate::ports::{Doorbell, QueueError, Ring};

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

    /// Connects without waiting for messages in a call.
    pub fn impatient(table: &TableName, config: &SdkConfig) -> Self {
        Self(ListenedQueue::impatient(format!("{table}-{DOORBELL}"), config))
    }
}

#[async_trait]
impl Doorbell for SqsDoorbell {
    async fn rung(&self) -> Result<Vec<Ring>, QueueError> {
        Ok(self.0.receive(HIDDEN).await?.into_iter().map(ring).collect())
    }
}

fn ring(message: Message) -> Ring {
    let sender = message.attributes().and_then(|known| known.get(&MessageSystemAttributeName::SenderId));
    Ring { key: message.body().and_then(rung_about), sender: sender.cloned() }
}
