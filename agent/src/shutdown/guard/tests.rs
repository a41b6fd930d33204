use super::*;
use crate::testing::{FakeRecords, TestClock, instance, with};

const LENGTHS: Lengths = Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) };

struct Yard {
    dir: tempfile::TempDir,
    records: Arc<FakeRecords>,
    clock: Arc<TestClock>,
    sight: watch::Sender<Sight>,
}

impl Yard {
    /// Creates a yard in which the record exists and was not read yet.
    fn new() -> Self {
        let records = FakeRecords::new(instance("running", "42", "c1"));
        Self {
            dir: tempfile::tempdir().unwrap(),
            records,
            clock: TestClock::new(),
            sight: watch::channel(Sight::Unseen).0,
        }
    }

    fn guard(&self) -> Guard {
        Guard {
            records: self.records.clone(),
            clock: self.clock.clone(),
            lengths: LENGTHS,
            boot_id: "boot".to_owned(),
            file: self.dir.path().join("threshold"),
            seen: self.sight.subscribe(),
        }
    }

    fn read(&self) {
        self.sight.send_replace(Sight::of(self.records.instance.lock().unwrap().as_ref()));
    }

    /// Returns the number of seconds until the machine ends, and the reason.
    async fn ends_after(&self) -> (u64, &'static str) {
        let from = tokio::time::Instant::now();
        let why = self.guard().run(CancellationToken::new()).await.unwrap();
        (from.elapsed().as_secs(), why)
    }
}

fn renewed(to: &str, at: &str) -> Option<runyard_core::model::Item> {
    let item = with(instance("running", "42", "c1"), "threshold", to.to_owned());
    Some(with(item, "thresholdSetAt", at.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_saw_a_record_waits_out_the_boot_deadline() {
    let yard = Yard::new();
    yard.records.set(None);
    assert_eq!(yard.ends_after().await, (900, "no record within the boot deadline"));
}

#[tokio::test(start_paused = true)]
async fn the_length_of_the_threshold_counts_from_the_first_sight_whatever_the_clocks_say() {
    let yard = Yard::new();
    for (to, at) in
        [("2026-01-01T00:15:00Z", "2026-01-01T00:00:00Z"), ("1999-01-01T00:15:00Z", "1999-01-01T00:00:00Z")]
    {
        yard.records.set(renewed(to, at));
        yard.read();
        let (after, why) = yard.ends_after().await;
        assert_eq!((after, why), (900 + 300, "its threshold and the grace have passed"), "{to}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_read_later_moves_the_end() {
    let yard = Yard::new();
    let from = tokio::time::Instant::now();
    let guard = tokio::spawn(yard.guard().run(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(100)).await;
    yard.read();
    tokio::time::sleep(Duration::from_secs(100)).await;
    yard.read();
    assert!(guard.await.unwrap().is_some());
    assert_eq!(from.elapsed().as_secs(), 100 + 1200);
}

#[tokio::test(start_paused = true)]
async fn a_threshold_that_was_renewed_unseen_is_found_by_the_last_look() {
    let yard = Yard::new();
    yard.read();
    yard.records.set(renewed("2026-01-01T01:00:00Z", "2026-01-01T00:10:00Z"));
    assert_eq!(yard.ends_after().await.0, 1200 + 3000 + 300);
}

#[tokio::test(start_paused = true)]
async fn neither_a_record_that_vanished_nor_a_table_out_of_reach_moves_the_end() {
    for away in [false, true] {
        let yard = Yard::new();
        yard.read();
        let from = tokio::time::Instant::now();
        let guard = tokio::spawn(yard.guard().run(CancellationToken::new()));
        tokio::time::sleep(Duration::from_secs(100)).await;
        yard.records.set(None);
        *yard.records.away.lock().unwrap() = away;
        yard.sight.send_replace(Sight::Absent);
        assert!(guard.await.unwrap().is_some());
        assert_eq!(from.elapsed().as_secs(), 1200, "away: {away}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_started_again_goes_on_counting_and_another_boot_begins_anew() {
    let yard = Yard::new();
    yard.read();
    for part in 0..3 {
        let guard = yard.guard().run(CancellationToken::new());
        assert!(tokio::time::timeout(Duration::from_secs(300), guard).await.is_err(), "part {part}");
    }
    assert_eq!(yard.ends_after().await.0, 300);
    let other = Guard { boot_id: "another".to_owned(), ..yard.guard() };
    let from = tokio::time::Instant::now();
    other.run(CancellationToken::new()).await.unwrap();
    assert_eq!(from.elapsed().as_secs(), 1200);
}

#[tokio::test(start_paused = true)]
async fn the_file_holds_the_watchdog_timers_deadline_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let yard = Yard::new();
    yard.read();
    let guard = yard.guard().run(CancellationToken::new());
    assert!(tokio::time::timeout(Duration::from_secs(1), guard).await.is_err());
    let file = yard.dir.path().join("threshold");
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept["powerOffAtMs"], 1_000_000 + 1_200_000);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test(start_paused = true)]
async fn a_guard_without_a_disk_guards_from_memory() {
    let yard = Yard::new();
    yard.read();
    let guard = Guard { file: "/nonexistent/threshold".into(), ..yard.guard() };
    let from = tokio::time::Instant::now();
    assert!(guard.run(CancellationToken::new()).await.is_some());
    assert_eq!(from.elapsed().as_secs(), 1200);
}

#[tokio::test(start_paused = true)]
async fn a_guard_told_to_stop_ends_nothing() {
    let (yard, stop) = (Yard::new(), CancellationToken::new());
    stop.cancel();
    assert_eq!(yard.guard().run(stop).await, None);
}

#[test]
fn a_threshold_before_its_setting_time_has_passed_and_one_without_it_lasts_a_boot() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let now = Duration::from_secs(10);
    let mut memory = Memory::begin("boot", now, LENGTHS);
    let past = Deadline { at: at("2026-01-01T00:00:00Z"), set_at: Some(at("2026-01-01T00:00:01Z")) };
    assert!(memory.see(past, now, LENGTHS));
    assert_eq!(memory.left(now), LENGTHS.grace);
    assert!(!memory.see(past, now, LENGTHS), "not news");
    let unset = Deadline { at: at("9999-01-01T00:00:00Z"), set_at: None };
    assert!(memory.see(unset, now, LENGTHS));
    assert_eq!(memory.left(now), LENGTHS.created + LENGTHS.grace);
    let endless = Deadline { at: at("9999-01-01T00:00:00Z"), set_at: Some(at("-009999-01-02T01:59:59Z")) };
    assert!(memory.see(endless, now, LENGTHS) && memory.left(now) > Duration::from_secs(1_000_000));
}

#[test]
fn the_watchdog_timer_reads_the_file_that_the_guard_writes() {
    let lengths = Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) };
    let content = serde_json::to_vec(&Memory::begin("boot", Duration::from_secs(2000), lengths)).unwrap();
    let verdict =
        crate::shutdown::watchdog_timer::decide(Some(&content), "boot", Duration::from_secs(2899), lengths);
    assert_eq!(
        verdict,
        crate::shutdown::watchdog_timer::Verdict::Wait(
            Duration::from_secs(1) + crate::shutdown::watchdog_timer::MARGIN
        )
    );
}
