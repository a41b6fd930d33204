//! What EC2 says of machines from outside, read by whoever holds the lease. A message is acknowledged once nothing of
//! it remains to be done, so that what an operator had received when it died comes to its successor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, QueueOutcome};
use crate::ports::{Notices, QueueError, Told};

/// First pause after a receive that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// Receives notices until told to stop.
pub(super) async fn run(
    notices: Arc<dyn Notices>,
    metrics: Metrics,
    mut lease: watch::Receiver<Option<u64>>,
    tell: mpsc::Sender<Vec<Told>>,
    shutdown: CancellationToken,
) {
    let receiving = async {
        let mut pause = PAUSE;
        loop {
            if lease.wait_for(Option::is_some).await.is_err() {
                return;
            }
            match notices.receive().await {
                Ok(batch) => {
                    pause = PAUSE;
                    for why in &batch.unreadable {
                        metrics.queue_message(QueueOutcome::Unreadable);
                        tracing::warn!(%why, "a notice cannot be read; it is left to the queue's dead letters");
                    }
                    if !batch.told.is_empty() && tell.send(batch.told).await.is_err() {
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
