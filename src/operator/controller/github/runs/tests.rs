use std::cell::Cell;

use jiff::Timestamp;
use runyard_fakes::{FakeGitHub, MemoryStore, SeededEntropy, TokioClock, queued_job};
use serde_json::json;
use tokio_util::sync::DropGuard;

use super::unfinished::REST;
use super::*;
use crate::model::{Asked, Item, Pool, PoolSpec, Reading, Record as _, RecordId, Request, read};
use crate::ports::github::JobState;
use crate::yard::{Now, Observation, Yard};

mod budget;
mod rings;

const EVERY: Duration = Duration::from_secs(60);
/// The interval in a repository with open requests.
const OPEN: Duration = Duration::from_secs(15);

/// Returns a request of the first attempt of a run.
fn item(repository: &str, run: u64, phase: &str, version: u64) -> Item {
    stored(json!({
        "pk": format!("request#{repository}#{run}"), "sk": "request#default#1", "kind": "request",
        "version": version, "runId": run.to_string(), "attempt": 1, "repository": repository,
        "name": "default", "resourceClass": "small", "count": 1, "desired": "provisioned", "generation": 1,
        "phase": phase, "instances": ["i-1"], "acceptedAt": "1970-01-01T00:00:00Z",
        "readyAt": "1970-01-01T00:00:00Z",
    }))
}

fn stored(fields: serde_json::Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
    item.into_inner().into_iter().collect()
}

/// GitHub and the table of a running watch, whose loop knows what the table has.
struct Bench {
    github: FakeGitHub,
    store: MemoryStore,
    rings: mpsc::Sender<JobRing>,
    lease: ordered_watch::Sender<Option<u64>>,
    _running: DropGuard,
}

/// Starts a watch of these classes, with these records in the table.
fn watching(classes: Vec<PoolSpec>, records: Vec<Item>) -> Bench {
    let clock = Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH));
    let (github, store) = (FakeGitHub::new(clock.clone()), MemoryStore::new());
    records.into_iter().for_each(|item| store.put(item));
    start(classes, github, store, clock, 1)
}

/// Starts a watch on this GitHub and this table.
fn start(
    classes: Vec<PoolSpec>,
    github: FakeGitHub,
    store: MemoryStore,
    clock: Arc<TokioClock>,
    seed: u64,
) -> Bench {
    let metrics = crate::metrics::Metrics::new(clock.clone());
    let (events, writer) = Events::start(Arc::new(store.clone()), None, metrics);
    tokio::spawn(writer);
    let (ask, mut asked) = mpsc::channel::<Ask>(1);
    let (rings, rung) = mpsc::channel(8);
    let (lease, held) = ordered_watch::channel(Some(1));
    let watch = RunWatch {
        github: Arc::new(github.clone()),
        store: Arc::new(store.clone()),
        history: None,
        clock,
        entropy: Arc::new(SeededEntropy::new(seed)),
        events,
        duties: Duties { every: EVERY, reruns: true, rerun_lost: false },
        lease: held,
        ask,
        rings: Some(rung),
        issuer: None,
        memory: Memory::default(),
    };
    let table = store.clone();
    tokio::spawn(async move {
        while let Some(answer) = asked.recv().await {
            let (mut yard, now) = (
                Yard::default(),
                Now { wall: Timestamp::UNIX_EPOCH, mono: Duration::ZERO, seen: Duration::ZERO },
            );
            for item in table.records() {
                yard.observe(Observation::Record(RecordId::of(&item).unwrap(), Some(item)), &now);
            }
            for spec in &classes {
                let pool = Pool { spec: spec.clone(), ..empty_pool() };
                yard.observe(Observation::Record(pool.key(), Some(pool.to_item())), &now);
            }
            let _ = answer.send(News::of(&mut yard));
        }
    });
    let shutdown = CancellationToken::new();
    tokio::spawn(watch.run(shutdown.clone()));
    Bench { github, store, rings, lease, _running: shutdown.drop_guard() }
}

fn empty_pool() -> Pool {
    let spec = serde_json::from_value(json!({"resourceClass": "none"})).unwrap();
    Pool { spec, scale: None, status: Default::default(), uid: None, version: 1, updated_at: None }
}

