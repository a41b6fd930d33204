use serde_json::json;

use crate::decide::{Effect, Wait, WaitReason};
use crate::model::{AttributeValue, Launch, LaunchPhase, Reason, Record, RecordId, UsageClass};
use crate::ports::ComputeError;
use crate::ports::github::{EndOfLife, RunnerSupport};
use crate::testing::*;
use crate::yard::Observation;

fn lacking(scene: &mut Scene, run: &str, count: u32, since: i64) {
    scene.put(&request(run, count, json!({"acceptedAt": at(since)})));
}

fn waits(scene: &Scene, reason: WaitReason) -> bool {
    scene.of_class().waits.iter().any(|wait| wait.reason == reason)
}

#[test]
fn what_requests_lack_is_launched_oldest_first_then_what_the_class_wants_idle() {
    let mut scene = Scene::with(json!({"desired": 2, "max": 6}));
    lacking(&mut scene, "2", 1, -10);
    lacking(&mut scene, "1", 2, -20);
    assert_eq!(scene.intents(), [(2, Some(ask("1"))), (1, Some(ask("2"))), (2, None)]);
}

#[test]
fn a_launch_asks_for_at_most_forty() {
    let mut scene = Scene::with(json!({"desired": 95, "max": 100}));
    assert_eq!(scene.intents(), [(40, None), (40, None), (15, None)]);
    scene.pool(2, json!({"desired": 80, "max": 100}));
    assert_eq!(scene.intents(), [(40, None), (40, None)]);
}

#[test]
fn a_class_that_wants_nothing_waits_for_nothing() {
    let mut scene = Scene::with(json!({"paused": true}));
    assert_eq!(scene.of_class().waits, [], "nobody asks, nothing is kept idle");
    scene.pool(2, json!({"max": 1, "paused": true}));
    scene.add(machine("i-1"));
    lacking(&mut scene, "1", 1, -10);
    let told =
        |scene: &Scene| scene.of_class().waits.into_iter().map(|w| (w.subject, w.reason)).collect::<Vec<_>>();
    let of_the_request = [(ask("1").into(), WaitReason::Paused), (ask("1").into(), WaitReason::AtMax)];
    assert_eq!(told(&scene), of_the_request, "what cannot be launched anyway is not held back");
    scene.pool(3, json!({}));
    assert_eq!(scene.intents(), [(1, Some(ask("1")))]);
    assert!(!waits(&scene, WaitReason::Starting), "nothing is on its way yet");
}

#[test]
fn unreadable_machines_count_towards_max_until_they_say_that_they_ended() {
    let mut scene = Scene::with(json!({"desired": 3, "max": 3}));
    let built = machine("i-1");
    let newer = |state: &str| {
        let mut item = built.instance.to_item();
        item.insert("schema".into(), AttributeValue::N("2".into()));
        item.insert("state".into(), AttributeValue::S(state.into()));
        Observation::Record(built.instance.key(), Some(item))
    };
    for (seen, room) in [
        (newer("created"), 2),
        (newer("hibernated"), 2),
        (newer("terminated"), 3),
        (newer("idle"), 2),
        (Observation::Record(built.instance.key(), None), 3),
    ] {
        scene.see(seen);
        assert_eq!(scene.intents(), [(room, None)]);
    }
    scene.see(newer("idle"));
    scene.add(built.clone());
    assert_eq!(scene.intents(), [(2, None)], "read again, it counts once");
}

#[test]
fn live_machines_and_open_launches_together_never_pass_max() {
    for (max, expected) in [(3, vec![]), (4, vec![(1, Some(ask("1")))]), (9, vec![(3, Some(ask("1")))])] {
        let mut scene = Scene::with(json!({"max": max}));
        scene.add(machine("i-1"));
        scene.put(&launch("l-1", 2, Some(&ask("9"))));
        lacking(&mut scene, "1", 3, -10);
        assert_eq!(scene.intents(), expected, "max {max}");
        assert_eq!(waits(&scene, WaitReason::AtMax), max < 6, "max {max}");
    }
}

#[test]
fn what_is_launched_for_a_request_already_is_not_launched_again() {
    let mut scene = Scene::with(json!({}));
    lacking(&mut scene, "1", 3, -10);
    scene.put(&launch("l-1", 2, Some(&ask("1"))));
    assert_eq!(scene.intents(), [(1, Some(ask("1")))]);
    assert!(waits(&scene, WaitReason::Starting));
}

#[test]
fn what_boots_is_cleaned_or_comes_warm_counts_as_idle() {
    let mut scene = Scene::with(json!({"desired": 5}));
    scene.add(machine("i-1"));
    scene.add(machine("i-2").cleaning(&ask("1")));
    scene.add(machine("i-3").pooled());
    scene.put(&launch("l-1", 1, None));
    scene.put(&launch("l-2", 1, Some(&ask("1"))));
    assert_eq!(scene.intents(), [(1, None)]);
}

