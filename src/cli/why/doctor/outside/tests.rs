//! Which external problems are findings, and which failing dependency stops no other check.

use super::*;
use crate::session::context::{attributes, number, text};
use runyard_core::model::{InstanceArn, InstanceId, UsageClass};
use runyard_core::ports::MachineState;
use runyard_store::Difference;

const NOW: &str = "2026-01-02T00:00:00Z";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";
const JUST_NOW: &str = "2026-01-01T23:59:59Z";

fn id(n: usize) -> InstanceId {
    format!("i-{n}").parse().unwrap()
}

fn machine(n: usize, state: MachineState, since: &str) -> Machine {
    Machine {
        arn: InstanceArn::local(&id(n)),
        id: id(n),
        class: None,
        launch: None,
        attempt: 1,
        instance_type: "m7i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        zone: String::new(),
        state,
        launched_at: since.parse().unwrap(),
    }
}

fn record(n: usize, state: &str, since: &str) -> Instance {
    let arn = InstanceArn::local(&id(n));
    let held = attributes([("pk", text("request#a/b#42")), ("sk", text("request#default#1"))]);
    let mut item = attributes([
        ("pk", text(format!("instance#{arn}"))),
        ("sk", text("instance")),
        ("kind", text("instance")),
        ("version", number(7u64)),
        ("updatedAt", text(since)),
        ("instanceId", text(id(n))),
        ("instanceArn", text(&arn)),
        ("state", text(state)),
        ("runId", text("")),
        ("claimId", text(format!("i-{n}.7"))),
        ("threshold", text(if state == "terminated" { "" } else { "2999-01-01T00:00:00Z" })),
        ("thresholdSetAt", text(since)),
        ("resourceClass", text("small")),
        ("usageClass", text("on-demand")),
        ("stateSince", text(since)),
        ("createdAt", text(since)),
    ]);
    item.insert("request".into(), runyard_core::model::AttributeValue::M(held.into_iter().collect()));
    match read::<Instance>(&item) {
        Reading::Record(record) => record,
        Reading::Newer { .. } | Reading::Unreadable(_) => panic!("{item:?}"),
    }
}

fn compared(machines: &[Machine], records: &[Instance]) -> Vec<Finding> {
    machines_and_records(machines, records, NOW.parse().unwrap(), Duration::from_secs(600))
}

fn reasons(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.reason).collect()
}

#[test]
fn a_machine_without_a_record_is_found_once_it_is_old_enough() {
    let lone = |since| compared(&[machine(1, MachineState::Running, since)], &[]);
    assert_eq!(reasons(&lone(LONG_AGO)), ["Unrecorded"]);
    assert_eq!(reasons(&lone(JUST_NOW)), [""; 0]);
    assert_eq!(reasons(&compared(&[machine(1, MachineState::Terminated, LONG_AGO)], &[])), [""; 0]);
}

#[test]
fn a_record_without_a_machine_is_found_and_mended_on_its_version_alone() {
    let found = compared(&[], &[record(1, "idle", LONG_AGO)]);
    assert_eq!(reasons(&found), ["NoMachine"]);
    let expected = ending(&record(1, "idle", LONG_AGO), NOW.parse().unwrap(), "doctor");
    assert_eq!(found[0].mend, [expected], "as `expire` writes it, on the version that was seen");
    assert_eq!(reasons(&compared(&[], &[record(1, "idle", JUST_NOW)])), [""; 0]);
}

#[test]
fn an_empty_list_of_machines_is_doubted_and_mends_nothing() {
    let records: Vec<Instance> = (0..4).map(|n| record(n, "idle", LONG_AGO)).collect();
    let found = compared(&[], &records);
    assert_eq!(reasons(&found), ["ListInDoubt"]);
    assert_eq!(found[0].mend, []);
    assert_eq!(reasons(&compared(&[], &records[..3])), ["NoMachine"; 3]);
}

#[test]
fn an_ended_machine_that_lives_is_found() {
    let machines = [machine(1, MachineState::Running, LONG_AGO)];
    assert_eq!(reasons(&compared(&machines, &[record(1, "terminated", LONG_AGO)])), ["StillAlive"]);
    assert_eq!(reasons(&compared(&machines, &[record(1, "terminated", JUST_NOW)])), [""; 0]);
}

#[test]
fn dead_letters_and_a_flood_are_found() {
    let depth = |waiting, dead| reasons(&queue_depth("runyard-small", QueueDepth { waiting, dead }, 2));
    assert_eq!(depth(104, 0), [""; 0]);
    assert_eq!(depth(105, 1), ["DeadLetters", "StaleMessages"]);
}

#[test]
fn a_queue_that_keeps_its_messages_for_another_time_is_found() {
    let differs = Difference { what: "MessageRetentionPeriod", wanted: "600".into(), found: "345600".into() };
    let found = shape("runyard-small", Ok(QueueState::Present(vec![differs]))).unwrap();
    assert_eq!((found.reason, found.problem.contains("wanted 600, found 345600")), ("QueueDiffers", true));
    let silent =
        [Ok(QueueState::Present(Vec::new())), Ok(QueueState::Missing(Vec::new())), Err(QueueError::Missing)];
    assert!(silent.into_iter().all(|found| shape("runyard-small", found).is_none()));
}

