//! Waits for rings of the doorbell while this operator holds the lease, and makes the watch of the table look at once.
//! The stream returns a write some time after it was made, so a ring is followed by several looks in short succession.

use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::listen::{Listener, listen};
use crate::controller::{Bell, ordered_watch};
use crate::ports::QueueError;

/// The pauses after each look that follows a ring. However often it rings, a shard is read at most ten times a second,
/// as by two readers at the watch's own interval.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(150),
];
/// Listens until stopped.
pub(crate) async fn run(
    bell: Bell,
    lease: ordered_watch::Receiver<Option<u64>>,
    shutdown: CancellationToken,
) {
    listen(bell, lease, shutdown).await;
}

#[async_trait]
impl Listener for Bell {
    async fn hear(&mut self) -> Result<bool, QueueError> {
        let rung = self.port.rung().await?;
        if rung {
            for after in PAUSES {
                self.look.send_replace(());
                tokio::time::sleep(after).await;
            }
        }
        Ok(rung)
    }

    /// Only time is lost: the watch sees every intent at its next look.
    fn report(&self, error: &QueueError) {
        match error {
            QueueError::Missing => tracing::info!(
                "there is no queue of the doorbell; intents are seen at the next look at the stream; `runyard init` makes it"
            ),
            QueueError::NoService(why) => tracing::info!(%why, "no doorbell: no SQS there"),
            QueueError::Throttled
            | QueueError::Unreachable(_)
            | QueueError::Denied(_)
            | QueueError::Invalid(_) => tracing::warn!(%error, "the doorbell cannot be heard"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::super::listen::{PAUSE_MOST, SHORT};
    use super::*;
    use crate::ports::Doorbell;

    /// A bell that responds as scripted, each time after a second, and then waits forever.
    #[derive(Default)]
    struct Scripted {
        answers: Mutex<VecDeque<Result<bool, QueueError>>>,
        calls: Mutex<u32>,
    }

    #[async_trait]
    impl Doorbell for Scripted {
        async fn find(&self) -> Result<(), QueueError> {
            Ok(())
        }

        async fn ring(&self) -> Result<(), QueueError> {
            Ok(())
        }

        async fn rung(&self) -> Result<bool, QueueError> {
            *self.calls.lock().unwrap() += 1;
            let answer = self.answers.lock().unwrap().pop_front();
            tokio::time::sleep(if answer.is_some() { SHORT } else { SHORT * 20 }).await;
            answer.unwrap_or(Ok(false))
        }
    }

    struct Listener {
        bell: Arc<Scripted>,
        looks: watch::Receiver<()>,
        lease: ordered_watch::Sender<Option<u64>>,
        stop: CancellationToken,
    }

    fn listening(answers: impl IntoIterator<Item = Result<bool, QueueError>>) -> Listener {
        let bell =
            Arc::new(Scripted { answers: Mutex::new(answers.into_iter().collect()), ..Scripted::default() });
        let ((look, looks), (lease, held)) = (watch::channel(()), ordered_watch::channel(None));
        let stop = CancellationToken::new();
        tokio::spawn(run(Bell { port: bell.clone(), look }, held, stop.clone()));
        Listener { bell, looks, lease, stop }
    }

    impl Listener {
        /// Counts the looks within this time, at most one per millisecond.
        async fn looks_within(&mut self, time: Duration) -> usize {
            let (until, mut looks) = (Instant::now() + time, 0);
            while tokio::time::timeout_at(until, self.looks.changed()).await.is_ok_and(|seen| seen.is_ok()) {
                looks += 1;
            }
            looks
        }

        fn calls(&self) -> u32 {
            *self.bell.calls.lock().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ring_is_followed_by_five_looks_and_only_the_leader_listens() {
        let mut listener = listening([Ok(true)]);
        assert_eq!(listener.looks_within(SHORT * 60).await, 0);
        assert_eq!(listener.calls(), 0, "a standby leaves the rings to the leader");
        listener.lease.set(Some(1));
        assert_eq!(listener.looks_within(SHORT * 60).await, PAUSES.len());
        listener.lease.set(None);
        tokio::time::sleep(SHORT * 30).await;
        let calls = listener.calls();
        tokio::time::sleep(SHORT * 600).await;
        assert_eq!(listener.calls(), calls, "nor one that was the leader");
        listener.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_hour_of_the_doorbell_is_180_calls_and_no_look() {
        let mut listener = listening([]);
        listener.lease.set(Some(1));
        assert_eq!(listener.looks_within(Duration::from_secs(3599)).await, 0);
        assert_eq!(listener.calls(), 180);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_doorbell_is_tried_ever_more_rarely() {
        let mut listener = listening((0..50).map(|_| Err(QueueError::Missing)).chain([Ok(true)]));
        listener.lease.set(Some(1));
        assert_eq!(listener.looks_within(Duration::from_secs(3600)).await, 0);
        assert!((10..25).contains(&listener.calls()), "{}", listener.calls());
        assert_eq!(listener.looks_within(PAUSE_MOST * 60).await, PAUSES.len(), "one that is made is heard");
    }
}
