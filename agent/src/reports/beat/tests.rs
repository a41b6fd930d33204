use runyard_core::model::{ClaimId, Signal};

use super::*;
use crate::step::Say;
use crate::testing::{FakeRecords, TestClock, instance};

const EVERY: Duration = Duration::from_secs(10);

struct Yard {
    records: Arc<FakeRecords>,
    status: watch::Sender<AgentStatus>,
    stored: watch::Receiver<Stored>,
    task: tokio::task::JoinHandle<()>,
}

fn begin() -> Yard {
    let records = FakeRecords::new(instance("running", "42", "c1"));
    let (status_in, status) = watch::channel(AgentStatus::default());
    let (stored_in, stored) = watch::channel(Stored::Unknown);
    let heartbeat = Heartbeat {
        records: records.clone(),
        clock: TestClock::new(),
        entropy: Arc::new(crate::system::clock::SystemEntropy),
        every: EVERY,
        every_free: EVERY,
        attention: Arc::default(),
        identity: Identity { version: "1".to_owned(), public_key: "KEY".to_owned() },
        status,
        stored: stored_in,
    };
    let task = tokio::spawn(heartbeat.run(CancellationToken::new()));
    Yard { records, status: status_in, stored, task }
}

fn say(signal: Signal, claim: &str, detail: Option<&str>) -> AgentStatus {
    let claim = ClaimId::parse(claim).ok();
    let say = Say { signal, claim, run: "42".to_owned(), detail: detail.map(str::to_owned) };
    AgentStatus { say: Some(say), ..AgentStatus::default() }
}

#[tokio::test(start_paused = true)]
async fn a_minute_has_six_or_seven_beats_and_each_is_one_write() {
    let yard = begin();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let beats = yard.records.shown().unwrap().heartbeat_seq;
    assert!((6..=7).contains(&beats), "{beats}");
    assert_eq!(yard.records.changes.lock().unwrap().len() as u64, beats);
}

#[tokio::test(start_paused = true)]
async fn who_the_agent_is_is_said_once() {
    let yard = begin();
    tokio::time::sleep(EVERY * 3).await;
    let said =
        |name: &str| yard.records.changes.lock().unwrap().iter().filter(|c| c.set.contains_key(name)).count();
    assert_eq!((said("publicKey"), said("agentVersion")), (1, 1));
    assert!(said("heartbeatAt") >= 3 && said("updatedAt") == said("heartbeatAt"));
    assert_eq!(yard.records.shown().unwrap().public_key.as_deref(), Some("KEY"));
}

#[tokio::test(start_paused = true)]
async fn a_signal_does_not_wait_for_the_beat_and_an_old_detail_goes() {
    let yard = begin();
    tokio::time::sleep(Duration::from_millis(1)).await;
    yard.status.send_replace(say(Signal::RegFailed, "c1", Some("401")));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let shown = yard.records.shown().unwrap();
    assert_eq!((shown.says("c1"), shown.signal_detail.as_deref()), (Some(Signal::RegFailed), Some("401")));
    assert_eq!((shown.heartbeat_seq, shown.signal_run_id.as_deref()), (2, Some("42")));
    yard.status.send_replace(say(Signal::RemoveRegOk, "c1", None));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let shown = yard.records.shown().unwrap();
    assert_eq!((shown.says("c1"), shown.signal_detail), (Some(Signal::RemoveRegOk), None));
    assert_eq!(*yard.stored.borrow(), Stored::Known(Box::new(yard.records.shown().unwrap())));
}

#[tokio::test(start_paused = true)]
async fn a_runners_number_is_told_and_goes_when_it_is_not_known_any_more() {
    let yard = begin();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let status = AgentStatus { runner_id: Some(17), ..say(Signal::RegOk, "c1", None) };
    yard.status.send_replace(status.clone());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(yard.records.shown().unwrap().runner_id, Some(17));
    // The job is over and the next runner of the claim has no id yet: the signal remains the same.
    yard.status.send_replace(AgentStatus { runner_id: None, ..status });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(yard.records.shown().unwrap().runner_id, None);
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_somebody_changed_is_said_again_with_the_next_beat() {
    let yard = begin();
    yard.status.send_replace(say(Signal::RegOk, "c1", None));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let forged = runyard_core::model::AttributeValue::S("UD_OK".to_owned());
    yard.records.agent.lock().unwrap().as_mut().unwrap().insert("signal".to_owned(), forged);
    tokio::time::sleep(EVERY * 2).await;
    assert_eq!(yard.records.shown().unwrap().says("c1"), Some(Signal::RegOk));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_gone_is_not_brought_back_and_one_that_comes_is_told_everything() {
    let yard = begin();
    tokio::time::sleep(EVERY).await;
    let kept = yard.records.agent.lock().unwrap().take();
    yard.status.send_replace(say(Signal::RegOk, "c1", None));
    tokio::time::sleep(EVERY * 3).await;
    assert_eq!((yard.records.shown(), &*yard.stored.borrow()), (None, &Stored::Absent));
    assert!(!yard.task.is_finished());
    *yard.records.agent.lock().unwrap() = kept;
    tokio::time::sleep(EVERY).await;
    assert_eq!(yard.records.shown().unwrap().says("c1"), Some(Signal::RegOk));
}

#[tokio::test(start_paused = true)]
async fn while_the_table_is_away_it_is_asked_ever_less_and_then_told_at_once() {
    let yard = begin();
    tokio::time::sleep(Duration::from_millis(1)).await;
    *yard.records.away.lock().unwrap() = true;
    yard.status.send_replace(say(Signal::RegOk, "c1", None));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(yard.records.shown().unwrap().says("c1"), None);
    *yard.records.away.lock().unwrap() = false;
    tokio::time::sleep(EVERY).await;
    assert_eq!(yard.records.shown().unwrap().says("c1"), Some(Signal::RegOk));
}

#[tokio::test(start_paused = true)]
async fn a_slots_job_does_not_wait_for_the_beat_and_goes_with_the_next_claim() {
    let yard = begin();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let job = JobReport::of("acme/web", "43", 2, "build", Timestamp::UNIX_EPOCH).unwrap();
    yard.status.send_replace(AgentStatus { job: Some(job.clone()), ..say(Signal::RegOk, "c1", None) });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(yard.records.shown().unwrap().job, Some(job.clone()));
    tokio::time::sleep(EVERY * 3).await;
    let named = yard.records.changes.lock().unwrap().iter().filter(|c| c.set.contains_key("job")).count();
    assert_eq!((yard.records.shown().unwrap().job, named), (Some(job), 1), "it is written once");
    yard.status.send_replace(AgentStatus::default());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(yard.records.shown().unwrap().job, None);
}
