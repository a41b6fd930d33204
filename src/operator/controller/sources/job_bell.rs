//! Waits, while this operator holds the lease, for GitHub's word that jobs were queued, and passes it on.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::listen::{Listener, listen};
use crate::controller::ordered_watch;
use crate::metrics::Metrics;
use crate::model::JobRing;
use crate::ports::{JobBell, QueueError};

/// Listens until stopped. Rings that come faster than they are taken wait in the queue, where they expire.
pub(crate) async fn run(
    bell: Arc<dyn JobBell>,
    metrics: Metrics,
    lease: ordered_watch::Receiver<Option<u64>>,
    rings: mpsc::Sender<JobRing>,
    shutdown: CancellationToken,
) {
    listen(QueuedJobs { bell, metrics, rings }, lease, shutdown).await;
}

struct QueuedJobs {
    bell: Arc<dyn JobBell>,
    metrics: Metrics,
    rings: mpsc::Sender<JobRing>,
}

#[async_trait]
impl Listener for QueuedJobs {
    async fn hear(&mut self) -> Result<bool, QueueError> {
        let heard = self.bell.queued().await?;
        self.metrics.job_rings(heard.rings.len(), heard.ignored);
        if heard.ignored > 0 {
            tracing::debug!(messages = heard.ignored, "messages named no job of a repository");
        }
        let any = !heard.rings.is_empty() || heard.ignored > 0;
        for ring in heard.rings {
            // Nobody takes rings any more once this operator stops.
            let _ = self.rings.send(ring).await;
        }
        Ok(any)
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
    use crate::ports::JobRings;
    use crate::process::clock::SystemClock;

    struct Scripted(Mutex<VecDeque<Result<JobRings, QueueError>>>);

    #[async_trait]
    impl JobBell for Scripted {
        async fn queued(&self) -> Result<JobRings, QueueError> {
            let answer = self.0.lock().unwrap().pop_front();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    fn ring(run: u64) -> JobRing {
        JobRing { repository: "acme/web".parse().unwrap(), run }
    }

    fn metrics() -> Metrics {
        Metrics::new(Arc::new(SystemClock::new()))
    }

    fn scripted(said: impl IntoIterator<Item = Result<JobRings, QueueError>>) -> Arc<Scripted> {
        Arc::new(Scripted(Mutex::new(said.into_iter().collect())))
    }

    #[tokio::test(start_paused = true)]
    async fn rings_are_passed_on_to_the_leader_and_a_failure_ends_nothing() {
        let heard = JobRings { rings: [ring(42)].into(), ignored: 3 };
        let bell = scripted([Err(QueueError::Missing), Ok(JobRings::default()), Ok(heard)]);
        let ((lease, held), (rings, mut rung)) = (ordered_watch::channel(None), mpsc::channel(1));
        let (stop, metrics) = (CancellationToken::new(), metrics());
        tokio::spawn(run(bell.clone(), metrics.clone(), held, rings, stop.clone()));
        tokio::time::sleep(SHORT * 60).await;
        assert_eq!(bell.0.lock().unwrap().len(), 3, "a standby leaves the rings to the leader");
        lease.set(Some(1));
        assert_eq!(rung.recv().await, Some(ring(42)));
        let text = metrics.render();
        for counted in ["outcome=\"heard\"} 1", "outcome=\"ignored\"} 3"] {
            assert!(text.contains(&format!("runyard_job_rings_total{{{counted}\n")), "{text}");
        }
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn rings_that_nobody_takes_stay_in_the_queue_and_none_is_lost() {
        let many = |from: u64| Ok(JobRings { rings: (from..from + 10).map(ring).collect(), ignored: 0 });
        let bell = scripted((0..1000).map(|batch| many(batch * 10)));
        let (_lease, held) = ordered_watch::channel(Some(1));
        let (rings, mut rung) = mpsc::channel(4);
        let stop = CancellationToken::new();
        tokio::spawn(run(bell.clone(), metrics(), held, rings, stop.clone()));
        tokio::time::sleep(SHORT * 60).await;
        assert_eq!(bell.0.lock().unwrap().len(), 999, "one batch at a time");
        for expected in 0..10_000 {
            assert_eq!(rung.recv().await, Some(ring(expected)));
        }
        stop.cancel();
    }
}
