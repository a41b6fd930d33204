//! What is a finding, what is not, and which records a repair depends on.

use super::*;
use crate::session::context::{attributes, number, text};
use runyard_core::model::{AttributeValue, Operation};

const NOW: &str = "2026-01-02T00:00:00Z";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";
const JUST_NOW: &str = "2026-01-01T23:59:59Z";
const ARN: &str = "arn:aws:ec2:local:000000000000:instance/i-1";

fn found(items: &[Item]) -> Vec<Finding> {
    let mut all = examine(items, NOW.parse().unwrap(), Duration::from_secs(600));
    all.retain(|finding| finding.reason != "NoOperator");
    all
}

fn reasons(items: &[Item]) -> Vec<&'static str> {
    found(items).iter().map(|finding| finding.reason).collect()
}

fn instance(state: &str, run: &str, since: &str) -> Item {
    let held = attributes([("pk", text("request#a/b#42")), ("sk", text("request#default#1"))]);
    let mut item = attributes([
        ("pk", text(format!("instance#{ARN}"))),
        ("sk", text("instance")),
        ("kind", text("instance")),
        ("version", number(7u64)),
        ("updatedAt", text(since)),
        ("instanceId", text("i-1")),
        ("instanceArn", text(ARN)),
        ("state", text(state)),
        ("runId", text(run)),
        ("claimId", text(if run.is_empty() { "" } else { "i-1.7" })),
        ("threshold", text("2999-01-01T00:00:00Z")),
        ("thresholdSetAt", text(since)),
        ("resourceClass", text("small")),
        ("usageClass", text("on-demand")),
        ("stateSince", text(since)),
        ("createdAt", text(since)),
    ]);
    if !run.is_empty() {
        item.insert("request".into(), AttributeValue::M(held.into_iter().collect()));
    }
    item
}

fn agent(at: &str, beats: u64) -> Item {
    attributes([
        ("pk", text(format!("agent#{ARN}"))),
        ("sk", text("agent")),
        ("kind", text("agent")),
        ("heartbeatSeq", number(beats)),
        ("updatedAt", text(at)),
    ])
}

fn request(phase: &str, instances: &[&str], at: &str) -> Item {
    attributes([
        ("pk", text("request#a/b#42")),
        ("sk", text("request#default#1")),
        ("kind", text("request")),
        ("version", number(3u64)),
        ("runId", text("42")),
        ("attempt", number(1u64)),
        ("repository", text("a/b")),
        ("name", text("default")),
        ("resourceClass", text("small")),
        ("count", number(1u64)),
        ("desired", text("provisioned")),
        ("generation", number(1u64)),
        ("observedGeneration", number(1u64)),
        ("phase", text(phase)),
        ("instances", AttributeValue::L(instances.iter().map(text).collect())),
        ("updatedAt", text(at)),
    ])
}

fn pool() -> Item {
    attributes([
        ("pk", text("pool#small")),
        ("sk", text("pool")),
        ("kind", text("pool")),
        ("version", number(1u64)),
        ("resourceClass", text("small")),
    ])
}

#[test]
fn what_fits_together_is_no_finding() {
    let busy = instance("running", "42", LONG_AGO);
    assert_eq!(reasons(&[pool(), busy, agent(JUST_NOW, 9), request("Ready", &["i-1"], LONG_AGO)]), [""; 0]);
}

