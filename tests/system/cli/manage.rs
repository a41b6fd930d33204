//! What people do: expire, fail, refresh, doctor, init.

use std::process::Stdio;

use runyard_core::model::{AttributeValue, Item, RecordId};
use serde_json::json;

use crate::cli::yard::{Yard, finished, number, request, text};

const SET: &str = "2026-01-01T00:00:00Z";

fn instance(id: &str) -> RecordId {
    RecordId::new(format!("instance#arn:aws:ec2:local:000000000000:instance/{id}"), "instance")
}

fn machine(yard: &Yard, id: &str, state: &str, run: &str) -> RecordId {
    let key = instance(id);
    let held = [("pk", text("request#acme/web#42")), ("sk", text("request#default#1"))];
    let mut attributes = vec![
        ("kind", text("instance")),
        ("version", number(7)),
        ("updatedAt", text(SET)),
        ("instanceId", text(id)),
        ("instanceArn", text(key.pk().trim_start_matches("instance#"))),
        ("state", text(state)),
        ("runId", text(run)),
        ("claimId", text(if run.is_empty() { String::new() } else { format!("{id}.7") })),
        ("threshold", text("2999-01-01T00:00:00Z")),
        ("thresholdSetAt", text(SET)),
        ("resourceClass", text("small")),
        ("usageClass", text("on-demand")),
        ("stateSince", text(SET)),
        ("createdAt", text(SET)),
        ("fromTheFuture", text("kept")),
    ];
    if state == "idle" {
        attributes.push(("pooledAt", text(SET)));
    }
    if !run.is_empty() {
        let held = held.map(|(name, value)| (name.to_owned(), value)).into();
        attributes.push(("request", AttributeValue::M(held)));
    }
    yard.put(&key, &attributes);
    key
}

fn expired(item: &Item) -> bool {
    item["threshold"] == item["thresholdSetAt"]
        && item["threshold"] != text("2999-01-01T00:00:00Z")
        && item["version"] == number(8)
        && item["fromTheFuture"] == text("kept")
}

