//! Listens to a bell while this operator holds the lease. A bell that fails is tried ever more rarely, and each failure
//! is reported once.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::controller::ordered_watch;
use crate::ports::QueueError;

/// A wait without a ring lasts longer than this, unless the service does not wait.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// First pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
pub(super) const PAUSE_MOST: Duration = Duration::from_secs(300);

/// A bell, with the action of its rings.
#[async_trait]
pub(super) trait Listener: Send {
    /// Waits a while for rings, acts on them, and returns whether there were any.
    async fn hear(&mut self) -> Result<bool, QueueError>;
    /// Logs a failure.
    fn report(&self, error: &QueueError);
}

/// Listens until stopped.
pub(super) async fn listen(
    mut listener: impl Listener,
    mut lease: ordered_watch::Receiver<Option<u64>>,
    shutdown: CancellationToken,
) {
    let listening = async {
        let mut pause = PAUSE;
        let mut reported: Option<QueueError> = None;
        while lease.until(Option::is_some).await.is_ok() {
            let begun = Instant::now();
            match listener.hear().await {
                Ok(heard) => {
                    (pause, reported) = (PAUSE, None);
                    if !heard && begun.elapsed() < SHORT {
                        tokio::time::sleep(SHORT).await;
                    }
                }
                Err(error) => {
                    if reported.as_ref() != Some(&error) {
                        listener.report(&error);
                    }
                    reported = Some(error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MOST);
                }
            }
        }
    };
    let _ = shutdown.run_until_cancelled(listening).await;
}
