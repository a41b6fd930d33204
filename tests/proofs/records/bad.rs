//! Records that are none: whatever stands in an attribute, the answer is the record's name and the attribute's, or
//! that a newer program wrote it; never a panic, never a guess.

use runyard_core::model::{AttributeValue, Item, Kind};

use crate::records::golden::records;
use crate::records::{Verdict, number, text, verdict};

/// Longest complaint about a record.
const SHOWN: usize = 500;

/// What cannot be missing from a record of a kind.
fn required(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Instance => &[
            "instanceId",
            "instanceArn",
            "resourceClass",
            "usageClass",
            "createdAt",
            "state",
            "runId",
            "claimId",
            "threshold",
            "stateSince",
            "version",
            "updatedAt",
        ],
        Kind::Agent => &[],
        Kind::Request => &[
            "runId",
            "attempt",
            "repository",
            "name",
            "resourceClass",
            "count",
            "desired",
            "generation",
            "version",
        ],
        Kind::Pool => &["resourceClass", "version"],
        Kind::Launch => &[
            "launchId",
            "attempt",
            "clientToken",
            "resourceClass",
            "usageClass",
            "count",
            "phase",
            "createdAt",
            "version",
            "updatedAt",
        ],
        Kind::Lease => &["version"],
        Kind::Queue => &["setName", "state", "version"],
        Kind::Event => &["type", "reason", "message", "actor", "subject", "at", "expiresAt", "updatedAt"],
    }
}

const WORDS: &[&str] = &[
    "state",
    "usageClass",
    "reason",
    "signal",
    "desired",
    "phase",
    "registrationMode",
    "labelMode",
    "labelSuffix",
    "reuseWithin",
    "asked",
    "type",
];
const COUNTS: &[&str] = &[
    "version",
    "heartbeatSeq",
    "registrationSeq",
    "registrationDone",
    "registrationFailures",
    "token",
    "renewals",
    "generation",
    "observedGeneration",
    "uses",
    "attempt",
];

fn is_time(name: &str) -> bool {
    name.ends_with("At") && name != "expiresAt"
        || matches!(name, "at" | "threshold" | "deadline" | "stateSince")
}

/// Every known attribute of every golden record but its key and kind.
fn attributes() -> impl Iterator<Item = (String, Kind, Item, String)> {
    records().into_iter().flat_map(|(file, kind, item)| {
        let names: Vec<_> = item
            .keys()
            .filter(|name| !name.starts_with("future") && !["pk", "sk", "kind"].contains(&name.as_str()))
            .cloned()
            .collect();
        names.into_iter().map(move |name| (format!("{file}: {name}"), kind, item.clone(), name))
    })
}

fn with(item: &Item, name: &str, value: AttributeValue) -> Item {
    let mut item = item.clone();
    item.insert(name.to_owned(), value);
    item
}

/// The complaint about an item, which names the record and these attributes.
fn complaint(told: &str, kind: Kind, item: &Item, names: &[&str]) {
    match verdict(kind, item) {
        Verdict::Unreadable(unreadable) => {
            assert_eq!(text(&unreadable.key.pk()), item["pk"], "{told}");
            let bound = unreadable.problem.contains("bytes are read");
            let named = names.iter().any(|name| unreadable.problem.contains(name));
            assert!(named || bound, "{told}: {unreadable}");
            assert!(
                unreadable.problem.chars().count() <= SHOWN,
                "{told}: {} bytes",
                unreadable.problem.len()
            );
        }
        other => panic!(
            "{told}: {:?} is read as {other:?}",
            names.iter().map(|n| item.get(*n)).collect::<Vec<_>>()
        ),
    }
}

/// Either a record or a complaint that names the attribute.
fn tolerated_or_named(told: &str, kind: Kind, item: &Item, name: &str) {
    if !matches!(verdict(kind, item), Verdict::Record(_)) {
        // Some attributes are part of the key, or complete one another.
        complaint(told, kind, item, &[name, "pk", "claimId"]);
    }
}