#[test]
fn a_ready_request_that_lacks_a_machine_for_long_is_found() {
    let degraded = |at: &str, is: bool, phase: &str| {
        let mut request = request(phase, &["i-1"], JUST_NOW);
        let condition = [
            ("type", text("Degraded")),
            ("status", AttributeValue::Bool(is)),
            ("reason", text("expired")),
            ("message", text("lost i-2 (expired); to be replaced")),
            ("at", text(at)),
        ];
        let condition = condition.map(|(name, value)| (name.to_owned(), value)).into();
        request.insert("conditions".into(), AttributeValue::L(vec![AttributeValue::M(condition)]));
        request.insert("count".into(), number(2u64));
        found(&[pool(), instance("running", "42", LONG_AGO), agent(JUST_NOW, 9), request])
    };
    let of = |findings: Vec<Finding>| findings.iter().map(|one| one.reason).collect::<Vec<_>>();
    let found = degraded(LONG_AGO, true, "Ready");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.starts_with("has 1 of 2 since"), "{}", found[0].problem);
    assert!(found[0].problem.ends_with("lost i-2 (expired); to be replaced"), "{}", found[0].problem);
    assert_eq!(of(degraded(JUST_NOW, true, "Ready")), [""; 0], "it is being mended");
    assert_eq!(of(degraded(LONG_AGO, false, "Ready")), [""; 0]);
    assert_eq!(of(degraded(LONG_AGO, true, "Releasing")), [""; 0]);
}

#[test]
fn a_machine_held_by_a_request_that_does_not_list_it_is_found_once_it_has_settled() {
    let held = |since, phase, list: &[&str]| {
        reasons(&[
            pool(),
            instance("running", "42", since),
            agent(JUST_NOW, 9),
            request(phase, list, JUST_NOW),
        ])
    };
    assert_eq!(held(LONG_AGO, "Ready", &[]), ["ForeignClaim"]);
    assert_eq!(held(JUST_NOW, "Ready", &[]), [""; 0]);
    assert_eq!(held(LONG_AGO, "Failed", &["i-1"]), ["ForeignClaim"]);
    assert_eq!(held(LONG_AGO, "Ready", &["i-1"]), [""; 0]);
}

#[test]
fn a_request_that_lists_what_is_not_there_is_found_once_it_has_settled() {
    assert_eq!(reasons(&[request("Ready", &["i-1"], LONG_AGO)]), ["LostMachine"]);
    assert_eq!(reasons(&[request("Ready", &["i-1"], JUST_NOW)]), [""; 0]);
    let elsewhere = [pool(), instance("idle", "", LONG_AGO), agent(JUST_NOW, 9)];
    assert_eq!(reasons(&[&elsewhere[..], &[request("Ready", &["i-1"], LONG_AGO)]].concat()), ["LostMachine"]);
}

#[test]
fn every_mend_is_on_all_that_was_seen() {
    let orphan = found(&[agent(LONG_AGO, 9)]);
    assert_eq!(orphan[0].reason, "OrphanAgent");
    let machine = RecordId::new(format!("instance#{ARN}"), "instance");
    assert_eq!(orphan[0].mend[1], Write::check(machine, Guard::Absent));
    let foreign = found(&[pool(), instance("running", "42", LONG_AGO), agent(JUST_NOW, 9)]);
    assert_eq!(foreign[0].reason, "ForeignClaim");
    let Operation::Update { guard, .. } = &foreign[0].mend[0].operation else { panic!("an update") };
    assert_eq!(*guard, Guard::Version(7));
    assert_eq!(foreign[0].mend[1].operation, Operation::Check(Guard::Absent));
}

#[test]
fn foreign_items_in_the_table_are_no_finding_and_items_under_our_keys_are_examined() {
    let note = |pk: &str, sk: &str| attributes([("pk", text(pk)), ("sk", text(sk)), ("kind", text("note"))]);
    assert_eq!(reasons(&[note("note#1", "note"), note("pool#small", "note")]), [""; 0]);
    let mut posing = pool();
    posing.extend(attributes([("pk", text("note#1")), ("sk", text("pool"))]));
    assert_eq!(reasons(&[posing]), [""; 0], "its kind says nothing");
    let odd = found(&[note("pool#small", "pool")]);
    assert_eq!((odd.len(), odd[0].reason), (1, "UnreadableRecord"));
    assert!(odd[0].problem.contains("kind: note under the key of a pool"), "{odd:?}");
}

