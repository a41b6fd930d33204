//! What of the outside is a finding, and which dependency's silence stops nothing else.

use super::*;
use crate::cli::context::{attributes, number, text};
use crate::model::{InstanceArn, InstanceId, UsageClass};
use crate::ports::MachineState;

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
    item.insert("request".into(), crate::model::AttributeValue::M(held.into_iter().collect()));
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
    assert_eq!(depth(120, 0), [""; 0]);
    assert_eq!(depth(121, 1), ["DeadLetters", "StaleMessages"]);
}

#[test]
fn a_runner_whose_machine_is_terminated_is_a_ghost_and_others_are_nobodys_business() {
    let runner = |name: &str| Runner { id: 1, name: name.into(), online: false, busy: false, labels: vec![] };
    let runners =
        ["runyard-i-1.7", "runyard-i-1.7-2", "runyard-i-2.7", "runyard-i-1.77", "other"].map(runner);
    let records = [record(1, "terminated", LONG_AGO), record(2, "idle", LONG_AGO)];
    assert_eq!(reasons(&ghosts("https://github.com/a/b", &runners, &records)), ["GhostRunner"; 2]);
}
