//! Which runs were re-run? "Re-run failed jobs" runs our jobs and not the job that requests their machines, so the
//! operator searches the repositories it has requests of for later attempts and requests their machines
//! ([`crate::decide::rerun`]). If it is configured, it also re-runs the failed jobs of a run whose spot machine was
//! reclaimed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::decide::{Rerun, rerun};
use crate::model::{
    ClaimId, Event, EventType, Life, Reading, Reason, RecordId, Request, RequestKey, RequestName, Uid,
    UsageClass, Versioned, read,
};
use crate::ports::github::WorkflowRun;
use crate::ports::{Clock, Entropy, GitHub, Store, StoreError};
use crate::yard::Yard;

use super::rests::Rests;
use super::runs::number;
use crate::controller::ordered_watch;
use crate::controller::records::events::Events;

mod lost;
mod unfinished;

use unfinished::{Held, Unfinished, held};

/// The minimum interval between two lookups at GitHub, however many repositories there are.
const TICK: Duration = Duration::from_secs(1);
/// The minimum interval between two questions to the loop.
const KNOWN: Duration = Duration::from_secs(5);
/// How many runs GitHub may fail at in one lookup: each may take a call's whole deadline, and other accounts wait.
const FAILURES: usize = 3;

/// A question to the loop for its requests and machines.
pub(crate) type Ask = oneshot::Sender<Known>;

/// A repository: its owner and its name, in lower case.
type Repo = (String, String);

/// The loop's requests and machines.
#[derive(Default)]
pub(crate) struct Known {
    /// The requests of the runs of each repository.
    runs: BTreeMap<Repo, BTreeMap<u64, BTreeSet<RequestKey>>>,
    /// The spot machines that were reclaimed from each request, by claim, with the time.
    lost: BTreeMap<RequestKey, Vec<(ClaimId, Timestamp)>>,
}

impl Known {
    /// Collects the requests and machines of the yard.
    pub(crate) fn of(yard: &Yard) -> Self {
        let mut known = Self::default();
        for (key, request) in yard.requests().filter(|(_, request)| !request.intent.trial) {
            let Some(run) = number(&request.id) else { continue };
            let runs = known.runs.entry(repo(key)).or_default();
            runs.entry(run).or_default().insert(key.clone());
        }
        for instance in yard.instances().map(|tracked| &tracked.instance) {
            let Life::Terminated { reason: Reason::Interrupted | Reason::Vanished, .. } = instance.life
            else {
                continue;
            };
            let claim = instance.claim.as_ref().filter(|_| instance.facts.usage_class == UsageClass::Spot);
            let of = claim.and_then(|claim| Some((claim.request.request()?, claim)));
            if let Some((key, claim)) = of.filter(|(key, _)| known.has(key)) {
                known.lost.entry(key.clone()).or_default().push((claim.id.clone(), instance.state_since));
            }
        }
        known
    }

    fn has(&self, key: &RequestKey) -> bool {
        self.of_run(key).is_some_and(|keys| keys.contains(key))
    }

    /// Returns the requests of the same run.
    fn of_run(&self, key: &RequestKey) -> Option<&BTreeSet<RequestKey>> {
        self.runs.get(&repo(key))?.get(&number(key)?)
    }
}

fn repo(key: &RequestKey) -> Repo {
    let repository = key.repository.folded();
    (repository.owner().to_owned(), repository.name().to_owned())
}

/// The object of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// The open runs of a repository.
    Repository(Repo),
    /// The run of a request that lost a spot machine.
    Lost(RequestKey),
}

impl Look {
    /// Returns the account of the lookup.
    fn owner(&self) -> &str {
        match self {
            Self::Repository((owner, _)) => owner,
            Self::Lost(key) => key.repository.owner(),
        }
    }
}

/// Searches for runs that were re-run, or should be.
pub(crate) struct Reruns {
    pub(crate) github: Arc<dyn GitHub>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) events: Events,
    /// The interval of lookups in each repository.
    pub(crate) every: Duration,
    /// Whether later attempts get machines.
    pub(crate) serve: bool,
    /// Whether failed jobs of runs that lost a spot machine are re-run.
    pub(crate) rerun_lost: bool,
    pub(crate) lease: ordered_watch::Receiver<Option<u64>>,
    pub(crate) ask: mpsc::Sender<Ask>,
    /// Finished work: reported attempts, and requests whose loss was handled.
    pub(crate) settled: BTreeSet<RequestKey>,
    /// The open runs that GitHub failed at, and the time of the last failure.
    pub(crate) failed_at: BTreeMap<u64, Duration>,
}

