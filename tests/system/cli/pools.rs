//! Pools: what `apply` owns, what `scale` owns, and what neither touches.

use runyard_core::model::{AttributeValue, RecordId};
use serde_json::json;

use crate::cli::yard::{Yard, number, text};

fn pool(class: &str) -> RecordId {
    RecordId::new(format!("pool#{class}"), "pool")
}

fn apply(yard: &Yard, name: &str, content: &str, code: i32) -> crate::cli::yard::Ended {
    let file = yard.file(name, content);
    yard.runs(&["apply", "-f", &file, "-o", "json"], code)
}

#[test]
fn a_pool_is_born_with_its_whole_spec() {
    let yard = Yard::new();
    apply(&yard, "pools.yaml", "pools:\n  - {resourceClass: small, cpu: 2, mmem: 4096, max: 3}\n", 0);
    let shown = yard.runs(&["get", "pool", "small", "-o", "json"], 0).json();
    let (at, uid) = (shown["updatedAt"].clone(), shown["uid"].clone());
    assert!(!uid.as_str().expect("text").is_empty());
    assert_eq!(
        shown,
        json!({
            "kind": "pool", "version": 1, "uid": uid, "updatedAt": at, "resourceClass": "small", "cpu": 2, "mmem": 4096,
            "desired": 0, "min": 0, "max": 3, "usageClass": "on-demand", "idleSeconds": 1800,
            "maxAgeSeconds": 86400, "paused": false, "registrationMode": "run", "repositories": ["*"],
            "reuseWithin": "owner", "launch": {},
        })
    );
}

