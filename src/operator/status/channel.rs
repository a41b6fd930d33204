//! The channel between HTTP requests and the loop. A request waits for the loop's answer; the answer is cached for a
//! moment, so that many readers cost as much as one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Snapshot;

/// How long an answer is good enough.
const FRESH: Duration = Duration::from_secs(1);
/// How long the loop may take to answer; one that takes longer is behind.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Who waits for an answer.
pub(super) type SnapshotRequest = oneshot::Sender<Snapshot>;

/// Nobody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operator is busy, starting or ending; ask again in a moment")]
pub struct Closed;

/// The way from whoever looks to the loop.
pub struct SnapshotChannel {
    asks: mpsc::Sender<SnapshotRequest>,
    answering: Mutex<Option<mpsc::Receiver<SnapshotRequest>>>,
    last: tokio::sync::Mutex<Option<(Duration, Arc<str>)>>,
}

impl fmt::Debug for SnapshotChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").finish_non_exhaustive()
    }
}

impl Default for SnapshotChannel {
    fn default() -> Self {
        let (asks, answering) = mpsc::channel(1);
        Self { asks, answering: Mutex::new(Some(answering)), last: tokio::sync::Mutex::default() }
    }
}

impl SnapshotChannel {
    /// What is asked, for the one loop that answers; none when another took it.
    pub fn answer(&self) -> Option<mpsc::Receiver<oneshot::Sender<Snapshot>>> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The yard as JSON, at most a second old at this moment of the monotonic clock.
    ///
    /// # Errors
    /// The loop did not answer in time.
    pub async fn snapshot(&self, now: Duration) -> Result<Arc<str>, Closed> {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = &*last
            && now.saturating_sub(*at) < FRESH
        {
            return Ok(text.clone());
        }
        let status = tokio::time::timeout(ANSWER_TIMEOUT, self.ask()).await.map_err(|_| Closed)??;
        let text: Arc<str> = serde_json::to_string(&status).expect("the status has plain keys").into();
        *last = Some((now, text.clone()));
        Ok(text)
    }

    async fn ask(&self) -> Result<Snapshot, Closed> {
        let (sender, receiver) = oneshot::channel();
        self.asks.send(sender).await.map_err(|_| Closed)?;
        receiver.await.map_err(|_| Closed)
    }
}
