//! Does the matrix bite? Each document is spoilt in every single place, and each time at least one row must notice.

use serde_json::{Value, json};

use crate::policies::documents::{NAMES, document};
use crate::policies::evaluator::texts;
use crate::policies::matrix::rows;

/// What another statement of the same document forbids as well: widened, it still gives nothing. That these are all is
/// tested too.
const HELD_TWICE: [&str; 10] = [
    "instance: ReadOwnRecords: on everything",
    "instance: WriteOwnSignals: on everything",
    "instance: WriteOwnSignals: anything of the service",
    "instance: Ring: on everything",
    "instance: Ring: anything of the service",
    "instance-any-record: ReadRecords: on everything",
    "instance-any-record: WriteSignals: on everything",
    "instance-any-record: WriteSignals: anything of the service",
    "instance-any-record: Ring: on everything",
    "instance-any-record: Ring: anything of the service",
];

/// Every way to spoil a document in one place, with a name for it.
fn mutants(document: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (i, statement) in document["Statement"].as_array().expect("statements").iter().enumerate() {
        let sid = statement["Sid"].as_str().expect("every statement has a Sid");
        let mut add = |what: String, spoil: &dyn Fn(&mut Value)| {
            let mut mutant = document.clone();
            spoil(&mut mutant["Statement"][i]);
            all.push((format!("{sid}: {what}"), mutant));
        };
        for element in ["Action", "NotAction", "Resource", "NotResource"] {
            let Some(values) = statement.get(element) else { continue };
            let values = texts(values);
            for gone in &values {
                let rest: Vec<&String> = values.iter().filter(|value| *value != gone).collect();
                add(format!("{element} without {gone}"), &|statement| statement[element] = json!(rest));
            }
        }
        if statement["Effect"] == "Allow" {
            if statement["Resource"] != json!("*") {
                add("on everything".into(), &|statement| statement["Resource"] = json!("*"));
            }
            let service = texts(&statement["Action"])[0].split(':').next().expect("a service").to_owned();
            add("anything of the service".into(), &|statement| {
                statement["Action"] = json!(format!("{service}:*"));
            });
        }
        let Some(condition) = statement.get("Condition") else { continue };
        for (operator, keys) in condition.as_object().expect("operators") {
            for (key, wanted) in keys.as_object().expect("keys") {
                add(format!("without {operator} {key}"), &|statement| {
                    let keys = statement["Condition"][operator].as_object_mut().expect("keys");
                    keys.remove(key);
                });
                let wanted = texts(wanted);
                for gone in wanted.iter().filter(|_| wanted.len() > 1) {
                    let rest: Vec<&String> = wanted.iter().filter(|value| *value != gone).collect();
                    add(format!("{key} without {gone}"), &|statement| {
                        statement["Condition"][operator][key] = json!(rest);
                    });
                }
            }
        }
    }
    let count = document["Statement"].as_array().map_or(0, Vec::len);
    all.extend((0..count).map(|i| {
        let mut mutant = document.clone();
        let gone = mutant["Statement"].as_array_mut().expect("statements").remove(i);
        (format!("{}: the whole statement", gone["Sid"]), mutant)
    }));
    all
}

#[test]
fn nothing_can_be_taken_from_a_document_or_widened_unnoticed() {
    let rows = rows();
    let mut survivors = Vec::new();
    let mut count = 0;
    for name in NAMES {
        for (what, mutant) in mutants(&document(name)) {
            count += 1;
            let spoilt = |asked: &str| if asked == name { mutant.clone() } else { document(asked) };
            let concerned = rows.iter().filter(|row| row.who.documents().contains(&name));
            if !concerned.clone().any(|row| !row.holds(spoilt)) {
                survivors.push(format!("{name}: {what}"));
            }
        }
    }
    assert_eq!(survivors, HELD_TWICE, "unnoticed, of {count}");
    assert!(count >= 100, "{count}");
}
