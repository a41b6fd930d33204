//! Writes events in batches in the background. A full queue or a throttled table drops events and counts them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::history::{Backlog, HistoryTable};
use crate::metrics::Metrics;
use crate::model::history::HistoryLine;
use crate::model::{AttributeValue, Event, Guard, Item, Record, RecordId, Write};
use crate::ports::Store;

/// Maximum number of events in one batch (DynamoDB, `BatchWriteItem`).
const BATCH: usize = 25;
/// Capacity of the queue of events.
const WAITING: usize = 10_000;
/// How long a batch waits for more.
const LINGER: Duration = Duration::from_millis(100);

/// The handle to the writer of events.
#[derive(Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Item>,
    metrics: Metrics,
}

impl Events {
    /// Returns the handle, and the writer to run. The writer ends when the last handle is dropped and everything is
    /// written.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        history: Option<(HistoryTable, Backlog)>,
        metrics: Metrics,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(WAITING);
        let writer = write(store, history, metrics.clone(), waiting);
        (Self { queue, metrics }, writer)
    }

    /// Returns the metrics of the operator.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Queues an event; never waits.
    pub(crate) fn send(&self, event: &Event) {
        if self.queue.try_send(event.to_item()).is_err() {
            self.metrics.events_dropped(1);
        }
    }
}

/// How long a table with time-to-live is given to delete an event, in seconds (DynamoDB deletes within a few days).
const OVERDUE: i64 = 3 * 24 * 3600;

/// Returns the key and `expiresAt` of an event that should have been deleted: this table has no time-to-live.
pub(crate) fn left_over(item: &Item, now: i64) -> Option<(RecordId, i64)> {
    let key = RecordId::of(item).filter(RecordId::is_event)?;
    let AttributeValue::N(expires_at) = item.get("expiresAt")? else { return None };
    let expires_at = expires_at.parse().ok().filter(|at| now.saturating_sub(*at) > OVERDUE)?;
    Some((key, expires_at))
}

/// Deletes expired events, each conditional on its `expiresAt`. Failures are retried after the next list.
pub(crate) async fn remove(store: Arc<dyn Store>, late: Vec<(RecordId, i64)>) {
    for (key, expires_at) in late {
        let write = Write::delete(key, Guard::ExpiresAt(expires_at));
        if let Err(error) = store.write(&write).await {
            tracing::debug!(key = %write.key, %error, "an old event was not removed");
        }
    }
}

/// Writes events to the history table and returns whether all of them were written. If not, they are written to the
/// yard's table.
async fn kept(history: Option<&(HistoryTable, Backlog)>, batch: &[Item]) -> bool {
    let Some((table, _)) = history.filter(|(table, backlog)| table.events && backlog.is_there()) else {
        return false;
    };
    let lines: Option<Vec<Item>> =
        batch.iter().map(|item| Some(HistoryLine::of_event(item)?.to_item(table.keep))).collect();
    match lines {
        Some(lines) => table.store.append(&lines).await == Ok(0),
        None => false,
    }
}

async fn write(
    store: Arc<dyn Store>,
    history: Option<(HistoryTable, Backlog)>,
    metrics: Metrics,
    mut waiting: mpsc::Receiver<Item>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(first) = waiting.recv().await {
        batch.push(first);
        let linger = tokio::time::sleep(LINGER);
        tokio::pin!(linger);
        while batch.len() < BATCH {
            tokio::select! {
                biased;
                more = waiting.recv() => match more {
                    Some(more) => batch.push(more),
                    None => break,
                },
                () = &mut linger => break,
            }
        }
        if !kept(history.as_ref(), &batch).await {
            let dropped = store.append(&batch).await.unwrap_or(batch.len());
            metrics.events_dropped(dropped);
        }
        batch.clear();
    }
}
