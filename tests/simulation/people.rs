//! Workflows and the people who keep the pools: they write intents as the contract has it, wait, work and give back, or
//! forget to; they ask twice, change their minds, and are told nothing when an answer is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runyard::model::{Guard, Item, Key, Operation, Phase, Pool, PoolStatus, Request, Versioned, Write};
use runyard::ports::github::RunState;
use runyard::ports::{Store, StoreError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::actor::{Actor, Role};
use crate::bugs::Bug;
use crate::table::Table;
use crate::weather::Fault;
use crate::world::World;

/// An item of plain attributes.
pub(crate) fn item(value: &Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    item.into_inner().into_iter().collect()
}

/// Makes the classes.
pub(crate) async fn open(world: &Arc<World>) {
    let (chance, person) = (&world.chance, Table(Actor::new(world, "admin", Role::Person)));
    for (class, mode) in &world.classes {
        let max = chance.number(2..14);
        let spec = json!({
            "resourceClass": class, "cpu": 2, "mmem": 4096, "max": max, "desired": chance.number(0..max.min(4)),
            "usageClass": *chance.one(&["on-demand", "spot"]), "registrationMode": mode.as_str(),
            "idleSeconds": *chance.one(&[120, 600, 1800]), "maxUses": *chance.one(&[json!(null), json!(1), json!(3)]),
            "reuseWithin": *chance.one(&["repository", "owner", "any", "none"]),
            "maxRuntimeMinutes": *chance.one(&[5, 10, 30]),
        });
        let spec = serde_json::from_value(spec).unwrap();
        let pool = Pool { spec, scale: None, status: PoolStatus::default(), version: 1, updated_at: None };
        surely(&person, &pool.creating()).await;
    }
}

/// Writes until there is an answer: what was written, or none when the guard did not hold.
async fn surely(table: &Table, write: &Write) -> Option<Item> {
    loop {
        match table.write(write).await {
            Ok(item) => return Some(item),
            Err(StoreError::Refused { .. }) => return None,
            Err(_) => sleep(Duration::from_secs(2)).await,
        }
    }
}

/// Changes a class's limits now and then.
pub(crate) async fn change_pools(world: Arc<World>) {
    let person = Table(Actor::new(&world, "admin", Role::Person));
    loop {
        sleep(Duration::from_secs(5)).await;
        if !world.strikes(Fault::PoolChanges) {
            continue;
        }
        let classes: Vec<&String> = world.classes.keys().collect();
        let key = Key::new(format!("pool#{}", world.chance.one(&classes)), "pool");
        let Some(pool) = world.get::<Pool>(&key).await else { continue };
        let mut after = pool.clone();
        after.spec.max = world.chance.number(1..14) as u32;
        after.spec.desired = world.chance.number(0..4).min(u64::from(after.spec.max)) as u32;
        after.advance(world.clock_now());
        surely(&person, &after.replacing(&pool)).await;
    }
}

/// One workflow, from its request to its end.
pub(crate) async fn workflow(world: Arc<World>, number: u64, at: Duration) {
    sleep(at).await;
    let chance = &world.chance;
    let actor = Actor::new(&world, &format!("run-{number}"), Role::Person);
    let table = Table(actor);
    let repository = *chance.one(&["acme/web", "acme/api", "other/site"]);
    let (owner, name) = repository.split_once('/').expect("owner and name");
    let key = Key::new(format!("request#{repository}#{number}"), "request#default#1");
    let classes: Vec<&String> = world.classes.keys().collect();
    let create =
        Write::create(key.clone(), intent(&world, &key, number, repository, chance.one(&classes).as_str()));
    world.github.set_run(owner, name, number, RunState::Active { attempt: 1 });
    surely(&table, &create).await;
    if world.strikes(Fault::SubmittedTwice) {
        match world.bug {
            Some(Bug::SubmitOverwrites) => {
                let Operation::Create(item) = create.operation else { return };
                let again = Write::update(key.clone(), Guard::StillProvisioned, item, BTreeMap::new());
                surely(&table, &again).await;
            }
            Some(_) | None => drop(surely(&table, &create).await),
        }
    }
    if world.strikes(Fault::ReleasedEarly) {
        sleep(chance.seconds(0..60)).await;
    } else {
        until_decided(&world, &key).await;
        let work = Instant::now() + chance.seconds(20..500);
        while Instant::now() < work && !world.ending() {
            sleep(Duration::from_secs(5)).await;
        }
    }
    world.github.set_run(owner, name, number, RunState::Completed { attempt: 1 });
    if !world.strikes(Fault::RunEndsUnreleased) {
        let set = item(&json!({"desired": "released"}));
        let add = BTreeMap::from([("version".to_owned(), 1), ("generation".to_owned(), 1)]);
        surely(&table, &Write::update(key.clone(), Guard::StillProvisioned, set, add)).await;
    }
}

fn intent(world: &World, key: &Key, number: u64, repository: &str, class: &str) -> Item {
    let chance = &world.chance;
    let count = chance.number(1..6);
    let mut intent = json!({
        "pk": key.pk, "sk": key.sk, "kind": "request", "version": 1, "runId": number.to_string(), "attempt": 1,
        "repository": repository, "name": "default", "resourceClass": class, "count": count,
        "desired": "provisioned", "generation": 1, "timeoutSeconds": *chance.one(&[120, 300, 600]),
    });
    if chance.percent(30) {
        intent["minCount"] = json!(1);
    }
    if chance.percent(15) {
        intent["usageClass"] = json!(*chance.one(&["spot", "on-demand"]));
    }
    item(&intent)
}

/// Until the request is ready or over.
async fn until_decided(world: &World, key: &Key) {
    loop {
        let phase = world.laws.lock().unwrap().request_of(key).map(Request::phase);
        match phase {
            Some(Phase::Pending | Phase::Fulfilling) => sleep(Duration::from_secs(2)).await,
            Some(Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed) => return,
            None => {
                world.broke(format!("S13 {key}: it was acknowledged and is not there"));
                return;
            }
        }
    }
}
