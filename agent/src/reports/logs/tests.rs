use std::io::Write as _;

use runyard_core::model::ClaimId;

use super::*;
use crate::system::clock::SystemEntropy;
use crate::task::Written;
use crate::testing::{FakeExecutor, FakeRecords, TestClock, instance, with};

struct Keeper {
    dir: tempfile::TempDir,
    records: Arc<FakeRecords>,
    executor: Arc<FakeExecutor>,
    ring: Ring,
    seen: watch::Sender<Sight>,
    status: watch::Sender<AgentStatus>,
}

impl Keeper {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            records: FakeRecords::new(instance("running", "42", "c1")),
            executor: FakeExecutor::answering([]),
            ring: Ring::default(),
            seen: watch::channel(Sight::default()).0,
            status: watch::channel(AgentStatus::default()).0,
        }
    }

    fn begin(&self) -> tokio::task::JoinHandle<()> {
        let keeper = LogKeeper {
            records: self.records.clone(),
            executor: self.executor.clone(),
            clock: TestClock::new(),
            entropy: Arc::new(SystemEntropy),
            ring: self.ring.clone(),
            file: self.dir.path().join("logs-written"),
            version: "1.2.3".into(),
            late: Duration::from_secs(450),
            seen: self.seen.subscribe(),
            status: self.status.subscribe(),
        };
        tokio::spawn(keeper.run(CancellationToken::new()))
    }

    fn asked(&self, at: &str) {
        let record = with(instance("running", "42", "c1"), "logsRequestedAt", at.to_owned());
        self.seen.send_replace(Sight::of(Some(&record)));
    }

    fn says(&self, signal: Signal) {
        let say =
            Say { signal, claim: Some(ClaimId::parse("c1").unwrap()), run: String::new(), detail: None };
        self.status.send_replace(AgentStatus { say: Some(say), ..AgentStatus::default() });
    }

    /// Returns the written records, after everything that can happen has happened.
    async fn written(&self) -> Vec<Item> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.records.logs.lock().unwrap().clone()
    }
}

fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    match item.get(name) {
        Some(AttributeValue::S(text)) => text,
        other => panic!("{name}: {other:?}"),
    }
}

fn parts(item: &Item) -> Vec<(String, String)> {
    let AttributeValue::L(parts) = &item["parts"] else { panic!("{item:?}") };
    let part = |part: &AttributeValue| {
        let AttributeValue::M(part) = part else { panic!("{part:?}") };
        let part: Item = part.clone().into_iter().collect();
        (text(&part, "name").to_owned(), text(&part, "text").to_owned())
    };
    parts.iter().map(part).collect()
}

fn part(name: &str, said: &str) -> (String, String) {
    (name.to_owned(), said.to_owned())
}

#[tokio::test(start_paused = true)]
async fn logs_are_written_once_for_each_request_and_not_at_all_while_nobody_asks() {
    let keeper = Keeper::new();
    keeper.ring.clone().write_all(b"the record changed\n").unwrap();
    let task = keeper.begin();
    keeper.says(Signal::RegOk);
    assert_eq!(keeper.written().await, []);
    keeper.asked("2026-01-01T00:00:01Z");
    let written = keeper.written().await;
    assert_eq!(written.len(), 1);
    assert_eq!(
        (text(&written[0], "because"), text(&written[0], "requestedAt"), text(&written[0], "agentVersion")),
        ("asked", "2026-01-01T00:00:01Z", "1.2.3")
    );
    assert_eq!(parts(&written[0]), [part("agent", "the record changed")]);
    keeper.asked("2026-01-01T00:00:01Z");
    assert_eq!(keeper.written().await.len(), 1, "it is answered");
    task.abort();
    keeper.begin();
    assert_eq!(keeper.written().await.len(), 1, "and a restarted agent knows that");
    keeper.asked("2026-01-01T00:09:00Z");
    assert_eq!(keeper.written().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_failed_signal_brings_the_logs_and_a_store_that_is_away_only_delays_them() {
    for signal in [Signal::Failed, Signal::RegFailed, Signal::RemoveRegFailed] {
        let keeper = Keeper::new();
        keeper.executor.said.lock().unwrap().parts = vec![("boot", "curl: no route to host".into())];
        *keeper.records.away.lock().unwrap() = true;
        keeper.begin();
        keeper.says(signal);
        assert_eq!(keeper.written().await, []);
        *keeper.records.away.lock().unwrap() = false;
        let written = keeper.written().await;
        assert_eq!(written.len(), 1, "{signal}");
        assert_eq!(text(&written[0], "because"), signal.as_str());
        assert_eq!(parts(&written[0]), [part("boot", "curl: no route to host")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_boot_that_takes_long_brings_the_logs_once() {
    let (slow, quick) = (Keeper::new(), Keeper::new());
    slow.ring.clone().write_all(b"the runner package cannot be had: Connection refused\n").unwrap();
    let task = slow.begin();
    quick.begin();
    quick.says(Signal::Ok);
    assert_eq!(slow.written().await, [], "it has time");
    tokio::time::sleep(Duration::from_secs(400)).await;
    let written = slow.written().await;
    assert_eq!(written.len(), 1);
    assert_eq!(text(&written[0], "because"), "late");
    assert_eq!(parts(&written[0]), [part("agent", "the runner package cannot be had: Connection refused")]);
    task.abort();
    slow.begin();
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(slow.written().await.len(), 1, "a restarted agent has told it");
    assert_eq!(quick.written().await, []);
}

#[tokio::test(start_paused = true)]
async fn logs_are_short_and_without_credentials_whoever_wrote_them() {
    let keeper = Keeper::new();
    let canaries = ["AABBCC2DDEEFF3GGHH4IIJJ5KKLLM", "sesame-7", "ghs_0123456789abcdefABCDEF0123456789abcd"];
    let said = format!("config.sh --token {} refused {}\n{}", canaries[0], canaries[1], canaries[2]);
    let long = format!("{}the last line", "a line of a script ü\n".repeat(10_000));
    *keeper.executor.said.lock().unwrap() = Written {
        parts: vec![("runner", said), ("boot", long), ("post-run", String::new())],
        secrets: vec!["sesame-7".into()],
    };
    for line in 0..1000 {
        keeper.ring.clone().write_all(format!("line {line} {}\n", canaries[1]).as_bytes()).unwrap();
    }
    keeper.begin();
    keeper.asked("2026-01-01T00:00:01Z");
    let written = keeper.written().await;
    let shown = format!("{:?}", written[0]);
    for canary in canaries {
        assert!(!shown.contains(canary), "{shown}");
    }
    let parts = parts(&written[0]);
    assert_eq!(parts.iter().map(|part| part.0.as_str()).collect::<Vec<_>>(), ["agent", "runner", "boot"]);
    assert!(parts.iter().all(|(_, said)| said.len() <= BYTES && said.lines().count() <= LINES));
    assert!(parts[0].1.ends_with("line 999 ***") && parts[2].1.ends_with("the last line"));
}
