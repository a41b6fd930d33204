use std::collections::BTreeSet;

use serde_json::json;

use crate::model::{Instance, Life, Pool, Reason, Record, RecordId};
use crate::testing::*;
use crate::yard::{Observation, Unit};

mod identity;
mod seen;

#[test]
fn an_older_image_never_replaces_a_newer_one() {
    let mut scene = Scene::with(json!({}));
    scene.add(machine("i-1").pooled());
    assert!(
        scene
            .add(machine("i-1").with(|i| i.version = 4))
            .iter()
            .all(|unit| matches!(unit, Unit::Instance(_)))
    );
    assert!(scene.yard.instance(&arn("i-1")).unwrap().instance.pooled_at().is_some());
    scene.speaks("i-1", |_| ());
    let old = scene.yard.instance(&arn("i-1")).unwrap().agent.clone().unwrap();
    scene.put(&crate::model::Agent { heartbeat_seq: 3, ..old });
    assert_eq!(scene.yard.instance(&arn("i-1")).unwrap().beat.unwrap().seq, 8);
}

#[test]
fn the_first_sight_of_an_agent_counts_as_a_beat_whichever_record_comes_first() {
    let built = machine("i-1").pooled();
    let mut scene = Scene::with(json!({}));
    scene.put(built.agent.as_ref().unwrap());
    scene.wait(100);
    scene.put(&built.instance);
    assert_eq!(scene.yard.instance(&arn("i-1")).unwrap().beat.unwrap().at, scene.now.seen);
}

#[test]
fn a_record_of_a_newer_program_or_nobodys_is_counted_and_left_alone() {
    for schema in [None, Some(2)] {
        let mut scene = Scene::with(json!({}));
        let built = machine("i-1").running(&ask("1"));
        scene.add(built.clone());
        let key = Instance::key_of(&arn("i-1"));
        scene.spoil(&key, schema);
        assert_eq!(scene.yard.newer.len() + scene.yard.unreadable.len(), 1);
        assert!(scene.of_machine("i-1").actions.is_empty());
        scene.put(&Instance { version: 6, ..built.instance });
        assert_eq!(scene.yard.newer.len() + scene.yard.unreadable.len(), 0, "mended");
        assert!(scene.yard.instance(&arn("i-1")).unwrap().agent.is_some(), "its agent was not forgotten");
    }
}

#[test]
fn what_a_complete_list_lacks_is_gone_unless_it_was_seen_since_the_list_began() {
    let mut scene = Scene::peopled();
    scene.wait(10);
    let begun = scene.now.mono;
    scene.wait(1);
    // Written while the list was read, behind the page that would have shown it.
    scene.add(machine("i-2").pooled());
    let pool = BTreeSet::from([Pool::key_of(&linux())]);
    scene.see(Observation::Listed(begun, pool));
    assert!(scene.yard.instance(&arn("i-1")).is_none());
    assert!(scene.yard.request(&ask("1")).is_none());
    assert!(scene.yard.launch(&"l-1".parse().unwrap()).is_none());
    assert!(scene.yard.instance(&arn("i-2")).is_some());
    assert!(scene.yard.pool(&linux()).is_some());
    let class = scene.yard.class(&linux()).unwrap();
    assert_eq!((class.pooled.len(), class.in_flight.open().count(), class.live()), (1, 0, 1));
}

#[test]
fn counts_follow_a_machine_through_its_life() {
    let mut scene = Scene::with(json!({}));
    let request = ask("1");
    let stages = [
        (machine("i-1"), (1, 1, 0, 0)),
        (machine("i-1").pooled(), (1, 0, 0, 1)),
        (machine("i-1").claimed(&request), (1, 0, 0, 0)),
        (machine("i-1").running(&request), (1, 0, 0, 0)),
        (machine("i-1").cleaning(&request), (1, 0, 1, 0)),
        (machine("i-1").pooled().until(99), (1, 0, 0, 1)),
        (machine("i-1").ended(Reason::Threshold), (0, 0, 0, 0)),
    ];
    for (n, (built, expected)) in stages.into_iter().enumerate() {
        scene.add(built.with(|i| i.version = 5 + n as u64));
        let class = scene.yard.class(&linux()).unwrap();
        assert_eq!(
            (class.live(), class.warm_created, class.cleaning, class.pooled.len()),
            expected,
            "stage {n}"
        );
    }
}

