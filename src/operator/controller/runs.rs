//! Is the workflow run over whose request still holds machines? A run that was cancelled, or whose runner died, never
//! gets to its release step; its request is released by the operator (`releasedBy`). Only GitHub's word that the run is
//! completed, or that a later attempt has begun, is an end: a run it does not know says nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::model::{Event, Phase, Reading, ReleasedBy, Request, RequestKey, Versioned, read};
use crate::ports::github::RunState;
use crate::ports::{Clock, Entropy, GitHub, GitHubError, Store, StoreError};

use super::events::Events;

/// How often is looked whether a run is due.
const TICK: Duration = Duration::from_secs(1);
/// How long nobody is asked after GitHub gave no answer, or refused.
const REST: Duration = Duration::from_secs(30);
/// How often a request is read again because somebody wrote it meanwhile.
const ATTEMPTS: u32 = 5;

/// The requests whose runs matter: they hold machines, or are about to, and nobody released them.
pub(super) type Live = BTreeSet<RequestKey>;

/// Whether a request's run is to be watched.
pub(super) fn watched(request: &Request) -> bool {
    let holds = match request.phase() {
        Phase::Fulfilling | Phase::Ready => true,
        Phase::Pending | Phase::Releasing | Phase::Released | Phase::Failed => false,
    };
    holds && !request.is_released() && !request.intent.trial && number(&request.id).is_some()
}

/// GitHub numbers its runs; another name is a run of somebody else.
fn number(id: &RequestKey) -> Option<u64> {
    id.run_id.as_str().parse().ok()
}

/// A run as GitHub knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    owner: String,
    name: String,
    number: u64,
}

impl Run {
    fn of(id: &RequestKey) -> Option<Self> {
        let repository = &id.repository;
        let (owner, name) = (repository.owner().to_owned(), repository.name().to_owned());
        Some(Self { owner, name, number: number(id)? })
    }

    /// Where in the interval it is asked about first, so that a hundred runs are not asked about at once.
    fn offset(&self, every: Duration) -> Duration {
        let spread = self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
        every.mul_f64(spread as f64 / f64::from(1_u32 << 20))
    }
}

/// Whether that attempt of the run is over, by what GitHub says of the run.
fn over(state: RunState, attempt: u32) -> bool {
    match state {
        RunState::Completed { attempt: ended } => attempt <= ended,
        RunState::Active { attempt: current } => attempt < current,
    }
}

/// Asks GitHub about the runs of live requests.
pub(super) struct Watcher {
    pub(super) github: Arc<dyn GitHub>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) events: Events,
    /// How often each run is asked about.
    pub(super) every: Duration,
    pub(super) lease: watch::Receiver<Option<u64>>,
    pub(super) live: watch::Receiver<Live>,
}

