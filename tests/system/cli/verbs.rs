//! A walk over what people type: several names and short kinds, what is picked out of an answer, the verbs that pause,
//! drain, wait and delete, and named yards.

use std::process::Stdio;

use runyard_core::model::{AttributeValue, RecordId};
use serde_json::json;

use crate::cli::yard::{Yard, command, ends, finished, number, request, text};

const SET: &str = "2026-01-01T00:00:00Z";

fn machine(yard: &Yard, id: &str, state: &str) -> RecordId {
    let arn = format!("arn:aws:ec2:local:000000000000:instance/{id}");
    let key = RecordId::new(format!("instance#{arn}"), "instance");
    let busy = state == "running";
    let mut attributes = vec![
        ("kind", text("instance")),
        ("version", number(7)),
        ("instanceId", text(id)),
        ("instanceArn", text(&arn)),
        ("state", text(state)),
        ("runId", text(if busy { "42" } else { "" })),
        ("claimId", text(if busy { format!("{id}.7") } else { String::new() })),
        ("threshold", text("2999-01-01T00:00:00Z")),
        ("thresholdSetAt", text(SET)),
        ("resourceClass", text("small")),
        ("usageClass", text("on-demand")),
        ("stateSince", text(SET)),
        ("createdAt", text(SET)),
        ("updatedAt", text(SET)),
    ];
    if busy {
        let held = [("pk", text("request#acme/web#42")), ("sk", text("request#default#1"))];
        let held = held.map(|(name, value)| (name.to_owned(), value)).into();
        attributes.push(("request", AttributeValue::M(held)));
    } else {
        attributes.push(("pooledAt", text(SET)));
    }
    yard.put(&key, &attributes);
    key
}

fn pools(yard: &Yard) {
    let specs = r#"[{"resourceClass":"small","max":3,"desired":1},{"resourceClass":"large","max":9}]"#;
    yard.runs(&["apply", "-f", &yard.file("pools.json", specs)], 0);
}

#[test]
fn records_are_named_short_several_at_once_and_by_the_beginning_of_an_id() {
    let yard = Yard::new();
    pools(&yard);
    machine(&yard, "i-0aa1", "idle");
    machine(&yard, "i-0ab2", "running");
    yard.provision(&[], 0);
    assert_eq!(yard.runs(&["get", "po", "-o", "name"], 0).stdout, "pool/large\npool/small\n");
    let both = yard.runs(&["get", "pool/small", "i/i-0ab", "-o", "name"], 0).stdout;
    assert_eq!(both, "pool/small\ninstance/i-0ab2\n");
    let all = yard.runs(&["get", "all", "-o", "name"], 0).stdout;
    assert_eq!(all, "pool/large\npool/small\ninstance/i-0aa1\ninstance/i-0ab2\nrequest/42/default/1\n");
    let tables = yard.runs(&["get", "all"], 0).stdout;
    assert!(tables.contains("\n\nINSTANCE ") && tables.contains("\n\nREPOSITORY "), "{tables}");
    let error = yard.runs(&["get", "instance", "i-0a", "-o", "json"], 1).error();
    assert_eq!(error["message"], "2 machines begin so: i-0aa1 i-0ab2");
    let error = yard.runs(&["expire", "i-0aa", "-o", "json"], 1).error();
    assert_eq!(error["fix"], "give the whole id: i-0aa1", "what ends is named in full");
    let error = yard.runs(&["describe", "request/421", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().is_some_and(|fix| fix.starts_with("did you mean 42?")), "{error}");
}

#[test]
fn a_list_is_ordered_cut_picked_and_without_heads_as_asked() {
    let yard = Yard::new();
    pools(&yard);
    let says = |arguments: &[&str]| yard.runs(&[&["get", "pools"], arguments].concat(), 0).stdout;
    assert_eq!(says(&["-o", "jsonpath={.items[*].max}"]), "9 3\n");
    assert_eq!(
        says(&["--sort-by", ".max", "-o", "custom-columns=C:.resourceClass,M:.max", "--no-headers"]),
        "small  3\nlarge  9\n"
    );
    assert_eq!(says(&["--sort-by", "max", "--limit", "1", "-o", "name"]), "pool/small\n");
    assert_eq!(says(&["--field-selector", "max!=9", "-o", "name"]), "pool/small\n");
    assert_eq!(says(&["--no-headers"]).lines().count(), 2);
    assert_eq!(yard.runs(&["get", "pool", "small", "-o", "jsonpath={.max}"], 0).stdout, "3\n");
}

#[test]
fn ended_requests_are_listed_with_all_or_by_their_phase() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    yard.change(&request("default", 1), &[("phase", text("Released"))]);
    let none = yard.runs(&["get", "requests"], 0);
    assert_eq!(
        (none.stdout.as_str(), none.stderr.as_str()),
        ("", "there are no requests that go on; --all lists 1 that ended\n")
    );
    for arguments in [
        &["get", "requests", "--all"][..],
        &["get", "requests", "--phase", "Released"],
        &["get", "request", "42"],
    ] {
        assert!(yard.runs(arguments, 0).stdout.contains("Released"), "{arguments:?}");
    }
}

