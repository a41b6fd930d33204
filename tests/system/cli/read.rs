//! Reading: lists and single records for programs, tables for people, events, and what cannot be read.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use runyard_core::model::{AttributeValue, RecordId};
use serde_json::json;

use crate::cli::yard::{REPOSITORY, Yard, number, request, text};

#[test]
fn lists_are_items_and_one_record_is_an_object() {
    let yard = Yard::new();
    for kind in ["instances", "requests", "pools", "launches"] {
        assert_eq!(yard.runs(&["get", kind, "-o", "json"], 0).json(), json!({"items": []}), "{kind}");
    }
    yard.provision(&[], 0);
    yard.provision(&["--attempt", "2"], 0);
    yard.change(&request("default", 2), &[("fromTheFuture", text("kept"))]);
    let listed = yard.runs(&["get", "requests", "-o", "json"], 0).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(listed["items"][1]["fromTheFuture"], "kept");
    assert!(listed["items"][0].get("pk").is_none() && listed["items"][0].get("sk").is_none());
    let one = yard.runs(&["get", "request", "42", "-o", "json"], 0).json();
    assert_eq!(one["attempt"], 2, "the latest attempt unless one is named");
    let first = yard.runs(&["get", "requests", "42/default/1", "-o", "yaml"], 0).stdout;
    assert!(first.contains("attempt: 1\n") && first.contains("runId: '42'\n"), "{first}");
}

#[test]
fn a_run_of_two_repositories_needs_the_repository() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let other = ["provision", "--run-id", "42", "--repository", "acme/api", "--class", "a", "--count", "1"];
    yard.runs(&other, 0);
    let error = yard.runs(&["describe", "request", "42", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().expect("text").contains("--repository"), "{error}");
    let one = yard.runs(&["describe", "request", "42", "--repository", "acme/api", "-o", "json"], 0).json();
    assert_eq!(one["repository"], "acme/api");
    assert_eq!(yard.runs(&["get", "request", "7", "-o", "json"], 1).error()["value"], "7");
}

#[test]
fn what_cannot_be_read_is_listed_as_such() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let odd = RecordId::new("request#acme/web#43", "request#default#1");
    yard.put(&odd, &[("kind", text("request")), ("count", text("many")), ("version", number(1))]);
    let newer = RecordId::new("request#acme/web#44", "request#default#1");
    yard.put(&newer, &[("kind", text("request")), ("schema", number(9))]);
    let table = yard.runs(&["get", "requests"], 0).stdout;
    assert!(table.contains("unreadable: request#acme/web#43 / request#default#1"), "{table}");
    assert!(table.contains("schema 9"), "{table}");
    let listed = yard.runs(&["get", "requests", "-o", "json"], 0).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(listed["unreadable"].as_array().map(Vec::len), Some(2));
    let doctor = yard.runs(&["doctor", "-o", "json"], 1).json();
    let reasons: Vec<_> =
        doctor["items"].as_array().expect("a list").iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["UnreadableRecord", "NewerRecord", "NoOperator"]);
}