#[test]
fn apply_changes_the_spec_alone_and_only_when_it_differs() {
    let yard = Yard::new();
    apply(&yard, "a.json", r#"[{"resourceClass":"small","max":3,"labels":["gpu"]}]"#, 0);
    yard.change(&pool("small"), &[("message", text("status")), ("fromTheFuture", text("kept"))]);
    yard.runs(&["scale", "small", "--desired", "2", "--for", "2h"], 0);
    let before = yard.record(&pool("small"));
    let unchanged =
        apply(&yard, "b.json", r#"{"pools":[{"resourceClass":"small","max":3,"labels":["gpu"]}]}"#, 0);
    assert_eq!(unchanged.json()["items"][0]["version"], 3);
    assert_eq!(yard.record(&pool("small")), before);
    let forgotten = r#"[{"resourceClass":"small","max":5}]"#;
    let file = yard.file("c.json", forgotten);
    let refused = yard.runs(&["apply", "-f", &file], 1).stderr;
    assert!(refused.contains("labels") && refused.contains("--allow-widening"), "{refused}");
    assert_eq!(yard.record(&pool("small")), before, "a field that a file forgets changes nothing by itself");
    yard.runs(&["apply", "-f", &file, "--allow-widening"], 0);
    let after = yard.record(&pool("small"));
    assert_eq!((&after["max"], &after["version"]), (&number(5), &number(4)));
    assert!(!after.contains_key("labels"));
    for name in ["override", "message", "fromTheFuture"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_before_anything_is_asked_for() {
    let yard = Yard::new();
    let pools = yard.file("pools.yaml", "- {resourceClass: small, max: 3}\n");
    let config = yard.file("bad.toml", "[compute]\nkind = \"cloud\"\n");
    let refused = yard.runs(&["apply", "-f", &pools, "--config", &config], 2).stderr;
    assert!(refused.contains("compute.kind") && refused.contains("cloud"), "{refused}");
    yard.runs(&["get", "pool", "small"], 1);
}

#[test]
fn everything_wrong_in_a_file_is_said_at_once() {
    let yard = Yard::new();
    let file = yard.file(
        "bad.yaml",
        "- {resourceClass: a, max: 2, desired: 5, min: 3}\n- {resourceClass: a, max: 1, colour: red}\n",
    );
    let ended = yard.runs(&["apply", "-f", &file], 2);
    for field in ["pools[0].desired", "pools[0].min", "pools[1].resourceClass", "pools[1].colour"] {
        assert!(ended.stderr.contains(field), "{field}: {}", ended.stderr);
    }
    assert_eq!(yard.count(), 0);
}

/// The class of the tests below: few may use it, one after the other, and never more than one job a runner.
const GUARDED: &str = r#"{"resourceClass":"sec","max":3,"repositories":["acme/*"],"reuseWithin":"none","registrationMode":"job","launch":{"ami":"ami-0123456789abcdef0"}}"#;

#[test]
fn a_spec_that_leaves_out_what_guards_a_class_needs_a_word() {
    let yard = Yard::new();
    apply(&yard, "a.json", &format!("[{GUARDED}]"), 0);
    let before = yard.record(&pool("sec"));
    let bare = yard.file("b.json", r#"[{"resourceClass":"other","max":1},{"resourceClass":"sec"}]"#);
    let refused = yard.runs(&["apply", "-f", &bare], 1).stderr;
    for field in ["repositories", "reuseWithin", "registrationMode", "launch.ami", "max"] {
        assert!(refused.contains(&format!("error: pools[1].{field} ")), "{field}: {refused}");
    }
    assert!(refused.contains("--allow-widening"), "{refused}");
    assert_eq!(yard.record(&pool("sec")), before);
    assert_eq!(yard.item(&pool("other")), None, "nothing of the file is written");
    let said = yard.runs(&["apply", "-f", &bare, "--allow-widening"], 0).stdout;
    for line in ["pool sec: changed", "repositories acme/* → *", "max 3 → 100", "max is 100, the default"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    let events = yard.runs(&["events", "pool", "sec"], 0).stdout;
    assert!(
        events.contains("repositories acme/* → *") && events.contains("reuseWithin none → owner"),
        "{events}"
    );
}

#[test]
fn a_field_that_a_file_forgot_changes_no_class_without_a_word() {
    let yard = Yard::new();
    let full = r#"[{"resourceClass":"small","max":8,"cpu":2,"mmem":4096,"sharing":{"by":"repository"},"maxUses":5}]"#;
    apply(&yard, "a.json", full, 0);
    let before = yard.record(&pool("small"));
    let short = yard.file("b.json", r#"[{"resourceClass":"small","max":5}]"#);
    let refused = yard.runs(&["apply", "-f", &short], 1).stderr;
    for field in ["cpu", "mmem", "maxUses", "sharing"] {
        assert!(refused.contains(&format!("error: pools[0].{field}")), "{field}: {refused}");
    }
    assert_eq!(yard.record(&pool("small")), before);
    let shown = yard.runs(&["diff", "-f", &short], 1).stdout;
    assert!(shown.contains("! cpu 2 → "), "{shown}");
    yard.runs(&["apply", "-f", &short, "--allow-widening"], 0);
    assert_eq!(yard.record(&pool("small"))["max"], number(5));
}

#[test]
fn what_would_change_can_be_seen_before_and_writes_nothing() {
    let yard = Yard::new();
    apply(&yard, "a.json", r#"[{"resourceClass":"small","max":3}]"#, 0);
    let before = yard.record(&pool("small"));
    let file =
        yard.file("b.json", r#"[{"resourceClass":"small","max":5,"cpu":2},{"resourceClass":"big","max":1}]"#);
    for arguments in [&["apply", "-f", &file, "--dry-run"][..], &["diff", "-f", &file]] {
        let code = i32::from(arguments[0] == "diff");
        let said = yard.runs(arguments, code).stdout;
        let expected = "pool small: would be changed\n  cpu 0 → 2\n  max 3 → 5\npool big: would be created\n";
        assert_eq!(said, expected, "{arguments:?}");
    }
    let items = yard.runs(&["diff", "-f", &file, "-o", "json"], 1).json();
    let change = json!({"field": "max", "old": 3, "new": 5, "widens": null});
    assert_eq!(items["items"][0]["changes"][1], change);
    assert_eq!((yard.record(&pool("small")), yard.item(&pool("big"))), (before, None));
    apply(
        &yard,
        "b.json",
        r#"[{"resourceClass":"small","max":5,"cpu":2},{"resourceClass":"big","max":1}]"#,
        0,
    );
    yard.runs(&["diff", "-f", &file], 0);
}

#[test]
fn set_changes_the_fields_that_are_named_and_no_others() {
    let yard = Yard::new();
    apply(&yard, "a.json", &format!("[{GUARDED}]"), 0);
    yard.change(&pool("sec"), &[("message", text("status")), ("fromTheFuture", text("kept"))]);
    let mut before = yard.record(&pool("sec"));
    let said = yard.runs(&["set", "pool", "sec", "max=5", "launch.volumeGiB=50"], 0).stdout;
    assert_eq!(said, "pool sec: changed\n  launch.volumeGiB none → 50\n  max 3 → 5\n");
    let mut after = yard.record(&pool("sec"));
    assert_eq!((&after["max"], &after["version"]), (&number(5), &number(3)));
    for name in ["version", "updatedAt", "max", "launch"] {
        before.remove(name);
        after.remove(name);
    }
    assert_eq!(before, after);
    let error = yard.runs(&["set", "pool", "sec", "repositories=*", "-o", "json"], 1).error();
    assert_eq!((&error["field"], &error["value"]), (&json!("repositories"), &json!("*")));
    yard.runs(&["set", "pool", "sec", "max=", "-o", "json"], 1);
    yard.runs(&["set", "pool", "sec", "repositories=*", "--allow-widening"], 0);
    assert_eq!(yard.runs(&["set", "pool", "sec", "desired=9", "-o", "json"], 2).error()["field"], "desired");
    assert_eq!(yard.runs(&["set", "pool", "sec", "maxx=9", "-o", "json"], 2).error()["field"], "FIELD=VALUE");
    let error = yard.runs(&["set", "pool", "sek", "max=9", "-o", "json"], 1).error();
    assert!(error["fix"].as_str().expect("text").contains("did you mean sec?"), "{error}");
}

#[test]
fn idle_seconds_too_short_to_be_renewed_are_refused_where_machines_are_kept() {
    let yard = Yard::new();
    let keeps = r#"[{"resourceClass":"a","max":2,"desired":1,"idleSeconds":59}]"#;
    assert_eq!(apply(&yard, "a.json", keeps, 2).error()["field"], "pools[0].idleSeconds");
    apply(&yard, "a.json", r#"[{"resourceClass":"a","max":2,"idleSeconds":5}]"#, 0);
    let error = yard.runs(&["set", "pool", "a", "desired=1", "-o", "json"], 2).error();
    assert_eq!(error["field"], "idleSeconds");
}

#[test]
fn scale_writes_the_override_alone() {
    let yard = Yard::new();
    apply(&yard, "a.json", r#"[{"resourceClass":"small","max":3,"desired":1}]"#, 0);
    let mut before = yard.record(&pool("small"));
    yard.runs(&["scale", "small", "--desired", "2"], 0);
    let mut after = yard.record(&pool("small"));
    let Some(AttributeValue::M(scale)) = after.remove("override") else { panic!("an override") };
    assert_eq!((&scale["desired"], &scale["by"]), (&number(2), &text("cli:tess")));
    assert!(scale.contains_key("at") && !scale.contains_key("until"));
    for name in ["version", "updatedAt"] {
        before.remove(name);
        after.remove(name);
    }
    assert_eq!(before, after);
    yard.runs(&["scale", "small", "--desired", "1", "--for", "2h"], 0);
    let AttributeValue::M(scale) = yard.record(&pool("small"))["override"].clone() else { panic!("a map") };
    assert!(scale.contains_key("until"));
    yard.runs(&["scale", "small", "--reset"], 0);
    assert!(!yard.record(&pool("small")).contains_key("override"));
}

#[test]
fn scale_refuses_what_the_pool_may_not_have_and_pools_that_are_not() {
    let yard = Yard::new();
    apply(&yard, "a.json", r#"[{"resourceClass":"small","max":3}]"#, 0);
    let error = yard.runs(&["scale", "small", "--desired", "4", "-o", "json"], 1).error();
    assert_eq!((&error["field"], &error["value"]), (&json!("--desired"), &json!("4")));
    assert!(!yard.record(&pool("small")).contains_key("override"));
    assert!(error["fix"].as_str().expect("text").contains("runyard set pool small max=4"), "{error}");
    assert_eq!(yard.runs(&["scale", "big", "--desired", "1", "-o", "json"], 1).error()["value"], "big");
}
