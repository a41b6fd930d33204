//! A runner ends, or cannot reach GitHub, while its machine is well.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::{
    Agent, Condition, ConditionType, Guard, Instance, Item, Pool, RecordId, State, Write, runner_name,
};
use runyard_core::ports::github::{EndOfLife, Scope};
use runyard_core::ports::{GitHubError, Store as _};
use serde_json::json;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, item, linux};

fn web() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "web".into() }
}

/// An agent's word beside what it says anyway.
async fn says(world: &World, machine: &Instance, set: Item, remove: &[&str]) {
    let key = Agent::key_of(&machine.facts.instance_arn);
    let mut write = Write::update(key, Guard::Exists, set, BTreeMap::new());
    if let runyard_core::model::Operation::Update { remove: gone, .. } = &mut write.operation {
        gone.extend(remove.iter().map(|name| (*name).to_owned()));
    }
    world.store.write(&write).await.unwrap();
}

fn trouble(kind: &str, words: &str) -> serde_json::Value {
    json!({"since": "2026-01-05T12:00:00Z", "kind": kind, "words": words})
}

async fn degraded(world: &World, key: &RecordId) -> Option<Condition> {
    let conditions = world.request(key).await.status.conditions;
    conditions.into_iter().find(|one| one.condition_type == ConditionType::Degraded && one.status)
}