#[test]
fn what_others_keep_in_the_table_is_neither_listed_nor_reported() {
    let yard = Yard::new();
    yard.put(&RecordId::new("note#1", "note"), &[("kind", text("note"))]);
    yard.put(&RecordId::new("note#2", "pool"), &[("kind", text("pool"))]);
    yard.put(&RecordId::new("pool#small", "note"), &[("kind", text("pool"))]);
    assert_eq!(yard.runs(&["get", "pools", "-o", "json"], 0).json(), json!({"items": []}));
    let reasons = || {
        let doctor = yard.runs(&["doctor", "-o", "json"], 1).json();
        let items = doctor["items"].as_array().expect("a list").clone();
        items.into_iter().map(|one| one["reason"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(reasons(), ["NoOperator"]);
    // Under a key of ours it is ours, whatever it says it is.
    yard.put(&RecordId::new("pool#small", "pool"), &[("kind", text("note"))]);
    assert_eq!(reasons(), ["UnreadableRecord", "NoOperator"]);
    let listed = yard.runs(&["get", "pools", "-o", "json"], 0).json();
    assert_eq!(listed["unreadable"].as_array().map(Vec::len), Some(1), "{listed}");
    yard.put(&RecordId::new("pool#small", "event#2026-01-01T00:00:00Z#1"), &[("kind", text("event"))]);
    assert_eq!(reasons(), ["UnreadableRecord", "UnreadableRecord", "NoOperator"], "an odd event is told of");
}

#[test]
fn a_list_can_be_of_one_class_state_or_phase() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    yard.provision(&["--name", "other"], 0);
    yard.change(&request("other", 1), &[("phase", text("Ready")), ("resourceClass", text("large"))]);
    for (name, state) in [("i-1", "idle"), ("i-2", "running")] {
        let arn = format!("arn:aws:ec2:local:000000000000:instance/{name}");
        let words =
            [("kind", text("instance")), ("instanceId", text(name)), ("resourceClass", text("small"))];
        yard.put(
            &RecordId::new(format!("instance#{arn}"), "instance"),
            &[&words[..], &[("state", text(state))]].concat(),
        );
    }
    let listed = |arguments: &[&str], attribute: &str| {
        let listed = yard.runs(&[&["get"], arguments, &["-o", "json"]].concat(), 0).json();
        let items = listed["items"].as_array().expect("a list").clone();
        items
            .into_iter()
            .map(|one| one[attribute].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&["requests", "--phase", "Ready"], "name"), ["other"]);
    assert_eq!(listed(&["requests", "--phase", "Pending"], "name"), ["default"], "nobody has seen it yet");
    assert_eq!(listed(&["requests", "--class", "large"], "name"), ["other"], "it has no pool, but a request");
    let file = yard.file("pools.json", r#"[{"resourceClass":"large","max":1}]"#);
    yard.runs(&["apply", "-f", &file], 0);
    assert_eq!(listed(&["requests", "--class", "large", "--phase", "Pending"], "name"), [""; 0]);
    assert_eq!(listed(&["instances", "--state", "idle"], "instanceId"), ["i-1"]);
    assert_eq!(listed(&["instances", "--class", "small", "--state", "running"], "instanceId"), ["i-2"]);
    let error = yard.runs(&["get", "instances", "--class", "larg", "-o", "json"], 1).error();
    assert_eq!(
        (&error["field"], &error["value"]),
        (&json!("--class"), &json!("larg")),
        "no class, no machines"
    );
    assert!(error["fix"].as_str().expect("text").contains("did you mean large?"), "{error}");
    let none = yard.runs(&["get", "instances", "--class", "large"], 0);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "there are no such instances\n"));
}

/// A pool's own counts are up to 10 s old: beside four idle machines they said 0.
#[test]
fn a_list_of_pools_counts_the_machines_that_the_table_has() {
    let yard = Yard::new();
    let file =
        yard.file("pools.json", r#"[{"resourceClass":"small","max":4},{"resourceClass":"large","max":4}]"#);
    yard.runs(&["apply", "-f", &file], 0);
    for (name, state) in [("i-1", "idle"), ("i-2", "idle"), ("i-3", "running"), ("i-4", "terminated")] {
        let arn = format!("arn:aws:ec2:local:000000000000:instance/{name}");
        let words =
            [("kind", text("instance")), ("instanceId", text(name)), ("resourceClass", text("small"))];
        yard.put(
            &RecordId::new(format!("instance#{arn}"), "instance"),
            &[&words[..], &[("state", text(state))]].concat(),
        );
    }
    let cells = |class: &str| {
        let listed = yard.runs(&["get", "pools", "--no-headers"], 0).stdout;
        let row = listed.lines().find(|row| row.starts_with(class)).expect("it is listed").to_owned();
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // CLASS, DESIRED, MIN, MAX, IDLE, LIVE.
    assert_eq!(cells("small")[3..6], ["4", "2", "3"]);
    assert_eq!(cells("large")[3..6], ["4", "0", "0"]);
}

#[test]
fn events_can_be_told_from_a_moment_on() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    yard.runs(&["fail", "42"], 0);
    for (at, more) in [("2026-01-01T00:00:00Z", &[("at", text("2026-01-01T00:00:00Z"))][..]), ("odd", &[])] {
        yard.put(
            &RecordId::new("request#acme/web#42", format!("event#{at}#1")),
            &[&[("kind", text("event"))], more].concat(),
        );
    }
    let told = |arguments: &[&str]| {
        let told = yard.runs(&[&["events"], arguments, &["-o", "json"]].concat(), 0).json();
        told["items"].as_array().map(Vec::len)
    };
    assert_eq!((told(&[]), told(&["request", "42"])), (Some(3), Some(3)));
    assert_eq!(told(&["--since", "30m"]), Some(2), "what happened, and what does not say when");
    assert_eq!(told(&["request", "42", "--since", "30m"]), Some(2));
}

#[test]
fn tables_for_people_have_one_line_a_record_and_more_columns_when_wide() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let narrow = yard.runs(&["get", "requests"], 0).stdout;
    let lines: Vec<&str> = narrow.lines().collect();
    assert_eq!(lines.len(), 2, "{narrow}");
    assert!(lines[0].starts_with("REPOSITORY  RUN"), "{narrow}");
    let cells: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(&cells[..7], [REPOSITORY, "42", "default", "1", "small", "Pending", "0/2"]);
    let wide = yard.runs(&["get", "requests", "-o", "wide"], 0).stdout;
    assert!(wide.contains("DEADLINE") && !narrow.contains("DEADLINE"));
}

#[test]
fn requests_are_listed_by_their_age_and_a_degraded_one_is_told_as_such() {
    let yard = Yard::new();
    for (run, at) in [
        ("9", "2026-01-01T00:00:05.12Z"),
        ("10", "2026-01-01T00:00:05.123Z"),
        ("abc", "2026-01-01T00:00:05Z"),
    ] {
        let ask =
            ["provision", "--run-id", run, "--repository", REPOSITORY, "--class", "small", "--count", "2"];
        yard.runs(&ask, 0);
        let key = RecordId::new(format!("request#{REPOSITORY}#{run}"), "request#default#1");
        yard.change(&key, &[("acceptedAt", text(at)), ("phase", text("Ready"))]);
    }
    let degraded = [
        ("type", text("Degraded")),
        ("status", AttributeValue::Bool(true)),
        ("reason", text("expired")),
        ("message", text("lost i-1 (expired); to be replaced")),
        ("at", text("2026-01-01T00:02:00Z")),
    ];
    let degraded = degraded.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let key = RecordId::new(format!("request#{REPOSITORY}#9"), "request#default#1");
    yard.change(&key, &[("conditions", AttributeValue::L(vec![AttributeValue::M(degraded)]))]);
    let table = yard.runs(&["get", "requests"], 0).stdout;
    let runs: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(runs, ["abc", "9", "10"], "{table}");
    assert!(table.contains("Ready, degraded"), "{table}");
}

#[test]
fn verbs_of_people_leave_an_event_by_name_and_those_of_workflows_none() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let told = || yard.runs(&["events", "request", "42", "-o", "json"], 0).json()["items"].clone();
    assert_eq!(told(), json!([]), "a workflow's credential writes intents alone");
    yard.runs(&["fail", "42"], 0);
    let events = told();
    let [event] = events.as_array().expect("a list").as_slice() else { panic!("one event: {events}") };
    let told = (&event["reason"], &event["actor"], &event["kind"], &event["subject"]);
    let by = (json!("FailRequested"), json!("cli:tess"), json!("event"), json!("request#acme/web#42"));
    assert_eq!(told, (&by.0, &by.1, &by.2, &by.3));
    assert!(event["expiresAt"].is_number());
    assert_eq!(yard.runs(&["events", "-o", "json"], 0).json()["items"].as_array().map(Vec::len), Some(1));
    let told = yard.runs(&["describe", "request", "42"], 0).stdout;
    assert!(told.contains("FailRequested"), "{told}");
}

