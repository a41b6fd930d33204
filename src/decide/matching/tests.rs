use serde_json::json;

use super::super::testing::*;
use super::{Refusal, refusal};
use crate::decide::{Context, Observation};
use crate::model::{Instance, Interruption, InterruptionAction, UsageClass};

/// Why `i-1` is not for request 2 of `acme/web`.
fn why(
    spec: serde_json::Value,
    ask: serde_json::Value,
    built: Built,
    prepare: impl FnOnce(&mut Scene),
) -> Option<Refusal> {
    let mut scene = Scene::with(spec);
    scene.add(built);
    prepare(&mut scene);
    let request = request("2", 1, ask);
    let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    let spec = &scene.yard.pool(&linux()).unwrap().spec;
    refusal(&cx, spec, &request, scene.yard.instance(&arn("i-1")).unwrap())
}

fn pooled() -> Built {
    machine("i-1").pooled()
}

#[test]
fn each_filter_refuses_by_itself() {
    let spot = |built: Built| built.with(|i| i.facts.usage_class = UsageClass::Spot);
    let domain = |name: &str| pooled().with(|i| i.trust_domain = name.into());
    let types = |globs: &[&str]| json!({"allowedInstanceTypes": globs});
    let rebalance = Interruption { action: InterruptionAction::Rebalance, at: at(0) };
    for (name, spec, ask, built, expected) in [
        ("fits", json!({}), json!({}), pooled(), None),
        ("not pooled", json!({}), json!({}), machine("i-1"), Some(Refusal::Busy)),
        ("cleaning", json!({}), json!({}), machine("i-1").cleaning(&ask("1")), Some(Refusal::Busy)),
        ("spot wanted", json!({}), json!({"usageClass": "spot"}), pooled(), Some(Refusal::UsageClass)),
        ("spot wanted and had", json!({}), json!({"usageClass": "spot"}), spot(pooled()), None),
        (
            "fallback is for launches",
            json!({}),
            json!({"usageClass": "spot", "onDemandFallback": true}),
            pooled(),
            Some(Refusal::UsageClass),
        ),
        ("no wish", json!({}), json!({}), spot(pooled()), None),
        ("type", json!({}), types(&["c*"]), pooled(), Some(Refusal::InstanceType)),
        ("one of the globs", json!({}), types(&["c*", "m7i.*"]), pooled(), None),
        ("the pool's types", types(&["c*"]), json!({}), pooled(), Some(Refusal::InstanceType)),
        ("the request's types replace the pool's", types(&["c*"]), types(&["m*"]), pooled(), None),
        ("same owner", json!({}), json!({}), domain("owner:acme"), None),
        ("other owner", json!({}), json!({}), domain("owner:evil"), Some(Refusal::TrustDomain)),
        (
            "same repository",
            json!({"reuseWithin": "repository"}),
            json!({}),
            domain("repository:acme/web"),
            None,
        ),
        (
            "by repository",
            json!({"reuseWithin": "repository"}),
            json!({}),
            domain("repository:acme/api"),
            Some(Refusal::TrustDomain),
        ),
        ("never used", json!({"reuseWithin": "repository"}), json!({}), pooled(), None),
        ("29 s left", json!({}), json!({}), pooled().until(29), Some(Refusal::Threshold)),
        ("30 s left", json!({}), json!({}), pooled().until(30), None),
        (
            "interrupted",
            json!({}),
            json!({}),
            pooled().agent(|a| a.interruption = Some(rebalance)),
            Some(Refusal::Retiring),
        ),
        ("used up", json!({"maxUses": 1}), json!({}), pooled().with(|i| i.uses = 1), Some(Refusal::Retiring)),
        ("too old", json!({"maxAgeSeconds": 100}), json!({}), pooled(), Some(Refusal::Retiring)),
        (
            "expired by a person",
            json!({}),
            json!({}),
            pooled().with(|i| i.expired_by = Some("ada".into())),
            Some(Refusal::Retiring),
        ),
    ] {
        assert_eq!(why(spec, ask, built, |_| ()), expected, "{name}");
    }
}

#[test]
fn a_machine_whose_agent_is_silent_or_never_spoke_is_not_claimed() {
    let wait = |seconds| move |scene: &mut Scene| scene.wait(seconds);
    assert_eq!(why(json!({}), json!({}), pooled(), wait(60)), None);
    assert_eq!(why(json!({}), json!({}), pooled(), wait(61)), Some(Refusal::Heartbeat));
    let mut mute = pooled();
    mute.agent = None;
    assert_eq!(why(json!({}), json!({}), mute, |_| ()), Some(Refusal::Heartbeat));
}

#[test]
fn a_machine_that_is_being_written_is_not_claimed() {
    let busy = |scene: &mut Scene| {
        scene.yard.busy.insert(Instance::key_of(&arn("i-1")));
    };
    assert_eq!(why(json!({}), json!({}), pooled(), busy), Some(Refusal::Busy));
}

#[test]
fn a_machine_that_its_former_request_lists_is_for_nobody_else() {
    let listed = |run: &str| {
        let (request, key) = (holding(run, 1, &["i-1"], json!({"phase": "Failed"})), ask(run));
        let built = pooled().with(|i| i.claim = machine("i-1").claimed(&key).instance.claim);
        why(json!({}), json!({}), built, |scene| drop(scene.put(&request)))
    };
    assert_eq!(listed("1"), Some(Refusal::Listed));
    assert_eq!(listed("2"), None, "its own list is brought up to date by the claim");
}

#[test]
fn those_that_expire_last_go_first_and_what_the_queue_names_before_them() {
    let mut scene = Scene::with(json!({}));
    for (name, until) in [("i-1", 500), ("i-2", 700), ("i-3", 600)] {
        scene.add(machine(name).pooled().until(until));
    }
    scene.put(&request("1", 2, json!({})));
    assert_eq!(scene.claims(), [("1".to_owned(), vec!["i-2".to_owned(), "i-3".to_owned()])]);
    scene.see(Observation::Hints(linux(), vec![id("i-9"), id("i-1"), id("i-1")]));
    let claims: Vec<_> = scene.of_class().actions.iter().map(|action| action.describe()).collect();
    assert!(claims[0].ends_with("claim i-1, i-2"), "{claims:?}");
}
