//! Single operations of the core.

use std::time::Duration;

use divan::{Bencher, black_box};
use runyard_core::decide::{effective, effective_in};
use runyard_core::model::{Agent, Instance, Item, Pool, Record, RecordId, Request, read};
use runyard_core::yard::{Now, Observation, Yard};
use serde_json::json;

use super::world::{record, start};
use super::yards;

/// A running machine's record, its agent's, and its request's.
fn items() -> (Item, Item, Item) {
    let all: Vec<Item> = yards::items(3).collect();
    let of = |kind: &str| {
        let kind = serde_dynamo::AttributeValue::S(kind.to_owned());
        all.iter().find(|item| item.get("kind") == Some(&kind)).unwrap().clone()
    };
    (of("instance"), of("agent"), of("request"))
}

fn reads<T: Record>(bencher: Bencher<'_, '_>, item: Item) {
    bencher.bench_local(|| read::<T>(black_box(&item)));
}

fn writes<T: Record>(bencher: Bencher<'_, '_>, item: Item) {
    let record = record::<T>(&item);
    bencher.bench_local(|| black_box(&record).to_item());
}

#[divan::bench]
fn read_instance(bencher: Bencher<'_, '_>) {
    reads::<Instance>(bencher, items().0);
}

#[divan::bench]
fn read_agent(bencher: Bencher<'_, '_>) {
    reads::<Agent>(bencher, items().1);
}

#[divan::bench]
fn read_request(bencher: Bencher<'_, '_>) {
    reads::<Request>(bencher, items().2);
}

#[divan::bench]
fn write_instance(bencher: Bencher<'_, '_>) {
    writes::<Instance>(bencher, items().0);
}

#[divan::bench]
fn write_agent(bencher: Bencher<'_, '_>) {
    writes::<Agent>(bencher, items().1);
}

#[divan::bench]
fn write_request(bencher: Bencher<'_, '_>) {
    writes::<Request>(bencher, items().2);
}

fn scheduled() -> Item {
    yards::item(json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux", "max": 9,
        "schedules": [
            {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "desired": 5},
            {"cron": "0 18 * * 1-5", "timeZone": "Europe/Berlin", "desired": 0},
        ],
    }))
}

/// What a class with two schedules wants now, as a decision asks for it.
#[divan::bench]
fn two_schedules(bencher: Bencher<'_, '_>) {
    let (mut yard, item) = (Yard::default(), scheduled());
    let now = Now { wall: start(), mono: Duration::ZERO, seen: Duration::ZERO };
    yard.observe(Observation::Record(RecordId::of(&item).unwrap(), Some(item)), &now);
    let (_, class) = yard.classes().next().unwrap();
    let pool = class.pool.as_ref().unwrap();
    bencher.bench_local(|| effective_in(black_box(class), black_box(pool), start()));
}

/// The same by a pool alone, whose schedules are parsed first.
#[divan::bench]
fn two_schedules_parsed(bencher: Bencher<'_, '_>) {
    let pool: Pool = record(&scheduled());
    bencher.bench_local(|| effective(black_box(&pool), start()));
}
