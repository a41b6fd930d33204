//! A watch of the table in memory: every change, at once.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use runyard_core::ports::{Change, StoreError, Watch};

/// How long it waits for a change before it says that there is none.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct MemoryWatch(pub(super) UnboundedReceiver<Change>);

#[async_trait]
impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let Ok(first) = timeout(PATIENCE, self.0.recv()).await else { return Ok(Vec::new()) };
        let mut changes = vec![first.ok_or_else(|| StoreError::Invalid("the watch was broken".into()))?];
        while let Ok(change) = self.0.try_recv() {
            changes.push(change);
        }
        Ok(changes)
    }
}
