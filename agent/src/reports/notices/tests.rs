use super::*;
use crate::system::clock::SystemClock;
use crate::system::metadata::metadata_fake::{FakeMetadata, Fault};
use crate::testing::{FakeRecords, instance};

const SPOT: &str = "meta-data/spot/instance-action";
const ADVICE: &str = "meta-data/events/recommendations/rebalance";

async fn watched() -> (FakeMetadata, Arc<FakeRecords>, CancellationToken) {
    let fake = FakeMetadata::start().await;
    let records = FakeRecords::new(instance("running", "42", "c1"));
    let stop = CancellationToken::new();
    let notices = NoticeWatcher {
        metadata: Arc::new(Metadata::new(&fake.endpoint).unwrap()),
        records: records.clone(),
        clock: Arc::new(SystemClock),
        every: Duration::from_millis(10),
    };
    tokio::spawn(notices.run(stop.clone()));
    (fake, records, stop)
}

async fn shows(records: &FakeRecords, action: InterruptionAction) {
    let wait = async {
        while records.shown().and_then(|agent| agent.interruption).map(|notice| notice.action) != Some(action)
        {
            records.written.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), wait).await.expect("the notice is written");
}

async fn asked(fake: &FakeMetadata, more: usize) {
    let until = fake.asked().len() + more;
    let wait = async {
        while fake.asked().len() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), wait).await.expect("it goes on asking");
}

#[tokio::test]
async fn advice_and_then_the_end_are_each_written_once_with_nothing_else() {
    let (fake, records, stop) = watched().await;
    asked(&fake, 4).await;
    assert!(records.changes.lock().unwrap().is_empty(), "no notice, no write");
    fake.set(ADVICE, r#"{"noticeTime":"2026-10-27T08:20:00Z"}"#);
    shows(&records, InterruptionAction::Rebalance).await;
    fake.set(SPOT, r#"{"action":"terminate","time":"2026-10-27T08:22:00Z"}"#);
    shows(&records, InterruptionAction::Terminate).await;
    fake.remove(SPOT);
    asked(&fake, 6).await;
    stop.cancel();
    let changes = records.changes.lock().unwrap();
    assert_eq!(changes.len(), 2, "{changes:?}");
    for change in changes.iter() {
        let names: Vec<_> = change.set.keys().map(String::as_str).collect();
        assert_eq!((names, change.remove.len()), (vec!["interruption", "updatedAt"], 0));
    }
}

#[tokio::test]
async fn a_metadata_service_on_a_bad_day_delays_a_notice_and_nothing_more() {
    let (fake, records, _stop) = watched().await;
    fake.bad([
        Fault::Status(500),
        Fault::HangsUp,
        Fault::Status(401),
        Fault::Status(401),
        Fault::Status(404),
    ]);
    fake.set(SPOT, r#"{"action":"stop","time":"2026-10-27T08:22:00Z"}"#);
    shows(&records, InterruptionAction::Stop).await;
}

#[tokio::test]
async fn a_notice_waits_for_a_record_that_is_not_there_yet() {
    let (fake, records, _stop) = watched().await;
    let kept = records.agent.lock().unwrap().take();
    fake.set(SPOT, r#"{"action":"terminate","time":"2026-10-27T08:22:00Z"}"#);
    asked(&fake, 4).await;
    *records.agent.lock().unwrap() = kept;
    shows(&records, InterruptionAction::Terminate).await;
}
