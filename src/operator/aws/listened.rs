//! A queue on SQS that one operator listens to by long polls. Its account's owner, `init` or a stack makes it; nothing
//! here does.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};

use crate::ports::QueueError;
use crate::store::queue::{NamedQueue, classify};
use crate::store::timeouts;

/// Longest wait for messages in one receive, in seconds (SQS).
const WAIT: i32 = 20;
/// A receive that waits must not count as hanging: a call takes at most this much longer than it waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most messages of one call (SQS).
const BATCH: usize = 10;

/// A queue that is listened to.
#[derive(Debug)]
pub(super) struct ListenedQueue {
    queue: NamedQueue,
    wait: i32,
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
        Self { queue: NamedQueue::connect(name, config, timeouts), wait }
    }

    /// Receives at most 10 messages with their senders, and hides them from others for this many seconds.
    pub(super) async fn receive(&self, hidden: i32) -> Result<Vec<Message>, QueueError> {
        let call = self.queue.client.receive_message().queue_url(self.queue.url().await?);
        let call = call.visibility_timeout(hidden).max_number_of_messages(BATCH as i32);
        let call = call.wait_time_seconds(self.wait);
        let call = call.message_system_attribute_names(MessageSystemAttributeName::SenderId);
        let got = call.send().await.map_err(|error| self.queue.judged(classify(&error)))?;
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
            let call = self.queue.client.delete_message_batch().queue_url(self.queue.url().await?);
            let done = call.set_entries(Some(entries)).send().await;
            let done = done.map_err(|error| self.queue.judged(classify(&error)))?;
            // A message that was not deleted is received and deleted again.
            if let Some(failed) = done.failed.iter().find(|failed| !failed.sender_fault()) {
                let (count, code) = (done.failed.len(), failed.code());
                return Err(QueueError::Unreachable(format!("{count} messages were not removed: {code}")));
            }
        }
        Ok(())
    }
}
