//! `runyard logs` and `runyard hold` against real agents.

use std::path::Path;

use serde_json::Value;

use crate::local::up::{Up, until};

/// Provisions one machine; its id.
fn served(up: &Up<'_>, run: u32) -> String {
    up.done(&format!(
        "provision --run-id {run} --repository demo/app --class small --count 1 --wait --timeout 10m"
    ));
    let request = up.done(&format!("describe request {run} -o json --repository demo/app"));
    let request: Value = serde_json::from_str(&request).unwrap();
    request["instances"][0].as_str().unwrap().to_owned()
}

fn instance(up: &Up<'_>, id: &str) -> Value {
    serde_json::from_str(&up.done(&format!("describe instance {id} -o json"))).unwrap()
}

/// How many entries the directories of claims of a machine have.
fn claims(dir: &Path, id: &str) -> usize {
    let claims = dir.join("yard/machines").join(id).join("work/claims");
    std::fs::read_dir(claims).unwrap().count()
}

#[test]
fn logs_bring_what_agent_and_runner_wrote_and_stay_when_the_machine_ended() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let id = served(&up, 1);
    let told = up.done(&format!("logs {id} --timeout 10m"));
    assert!(told.contains(&format!("instance {id}: asked for")), "{told}");
    for part in ["==> agent <==", "==> runner <==", "Listening for Jobs"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    up.done(&format!("expire {id} --now --yes"));
    until("its end", || (instance(&up, &id)["state"] == "terminated").then_some(()));
    let stored = up.done(&format!("logs {id} --stored"));
    assert!(stored.contains("==> runner <=="), "{stored}");
}

#[test]
fn a_held_machine_keeps_what_its_run_left_and_ends_when_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(dir.path());
    let id = served(&up, 1);
    up.done(&format!("hold {id} --for 30m"));
    up.done("release --run-id 1 --repository demo/app --wait --timeout 10m");
    until("it is held", || (instance(&up, &id)["runId"] == "").then_some(()));
    let told = up.done(&format!("explain instance {id}"));
    assert!(told.contains("serves nobody again"), "{told}");
    let other = served(&up, 2);
    assert_ne!(other, id, "it serves nobody again");
    assert!(claims(dir.path(), &id) > 0, "what the run left is there");
    up.done(&format!("release-hold {id}"));
    let ended = until("its end", || Some(instance(&up, &id)).filter(|one| one["state"] == "terminated"));
    assert_eq!(ended["reason"], "expired");
}