#[test]
fn an_idle_machine_is_expired_and_a_busy_one_only_with_now() {
    let yard = Yard::new();
    let (idle, busy) = (machine(&yard, "i-1", "idle", ""), machine(&yard, "i-2", "running", "42"));
    yard.runs(&["expire", "i-1"], 0);
    assert!(expired(&yard.record(&idle)));
    let error = yard.runs(&["expire", "i-2", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().expect("text").contains("--now"), "{error}");
    assert_eq!(yard.record(&busy)["version"], number(7));
    // A run would lose it, and nobody can be asked here.
    let error = yard.runs(&["expire", "i-2", "--now", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().expect("text").contains("--yes"), "{error}");
    assert_eq!(yard.record(&busy)["version"], number(7));
    yard.runs(&["expire", "i-2", "--now", "--yes"], 0);
    assert!(expired(&yard.record(&busy)));
    assert_eq!(yard.runs(&["expire", "i-3", "-o", "json"], 1).error()["value"], "i-3");
}

#[test]
fn the_idle_machines_of_a_class_are_expired_and_no_others() {
    let yard = Yard::new();
    let idle = [machine(&yard, "i-1", "idle", ""), machine(&yard, "i-2", "idle", "")];
    let busy = [machine(&yard, "i-3", "running", "42"), machine(&yard, "i-4", "created", "")];
    let shown = yard.runs(&["expire", "small", "--idle", "-o", "json"], 0).json();
    assert_eq!(shown["items"].as_array().map(Vec::len), Some(2));
    assert!(idle.iter().all(|key| expired(&yard.record(key))));
    assert!(busy.iter().all(|key| yard.record(key)["version"] == number(7)));
    let file = yard.file("pools.json", r#"[{"resourceClass":"big","max":1}]"#);
    yard.runs(&["apply", "-f", &file], 0);
    assert!(yard.runs(&["expire", "big", "--idle"], 0).stdout.contains("no idle machines"));
    let error = yard.runs(&["expire", "bigg", "--idle", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().expect("text").contains("did you mean big?"), "{error}");
}

#[test]
fn instances_are_listed_and_described_with_their_agents() {
    let yard = Yard::new();
    let key = machine(&yard, "i-1", "running", "42");
    let agent = RecordId::new(key.pk().replace("instance#arn", "agent#arn"), "agent");
    yard.put(&agent, &[("kind", text("agent")), ("signal", text("UD_REG_OK")), ("heartbeatSeq", number(3))]);
    let table = yard.runs(&["get", "instances", "-o", "wide"], 0).stdout;
    assert!(table.contains("UD_REG_OK") && table.contains("running"), "{table}");
    let one = yard.runs(&["describe", "instance", "i-1", "-o", "json"], 0).json();
    assert_eq!((&one["state"], &one["agent"]["heartbeatSeq"]), (&json!("running"), &json!(3)));
    assert_eq!(one["request"], json!({"pk": "request#acme/web#42", "sk": "request#default#1"}));
}

#[test]
fn a_stuck_request_is_failed_by_asking_the_operator() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    yard.runs(&["fail", "42"], 0);
    let record = yard.record(&request("default", 1));
    assert_eq!((&record["failRequestedBy"], &record["version"]), (&text("cli:tess"), &number(2)));
    assert!(!record.contains_key("phase"), "the status is the operator's");
    assert!(yard.runs(&["fail", "42/default"], 0).stdout.contains("already failing"));
    assert_eq!(yard.record(&request("default", 1))["version"], number(2));
    yard.change(&request("default", 1), &[("phase", text("Failed"))]);
    assert!(yard.runs(&["fail", "42"], 0).stdout.contains("already Failed"));
    yard.runs(&["fail", "43"], 1);
}

#[test]
fn a_request_that_holds_machines_is_failed_by_a_yes_alone() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let key = request("default", 1);
    let held = AttributeValue::L(vec![text("i-0123456789abcdef0")]);
    yard.change(&key, &[("phase", text("Ready")), ("instances", held)]);
    let error = yard.runs(&["fail", "42", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().expect("text").contains("--yes"), "{error}");
    assert!(!yard.record(&key).contains_key("failRequestedAt"));
    yard.runs(&["fail", "42", "--yes"], 0);
    assert!(yard.record(&key).contains_key("failRequestedAt"));
}

#[test]
fn machines_that_ended_are_listed_where_they_are_asked_for() {
    let yard = Yard::new();
    machine(&yard, "i-1", "idle", "");
    machine(&yard, "i-2", "terminated", "");
    let listed = |more: &[&str]| {
        yard.runs(&[&["get", "instances", "-o", "name"][..], more].concat(), 0).stdout.replace('\n', " ")
    };
    assert_eq!(listed(&[]), "instance/i-1 ");
    assert_eq!(listed(&["--all"]), "instance/i-1 instance/i-2 ");
    assert_eq!(listed(&["--state", "terminated"]), "instance/i-2 ");
    assert_eq!(listed(&["--field-selector", "state=terminated"]), "instance/i-2 ");
    assert_eq!(yard.runs(&["get", "instance", "i-2", "-o", "name"], 0).stdout, "instance/i-2\n");
    let refused = yard.runs(&["get", "instances", "--sort-by", ".nope", "-o", "json"], 2).error();
    assert!(refused["fix"].as_str().expect("text").contains("instanceId"), "{refused}");
}

#[test]
fn a_refresh_waits_for_a_resync_that_began_after_it_was_asked_for() {
    let yard = Yard::new();
    let key = RecordId::new("lease#resync", "lease");
    assert_eq!(yard.runs(&["refresh", "--timeout", "200ms", "-o", "json"], 4).error()["field"], "--timeout");
    let first = yard.record(&key)["requestedAt"].clone();
    // An operator far ahead of us completed it at its own time: the next asking is for a later one all the same.
    yard.change(&key, &[("completedAt", text("2998-01-01T00:00:00Z"))]);
    let mut command = yard.command(&["refresh"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let asked = yard.until(&key, |item| item["requestedAt"] != first);
    assert_eq!(asked["requestedAt"], text("2998-01-01T00:00:00.001Z"));
    yard.change(&key, &[("completedAt", asked["requestedAt"].clone())]);
    assert!(finished(child, 0).stdout.contains("everything was looked at"));
}

#[test]
fn doctor_finds_what_contradicts_and_mends_it_conditionally() {
    let yard = Yard::new();
    let orphan = RecordId::new("agent#arn:aws:ec2:local:000000000000:instance/i-9", "agent");
    yard.put(&orphan, &[("kind", text("agent")), ("heartbeatSeq", number(0))]);
    let foreign = machine(&yard, "i-1", "running", "42");
    let reasons = |args: &[&str], code| {
        let found = yard.runs(args, code).json();
        let items = found["items"].as_array().expect("a list").clone();
        items.iter().map(|one| format!("{} {}", one["reason"], one["mended"])).collect::<Vec<_>>()
    };
    let found = reasons(&["doctor", "-o", "json"], 1);
    for reason in ["OrphanAgent", "ForeignClaim", "NoAgentRecord", "NoPool", "NoOperator"] {
        assert!(found.iter().any(|one| one == &format!("\"{reason}\" false")), "{reason}: {found:?}");
    }
    assert_eq!(yard.record(&foreign)["version"], number(7), "looking changes nothing");
    let found = reasons(&["doctor", "--fix", "-o", "json"], 1);
    assert!(found.contains(&"\"OrphanAgent\" true".to_owned()), "{found:?}");
    assert_eq!(yard.item(&orphan), None);
    assert!(expired(&yard.record(&foreign)));
}

#[test]
fn init_makes_the_table_once_and_refuses_another_shape() {
    let yard = Yard::bare();
    assert!(yard.runs(&["init", "--dry-run"], 0).stdout.contains("would be created"));
    yard.runs(&["get", "pools"], 1);
    assert!(yard.runs(&["init"], 0).stdout.contains("created"));
    assert!(yard.runs(&["init"], 0).stdout.contains("as it should be"));
    assert!(yard.runs(&["init", "--dry-run"], 0).stdout.contains("as it should be"));
    yard.foreign_table("other");
    let refused = yard.runs(&["init", "--table", "other", "-o", "json"], 1).error();
    assert!(refused["message"].as_str().expect("text").contains("nothing was changed"), "{refused}");
}
