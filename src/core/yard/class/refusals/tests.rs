use serde_json::json;

use crate::decide::{Effect, WaitReason};
use crate::model::{LaunchId, LaunchPhase, Phase, UsageClass};
use crate::ports::ComputeError;
use crate::testing::*;
use crate::yard::{BackoffKind, Observation};

const WORDS: &str = "InvalidFleetConfiguration: No instance type satisfies the requirements";

fn refused() -> ComputeError {
    ComputeError::Refused(WORDS.into())
}

/// Completes an order for a request, or for idle machines, with this response.
fn met(scene: &mut Scene, name: &str, run: Option<&str>, usage: UsageClass, error: ComputeError) {
    let mut order = launch(name, 1, run.map(ask).as_ref());
    order.usage_class = usage;
    scene.put(&order);
    scene.see(Observation::Ordered(LaunchId::parse(name).unwrap(), Err(error)));
    order.phase = LaunchPhase::Failed;
    order.version += 1;
    scene.put(&order);
}

/// Returns the message with which a request fails now.
fn failed(scene: &Scene, run: &str) -> Option<String> {
    let plan = scene.of_request(run);
    plan.actions.iter().find_map(|planned| match &planned.effect {
        Effect::Request(step) if step.after.phase() == Phase::Failed => {
            Some(step.after.status.message.clone())
        }
        _ => None,
    })
}

fn typo() -> serde_json::Value {
    json!({"allowedInstanceTypes": ["c99*"]})
}

fn held_back(scene: &Scene) -> bool {
    let class = scene.yard.class(&linux()).unwrap();
    BackoffKind::ALL.iter().any(|kind| class.backs_off(*kind, scene.now.mono))
}

#[test]
fn what_a_request_chose_wrongly_holds_nobody_back_and_fails_it_at_the_second() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, typo()));
    scene.put(&request("2", 1, typo()));
    scene.put(&request("3", 1, json!({})));
    met(&mut scene, "l-1", Some("1"), UsageClass::OnDemand, refused());
    assert!(!held_back(&scene) && scene.yard.class(&linux()).unwrap().refusal.is_none());
    assert_eq!(scene.intents(), [(1, Some(ask("3")))], "the others wait a moment, and this one does not");
    let plan = scene.of_class();
    let wait = plan.waits.iter().find(|wait| wait.subject == ask("1")).unwrap();
    assert!(wait.reason == WaitReason::BackOff && wait.message.contains(WORDS), "{wait:?}");
    assert_eq!((failed(&scene, "1"), plan.wake), (None, Some(scene.now.mono + secs(2))));
    // Orders that were on their way with the first count with it.
    met(&mut scene, "l-2", Some("2"), UsageClass::OnDemand, refused());
    assert_eq!(failed(&scene, "2"), None);
    scene.wait(2);
    assert_eq!(scene.intents().len(), 3);
    met(&mut scene, "l-3", Some("2"), UsageClass::OnDemand, refused());
    let told = Some(format!("Invalid: EC2: {WORDS}"));
    assert_eq!([failed(&scene, "1"), failed(&scene, "2"), failed(&scene, "3")], [told.clone(), told, None]);
    scene.wait(60);
    assert_eq!(scene.intents(), [(1, Some(ask("3")))], "nothing is launched for what fails");
}

#[test]
fn both_requests_that_want_an_offering_are_judged_when_it_is_refused() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, typo()));
    scene.put(&request("2", 1, typo()));
    scene.put(&request("3", 1, json!({"allowedInstanceTypes": ["m7i.*"]})));
    scene.put(&launch("l-1", 1, Some(&ask("1"))));
    let dirty = scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(refused())));
    let judged = |run| dirty.contains(&crate::yard::Unit::Request(ask(run)));
    assert_eq!([judged("1"), judged("2"), judged("3")], [true, true, false]);
}

#[test]
fn a_request_that_comes_after_refusals_is_asked_for_twice_like_the_first() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, typo()));
    for name in ["l-1", "l-2"] {
        met(&mut scene, name, Some("1"), UsageClass::OnDemand, refused());
        scene.wait(10);
    }
    let mut later = typo();
    later["acceptedAt"] = at(15).to_string().into();
    scene.put(&request("2", 1, later));
    assert!(failed(&scene, "1").is_some() && failed(&scene, "2").is_none());
    for (name, fails) in [("l-3", false), ("l-4", true)] {
        assert_eq!(scene.intents(), [(1, Some(ask("2")))]);
        met(&mut scene, name, Some("2"), UsageClass::OnDemand, refused());
        assert_eq!(failed(&scene, "2").is_some(), fails, "{name}");
        scene.wait(60);
    }
}

