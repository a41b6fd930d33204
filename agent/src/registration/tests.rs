use std::sync::Mutex;

use runyard_core::model::{AttributeValue, Item, Signal};

use super::*;
use crate::agent::{End, Parts, Timing, run};
use crate::reports::logs::Ring;
use crate::shutdown::guard::Lengths;
use crate::shutdown::power::Exit;
use crate::system::clock::SystemEntropy;
use crate::task::{GithubFailure, RunnerEnd, RunnerProcess};
use crate::testing::{
    FakeExecutor, FakeRecords, TestClock, arn, instance, key, removal_credential, run_credential, sealed,
    with,
};

const RUNNER: RunnerProcess = RunnerProcess { pid: 7, started: 70 };
const POLL: Duration = Duration::from_secs(1);

struct TestAgent {
    dir: tempfile::TempDir,
    records: Arc<FakeRecords>,
    clock: Arc<TestClock>,
    stop: CancellationToken,
}

impl TestAgent {
    fn new(instance: Item) -> Self {
        let dir = tempfile::tempdir().unwrap();
        disk::replace(&dir.path().join("key"), &key().to_bytes()).unwrap();
        Self {
            dir,
            records: FakeRecords::new(instance),
            clock: TestClock::new(),
            stop: CancellationToken::new(),
        }
    }

    fn agent(&self, executor: &Arc<FakeExecutor>) -> impl Future<Output = io::Result<End>> + use<> {
        let parts = Parts {
            records: self.records.clone(),
            executor: executor.clone(),
            clock: self.clock.clone(),
            entropy: Arc::new(SystemEntropy),
            power: Arc::new(Exit),
            timing: Timing {
                heartbeat: Duration::from_secs(10),
                heartbeat_free: Duration::from_secs(25),
                poll: POLL,
                reregister: Duration::from_secs(2),
                guard: Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) },
            },
            state_dir: self.dir.path().to_owned(),
            boot_id: "boot".to_owned(),
            ring: Ring::default(),
        };
        run(parts, self.stop.clone())
    }

    fn local(&self) -> Local {
        disk::load(&self.dir.path().join("state")).unwrap().unwrap()
    }
}

fn registered(state: &str, run: &str, claim: &str) -> Item {
    with(instance(state, run, claim), "registration", sealed(&run_credential(claim), &key().public()))
}

fn released(claim: &str) -> Item {
    with(instance("idle", "", claim), "removal", sealed(&removal_credential(claim), &key().public()))
}

fn booted() -> (&'static str, TaskOutcome) {
    ("boot", TaskOutcome::Booted(Ok(())))
}

