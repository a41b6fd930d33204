//! Rings for queued jobs, as a webhook of GitHub would: for an operator in the same process.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{JobRing, Repository};
use runyard_core::ports::{JobBell, JobRings, QueueError};
use tokio::sync::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::state::QueuedJobs;

/// The longest wait of a call.
const WAIT: Duration = Duration::from_secs(20);

/// The rings of a stand-in.
pub(super) struct StandInBell(Mutex<Receiver<QueuedJobs>>);

impl StandInBell {
    pub(super) fn new(rings: Receiver<QueuedJobs>) -> Self {
        Self(Mutex::new(rings))
    }
}

fn ring(jobs: &QueuedJobs) -> Option<JobRing> {
    Some(JobRing { repository: Repository::parse(&jobs.repository).ok()?, run: jobs.run_id })
}

#[async_trait]
impl JobBell for StandInBell {
    async fn queued(&self) -> Result<JobRings, QueueError> {
        let mut rings = self.0.lock().await;
        let mut found = BTreeSet::new();
        match tokio::time::timeout(WAIT, rings.recv()).await {
            Ok(Ok(jobs)) => found.extend(ring(&jobs)),
            // Rings that were missed are lost, as a webhook may be; the next lookup finds the jobs.
            Ok(Err(RecvError::Lagged(_))) | Err(_) => {}
            Ok(Err(RecvError::Closed)) => {
                return Err(QueueError::NoService("the stand-in GitHub has stopped".into()));
            }
        }
        loop {
            match rings.try_recv() {
                Ok(jobs) => found.extend(ring(&jobs)),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        Ok(JobRings { rings: found, ignored: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_run_whose_jobs_were_queued_is_named_once_and_lost_rings_end_nothing() {
        let (ring, rings) = tokio::sync::broadcast::channel(4);
        let bell = StandInBell::new(rings);
        let queued = |repository: &str, run_id| QueuedJobs { repository: repository.into(), run_id };
        for (repository, run) in [("acme/web", 1), ("acme/api", 2), ("acme/web", 1)] {
            ring.send(queued(repository, run)).unwrap();
        }
        let named = bell.queued().await.unwrap().rings;
        let named: Vec<_> = named.iter().map(|ring| (ring.repository.as_str(), ring.run)).collect();
        assert_eq!(named, [("acme/api", 2), ("acme/web", 1)]);
        assert_eq!(bell.queued().await, Ok(JobRings::default()), "it waits a while");
        for run in 0..10 {
            ring.send(queued("acme/web", run)).unwrap();
        }
        assert_eq!(bell.queued().await.map(|rings| rings.rings.len()), Ok(4));
        drop(ring);
        assert!(matches!(bell.queued().await, Err(QueueError::NoService(_))));
    }
}