#[test]
fn a_person_is_told_what_would_be_done_and_what_a_request_waits_for() {
    let yard = Yard::new();
    let file = yard.file("pools.json", r#"[{"resourceClass":"small","max":1,"desired":1}]"#);
    yard.runs(&["apply", "-f", &file], 0);
    yard.provision(&["--count", "1"], 0);
    let before = yard.count();
    let plan = yard.runs(&["plan", "-o", "json"], 0).json();
    assert!(plan["items"].as_array().is_some_and(|items| !items.is_empty()), "{plan}");
    assert!(yard.runs(&["plan"], 0).stdout.contains("would do: "), "{plan}");
    assert_eq!(yard.count(), before, "telling changes nothing");
    let told = yard.runs(&["explain", "request", "42"], 0).stdout;
    assert!(told.contains("asks for 1 of class small") && told.contains("next: "), "{told}");
    assert!(told.contains("when it will be ready: no request of class small"), "{told}");
    let lines = yard.runs(&["explain", "pool", "small", "-o", "json"], 0).json();
    assert!(lines["lines"].as_array().is_some_and(|lines| !lines.is_empty()), "{lines}");
    let told = yard.runs(&["explain", "pool", "small"], 0).stdout;
    assert!(told.contains("0 live of at most 1, 1 wanted idle"), "{told}");
    yard.runs(&["explain", "request", "43"], 1);
}

#[test]
fn a_failure_has_one_page_with_its_probable_cause_and_what_mends_it() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let told = yard.runs(&["debug", "request", "42"], 0).stdout;
    assert!(told.contains("no probable cause"), "{told}");
    yard.runs(&["fail", "42"], 0);
    let message = "DeadlinePassed: 0 of 1 machines were running because VcpuLimitExceeded: your limit is 5";
    yard.change(&request("default", 1), &[("phase", text("Failed")), ("message", text(message))]);
    let told = yard.runs(&["debug", "request", "42"], 0).stdout;
    assert!(told.contains("probable cause: The account's quota of EC2 is used up."), "{told}");
    assert!(!told.contains("looks for the cause"), "it is the page to which `explain` leads: {told}");
    assert!(
        told.contains("known by: request ")
            && told.contains("fix: `runyard doctor --config FILE --preflight`"),
        "{told}"
    );
    let page = yard.runs(&["debug", "request", "42", "-o", "json"], 0).json();
    assert_eq!((&page["causes"][0]["cause"], &page["said"][0]["words"]), (&json!("quota"), &json!(message)));
    assert_eq!(page["events"][0]["reason"], "FailRequested");
    yard.runs(&["debug", "request", "43"], 1);
}