#[test]
fn a_runner_of_a_terminated_machine_is_stale_and_other_runners_are_left_alone() {
    let runner = |name: &str| Runner { id: 1, name: name.into(), online: false, busy: false, labels: vec![] };
    let runners =
        ["runyard-i-1.7", "runyard-i-1.7-2", "runyard-i-2.7", "runyard-i-1.77", "other"].map(runner);
    let records = [record(1, "terminated", LONG_AGO), record(2, "idle", LONG_AGO)];
    assert_eq!(reasons(&stale_runners("https://github.com/a/b", &runners, &records)), ["StaleRunner"; 2]);
}

#[test]
fn each_of_ten_pinned_versions_is_told_of_three_weeks_before_it_ends() {
    // As reported by GitHub's endpoint in 2026; it had no date for the eleventh.
    let known = [
        ("2.329.0", "2026-01-23T17:10:35Z"),
        ("2.330.0", "2026-03-13T18:34:13Z"),
        ("2.331.0", "2026-04-30T21:52:20Z"),
        ("2.332.0", "2026-05-25T15:23:35Z"),
        ("2.333.0", "2026-05-29T17:27:54Z"),
        ("2.333.1", "2026-06-30T15:52:45Z"),
        ("2.334.0", "2026-08-10T17:08:55Z"),
        ("2.335.0", "2026-08-14T16:59:37Z"),
        ("2.335.1", "2026-09-24T15:30:55Z"),
        ("2.336.0", "2026-11-05T08:04:55Z"),
    ];
    for (version, at) in known {
        let at: Timestamp = at.parse().unwrap();
        let end = EndOfLife { runtime: Some(at), ..EndOfLife::default() };
        let told = |hours: i64| {
            runner_end(version, end, at - jiff::SignedDuration::from_hours(hours))
                .map(|finding| finding.problem)
        };
        assert_eq!(told(21 * 24 + 1), None, "{version}");
        assert!(told(21 * 24 - 1).unwrap().contains("in 20 days"), "{version}");
        assert!(told(7 * 24).unwrap().contains("in 7 days"), "{version}");
        assert!(told(-1).unwrap().starts_with("since "), "{version}");
    }
    let now: Timestamp = NOW.parse().unwrap();
    assert!(runner_end("2.337.0", EndOfLife::default(), now).is_none());
    let registration = EndOfLife { registration: Some(now), runtime: None };
    assert!(runner_end("2.1.0", registration, now).unwrap().problem.contains("registers no runner 2.1.0"));
}

#[test]
fn a_doorbell_that_is_missing_is_told_and_one_that_cannot_be_had_is_not() {
    assert!(bell("yard-doorbell", Ok(())).is_none());
    assert!(bell("yard-doorbell", Err(QueueError::NoService("no SQS".into()))).is_none());
    let told = bell("yard-doorbell", Err(QueueError::Missing)).expect("it is missing");
    assert_eq!((told.reason, told.record.as_str()), ("DoorbellMissing", "yard-doorbell"));
    assert!(told.fix.contains("runyard init"), "{}", told.fix);
    let told = bell("yard-doorbell", Err(QueueError::Denied("no right".into()))).expect("it is not known");
    assert_eq!(told.reason, "QueueUnasked");
}

#[test]
fn a_missing_queue_of_queued_jobs_is_told_and_nobody_need_come() {
    let name = "yard-jobs";
    assert!(job_bell(name, Ok(QueueState::Present(Vec::new()))).is_none());
    assert!(job_bell(name, Err(QueueError::NoService("no SQS".into()))).is_none());
    let told = job_bell(name, Ok(QueueState::Missing(Vec::new()))).expect("it is missing");
    assert_eq!((told.severity, told.reason), (EventType::Normal, "JobsQueueMissing"));
    assert!(told.record == name && told.fix.contains("runyard init"), "{told:?}");
    let told = job_bell(name, Err(QueueError::Denied("no right".into()))).expect("it is not known");
    assert_eq!((told.severity, told.reason), (EventType::Warning, "QueueUnasked"));
}

#[test]
fn a_class_with_a_name_that_is_reserved_by_now_is_told() {
    let table = TableName::parse("yard").unwrap();
    let named = |class: &str| {
        let spec = serde_json::from_value(serde_json::json!({"resourceClass": class})).unwrap();
        let status = Default::default();
        reserved(&table, &Pool { spec, scale: None, status, uid: None, version: 1, updated_at: None })
    };
    assert!(named("job").is_none());
    for class in ["doorbell", "interruptions", "jobs"] {
        let told = named(class).expect(class);
        assert_eq!((told.severity, told.reason), (EventType::Warning, "ReservedClass"));
        assert!(told.problem.contains(&format!("yard-{class}")) && told.fix.contains("another name"));
    }
}

#[tokio::test]
async fn a_yard_without_a_history_table_is_told_and_nobody_need_come() {
    use crate::output::format::Format;
    use crate::output::screen::Screen;
    use runyard_core::ports::StoreError;
    use runyard_fakes::{Fault, MemoryStore};
    let mut context = CliContext::on(MemoryStore::new(), Screen::nowhere(Format::Text));
    assert!(history(&context).await.is_none(), "a name that leaves no room for one");
    let store = MemoryStore::new();
    context.history = Some(std::sync::Arc::new(store.clone()));
    assert!(history(&context).await.is_none(), "it is there");
    store.next_read(Fault::Fail(StoreError::NoTable("runyard-history".into())));
    let finding = history(&context).await.expect("it is told");
    assert_eq!((finding.severity, finding.reason), (EventType::Normal, "HistoryMissing"));
    assert_eq!(finding.record, "runyard-history");
    assert!(finding.fix.contains("runyard init"), "{}", finding.fix);
}
