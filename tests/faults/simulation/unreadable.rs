//! A record that others depend on cannot be read for a while: a newer program wrote it, or an attribute is broken. Then
//! it is as it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{AttributeValue, Guard, Item, Operation, RecordId, Write};
use runyard_core::ports::Store;
use tokio::time::{Instant, sleep};

use crate::simulation::world::World;

/// The mark of such a record: an attribute that nobody knows.
const MARK: &str = "x-spoilt";

/// Whether an item cannot be read for now.
pub(crate) fn is_spoilt(item: &Item) -> bool {
    item.contains_key(MARK)
}

/// Spoils a class, a machine or an agent, and mends it after a while.
pub(crate) fn spoil(world: &Arc<World>) {
    let (kind, breaks) =
        *world.chance.one(&[("pool#", "idleSeconds"), ("instance#", "uses"), ("agent#", "signalDetail")]);
    let records = world.store.records();
    let fit: Vec<&Item> = records
        .iter()
        .filter(|item| {
            RecordId::of(item)
                .is_some_and(|key| key.pk().starts_with(kind) && !key.sk().starts_with("event#"))
        })
        .filter(|item| !is_spoilt(item) && !item.contains_key("schema") && item.contains_key("updatedAt"))
        .collect();
    if fit.is_empty() {
        return;
    }
    let before = (*world.chance.one(&fit)).clone();
    let newer = world.chance.percent(50);
    let (name, value) = match newer {
        true => ("schema", AttributeValue::N("2".into())),
        false => (breaks, AttributeValue::L(vec![])),
    };
    let length = world.chance.seconds(5..300);
    let world = world.clone();
    tokio::spawn(async move {
        let Some(key) = RecordId::of(&before) else { return };
        let set = [(name.to_owned(), value.clone()), (MARK.to_owned(), AttributeValue::Bool(true))].into();
        world.laws.lock().unwrap().cannot_be_read(&key);
        if !change(&world, &key, &before, set, &[]).await {
            world.laws.lock().unwrap().can_be_read(&key);
            return;
        }
        world.trace.tell(&format!("{} cannot be read: {name}", key.pk()));
        let end = Instant::now() + length;
        while Instant::now() < end && !world.fault_rates.calm() {
            sleep(Duration::from_secs(1)).await;
        }
        // Until it is written on what is there.
        while let Ok(Some(now)) = world.store.get(&key).await {
            let ours = now.get(name) == Some(&value);
            let (set, mut remove) = match before.get(name).filter(|_| ours) {
                Some(was) => (Item::from([(name.to_owned(), was.clone())]), vec![MARK]),
                None => (Item::new(), vec![MARK]),
            };
            if ours && set.is_empty() {
                remove.push(name);
            }
            if change(&world, &key, &now, set, &remove).await {
                world.laws.lock().unwrap().can_be_read(&key);
                world.trace.tell(&format!("{} can be read again", key.pk()));
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
}

/// Writes as a program of another version does: one version on, on what it read.
async fn change(world: &World, key: &RecordId, before: &Item, mut set: Item, remove: &[&str]) -> bool {
    let version = match before.get("version") {
        Some(AttributeValue::N(version)) => version.parse::<u64>().ok(),
        Some(_) | None => None,
    };
    let guard = version.map_or(Guard::Exists, Guard::Version);
    set.extend(version.map(|version| ("version".to_owned(), AttributeValue::N((version + 1).to_string()))));
    let remove = remove.iter().map(|name| (*name).to_owned()).collect();
    let operation = Operation::Update { guard, set, remove, add: BTreeMap::new() };
    world.store.write(&Write { key: key.clone(), operation }).await.is_ok()
}
