//! The pool queues on SQS: one standard queue per class, `<table>-<class>`, and its dead-letter queue
//! `<table>-<class>-dead`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::types::{BatchResultErrorEntry, DeleteMessageBatchRequestEntry, QueueAttributeName};
use aws_sdk_sqs::{Client, config};

use crate::model::{ANNOUNCED, ClassName, PoolMessage, TableName};
use crate::ports::{PoolQueue, QueueDepth, QueueError, Received};
use crate::store::queue::classify;
use crate::store::{retries, timeouts};

/// How long a received message stays hidden, in seconds: much longer than a claim takes, and much shorter than a person
/// waits for a machine if the operator died while holding its message.
pub(super) const VISIBILITY: i32 = 30;
/// How often a message is received before SQS itself moves it to the dead letters; making it visible again counts as a
/// receive.
pub(super) const RECEIVES: u32 = 1000;
/// Most messages of one call (SQS).
const BATCH: usize = 10;
/// Longest name of a queue (SQS).
pub(super) const LONGEST_NAME: usize = 80;
/// How long dead letters are kept, in seconds: the maximum of SQS, so that they can still be read late.
pub(super) const DEAD_LETTERS_KEPT: u32 = 14 * 24 * 3600;

/// The pool queues of one table on SQS.
#[derive(Debug)]
pub struct SqsQueue {
    table: TableName,
    client: Client,
    /// How long a message is kept in a queue that is made here.
    retention: Duration,
    /// The address of each queue, by name, once it is known.
    urls: Mutex<BTreeMap<String, String>>,
}

impl SqsQueue {
    /// Connects to the queues of `table`, configured by `config`. No call is made yet.
    pub fn connect(table: TableName, config: &SdkConfig) -> Self {
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts());
        Self {
            table,
            client: Client::from_conf(config.build()),
            retention: ANNOUNCED,
            urls: Mutex::default(),
        }
    }

    /// Has queues that are made keep messages for `retention`.
    #[must_use]
    pub fn keeping(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    fn name(&self, class: &ClassName) -> Result<String, QueueError> {
        let name = format!("{}-{class}", self.table);
        let fix =
            "name the table in at most 74 characters together with the class, of A-Z, a-z, 0-9, - and _";
        if name.contains('.') || name.len() + "-dead".len() > LONGEST_NAME {
            return Err(QueueError::Invalid(format!("no queue can be called {name:?}; {fix}")));
        }
        Ok(name)
    }

    async fn url(&self, class: &ClassName) -> Result<String, QueueError> {
        self.url_of(&self.name(class)?).await
    }

    async fn dead_url(&self, class: &ClassName) -> Result<String, QueueError> {
        self.url_of(&dead(&self.name(class)?)).await
    }

    async fn url_of(&self, name: &str) -> Result<String, QueueError> {
        if let Some(known) = self.known().get(name) {
            return Ok(known.clone());
        }
        let told = self.client.get_queue_url().queue_name(name).send().await;
        let url = told.map_err(|error| classify(&error))?.queue_url;
        self.learn(name, url)
    }

    fn learn(&self, name: &str, url: Option<String>) -> Result<String, QueueError> {
        let url = url.ok_or_else(|| QueueError::Unreachable(format!("no address was given for {name}")))?;
        self.known().insert(name.to_owned(), url.clone());
        Ok(url)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the addresses of a class's queues when they turn out to be gone, so that `ensure` creates them again.
    fn judged(&self, class: &ClassName, error: QueueError) -> QueueError {
        if error == QueueError::Missing
            && let Ok(name) = self.name(class)
        {
            let mut known = self.known();
            known.remove(&dead(&name));
            known.remove(&name);
        }
        error
    }

    /// Returns the queue with this name, and creates it if it does not exist. An existing queue keeps its attributes.
    async fn made(&self, name: &str, redrive: Option<String>) -> Result<String, QueueError> {
        match self.url_of(name).await {
            Err(QueueError::Missing) => {}
            other => return other,
        }
        let mut call = self.client.create_queue().queue_name(name);
        call = match redrive {
            Some(policy) => call
                .attributes(QueueAttributeName::VisibilityTimeout, VISIBILITY.to_string())
                .attributes(QueueAttributeName::MessageRetentionPeriod, self.retention.as_secs().to_string())
                .attributes(QueueAttributeName::RedrivePolicy, policy),
            None => {
                call.attributes(QueueAttributeName::MessageRetentionPeriod, DEAD_LETTERS_KEPT.to_string())
            }
        };
        let url = call.send().await.map_err(|error| classify(&error))?.queue_url;
        self.learn(name, url)
    }

    /// Returns the approximate number of messages in a queue, hidden ones included.
    async fn count(&self, url: &str) -> Result<u64, QueueError> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let call = self.client.get_queue_attributes().queue_url(url);
        let told = call.set_attribute_names(Some(names.to_vec())).send().await;
        let told = told.map_err(|error| classify(&error))?.attributes.unwrap_or_default();
        let number = |name| told.get(name).and_then(|count| count.parse::<u64>().ok());
        Ok(names.iter().filter_map(number).sum())
    }

    async fn arn(&self, url: &str) -> Result<String, QueueError> {
        let call = self.client.get_queue_attributes().queue_url(url);
        let told = call.attribute_names(QueueAttributeName::QueueArn).send().await;
        let mut attributes = told.map_err(|error| classify(&error))?.attributes.unwrap_or_default();
        let arn = attributes.remove(&QueueAttributeName::QueueArn);
        arn.ok_or_else(|| QueueError::Unreachable(format!("no ARN was given for {url}")))
    }
}

