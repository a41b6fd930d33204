//! A queue on SQS that one operator listens to by long polls. Its account's owner, `init` or a stack makes it; nothing
//! here does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};
use aws_sdk_sqs::{Client, config};

use super::errors::queue as classify;
use crate::ports::QueueError;
use crate::store::{retries, timeouts};

/// Longest wait for messages in one receive, in seconds (SQS).
const WAIT: i32 = 20;
/// A receive that waits must not count as hanging: a call takes at most this much longer than it waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most messages of one call (SQS).
const BATCH: usize = 10;

/// A queue that is listened to.
#[derive(Debug)]
pub(super) struct ListenedQueue {
    name: String,
    client: Client,
    wait: i32,
    /// The queue's address, once it is known.
    url: Mutex<Option<String>>,
}

impl ListenedQueue {
    /// Connects to the queue with this name. No call is made yet; receives wait for messages.
    pub(super) fn connect(name: String, config: &SdkConfig) -> Self {
        let attempt = Duration::from_secs(WAIT.unsigned_abs().into()) + PATIENCE;
        let patient = timeouts().to_builder().read_timeout(attempt).operation_attempt_timeout(attempt);
        Self::with(name, config, WAIT, patient.operation_timeout(attempt * 3).build())
    }

    /// Connects without waiting for messages in a receive.
    pub(super) fn impatient(name: String, config: &SdkConfig) -> Self {
        Self::with(name, config, 0, timeouts())
    }

    fn with(name: String, config: &SdkConfig, wait: i32, timeouts: TimeoutConfig) -> Self {
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts);
        Self { name, client: Client::from_conf(config.build()), wait, url: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.url.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the queue's address when the queue turns out to be gone, because another may be created.
    fn judged(&self, error: QueueError) -> QueueError {
        if error == QueueError::Missing {
            *self.known() = None;
        }
        error
    }

    /// Returns the queue's address.
    pub(super) async fn url(&self) -> Result<String, QueueError> {
        if let Some(known) = self.known().clone() {
            return Ok(known);
        }
        let told = self.client.get_queue_url().queue_name(&self.name).send().await;
        let url = told.map_err(|error| classify(&error))?.queue_url;
        let url = url.ok_or_else(|| {
            QueueError::Unreachable(format!("no address was given for the queue {}", self.name))
        })?;
        *self.known() = Some(url.clone());
        Ok(url)
    }

    /// Sends a message.
    pub(super) async fn send(&self, body: &str) -> Result<(), QueueError> {
        let call = self.client.send_message().queue_url(self.url().await?).message_body(body);
        call.send().await.map(|_| ()).map_err(|error| self.judged(classify(&error)))
    }

    /// Receives at most 10 messages, and hides them from others for this many seconds.
    pub(super) async fn receive(&self, hidden: i32) -> Result<Vec<Message>, QueueError> {
        let call = self.client.receive_message().queue_url(self.url().await?).visibility_timeout(hidden);
        let call = call.max_number_of_messages(BATCH as i32).wait_time_seconds(self.wait);
        let got = call.send().await.map_err(|error| self.judged(classify(&error)))?;
        Ok(got.messages.unwrap_or_default())
    }

    /// Deletes messages.
    pub(super) async fn delete(&self, receipts: &[String]) -> Result<(), QueueError> {
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
            let done = call.set_entries(Some(entries)).send().await;
            let done = done.map_err(|error| self.judged(classify(&error)))?;
            // A message that was not deleted is received and deleted again.
            if let Some(failed) = done.failed.iter().find(|failed| !failed.sender_fault()) {
                let (count, code) = (done.failed.len(), failed.code());
                return Err(QueueError::Unreachable(format!("{count} messages were not removed: {code}")));
            }
        }
        Ok(())
    }
}
