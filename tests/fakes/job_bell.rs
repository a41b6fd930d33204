//! The queue of queued jobs in memory: bodies as API Gateway puts them there, gone once they were received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::script::{Fault, Script, locked};
use runyard_core::model::read_job_ring;
use runyard_core::ports::{JobBell, JobRings, QueueError};

/// How long a receive waits for messages, and how often it looks.
const WAIT: (Duration, Duration) = (Duration::from_secs(20), Duration::from_millis(100));
/// Most messages of one receive (SQS).
const BATCH: usize = 10;

/// Messages in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryJobBell(Arc<Inner>);

#[derive(Default)]
struct Inner {
    messages: Mutex<VecDeque<String>>,
    faults: Script<QueueError>,
}

impl MemoryJobBell {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the next call meets; several stand in line.
    pub fn next(&self, fault: Fault<QueueError>) {
        self.0.faults.add(fault);
    }

    /// Puts a body there as it is.
    pub fn post(&self, body: &str) {
        locked(&self.0.messages).push_back(body.to_owned());
    }

    /// How many messages nobody received.
    pub fn waiting(&self) -> usize {
        locked(&self.0.messages).len()
    }

    fn take(&self) -> Option<JobRings> {
        let mut messages = locked(&self.0.messages);
        let some = messages.len().min(BATCH);
        let mut heard = JobRings::default();
        for body in messages.drain(..some) {
            match read_job_ring(&body) {
                Ok(ring) => drop(heard.rings.insert(ring)),
                Err(_) => heard.ignored += 1,
            }
        }
        (some > 0).then_some(heard)
    }
}

#[async_trait]
impl JobBell for MemoryJobBell {
    async fn queued(&self) -> Result<JobRings, QueueError> {
        let exit = self.0.faults.enter()?;
        let mut waited = Duration::ZERO;
        loop {
            match self.take() {
                None if waited < WAIT.0 => {}
                heard => return exit.answer(Ok(heard.unwrap_or_default())),
            }
            tokio::time::sleep(WAIT.1).await;
            waited += WAIT.1;
        }
    }
}
