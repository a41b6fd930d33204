//! Giving machines back: which attempts, what stays as it is, and how a wait ends.

use std::process::Stdio;

use crate::cli::yard::{REPOSITORY, Yard, finished, number, request, text, texts};

const RELEASE: [&str; 5] = ["release", "--run-id", "42", "--repository", REPOSITORY];

fn release<'a>(options: &[&'a str]) -> Vec<&'a str> {
    RELEASE.into_iter().chain(options.iter().copied()).collect()
}

fn desired(yard: &Yard, attempt: u32) -> runyard_core::model::AttributeValue {
    yard.record(&request("default", attempt))["desired"].clone()
}

fn three_attempts() -> Yard {
    let yard = Yard::new();
    for attempt in ["1", "2", "3"] {
        yard.provision(&["--attempt", attempt], 0);
    }
    yard
}

#[test]
fn a_release_releases_its_attempt_and_earlier_ones_never_a_later() {
    let yard = three_attempts();
    yard.runs(&release(&["--attempt", "2"]), 0);
    assert_eq!([1, 2, 3].map(|n| desired(&yard, n)), ["released", "released", "provisioned"].map(text));
    yard.runs(&release(&[]), 0);
    assert_eq!(desired(&yard, 3), text("released"));
}

#[test]
fn in_a_workflow_the_release_of_an_old_attempt_leaves_the_new_one_alone() {
    let yard = three_attempts();
    let mut command = yard.command(&["release"]);
    command.envs([("GITHUB_RUN_ID", "42"), ("GITHUB_RUN_ATTEMPT", "1"), ("GITHUB_REPOSITORY", REPOSITORY)]);
    crate::cli::yard::ends(command, 0);
    assert_eq!([1, 2].map(|n| desired(&yard, n)), ["released", "provisioned"].map(text));
}

#[test]
fn a_release_changes_what_the_contract_says_and_nothing_else() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let key = request("default", 1);
    yard.change(&key, &[("fromTheFuture", texts(&["kept"])), ("phase", text("Ready"))]);
    let mut before = yard.record(&key);
    let shown = yard.runs(&release(&["-o", "json"]), 0).json();
    let mut after = yard.record(&key);
    assert_eq!((&after["generation"], &after["version"]), (&number(2), &number(3)));
    assert_eq!(shown["items"][0]["desired"], "released");
    for name in ["desired", "generation", "version", "updatedAt"] {
        before.remove(name);
        after.remove(name);
    }
    assert_eq!(before, after);
    yard.runs(&release(&[]), 0);
    assert_eq!(yard.record(&key)["version"], number(3), "a second release writes nothing");
}

#[test]
fn what_does_not_exist_or_is_over_is_done_and_says_so() {
    let yard = Yard::new();
    assert!(yard.runs(&release(&[]), 0).stdout.contains("nothing to release"));
    yard.provision(&[], 0);
    assert!(yard.runs(&release(&["--name", "other"]), 0).stdout.contains("nothing to release"));
    let others = ["release", "--run-id", "42", "--repository", "acme/other"];
    assert!(yard.runs(&others, 0).stdout.contains("nothing to release"));
    assert_eq!(desired(&yard, 1), text("provisioned"));
    yard.change(&request("default", 1), &[("phase", text("Failed"))]);
    assert!(yard.runs(&release(&["--wait"]), 0).stdout.contains("already Failed"));
    assert_eq!(desired(&yard, 1), text("provisioned"), "what is final is not written");
}

#[test]
fn a_wait_ends_when_everything_is_given_back_or_its_time_is_over() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let late = yard.runs(&release(&["--wait", "--timeout", "300ms", "-o", "json"]), 4);
    assert_eq!(late.error()["field"], "--timeout");
    assert_eq!(late.json()["items"][0]["desired"], "released");
    let mut command = yard.command(&release(&["--wait"]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    yard.change(&request("default", 1), &[("phase", text("Released"))]);
    assert!(finished(child, 0).stdout.contains("Released"));
}

#[test]
fn a_record_that_cannot_be_read_is_never_written() {
    let yard = Yard::new();
    let key = request("default", 1);
    yard.put(&key, &[("kind", text("request")), ("desired", text("provisioned")), ("version", number(1))]);
    let before = yard.record(&key);
    let error = yard.runs(&release(&["-o", "json"]), 1).error();
    assert!(error["message"].as_str().expect("text").contains("runId"), "{error}");
    assert_eq!(yard.record(&key), before);
}
