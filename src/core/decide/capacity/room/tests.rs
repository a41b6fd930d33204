use serde_json::json;

use crate::decide::{Effect, Planned};
use crate::model::{Instance, Life, Reason, Slot};
use crate::testing::*;
use crate::yard::Observation;

/// Creates class `linux`, at its max of so many idle machines, all of repository `acme/a`; the first expires first.
fn full(max: u32, more: serde_json::Value) -> Scene {
    let mut spec = json!({"max": max, "reuseWithin": "repository"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut scene = Scene::with(spec);
    for n in 1..=max {
        scene.add(idle(&format!("i-{n}"), "repository:acme/a").until(1700 + i64::from(n)));
    }
    scene
}

fn idle(name: &str, domain: &str) -> Built {
    machine(name).pooled().with(|i| i.trust_domain = domain.into())
}

fn asks(scene: &mut Scene, run: &str, count: u32, repository: &str) {
    scene.put(&request(run, count, json!({"repository": repository})));
}

/// Returns the machines that the class ends.
fn ended(actions: &[Planned]) -> Vec<String> {
    let ends = actions.iter().filter_map(|action| match &action.effect {
        Effect::Instance(step, _) => match step.after.life {
            Life::Terminated { reason, .. } => {
                assert_eq!(reason, Reason::Surplus);
                Some(step.after.facts.instance_id.to_string())
            }
            _ => None,
        },
        _ => None,
    });
    ends.collect()
}

#[test]
fn at_max_an_idle_machine_of_another_domain_ends_for_each_that_a_request_lacks() {
    let mut scene = full(2, json!({}));
    asks(&mut scene, "1", 1, "acme/b");
    let actions = scene.served();
    assert_eq!(ended(&actions), ["i-1"], "the first to expire, and no second");
    let told = scene.of_class().waits;
    let full = "class linux has as many machines as max allows (2); 2 idle machines are kept for repository acme/a, \
                one ends for it now";
    assert!(told.iter().any(|wait| wait.message == full), "{told:?}");
    // Its record is being written: no second machine ends for the same lack.
    scene.yard.busy.extend(actions.iter().flat_map(|action| action.slots.clone()));
    assert_eq!(ended(&scene.served()), [""; 0]);
    scene.yard.busy.clear();
    scene.apply(&actions);
    let actions = scene.served();
    assert_eq!(ended(&actions), [""; 0], "a machine that ends takes no place");
    let mut key = ask("1");
    key.repository = "acme/b".parse().unwrap();
    assert_eq!(scene.intents(), [(1, Some(key))], "{actions:?}");
}

#[test]
fn an_idle_machine_that_somebody_who_waits_can_use_stays() {
    let mut scene = full(2, json!({"max": 3}));
    scene.add(idle("i-3", "").until(1750).with(|i| i.facts.usage_class = crate::model::UsageClass::Spot));
    let on_demand = |run: &str, repository: &str| {
        request(run, 1, json!({"repository": repository, "usageClass": "on-demand"}))
    };
    scene.put(&on_demand("1", "acme/b"));
    assert_eq!(ended(&scene.served()), ["i-1"]);
    scene.put(&on_demand("2", "acme/a"));
    let actions = scene.served();
    assert_eq!(ended(&actions), ["i-3"], "nobody who waits takes a spot machine, and acme/a has its own");
}

#[test]
fn nothing_ends_for_what_cannot_be_launched_now() {
    let mut scene = full(2, json!({}));
    asks(&mut scene, "1", 1, "acme/b");
    let mut follower = scene.clone();
    follower.role.lease = None;
    assert_eq!(ended(&follower.served()), [""; 0], "it may not launch");
    let mut writing = scene.clone();
    writing.yard.busy.insert(Slot::Launches(linux()));
    assert_eq!(ended(&writing.served()), [""; 0], "an intent is being written");
    let mut paused = scene.clone();
    paused.pool(2, json!({"max": 2, "reuseWithin": "repository", "paused": true}));
    assert_eq!(ended(&paused.served()), [""; 0]);
    let mut over = scene.clone();
    over.pool(2, json!({"max": 1, "reuseWithin": "repository"}));
    assert_eq!(ended(&over.served()), [""; 0], "there would be none in its place");
    for refused in [
        crate::ports::ComputeError::Refused("no such image".into()),
        crate::ports::ComputeError::NoCapacity("InsufficientInstanceCapacity".into()),
    ] {
        let mut held_back = scene.clone();
        held_back.put(&launch("l-9", 1, Some(&ask("9"))));
        held_back.see(Observation::Ordered("l-9".parse().unwrap(), Err(refused.clone())));
        held_back.put(&crate::model::Launch {
            phase: crate::model::LaunchPhase::Failed,
            version: 2,
            ..launch("l-9", 1, Some(&ask("9")))
        });
        assert_eq!(ended(&held_back.served()), [""; 0], "{refused:?}");
    }
}

#[test]
fn what_a_share_is_guaranteed_stays_idle_for_it() {
    let sharing = |guaranteed: u32| json!({"sharing": {"quotas": {"acme/a": {"guaranteed": guaranteed}}}});
    for (guaranteed, ends) in [(0, vec!["i-1", "i-2", "i-3"]), (2, vec!["i-1"]), (4, vec![])] {
        let mut scene = full(3, sharing(guaranteed));
        asks(&mut scene, "1", 3, "acme/b");
        assert_eq!(ended(&scene.served()), ends, "{guaranteed} guaranteed");
    }
    let told = {
        let mut scene = full(3, sharing(4));
        asks(&mut scene, "1", 3, "acme/b");
        scene.of_class();
        scene.see(Observation::Hints(linux(), Vec::new()));
        scene.of_class().waits
    };
    assert!(
        told.iter().any(|wait| wait.message.ends_with("(3); 3 idle machines are kept for repository acme/a")),
        "{told:?}"
    );
}

#[test]
fn guaranteed_machines_of_a_wider_domain_are_those_of_every_share_within_it() {
    let quotas =
        json!({"acme/a": {"guaranteed": 1}, "ACME/b*": {"guaranteed": 1}, "other/c": {"guaranteed": 1}});
    let mut scene = Scene::with(json!({"max": 3, "sharing": {"quotas": quotas}}));
    for n in 1..=3 {
        scene.add(idle(&format!("i-{n}"), "owner:acme").until(1700 + n));
    }
    asks(&mut scene, "1", 3, "other/c");
    assert_eq!(ended(&scene.served()), ["i-1"]);
}

#[test]
fn in_a_shared_class_room_is_made_for_each_share_that_waits() {
    let mut scene = full(3, json!({"sharing": {}}));
    asks(&mut scene, "1", 1, "acme/b");
    asks(&mut scene, "2", 1, "acme/c");
    asks(&mut scene, "3", 1, "acme/d");
    asks(&mut scene, "4", 1, "acme/e");
    assert_eq!(ended(&scene.served()).len(), 3);
}

#[test]
fn who_waits_at_max_reads_for_whom_the_idle_machines_are() {
    let mut scene = full(2, json!({"sharing": {"quotas": {"acme/a": {"guaranteed": 2}}}}));
    scene.put(&request(
        "1",
        1,
        json!({"repository": "acme/b", "message": "waiting for 1 machine of class linux"}),
    ));
    let message = "waiting for 1 of 1 machine, because class linux is at its max of 2; idle machines are kept for \
                   repository acme/a";
    let told = scene.served().into_iter().filter_map(|action| match action.effect {
        Effect::Request(step) => Some(step.after.status.message),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [message]);
}

#[test]
fn room_is_made_among_ten_thousand_idle_machines_at_the_cost_of_a_hundred() {
    let visited = |max: u32| {
        let mut scene = full(max, json!({}));
        asks(&mut scene, "1", 2, "acme/b");
        scene.see(Observation::Hints(linux(), Vec::new()));
        crate::yard::visits();
        let actions = scene.of_class().actions;
        let visits = crate::yard::visits();
        assert_eq!(ended(&actions).len(), 2);
        visits
    };
    assert_eq!(visited(100), visited(10_000));
}

#[test]
fn a_machine_that_is_claimed_in_the_same_pass_does_not_end() {
    let mut scene = full(2, json!({}));
    asks(&mut scene, "1", 1, "acme/b");
    scene.put(&request("2", 1, json!({"repository": "acme/a", "acceptedAt": null, "phase": null, "deadline": null, "observedGeneration": null})));
    let actions = scene.served();
    let claimed: Vec<&Instance> = actions
        .iter()
        .filter_map(|action| match &action.effect {
            Effect::Claim { machines, .. } => Some(&machines[0].after),
            _ => None,
        })
        .collect();
    assert_eq!(claimed.len(), 1);
    let id = claimed[0].facts.instance_id.to_string();
    assert!(!ended(&actions).contains(&id), "{id} {:?}", ended(&actions));
}