fn class(more: serde_json::Value) -> PoolSpec {
    let mut fields = json!({
        "resourceClass": "small", "repositories": ["acme/*"], "queue": {"runLabels": true},
    });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(fields).unwrap()
}

impl Bench {
    /// Returns the watch of a ready request of each of these runs; all of them are active.
    fn of_runs(runs: &[(&str, u64)]) -> Self {
        let records = runs.iter().map(|(repository, run)| item(repository, *run, "Ready", 1)).collect();
        let bench = watching(vec![], records);
        for (repository, run) in runs {
            let (owner, name) = repository.split_once('/').unwrap();
            bench.github.set_run(owner, name, *run, RunState::Active { attempt: 1 });
        }
        bench
    }

    fn requests(&self) -> Vec<Request> {
        let of = |item: &Item| match read::<Request>(item) {
            Reading::Record(request) => Some(request),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        };
        let records = self.store.records();
        records
            .iter()
            .filter(|item| RecordId::of(item).is_some_and(|key| matches!(key, RecordId::Request(_))))
            .filter_map(of)
            .collect()
    }

    fn released(&self, run: u64) -> bool {
        let of = |one: &Request| known::number(&one.id) == Some(run) && one.status.released_by.is_some();
        self.requests().iter().any(of)
    }

    fn complete(&self, repository: &str, run: u64) {
        let (owner, name) = repository.split_once('/').unwrap();
        self.github.set_run(owner, name, run, RunState::Completed { attempt: 1 });
    }

    fn looks(&self, repository: &str) -> u64 {
        self.github.calls_in(repository).get("open_runs").copied().unwrap_or(0)
    }

    async fn ring(&self, repository: &str, run: u64) {
        let repository = repository.parse().unwrap();
        self.rings.send(JobRing { repository, run }).await.unwrap();
    }

    fn events(&self, reason: &str) -> usize {
        let named = |item: &&Item| format!("{:?}", item.get("reason")).contains(reason);
        self.store.records().iter().filter(named).count()
    }

