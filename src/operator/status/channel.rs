//! The channel between HTTP requests and the loop. A request waits for the loop's answer; the answer is cached for a
//! moment, so that many readers cost as much as one.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Snapshot;
use super::changes::Changes;

/// How long an answer is reused.
const FRESH: Duration = Duration::from_secs(1);
/// How long the loop may take to answer; a slower loop is behind.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The sender for one answer.
pub(super) type SnapshotRequest = oneshot::Sender<Snapshot>;

/// The loop did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operator is busy, starting or ending; ask again in a moment")]
pub struct Closed;

/// The channel from HTTP requests to the loop.
pub struct SnapshotChannel {
    asks: mpsc::Sender<SnapshotRequest>,
    answering: Mutex<Option<mpsc::Receiver<SnapshotRequest>>>,
    last: tokio::sync::Mutex<Option<(Duration, Changes)>>,
    github: OnceLock<String>,
}

impl fmt::Debug for SnapshotChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").finish_non_exhaustive()
    }
}

impl Default for SnapshotChannel {
    fn default() -> Self {
        let (asks, answering) = mpsc::channel(1);
        Self {
            asks,
            answering: Mutex::new(Some(answering)),
            last: tokio::sync::Mutex::default(),
            github: OnceLock::new(),
        }
    }
}

impl SnapshotChannel {
    /// Returns the receiver of requests, for the one loop that answers; `None` if another loop took it.
    pub fn answer(&self) -> Option<mpsc::Receiver<oneshot::Sender<Snapshot>>> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sets the web address of the runs' GitHub, for the page's links. Only the first call has an effect.
    pub fn link_to(&self, github: &str) {
        let _ = self.github.set(github.to_owned());
    }

    /// Returns the yard as JSON, at most a second old at this time of the monotonic clock: everything, or the changes
    /// since the answer with this `mark`.
    ///
    /// # Errors
    /// The loop did not answer in time.
    pub async fn snapshot(&self, now: Duration, since: Option<&str>) -> Result<String, Closed> {
        let mut last = self.last.lock().await;
        if last.as_ref().is_none_or(|(at, _)| now.saturating_sub(*at) >= FRESH) {
            let status = tokio::time::timeout(ANSWER_TIMEOUT, self.ask()).await.map_err(|_| Closed)??;
            let (at, changes) = last.get_or_insert_default();
            changes.take(&status);
            *at = now;
        }
        let (_, changes) = last.as_ref().expect("it was there or has been taken");
        let mut answer = changes.answer(since);
        answer["github"] = self.github.get().map(String::as_str).into();
        Ok(answer.to_string())
    }

    async fn ask(&self) -> Result<Snapshot, Closed> {
        let (sender, receiver) = oneshot::channel();
        self.asks.send(sender).await.map_err(|_| Closed)?;
        receiver.await.map_err(|_| Closed)
    }
}