/// A request that is served, its runner listed at GitHub under the number that its agent tells.
async fn serving(world: &World, pool: serde_json::Value) -> (RecordId, Instance, u64) {
    world.pool(pool).await;
    world.start();
    // A runner is registered by what is in its machine's box.
    world.agents.all(Habit::NeverRegisters);
    let key = world.provision("41", "linux", 1, json!({})).await;
    let boxed = async || {
        let starting = [State::Created, State::Claimed].map(|state| world.in_state(state)).concat();
        starting.iter().any(|machine| machine.registration_seq > 0)
    };
    world.until("it has a box", Duration::from_secs(120), boxed).await;
    world.agents.all(Habit::Good);
    world.until_phase(&key, "Ready", 120).await;
    let machine = world.in_state(State::Running).remove(0);
    let name = runner_name(&machine.claim.as_ref().unwrap().id, machine.registration_seq);
    let number = world.github.register(&web(), &name, vec!["41".to_owned()]);
    world.agents.tells(&machine.facts.instance_id, number);
    (key, machine, number)
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_died_gets_its_next_name_within_two_seconds_and_is_removed() {
    let world = World::with_github();
    let (key, machine, number) = serving(&world, linux(0, 1)).await;
    let set = json!({"registrationDone": machine.registration_seq, "runnerId": number,
        "runnerTrouble": trouble("ended", "run.sh ended, its listener died")});
    says(&world, &machine, item(&set), &[]).await;
    world.sleep(2).await;
    let now = world.in_state(State::Running).remove(0);
    assert_eq!(now.registration_seq, machine.registration_seq + 1);
    let opened = world.agents.opens(&now).expect("a box for this machine");
    let claim = &machine.claim.as_ref().unwrap().id;
    assert_eq!(opened.runner_name, runner_name(claim, now.registration_seq));
    assert_eq!(opened.claim_id, claim.as_str());
    assert!(world.github.all_runners().is_empty(), "the dead one is removed by its number");
    let said = degraded(&world, &key).await.expect("the request says so");
    assert_eq!(said.reason, "RunnerEnded");
    let id = machine.facts.instance_id.as_str();
    assert!(said.message.contains(id) && said.message.contains("its listener died"), "{}", said.message);
    assert_eq!(world.phase(&key).await, "Ready");
    says(&world, &machine, Item::new(), &["runnerTrouble"]).await;
    world.sleep(2).await;
    assert_eq!(degraded(&world, &key).await, None);
    assert_eq!(world.in_state(State::Running)[0].registration_seq, now.registration_seq, "one box");
    // What is registered under the new name goes with the claim, also where nobody knows its number.
    world.github.register(&web(), &opened.runner_name, vec!["41".to_owned()]);
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    world.until("it is pooled", Duration::from_secs(60), async || !world.pooled().is_empty()).await;
    assert!(world.github.all_runners().is_empty(), "{:?}", world.github.all_runners());
}

#[tokio::test(start_paused = true)]
async fn a_dead_runner_whose_removal_failed_is_removed_before_its_machine_is_pooled() {
    let world = World::with_github();
    let (key, machine, number) = serving(&world, linux(0, 1)).await;
    world.github.outage_of("remove_runner", Some(GitHubError::Unreachable("away".into())));
    let set = json!({"registrationDone": machine.registration_seq, "runnerId": number,
        "runnerTrouble": trouble("ended", "run.sh ended, its listener died")});
    says(&world, &machine, item(&set), &[]).await;
    world.sleep(2).await;
    world.github.outage_of("remove_runner", None);
    assert_eq!(world.github.all_runners().len(), 1, "nobody waits for its removal");
    let now = world.in_state(State::Running).remove(0);
    let name = runner_name(&machine.claim.as_ref().unwrap().id, now.registration_seq);
    let second = world.github.register(&web(), &name, vec!["41".to_owned()]);
    says(&world, &machine, item(&json!({"runnerId": second})), &["runnerTrouble"]).await;
    world.agents.tells(&machine.facts.instance_id, second);
    world.sleep(2).await;
    world.release(&key).await;
    world.until("it is pooled", Duration::from_secs(60), async || !world.pooled().is_empty()).await;
    assert!(world.github.all_runners().is_empty(), "{:?}", world.github.all_runners());
}

#[tokio::test(start_paused = true)]
async fn a_single_use_runner_without_a_job_is_removed_when_the_next_box_is_sealed() {
    let world = World::with_github();
    let mut pool = linux(0, 1);
    pool["registrationMode"] = json!("job");
    let (_, machine, number) = serving(&world, pool).await;
    let before = world.github.all_runners().len();
    let set = json!({"registrationDone": machine.registration_seq, "runnerId": number});
    says(&world, &machine, item(&set), &[]).await;
    world.sleep(2).await;
    let now = world.in_state(State::Running).remove(0);
    assert_eq!(now.registration_seq, machine.registration_seq + 1);
    let left = world.github.all_runners();
    assert!(left.iter().all(|runner| runner.id != number), "{left:?}");
    assert!(left.len() <= before, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_runner_cannot_reach_github_outlives_its_registration_deadline() {
    let world = World::with_github();
    world.pool(linux(1, 1)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let machine = world.pooled().remove(0);
    let id = machine.facts.instance_id.clone();
    world.agents.one(&id, Habit::NeverRegisters);
    let key = world.provision("1", "linux", 1, json!({"timeoutSeconds": 3000})).await;
    world
        .until("it is claimed", Duration::from_secs(10), async || !world.in_state(State::Claimed).is_empty())
        .await;
    let away = trouble("unreachable", "its runner cannot reach GitHub: 503");
    says(&world, &machine, item(&json!({"runnerTrouble": away})), &[]).await;
    world.sleep(1200).await;
    assert!(world.reasons().is_empty(), "four registration deadlines later: {:?}", world.reasons());
    let held = world.in_state(State::Claimed).remove(0);
    let deadline = world.request(&key).await.status.deadline.unwrap();
    assert!(held.threshold.unwrap().at <= deadline, "the request's own deadline bounds it");
    says(&world, &machine, Item::new(), &["runnerTrouble"]).await;
    world.agents.one(&id, Habit::Good);
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!(world.request(&key).await.status.served.len(), 1, "the same machine");
}

#[tokio::test(start_paused = true)]
async fn that_word_of_a_silent_agent_keeps_no_machine() {
    let world = World::with_github();
    world.pool(linux(1, 2)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let machine = world.pooled().remove(0);
    world.agents.one(&machine.facts.instance_id, Habit::NeverRegisters);
    let key = world.provision("1", "linux", 1, json!({"timeoutSeconds": 3000})).await;
    world
        .until("it is claimed", Duration::from_secs(10), async || !world.in_state(State::Claimed).is_empty())
        .await;
    let away = trouble("unreachable", "its runner cannot reach GitHub: 503");
    says(&world, &machine, item(&json!({"runnerTrouble": away})), &[]).await;
    world.agents.one(&machine.facts.instance_id, Habit::Dies(0));
    world.sleep(400).await;
    assert_eq!(world.reasons(), ["unhealthy"]);
    world.until_phase(&key, "Ready", 120).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_a_machine_was_refused_for_is_looked_up_and_blocks_its_class() {
    let world = World::with_github().set(|settings| settings.runner_version = Some("2.300.0".to_owned()));
    let (_, machine, _) = serving(&world, linux(0, 1)).await;
    world.sleep(300).await;
    let past = world.at();
    world.github.set_end_of_life("2.300.0", EndOfLife { registration: None, runtime: Some(past) });
    world.agents.one(&machine.facts.instance_id, Habit::RegistrationFails);
    let words = "run.sh ended, GitHub takes no runner of this version any more: pin a newer package";
    let claim = machine.claim.as_ref().unwrap().id.to_string();
    let set = json!({"signal": "UD_REG_FAILED", "signalClaimId": claim, "signalDetail": words});
    says(&world, &machine, item(&set), &[]).await;
    world.sleep(90).await;
    let pool: Pool = world.get(&RecordId::new("pool#linux", "pool")).await.unwrap();
    let blocked = pool.status.conditions.iter().find(|one| one.condition_type == ConditionType::Blocked);
    assert!(blocked.is_some_and(|one| one.status && one.reason == "RunnerDeprecated"), "{blocked:?}");
}
