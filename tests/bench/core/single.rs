//! Single operations of the core.

use divan::{Bencher, black_box};
use runyard_core::decide::effective;
use runyard_core::model::{Agent, Instance, Item, Pool, Record, Request, read};
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

/// What a class with two schedules wants now.
#[divan::bench]
fn two_schedules(bencher: Bencher<'_, '_>) {
    let pool: Pool = record(&yards::item(json!({
        "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux", "max": 9,
        "schedules": [
            {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "desired": 5},
            {"cron": "0 18 * * 1-5", "timeZone": "Europe/Berlin", "desired": 0},
        ],
    })));
    bencher.bench_local(|| effective(black_box(&pool), start()));
}
