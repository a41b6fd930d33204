//! Which record is it? Its key, its `uid` and its version together determine that; where they do not, the moment of a
//! read does.

use std::time::Duration;

use super::*;
use crate::model::{Agent, Item, Launch, Request, Uid, Versioned};
use crate::yard::Written;

fn uid(name: &str) -> Option<Uid> {
    Some(name.parse().unwrap())
}

/// Returns the stored pool of `linux`; its `max` tells versions apart.
fn pool(name: Option<&str>, version: u64, max: u32) -> Item {
    let mut fields = json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "resourceClass": "linux", "cpu": 2, "mmem": 4096,
        "version": version, "max": max,
    });
    if let Some(name) = name {
        fields["uid"] = name.into();
    }
    item(fields)
}

fn key() -> RecordId {
    Pool::key_of(&linux())
}

fn max(scene: &Scene) -> Option<u32> {
    scene.yard.pool(&linux()).map(|pool| pool.spec.max)
}

/// Creates a yard that has known this pool for a while.
fn knowing(known: Item) -> Scene {
    let mut scene = Scene::empty();
    scene.see(Observation::Record(key(), Some(known)));
    scene.wait(10);
    scene
}

/// Lists the ways in which an image may arrive: a change, a page and a look that began after the last sight, a page and
/// a look that began before it.
fn paths(scene: &Scene, item: &Item) -> [Observation; 5] {
    let (later, before) = (scene.now.mono, scene.now.mono - secs(20));
    [
        Observation::Record(key(), Some(item.clone())),
        Observation::Shown(later, key(), item.clone()),
        Observation::Looked(later, key(), Some(item.clone())),
        Observation::Shown(before, key(), item.clone()),
        Observation::Looked(before, key(), Some(item.clone())),
    ]
}

fn taken(known: &Item, new: &Item) -> [bool; 5] {
    let scene = knowing(known.clone());
    paths(&scene, new).map(|path| {
        let mut scene = scene.clone();
        scene.see(path);
        max(&scene) == Some(11)
    })
}

#[test]
fn a_class_deleted_and_applied_again_is_taken_by_every_path() {
    assert_eq!(taken(&pool(Some("a"), 7, 10), &pool(Some("b"), 1, 11)), [true; 5]);
    assert_eq!(taken(&pool(None, 7, 10), &pool(Some("b"), 1, 11)), [true; 5], "the former had no uid");
}

#[test]
fn a_record_without_a_uid_is_another_one_to_a_change_and_to_a_later_read() {
    assert_eq!(taken(&pool(Some("a"), 7, 10), &pool(None, 1, 11)), [true, true, true, false, false]);
}

#[test]
fn without_a_uid_a_read_that_began_after_the_last_sight_decides() {
    assert_eq!(taken(&pool(None, 7, 10), &pool(None, 1, 11)), [false, true, true, false, false]);
    assert_eq!(
        taken(&pool(None, 7, 10), &pool(None, 7, 11)),
        [false, true, true, false, false],
        "same version"
    );
    assert_eq!(
        taken(&pool(None, 7, 10), &pool(None, 8, 11)),
        [true; 5],
        "a higher one is newer however it comes"
    );
}

#[test]
fn a_version_set_back_by_hand_is_taken_in_by_a_later_read() {
    assert_eq!(taken(&pool(Some("a"), 7, 10), &pool(Some("a"), 3, 11)), [false, true, true, false, false]);
}

#[test]
fn a_record_that_another_one_followed_does_not_come_back_late() {
    let mut scene = knowing(pool(Some("a"), 7, 10));
    scene.see(Observation::Record(key(), Some(pool(Some("b"), 1, 11))));
    scene.wait(1);
    let late = scene.now.mono - secs(5);
    scene.see(Observation::Record(key(), Some(pool(Some("a"), 8, 12))));
    scene.see(Observation::Shown(late, key(), pool(Some("a"), 8, 12)));
    assert_eq!(max(&scene), Some(11));
    // The watch is behind: it reports the removal of the former record and the creation of the one that is known
    // already.
    scene.see(Observation::Record(key(), None));
    scene.see(Observation::Record(key(), Some(pool(Some("b"), 1, 11))));
    assert_eq!(max(&scene), Some(11));
    scene.wait(1);
    scene.look(key(), Some(pool(Some("a"), 8, 12)));
    assert_eq!(max(&scene), Some(12), "somebody put it back, and a read that began now shows it");
}

#[test]
fn a_page_does_not_bring_back_what_was_removed_since_its_list_began() {
    let mut scene = knowing(pool(Some("a"), 7, 10));
    let begun = scene.now.mono;
    scene.wait(1);
    scene.see(Observation::Record(key(), None));
    scene.see(Observation::Shown(begun, key(), pool(Some("a"), 7, 10)));
    scene.see(Observation::Looked(begun, key(), Some(pool(Some("a"), 7, 10))));
    assert_eq!(max(&scene), None);
    scene.wait(1);
    scene.see(Observation::Shown(scene.now.mono, key(), pool(None, 1, 11)));
    assert_eq!(max(&scene), Some(11), "a list that began since then is believed");
}

