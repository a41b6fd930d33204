use serde_json::json;

use super::*;
use crate::decide::{Effect, WaitReason};
use crate::model::{LaunchId, Reason};
use crate::ports::{ComputeError, Launched};
use crate::testing::*;
use crate::yard::{Class, Observation};

fn answer(scene: &mut Scene, name: &str, usage: UsageClass, answer: Result<Launched, ComputeError>) {
    let mut order = launch(name, 1, None);
    order.usage_class = usage;
    scene.put(&order);
    let id = LaunchId::parse(name).unwrap();
    scene.see(Observation::Ordered(id.clone(), answer));
    // The launch is over, whatever its result.
    order.phase = crate::model::LaunchPhase::Failed;
    order.version += 1;
    scene.put(&order);
}

fn none() -> Result<Launched, ComputeError> {
    Err(ComputeError::NoCapacity("InsufficientInstanceCapacity".into()))
}

fn wishes(scene: &Scene) -> Vec<UsageClass> {
    let plan = scene.of_class();
    let usage = plan.actions.iter().filter_map(|action| match &action.effect {
        Effect::Intend(launch, _) => Some(launch.usage_class),
        _ => None,
    });
    usage.collect()
}

fn backs_off_for(usage: UsageClass, lengths: &[u64]) {
    let mut scene = Scene::with(json!({"desired": 1, "usageClass": usage.as_str()}));
    for (number, rest) in lengths.iter().enumerate() {
        answer(&mut scene, &format!("l-{number}"), usage, none());
        assert_eq!(wishes(&scene), [], "lack {number}");
        let plan = scene.of_class();
        let wait = plan.waits.iter().find(|wait| wait.reason == WaitReason::NoCapacity).unwrap();
        assert!(wait.message.contains(usage.as_str()) && wait.message.contains("tried again at 2026-01-05T"));
        scene.wait(rest - 1);
        assert_eq!(wishes(&scene), [], "lack {number}");
        scene.wait(1);
        assert_eq!(wishes(&scene), [usage], "lack {number}");
    }
}

#[test]
fn what_there_was_none_of_rests_for_longer_each_time_and_says_until_when() {
    backs_off_for(UsageClass::Spot, &[180, 360, 720, 1440, 1800, 1800]);
}

/// Found by the drill of the outages: machines that were available again were not requested for half an hour.
#[test]
fn what_nothing_stands_in_for_is_asked_for_again_within_minutes() {
    backs_off_for(UsageClass::OnDemand, &[180, 240, 240, 240]);
}

#[test]
fn launches_that_failed_together_count_once_and_one_that_comes_ends_the_rest() {
    let mut scene = Scene::with(json!({"desired": 1}));
    for number in 0..5 {
        answer(&mut scene, &format!("l-{number}"), UsageClass::OnDemand, none());
    }
    scene.wait(180);
    assert_eq!(wishes(&scene), [UsageClass::OnDemand]);
    answer(&mut scene, "l-9", UsageClass::OnDemand, none());
    assert_eq!(wishes(&scene), []);
    let came = Launched {
        machines: vec![machine("i-1").listed(crate::ports::MachineState::Running)],
        shortfalls: Vec::new(),
    };
    answer(&mut scene, "l-10", UsageClass::OnDemand, Ok(came));
    assert_eq!(wishes(&scene), [UsageClass::OnDemand]);
}

#[test]
fn a_lack_of_what_one_request_allows_is_no_lack_for_others() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, json!({"allowedInstanceTypes": ["p5.48xlarge"]})));
    scene.put(&request("2", 1, json!({})));
    let mut order = launch("l-1", 1, Some(&ask("1")));
    scene.put(&order);
    scene.see(Observation::Ordered(LaunchId::parse("l-1").unwrap(), none()));
    order.phase = crate::model::LaunchPhase::Failed;
    order.version += 1;
    scene.put(&order);
    assert_eq!(scene.intents(), [(1, Some(ask("2")))]);
    let plan = scene.of_class();
    let wait = plan.waits.iter().find(|wait| wait.reason == WaitReason::NoCapacity).unwrap();
    assert_eq!(wait.subject, ask("1"));
    assert!(wait.message.contains("p5.48xlarge"), "{}", wait.message);
}

#[test]
fn while_spot_rests_a_request_that_allows_it_gets_on_demand() {
    let mut scene = Scene::with(json!({"usageClass": "spot"}));
    answer(&mut scene, "l-1", UsageClass::Spot, none());
    scene.put(&request("1", 1, json!({})));
    assert_eq!(wishes(&scene), []);
    scene.put(&request("2", 1, json!({"onDemandFallback": true})));
    assert_eq!(wishes(&scene), [UsageClass::OnDemand]);
}