#[test]
fn a_usage_class_of_ones_own_is_a_choice_and_one_that_may_fall_back_does() {
    let mut scene = Scene::with(json!({}));
    scene.put(&request("1", 1, json!({"usageClass": "spot"})));
    scene.put(&request("2", 1, json!({"usageClass": "spot", "onDemandFallback": true})));
    for name in ["l-1", "l-2"] {
        met(&mut scene, name, Some("1"), UsageClass::Spot, refused());
        assert_eq!(scene.intents(), [(1, Some(ask("2")))]);
        scene.wait(1);
        met(&mut scene, &format!("{name}-late"), Some("1"), UsageClass::Spot, refused());
        scene.wait(1);
    }
    assert!(!held_back(&scene));
    assert!(failed(&scene, "1").is_some() && failed(&scene, "2").is_none());
}

#[test]
fn a_request_that_has_machines_and_lost_one_is_not_failed_by_a_refusal() {
    let mut scene = Scene::with(json!({}));
    let mut more = typo();
    more["phase"] = "Ready".into();
    more["readyAt"] = at(-60).to_string().into();
    scene.put(&request("1", 1, more));
    for name in ["l-1", "l-2", "l-3"] {
        met(&mut scene, name, Some("1"), UsageClass::OnDemand, refused());
        scene.wait(60);
    }
    assert_eq!(failed(&scene, "1"), None);
}

#[test]
fn an_order_by_the_spec_that_is_refused_holds_the_class_back_and_fails_nobody() {
    let mut scene = Scene::with(json!({}));
    let (mut plain, mut own) = (json!({}), typo());
    for more in [&mut plain, &mut own] {
        more["deadline"] = at(5000).to_string().into();
    }
    scene.put(&request("1", 1, plain));
    scene.put(&request("2", 1, own));
    for name in ["l-1", "l-2", "l-3"] {
        met(&mut scene, name, Some("1"), UsageClass::OnDemand, refused());
        scene.wait(60);
        met(&mut scene, &format!("{name}-warm"), None, UsageClass::OnDemand, refused());
        assert!(held_back(&scene) && scene.intents().is_empty());
        scene.wait(300);
    }
    assert_eq!([failed(&scene, "1"), failed(&scene, "2")], [None, None]);
}

#[test]
fn throttling_and_no_answer_are_nobodys_failure() {
    for error in [ComputeError::Throttled, ComputeError::Unknown("time-out".into())] {
        for more in [json!({}), typo()] {
            let mut scene = Scene::with(json!({}));
            scene.put(&request("1", 1, more));
            for name in ["l-1", "l-2", "l-3"] {
                met(&mut scene, name, Some("1"), UsageClass::OnDemand, error.clone());
            }
            assert!(!held_back(&scene), "{error}");
            assert_eq!((failed(&scene, "1"), scene.intents()), (None, vec![(1, Some(ask("1")))]), "{error}");
        }
    }
}

#[test]
fn machines_or_a_lack_of_them_show_that_the_choice_was_good() {
    for lack in [false, true] {
        let mut scene = Scene::with(json!({}));
        scene.put(&request("1", 1, json!({"allowedInstanceTypes": ["m7i.*"]})));
        met(&mut scene, "l-1", Some("1"), UsageClass::OnDemand, refused());
        scene.wait(60);
        let answer = match lack {
            true => Err(ComputeError::NoCapacity("none".into())),
            false => Ok(crate::ports::Launched {
                machines: vec![machine("i-1").listed(crate::ports::MachineState::Running)],
                shortfalls: Vec::new(),
            }),
        };
        scene.put(&launch("l-2", 1, Some(&ask("1"))));
        scene.see(Observation::Ordered("l-2".parse().unwrap(), answer));
        met(&mut scene, "l-3", Some("1"), UsageClass::OnDemand, refused());
        assert_eq!(failed(&scene, "1"), None, "{lack}");
    }
}

#[test]
fn a_spent_token_is_one_failure_however_often_it_is_named() {
    let mut scene = Scene::with(json!({}));
    scene.put(&launch("l-1", 1, None));
    for _ in 0..6 {
        let spent = ComputeError::TokenSpent("other parameters".into());
        scene.see(Observation::Ordered("l-1".parse().unwrap(), Err(spent)));
        scene.wait(10);
    }
    assert!(!held_back(&scene));
}