/// Returns the name of a queue's dead-letter queue.
pub(super) fn dead(name: &str) -> String {
    format!("{name}-dead")
}

fn batch(count: usize) -> Result<(), QueueError> {
    if count <= BATCH {
        return Ok(());
    }
    Err(QueueError::Invalid(format!("{count} messages in one call, at most {BATCH} are possible")))
}

/// Returns the entry of a batch that a response refers to.
fn entry<'a>(receipts: &'a [String], failed: &BatchResultErrorEntry) -> Option<&'a String> {
    receipts.get(failed.id().parse::<usize>().ok()?)
}

#[async_trait]
impl PoolQueue for SqsQueue {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        let name = self.name(class)?;
        let ensured = async {
            let dead_letters = self.made(&dead(&name), None).await?;
            let target = self.arn(&dead_letters).await?;
            let policy =
                serde_json::json!({ "deadLetterTargetArn": target, "maxReceiveCount": RECEIVES.to_string() });
            self.made(&name, Some(policy.to_string())).await
        };
        ensured.await.map(|_| ()).map_err(|error| self.judged(class, error))
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let class = &message.resource_class;
        let body = serde_json::to_string(message).map_err(|error| QueueError::Invalid(error.to_string()))?;
        let call = self.client.send_message().queue_url(self.url(class).await?).message_body(body);
        call.send().await.map(|_| ()).map_err(|error| self.judged(class, classify(&error)))
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let call = self.client.receive_message().queue_url(self.url(class).await?);
        let call = call.max_number_of_messages(most).visibility_timeout(VISIBILITY).wait_time_seconds(0);
        let got = call.send().await.map_err(|error| self.judged(class, classify(&error)))?;
        let messages = got.messages.unwrap_or_default().into_iter().filter_map(|message| {
            let body = PoolMessage::read(&message.body.unwrap_or_default());
            message.receipt_handle.map(|receipt| Received { receipt, body })
        });
        Ok(messages.collect())
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        batch(receipts.len())?;
        if receipts.is_empty() {
            return Ok(Vec::new());
        }
        let entries: Result<Vec<_>, _> = (0..)
            .zip(receipts)
            .map(|(id, receipt): (usize, _)| {
                DeleteMessageBatchRequestEntry::builder().id(id.to_string()).receipt_handle(receipt).build()
            })
            .collect();
        let entries = entries.map_err(|error| QueueError::Invalid(error.to_string()))?;
        let call = self.client.delete_message_batch().queue_url(self.url(class).await?);
        let done = call.set_entries(Some(entries)).send().await;
        let done = done.map_err(|error| self.judged(class, classify(&error)))?;
        Ok(done.failed.iter().filter_map(|failed| entry(receipts, failed)).cloned().collect())
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        let counted = async {
            let waiting = self.count(&self.url(class).await?).await?;
            let dead = self.count(&self.dead_url(class).await?).await?;
            Ok(Some(QueueDepth { waiting, dead }))
        };
        counted.await.map_err(|error| self.judged(class, error))
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        let body = if raw.is_empty() { "(an empty body)" } else { raw };
        let call = self.client.send_message().queue_url(self.dead_url(class).await?).message_body(body);
        call.send().await.map_err(|error| self.judged(class, classify(&error)))?;
        let call = self.client.delete_message().queue_url(self.url(class).await?).receipt_handle(receipt);
        call.send().await.map(|_| ()).map_err(|error| self.judged(class, classify(&error)))
    }
}