impl Reruns {
    /// Searches until stopped. Only the leader does, because GitHub limits calls.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let stopped = shutdown.clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&mut self) {
        let mut due: BTreeMap<Look, Duration> = BTreeMap::new();
        let mut known = Known::default();
        let (mut fresh_until, mut rest) = (Duration::ZERO, Duration::ZERO);
        let mut rests = Rests::default();
        loop {
            tokio::time::sleep(TICK).await;
            if self.lease.get().is_none() {
                due.clear();
                fresh_until = Duration::ZERO;
                continue;
            }
            let now = self.clock.elapsed();
            if now >= fresh_until {
                let (ask, answer) = oneshot::channel();
                if self.ask.send(ask).await.is_err() {
                    return;
                }
                let Ok(answer) = answer.await else { return };
                known = answer;
                fresh_until = now + KNOWN.min(self.every);
                self.schedule(&known, &mut due, now);
            }
            rests.forget(now);
            let ready = due.iter().filter(|(look, at)| **at <= now && !rests.has(look.owner(), now));
            let next = ready.min_by_key(|(_, at)| **at).map(|(look, _)| look.clone());
            let Some(look) = next.filter(|_| now >= rest) else { continue };
            let looked = match &look {
                Look::Repository(repo) => self.repository(repo, &known).await,
                Look::Lost(key) => self.lost(key, &known).await,
            };
            let now = self.clock.elapsed();
            let wait = match looked.map_err(|error| held(&look, error)) {
                Ok(()) | Err(Held::Look) => self.every,
                Err(Held::Account(pause)) => {
                    rests.begin(look.owner(), now + pause);
                    pause
                }
                Err(Held::All(pause)) => {
                    rest = now + pause;
                    pause
                }
            };
            // The longest overdue comes first, so one that fails again and again queues behind the others.
            due.insert(look, now + wait);
        }
    }

    /// Schedules new lookups; the first ones are spread over the interval.
    fn schedule(&mut self, known: &Known, due: &mut BTreeMap<Look, Duration>, now: Duration) {
        let mut looks: BTreeSet<Look> = BTreeSet::new();
        if self.serve {
            looks.extend(known.runs.keys().cloned().map(Look::Repository));
        }
        if self.rerun_lost {
            let open = known.lost.keys().filter(|key| !self.settled.contains(key));
            looks.extend(open.cloned().map(Look::Lost));
        }
        due.retain(|look, _| looks.contains(look));
        let count = u32::try_from(looks.len()).unwrap_or(u32::MAX).max(1);
        for (place, look) in (0..).zip(looks) {
            due.entry(look).or_insert_with(|| now + self.every / count * place);
        }
        self.settled.retain(|key| known.of_run(key).is_some());
        self.failed_at.retain(|run, _| known.runs.values().any(|runs| runs.contains_key(run)));
    }

    /// Looks up the open runs of a repository, and requests machines for the attempts that need them. Runs that GitHub
    /// failed at come after the others, the most recent failure last.
    async fn repository(&mut self, repo: &Repo, known: &Known) -> Result<(), Unfinished> {
        let Some(runs) = known.runs.get(repo) else { return Ok(()) };
        let mut open = self.github.open_runs(&repo.0, &repo.1).await?;
        open.sort_by_key(|run| self.failed_at.get(&run.id).copied());
        let mut failed = Vec::new();
        for run in open {
            let Some(keys) = runs.get(&run.id) else { continue };
            match self.attempts(repo, &run, keys).await {
                Err(error) if error.is_of_one_run() => {
                    self.failed_at.insert(run.id, self.clock.elapsed());
                    failed.push(error);
                }
                looked => {
                    looked?;
                    self.failed_at.remove(&run.id);
                }
            }
            if failed.len() == FAILURES {
                break;
            }
        }
        failed.pop().map_or(Ok(()), Err)
    }

    /// Requests the machines of the latest attempt of a run, for each name without a request of that attempt.
    async fn attempts(
        &mut self,
        repo: &Repo,
        run: &WorkflowRun,
        keys: &BTreeSet<RequestKey>,
    ) -> Result<(), Unfinished> {
        for name in behind(keys, run.attempt) {
            let of_name: Vec<&RequestKey> = keys.iter().filter(|key| key.name == *name).collect();
            self.attempt(repo, run, &of_name).await?;
        }
        Ok(())
    }

    /// Requests the machines of a later attempt of a run, under the name of these requests, if no other writer will.
    async fn attempt(
        &mut self,
        repo: &Repo,
        run: &WorkflowRun,
        requests: &[&RequestKey],
    ) -> Result<(), Unfinished> {
        let Some(original) = self.original(requests).await? else { return Ok(()) };
        let jobs = self.github.run_jobs(&repo.0, &repo.1, run.id, run.attempt).await?;
        if rerun(&original, &[], run, &jobs) == Rerun::NoneWaits {
            return Ok(());
        }
        let earlier = self.github.run_jobs(&repo.0, &repo.1, run.id, original.id.attempt).await?;
        match rerun(&original, &earlier, run, &jobs) {
            Rerun::NoneWaits | Rerun::AsksItself => Ok(()),
            Rerun::NobodyAsks => {
                self.nobody_asks(&original, run);
                Ok(())
            }
            Rerun::Serve(waiting) => Ok(self.serve(&original, run, waiting).await?),
        }
    }

    /// Returns the latest of these requests that the workflow wrote itself, if it was accepted.
    async fn original(&self, requests: &[&RequestKey]) -> Result<Option<Request>, StoreError> {
        let mut last_first = requests.to_vec();
        last_first.sort_by_key(|key| std::cmp::Reverse(key.attempt));
        for key in last_first {
            let Some(request) = self.request(key).await? else { return Ok(None) };
            if request.status.derived_from.is_none() {
                return Ok(Some(request).filter(|one| one.status.accepted_at.is_some()));
            }
        }
        Ok(None)
    }

    async fn request(&self, key: &RequestKey) -> Result<Option<Request>, StoreError> {
        let item = self.store.get(&Request::key_of(key)).await?;
        // Unreadable requests are ignored.
        Ok(item.and_then(|item| match read::<Request>(&item) {
            Reading::Record(request) => Some(request),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        }))
    }

    /// Writes the request, unless there is one of this attempt.
    async fn serve(&self, original: &Request, run: &WorkflowRun, waiting: u32) -> Result<(), StoreError> {
        let uid = Uid::parse(&self.entropy.hex()).expect("hexadecimal digits make a uid");
        let derived = original.derived(run.attempt, waiting, uid, self.clock.now());
        match self.store.write(&derived.creating()).await {
            Ok(_) => {
                let message = format!(
                    "{}: {waiting} re-run jobs wait for label {} and their workflow does not ask again: asked for {} \
                     of {}, as in attempt {}",
                    derived.id,
                    derived.public_label(),
                    derived.intent.count,
                    derived.intent.resource_class,
                    original.id.attempt
                );
                self.report(&derived.id, EventType::Normal, "RerunServed", message);
                Ok(())
            }
            // The workflow or another operator wrote it first.
            Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports once per attempt that its jobs wait in vain.
    fn nobody_asks(&mut self, original: &Request, run: &WorkflowRun) {
        let attempt = RequestKey { attempt: run.attempt, ..original.id.clone() };
        if self.settled.insert(attempt.clone()) {
            let message = format!(
                "{attempt}: jobs wait for label {} and no job of the run asks for machines; give its workflow a job \
                 that provisions and that they need, or use runyard provision --attempt {}",
                original.public_label(),
                run.attempt
            );
            self.report(&original.id, EventType::Warning, "RerunNotServed", message);
        }
    }

    fn report(&self, about: &RequestKey, event_type: EventType, reason: &str, message: String) {
        let mut event =
            Event::new(&RecordId::from(about.clone()), self.entropy.hex(), self.clock.now(), "operator");
        event.event_type = event_type;
        event.reason = reason.to_owned();
        event.message = message;
        tracing::info!(request = %about, reason, message = %event.message, "re-run");
        self.events.send(&event);
    }
}

/// Returns the names whose latest request is of an earlier attempt than this.
fn behind(keys: &BTreeSet<RequestKey>, attempt: u32) -> BTreeSet<&RequestName> {
    let mut last: BTreeMap<&RequestName, u32> = BTreeMap::new();
    for key in keys {
        let of_name = last.entry(&key.name).or_default();
        *of_name = (*of_name).max(key.attempt);
    }
    last.into_iter().filter(|(_, last)| *last < attempt).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use runyard_fakes::{FakeGitHub, MemoryStore, SeededEntropy, TokioClock};
    use tokio_util::sync::DropGuard;

    use super::unfinished::REST;
    use super::*;
    use crate::ports::GitHubError;

    const EVERY: Duration = Duration::from_secs(60);

    /// Returns a searcher of these repositories, each with a known run.
    fn looking(repositories: &[&'static str]) -> (FakeGitHub, DropGuard) {
        let clock = Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH));
        let (github, store) = (FakeGitHub::new(clock.clone()), Arc::new(MemoryStore::new()));
        let metrics = crate::metrics::Metrics::new(clock.clone());
        let (ask, mut requests) = mpsc::channel::<Ask>(1);
        let reruns = Reruns {
            github: Arc::new(github.clone()),
            store: store.clone(),
            clock,
            entropy: Arc::new(SeededEntropy::new(1)),
            events: Events::start(store, None, metrics).0,
            every: EVERY,
            serve: true,
            rerun_lost: false,
            lease: ordered_watch::channel(Some(1)).1,
            ask,
            settled: BTreeSet::new(),
            failed_at: BTreeMap::new(),
        };
        let owned: Vec<Repo> =
            repositories.iter().filter_map(|one| one.split_once('/')).map(repo_of).collect();
        tokio::spawn(async move {
            while let Some(answer) = requests.recv().await {
                let runs = owned.iter().map(|repo| (repo.clone(), BTreeMap::new())).collect();
                let _ = answer.send(Known { runs, lost: BTreeMap::new() });
            }
        });
        let shutdown = CancellationToken::new();
        tokio::spawn(reruns.run(shutdown.clone()));
        (github, shutdown.drop_guard())
    }

    fn repo_of((owner, name): (&str, &str)) -> Repo {
        (owner.to_owned(), name.to_owned())
    }

    fn looks(github: &FakeGitHub, repository: &str) -> u64 {
        github.calls_in(repository).get("open_runs").copied().unwrap_or(0)
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_does_not_answer_holds_up_the_re_runs_of_no_other() {
        let retry_after = Duration::from_secs(120);
        for (error, pause) in [
            (GitHubError::Unreachable("reset".into()), REST),
            (GitHubError::Throttled { retry_after }, retry_after),
            (GitHubError::Deferred { retry_after }, retry_after),
        ] {
            let (github, _running) = looking(&["acme/api", "acme/web", "zeta/web"]);
            github.outage_in("acme", Some(error.clone()));
            tokio::time::sleep(EVERY + pause).await;
            let [before, other_before] = ["acme/api", "acme/web"].map(|one| looks(&github, one));
            let zeta_before = looks(&github, "zeta/web");
            tokio::time::sleep(20 * pause).await;
            let intervals = (20 * pause).as_secs() / EVERY.as_secs();
            let zeta = looks(&github, "zeta/web") - zeta_before;
            assert!(zeta + 2 >= intervals, "{zeta} looks in {intervals} intervals: {error}");
            let acme = [looks(&github, "acme/api") - before, looks(&github, "acme/web") - other_before];
            assert!(
                acme.iter().all(|looks| (8..=11).contains(looks)),
                "in turn, one a pause: {acme:?}, {error}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repository_that_does_not_answer_holds_up_no_other_of_its_account() {
        let (github, _running) = looking(&["acme/api", "acme/web", "acme/zoo"]);
        github.outage_in("acme/api", Some(GitHubError::Unreachable("its list does not end".into())));
        tokio::time::sleep(20 * EVERY).await;
        let looked = ["acme/api", "acme/web", "acme/zoo"].map(|one| looks(&github, one));
        assert!(looked.iter().all(|looks| *looks >= 12), "{looked:?}");
    }
}
