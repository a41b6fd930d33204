use serde_json::json;

use crate::model::{Launch, LaunchPhase, Pool, Reason, Record, RequestKey};
use crate::testing::*;
use crate::yard::Observation;

/// Builds a launch for one request's machines, bound to these.
fn bound(name: &str, machines: &[&str], request: Option<&RequestKey>) -> Launch {
    Launch {
        phase: LaunchPhase::Bound,
        instances: machines.iter().map(|name| id(name)).collect(),
        version: 2,
        ..launch(name, machines.len() as u32, request)
    }
}

fn of(launch: &str, name: &str) -> Built {
    let launch = launch.parse().unwrap();
    machine(name).with(|instance| instance.facts.launch_id = Some(launch))
}

/// Story: the new holder of the lease read a launch as bound before it read the machines of it, counted them nowhere,
/// and launched as many again: over `max`. Found by the model of the lease as soon as responses were lost in it.
#[test]
fn machines_of_a_bound_launch_count_until_their_records_are_seen() {
    let mut scene = Scene::with(json!({"desired": 2, "max": 2}));
    scene.put(&launch("l-1", 2, None));
    assert_eq!(scene.intents(), []);
    scene.put(&bound("l-1", &["i-1", "i-2"], None));
    assert_eq!(scene.intents(), [], "neither record was seen");
    scene.add(of("l-1", "i-1"));
    assert_eq!(scene.intents(), [], "one of them was");
    scene.add(of("l-1", "i-2"));
    let class = scene.yard.class(&linux()).unwrap();
    assert_eq!((class.live(), class.in_flight.total()), (2, 0));
    scene.add(of("l-1", "i-2").ended(Reason::Surplus).with(|i| i.version = 6));
    assert_eq!(scene.intents(), [(1, None)], "an ended machine counts nowhere, whatever its launch says");
}

#[test]
fn machines_seen_before_their_launch_count_once() {
    let mut scene = Scene::with(json!({"desired": 3, "max": 3}));
    scene.put(&launch("l-1", 2, None));
    scene.add(of("l-1", "i-1"));
    scene.put(&bound("l-1", &["i-1", "i-2"], None));
    assert_eq!(scene.yard.class(&linux()).unwrap().taken(), 2);
    assert_eq!(scene.intents(), [(1, None)]);
}

#[test]
fn for_the_request_they_were_launched_for_they_are_on_their_way() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 2, json!({"acceptedAt": at(-10)})));
    scene.put(&bound("l-1", &["i-1"], Some(&ask("1"))));
    assert_eq!(scene.intents(), [(1, Some(ask("1")))]);
}

#[test]
fn a_complete_list_begun_after_the_bind_proves_that_the_others_are_gone() {
    let mut scene = Scene::with(json!({"desired": 1, "max": 1}));
    let launch = bound("l-1", &["i-1"], None);
    let keys = [Pool::key_of(&linux()), launch.key()];
    scene.wait(10);
    let before = scene.now.mono;
    scene.wait(1);
    scene.put(&launch);
    scene.see(Observation::Listed(before, keys.clone().into()));
    assert_eq!(
        scene.intents(),
        [],
        "the list may have passed the place of a machine's record before it was written"
    );
    scene.wait(1);
    scene.see(Observation::Listed(scene.now.mono, keys.into()));
    assert_eq!(scene.intents(), [(1, None)]);
}

/// Story: a launch with a count near the largest number, written by another program, saturated the sum; when its record
/// became unreadable, another launch was subtracted with it, and the class launched over its `max`.
#[test]
fn a_launch_of_any_count_takes_out_what_it_added_and_nothing_else() {
    let mut scene = Scene::with(json!({"desired": 3, "max": 3}));
    let vast = launch("l-1", u32::MAX, None);
    scene.put(&vast);
    scene.put(&launch("l-2", 1, None));
    assert_eq!(scene.yard.class(&linux()).unwrap().in_flight.total(), u32::MAX);
    assert_eq!(scene.intents(), []);
    scene.spoil(&vast.key(), None);
    assert_eq!(scene.intents(), [(2, None)]);
}

#[test]
fn a_list_begun_at_the_moment_of_the_bind_proves_nothing() {
    let mut scene = Scene::with(json!({"desired": 1, "max": 1}));
    let launch = bound("l-1", &["i-1"], None);
    scene.put(&launch);
    scene.see(Observation::Listed(scene.now.mono, [Pool::key_of(&linux()), launch.key()].into()));
    assert_eq!(scene.yard.class(&linux()).unwrap().in_flight.total(), 1);
}

#[test]
fn an_intent_is_open_until_it_is_answered() {
    let mut scene = Scene::with(json!({}));
    scene.put(&launch("l-1", 2, Some(&ask("1"))));
    scene.put(&launch("l-2", 1, None));
    let counts = |scene: &Scene| {
        let in_flight = &scene.yard.class(&linux()).unwrap().in_flight;
        let key = ask("1");
        (in_flight.open().count(), in_flight.of(Some(&key)), in_flight.of(None), in_flight.total())
    };
    assert_eq!(counts(&scene), (2, 2, 1, 3));
    scene.put(&bound("l-1", &["i-1", "i-2"], Some(&ask("1"))));
    assert_eq!(counts(&scene), (1, 2, 1, 3));
    scene.put(&Launch { phase: LaunchPhase::Failed, version: 2, ..launch("l-2", 1, None) });
    assert_eq!(counts(&scene), (0, 2, 0, 2));
}