#[test]
fn an_attribute_that_must_be_there_is_named_when_it_is_missing() {
    for (told, kind, item, name) in attributes() {
        let mut without = item.clone();
        without.remove(&name);
        if required(kind).contains(&name.as_str()) {
            complaint(&told, kind, &without, &[&name]);
        } else {
            tolerated_or_named(&told, kind, &without, &name);
        }
    }
}

/// None is `""`, or the attribute left out: what is read as none would be written over.
#[test]
fn a_null_is_no_value_in_any_attribute() {
    for (told, kind, item, name) in attributes() {
        complaint(&told, kind, &with(&item, &name, AttributeValue::Null(true)), &[&name]);
        let within = match &item[&name] {
            AttributeValue::M(map) => map.keys().next().map(|first| {
                let mut map = map.clone();
                map.insert(first.clone(), AttributeValue::Null(true));
                AttributeValue::M(map)
            }),
            _ => None,
        };
        if let Some(within) = within {
            tolerated_or_named(&told, kind, &with(&item, &name, within), &name);
        }
    }
    for (told, kind, item, _) in attributes() {
        let other = with(&item, "futureNull", AttributeValue::Null(true));
        assert!(matches!(verdict(kind, &other), Verdict::Record(_)), "{told}: none of ours");
    }
}

#[test]
fn a_value_of_another_type_is_named() {
    for (told, kind, item, name) in attributes() {
        let others = match &item[&name] {
            AttributeValue::S(_) => vec![number(7), AttributeValue::Bool(true), AttributeValue::L(vec![])],
            AttributeValue::N(n) => vec![text(n), AttributeValue::Bool(true), AttributeValue::L(vec![])],
            AttributeValue::Bool(_) => vec![text("true"), number(1)],
            AttributeValue::L(_) => vec![text("a"), number(1), AttributeValue::M([].into())],
            AttributeValue::M(_) => vec![text("a"), number(1), AttributeValue::L(vec![number(1)])],
            other => panic!("no golden record has {other:?}"),
        };
        for other in others.into_iter().chain([AttributeValue::B(vec![1])]) {
            complaint(&format!("{told} as {other:?}"), kind, &with(&item, &name, other), &[&name]);
        }
    }
}

#[test]
fn a_number_no_program_of_ours_writes_is_named() {
    for (told, kind, item, name) in attributes() {
        if !matches!(item[&name], AttributeValue::N(_)) {
            continue;
        }
        for odd in ["1e126", "-1e126", "99999999999999999999999999999999999999", "", "seven"] {
            let told = format!("{told} {odd}");
            complaint(&told, kind, &with(&item, &name, number(odd)), &[&name]);
        }
        for odd in
            ["-1", "1.5", "18446744073709551615", "9223372036854775808", "1E-130", "4294967295", "2147483648"]
        {
            let (told, odd) = (format!("{told} {odd}"), with(&item, &name, number(odd)));
            if COUNTS.contains(&name.as_str()) {
                complaint(&told, kind, &odd, &[&name]);
            } else {
                tolerated_or_named(&told, kind, &odd, &name);
            }
        }
    }
}

#[test]
fn a_word_from_the_future_is_named() {
    for (told, kind, item, name) in attributes() {
        // A pool's `desired` is a number, an event's and a condition's `reason` any word.
        let word = WORDS.contains(&name.as_str()) && matches!(item[&name], AttributeValue::S(_));
        if word && !(kind == Kind::Event && name == "reason") {
            for odd in ["BrandNew", "", "RUNNING", &"x".repeat(400 * 1024)] {
                complaint(&told, kind, &with(&item, &name, text(odd)), &[&name]);
            }
        }
    }
}

#[test]
fn what_is_no_time_is_named() {
    for (told, kind, item, name) in attributes() {
        let of_key = kind == Kind::Event && name == "at";
        if is_time(&name) && !of_key && item[&name] != text("") {
            for odd in ["0", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "10000-01-01T00:00:00Z"] {
                complaint(&told, kind, &with(&item, &name, text(odd)), &[&name]);
            }
            for extreme in ["9999-12-30T00:00:00Z", "-009998-01-02T00:00:00Z", "1970-01-01T00:00:00Z"] {
                let item = with(&item, &name, text(extreme));
                assert!(matches!(verdict(kind, &item), Verdict::Record(_)), "{told}: {extreme}");
            }
        }
    }
}