#[test]
fn only_the_holder_of_the_lease_launches() {
    let mut scene = Scene::with(json!({"desired": 1}));
    scene.role.lease = None;
    assert_eq!(scene.intents(), []);
    assert!(waits(&scene, WaitReason::NotLeader));
}

#[test]
fn one_intent_of_a_class_is_written_at_a_time_and_holds_up_no_other_class() {
    let mut scene = Scene::with(json!({"desired": 1}));
    let own = crate::model::Slot::Launches(linux());
    assert!(scene.of_class().actions.iter().flat_map(|action| action.slots.clone()).any(|slot| slot == own));
    scene.yard.busy.insert(own);
    assert_eq!(scene.intents(), []);
    assert!(waits(&scene, WaitReason::Busy));
}

#[test]
fn a_launch_that_failed_holds_the_next_back_longer_each_time() {
    let mut scene = Scene::with(json!({"desired": 1}));
    scene.put(&launch("l-1", 1, Some(&ask("1"))));
    for pause in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        scene
            .see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::Refused("no right".into()))));
        assert_eq!(scene.intents(), []);
        assert!(waits(&scene, WaitReason::BackOff));
        assert!(scene.of_class().wake.unwrap() <= scene.now.mono + secs(pause));
        scene.wait(pause - 1);
        assert_eq!(scene.intents(), [], "after {} of {pause} s", pause - 1);
        scene.wait(1);
        assert_eq!(scene.intents(), [(1, None)], "after {pause} s");
    }
    scene.add(machine("i-1"));
    scene.add(machine("i-1").pooled().with(|i| i.version = 6));
    scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(ComputeError::Throttled)));
    scene.wait(2);
    scene.pool(2, json!({"desired": 2}));
    assert_eq!(scene.intents(), [(1, None)], "a machine that booted starts the count anew");
}

#[test]
fn the_fourth_machine_in_a_row_that_does_not_boot_holds_launches_back() {
    for reason in [
        Reason::Threshold,
        Reason::BootFailed,
        Reason::RegistrationFailed,
        Reason::Unhealthy,
        Reason::Vanished,
    ] {
        let mut scene = Scene::with(json!({"desired": 1}));
        for n in 0..4 {
            assert_eq!(scene.intents(), [(1, None)], "{reason} {n}");
            scene.add(machine(&format!("i-{n}")));
            scene.add(machine(&format!("i-{n}")).ended(reason).with(|i| i.version = 6));
        }
        assert_eq!(scene.intents(), [], "{reason}");
    }
    let mut scene = Scene::with(json!({"desired": 1}));
    for n in 0..9 {
        scene.add(machine(&format!("i-{n}")));
        scene.add(machine(&format!("i-{n}")).ended(Reason::Interrupted).with(|i| i.version = 6));
        scene.add(machine(&format!("j-{n}")).pooled());
        scene.add(machine(&format!("j-{n}")).pooled().ended(Reason::Unhealthy).with(|i| i.version = 6));
    }
    assert_eq!(scene.intents(), [(1, None)], "what is taken back, or ends later, is no failure to boot");
}

#[test]
fn spot_that_cannot_be_had_becomes_on_demand_only_for_a_request_that_says_so() {
    let usage = |fallback: bool, failed: bool| {
        let mut scene = Scene::with(json!({"usageClass": "spot"}));
        scene.put(&request("1", 1, json!({"onDemandFallback": fallback})));
        let mut spot = launch("l-1", 1, Some(&ask("1")));
        spot.usage_class = UsageClass::Spot;
        spot.phase = if failed { LaunchPhase::Failed } else { LaunchPhase::Bound };
        scene.put(&spot);
        scene.served().into_iter().find_map(|action| match action.effect {
            Effect::Intend(launch, _) => Some(launch.usage_class),
            _ => None,
        })
    };
    assert_eq!(usage(true, true), Some(UsageClass::OnDemand));
    assert_eq!(usage(false, true), Some(UsageClass::Spot));
    assert_eq!(usage(true, false), Some(UsageClass::Spot));
}

#[test]
fn numbers_that_no_operator_would_write_are_no_trouble() {
    let mut scene = Scene::with(json!({"desired": u32::MAX, "max": u32::MAX}));
    assert!(scene.intents().len() < 1000);
    let huge = |name: &str| Launch { count: u32::MAX, ..launch(name, 1, None) };
    scene.put(&huge("l-1"));
    scene.put(&huge("l-2"));
    lacking(&mut scene, "1", 500, -10);
    scene.put(&Launch { request: Some(ask("1").into()), ..huge("l-3") });
    scene.put(&Launch { request: Some(ask("1").into()), ..huge("l-4") });
    assert_eq!(scene.intents(), []);
}

