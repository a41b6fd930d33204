//! Is the peer EC2 to a client nobody here wrote? boto3 makes the same calls, on the peer and on moto, and tells what
//! it understood; where moto is right the two must say the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use runyard_support::engine::Engine;
use runyard_support::peer::Peer;

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program of the test engines' client environment.
fn program(name: &str) -> PathBuf {
    let place = Command::new(tests().join("engines/setup")).args(["--where", "client"]).output();
    let place = place.expect("tests/engines/setup runs: is python3 on the PATH?");
    Path::new(String::from_utf8(place.stdout).expect("a path is text").trim()).join(name)
}

/// What a program prints, which is to be JSON.
fn json(command: &mut Command) -> Value {
    let run = command.output();
    let run = run.unwrap_or_else(|error| panic!("{command:?}: {error}: run tests/run, which installs it"));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("it prints JSON")
}

fn boto3(endpoint: &str, part: &str) -> Value {
    json(Command::new(program("python")).arg(tests().join("contracts/ec2/foreign.py")).args([endpoint, part]))
}

/// The AWS command line.
fn aws(endpoint: &str, words: &[&str]) -> Value {
    let told = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_PAGER", "")];
    let common = ["--endpoint-url", endpoint, "--region", "eu-central-1", "--output", "json", "ec2"];
    json(Command::new(program("aws")).envs(told).args(common).args(words))
}

#[test]
fn boto3_gets_through_every_call_of_the_peer_as_it_does_on_moto() {
    let (peer, moto) = (Peer::start(), Engine::moto());
    let (ours, theirs) = (boto3(peer.endpoint(), "same"), boto3(moto.endpoint(), "same"));
    assert_eq!(ours, theirs);
    assert_eq!(ours["fleet"]["machines"], 3);
}

#[test]
fn boto3_understands_what_only_ec2_and_the_peer_do() {
    let peer = Peer::start();
    peer.rules(|rules| rules.page = Some(2));
    let told = boto3(peer.endpoint(), "peer");
    assert_eq!(told["replayed"], true);
    assert_eq!(told["mismatch"], "IdempotentParameterMismatch");
    assert_eq!(told["pages"], 2);
    assert_eq!(told["unknown id"], "InvalidInstanceID.NotFound");
}

#[test]
fn boto3_sees_a_fleet_come_short() {
    let peer = Peer::start();
    peer.rules(|rules| {
        rules.capacity.insert(("eu-central-1a".into(), "on-demand".into()), 1);
    });
    let told = boto3(peer.endpoint(), "short");
    assert_eq!(told["machines"], 1);
    assert_eq!(told["codes"], serde_json::json!(["InsufficientInstanceCapacity"]));
}

#[test]
fn the_aws_command_line_reads_and_ends_what_boto3_launched() {
    let peer = Peer::start();
    boto3(peer.endpoint(), "short");
    let filter = ["describe-instances", "--filters", "Name=tag:runyard:table,Values=foreign"];
    let query = ["--query", "Reservations[].Instances[].InstanceId"];
    let found = aws(peer.endpoint(), &[&filter[..], &query[..]].concat());
    let ids: Vec<&str> = found.as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let ended = aws(peer.endpoint(), &[&["terminate-instances", "--instance-ids"][..], &ids].concat());
    assert_eq!(ended["TerminatingInstances"].as_array().unwrap().len(), 3);
    assert!(peer.world().instances.values().all(|one| !one.alive()));
}

/// The script for a person with an account, run against an emulator: how it ended, and what it said.
fn account_trial(endpoint: &str, more: &[&str]) -> (Option<i32>, String) {
    let script = tests().join("../config/account-trial/run");
    let run = Command::new(program("python"))
        .arg(script)
        .args(["--endpoint", endpoint, "--region", "us-east-1"])
        .args(more)
        .envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")])
        .output()
        .expect("python runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (run.status.code(), said(&run.stdout) + &said(&run.stderr))
}

/// Everything there is of what the script makes.
fn left_of_the_trial(endpoint: &str) -> Vec<String> {
    let ask = |words: &[&str]| {
        let told = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_PAGER", "")];
        let common = ["--endpoint-url", endpoint, "--region", "us-east-1", "--output", "json"];
        json(Command::new(program("aws")).envs(told).args(common).args(words))
    };
    let texts = |told: &Value| -> Vec<String> {
        told.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let alive = "Reservations[].Instances[?State.Name!='terminated'].InstanceId[]";
    let mut left = texts(&ask(&["ec2", "describe-instances", "--query", alive]));
    for words in [
        &["ec2", "describe-launch-templates", "--query", "LaunchTemplates[].LaunchTemplateName"][..],
        &["dynamodb", "list-tables", "--query", "TableNames"],
        &["iam", "list-roles", "--query", "Roles[].RoleName"],
        &["iam", "list-instance-profiles", "--query", "InstanceProfiles[].InstanceProfileName"],
        &["sqs", "list-queues", "--query", "QueueUrls"],
        &["events", "list-rules", "--query", "Rules[].Name"],
    ] {
        left.extend(texts(&ask(words)).into_iter().filter(|name| name.contains("runyard-trial")));
    }
    left
}

#[test]
fn the_account_trial_asks_its_questions_and_leaves_nothing() {
    let moto = Engine::moto();
    let (code, said) = account_trial(moto.endpoint(), &[]);
    assert_eq!(code, Some(0), "{said}");
    for line in ["pass      2.2 ", "pass      1.2 ", "unproved  2.1 ", "unproved  2.11 ", "left out  2.3 "] {
        assert!(said.contains(&format!("\n{line}")), "{line}\n{said}");
    }
    assert!(said.contains("everything was removed"), "{said}");
    assert_eq!(left_of_the_trial(moto.endpoint()), [""; 0], "{said}");
}

#[test]
fn an_account_trial_that_fails_says_so_and_leaves_nothing() {
    let moto = Engine::moto();
    let (code, said) = account_trial(moto.endpoint(), &["--subnet", "subnet-0123456789abcdef0"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("\nFAIL      2.2 "), "{said}");
    assert_eq!(left_of_the_trial(moto.endpoint()), [""; 0], "{said}");
}
