//! Receives EC2's notices about machines while this operator holds the lease. A message is acknowledged once nothing
//! remains to be done about it, so that the successor of a dead operator receives it again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, QueueOutcome};
use crate::ports::{Delivery, Notices, QueueError};

use crate::controller::ordered_watch;

/// First pause after a receive that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// Receives notices until stopped.
pub(crate) async fn run(
    notices: Arc<dyn Notices>,
    metrics: Metrics,
    mut lease: ordered_watch::Receiver<Option<u64>>,
    sender: mpsc::Sender<Vec<Delivery>>,
    shutdown: CancellationToken,
) {
    let receiving = async {
        let mut pause = PAUSE;
        loop {
            if lease.until(Option::is_some).await.is_err() {
                return;
            }
            match notices.receive().await {
                Ok(batch) => {
                    pause = PAUSE;
                    for why in &batch.unreadable {
                        metrics.queue_message(QueueOutcome::Unreadable);
                        tracing::warn!(%why, "a notice cannot be read; it is left to the queue's dead letters");
                    }
                    if !batch.deliveries.is_empty() && sender.send(batch.deliveries).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    report(&error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MOST);
                }
            }
        }
    };
    let _ = shutdown.run_until_cancelled(receiving).await;
}

fn report(error: &QueueError) {
    match error {
        QueueError::Missing => {
            tracing::warn!(
                "the queue of notices (interruptions.queue) is not there; machines are known to be taken back only when they are gone"
            );
        }
        QueueError::NoService(_)
        | QueueError::Throttled
        | QueueError::Unreachable(_)
        | QueueError::Denied(_)
        | QueueError::Invalid(_) => tracing::warn!(%error, "no notices could be received"),
    }
}
