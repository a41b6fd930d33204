use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::testing::*;

/// One of each that can be had without a scene, and what a scene makes of a class and its machines.
fn some() -> Vec<Action> {
    let mut scene = Scene::with(json!({"desired": 1}));
    let mut all = scene.of_class().actions;
    scene.see(crate::yard::Observation::Hints(linux(), Vec::new()));
    all.extend(scene.of_class().actions.into_iter().filter(|action| matches!(action, Action::Intend(..))));
    all.dedup();
    let key = RecordId::from(ask("1"));
    all.extend([
        Action::Order("l-1".parse().unwrap()),
        Action::Terminate(arn("i-1")),
        Action::Describe(arn("i-1")),
        Action::Announce(arn("i-1")),
        Action::Credential(arn("i-1"), Credential::Registration),
        Action::SweepRunner(arn("i-1")),
        Action::Look(key.clone()),
        Action::Expire(key, 0),
    ]);
    all
}

#[test]
fn an_action_holds_one_slot_and_only_a_record_can_be_read_again() {
    for action in some() {
        let no_record = matches!(action.kind(), "intend" | "receive" | "announce");
        assert_eq!(action.records().is_empty(), no_record, "{}", action.describe());
        assert_eq!(action.slots().len(), 1, "{}", action.describe());
    }
}

#[test]
fn every_kind_has_a_name_of_its_own() {
    let all = some();
    let kinds: BTreeSet<&str> = all.iter().map(Action::kind).collect();
    let expected = [
        "announce",
        "credential",
        "describe",
        "expire",
        "intend",
        "look",
        "order",
        "pool",
        "receive",
        "sweep-runner",
        "terminate",
    ];
    assert_eq!(kinds, expected.into());
}

#[test]
fn what_spends_a_budget_is_the_leaders() {
    let all = some();
    let leaders: BTreeSet<&str> =
        all.iter().filter(|action| action.leader_only()).map(Action::kind).collect();
    assert_eq!(leaders, ["intend", "order", "pool"].into());
}