#[test]
fn a_lack_is_told_with_its_types_and_when_it_is_asked_for_again() {
    use super::account;
    use crate::yard::{Now, Offering};
    let now = Now { wall: start(), mono: secs(100), seen: secs(100) };
    let told = |types: &[&str]| {
        let types = types.iter().map(|name| (*name).to_owned()).collect();
        account(&Offering { usage: UsageClass::Spot, types }, secs(160), &now)
    };
    let again = "tried again at 2026-01-05T12:01:00Z";
    assert_eq!(told(&[]), format!("no capacity for spot machines (any type that will do), {again}"));
    assert_eq!(told(&["a", "b"]), format!("no capacity for spot machines (a, b), {again}"));
}

fn supported(version: &str, runtime: Option<&str>) -> RunnerSupport {
    let runtime = runtime.map(|at| at.parse().unwrap());
    RunnerSupport { version: version.to_owned(), end: EndOfLife { registration: None, runtime } }
}

#[test]
fn a_pinned_class_launches_until_its_version_ends_and_not_after() {
    for (version, runtime) in RUNNER_ENDS {
        let mut scene = Scene::with(json!({"desired": 1, "max": 4}));
        let deadline = "2027-01-01T00:00:00Z";
        scene.put(&request("1", 2, json!({"acceptedAt": at(-10), "deadline": deadline})));
        let support = supported(version, runtime);
        scene.yard.runner = Some(support.clone());
        scene.now.wall = support.end.runtime.map_or(at(0), |end| end - secs(1));
        assert_eq!(scene.intents(), [(2, Some(ask("1"))), (1, None)], "{version}");
        let Some(end) = support.end.runtime else { continue };
        let wake = scene.of_class().wake.expect("it looks again when the version ends");
        assert!(wake <= scene.now.mono + secs(1), "{version}");
        scene.now.wall = end;
        assert_eq!(scene.intents(), [], "{version}");
        assert!(waits(&scene, WaitReason::Runner), "{version}");
        let told = scene.of_class().waits.iter().any(|wait| wait.message.contains(version));
        assert!(told, "{version}");
    }
}

#[test]
fn a_pooled_machine_is_not_lent_with_a_version_that_gets_no_job() {
    let mut scene = Scene::with(json!({"max": 1}));
    scene.add(machine("i-1").pooled());
    lacking(&mut scene, "1", 1, -10);
    assert_eq!(runs(&scene.claims()), ["1"], "it is lent until then");
    for spec in [json!({"max": 1}), json!({"max": 1, "sharing": {"weights": {"acme/*": 2}}})] {
        let mut scene = Scene::with(spec);
        scene.add(machine("i-1").pooled());
        lacking(&mut scene, "1", 1, -10);
        scene.yard.runner = Some(supported("2.329.0", Some("2025-12-01T00:00:00Z")));
        assert_eq!(scene.claims(), []);
        let waits = scene.of_class().waits;
        let of = RecordId::from(ask("1"));
        let told = |wait: &Wait| wait.subject == of && wait.reason == WaitReason::Runner;
        assert!(waits.iter().any(|wait| told(wait) && wait.message.contains("2.329.0")), "{waits:?}");
    }
}

#[test]
fn who_does_not_lead_lends_nothing_of_a_class_that_the_leader_holds_back() {
    let mut scene = Scene::with(json!({"max": 1}));
    scene.add(machine("i-1").pooled());
    lacking(&mut scene, "1", 1, -10);
    scene.yard.runner = Some(supported("2.329.0", Some("2025-12-01T00:00:00Z")));
    let actions = scene.of_class().actions;
    scene.apply(&actions);
    // A standby does not query GitHub for support dates.
    (scene.yard.runner, scene.role.lease) = (None, None);
    scene.wait(60);
    assert_eq!(scene.claims(), []);
    assert!(waits(&scene, WaitReason::Runner));
}

#[test]
fn a_class_that_gets_its_runner_elsewhere_is_not_held_back() {
    let mut scene = Scene::with(json!({"desired": 1, "launch": {"launchTemplateId": "lt-1"}}));
    scene.yard.runner = Some(supported("2.329.0", Some("2025-12-01T00:00:00Z")));
    assert_eq!(scene.intents(), [(1, None)]);
    scene.pool(2, json!({"desired": 1}));
    assert_eq!(scene.intents(), []);
    scene.yard.runner = Some(supported("2.337.0", None));
    assert_eq!(scene.intents(), [(1, None)], "a newer package was set");
}

#[test]
fn a_version_that_cannot_register_holds_launches_back_too() {
    let mut scene = Scene::with(json!({"desired": 1}));
    let end = EndOfLife { registration: Some(at(-1)), runtime: Some(at(9000)) };
    scene.yard.runner = Some(RunnerSupport { version: "2.1.0".into(), end });
    assert_eq!(scene.intents(), []);
    let waits = scene.of_class().waits;
    assert!(waits.iter().any(|wait| wait.message.contains("registers no runner 2.1.0")), "{waits:?}");
}
