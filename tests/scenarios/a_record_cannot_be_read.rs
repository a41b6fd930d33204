//! What if a record that others depend on is broken for a while, or of a newer form? It costs nobody a machine, and
//! nobody is told that it is settled.

use std::time::Duration;

use runyard_core::model::{Agent, AttributeValue, Instance, Item, Pool, RecordId, State};
use runyard_core::ports::Store;
use serde_json::json;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux};

/// Gives a record an attribute; answers what it was.
async fn spoil(world: &World, key: &RecordId, name: &str, value: AttributeValue) -> Item {
    let before = world.store.get(key).await.unwrap().expect("the record is there");
    let mut after = before.clone();
    after.insert(name.to_owned(), value);
    world.store.put(after);
    before
}

fn newer() -> AttributeValue {
    AttributeValue::N("2".into())
}

fn broken() -> AttributeValue {
    AttributeValue::S("many".into())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn conditions(world: &World, key: &RecordId) -> Vec<(String, String)> {
    let item = world.store.get(key).await.unwrap().expect("the record is there");
    let Some(AttributeValue::L(conditions)) = item.get("conditions") else { return Vec::new() };
    let word = |condition: &AttributeValue, name: &str| match condition {
        AttributeValue::M(map) => match map.get(name) {
            Some(AttributeValue::S(word)) => word.clone(),
            Some(AttributeValue::Bool(is)) => is.to_string(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    let so = conditions.iter().filter(|one| word(one, "status") == "true");
    so.map(|one| (word(one, "type"), word(one, "message"))).collect()
}

#[tokio::test(start_paused = true)]
async fn machines_released_under_a_newer_class_record_are_kept_until_it_can_be_read() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 2, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let pool = Pool::key_of(&"linux".parse().unwrap());
    let before = spoil(&world, &pool, "schema", newer()).await;
    world.sleep(1).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    world.sleep(1700).await;
    assert_eq!((world.pooled().len(), world.reasons()), (2, vec![]), "{}", world.show());
    world.store.put(before);
    let next = world.provision("2", "linux", 2, json!({})).await;
    world.until_phase(&next, "Ready", 30).await;
    assert_eq!(world.instances().len(), 2, "the same two");
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_say_that_a_machine_it_cannot_read_was_given_back() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 2, json!({"maxRuntimeMinutes": 10})).await;
    world.until_phase(&key, "Ready", 60).await;
    let machine = world.in_state(State::Running)[0].clone();
    let spoilt = Instance::key_of(&machine.facts.instance_arn);
    spoil(&world, &spoilt, "uses", broken()).await;
    world.sleep(1).await;
    world.release(&key).await;
    world.until_phase(&key, "Releasing", 5).await;
    world.until("the other is pooled", seconds(60), async || world.pooled().len() == 1).await;
    world.sleep(600).await;
    assert_eq!(world.phase(&key).await, "Releasing", "its own deadline and the grace are not over");
    world.until_phase(&key, "Released", 1500).await;
    let request = world.request(&key).await;
    assert!(request.status.message.contains("1 of 2 unaccounted for"), "{}", request.status.message);
    assert!(!request.status.message.contains("given back"), "{}", request.status.message);
    assert_eq!(conditions(&world, &key).await.iter().filter(|(of, _)| of == "Unaccounted").count(), 1);
    let left = world.store.get(&spoilt).await.unwrap().unwrap();
    assert_eq!(left.get("uses"), Some(&broken()), "and its record is left alone");
}

#[tokio::test(start_paused = true)]
async fn whatever_a_machine_writes_into_its_agent_record_it_is_buried() {
    for (name, value) in [
        ("kind", AttributeValue::S("mine".into())),
        ("schema", newer()),
        ("heartbeatSeq", AttributeValue::S("many".into())),
    ] {
        let world = World::new();
        world.pool(linux(1, 5)).await;
        world.start();
        world.until("one is warm", seconds(60), async || world.pooled().len() == 1).await;
        let machine = world.pooled()[0].clone();
        world.agents.one(&machine.facts.instance_id, Habit::Dies(0));
        world.sleep(1).await;
        let agent = Agent::key_of(&machine.facts.instance_arn);
        spoil(&world, &agent, name, value).await;
        world.compute.set_state(&machine.facts.instance_id, runyard_core::ports::MachineState::Terminated);
        let key = Instance::key_of(&machine.facts.instance_arn);
        let told = format!("it is recorded as gone in spite of {name}");
        world
            .until(&told, seconds(400), async || {
                let item = world.store.get(&key).await.unwrap().unwrap();
                item.contains_key("goneAt") && item.contains_key("expiresAt")
            })
            .await;
        assert_eq!(world.store.get(&agent).await.unwrap(), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_machine_of_a_request_whose_record_was_deleted_is_deregistered_and_pooled() {
    let world = World::with_github();
    world.pool(linux(0, 5)).await;
    // Its runner is registered with what the operator sends.
    world.agents.all(Habit::NeverRegisters);
    world.start();
    let key = world.provision("1", "linux", 1, json!({})).await;
    world
        .until("it is told how to register", seconds(60), async || {
            world.instances().iter().any(|one| one.registration.is_some())
        })
        .await;
    world.agents.all(Habit::Good);
    world.until_phase(&key, "Ready", 60).await;
    let machine = world.in_state(State::Running)[0].clone();
    world.agents.one(&machine.facts.instance_id, Habit::NeverCleans);
    world.store.remove(&key);
    let own = Instance::key_of(&machine.facts.instance_arn);
    world
        .until("it is told how to deregister", seconds(400), async || {
            world.store.get(&own).await.unwrap().unwrap().contains_key("removal")
        })
        .await;
    world.agents.one(&machine.facts.instance_id, Habit::Good);
    world.until("it is pooled", seconds(60), async || world.pooled().len() == 1).await;
    assert_eq!(world.reasons(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_agent_is_of_a_newer_form_is_not_claimed() {
    let world = World::new();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", seconds(60), async || world.pooled().len() == 1).await;
    let machine = world.pooled()[0].clone();
    spoil(&world, &Agent::key_of(&machine.facts.instance_arn), "schema", newer()).await;
    world.sleep(1).await;
    let key = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let request = world.request(&key).await;
    assert!(!request.status.served.contains(&machine.facts.instance_id), "{}", world.show());
    let same =
        |one: &Instance| one.facts.instance_id == machine.facts.instance_id && one.version == machine.version;
    assert!(world.pooled().iter().any(same), "{}", world.show());
}

#[tokio::test(start_paused = true)]
async fn what_fails_ten_times_for_the_same_reason_is_said_in_the_status_of_its_class() {
    let world = World::new();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", seconds(60), async || world.pooled().len() == 1).await;
    for _ in 0..2000 {
        let refused = runyard_core::ports::ComputeError::Refused("UnauthorizedOperation".into());
        world.compute.next(runyard_fakes::Fault::Fail(refused));
    }
    let machine = world.pooled()[0].clone();
    let key = Instance::key_of(&machine.facts.instance_arn);
    let expired = json!({"threshold": "2026-01-05T12:00:00Z", "expiredBy": "somebody"});
    let mut item = world.store.get(&key).await.unwrap().unwrap();
    item.extend(runyard_tests::world::item(&expired));
    item.insert("version".into(), AttributeValue::N((machine.version + 1).to_string()));
    world.store.put(item);
    let pool = Pool::key_of(&"linux".parse().unwrap());
    let stuck = async || {
        let found = conditions(&world, &pool).await;
        found.into_iter().find(|(of, _)| of == "Stuck").map(|(_, message)| message)
    };
    world.until("it is said", seconds(240), async || stuck().await.is_some()).await;
    let message = stuck().await.unwrap();
    let id = machine.facts.instance_id.as_str();
    assert!(message.contains(id) && message.contains("UnauthorizedOperation"), "{message}");
    assert!(message.contains("permissions"), "it names the fix: {message}");
    world.compute.heal();
    world.until("it is said no more", seconds(120), async || stuck().await.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_never_succeeds_is_said_although_others_succeed_between() {
    let world = World::new();
    world.pool(linux(3, 3)).await;
    world.start();
    world.until("three are warm", seconds(60), async || world.pooled().len() == 3).await;
    let machine = world.pooled()[0].clone();
    let key = Instance::key_of(&machine.facts.instance_arn);
    // As large as a record may be: a claim would make it larger.
    let mut item = world.store.get(&key).await.unwrap().expect("the record is there");
    item.insert("futureNote".into(), AttributeValue::S("x".repeat(400 * 1024)));
    world.store.put(item.clone());
    world.sleep(1).await;
    let pool = Pool::key_of(&"linux".parse().unwrap());
    let stuck = async || {
        let found = conditions(&world, &pool).await;
        let claims = |(of, message): &(String, String)| of == "Stuck" && message.contains(": claim ");
        found.into_iter().find(claims).map(|(_, message)| message)
    };
    let mut served = 0;
    while stuck().await.is_none() && served < 60 {
        served += 1;
        // Two of its three can be claimed.
        let key = world.provision(&served.to_string(), "linux", 3, json!({})).await;
        world.sleep(15).await;
        world.release(&key).await;
        world.until_phase(&key, "Released", 60).await;
        world.sleep(15).await;
    }
    let message = stuck().await.expect("it is said");
    assert!(served > 1 && message.contains("larger than 400 KB"), "{served}: {message}");
    assert!(message.contains(machine.facts.instance_id.as_str()), "{message}");
    item.remove("futureNote");
    let now = world.store.get(&key).await.unwrap().expect("the record is there");
    item.insert("version".into(), now["version"].clone());
    world.store.put(item);
    let last = world.provision("last", "linux", 3, json!({})).await;
    world.until_phase(&last, "Ready", 120).await;
    world.until("it is said no more", seconds(60), async || stuck().await.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_third_of_a_class_that_falls_silent_at_once_and_speaks_again_loses_no_machine() {
    let world = World::new();
    world.pool(linux(10, 12)).await;
    world.start();
    world.until("ten are warm", seconds(60), async || world.pooled().len() == 10).await;
    let silent: Vec<_> = world.pooled().into_iter().take(5).map(|one| one.facts.instance_id).collect();
    for id in &silent {
        world.agents.one(id, Habit::Dies(0));
    }
    let pool = Pool::key_of(&"linux".parse().unwrap());
    let doubtful = async || conditions(&world, &pool).await.iter().any(|(of, _)| of == "Doubtful");
    world.until("its class is in doubt", seconds(90), doubtful).await;
    world.sleep(20).await;
    assert_eq!(world.reasons(), [""; 0]);
    let key = world.provision("1", "linux", 5, json!({})).await;
    world.until_phase(&key, "Ready", 20).await;
    let served = world.request(&key).await.status.served;
    assert!(served.iter().all(|id| !silent.contains(id)), "claims avoid them");
    for id in &silent {
        world.agents.one(id, Habit::Good);
    }
    world.until("it is not in doubt", seconds(30), async || !doubtful().await).await;
    world.sleep(200).await;
    assert_eq!(world.reasons(), [""; 0]);
    // And when they do not speak again, each is judged by itself after one more minute.
    for id in &silent {
        world.agents.one(id, Habit::Dies(0));
    }
    world.sleep(105).await;
    assert_eq!(world.reasons(), [""; 0]);
    world.until("all five ended", seconds(40), async || world.reasons() == ["unhealthy"; 5]).await;
}

/// An operator that looks before the agents' waiting writes are taken sees beats from before the outage: somewhere in
/// these lengths of one it does.
#[tokio::test(start_paused = true)]
async fn a_table_that_was_away_ages_no_beat_however_short_silence_is_borne() {
    let world = World::new().set(|settings| {
        settings.timing.heartbeat = Duration::from_millis(500);
        settings.timing.stale = seconds(3);
    });
    world.agents.beats(Duration::from_millis(500));
    world.agents.pace(Duration::from_millis(300));
    world.pool(linux(3, 5)).await;
    world.start();
    world.until("three are warm", seconds(60), async || world.pooled().len() == 3).await;
    for length in (8_000..14_000).step_by(150) {
        tokio::time::sleep(seconds(3)).await;
        for _ in 0..20_000 {
            let away = runyard_core::ports::StoreError::Unknown("away".into());
            world.store.next_read(runyard_fakes::Fault::Fail(away));
        }
        world.store.break_watches();
        tokio::time::sleep(Duration::from_millis(length)).await;
        world.store.heal();
        tokio::time::sleep(seconds(7)).await;
        assert!(world.reasons().is_empty(), "after {length} ms: {}", world.show());
    }
}
