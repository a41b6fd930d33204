use serde_json::json;

use super::{Demand, Matcher, Refusal};
use crate::decide::Context;
use crate::model::{Instance, Interruption, InterruptionAction, UsageClass};
use crate::testing::*;
use crate::yard::Observation;

/// What becomes of `i-1` when request 2 of `acme/web` asks for a machine.
#[derive(Debug, PartialEq, Eq)]
enum Picked {
    Claimed,
    NotThere,
    Listed,
    For(Refusal),
}

fn why(
    spec: serde_json::Value,
    ask: serde_json::Value,
    built: Built,
    prepare: impl FnOnce(&mut Scene),
) -> Picked {
    let mut scene = Scene::with(spec);
    scene.add(built);
    prepare(&mut scene);
    let request = request("2", 1, ask);
    let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
    let class = scene.yard.class(&linux()).unwrap();
    let spec = &class.pool.as_ref().unwrap().spec;
    let mut matcher = Matcher::new(&cx, class, spec);
    let share = matcher.pick(&request.id, &Demand::of(&request, spec), 1);
    match (share.machines.as_slice(), share.refusals.first(), matcher.met().as_slice()) {
        ([_], None, []) => Picked::Claimed,
        ([], Some(refusal), []) => Picked::For(*refusal),
        ([], None, [_]) => Picked::Listed,
        ([], None, []) => Picked::NotThere,
        other => panic!("{other:?}"),
    }
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
        ("fits", json!({}), json!({}), pooled(), Picked::Claimed),
        ("not pooled", json!({}), json!({}), machine("i-1"), Picked::NotThere),
        ("cleaning", json!({}), json!({}), machine("i-1").cleaning(&ask("1")), Picked::NotThere),
        ("spot wanted", json!({}), json!({"usageClass": "spot"}), pooled(), Picked::For(Refusal::UsageClass)),
        ("spot wanted and had", json!({}), json!({"usageClass": "spot"}), spot(pooled()), Picked::Claimed),
        (
            "fallback is for launches",
            json!({}),
            json!({"usageClass": "spot", "onDemandFallback": true}),
            pooled(),
            Picked::For(Refusal::UsageClass),
        ),
        ("no wish", json!({}), json!({}), spot(pooled()), Picked::Claimed),
        ("type", json!({}), types(&["c*"]), pooled(), Picked::For(Refusal::InstanceType)),
        ("one of the globs", json!({}), types(&["c*", "m7i.*"]), pooled(), Picked::Claimed),
        ("the pool's types", types(&["c*"]), json!({}), pooled(), Picked::For(Refusal::InstanceType)),
        ("the request's types replace the pool's", types(&["c*"]), types(&["m*"]), pooled(), Picked::Claimed),
        ("same owner", json!({}), json!({}), domain("owner:acme"), Picked::Claimed),
        ("other owner", json!({}), json!({}), domain("owner:evil"), Picked::For(Refusal::TrustDomain)),
        (
            "same repository",
            json!({"reuseWithin": "repository"}),
            json!({}),
            domain("repository:acme/web"),
            Picked::Claimed,
        ),
        (
            "by repository",
            json!({"reuseWithin": "repository"}),
            json!({}),
            domain("repository:acme/api"),
            Picked::For(Refusal::TrustDomain),
        ),
        ("never used", json!({"reuseWithin": "repository"}), json!({}), pooled(), Picked::Claimed),
        ("29 s left", json!({}), json!({}), pooled().until(29), Picked::For(Refusal::Threshold)),
        ("30 s left", json!({}), json!({}), pooled().until(30), Picked::Claimed),
        (
            "interrupted",
            json!({}),
            json!({}),
            pooled().agent(|a| a.interruption = Some(rebalance)),
            Picked::For(Refusal::Retiring),
        ),
        (
            "used up",
            json!({"maxUses": 1}),
            json!({}),
            pooled().with(|i| i.uses = 1),
            Picked::For(Refusal::Retiring),
        ),
        ("too old", json!({"maxAgeSeconds": 100}), json!({}), pooled(), Picked::For(Refusal::Retiring)),
        (
            "expired by a person",
            json!({}),
            json!({}),
            pooled().with(|i| i.expired_by = Some("ada".into())),
            Picked::For(Refusal::Retiring),
        ),
    ] {
        assert_eq!(why(spec, ask, built, |_| ()), expected, "{name}");
    }
}

#[test]
fn a_machine_whose_agent_is_silent_or_never_spoke_is_not_claimed() {
    let wait = |seconds| move |scene: &mut Scene| scene.wait(seconds);
    assert_eq!(why(json!({}), json!({}), pooled(), wait(60)), Picked::Claimed);
    assert_eq!(why(json!({}), json!({}), pooled(), wait(61)), Picked::For(Refusal::Heartbeat));
    let mut mute = pooled();
    mute.agent = None;
    assert_eq!(why(json!({}), json!({}), mute, |_| ()), Picked::For(Refusal::Heartbeat));
}

#[test]
fn a_machine_that_is_being_written_is_not_claimed() {
    let busy = |scene: &mut Scene| {
        scene.yard.busy.insert(Instance::key_of(&arn("i-1")).into());
    };
    assert_eq!(why(json!({}), json!({}), pooled(), busy), Picked::For(Refusal::Busy));
}

#[test]
fn a_machine_that_its_former_request_lists_is_for_nobody_else() {
    let listed = |run: &str| {
        let (request, key) = (holding(run, 1, &["i-1"], json!({"phase": "Failed"})), ask(run));
        let built = pooled().with(|i| i.claim = machine("i-1").claimed(&key).instance.claim);
        why(json!({}), json!({}), built, |scene| drop(scene.put(&request)))
    };
    assert_eq!(listed("1"), Picked::Listed);
    assert_eq!(listed("2"), Picked::Claimed, "its own list is brought up to date by the claim");
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
