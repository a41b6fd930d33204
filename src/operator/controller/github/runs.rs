//! Watches the workflow runs of requests that hold machines or wait for some. A run that was cancelled, or whose runner
//! died, never reaches its release step; the operator then releases its request (`releasedBy`). Only a completed run or
//! a later attempt is an end; a run that GitHub does not find is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::model::{Event, Phase, Reading, ReleasedBy, Request, RequestKey, Versioned, read};
use crate::ports::github::{RunState, Waiting};
use crate::ports::{Clock, Entropy, GitHub, GitHubError, Store, StoreError};

use super::rests::Rests;
use crate::controller::ordered_watch;
use crate::controller::records::events::Events;

/// The interval at which due runs are searched.
const TICK: Duration = Duration::from_secs(1);
/// The pause of an account after GitHub failed or refused a call.
const REST: Duration = Duration::from_secs(30);
/// How often a request is read again because another writer changed it.
const ATTEMPTS: u32 = 5;

/// How long a request waits before its run is watched although it holds no machine yet: most wait for less.
const FIRST: SignedDuration = SignedDuration::from_mins(1);

/// The requests whose runs are watched: they hold machines or have waited for some for a while, and are not released.
pub(crate) type Live = BTreeSet<RequestKey>;

/// Returns whether a request's run is to be watched.
pub(crate) fn watched(request: &Request, now: Timestamp) -> bool {
    let live = match request.phase() {
        Phase::Fulfilling | Phase::Ready => true,
        Phase::Pending => request.status.accepted_at.is_some_and(|since| now.duration_since(since) >= FIRST),
        Phase::Releasing | Phase::Released | Phase::Failed => false,
    };
    live && !request.is_released() && request.has_run_at_github()
}

/// Parses GitHub's run id, which is a number; any other id belongs to another system.
pub(crate) fn number(id: &RequestKey) -> Option<u64> {
    id.run_id.as_str().parse().ok()
}

/// A run at GitHub.
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

    fn repository(&self) -> (String, String) {
        (self.owner.clone(), self.name.clone())
    }

    /// Returns the offset of its first lookup in the interval, so that a hundred runs are not looked up at once.
    fn offset(&self, every: Duration) -> Duration {
        let spread = self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
        every.mul_f64(spread as f64 / f64::from(1_u32 << 20))
    }
}

/// The time of each run's next lookup.
#[derive(Default)]
struct Schedule {
    due: BTreeMap<Run, Duration>,
    /// The accounts that are paused after a lookup failed.
    rests: Rests,
    /// The repositories, by owner and name, whose last lookup failed.
    failed: BTreeSet<(String, String)>,
}

impl Schedule {
    /// Schedules these runs and drops all others.
    fn follow(&mut self, runs: &BTreeMap<Run, Vec<RequestKey>>, every: Duration, now: Duration) {
        self.rests.forget(now);
        self.due.retain(|run, _| runs.contains_key(run));
        let repositories: BTreeSet<_> = runs.keys().map(Run::repository).collect();
        self.failed.retain(|repository| repositories.contains(repository));
        for run in runs.keys() {
            self.due.entry(run.clone()).or_insert_with(|| now + run.offset(every));
        }
    }

    /// Returns the runs that are due, the longest overdue first. Those of a repository that failed come last: a failure
    /// ends the turn of its account, and would hold up the account's other repositories.
    fn ready(&self, now: Duration) -> Vec<Run> {
        let ready = self.due.iter().filter(|(_, at)| **at <= now);
        let mut ready: Vec<_> =
            ready.map(|(run, at)| (self.failed.contains(&run.repository()), *at, run.clone())).collect();
        ready.sort();
        ready.into_iter().map(|(_, _, run)| run).collect()
    }

    /// Records the result of a lookup: its interval, or as an error the pause of its account.
    fn looked(&mut self, run: Run, looked: Result<Duration, Duration>, now: Duration) {
        let wait = match looked {
            Ok(every) => {
                self.failed.remove(&run.repository());
                every
            }
            Err(pause) => {
                self.failed.insert(run.repository());
                self.rests.begin(&run.owner, now + pause);
                pause
            }
        };
        self.due.insert(run, now + wait);
    }
}

