//! `runyard try` beside `runyard up`: one machine's whole life, and nothing of it left however it ends.

use std::fs::File;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::local::programs::{machines_in, said, text};
use crate::local::up::{Up, until};

const TRY: &str = "try small --repository demo/app --timeout 10m";

/// No machine runs, and no request is open.
fn nothing_is_left(up: &Up<'_>, dir: &Path) {
    assert_eq!(machines_in(dir), Vec::<String>::new());
    let requests: Value = serde_json::from_str(&up.done("get requests --all -o json")).unwrap();
    let requests = requests["items"].as_array().unwrap();
    assert_eq!(requests.len(), 1, "{requests:?}");
    let phase = requests[0]["phase"].as_str().unwrap();
    assert!(["Released", "Failed"].contains(&phase), "{requests:?}");
    let instances: Value = serde_json::from_str(&up.done("get instances -o json")).unwrap();
    for instance in instances["items"].as_array().unwrap() {
        assert_eq!(instance["state"], "terminated", "{instance}");
    }
}

#[test]
fn a_tried_class_tells_each_step_and_keeps_no_machine() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let output = up.command(TRY).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let told = text(&output.stdout);
    for step in [
        "the operator accepted the request",
        "launched for this",
        "its agent wrote for the first time",
        "its runner is registered and listens",
        "cleaned",
        "ended",
        "console: ",
    ] {
        assert!(told.contains(step), "{step}: {told}");
    }
    assert!(!told.contains("cost"), "a machine of local mode has no price: {told}");
    nothing_is_left(&up, dir.path());
}

#[test]
fn a_trial_that_is_interrupted_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let file = dir.path().join("tried");
    let out = File::create(&file).unwrap();
    let mut trial = up.command(TRY).stdout(out).spawn().unwrap();
    until("a machine", || {
        std::fs::read_to_string(&file).unwrap().contains("launched for this").then_some(())
    });
    kill(Pid::from_raw(i32::try_from(trial.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(trial.wait().unwrap().code(), Some(143), "{}", std::fs::read_to_string(&file).unwrap());
    nothing_is_left(&up, dir.path());
}

#[test]
fn a_class_whose_first_boot_fails_shows_its_console_and_ends_its_machines() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let script = "echo there is no such disk; exit 3";
    let spec = serde_json::json!([{"resourceClass": "broken", "cpu": 2, "mmem": 4096, "max": 2,
        "launch": {"preRunnerScript": script}}]);
    let file = dir.path().join("pools.json");
    std::fs::write(&file, spec.to_string()).unwrap();
    up.done(&format!("apply -f {}", file.display()));
    let output = up.command("try broken --repository demo/app --timeout 10s").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(text(&output.stdout).contains("there is no such disk"), "{}", said(&output));
    assert!(text(&output.stderr).contains("nothing of it is left"), "{}", said(&output));
    nothing_is_left(&up, dir.path());
}

#[test]
fn a_class_that_is_not_there_or_paused_is_refused_and_nothing_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let output = up.command("try smal --repository demo/app").output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("small"), "{}", said(&output));
    up.done("set pool small paused=true");
    let output = up.command(TRY).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(text(&output.stderr).contains("paused=false"), "{}", said(&output));
    assert!(up.done("get requests --all").lines().count() <= 1);
}
