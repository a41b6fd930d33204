//! Events are written in batches, off the path: a full queue or a throttled table drops them, and counts what it drops.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::model::{Event, Item, Record};
use crate::ports::Store;

/// Most events in one batch (DynamoDB, `BatchWriteItem`).
const BATCH: usize = 25;
/// Most events that wait to be written.
const WAITING: usize = 10_000;
/// How long a batch waits for more.
const LINGER: Duration = Duration::from_millis(100);

/// Where events go.
#[derive(Clone)]
pub(super) struct Events {
    queue: mpsc::Sender<Item>,
    metrics: Metrics,
}

impl Events {
    /// Where events go, and the writer to run; it ends when the last `Events` is gone and everything is written.
    pub(super) fn start(store: Arc<dyn Store>, metrics: Metrics) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(WAITING);
        let writer = write(store, metrics.clone(), waiting);
        (Self { queue, metrics }, writer)
    }

    /// Hands an event over; never waits.
    pub(super) fn tell(&self, event: &Event) {
        if self.queue.try_send(event.to_item()).is_err() {
            self.metrics.events_dropped(1);
        }
    }
}

async fn write(store: Arc<dyn Store>, metrics: Metrics, mut waiting: mpsc::Receiver<Item>) {
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(first) = waiting.recv().await {
        batch.push(first);
        let linger = tokio::time::sleep(LINGER);
        tokio::pin!(linger);
        while batch.len() < BATCH {
            tokio::select! {
                more = waiting.recv() => match more {
                    Some(more) => batch.push(more),
                    None => break,
                },
                () = &mut linger => break,
            }
        }
        let dropped = store.append(&batch).await.unwrap_or(batch.len());
        metrics.events_dropped(dropped);
        batch.clear();
    }
}
