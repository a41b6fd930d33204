//! Watches the table: by its stream if there is one, else by polling.

mod poll;
mod stream;

use std::time::Duration;

use super::DynamoStore;
use crate::ports::{StoreError, Watch};

/// How long a watch waits for a change before it returns an empty list.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a scanned table is checked for a stream. It gets one once in its life, or its stream was refused for a
/// moment: a few minutes of scans matter little, and a check costs about three calls.
const STREAM_EVERY: Duration = Duration::from_secs(300);

/// How to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Whether the stream may be read: DynamoDB supports at most two readers per shard.
    pub stream: bool,
    /// Interval between two reads of the stream. DynamoDB allows a few per second; an engine in the same process allows
    /// one every few milliseconds.
    pub every: Duration,
    /// Interval between two scans of the table if the stream is not read.
    pub scan_every: Duration,
    /// Interval between two checks whether a scanned table has a stream by now.
    pub stream_every: Duration,
}

impl Default for Watching {
    fn default() -> Self {
        Self {
            stream: true,
            every: Duration::from_millis(200),
            scan_every: Duration::from_secs(1),
            stream_every: STREAM_EVERY,
        }
    }
}

/// Opens a watch. It reports every write after this returns.
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