#[test]
fn a_class_is_paused_resumed_and_edited() {
    let yard = Yard::new();
    pools(&yard);
    let key = RecordId::new("pool#small", "pool");
    assert!(yard.runs(&["pause", "small", "--dry-run"], 0).stdout.contains("would be changed"));
    yard.runs(&["pause", "small", "pool/large"], 0);
    assert_eq!(yard.record(&key)["paused"], AttributeValue::Bool(true));
    yard.runs(&["resume", "small"], 0);
    assert_ne!(yard.record(&key).get("paused"), Some(&AttributeValue::Bool(true)));
    let edit = |editor: &str, code| {
        let mut command = yard.command(&["edit", "small", "-o", "json"]);
        command.env("EDITOR", editor).env("PATH", "/usr/bin:/bin").env("TMPDIR", yard.scratch.path());
        ends(command, code)
    };
    edit("sed -i s/^max:.*/max:\\ 4/", 0);
    assert_eq!(yard.record(&key)["max"], number(4));
    let left = || std::fs::read_dir(yard.scratch.path()).expect("a folder").count();
    let before = left();
    edit("true", 0);
    assert_eq!(left(), before, "what was not changed is not kept");
    let error = edit("sed -i s/^max:.*/maxx:\\ 4/", 2).error();
    assert!(error["fix"].as_str().is_some_and(|fix| fix.contains("runyard apply -f ")), "{error}");
    edit("false", 1);
}

#[test]
fn a_drained_machine_keeps_its_deadline_and_an_idle_one_ends_now() {
    let yard = Yard::new();
    let (idle, busy) = (machine(&yard, "i-1", "idle"), machine(&yard, "i-2", "running"));
    yard.runs(&["drain", "i-1", "instance/i-2", "--dry-run"], 0);
    assert!(!yard.record(&busy).contains_key("expiredBy"));
    yard.runs(&["drain", "i-1", "instance/i-2"], 0);
    let (idle, busy) = (yard.record(&idle), yard.record(&busy));
    assert_eq!((&busy["expiredBy"], &busy["threshold"]), (&text("cli:tess"), &text("2999-01-01T00:00:00Z")));
    assert_eq!((&idle["expiredBy"], &idle["threshold"]), (&text("cli:tess"), &text(SET)));
    assert!(yard.runs(&["drain", "i-2"], 0).stdout.contains("already draining"));
    let told = yard.runs(&["events", "instance/i-2"], 0).stdout;
    assert!(told.contains("DrainRequested"), "{told}");
}

#[test]
fn a_wait_ends_when_it_is_so_or_can_never_be() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let mut waiting = yard.command(&["wait", "request/42", "--for=ready"]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    yard.change(&request("default", 1), &[("phase", text("Ready"))]);
    finished(waiting, 0);
    yard.runs(&["wait", "request/42", "--for=.count=2"], 0);
    yard.runs(&["wait", "request/42", "--for=released", "--timeout", "200ms"], 4);
    yard.change(&request("default", 1), &[("phase", text("Failed")), ("message", text("no capacity"))]);
    let error = yard.runs(&["wait", "request/42", "--for=ready", "-o", "json"], 3).error();
    assert!(error["message"].as_str().is_some_and(|said| said.contains("no capacity")), "{error}");
    yard.runs(&["wait", "request/43", "--for=delete"], 0);
}

