//! Who may do what on AWS? The policies of `config/iam`, evaluated as AWS documents it, answer a matrix of questions;
//! taking any statement, action, resource or condition away changes an answer; CloudFormation's copies say the same.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod cloudformation;
mod evaluator;
mod matrix;
mod needed;

use serde_json::Value;

/// Those who act.
const PRINCIPALS: [&str; 4] = ["operator", "workflow", "instance", "init"];

/// A policy with its placeholders filled in.
fn policy(name: &str) -> Value {
    let path = format!("{}/config/iam/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let places = [
        ("REGION", "eu-west-1"),
        ("ACCOUNT", "111122223333"),
        ("TABLE", "yard"),
        ("OWNER/REPOSITORY", "acme/web"),
    ];
    let filled = places.iter().fold(text, |text, (place, value)| text.replace(place, value));
    serde_json::from_str(&filled).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn there_is_a_policy_for_each_who_acts_and_a_reason_for_each_statement() {
    let dir = format!("{}/config/iam", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    files.sort();
    let mut expected = PRINCIPALS.map(|name| format!("{name}.json"));
    expected.sort();
    assert_eq!(files, expected);
    let reasons = std::fs::read_to_string(format!("{dir}/README.md")).unwrap();
    for name in PRINCIPALS {
        let chapter =
            reasons.split("\n## ").find(|chapter| chapter.starts_with(&format!("{name}.json"))).unwrap();
        for statement in policy(name)["Statement"].as_array().unwrap() {
            let sid = statement["Sid"].as_str().unwrap();
            assert!(chapter.contains(&format!("`{sid}`")), "{name}: {sid} has no reason");
        }
    }
}