#[test]
fn rows_that_are_no_records_under_requests_and_agents_are_counted() {
    let row = |pk: &str, sk: &str| attributes([("pk", text(pk)), ("sk", text(sk))]);
    let logs = row("agent#arn:aws:ec2:eu-west-1:1:instance/i-1", "log");
    assert_eq!(reasons(std::slice::from_ref(&logs)), [""; 0]);
    let odd =
        found(&[row("request#acme/web#1", "x"), row("request#acme/web#1", "y"), logs, row("agent#i-1", "z")]);
    assert_eq!((odd.len(), odd[0].reason), (1, "ForeignRows"));
    assert_eq!(odd[0].problem, "it is no record, and 2 more rows like it are none either");
}

#[test]
fn what_is_young_or_there_but_unreadable_is_not_missing() {
    assert_eq!(reasons(&[agent(JUST_NOW, 0)]), [""; 0], "its instance may have been read before it was made");
    assert_eq!(reasons(&[pool(), instance("created", "", JUST_NOW)]), [""; 0]);
    let mut odd = instance("idle", "", LONG_AGO);
    odd.insert("state".into(), text("asleep"));
    assert_eq!(reasons(&[odd, agent(JUST_NOW, 9)]), ["UnreadableRecord"]);
}

fn told(condition: &str, message: &str) -> AttributeValue {
    let condition = attributes([
        ("type", text(condition)),
        ("status", AttributeValue::Bool(true)),
        ("reason", text("Repeats")),
        ("message", text(message)),
        ("at", text(LONG_AGO)),
    ]);
    AttributeValue::L(vec![AttributeValue::M(condition.into_iter().collect())])
}

#[test]
fn what_the_operator_cannot_do_is_found_by_name_and_with_its_fix() {
    let mut stuck = pool();
    let message = "instance i-1: it is gone, record that: refused; compare these records";
    stuck.insert("conditions".into(), told("Stuck", message));
    stuck.insert("counts".into(), AttributeValue::M([("idle".to_owned(), number(0u64))].into()));
    let found = found(&[stuck]);
    assert_eq!((found.len(), found[0].reason), (1, "Stuck"));
    assert_eq!((found[0].record.as_str(), found[0].problem.as_str()), ("pool#small / pool", message));
}

#[test]
fn a_request_that_cannot_account_for_a_machine_is_found() {
    let mut over = request("Released", &[], LONG_AGO);
    over.insert("conditions".into(), told("Unaccounted", "1 of 2 unaccounted for"));
    assert_eq!(reasons(&[over]), ["Unaccounted"]);
}

#[test]
fn rights_of_jobs_that_a_class_may_not_grant_are_found() {
    let with = |within: &str| {
        let mut pool = pool();
        let jobs = [("root".to_owned(), AttributeValue::Bool(true))].into();
        pool.insert("jobs".into(), AttributeValue::M(jobs));
        pool.insert("reuseWithin".into(), text(within));
        pool.insert("registrationMode".into(), text("job"));
        reasons(&[pool])
    };
    assert_eq!((with("owner"), with("none")), (vec!["JobsNotGranted"], vec![]));
}

#[test]
fn an_idle_time_too_short_for_what_a_class_keeps_is_found() {
    let with = |desired: u64, idle: u64| {
        let mut pool = pool();
        pool.insert("desired".into(), number(desired));
        pool.insert("idleSeconds".into(), number(idle));
        reasons(&[pool])
    };
    assert_eq!(with(1, 59), ["IdleTooShort"]);
    assert_eq!((with(1, 60), with(0, 0)), (vec![], vec![]));
}

#[test]
fn a_stored_schedule_that_cannot_fire_is_found() {
    let with = |cron: &str| {
        let mut pool = pool();
        let schedule = attributes([("cron", text(cron)), ("desired", number(1u64))]);
        pool.insert(
            "schedules".into(),
            AttributeValue::L(vec![AttributeValue::M(schedule.into_iter().collect())]),
        );
        reasons(&[pool])
    };
    assert_eq!((with("0 8 31 2 *"), with("soon")), (vec!["UnusableSchedule"], vec!["UnusableSchedule"]));
    assert_eq!(with("0 8 * * 1-5"), Vec::<&str>::new());
}