#[test]
fn a_removal_is_remembered_ten_minutes() {
    let mut scene = knowing(pool(None, 7, 10));
    let begun = scene.now.mono;
    scene.see(Observation::Record(key(), None));
    for (seconds, kept) in [(599, 1), (1, 0)] {
        scene.wait(seconds);
        scene.see(Observation::Listed(begun, BTreeSet::new()));
        assert_eq!(scene.yard.former.len(), kept);
    }
}

#[test]
fn an_absence_read_before_the_record_was_seen_says_nothing() {
    let mut scene = Scene::empty();
    scene.put(&request("1", 1, json!({"phase": null, "acceptedAt": null, "deadline": null})));
    let begun = scene.now.mono;
    scene.wait(1);
    scene.see(Observation::Record(key(), Some(pool(None, 1, 11))));
    let dirty = scene.see(Observation::Looked(begun, key(), None));
    assert!(max(&scene) == Some(11) && !scene.yard.absent.contains_key(&key()));
    assert!(dirty.contains(&Unit::Request(ask("1"))), "what waited for the look is judged again");
    scene.wait(1);
    scene.look(key(), None);
    assert!(max(&scene).is_none() && scene.yard.absent.contains_key(&key()));
}

#[test]
fn an_agent_seen_since_a_read_began_is_not_silenced_by_it() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").pooled());
    let begun = scene.now.mono;
    scene.wait(1);
    scene.speaks("i-1", |_| ());
    scene.see(Observation::Looked(begun, Agent::key_of(&arn("i-1")), None));
    let tracked = scene.yard.instance(&arn("i-1")).unwrap();
    assert!(tracked.agent.is_some() && tracked.silent.is_none());
}

#[test]
fn a_page_read_before_says_neither_that_a_record_is_spoilt_nor_that_it_is_mended() {
    let spoilt = |version| pool(None, version, 10).into_iter().chain(item(json!({"kind": "x"}))).collect();
    let mut scene = knowing(pool(None, 7, 10));
    let late = scene.now.mono - secs(20);
    scene.see(Observation::Shown(late, key(), spoilt(6)));
    assert_eq!(max(&scene), Some(10));
    scene.see(Observation::Record(key(), Some(spoilt(8))));
    scene.see(Observation::Shown(late, key(), pool(None, 7, 10)));
    assert_eq!(max(&scene), None);
    scene.wait(1);
    scene.look(key(), Some(pool(None, 9, 11)));
    assert_eq!(max(&scene), Some(11));
}

/// Builds a record of each kind that may be created again, before and after.
fn made_anew() -> [(Written, Written); 2] {
    let was = request("1", 2, json!({"phase": "Ready", "version": 9, "uid": "a"}));
    let is = Request { uid: uid("b"), ..request("1", 1, json!({"version": 1})) };
    let launched = Launch { uid: uid("a"), version: 4, ..launch("l-1", 2, None) };
    let again = Launch { uid: uid("b"), ..launch("l-1", 1, None) };
    [(Written::Request(was), Written::Request(is)), (Written::Launch(launched), Written::Launch(again))]
}

#[test]
fn requests_and_launches_made_anew_are_taken_as_well() {
    for (was, is) in made_anew() {
        let mut scene = Scene::with(json!({}));
        let key = was.key();
        scene.see(Observation::Written(Box::new(was)));
        scene.see(Observation::Written(Box::new(is)));
        let versions = (
            scene.yard.request_named(&key).map(Versioned::version),
            scene.yard.launch(&"l-1".parse().unwrap()).map(|tracked| tracked.launch.version),
        );
        assert!(versions == (Some(1), None) || versions == (None, Some(1)), "{versions:?}");
    }
}

#[test]
fn machines_and_agents_set_back_by_hand_are_taken_in_by_a_later_list() {
    let mut scene = Scene::with(json!({}));
    let built = machine("i-1").pooled();
    scene.add(built.clone());
    scene.speaks("i-1", |_| ());
    let back = built.clone().with(|i| i.version = 2).instance;
    let (late, agent) = (scene.now.mono, built.agent.unwrap());
    scene.wait(10);
    let shown = |scene: &mut Scene, begun: Duration| {
        scene.see(Observation::Shown(begun, back.key(), back.to_item()));
        scene.see(Observation::Shown(begun, agent.key(), agent.to_item()));
        let tracked = scene.yard.instance(&arn("i-1")).unwrap();
        (tracked.instance.version, tracked.agent.as_ref().unwrap().heartbeat_seq)
    };
    assert_eq!(shown(&mut scene, late), (5, 8));
    scene.wait(10);
    let now = scene.now.mono;
    assert_eq!(shown(&mut scene, now), (2, 7));
}
