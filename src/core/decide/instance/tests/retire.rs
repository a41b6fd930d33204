//! Ready requests that have more machines than their jobs need.

use super::*;
use crate::model::RetireReport;

/// Creates a yard with a ready request that holds three machines and wants so many; each was asked now.
fn asked(wanted: u32, busy: impl Fn(&str) -> Option<bool>) -> Scene {
    let names = ["i-1", "i-2", "i-3"];
    let mut scene = Scene::with(serde_json::json!({}));
    scene.policy.github = true;
    scene.put(&holding("1", 3, &names, serde_json::json!({"phase": "Ready", "wanted": wanted})));
    for name in names {
        let built = machine(name).running(&ask("1")).until(1000).with(|i| i.retire_asked = Some(start()));
        scene.add(built.agent(|agent| {
            agent.runner_id = Some(7);
            agent.retire = busy(name).map(|busy| RetireReport { at: start(), busy });
        }));
    }
    scene
}

/// Returns which machines are given back.
fn given_back(scene: &Scene) -> Vec<&'static str> {
    ["i-1", "i-2", "i-3"].into_iter().filter(|name| !scene.of_machine(name).actions.is_empty()).collect()
}

#[test]
fn of_the_machines_without_a_job_only_so_many_are_given_back_as_are_too_many() {
    let free = |_: &str| Some(false);
    assert_eq!(given_back(&asked(0, free)), ["i-1", "i-2", "i-3"]);
    assert_eq!(given_back(&asked(2, free)), ["i-1"], "more are wanted since they were asked");
    assert_eq!(given_back(&asked(3, free)), [""; 0]);
    assert_eq!(given_back(&asked(2, |name| Some(name == "i-1"))), ["i-2"], "one of those without a job");
    assert_eq!(given_back(&asked(2, |_| None)), [""; 0], "none has answered");
}