#[test]
fn a_pool_is_deleted_by_a_yes_alone_and_when_nothing_of_it_lives() {
    let yard = Yard::new();
    pools(&yard);
    let key = RecordId::new("pool#small", "pool");
    assert!(yard.runs(&["delete", "pool", "small", "--dry-run"], 0).stdout.contains("would be drained"));
    let error = yard.runs(&["delete", "pool", "small", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().is_some_and(|fix| fix.contains("--yes")), "{error}");
    assert_eq!(
        yard.record(&key).get("paused").unwrap_or(&AttributeValue::Bool(false)),
        &AttributeValue::Bool(false)
    );
    let busy = machine(&yard, "i-1", "running");
    yard.runs(&["delete", "pool/small", "--yes", "--timeout", "300ms"], 4);
    assert_eq!(yard.record(&key)["paused"], AttributeValue::Bool(true), "it is paused, and its run goes on");
    assert!(!yard.record(&busy).contains_key("expiredBy"));
    yard.change(&busy, &[("state", text("terminated")), ("reason", text("expired"))]);
    yard.runs(&["delete", "pool/small", "--yes"], 0);
    assert_eq!(yard.item(&key), None);
}

#[test]
fn every_verb_has_a_man_page() {
    let dir = tempfile::tempdir().expect("a place for files");
    let man = dir.path().join("man1");
    ends(command(&["man", man.to_str().expect("a path in UTF-8")]), 0);
    for page in ["runyard.1", "runyard-get.1", "runyard-delete.1", "runyard-config-set.1"] {
        let text = std::fs::read_to_string(man.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH"), "{page}");
    }
}

#[test]
fn versions_and_use_are_told_from_the_records() {
    let yard = Yard::new();
    assert!(ends(command(&["version", "--client"]), 0).stdout.starts_with("client    "));
    let told = yard.runs(&["version", "-o", "json"], 0).json();
    assert_eq!((&told["operator"], &told["agents"]), (&json!(null), &json!({})));
    yard.provision(&[], 0);
    machine(&yard, "i-2", "running");
    let top = yard.runs(&["top", "-o", "json"], 0).json();
    assert_eq!(
        (&top["items"][0]["repository"], &top["items"][0]["machines"]),
        (&json!("acme/web"), &json!(1))
    );
}

#[test]
fn a_yard_is_named_once_and_reached_by_its_name_whatever_the_shell_says() {
    let yard = Yard::new();
    pools(&yard);
    let home = yard.scratch.path().join("home");
    let local = yard.scratch.path().join("yard");
    std::fs::create_dir_all(&local).expect("a folder");
    let at = |arguments: &[&str], code| {
        let mut command = command(arguments);
        command.env("XDG_CONFIG_HOME", &home);
        ends(command, code)
    };
    let env = format!(
        "export AWS_ENDPOINT_URL={}\nexport AWS_REGION=us-east-1\nexport AWS_ACCESS_KEY_ID=test\n\
         export AWS_SECRET_ACCESS_KEY=test\nexport RUNYARD_TABLE=runyard\nexport RUNYARD_QUEUE__KIND=memory\n",
        yard.endpoint()
    );
    let dir = local.to_str().expect("a path in UTF-8");
    let error = at(&["--yard", dir, "get", "pools", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().is_some_and(|fix| fix.contains("runyard up --dir")), "{error}");
    std::fs::write(local.join("env"), env).expect("the file is written");
    assert_eq!(at(&["--yard", dir, "get", "pools", "-o", "name"], 0).stdout, "pool/large\npool/small\n");
    at(&["config", "set", "here", "--dir", dir], 0);
    assert!(at(&["config", "list"], 0).stdout.contains("here"));
    assert_eq!(at(&["get", "pools", "--yard=here", "-o", "name"], 0).stdout, "pool/large\npool/small\n");
    let error = at(&["--yard", "her", "get", "pools", "-o", "json"], 2).error();
    assert!(error["fix"].as_str().is_some_and(|fix| fix.starts_with("did you mean here?")), "{error}");
}
