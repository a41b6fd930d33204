use serde_json::json;

use crate::decide::{Effect, Planned};
use crate::model::{Instance, Life, Record as _};
use crate::testing::*;

/// Builds a machine whose agent never wrote; 300 s after it was recorded its boot counts as hung where no other boot is
/// known.
fn silent(name: &str) -> Built {
    machine(name).agent(|agent| agent.heartbeat_seq = 0)
}

/// Creates a class of this spec in which request 1 holds `i-1`, which boots in silence for 301 s.
fn hangs(spec: serde_json::Value) -> Scene {
    let mut scene = Scene::with(spec);
    scene.put(&holding("1", 1, &["i-1"], json!({})));
    scene.add(silent("i-1").bound(&ask("1")));
    scene.wait(101);
    scene
}

fn given_up(actions: &[Planned]) -> Vec<String> {
    let of = |effect: &Effect| match effect {
        Effect::Request(step) => {
            let before = step.before.status.instances.iter();
            let lost = before.filter(|id| !step.after.status.instances.contains(id));
            lost.map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    };
    effects(actions).into_iter().flat_map(of).collect()
}

#[test]
fn a_second_machine_is_launched_beside_one_whose_boot_hangs_within_max() {
    let mut scene = hangs(json!({"max": 3}));
    assert_eq!(scene.intents(), [(1, None)]);
    assert_eq!(hangs(json!({"max": 1})).intents(), [], "max holds");
    assert_eq!(hangs(json!({"max": 3, "paused": true})).intents(), []);
    // One machine is enough, on its way or booting.
    scene.put(&launch("l-9", 1, None));
    assert_eq!(scene.intents(), []);
    let mut scene = hangs(json!({"max": 5}));
    scene.add(machine("i-2"));
    assert_eq!(scene.intents(), []);
}

#[test]
fn a_boot_that_is_not_late_or_whose_agent_speaks_gets_none() {
    let mut scene = Scene::with(json!({}));
    scene.put(&holding("1", 1, &["i-1"], json!({})));
    scene.add(silent("i-1").bound(&ask("1")));
    assert_eq!(scene.intents(), []);
    let wake = scene.of_class().wake.unwrap();
    assert!(wake <= scene.now.mono + secs(100), "looked at again when it is late");
    scene.wait(101);
    assert_eq!(scene.intents(), [(1, None)]);
    scene.speaks("i-1", |_| ());
    assert_eq!(scene.intents(), [], "its pre-runner script may take its time");
}

#[test]
fn what_is_late_follows_from_how_long_others_took() {
    let mut scene = Scene::with(json!({}));
    for name in ["i-7", "i-8", "i-9"] {
        let born = |seconds: i64| {
            move |i: &mut Instance| (i.facts.created_at, i.state_since) = (at(-seconds), at(-seconds))
        };
        scene.add(machine(name).with(born(1000)));
        let pooled = machine(name).pooled().with(|i| {
            (i.facts.created_at, i.state_since, i.version) = (at(-1000), at(-980), 6);
        });
        scene.put(&pooled.instance);
    }
    scene.put(&holding("1", 1, &["i-1"], json!({"allowedInstanceTypes": null})));
    scene.add(silent("i-1").bound(&ask("1")));
    // 20 s each: late after two minutes, and the machine is 200 s old. A free one takes its place.
    assert_eq!(given_up(&scene.served()), ["i-1"]);
}

#[test]
fn a_request_takes_the_second_machine_and_gives_the_first_up() {
    let mut scene = hangs(json!({"max": 3}));
    scene.add(machine("i-2").pooled());
    let actions = scene.served();
    assert_eq!(given_up(&actions), ["i-1"]);
    assert_eq!(note(&actions).reason, "BootHangs");
    scene.apply(&actions);
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-2".to_owned()])]);
    // If it comes after all, it is cleaned, and is free or ends.
    let (step, _) = write(&scene.of_machine("i-1"));
    assert_eq!(step.after.life, Life::Idle { pooled_at: None });
}

#[test]
fn the_first_machine_wins_when_it_comes_first_and_the_second_stays_free() {
    let mut scene = hangs(json!({"max": 3}));
    scene.add(machine("i-2"));
    scene.speaks("i-1", |_| ());
    scene.put(&machine("i-2").pooled().with(|i| i.version = 6).instance);
    assert_eq!(given_up(&scene.served()), [""; 0]);
    assert_eq!(scene.claims(), []);
}

#[test]
fn a_free_machine_serves_one_request_of_two_whose_machines_hang() {
    let mut scene = Scene::with(json!({}));
    for (run, name) in [("1", "i-1"), ("2", "i-2")] {
        scene.put(&holding(run, 1, &[name], json!({})));
        scene.add(silent(name).bound(&ask(run)));
    }
    scene.wait(101);
    scene.add(machine("i-3").pooled());
    let actions = scene.served();
    assert_eq!(given_up(&actions).len(), 1, "{actions:?}");
}

#[test]
fn a_request_that_a_warm_machine_does_not_suit_waits_for_its_own() {
    let mut scene = Scene::with(json!({}));
    scene.put(&holding("1", 1, &["i-1"], json!({"usageClass": "spot"})));
    scene.add(silent("i-1").bound(&ask("1")));
    scene.wait(101);
    assert_eq!(scene.intents(), []);
    scene.add(machine("i-2").pooled());
    assert_eq!(given_up(&scene.served()), [""; 0]);
}

#[test]
fn warm_machines_that_hang_are_made_up_for_once_and_not_on_and_on() {
    let mut scene = Scene::with(json!({"desired": 1, "max": 10}));
    scene.add(silent("i-1"));
    scene.wait(101);
    assert_eq!(scene.intents(), [(1, None)]);
    scene.add(silent("i-2"));
    assert_eq!(scene.intents(), [], "a class whose boots all hang is not launched on and on");
}

#[test]
fn nothing_is_given_up_by_a_request_that_is_being_written() {
    let mut scene = hangs(json!({"max": 3}));
    scene.add(machine("i-2").pooled());
    let key = scene.yard.request(&ask("1")).unwrap().key();
    scene.yard.busy.insert(key.into());
    assert_eq!(given_up(&scene.served()), [""; 0]);
}