#[test]
fn where_spot_is_refused_a_request_that_allows_it_gets_on_demand_after_the_pause() {
    let mut scene = Scene::with(json!({"usageClass": "spot"}));
    let refused =
        || Err(ComputeError::Refused("UnauthorizedOperation: no right to spot-instances-request".into()));
    answer(&mut scene, "l-1", UsageClass::Spot, refused());
    scene.put(&request("1", 1, json!({"onDemandFallback": true})));
    scene.put(&request("2", 1, json!({})));
    assert_eq!(wishes(&scene), [], "held back first: it may be about more than spot");
    scene.now.mono = scene.yard.class(&linux()).unwrap().backoff.until;
    assert_eq!(wishes(&scene), [UsageClass::OnDemand, UsageClass::Spot]);
    scene.now.mono += SPOT_PAUSE;
    assert_eq!(wishes(&scene), [UsageClass::Spot, UsageClass::Spot], "tried again");
    answer(&mut scene, "l-2", UsageClass::OnDemand, refused());
    assert!(
        !scene.yard.class(&linux()).unwrap().backs_off(BackoffKind::Spot, scene.now.mono),
        "spot is not to blame"
    );
}

/// Creates so many spot machines, some of them taken back.
fn losing(live: usize, lost: usize) -> Scene {
    let mut scene = Scene::with(json!({"usageClass": "spot"}));
    let spot = |number: usize| {
        machine(&format!("i-{number}")).pooled().with(|i| i.facts.usage_class = UsageClass::Spot)
    };
    for number in 0..live {
        scene.add(spot(number));
    }
    for number in 0..lost {
        let mut gone = spot(number).ended(Reason::Interrupted).instance;
        gone.version += 1;
        scene.put(&gone);
    }
    scene
}

#[test]
fn a_class_whose_spot_machines_are_taken_back_does_without_them_for_a_while() {
    for (live, lost, open) in [(2, 2, false), (12, 3, true), (20, 3, false), (4, 4, true)] {
        let scene = losing(live, lost);
        let class = scene.yard.class(&linux()).unwrap();
        assert_eq!(class.backs_off(BackoffKind::Spot, scene.now.mono), open, "{lost} of {live}");
        assert!(!class.backs_off(BackoffKind::Spot, scene.now.mono + SPOT_PAUSE), "{lost} of {live}");
    }
    let mut scene = losing(4, 4);
    scene.put(&request("1", 1, json!({"onDemandFallback": true})));
    scene.put(&request("2", 1, json!({})));
    assert_eq!(wishes(&scene), [UsageClass::OnDemand, UsageClass::Spot]);
}

#[test]
fn losses_count_together_that_are_no_more_than_a_quarter_of_an_hour_apart() {
    let open = |apart: u64| {
        let mut scene = losing(6, 2);
        scene.wait(apart);
        scene.put(
            &machine("i-5")
                .ended(Reason::Interrupted)
                .with(|i| {
                    (i.facts.usage_class, i.version) = (UsageClass::Spot, 6);
                })
                .instance,
        );
        scene.yard.class(&linux()).unwrap().backs_off(BackoffKind::Spot, scene.now.mono)
    };
    assert_eq!((open(899), open(900), open(901)), (true, true, false));
}

#[test]
fn what_is_done_without_has_its_name_in_the_metrics_and_ends_at_its_moment() {
    assert_eq!(BackoffKind::ALL.map(BackoffKind::as_str), ["spot", "boot"]);
    let mut scene = Scene::with(json!({"desired": 1}));
    scene.put(&launch("l-1", 1, None));
    let id = LaunchId::parse("l-1").unwrap();
    scene.see(Observation::Ordered(id, Err(ComputeError::Refused("no right".into()))));
    let class = scene.yard.class(&linux()).unwrap();
    let until = class.backoff.until;
    assert!(class.backs_off(BackoffKind::Boot, until - Duration::from_millis(1)));
    assert!(!class.backs_off(BackoffKind::Boot, until));
}

#[test]
fn spot_is_scarce_for_all_only_when_it_was_lacking_twice_for_all() {
    let lacks = |types: &[&str], times: u32| {
        let mut class = Class::default();
        let types = types.iter().map(|name| (*name).to_owned()).collect();
        let offering = Offering { usage: UsageClass::Spot, types };
        let mut now = Duration::from_secs(1000);
        for _ in 0..times {
            class.capacity_missing(offering.clone(), now);
            now = class.offerings[&offering].until;
        }
        let until = now;
        (
            class.backs_off(BackoffKind::Spot, until - Duration::from_secs(1)),
            class.backs_off(BackoffKind::Spot, until),
        )
    };
    assert_eq!(lacks(&[], 1), (false, false));
    assert_eq!(lacks(&[], 2), (true, false));
    assert_eq!(lacks(&["p5.48xlarge"], 2), (false, false), "of what one request allows");
}

#[test]
fn a_lack_is_forgotten_an_hour_after_its_rest() {
    let mut class = Class::default();
    let offering = Offering { usage: UsageClass::OnDemand, types: vec!["p5.48xlarge".into()] };
    class.capacity_missing(offering.clone(), secs(1000));
    let over = class.offerings[&offering].until + secs(3600);
    class.forget_backoffs(over - secs(1));
    assert_eq!(class.offerings.len(), 1);
    class.forget_backoffs(over);
    assert!(class.offerings.is_empty());
}
