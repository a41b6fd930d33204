//! Receives EC2's notices from the SQS queue that EventBridge's rules feed. The account's owner creates the queue and
//! its rules; this module only reads.

use std::time::Duration;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use aws_sdk_sqs::{Client, config};
use tokio::sync::OnceCell;

use super::errors::queue as classify;
use crate::model::read_notices;
use crate::ports::notices::HIDDEN;
use crate::ports::{Batch, Delivery, Notices, QueueError};
use crate::store::{retries, timeouts};

/// Longest wait for messages in one receive, in seconds (SQS).
const WAIT: i32 = 20;
/// A receive that waits must not count as hanging: a call takes at most this much longer than it waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most messages of one call (SQS).
const BATCH: usize = 10;

/// The queue of notices.
#[derive(Debug)]
pub struct SqsNotices {
    name: String,
    client: Client,
    wait: i32,
    url: OnceCell<String>,
}

impl SqsNotices {
    /// Connects to the queue with this name, configured by `config`. No call is made yet.
    pub fn connect(name: &str, config: &SdkConfig) -> Self {
        let attempt = Duration::from_secs(WAIT.unsigned_abs().into()) + PATIENCE;
        let patient = timeouts().to_builder().read_timeout(attempt).operation_attempt_timeout(attempt);
        Self::with(name, config, WAIT, patient.operation_timeout(attempt * 3).build())
    }

    /// Connects without waiting for messages in a receive.
    pub fn impatient(name: &str, config: &SdkConfig) -> Self {
        Self::with(name, config, 0, timeouts())
    }

    fn with(name: &str, config: &SdkConfig, wait: i32, timeouts: TimeoutConfig) -> Self {
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts);
        let client = Client::from_conf(config.build());
        Self { name: name.to_owned(), client, wait, url: OnceCell::new() }
    }

    async fn url(&self) -> Result<&str, QueueError> {
        let asked = self.url.get_or_try_init(async || {
            let told = self.client.get_queue_url().queue_name(&self.name).send().await;
            let url = told.map_err(|error| classify(&error))?.queue_url;
            url.ok_or_else(|| QueueError::Unreachable(format!("no address was given for {}", self.name)))
        });
        asked.await.map(String::as_str)
    }
}

#[async_trait]
impl Notices for SqsNotices {
    async fn receive(&self) -> Result<Batch, QueueError> {
        let hidden = i32::try_from(HIDDEN.as_secs()).unwrap_or(i32::MAX);
        let call = self.client.receive_message().queue_url(self.url().await?);
        let call = call.max_number_of_messages(BATCH as i32).visibility_timeout(hidden);
        let got = call.wait_time_seconds(self.wait).send().await.map_err(|error| classify(&error))?;
        let mut batch = Batch::default();
        for message in got.messages.unwrap_or_default() {
            let Some(receipt) = message.receipt_handle else { continue };
            match read_notices(&message.body.unwrap_or_default()) {
                Ok(notices) => batch.deliveries.push(Delivery { receipt, notices }),
                Err(why) => batch.unreadable.push(why),
            }
        }
        Ok(batch)
    }

    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError> {
        for receipts in receipts.chunks(BATCH) {
            let entries: Result<Vec<_>, _> = receipts
                .iter()
                .enumerate()
                .map(|(id, receipt)| {
                    let entry = DeleteMessageBatchRequestEntry::builder().id(id.to_string());
                    entry.receipt_handle(receipt).build()
                })
                .collect();
            let entries = entries.map_err(|error| QueueError::Invalid(error.to_string()))?;
            let call = self.client.delete_message_batch().queue_url(self.url().await?);
            let done = call.set_entries(Some(entries)).send().await.map_err(|error| classify(&error))?;
            // A message that was not deleted is received and acknowledged again.
            if let Some(failed) = done.failed.iter().find(|failed| !failed.sender_fault()) {
                let (count, code) = (done.failed.len(), failed.code());
                return Err(QueueError::Unreachable(format!("{count} messages were not removed: {code}")));
            }
        }
        Ok(())
    }
}
