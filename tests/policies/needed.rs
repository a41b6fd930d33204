//! Is every part of every policy needed, and is enough of it there? Taking a part away must change an answer of the
//! matrix, and every call that the programs make must be one that somebody is asked about.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::matrix::{self, Row};
use crate::{PRINCIPALS, policy};

/// A policy with one part less, and which.
fn smaller(policy: &Value) -> Vec<(String, Value)> {
    let statements = policy["Statement"].as_array().unwrap();
    let mut all = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        let sid = statement["Sid"].as_str().unwrap();
        let mut without = policy.clone();
        without["Statement"].as_array_mut().unwrap().remove(index);
        all.push((sid.to_owned(), without));
        for part in ["Action", "Resource"] {
            for at in 0..statement[part].as_array().map_or(0, Vec::len) {
                let mut without = policy.clone();
                let gone = without["Statement"][index][part].as_array_mut().unwrap().remove(at);
                all.push((format!("{sid}: {part} {gone}"), without));
            }
        }
        for (operator, keys) in statement["Condition"].as_object().into_iter().flatten() {
            for (key, values) in keys.as_object().unwrap() {
                let mut without = policy.clone();
                without["Statement"][index]["Condition"][operator].as_object_mut().unwrap().remove(key);
                all.push((format!("{sid}: {operator} {key}"), without));
                for at in 0..values.as_array().map_or(0, Vec::len) {
                    let mut without = policy.clone();
                    let values = &mut without["Statement"][index]["Condition"][operator][key];
                    let gone = values.as_array_mut().unwrap().remove(at);
                    all.push((format!("{sid}: {operator} {key} {gone}"), without));
                }
            }
        }
    }
    all
}

#[test]
fn each_statement_action_resource_and_condition_is_needed_for_an_answer() {
    let mut parts = 0;
    for name in PRINCIPALS {
        let rows: Vec<Row> = matrix::rows().into_iter().filter(|row| row.who == name).collect();
        for (gone, policy) in smaller(&policy(name)) {
            parts += 1;
            let other = rows.iter().any(|row| row.answer(&policy) != row.allowed);
            assert!(
                other,
                "{name}: without {gone} every answer is the same: it is not needed, or not asked about"
            );
        }
    }
    assert!(parts >= 100, "{parts}");
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            found.push(path);
        }
    }
}

/// The calls of AWS's clients in the adapters: `client.describe_images()` and the like, over line breaks too.
fn calls() -> BTreeSet<String> {
    let mut files = Vec::new();
    for dir in ["src/store", "src/aws", "agent/src"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut files);
    }
    let mut found = BTreeSet::new();
    for file in files {
        let text: String = std::fs::read_to_string(&file).unwrap().split_whitespace().collect();
        for (_, after) in text.match_indices("client.").map(|(at, _)| text.split_at(at + "client.".len())) {
            let name: String = after.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if after[name.len()..].starts_with("()") {
                found.insert(name.split('_').map(capital).collect());
            }
        }
    }
    found
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[test]
fn every_call_of_the_adapters_is_asked_about() {
    // A transaction is allowed by what it holds, a batch by the permission of the call without it.
    let means = |call: &str| match call {
        "TransactWriteItems" => "UpdateItem".to_owned(),
        other => other.trim_end_matches("Batch").to_owned(),
    };
    let asked: BTreeSet<String> = matrix::rows()
        .into_iter()
        .filter(|row| row.allowed)
        .map(|row| row.action.split_once(':').unwrap().1.to_owned())
        .collect();
    let calls = calls();
    assert!(calls.len() >= 25, "{calls:?}");
    for call in calls {
        assert!(asked.contains(&means(&call)), "nobody is allowed {call}");
    }
}