#[test]
fn a_text_however_long_breaks_nothing() {
    for (told, kind, item, name) in attributes() {
        if let AttributeValue::S(_) = item[&name] {
            for odd in ["x".repeat(400 * 1024), "ü\u{202e}\0\n#".repeat(100), String::new()] {
                tolerated_or_named(&told, kind, &with(&item, &name, text(&odd)), &name);
            }
        }
    }
}

#[test]
fn a_record_of_a_newer_program_is_left_alone() {
    for (file, kind, item) in records() {
        let known = verdict(kind, &item);
        assert_eq!(verdict(kind, &with(&item, "schema", number(2))), Verdict::Newer(2), "{file}");
        let unreadable = with(&with(&item, "schema", number(7)), "version", text("v7"));
        assert_eq!(verdict(kind, &unreadable), Verdict::Newer(7), "{file}: whatever else it says");
        assert_eq!(verdict(kind, &with(&item, "schema", number(1))), known, "{file}");
        for odd in [text("2"), number(-1), number("1.5"), number("1e126"), AttributeValue::Null(true)] {
            complaint(&file, kind, &with(&item, "schema", odd), &["schema"]);
        }
    }
}

#[test]
fn a_key_that_belongs_to_something_else_is_named() {
    for (file, kind, item) in records() {
        for part in ["pk", "sk"] {
            for odd in [
                "",
                "x",
                "instance#",
                "agent#x",
                "request#acme/web",
                "request#a/b#1#2",
                "pool#other",
                "lease",
            ] {
                if item[part] != text(odd) {
                    let named = ["pk", "sk", "instanceArn", "runId", "name"];
                    complaint(&file, kind, &with(&item, part, text(odd)), &named);
                }
            }
        }
        for (name, odd) in [("kind", text("thing")), ("kind", number(1)), ("kind", text(""))] {
            complaint(&file, kind, &with(&item, name, odd), &["kind"]);
        }
        let keyless: Item =
            item.iter().filter(|(name, _)| *name != "pk").map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(matches!(verdict(kind, &keyless), Verdict::Unreadable(_)), "{file}");
        assert!(matches!(verdict(kind, &with(&item, "sk", number(1))), Verdict::Unreadable(_)), "{file}");
    }
    assert!(matches!(verdict(Kind::Instance, &Item::new()), Verdict::Unreadable(_)));
}

#[test]
fn a_state_that_contradicts_the_rest_of_its_record_is_named() {
    let file = |name: &str| {
        let mut all = records().into_iter().filter(|(file, ..)| file == name);
        all.next().expect("a golden record of that name").2
    };
    let other_arn = "arn:aws:ec2:eu-west-1:123456789012:instance/i-0ffffffffffffffff";
    for (record, name, value, named) in [
        ("instance-claimed", "runId", text(""), "runId"),
        ("instance-running", "runId", text(""), "runId"),
        ("instance-running", "claimId", text(""), "claimId"),
        ("instance-idle-pooled", "runId", text("1234567890"), "runId"),
        ("instance-idle-cleaning", "state", text("running"), "runId"),
        ("instance-claimed", "state", text("idle"), "runId"),
        ("instance-terminated", "state", text("idle"), "threshold"),
        ("instance-terminated", "runId", text("1234567890"), "runId"),
        ("instance-running", "threshold", text(""), "threshold"),
        ("instance-created-warm", "runId", text("1234567890"), "claimId"),
        ("instance-claimed", "instanceId", text("i-0ffffffffffffffff"), "instanceId"),
        ("instance-claimed", "instanceArn", text(other_arn), "instance"),
        ("request-new", "runId", text("9999"), "pk"),
        ("request-new", "attempt", number(2), "sk"),
        ("pool-full", "resourceClass", text("other"), "pk"),
        ("launch-intent", "launchId", text("l-other"), "pk"),
        ("event", "subject", text("pool#other"), "pk"),
    ] {
        complaint(record, kind_of(record), &with(&file(record), name, value), &[named]);
    }
}

fn kind_of(file: &str) -> Kind {
    file.split('-').next().unwrap_or_default().parse().expect("a kind begins the name")
}
