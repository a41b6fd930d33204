//! A queue on SQS that is found by its name, and the end of the doorbell that rings: machines ring it too, and have no
//! other queue.

mod errors;

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::{Client, config};

pub use self::errors::classify;
use crate::model::{DOORBELL, RecordId, TableName, ring_body};
use crate::ports::{QueueError, Ringer};
use crate::{retries, timeouts};

/// A queue, whose address is looked up once.
#[derive(Debug)]
pub struct NamedQueue {
    name: String,
    /// The client of calls with the queue's address.
    pub client: Client,
    /// The queue's address, once it is known.
    url: Mutex<Option<String>>,
}

impl NamedQueue {
    /// Connects to the queue with this name. No call is made yet.
    pub fn connect(name: String, config: &SdkConfig, timeouts: TimeoutConfig) -> Self {
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts);
        Self { name, client: Client::from_conf(config.build()), url: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.url.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the queue's address when the queue turns out to be gone, because another may be created.
    pub fn judged(&self, error: QueueError) -> QueueError {
        if error == QueueError::Missing {
            *self.known() = None;
        }
        error
    }

    /// Returns the queue's address.
    ///
    /// # Errors
    /// Those of the queues; [`QueueError::Missing`] where there is no such queue.
    pub async fn url(&self) -> Result<String, QueueError> {
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
}

/// The end of a table's doorbell that rings: the standard queue `<table>-doorbell`.
#[derive(Debug)]
pub struct SqsRinger(NamedQueue);

impl SqsRinger {
    /// Connects to the doorbell of `table`, configured by `config`. No call is made yet.
    pub fn connect(table: &TableName, config: &SdkConfig) -> Self {
        Self(NamedQueue::connect(format!("{table}-{DOORBELL}"), config, timeouts()))
    }
}

#[async_trait]
impl Ringer for SqsRinger {
    async fn find(&self) -> Result<(), QueueError> {
        self.0.url().await.map(|_| ())
    }

    async fn ring(&self, key: &RecordId) -> Result<(), QueueError> {
        let call = self.0.client.send_message().queue_url(self.0.url().await?).message_body(ring_body(key));
        call.send().await.map(|_| ()).map_err(|error| self.0.judged(classify(&error)))
    }
}
