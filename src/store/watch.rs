//! How changes of the table come to be known: by its stream where there is one, else by looking again and again.

mod poll;
mod stream;

use std::time::Duration;

use super::DynamoStore;
use crate::ports::{StoreError, Watch};

/// How long a watch that finds nothing waits before it says so.
const PATIENCE: Duration = Duration::from_secs(1);

/// How to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Whether the stream may be read: DynamoDB wants at most two readers a shard.
    pub stream: bool,
    /// How long between two looks at the stream. DynamoDB itself wants no more than a few a second; an engine in the
    /// same process takes one every few milliseconds.
    pub every: Duration,
    /// How long between two scans of the table where the stream is not read.
    pub scan_every: Duration,
}

impl Default for Watching {
    fn default() -> Self {
        Self { stream: true, every: Duration::from_millis(200), scan_every: Duration::from_secs(1) }
    }
}

/// Opens a watch. Whatever is written after this returns will be told.
pub(super) async fn open(store: &DynamoStore) -> Result<Box<dyn Watch>, StoreError> {
    if store.watching.stream {
        match stream::StreamWatch::open(store).await {
            Ok(Some(watch)) => return Ok(Box::new(watch)),
            Ok(None) => tracing::info!(table = %store.table, "the table has no stream: scanning it instead"),
            Err(error @ (StoreError::Denied(_) | StoreError::NoTable(_) | StoreError::Invalid(_))) => {
                tracing::warn!(table = %store.table, %error, "the stream cannot be read: scanning the table instead");
            }
            Err(
                error @ (StoreError::Refused { .. }
                | StoreError::Contended
                | StoreError::Throttled
                | StoreError::Unknown(_)),
            ) => return Err(error),
        }
    }
    Ok(Box::new(poll::PollWatch::open(store.clone()).await?))
}
