//! Receives EC2's notices from the SQS queue that EventBridge's rules feed. The account's owner creates the queue and
//! its rules; this module only reads.

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::listened::ListenedQueue;
use crate::model::read_notices;
use crate::ports::notices::HIDDEN;
use crate::ports::{Batch, Delivery, Notices, QueueError};

/// The queue of notices.
#[derive(Debug)]
pub struct SqsNotices(ListenedQueue);

impl SqsNotices {
    /// Connects to the queue with this name, configured by `config`. No call is made yet.
    pub fn connect(name: &str, config: &SdkConfig) -> Self {
        Self(ListenedQueue::connect(name.to_owned(), config))
    }

    /// Connects without waiting for messages in a receive.
    pub fn impatient(name: &str, config: &SdkConfig) -> Self {
        Self(ListenedQueue::impatient(name.to_owned(), config))
    }
}

#[async_trait]
impl Notices for SqsNotices {
    async fn receive(&self) -> Result<Batch, QueueError> {
        let hidden = i32::try_from(HIDDEN.as_secs()).unwrap_or(i32::MAX);
        let mut batch = Batch::default();
        for message in self.0.receive(hidden).await? {
            let Some(receipt) = message.receipt_handle else { continue };
            match read_notices(&message.body.unwrap_or_default()) {
                Ok(notices) => batch.deliveries.push(Delivery { receipt, notices }),
                Err(why) => batch.unreadable.push(why),
            }
        }
        Ok(batch)
    }

    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError> {
        self.0.delete(receipts).await
    }
}
