//! The reason why a request waits is in its record, and written there once.

use serde_json::json;

use super::tell::*;
use super::*;
use crate::decide::Effect;
use crate::model::{Life, Reason};
use crate::testing::{Scene, arn, ask, at, effects, holding, machine, request};

/// Returns the reason-telling writes planned for run 1 by its class.
fn told(scene: &Scene) -> Vec<String> {
    let actions = scene.clone().served().into_iter();
    let messages = actions.filter_map(|action| match action.effect {
        Effect::Request(step) if step.before.key() == ask("1") => Some(step.after.status.message),
        _ => None,
    });
    messages.collect()
}

fn full() -> Scene {
    let mut scene = Scene::with(json!({"max": 2}));
    scene.put(&holding("2", 2, &["i-1", "i-2"], json!({"phase": "Ready", "readyAt": at(-10)})));
    scene.add(machine("i-1").running(&ask("2")));
    scene.add(machine("i-2").running(&ask("2")));
    scene.put(&request("1", 1, json!({"message": "waiting for 1 machine of class linux"})));
    scene
}

#[test]
fn who_waits_because_the_class_is_full_or_paused_reads_it_in_the_record_once() {
    let mut scene = full();
    let message = "waiting for 1 of 1 machine, because class linux is at its max of 2";
    assert_eq!(told(&scene), [message]);
    let foretold = crate::explain::judge(&scene.yard, &scene.policy, scene.now, scene.role);
    assert!(!foretold.iter().any(|(_, plan)| plan.actions.iter().any(is_telling)), "only the operator knows");
    let actions = scene.served();
    scene.apply(&actions);
    assert_eq!(told(&scene), [""; 0], "said once");
    scene.wait(60);
    assert_eq!(told(&scene), [""; 0], "however long it lasts");
    scene.pool(2, json!({"max": 2, "paused": true}));
    assert_eq!(told(&scene), ["waiting for 1 of 1 machine, because class linux is paused"]);
}

/// While the queue was read no request was visited, and the record of each waiting request was written twice every 10
/// s. A class whose free machines are for nobody who waits does not ask.
#[test]
fn a_reason_stands_while_no_free_machine_is_for_the_request() {
    let mut scene = full();
    // A guaranteed machine stays idle.
    let sharing = json!({"quotas": {"acme/other": {"guaranteed": 1}}});
    scene.pool(2, json!({"max": 3, "reuseWithin": "repository", "sharing": sharing}));
    scene.add(machine("i-3").pooled().with(|i| i.trust_domain = "repository:acme/other".into()));
    let actions = scene.served();
    scene.apply(&actions);
    scene.wait(60);
    let plan = scene.of_class();
    assert!(!plan.actions.iter().any(|action| matches!(action.effect, Effect::Receive(..))), "{plan:?}");
    assert!(!plan.actions.iter().any(is_telling), "{:?}", plan.actions);
}

#[test]
fn another_reason_is_written_only_after_a_while() {
    let mut scene = full();
    let actions = scene.served();
    scene.apply(&actions);
    scene.pool(2, json!({"max": 2, "paused": true}));
    assert_eq!(told(&scene), [""; 0], "it was written a moment ago");
    scene.wait(10);
    assert_eq!(told(&scene).len(), 1);
}

#[test]
fn a_request_that_fails_at_its_deadline_says_what_it_waited_for() {
    let mut scene = full();
    let actions = scene.served();
    scene.apply(&actions);
    scene.wait(501);
    let actions = scene.of_request("1").actions;
    let [Effect::Request(step)] = effects(&actions)[..] else { panic!("{actions:?}") };
    let message = "DeadlinePassed: 0 of 1 machine ran at the deadline (1 is needed), \
                   because class linux is at its max of 2";
    assert_eq!(step.after.status.message, message);
}

#[test]
fn a_ready_request_drops_a_lost_machine_and_says_why_it_is_not_replaced() {
    let mut scene = Scene::with(json!({"max": 2, "paused": true}));
    scene.put(&holding("1", 2, &["i-1", "i-2"], json!({"phase": "Ready", "readyAt": at(-10)})));
    scene.add(machine("i-1").running(&ask("1")));
    scene.add(machine("i-2").running(&ask("1")).ended(Reason::Expired).with(|i| i.version = 6));
    let actions = scene.of_request("1").actions;
    scene.apply(&actions);
    let held = scene.yard.request(&ask("1")).expect("it is there").status.clone();
    assert_eq!(held.instances.len(), 1, "4/5, not 5/5");
    assert_eq!(held.message, "lost i-2 (expired); to be replaced");
    scene.wait(2);
    let why =
        "lost i-2 (expired); to be replaced; waiting for 1 of 2 machines, because class linux is paused";
    assert_eq!(told(&scene), [why]);
    let actions = scene.served();
    scene.apply(&actions);
    scene.pool(2, json!({"max": 2}));
    scene.wait(10);
    let lives = |life: &Life| matches!(life, Life::Running { .. });
    assert!(lives(&scene.yard.instance(&arn("i-1")).expect("it is there").instance.life));
    assert_eq!(told(&scene), ["lost i-2 (expired); to be replaced"], "it is replaced now");
}
