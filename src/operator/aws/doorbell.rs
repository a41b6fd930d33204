//! The doorbell on SQS: the standard queue `<table>-doorbell`, whose messages are empty signals and expire after a
//! minute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::{Client, config};

use super::errors::queue as classify;
use crate::model::{DOORBELL, TableName};
use crate::ports::{Doorbell, QueueError};
use crate::store::{retries, timeouts};

/// Longest wait for messages in one receive, in seconds (SQS).
const WAIT: i32 = 20;
/// A receive that waits must not count as hanging: a call takes at most this much longer than it waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of messages of one receive (SQS): they are all equal.
const BATCH: i32 = 10;
/// How long a received message is hidden, in seconds: longer than it lives, so that no call deletes it.
const HIDDEN: i32 = 10 * RETENTION;
/// How long a message lives, in seconds: the minimum of SQS. A listener needs no older ring, because it has looked
/// since.
pub(super) const RETENTION: i32 = 60;

/// The doorbell of one table on SQS.
#[derive(Debug)]
pub struct SqsDoorbell {
    name: String,
    client: Client,
    wait: i32,
    /// The queue's address, once it is known.
    url: Mutex<Option<String>>,
}

impl SqsDoorbell {
    /// Connects a listener to the doorbell of `table`, configured by `config`. No call is made yet.
    pub fn connect(table: &TableName, config: &SdkConfig) -> Self {
        let attempt = Duration::from_secs(WAIT.unsigned_abs().into()) + PATIENCE;
        let patient = timeouts().to_builder().read_timeout(attempt).operation_attempt_timeout(attempt);
        Self::with(table, config, WAIT, patient.operation_timeout(attempt * 3).build())
    }

    /// Connects a ringer: none of its calls waits for a message.
    pub fn impatient(table: &TableName, config: &SdkConfig) -> Self {
        Self::with(table, config, 0, timeouts())
    }

    fn with(table: &TableName, config: &SdkConfig, wait: i32, timeouts: TimeoutConfig) -> Self {
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts);
        let client = Client::from_conf(config.build());
        Self { name: format!("{table}-{DOORBELL}"), client, wait, url: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.url.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn url(&self) -> Result<String, QueueError> {
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

    /// Drops the queue's address when the queue turns out to be gone, because another may be created.
    fn judged(&self, error: QueueError) -> QueueError {
        if error == QueueError::Missing {
            *self.known() = None;
        }
        error
    }
}

#[async_trait]
impl Doorbell for SqsDoorbell {
    async fn find(&self) -> Result<(), QueueError> {
        self.url().await.map(|_| ())
    }

    async fn ring(&self) -> Result<(), QueueError> {
        // SQS refuses an empty body.
        let call = self.client.send_message().queue_url(self.url().await?).message_body("ring");
        call.send().await.map(|_| ()).map_err(|error| self.judged(classify(&error)))
    }

    async fn rung(&self) -> Result<bool, QueueError> {
        let call = self.client.receive_message().queue_url(self.url().await?);
        let call = call.max_number_of_messages(BATCH).visibility_timeout(HIDDEN).wait_time_seconds(self.wait);
        let got = call.send().await.map_err(|error| self.judged(classify(&error)))?;
        Ok(got.messages.is_some_and(|messages| !messages.is_empty()))
    }
}
