//! GitHub's word that jobs were queued, on SQS: the standard queue `<table>-jobs`, into which API Gateway or EventBridge
//! puts the payloads of a webhook. Whoever knows the webhook's address can send to it, so nothing of a message gets
//! further than its repository and run.

use async_trait::async_trait;
use aws_config::SdkConfig;

use super::listened::ListenedQueue;
use crate::model::{JOBS, TableName, read_job_ring};
use crate::ports::{JobBell, JobRings, QueueError};

/// How long a message lives, in seconds. The first lookups of an operator that takes over are spread over an interval;
/// a message that its predecessor did not read makes one at once.
pub(super) const RETENTION: i32 = 300;
/// How long a received message is hidden, in seconds: longer than it lives, so that one that could not be deleted is
/// not heard again.
const HIDDEN: i32 = 2 * RETENTION;

/// The queue of queued jobs of one table on SQS.
#[derive(Debug)]
pub struct SqsJobBell(ListenedQueue);

impl SqsJobBell {
    /// Connects to the queue of `table`, configured by `config`. No call is made yet.
    pub fn connect(table: &TableName, config: &SdkConfig) -> Self {
        Self(ListenedQueue::connect(format!("{table}-{JOBS}"), config))
    }

    /// Connects without waiting for messages in a receive.
    pub fn impatient(table: &TableName, config: &SdkConfig) -> Self {
        Self(ListenedQueue::impatient(format!("{table}-{JOBS}"), config))
    }
}

#[async_trait]
impl JobBell for SqsJobBell {
    async fn queued(&self) -> Result<JobRings, QueueError> {
        let mut heard = JobRings::default();
        let mut receipts = Vec::new();
        for message in self.0.receive(HIDDEN).await? {
            match read_job_ring(&message.body.unwrap_or_default()) {
                Ok(ring) => drop(heard.rings.insert(ring)),
                Err(why) => {
                    heard.ignored += 1;
                    tracing::debug!(%why, "a message of the queue of queued jobs is deleted");
                }
            }
            receipts.extend(message.receipt_handle);
        }
        // What was heard counts, whatever becomes of the messages.
        if let Err(error) = self.0.delete(&receipts).await {
            tracing::debug!(%error, "messages of the queue of queued jobs expire by themselves");
        }
        Ok(heard)
    }
}