    /// Queues a job of a run of acme/web.
    fn queue(&self, run: u64, labels: &[&str]) {
        self.github.queue_job("acme", "web", run, "build", labels);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_released_within_an_interval_of_its_runs_end_in_every_phase() {
    for phase in ["Pending", "Fulfilling", "Ready"] {
        let bench = watching(vec![], vec![item("acme/web", 42, phase, 1)]);
        bench.github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
        tokio::time::sleep(2 * EVERY).await;
        assert!(!bench.released(42), "its run goes on");
        bench.complete("acme/web", 42);
        tokio::time::sleep(OPEN + KNOWN).await;
        assert!(bench.released(42), "{phase}");
        assert_eq!(bench.events("RunEnded"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_an_approval_or_is_not_found_releases_nothing() {
    let bench = watching(vec![], vec![item("acme/web", 42, "Ready", 1), item("acme/web", 43, "Ready", 1)]);
    bench.github.set_run("acme", "web", 42, RunState::Active { attempt: 1 });
    bench.github.set_waiting("acme", "web", 42, true);
    tokio::time::sleep(10 * EVERY).await;
    assert!(!bench.released(42) && !bench.released(43));
    bench.complete("acme/web", 42);
    tokio::time::sleep(OPEN + KNOWN).await;
    assert!(bench.released(42) && !bench.released(43));
}

#[tokio::test(start_paused = true)]
async fn fifty_runs_of_a_repository_are_one_list_a_look() {
    let runs: Vec<(&str, u64)> = (1..=50).map(|run| ("acme/web", run)).collect();
    let bench = Bench::of_runs(&runs);
    tokio::time::sleep(60 * EVERY).await;
    let calls = bench.github.calls_in("acme/web");
    assert_eq!(calls.get("run"), None, "{calls:?}");
    assert!((235..=245).contains(&calls["open_runs"]), "four a minute: {calls:?}");
    assert_eq!(calls.get("run_jobs"), None, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn lookups_become_rarer_once_half_of_the_budget_is_used() {
    let bench = Bench::of_runs(&[("acme/web", 1)]);
    tokio::time::sleep(EVERY).await;
    bench.github.set_budget_used(0.75);
    tokio::time::sleep(EVERY).await;
    let before = bench.looks("acme/web");
    tokio::time::sleep(10 * EVERY).await;
    assert!((9..=11).contains(&(bench.looks("acme/web") - before)), "one a minute in place of four");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_ready_gets_the_workflow_of_its_run_once() {
    let bench = Bench::of_runs(&[("acme/web", 42)]);
    tokio::time::sleep(4 * EVERY).await;
    let [request] = bench.requests().try_into().unwrap();
    assert_eq!((request.status.workflow, request.version), (Some(".github/workflows/build.yml".into()), 2));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_does_not_answer_holds_up_no_other() {
    let retry_after = Duration::from_secs(300);
    for (error, pause) in [
        (GitHubError::Unreachable("reset".into()), REST),
        (GitHubError::Throttled { retry_after }, retry_after),
        (GitHubError::Deferred { retry_after }, retry_after),
    ] {
        let bench = Bench::of_runs(&[("acme/web", 41), ("acme/api", 42), ("zeta/web", 43)]);
        bench.github.outage_in("acme", Some(error.clone()));
        tokio::time::sleep(2 * EVERY).await;
        bench.complete("zeta/web", 43);
        tokio::time::sleep(OPEN + KNOWN).await;
        assert!(bench.released(43), "{error}");
        let looks = || ["acme/web", "acme/api"].map(|repository| bench.looks(repository));
        let before = looks();
        tokio::time::sleep(20 * pause).await;
        let more = [looks()[0] - before[0], looks()[1] - before[1]];
        assert!(more.iter().all(|more| (8..=11).contains(more)), "in turn, one a pause: {more:?}, {error}");
        bench.github.outage_in("acme", None);
        bench.complete("acme/web", 41);
        tokio::time::sleep(OPEN + 2 * pause + KNOWN).await;
        assert!(bench.released(41), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_is_refused_holds_up_no_other_of_its_account() {
    let refused = (1..=50).map(|run| ("acme/refused", run));
    let runs: Vec<_> = refused.chain([("acme/web", 99), ("acme/added", 98)]).collect();
    for error in [
        GitHubError::Denied("Actions: read is lacking".into()),
        GitHubError::Unreachable("its list does not end".into()),
    ] {
        let bench = Bench::of_runs(&runs);
        bench.github.outage_in("acme/refused", Some(error));
        tokio::time::sleep(20 * EVERY).await;
        bench.complete("acme/web", 99);
        bench.complete("acme/added", 98);
        tokio::time::sleep(OPEN + 2 * REST + KNOWN).await;
        assert!(bench.released(99) && bench.released(98));
        bench.github.outage_in("acme/refused", None);
        (1..=50).for_each(|run| bench.complete("acme/refused", run));
        tokio::time::sleep(EVERY + REST + KNOWN).await;
        assert!((1..=50).all(|run| bench.released(run)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_job_that_names_its_run_and_a_class_makes_a_request() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.queue(41, &["41-small"]);
    bench.queue(41, &["ubuntu-latest"]);
    tokio::time::sleep(EVERY + KNOWN).await;
    let [request] = bench.requests().try_into().unwrap();
    assert_eq!((request.label().as_str(), request.intent.asked), ("41-small", Asked::Job));
    assert_eq!((request.intent.count, request.intent.min_count), (1, 1));
    assert_eq!(request.intent.timeout_seconds, 86_400);
    for _ in 0..2 {
        bench.queue(41, &["41-small"]);
    }
    tokio::time::sleep(EVERY + KNOWN).await;
    let [request] = bench.requests().try_into().unwrap();
    assert_eq!(request.intent.count, 3, "later jobs raise its count");
    bench.github.change_jobs("acme", "web", 41, 1, |job| job.state = JobState::Succeeded);
    tokio::time::sleep(2 * EVERY).await;
    assert_eq!(bench.requests()[0].version, 2, "it is never lowered");
    assert_eq!((bench.events("JobAsked"), bench.events("JobNotServed")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_github_lists_late_is_found_although_nothing_else_changes() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    tokio::time::sleep(EVERY + KNOWN).await;
    bench.github.add_job_late("acme", "web", 41, queued_job("build", &["41-small"]));
    tokio::time::sleep(6 * EVERY).await;
    assert_eq!(bench.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_read_when_the_entry_of_their_run_changes_and_now_and_then() {
    let bench = watching(vec![class(json!({}))], vec![]);
    for run in 1..=10 {
        bench.queue(run, &["ubuntu-latest"]);
    }
    tokio::time::sleep(60 * EVERY).await;
    let calls = bench.github.calls_in("acme/web");
    assert!((59..=61).contains(&calls["open_runs"]), "{calls:?}");
    assert!((120..=140).contains(&calls["run_jobs"]), "ten runs, each once in five minutes: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_label_that_gets_no_machines_is_reported_once() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.queue(41, &["41-smal"]);
    bench.queue(42, &["42-small"]);
    bench.github.set_fork("acme", "web", 42);
    tokio::time::sleep(20 * EVERY).await;
    assert_eq!((bench.requests().len(), bench.events("JobNotServed")), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_no_runner_fits_is_reported_and_the_others_of_its_label_get_machines() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.queue(41, &["self-hosted", "41-small"]);
    bench.queue(41, &["41-small"]);
    tokio::time::sleep(20 * EVERY).await;
    let [request] = bench.requests().try_into().unwrap();
    assert_eq!((request.intent.count, bench.events("JobNotServed")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_over_is_not_opened_again() {
    let mut over = item("acme/web", 41, "Failed", 3);
    over.extend(stored(json!({"sk": "request#small#1", "name": "small", "asked": "job"})));
    let bench = watching(vec![class(json!({}))], vec![over]);
    bench.queue(41, &["41-small"]);
    tokio::time::sleep(20 * EVERY).await;
    assert_eq!((bench.requests().len(), bench.events("JobNotServed")), (1, 1));
    assert_eq!(bench.requests()[0].version, 3);
}

#[tokio::test(start_paused = true)]
async fn a_label_that_the_workflow_asked_for_itself_is_left_to_it() {
    let mut asked = item("acme/web", 41, "Ready", 3);
    asked.extend(stored(json!({"sk": "request#small#1", "name": "small", "workflow": "w.yml"})));
    let bench = watching(vec![class(json!({}))], vec![asked]);
    for labels in [["41-small"], ["41-small"], ["41-gpu"]] {
        bench.queue(41, &labels);
    }
    tokio::time::sleep(20 * EVERY).await;
    assert_eq!((bench.requests().len(), bench.requests()[0].version), (1, 3));
    assert_eq!(bench.events("JobNotServed"), 0, "another of its labels may be an extra label of its own");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_idle_repositories_are_looked_at_once_an_interval_each() {
    let names: Vec<String> = (0..200).map(|number| format!("acme/r{number}")).collect();
    let bench = watching(vec![class(json!({"repositories": names}))], vec![]);
    tokio::time::sleep(EVERY).await;
    let before: u64 = names.iter().map(|name| bench.looks(name)).sum();
    tokio::time::sleep(10 * EVERY).await;
    let looks = names.iter().map(|name| bench.looks(name)).sum::<u64>() - before;
    assert!((1950..=2050).contains(&looks), "{looks}");
    assert_eq!(bench.github.calls().keys().collect::<Vec<_>>(), [&"open_runs"]);
}

#[tokio::test(start_paused = true)]
async fn an_operator_without_the_lease_looks_at_nothing() {
    let bench = watching(vec![class(json!({}))], vec![item("acme/web", 42, "Ready", 1)]);
    bench.lease.set(None);
    bench.queue(41, &["41-small"]);
    bench.ring("acme/web", 41).await;
    tokio::time::sleep(10 * EVERY).await;
    assert_eq!(bench.github.calls(), BTreeMap::new());
    bench.lease.set(Some(2));
    tokio::time::sleep(EVERY + KNOWN).await;
    assert_eq!(bench.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_that_take_themselves_for_the_leader_write_one_request() {
    let clock = Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH));
    let (github, store) = (FakeGitHub::new(clock.clone()), MemoryStore::new());
    let one = start(vec![class(json!({}))], github.clone(), store.clone(), clock.clone(), 1);
    let _other = start(vec![class(json!({}))], github, store, clock, 2);
    one.queue(41, &["41-small"]);
    tokio::time::sleep(2 * EVERY).await;
    assert_eq!((one.requests().len(), one.events("JobAsked")), (1, 1));
    one.queue(41, &["41-small"]);
    tokio::time::sleep(2 * EVERY).await;
    let [request] = one.requests().try_into().unwrap();
    assert_eq!((request.intent.count, request.version), (2, 2), "and raise it once");
}

/// A raise and a lowering are written on the version that was read: what another writer wrote meanwhile is not lost.
#[tokio::test(start_paused = true)]
async fn a_request_that_another_writer_changes_meanwhile_is_raised_and_lowered_later() {
    let bench = watching(vec![class(json!({}))], vec![]);
    (0..2).for_each(|_| bench.queue(41, &["41-small"]));
    tokio::time::sleep(EVERY + KNOWN).await;
    bench.store.every_call_takes(Duration::from_secs(2));
    let written_each_second = async |seconds: u32| {
        let mut version = 0;
        for _ in 0..seconds {
            let [mut request] = bench.requests().try_into().unwrap();
            request.version += 1;
            version = request.version;
            bench.store.put(request.to_item());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let [request] = bench.requests().try_into().unwrap();
        assert_eq!(request.version, version, "nobody wrote on what another had written");
        (request.intent.count, request.intent.wanted)
    };
    let ended = Cell::new(false);
    bench.github.change_jobs("acme", "web", 41, 1, |job| {
        if !ended.replace(true) {
            job.state = JobState::Succeeded;
        }
    });
    assert_eq!(written_each_second(1200).await, (2, None));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(written_each_second(1).await, (2, Some(1)), "lowered once nobody else writes");
    (0..2).for_each(|_| bench.queue(41, &["41-small"]));
    assert_eq!(written_each_second(120).await, (2, Some(1)));
    tokio::time::sleep(6 * OPEN).await;
    assert_eq!(written_each_second(1).await, (3, Some(3)), "and raised");
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_comes_later_is_found_within_an_hour() {
    let bench = watching(vec![class(json!({}))], vec![]);
    bench.github.outage_of("repositories", Some(GitHubError::Unreachable("reset".into())));
    tokio::time::sleep(EVERY).await;
    bench.github.outage_of("repositories", None);
    bench.queue(41, &["41-small"]);
    tokio::time::sleep(REPOSITORIES_AGAIN + EVERY).await;
    assert_eq!(bench.requests().len(), 1, "a list that failed is asked for again soon");
    bench.github.queue_job("acme", "new", 43, "build", &["43-small"]);
    tokio::time::sleep(REPOSITORIES + EVERY).await;
    assert_eq!(bench.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn runs_that_github_fails_at_hold_up_the_ends_of_no_other() {
    let runs: Vec<(&str, u64)> = (1..=8).map(|run| ("acme/web", run)).collect();
    let bench = Bench::of_runs(&runs);
    tokio::time::sleep(EVERY).await;
    // All but the last are in no list, and GitHub fails at them.
    (1..=7).for_each(|run| bench.github.set_waiting("acme", "web", run, true));
    bench.github.outage_of("run", Some(GitHubError::Unreachable("502".into())));
    bench.github.set_run("acme", "web", 8, RunState::Active { attempt: 2 });
    tokio::time::sleep(5 * EVERY).await;
    assert!(bench.released(8));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_holds_up_no_other_run() {
    let bench = Bench::of_runs(&[("acme/web", 41), ("acme/web", 42), ("zeta/web", 43)]);
    tokio::time::sleep(EVERY).await;
    let refused = || runyard_fakes::Fault::Fail(crate::ports::StoreError::Invalid("too large".into()));
    bench.store.next_write(refused());
    for (repository, run) in [("acme/web", 41), ("acme/web", 42), ("zeta/web", 43)] {
        bench.complete(repository, run);
    }
    tokio::time::sleep(OPEN + KNOWN).await;
    let released = [41, 42, 43].map(|run| bench.released(run));
    assert_eq!(released.iter().filter(|released| **released).count(), 2, "{released:?}");
    tokio::time::sleep(EVERY + KNOWN).await;
    assert!([41, 42, 43].iter().all(|run| bench.released(*run)), "and is tried again");
}