#[test]
fn an_explanation_is_given_again_when_it_changes() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let mut watch = yard.command(&["explain", "request", "42", "--watch", "-o", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut next = || {
        let line = lines.next().expect("it goes on").expect("the program speaks UTF-8");
        serde_json::from_str::<serde_json::Value>(&line).expect("one document a line")
    };
    let first = next();
    assert_eq!(first["record"], "request#acme/web#42 / request#default#1");
    assert!(first["lines"][0].as_str().expect("text").contains("no operator has seen it yet"), "{first}");
    yard.change(&request("default", 1), &[("phase", text("Failed")), ("message", text("no capacity"))]);
    let second = next();
    assert!(second["lines"][0].as_str().expect("text").contains("Failed: no capacity"), "{second}");
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
}

#[test]
fn launches_that_are_held_back_are_not_promised() {
    let yard = Yard::new();
    let file = yard.file("pools.json", r#"[{"resourceClass":"small","max":1,"desired":1}]"#);
    yard.runs(&["apply", "-f", &file], 0);
    yard.put(
        &RecordId::new("lease#operator", "lease"),
        &[
            ("kind", text("lease")),
            ("version", number(1)),
            ("holder", text("one")),
            ("token", number(1)),
            ("renewals", number(1)),
            ("termSeconds", number(15)),
            ("updatedAt", text("2026-01-01T00:00:00Z")),
        ],
    );
    assert!(yard.runs(&["plan"], 0).stdout.contains("would do: launch 1 of class small"));
    let blocked = [
        ("type", text("Blocked")),
        ("status", AttributeValue::Bool(true)),
        ("reason", text("Launches")),
        ("message", text("4 failures in a row")),
        ("at", text("2026-01-01T00:00:00Z")),
    ];
    let blocked =
        AttributeValue::M(blocked.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    yard.change(&RecordId::new("pool#small", "pool"), &[("conditions", AttributeValue::L(vec![blocked]))]);
    let told = yard.runs(&["plan"], 0).stdout;
    assert!(!told.contains("would do: launch"), "{told}");
    assert!(told.contains("waits: pool small: launches are held back"), "{told}");
    let told = yard.runs(&["explain", "pool", "small"], 0).stdout;
    assert!(told.contains("held back") && told.contains("4 failures in a row"), "{told}");
    assert!(!told.contains("next: launch"), "{told}");
    let plan = yard.runs(&["plan", "-o", "json"], 0).json();
    assert_eq!(plan["waits"][0]["reason"], "BackOff", "{plan}");
}