/// Returns whether that attempt of the run is over, by GitHub's response.
fn over(state: RunState, attempt: u32) -> bool {
    match state {
        RunState::Completed { attempt: ended } => attempt <= ended,
        RunState::Active { attempt: current } => attempt < current,
    }
}

/// Looks up the runs of live requests at GitHub.
pub(crate) struct Watcher {
    pub(crate) github: Arc<dyn GitHub>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) events: Events,
    /// The interval of lookups of each run.
    pub(crate) every: Duration,
    pub(crate) lease: ordered_watch::Receiver<Option<u64>>,
    pub(crate) live: watch::Receiver<Live>,
}

/// The remaining work for the workflow name of a request.
enum Unnamed {
    /// It is to be written.
    Ready(Box<Request>),
    /// It is too early.
    Waits,
    /// Nothing remains.
    Never,
}

impl Watcher {
    /// Looks runs up until stopped. Only the leader does, because GitHub limits calls.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let mut schedule = Schedule::default();
        // Requests whose workflow is stored.
        let mut named = Live::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            if self.lease.get().is_none() {
                schedule.due.clear();
                continue;
            }
            let runs = self.runs();
            named.retain(|id| self.live.borrow().contains(id));
            let now = self.clock.elapsed();
            schedule.follow(&runs, self.every, now);
            for run in schedule.ready(now) {
                if schedule.rests.has(&run.owner, self.clock.elapsed()) {
                    continue;
                }
                let looked = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    looked = self.look(&run, &runs[&run], &mut named) => looked,
                };
                schedule.looked(run, looked.map(|()| self.every), self.clock.elapsed());
            }
        }
    }

    /// Returns the live requests by their run; two requests of a run cost one lookup.
    fn runs(&self) -> BTreeMap<Run, Vec<RequestKey>> {
        let mut runs: BTreeMap<Run, Vec<RequestKey>> = BTreeMap::new();
        for id in self.live.borrow().iter() {
            if let Some(run) = Run::of(id) {
                runs.entry(run).or_default().push(id.clone());
            }
        }
        runs
    }

    /// Looks one run up, stores its workflow, and releases its requests if it is over; the error is the pause of its
    /// account.
    async fn look(&self, run: &Run, requests: &[RequestKey], named: &mut Live) -> Result<(), Duration> {
        let state = match self.github.run(&run.owner, &run.name, run.number, Waiting::Nobody).await {
            Ok(state) => state,
            Err(GitHubError::Throttled { retry_after } | GitHubError::Deferred { retry_after }) => {
                return Err(retry_after);
            }
            Err(error @ (GitHubError::Unreachable(_) | GitHubError::Denied(_))) => {
                tracing::warn!(run = run.number, %error, "the state of a run could not be read");
                return Err(REST);
            }
            Err(
                error @ (GitHubError::NotFound(_)
                | GitHubError::NameTaken(_)
                | GitHubError::Busy(_)
                | GitHubError::Invalid(_)),
            ) => {
                tracing::debug!(run = run.number, %error, "GitHub does not know a run; this does not end its request");
                return Ok(());
            }
        };
        for id in requests.iter().filter(|id| over(state, id.attempt)) {
            if let Err(error) = self.release(id, state).await {
                tracing::warn!(request = %id, %error, "a request whose run is over could not be released");
            }
        }
        let unnamed: Vec<&RequestKey> =
            requests.iter().filter(|id| !over(state, id.attempt) && !named.contains(id)).collect();
        if !unnamed.is_empty() {
            self.note_workflow(run, &unnamed, named).await;
        }
        Ok(())
    }

    /// Writes the workflow of a run into its ready requests; waiting requests are not changed, and GitHub is asked only
    /// once one is ready. Failures are retried with the next lookup.
    async fn note_workflow(&self, run: &Run, requests: &[&RequestKey], named: &mut Live) {
        let mut ready = Vec::new();
        for id in requests {
            match self.unnamed(id).await {
                Ok(Unnamed::Ready(request)) => ready.push(request),
                Ok(Unnamed::Waits) => {}
                Ok(Unnamed::Never) => drop(named.insert((*id).clone())),
                Err(error) => tracing::debug!(request = %id, %error, "it cannot be read"),
            }
        }
        if ready.is_empty() {
            return;
        }
        let workflow = match self.github.run_workflow(&run.owner, &run.name, run.number).await {
            Ok(workflow) => workflow,
            Err(error) => {
                tracing::debug!(run = run.number, %error, "the workflow of a run could not be read");
                return;
            }
        };
        for request in ready {
            let mut next = request.as_ref().clone();
            next.status.workflow = Some(workflow.clone()).filter(|workflow| !workflow.is_empty());
            let written = if next.status.workflow.is_some() {
                next.advance(self.clock.now());
                self.store.write(&next.replacing(&request)).await.map(drop)
            } else {
                Ok(())
            };
            match written {
                Ok(()) => drop(named.insert(request.id.clone())),
                // Another writer changed it meanwhile.
                Err(StoreError::Refused { .. }) => {}
                Err(error) => tracing::debug!(request = %request.id, %error, "its workflow was not written"),
            }
        }
    }

    /// Returns whether the workflow of a request is to be written.
    async fn unnamed(&self, id: &RequestKey) -> Result<Unnamed, StoreError> {
        let Some(item) = self.store.get(&Request::key_of(id)).await? else { return Ok(Unnamed::Never) };
        let Reading::Record(request) = read::<Request>(&item) else { return Ok(Unnamed::Waits) };
        Ok(match request.phase() {
            _ if request.status.workflow.is_some() => Unnamed::Never,
            Phase::Ready => Unnamed::Ready(Box::new(request)),
            Phase::Pending | Phase::Fulfilling | Phase::Releasing | Phase::Released | Phase::Failed => {
                Unnamed::Waits
            }
        })
    }

    /// Writes into the status that the run is over, on the version that was read; the decisions then release the
    /// request. The intent remains unchanged.
    async fn release(&self, id: &RequestKey, state: RunState) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let Some(item) = self.store.get(&Request::key_of(id)).await? else { return Ok(()) };
            // An unreadable request is ignored, and another writer may have released it first.
            let Reading::Record(request) = read::<Request>(&item) else { return Ok(()) };
            let now = self.clock.now();
            if !watched(&request, now) {
                return Ok(());
            }
            let mut next = request.clone();
            next.status.released_by = Some(ReleasedBy::RunEnded);
            next.advance(now);
            match self.store.write(&next.replacing(&request)).await {
                Ok(_) => {
                    self.report_end(id, state, now);
                    return Ok(());
                }
                // Another writer changed it; it is read again.
                Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // It is looked up again soon.
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
    use runyard_fakes::{FakeGitHub, MemoryStore, SeededEntropy, TokioClock};

    use super::*;

    #[test]
    fn an_attempt_is_over_when_it_or_a_later_one_is_completed_or_a_later_one_runs() {
        assert!(over(RunState::Completed { attempt: 2 }, 2) && over(RunState::Completed { attempt: 2 }, 1));
        assert!(!over(RunState::Completed { attempt: 1 }, 2), "the list lags behind a re-run");
        assert!(over(RunState::Active { attempt: 3 }, 2));
        assert!(!over(RunState::Active { attempt: 2 }, 2) && !over(RunState::Active { attempt: 1 }, 2));
    }

    const EVERY: Duration = Duration::from_secs(60);

    /// Returns a request of the first attempt of a run.
    fn item(repository: &str, run: u64, phase: &str, version: u64) -> crate::model::Item {
        let fields = serde_json::json!({
            "pk": format!("request#{repository}#{run}"), "sk": "request#default#1", "kind": "request",
            "version": version, "runId": run.to_string(), "attempt": 1, "repository": repository,
            "name": "default", "resourceClass": "small", "count": 1, "desired": "provisioned", "generation": 1,
            "phase": phase, "instances": ["i-1"],
        });
        let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
        item.into_inner().into_iter().collect()
    }

    fn id(item: &crate::model::Item) -> RequestKey {
        Request::id_of(&crate::model::RecordId::of(item).unwrap()).unwrap()
    }

    /// Returns a watcher of these requests, with its GitHub and its table.
    fn watcher(live: Live) -> (FakeGitHub, MemoryStore, Watcher) {
        let clock = Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH));
        let (github, store) = (FakeGitHub::new(clock.clone()), MemoryStore::new());
        let metrics = crate::metrics::Metrics::new(clock.clone());
        let watcher = Watcher {
            github: Arc::new(github.clone()),
            store: Arc::new(store.clone()),
            clock,
            entropy: Arc::new(SeededEntropy::new(1)),
            events: Events::start(Arc::new(store.clone()), None, metrics).0,
            every: EVERY,
            lease: ordered_watch::channel(Some(1)).1,
            live: watch::channel(live).1,
        };
        (github, store, watcher)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_ready_gets_the_workflow_of_its_run_once() {
        let (github, store, watcher) = watcher(Live::new());
        github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
        store.put(item("acme/web", 42, "Fulfilling", 3));
        let id = id(&item("acme/web", 42, "Ready", 1));
        let (run, mut named) = (Run::of(&id).unwrap(), Live::new());
        let written = |store: &MemoryStore| match read::<Request>(&store.records()[0]) {
            Reading::Record(request) => (request.status.workflow, request.version),
            Reading::Newer { .. } | Reading::Unreadable(_) => panic!("it can be read"),
        };
        watcher.look(&run, std::slice::from_ref(&id), &mut named).await.unwrap();
        assert_eq!(written(&store), (None, 3), "who still waits for machines is not disturbed");
        store.put(item("acme/web", 42, "Ready", 4));
        for _ in 0..2 {
            watcher.look(&run, std::slice::from_ref(&id), &mut named).await.unwrap();
            assert_eq!(written(&store), (Some(".github/workflows/build.yml".into()), 5));
        }
        assert_eq!(github.calls()["run_workflow"], 1, "asked when it is ready, and not again");
    }

    /// Returns a running watcher of one ready request of each of these runs; all of them are active.
    fn watching(runs: &[(&str, u64)]) -> (FakeGitHub, MemoryStore, tokio_util::sync::DropGuard) {
        let items: Vec<_> = runs.iter().map(|(repository, run)| item(repository, *run, "Ready", 1)).collect();
        let (github, store, watcher) = watcher(items.iter().map(id).collect());
        items.into_iter().for_each(|item| store.put(item));
        for (repository, run) in runs {
            let (owner, name) = repository.split_once('/').unwrap();
            github.set_run(owner, name, *run, RunState::Active { attempt: 1 });
        }
        let shutdown = CancellationToken::new();
        tokio::spawn(watcher.run(shutdown.clone()));
        (github, store, shutdown.drop_guard())
    }

    fn released(store: &MemoryStore, run: u64) -> bool {
        let ended = |item| match read::<Request>(item) {
            Reading::Record(one) => number(&one.id) == Some(run) && one.status.released_by.is_some(),
            Reading::Newer { .. } | Reading::Unreadable(_) => false,
        };
        store.records().iter().any(ended)
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_whose_runs_cannot_be_read_holds_up_no_other() {
        let retry_after = Duration::from_secs(300);
        for (error, pause) in [
            (GitHubError::Denied("suspended".into()), REST),
            (GitHubError::Unreachable("reset".into()), REST),
            (GitHubError::Throttled { retry_after }, retry_after),
            (GitHubError::Deferred { retry_after }, retry_after),
        ] {
            let (github, store, _running) = watching(&[("acme/web", 41), ("acme/api", 42), ("zeta/web", 43)]);
            github.outage_in("acme", Some(error.clone()));
            tokio::time::sleep(2 * EVERY).await;
            github.set_run("zeta", "web", 43, RunState::Completed { attempt: 1 });
            tokio::time::sleep(EVERY + 2 * TICK).await;
            assert!(released(&store, 43), "{error}");
            let looked = |of| github.calls_in(of).get("run").copied().unwrap_or(0);
            let looks = || ["acme/web", "acme/api"].map(looked);
            let before = looks();
            tokio::time::sleep(20 * pause).await;
            let more = [looks()[0] - before[0], looks()[1] - before[1]];
            assert!(
                more.iter().all(|more| (8..=11).contains(more)),
                "in turn, one a pause: {more:?}, {error}"
            );
            github.outage_in("acme", None);
            github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
            tokio::time::sleep(EVERY + pause + 2 * TICK).await;
            assert!(released(&store, 41), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repository_whose_runs_cannot_be_read_holds_up_no_other_of_its_account() {
        let refused = (1..=50).map(|run| ("acme/refused", run));
        let runs: Vec<_> = refused.chain([("acme/web", 99), ("acme/added", 98)]).collect();
        let (github, store, _running) = watching(&runs);
        github.outage_in("acme/refused", Some(GitHubError::Denied("Actions: read is lacking".into())));
        tokio::time::sleep(20 * EVERY).await;
        for (name, run) in [("web", 99), ("added", 98)] {
            github.set_run("acme", name, run, RunState::Completed { attempt: 1 });
        }
        tokio::time::sleep(EVERY + REST + 2 * TICK).await;
        assert!(released(&store, 99) && released(&store, 98));
        github.outage_in("acme/refused", None);
        runs.iter().for_each(|(_, run)| {
            github.set_run("acme", "refused", *run, RunState::Completed { attempt: 1 });
        });
        tokio::time::sleep(EVERY + REST + 2 * TICK).await;
        assert!((1..=50).all(|run| released(&store, run)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_is_released_when_its_run_is_over() {
        let mut waits = item("acme/web", 42, "Pending", 3);
        let since = crate::model::AttributeValue::S("1970-01-01T00:00:00Z".into());
        waits.insert("acceptedAt".into(), since);
        let (github, store, watcher) = watcher(Live::from([id(&waits)]));
        store.put(waits);
        github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
        let shutdown = CancellationToken::new();
        tokio::spawn(watcher.run(shutdown.clone()));
        let _running = shutdown.drop_guard();
        tokio::time::sleep(2 * EVERY).await;
        assert!(!released(&store, 42), "its run goes on");
        github.set_run("acme", "web", 42, RunState::Completed { attempt: 1 });
        tokio::time::sleep(EVERY + 2 * TICK).await;
        assert!(released(&store, 42));
    }

    #[test]
    fn a_request_that_waits_is_watched_after_its_first_minute() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let of = |phase: &str, accepted: Option<&str>, second: i64| {
            let mut item = item("acme/web", 42, phase, 1);
            let since = |at: &str| ("acceptedAt".to_owned(), crate::model::AttributeValue::S(at.into()));
            item.extend(accepted.map(since));
            match read::<Request>(&item) {
                Reading::Record(request) => watched(&request, at(second)),
                Reading::Newer { .. } | Reading::Unreadable(_) => panic!("it can be read"),
            }
        };
        let accepted = Some("1970-01-01T00:00:00Z");
        assert!(!of("Pending", accepted, 59) && of("Pending", accepted, 60));
        assert!(!of("Pending", None, 600), "no operator accepted it yet");
        assert!(of("Fulfilling", accepted, 0) && of("Ready", accepted, 0));
        assert!(!of("Releasing", accepted, 600) && !of("Failed", accepted, 600));
    }

    #[test]
    fn lookups_of_runs_are_spread_over_the_interval() {
        let every = Duration::from_secs(60);
        let of = |number| Run { owner: "o".into(), name: "r".into(), number }.offset(every);
        let seconds: BTreeSet<u64> = (9_000_000_000..9_000_000_060).map(|n| of(n).as_secs()).collect();
        assert!(seconds.len() > 40 && seconds.iter().all(|second| *second < 60), "{seconds:?}");
    }
}