fn listening() -> [(&'static str, TaskOutcome); 4] {
    let started = ("start", TaskOutcome::Started(RUNNER));
    [booted(), ("configure", TaskOutcome::Configured), started, ("listen", TaskOutcome::Listening)]
}

#[tokio::test(start_paused = true)]
async fn a_claim_goes_from_boot_to_clean_and_each_signal_is_said_once() {
    let test = TestAgent::new(instance("created", "", ""));
    let cleaned = [
        ("stop", TaskOutcome::Stopped { registered: true }),
        ("wipe", TaskOutcome::Wiped),
        ("deregister", TaskOutcome::Deregistered),
        ("wipe", TaskOutcome::Wiped),
    ];
    let executor = FakeExecutor::answering(listening().into_iter().chain(cleaned));
    let _agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::Ok, "").await;
    test.records.set(Some(registered("claimed", "42", "c1")));
    test.records.says(Signal::RegOk, "c1").await;
    test.records.set(Some(released("c1")));
    test.records.says(Signal::RemoveRegOk, "c1").await;
    let served = ["boot", "configure c1", "start c1", "listen c1", "serve c1"];
    let cleaned = ["stop c1", "wipe c1", "deregister c1", "wipe c1"];
    assert_eq!(executor.asked(), [&served[..], &cleaned[..]].concat());
    let signals =
        test.records.changes.lock().unwrap().iter().filter(|c| c.set.contains_key("signal")).count();
    assert_eq!(signals, 3);
    // A clean machine prepares its next claim once after its boot, and once when nothing of the claim is left.
    tokio::time::sleep(POLL * 10).await;
    assert_eq!(*executor.prepared.lock().unwrap(), [1, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_a_claim_or_one_that_is_not_clean_prepares_nothing() {
    let test = TestAgent::new(registered("claimed", "42", "c1"));
    let refused = ("configure", TaskOutcome::Failed(GithubFailure::Refused("no".to_owned())));
    let unproved = ("stop", TaskOutcome::Unproved("something is left".to_owned()));
    let executor = FakeExecutor::answering([booted(), refused.clone(), refused.clone(), refused, unproved]);
    let _agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegFailed, "c1").await;
    test.records.set(Some(released("c1")));
    test.records.says(Signal::RemoveRegFailed, "c1").await;
    tokio::time::sleep(POLL * 10).await;
    // Only before it had read its record.
    assert_eq!(*executor.prepared.lock().unwrap(), [1]);
    assert!(executor.asked().len() > 4);
}

#[tokio::test(start_paused = true)]
async fn while_a_job_runs_there_is_one_glance_per_poll_one_write_per_beat_and_no_task() {
    let test = TestAgent::new(registered("running", "42", "c1"));
    let executor = FakeExecutor::answering(listening());
    let _agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegOk, "c1").await;
    let read = || (*test.records.reads.lock().unwrap(), *test.records.glances.lock().unwrap());
    let ((reads, glances), asked) = (read(), executor.asked().len());
    let writes = test.records.changes.lock().unwrap().len();
    tokio::time::sleep(POLL * 60).await;
    let written = test.records.changes.lock().unwrap().len() - writes;
    // Every 10 s, up to a tenth early.
    assert!((6..=7).contains(&written), "{written}");
    let (now_read, now_glanced) = read();
    let more = now_glanced - glances;
    assert!(now_read == reads && (59..=61).contains(&more), "{now_read} {more}");
    assert_eq!(executor.asked().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_release_abandons_a_registration_in_progress() {
    let test = TestAgent::new(registered("claimed", "42", "c1"));
    let cleaned =
        [booted(), ("stop", TaskOutcome::Stopped { registered: false }), ("wipe", TaskOutcome::Wiped)];
    let executor = FakeExecutor::answering(cleaned);
    let _agent = tokio::spawn(test.agent(&executor));
    tokio::time::sleep(POLL * 3).await;
    assert_eq!(executor.asked(), ["boot", "configure c1"]);
    test.records.set(Some(instance("idle", "", "c1")));
    test.records.says(Signal::RemoveRegOk, "c1").await;
    assert_eq!(executor.asked(), ["boot", "configure c1", "stop c1", "wipe c1"]);
}

#[tokio::test(start_paused = true)]
async fn while_github_is_away_it_keeps_trying_and_says_nothing() {
    let test = TestAgent::new(registered("claimed", "42", "c1"));
    let away = || ("configure", TaskOutcome::Failed(GithubFailure::Unreachable("away".to_owned())));
    let back = listening().into_iter().skip(1);
    let executor = FakeExecutor::answering([booted()].into_iter().chain((0..20).map(|_| away())).chain(back));
    let agent = test.agent(&executor);
    let _agent = tokio::spawn(agent);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let tries = executor.asked().len();
    assert!((6..21).contains(&tries), "{tries}");
    assert!(test.records.shown().unwrap().says("c1").is_none());
    tokio::time::sleep(Duration::from_secs(600)).await;
    test.records.says(Signal::RegOk, "c1").await;
}

fn forgotten() -> (&'static str, TaskOutcome) {
    ("serve", TaskOutcome::Ended { worked: false, end: RunnerEnd::Forgotten("it was deleted".to_owned()) })
}

#[tokio::test(start_paused = true)]
async fn a_held_machine_whose_runner_is_removed_early_keeps_what_was_left() {
    let test = TestAgent::new(registered("running", "42", "c1"));
    let stopped = ("stop", TaskOutcome::Stopped { registered: false });
    let executor = FakeExecutor::answering(listening().into_iter().chain([forgotten(), stopped]));
    let _agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegOk, "c1").await;
    let mut held = released("c1");
    held.insert("hold".to_owned(), AttributeValue::M([].into()));
    test.records.set(Some(held));
    tokio::time::sleep(POLL * 10).await;
    assert_eq!(executor.asked().split_off(4), ["serve c1", "stop c1"]);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_github_forgot_is_made_anew_where_the_record_says_so_or_nothing() {
    for silent in [false, true] {
        let test = TestAgent::new(registered("running", "42", "c1"));
        let executor = FakeExecutor::answering(listening().into_iter().chain([forgotten()]));
        let _agent = tokio::spawn(test.agent(&executor));
        test.records.says(Signal::RegOk, "c1").await;
        *test.records.away.lock().unwrap() = silent;
        tokio::time::sleep(POLL * 10).await;
        assert_eq!(executor.asked().split_off(4), ["serve c1", "renew c1"], "{silent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_says_terminated_ends_everything_at_once() {
    let test = TestAgent::new(registered("running", "42", "c1"));
    let executor = FakeExecutor::answering(listening());
    let agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegOk, "c1").await;
    test.records.set(Some(instance("terminated", "", "c1")));
    let from = tokio::time::Instant::now();
    assert_eq!(agent.await.unwrap().unwrap(), End::PoweredOff("the record says terminated"));
    assert!(from.elapsed() <= POLL);
    assert_eq!(*executor.killed.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_guard_ends_the_machine_with_everything_else_out_of_reach() {
    let test = TestAgent::new(registered("running", "42", "c1"));
    let executor = FakeExecutor::answering(listening());
    let from = tokio::time::Instant::now();
    let agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegOk, "c1").await;
    *test.records.away.lock().unwrap() = true;
    assert!(matches!(agent.await.unwrap().unwrap(), End::PoweredOff(_)));
    assert_eq!(from.elapsed().as_secs(), 1200);
    assert_eq!(*executor.killed.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_writes_nothing_more_and_the_next_agent_goes_on() {
    let test = TestAgent::new(registered("running", "42", "c1"));
    let executor = FakeExecutor::answering(listening());
    let agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegOk, "c1").await;
    let beats = test.records.shown().unwrap().heartbeat_seq;
    test.stop.cancel();
    assert_eq!(agent.await.unwrap().unwrap(), End::Stopped);
    assert_eq!(test.records.shown().unwrap().heartbeat_seq, beats);
    assert_eq!(*executor.killed.lock().unwrap(), 0, "a job at work goes on");
    let next = TestAgent { stop: CancellationToken::new(), ..test };
    let executor = FakeExecutor::answering([]);
    let _agent = tokio::spawn(next.agent(&executor));
    tokio::time::sleep(POLL * 3).await;
    assert_eq!(executor.asked(), ["serve c1"]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_take_the_state_ends_the_agent() {
    let test = TestAgent::new(instance("created", "", ""));
    std::fs::create_dir(test.dir.path().join("state")).unwrap();
    let error = test.agent(&FakeExecutor::answering([booted()])).await.unwrap_err();
    assert!(error.to_string().contains("state"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_key_is_made_once() {
    let test = TestAgent::new(instance("created", "", ""));
    std::fs::remove_file(test.dir.path().join("key")).unwrap();
    for _ in 0..2 {
        let agent = test.agent(&FakeExecutor::answering([booted()]));
        assert!(tokio::time::timeout(Duration::from_secs(1), agent).await.is_err());
    }
    let said: Mutex<Vec<_>> = Mutex::default();
    for change in test.records.changes.lock().unwrap().iter() {
        said.lock().unwrap().extend(change.set.get("publicKey").cloned());
    }
    assert_eq!(said.into_inner().unwrap().len(), 1);
    assert_eq!(test.local().boot, crate::step::local::Boot::Done);
    assert_eq!(test.records.shown().unwrap().arn, Some(arn()));
}

/// Returns a machine's record in the pool.
fn free() -> Item {
    with(instance("idle", "", ""), "pooledAt", "2026-01-01T00:00:00Z".to_owned())
}

/// Returns how many strong reads and glances a machine that waits for nothing makes in each of these hours.
async fn reads_by_hour(record: Item, hours: u32) -> Vec<(u32, u32)> {
    let records = FakeRecords::new(record);
    let attention = Arc::new(Attention { at_rest: AtomicBool::new(true), ..Attention::default() });
    let (seen, _) = watch::channel(Sight::default());
    let (reader, stop) = (records.clone(), CancellationToken::new());
    let reading = read_record(reader, POLL, &SystemEntropy, seen, attention, stop);
    let counting = async {
        // Between two reads, so that none is at the edge of an hour.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let mut counted = Vec::new();
        for _ in 0..hours {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            let count = |of: &Mutex<u32>| std::mem::take(&mut *of.lock().unwrap());
            counted.push((count(&records.reads), count(&records.glances)));
        }
        counted
    };
    tokio::select! {
        biased;
        counted = counting => counted,
        () = reading => unreachable!("it reads until it is stopped"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_glances_only_after_its_first_minute_and_ever_fewer() {
    let hours = reads_by_hour(free(), 3).await;
    assert_eq!(hours, [(211, 1600), (0, 720), (0, 720)]);
    let cleaning = reads_by_hour(instance("idle", "", "c1"), 2).await;
    assert_eq!(cleaning[1], (3600, 0), "the end of its clean-up is awaited");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_been_free_for_long_beats_rarely_until_it_is_claimed() {
    let later = |record| with(record, "threshold", "2026-01-02T00:00:00Z".to_owned());
    let test = TestAgent::new(later(free()));
    let executor = FakeExecutor::answering(listening());
    let _agent = tokio::spawn(test.agent(&executor));
    let beats = async |minutes: u64| {
        let before = test.records.changes.lock().unwrap().len();
        tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
        test.records.changes.lock().unwrap().len() - before
    };
    let early = beats(10).await;
    assert!((60..=67).contains(&early), "{early}");
    let late = beats(60).await;
    assert!((144..=162).contains(&late), "{late}");
    test.records.set(Some(later(registered("claimed", "42", "c1"))));
    test.records.says(Signal::RegOk, "c1").await;
    let claimed = beats(10).await;
    assert!((60..=67).contains(&claimed), "{claimed}");
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_a_running_job_costs_glances_only() {
    let hours = reads_by_hour(instance("running", "42", "c1"), 2).await;
    assert_eq!(hours, [(1, 3600), (0, 3600)]);
    let asked = with(instance("running", "42", "c1"), "retireAskedAt", "2026-01-01T00:00:00Z".to_owned());
    assert_eq!(reads_by_hour(asked, 2).await[1], (3600, 0), "the operator's answer is awaited");
}

#[tokio::test(start_paused = true)]
async fn nothing_that_only_a_glance_shows_is_acted_on() {
    let test = TestAgent::new(registered("created", "42", "c2"));
    let executor = FakeExecutor::answering(listening());
    let agent = tokio::spawn(test.agent(&executor));
    test.records.says(Signal::RegOk, "c2").await;
    test.records.set(Some(instance("running", "42", "c2")));
    tokio::time::sleep(POLL * 3).await;
    let asked = executor.asked();
    let strong = *test.records.reads.lock().unwrap();
    // Other replicas, one after the other: older, newer than the table will be for a while, older again.
    let over = with(instance("running", "42", "c2"), "threshold", "2026-01-01T00:00:00Z".to_owned());
    let replicas = [
        Some(free()),
        Some(registered("claimed", "41", "c1")),
        Some(instance("terminated", "", "c2")),
        None,
        Some(released("c2")),
        Some(over),
        Some(free()),
    ];
    let count = replicas.len() as u32;
    *test.records.replicas.lock().unwrap() = replicas.into();
    tokio::time::sleep(POLL * 60).await;
    assert_eq!(*test.records.replicas.lock().unwrap(), []);
    assert_eq!(*test.records.reads.lock().unwrap() - strong, count, "one strong read for each");
    assert_eq!(executor.asked(), asked);
    assert!(!agent.is_finished());
    // What is there is acted on.
    test.records.set(Some(instance("terminated", "", "c2")));
    assert_eq!(agent.await.unwrap().unwrap(), End::PoweredOff("the record says terminated"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_glance_shows_is_served_after_a_strong_read() {
    let test = TestAgent::new(free());
    let executor = FakeExecutor::answering(listening());
    let _agent = tokio::spawn(test.agent(&executor));
    // Its deadline is a quarter of an hour.
    tokio::time::sleep(Duration::from_secs(800)).await;
    *test.records.glances.lock().unwrap() = 0;
    test.records.set(Some(registered("claimed", "42", "c2")));
    test.records.says(Signal::RegOk, "c2").await;
    assert_eq!(executor.asked(), ["boot", "configure c2", "start c2", "listen c2", "serve c2"]);
    assert!(
        *test.records.glances.lock().unwrap() <= 3,
        "strong reads from then on, until the runner listens"
    );
}
