//! Waits, while this operator holds the lease, for GitHub's word that jobs were queued, and passes on the repositories.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::listen::{Listener, listen};
use crate::controller::ordered_watch;
use crate::model::Repository;
use crate::ports::{JobBell, QueueError};

/// Listens until stopped. Rings that come faster than they can be passed on are dropped.
pub(crate) async fn run(
    bell: Arc<dyn JobBell>,
    lease: ordered_watch::Receiver<Option<u64>>,
    rings: mpsc::Sender<Repository>,
    shutdown: CancellationToken,
) {
    listen(QueuedJobs { bell, rings }, lease, shutdown).await;
}

struct QueuedJobs {
    bell: Arc<dyn JobBell>,
    rings: mpsc::Sender<Repository>,
}

#[async_trait]
impl Listener for QueuedJobs {
    async fn hear(&mut self) -> Result<bool, QueueError> {
        let repositories = self.bell.queued().await?;
        let heard = !repositories.is_empty();
        for repository in repositories {
            let _ = self.rings.try_send(repository);
        }
        Ok(heard)
    }

    /// Only time is lost: the next lookup finds the jobs.
    fn report(&self, error: &QueueError) {
        match error {
            QueueError::Missing | QueueError::NoService(_) => {
                tracing::debug!(%error, "nobody passes on that jobs were queued; lookups find them");
            }
            QueueError::Throttled
            | QueueError::Unreachable(_)
            | QueueError::Denied(_)
            | QueueError::Invalid(_) => {
                tracing::warn!(%error, "the queue of GitHub's queued jobs cannot be read")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::super::listen::SHORT;
    use super::*;

    struct Scripted(Mutex<VecDeque<Result<Vec<Repository>, QueueError>>>);

    #[async_trait]
    impl JobBell for Scripted {
        async fn queued(&self) -> Result<Vec<Repository>, QueueError> {
            let answer = self.0.lock().unwrap().pop_front();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rings_are_passed_on_to_the_leader_and_a_failure_ends_nothing() {
        let web: Repository = "acme/web".parse().unwrap();
        let said = [Err(QueueError::Missing), Ok(vec![]), Ok(vec![web.clone()])];
        let bell = Arc::new(Scripted(Mutex::new(said.into_iter().collect())));
        let ((lease, held), (rings, mut rung)) = (ordered_watch::channel(None), mpsc::channel(1));
        let stop = CancellationToken::new();
        tokio::spawn(run(bell.clone(), held, rings, stop.clone()));
        tokio::time::sleep(SHORT * 60).await;
        assert_eq!(bell.0.lock().unwrap().len(), 3, "a standby leaves the rings to the leader");
        lease.set(Some(1));
        assert_eq!(rung.recv().await, Some(web));
        stop.cancel();
    }
}