/// Creates a class with so many pooled machines, and as many that run for request 9.
fn crowd(n: usize) -> Scene {
    let mut scene = Scene::with(json!({"max": 50_000}));
    for i in 0..n {
        scene.add(machine(&format!("p-{i}")).pooled());
        scene.add(machine(&format!("r-{i}")).running(&ask("9")));
    }
    scene.put(&request("1", 1, json!({})));
    scene
}

fn dirtied(scene: &mut Scene) -> Vec<usize> {
    let beat = scene.speaks("p-7", |_| ()).len();
    let claimed = scene.served();
    let [crate::decide::Effect::Claim { request, machines, .. }] = effects(&claimed)[..] else {
        panic!("{claimed:?}")
    };
    let mut after = machines[0].after.clone();
    let machine = scene.put(&after).len();
    let holder = scene.put(&request.after).len();
    after.version += 1;
    after.life = Life::Running { run: "1".parse().unwrap() };
    let runs = scene.put(&after).len();
    let ended = Instance { version: 9, ..crate::testing::machine("p-7").ended(Reason::Expired).instance };
    let ends = scene.put(&ended).len();
    let new = scene.put(&request_of("2")).len();
    vec![beat, machine, holder, runs, ends, new]
}

fn request_of(run: &str) -> crate::model::Request {
    request(run, 1, json!({}))
}

#[test]
fn the_work_one_change_makes_does_not_grow_with_the_yard() {
    let small = dirtied(&mut crowd(50));
    let large = dirtied(&mut crowd(5_000));
    assert_eq!(small, large);
    assert!(small.iter().all(|units| *units <= 4), "{small:?}");
    assert_eq!(small[0], 1, "a heartbeat concerns its machine alone");
}

#[test]
fn keys_that_are_not_ours_and_events_are_nobodys_business() {
    let mut scene = Scene::with(json!({}));
    let item = item(json!({"pk": "x", "sk": "y", "kind": "instance"}));
    for key in
        [RecordId::new("x", "y"), RecordId::new("instance#x", "event#1"), RecordId::new("lease#x", "lease")]
    {
        assert!(scene.see(Observation::Record(key, Some(item.clone()))).is_empty());
    }
    assert_eq!(machine("i-1").instance.key(), Instance::key_of(&arn("i-1")));
}

/// Stores the next version of a machine.
fn becomes(scene: &mut Scene, built: Built) {
    scene.put(&built.with(|instance| instance.version += 1).instance);
}

fn failures(scene: &Scene) -> u32 {
    scene.yard.class(&linux()).unwrap().backoff.failures
}

#[test]
fn boots_that_fail_in_a_row_hold_launches_back_until_one_succeeds() {
    for reason in [
        Reason::Threshold,
        Reason::BootFailed,
        Reason::RegistrationFailed,
        Reason::Unhealthy,
        Reason::Vanished,
    ] {
        let mut scene = Scene::with(json!({}));
        let mut pauses = Vec::new();
        for n in 1..=14 {
            let name = format!("i-1{n}");
            scene.add(machine(&name));
            becomes(&mut scene, machine(&name).ended(reason));
            assert_eq!(failures(&scene), n, "{reason}");
            let until = scene.yard.class(&linux()).unwrap().backoff.until;
            pauses.push(until.saturating_sub(scene.now.mono).as_secs());
        }
        assert_eq!(pauses, [0, 0, 0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300], "{reason}");
        scene.add(machine("i-7").cleaning(&ask("9")));
        becomes(&mut scene, machine("i-7").pooled());
        assert_eq!(failures(&scene), 14, "what was cleaned had booted long ago");
        scene.add(machine("i-8"));
        becomes(&mut scene, machine("i-8").pooled());
        assert_eq!(failures(&scene), 0);
    }
}

#[test]
fn what_ends_for_another_reason_or_after_its_boot_is_no_failed_boot() {
    for (built, reason) in [
        (machine("i-1"), Reason::CleanupFailed),
        (machine("i-1"), Reason::Interrupted),
        (machine("i-1"), Reason::Drifted),
        (machine("i-1"), Reason::Surplus),
        (machine("i-1"), Reason::MaxUses),
        (machine("i-1"), Reason::MaxAge),
        (machine("i-1"), Reason::Expired),
        (machine("i-1"), Reason::Orphan),
        (machine("i-1").pooled(), Reason::Vanished),
        (machine("i-1").running(&ask("1")), Reason::Threshold),
    ] {
        let mut scene = Scene::with(json!({}));
        scene.add(built);
        becomes(&mut scene, machine("i-1").ended(reason));
        assert_eq!(failures(&scene), 0, "{reason}");
    }
}
