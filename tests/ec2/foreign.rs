//! Is the peer EC2 to a client nobody here wrote? boto3 makes the same calls, on the peer and on moto, and tells what it
//! understood; where moto is right the two must say the same.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::peer::Peer;
use crate::support::engine::Engine;

fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
}

/// Runs the script in the test engines' client environment; it answers one JSON object.
fn boto3(endpoint: &str, part: &str) -> Value {
    let place = Command::new(tests().join("engines/setup")).args(["--where", "client"]).output();
    let place = place.expect("tests/engines/setup runs: is python3 on the PATH?");
    let programs = String::from_utf8(place.stdout).expect("a path is text");
    let python = Path::new(programs.trim()).join("python");
    let run = Command::new(&python).arg(tests().join("ec2/foreign.py")).args([endpoint, part]).output();
    let run =
        run.unwrap_or_else(|error| panic!("{}: {error}: run tests/run, which installs it", python.display()));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("the script prints JSON")
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
