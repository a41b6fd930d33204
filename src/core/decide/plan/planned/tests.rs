use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::decide::Change;
use crate::testing::*;

fn step<T: crate::model::Versioned>(record: &T) -> Step<T> {
    Step::of(record, start(), |_| ())
}

/// Builds one action of each kind.
fn all() -> Vec<Planned> {
    let scene = Scene::with(json!({}));
    let pool = scene.yard.pool(&linux()).unwrap().clone();
    let (request, launch, new) = (request("1", 1, json!({})), launch("l-1", 1, None), machine("i-1"));
    let (instance, note) = (new.instance.clone(), Note::normal("Why", "because"));
    let order = LaunchOrder {
        launch: launch.clone(),
        spec: pool.spec.clone(),
        types: Default::default(),
        image: None,
    };
    let key = RecordId::from(ask("1"));
    vec![
        Planned::instance(step(&instance), note.clone(), AtGitHub::Nothing),
        Planned::silence(step(&instance), 1, note.clone()),
        Planned::request(step(&request), note.clone()),
        Planned::launch(step(&launch), note.clone()),
        Planned::pool(step(&pool)),
        Planned::claim(step(&request), vec![step(&instance)], None),
        Planned::intend(launch.clone(), 1),
        Planned::order(order),
        Planned::bind(step(&launch), Some(step(&request)), vec![(instance.clone(), new.agent.unwrap())]),
        Planned::orphan(instance.clone(), note),
        Planned::terminate(arn("i-1")),
        Planned::describe_machine(arn("i-1")),
        Planned::console(arn("i-1")),
        Planned::bury(step(&instance)),
        Planned::announce(&instance),
        Planned::receive(linux(), 1),
        Planned::credential(step(&instance), Credential::Removal(ask("1").repository)),
        Planned::sweep_runner(&instance),
        Planned::look(key.clone()),
        Planned::expire(key, 0),
    ]
}

fn kinds(which: fn(&Planned) -> bool) -> BTreeSet<&'static str> {
    all().iter().filter(|action| which(action)).map(|action| action.kind).collect()
}

#[test]
fn an_action_holds_the_records_it_writes_and_only_records_can_be_read_again() {
    for action in all() {
        let no_record = matches!(action.kind, "intend" | "receive" | "announce" | "console");
        assert_eq!(action.records().count() == 0, no_record, "{}", action.describe());
        for change in action.effect.changes() {
            let written = match change {
                Change::Instance(step) => step.before.key(),
                Change::Born(instance) => instance.key(),
                // Only the writer of its machine writes it.
                Change::Agent(_) => continue,
                Change::Request(step) => step.before.key(),
                Change::Launch(step) => step.before.key(),
                Change::Pool(step) => step.before.key(),
            };
            assert!(action.holds(written), "{}", action.describe());
        }
    }
}

#[test]
fn every_kind_has_a_name_and_a_line_of_its_own() {
    let all = all();
    let kinds: BTreeSet<&str> = all.iter().map(|action| action.kind).collect();
    let lines: BTreeSet<String> =
        all.iter().map(|action| format!("{} {}", action.kind, action.describe())).collect();
    assert_eq!((kinds.len(), lines.len()), (all.len(), all.len()));
}

#[test]
fn what_spends_a_budget_is_the_leaders() {
    let leaders = ["announce", "console", "intend", "order", "orphan", "pool", "sweep-runner"];
    assert_eq!(kinds(|action| action.leader_only), leaders.into());
}

#[test]
fn a_class_acts_for_many_where_it_claims_and_where_it_writes_a_request() {
    assert_eq!(kinds(|action| action.rests_records), ["claim", "request"].into());
}

#[test]
fn what_only_looks_reports_or_repeats_a_hint_says_nothing_to_a_person() {
    let upkeep = ["announce", "console", "describe", "look", "pool", "receive", "sweep-runner"];
    assert_eq!(kinds(|action| action.upkeep), upkeep.into());
    assert!(all().iter().all(|action| !action.upkeep || action.events.is_empty()));
}
