//! How much does a list of the table read, as the engine itself counts it? The history has a table of its own, so that a
//! resync costs the same however many days are behind it.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use runyard_core::model::history::{HistoryLine, RequestLine};
use runyard_core::model::{Event, Item, Reading, Record, RecordId, Request, TableName, read};
use runyard_core::ports::Store as _;
use runyard_store::DynamoStore;
use serde_json::json;

use crate::ports::store::sdk_config;
use runyard_support::engine::Engine;

/// For how many days requests that are over stay in the yard's table, and events where there is no history.
const STAYS: i64 = 7;
/// For how many days requests that are over stay there where there is a history.
const STAYS_BESIDE_HISTORY: i64 = 1;
const TABLE: &str = "listed";

fn now() -> Timestamp {
    "2026-03-02T12:00:00Z".parse().unwrap()
}

/// A yard's tables on an engine.
struct Yard {
    _engine: Engine,
    store: DynamoStore,
    history: DynamoStore,
    client: Client,
}

impl Yard {
    async fn new() -> Self {
        let engine = Engine::dynoxide_memory();
        let config = sdk_config(engine.endpoint()).await;
        let table = TableName::parse(TABLE).unwrap();
        let (store, client) = (DynamoStore::connect(table, &config), Client::new(&config));
        store.create_table().await.unwrap();
        let history = store.history().expect("the name leaves room");
        history.create_table().await.unwrap();
        Self { _engine: engine, store, history, client }
    }

    /// What one list of the yard's table reads: items, and read units of 4 KB.
    async fn listed(&self) -> (i64, f64) {
        let (mut items, mut units, mut after) = (0, 0.0, None);
        loop {
            let call = self.client.scan().table_name(TABLE).consistent_read(true);
            let call = call.return_consumed_capacity(ReturnConsumedCapacity::Total);
            let page = call.set_exclusive_start_key(after).send().await.unwrap();
            items += i64::from(page.scanned_count);
            units += page.consumed_capacity.and_then(|used| used.capacity_units).expect("the engine counts");
            after = page.last_evaluated_key;
            if after.is_none() {
                return (items, units);
            }
        }
    }

    /// What so many days of claims leave in the yard's own table, with a history table beside it or without one.
    async fn lives(&self, days: i64, claims_a_day: i64, with_history: bool) {
        let mut left = Vec::new();
        let stays = if with_history { STAYS_BESIDE_HISTORY } else { STAYS };
        for number in 0..days.min(stays) * claims_a_day {
            let request = over(number, number / claims_a_day);
            left.push(request.to_item());
            if !with_history {
                left.extend((0..10).map(|n| event(&request, n).to_item()));
            }
        }
        keep(&self.store, &left).await;
    }
}

/// How many batches are on their way at a time.
const AT_ONCE: usize = 8;

async fn keep(store: &DynamoStore, items: &[Item]) {
    let kept = stream::iter(items.chunks(25)).map(|batch| store.append(batch)).buffer_unordered(AT_ONCE);
    let left: Vec<_> = kept.collect().await;
    assert!(left.iter().all(|left| *left == Ok(0)), "the engine takes all of it: {left:?}");
}

/// A request of one machine that was over some days ago.
fn over(number: i64, days: i64) -> Request {
    let at =
        |seconds: i64| now() - SignedDuration::from_hours(24 * days) + SignedDuration::from_secs(seconds);
    let key = RecordId::new(
        format!("request#acme/service-{}#{}", number % 40, 9_000_000_000 + number),
        "request#build#1",
    );
    let machine = format!("i-{number:017x}");
    let condition = |name: &str, seconds: i64| json!({"type": name, "status": true, "reason": name, "message": "", "lastTransitionTime": at(seconds)});
    let fields = json!({
        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 7, "runId": (9_000_000_000 + number).to_string(),
        "attempt": 1, "repository": format!("acme/service-{}", number % 40), "name": "build",
        "resourceClass": "linux-x64", "count": 1, "desired": "released", "generation": 2, "createdAt": at(0),
        "updatedAt": at(400), "phase": "Released", "instances": [], "served": [machine], "message": "1 machine given back",
        "conditions": [condition("Accepted", 1), condition("Ready", 5)], "acceptedAt": at(1), "deadline": at(601),
        "readyAt": at(5), "releasedAt": at(395), "endedAt": at(400), "observedGeneration": 2,
        "expiresAt": at(400).as_second() + 7 * 24 * 3600,
        "accepted": {"resourceClass": "linux-x64", "count": 1, "minCount": 1, "onDemandFallback": false, "timeoutSeconds": 600},
    });
    let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
    match read::<Request>(&item.into_inner().into_iter().collect::<Item>()) {
        Reading::Record(request) => request,
        Reading::Unreadable(why) => panic!("{why}"),
        Reading::Newer { schema } => panic!("schema {schema}"),
    }
}

fn event(request: &Request, number: i64) -> Event {
    let at = request.status.ended_at.expect("it is over") - SignedDuration::from_secs(number);
    let id = format!("{:016x}{number:016x}", at.as_second());
    let mut event = Event::new(&request.key(), id, at, "operator");
    event.reason = "GivenBack".into();
    event.message = "1 of 1 machine given back, its runner is gone at GitHub".into();
    event
}

#[tokio::test]
async fn a_list_reads_as_much_after_ninety_days_of_history_as_after_one() {
    let listed = async |days: i64| {
        let yard = Yard::new().await;
        yard.lives(STAYS, 3, true).await;
        let before = yard.listed().await;
        let mut lines = Vec::new();
        for number in 0..days * 3 {
            let request = over(number, number / 3);
            lines.push(HistoryLine::Request(RequestLine::of(&request).unwrap()).to_item(1));
            lines.extend((0..10).map(|n| HistoryLine::Event(event(&request, n)).to_item(1)));
        }
        keep(&yard.history, &lines).await;
        let after = yard.listed().await;
        assert_eq!(before, after, "{days} days");
        after
    };
    let (one, ninety) = (listed(1).await, listed(90).await);
    assert_eq!(one, ninety);
    let without = Yard::new().await;
    without.lives(STAYS, 3, false).await;
    assert!(
        without.listed().await.1 > 3.0 * one.1,
        "where everything lies in the table itself it grows with that"
    );
}

/// The figures of docs/performance.md. What a history has in its own table is not written here: the test above shows
/// that no list reads it.
#[tokio::test]
#[ignore = "tells its first lines after two minutes and takes hours: on demand, see docs/performance.md"]
async fn the_list_after_thirty_days_is_measured() {
    for (claims, with_history) in [(1_000, true), (10_000, true), (1_000, false), (10_000, false)] {
        let yard = Yard::new().await;
        yard.lives(30, claims, with_history).await;
        let begun = tokio::time::Instant::now();
        let (items, units) = yard.listed().await;
        println!(
            "{claims} claims a day, history table: {with_history}: {items} items, {units} read units, {:.1} MB, {:.2} s",
            units * 4096.0 / 1e6,
            begun.elapsed().as_secs_f64()
        );
    }
}