impl Watcher {
    /// Asks until told to stop; only the holder of the lease does, since GitHub counts calls.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut due: BTreeMap<Run, Duration> = BTreeMap::new();
        let mut rest = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            if self.lease.borrow().is_none() {
                due.clear();
                continue;
            }
            let runs = self.runs();
            let now = self.clock.elapsed();
            due.retain(|run, _| runs.contains_key(run));
            for run in runs.keys().filter(|run| !due.contains_key(run)).cloned().collect::<Vec<_>>() {
                let first = now + run.offset(self.every);
                due.insert(run, first);
            }
            if now < rest {
                continue;
            }
            let ready: Vec<Run> =
                due.iter().filter(|(_, at)| **at <= now).map(|(run, _)| run.clone()).collect();
            for run in ready {
                let looked = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    looked = self.look(&run, &runs[&run]) => looked,
                };
                match looked {
                    Ok(()) => drop(due.insert(run, self.clock.elapsed() + self.every)),
                    Err(pause) => {
                        rest = self.clock.elapsed() + pause;
                        break;
                    }
                }
            }
        }
    }

    /// The live requests by their run; two requests of a run cost one question.
    fn runs(&self) -> BTreeMap<Run, Vec<RequestKey>> {
        let mut runs: BTreeMap<Run, Vec<RequestKey>> = BTreeMap::new();
        for id in self.live.borrow().iter() {
            if let Some(run) = Run::of(id) {
                runs.entry(run).or_default().push(id.clone());
            }
        }
        runs
    }

    /// Asks about one run and releases what is over; an error is how long to leave GitHub alone.
    async fn look(&self, run: &Run, requests: &[RequestKey]) -> Result<(), Duration> {
        let state = match self.github.run(&run.owner, &run.name, run.number).await {
            Ok(state) => state,
            Err(GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after }) => {
                return Err(retry_after);
            }
            Err(error @ (GitHubError::Unreachable(_) | GitHubError::Denied(_))) => {
                tracing::warn!(run = run.number, %error, "where a run stands could not be learnt");
                return Err(REST);
            }
            Err(
                error @ (GitHubError::NotFound(_)
                | GitHubError::NameTaken(_)
                | GitHubError::Busy(_)
                | GitHubError::Invalid(_)),
            ) => {
                tracing::debug!(run = run.number, %error, "a run is not known, which is no end");
                return Ok(());
            }
        };
        for id in requests.iter().filter(|id| over(state, id.attempt)) {
            if let Err(error) = self.release(id, state).await {
                tracing::warn!(request = %id, %error, "its run is over and it could not be released");
            }
        }
        Ok(())
    }

    /// Writes into the status that its run is over, on the version that was read: the operator's rules do the rest.
    /// What the workflow wrote stays as it is.
    async fn release(&self, id: &RequestKey, state: RunState) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let Some(item) = self.store.get(&Request::key_of(id)).await? else { return Ok(()) };
            // What cannot be read is nobody's to release; and somebody else may have released it first.
            let Reading::Record(request) = read::<Request>(&item) else { return Ok(()) };
            if !watched(&request) {
                return Ok(());
            }
            let now = self.clock.now();
            let mut next = request.clone();
            next.status.released_by = Some(ReleasedBy::RunEnded);
            next.advance(now);
            match self.store.write(&next.replacing(&request)).await {
                Ok(_) => {
                    self.report_end(id, state, now);
                    return Ok(());
                }
                // Written meanwhile: read again.
                Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // It is asked about again soon.
        Err(StoreError::Contended)
    }

    fn report_end(&self, id: &RequestKey, state: RunState, now: Timestamp) {
        let mut event = Event::new(&Request::key_of(id), self.entropy.hex(), now, "operator");
        event.reason = "RunEnded".into();
        event.message = match state {
            RunState::Completed { attempt } => {
                format!("{id}: GitHub says that attempt {attempt} of the run is completed; released")
            }
            RunState::Active { attempt } => {
                format!(
                    "{id}: GitHub says that the run is at attempt {attempt}, so this one is over; released"
                )
            }
        };
        event.to = Some(ReleasedBy::RunEnded.to_string());
        tracing::info!(request = %id, reason = %event.reason, message = %event.message, "released");
        self.events.send(&event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_over_when_it_or_a_later_one_is_completed_or_a_later_one_runs() {
        assert!(over(RunState::Completed { attempt: 2 }, 2) && over(RunState::Completed { attempt: 2 }, 1));
        assert!(!over(RunState::Completed { attempt: 1 }, 2), "the list lags behind a re-run");
        assert!(over(RunState::Active { attempt: 3 }, 2));
        assert!(!over(RunState::Active { attempt: 2 }, 2) && !over(RunState::Active { attempt: 1 }, 2));
    }

    #[test]
    fn runs_are_asked_about_all_over_the_interval() {
        let every = Duration::from_secs(60);
        let of = |number| Run { owner: "o".into(), name: "r".into(), number }.offset(every);
        let seconds: BTreeSet<u64> = (9_000_000_000..9_000_000_060).map(|n| of(n).as_secs()).collect();
        assert!(seconds.len() > 40 && seconds.iter().all(|second| *second < 60), "{seconds:?}");
    }
}
