//! DynamoDB: the store's adapter, before the embedded engine.

use std::sync::atomic::{AtomicUsize, Ordering};

use runyard_core::model::{AttributeValue, Guard, Item, RecordId, TableName, Write};
use runyard_core::ports::{Store as _, StoreError};
use runyard_store::DynamoStore;

use crate::wire::judge::{Came, Cell, Lasting, config, judge};
use crate::wire::matrix::DYNAMODB;
use crate::wire::proxy::{Words, before};
use runyard_support::engine::Engine;

const JSON: &str = "application/x-amz-json-1.0";
const WORDS: Words = Words {
    internal: (
        500,
        JSON,
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"m"}"#,
    ),
    throttled: (
        400,
        JSON,
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}"#,
    ),
    foreign: (200, "text/xml", "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"),
};

fn record(key: &RecordId) -> Item {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number = |n: &str| AttributeValue::N(n.to_owned());
    [("pk", text(&key.pk())), ("sk", text(&key.sk())), ("version", number("1")), ("n", number("0"))]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// The second version: `n` rises by one, and would rise again if it were written twice.
fn second(key: &RecordId) -> Write {
    let set = Item::from([("version".to_owned(), AttributeValue::N("2".into()))]);
    Write::update(key.clone(), Guard::Version(1), set, [("n".to_owned(), 1)].into())
}

fn letter<T>(outcome: &Result<T, StoreError>) -> char {
    match outcome {
        Ok(_) => '.',
        Err(StoreError::Unknown(_)) => 'u',
        Err(StoreError::Throttled) => 't',
        Err(StoreError::Denied(_)) => 'd',
        Err(StoreError::Invalid(_)) => 'i',
        Err(StoreError::Refused { .. }) => 'r',
        Err(StoreError::Contended) => 'c',
        Err(StoreError::NoTable(_)) => 'n',
    }
}

/// What comes of a watch, opened and read; whether it told of a change that was written once it was open. A look that
/// fails is followed by another, as the operator does it.
async fn watched(
    store: &DynamoStore,
    change: impl Future<Output = ()>,
    key: &RecordId,
    looks: usize,
) -> (char, bool) {
    let mut watch = match store.watch().await {
        Ok(watch) => watch,
        failed => return (letter(&failed), true),
    };
    change.await;
    let mut came = '.';
    for _ in 0..looks {
        match watch.next().await {
            Ok(changes) if changes.iter().any(|change| change.key == *key) => return (came, true),
            Ok(_) => {}
            failed if came == '.' => came = letter(&failed),
            Err(_) => {}
        }
    }
    (came, false)
}

async fn play(engine: &Engine, numbers: &AtomicUsize, cell: Cell) -> Came {
    let number = numbers.fetch_add(1, Ordering::SeqCst);
    let key = RecordId::new(format!("test#{number}"), "test");
    let table = TableName::parse("runyard").unwrap();
    let direct = DynamoStore::connect(table.clone(), &config(engine.endpoint()).await);
    direct.write(&Write::create(key.clone(), record(&key))).await.unwrap();
    let name = match cell.call {
        "get" => "GetItem",
        "list" => "Scan",
        "query" => "Query",
        "write" => "UpdateItem",
        "transact" => "TransactWriteItems",
        "append" => "BatchWriteItem",
        "describe_table" => "DescribeTable",
        "describe_stream" => "DescribeStream",
        "shard_iterator" => "GetShardIterator",
        "records" => "GetRecords",
        other => panic!("no call {other}"),
    };
    let peer = before(engine.endpoint(), name, cell.fault, cell.lasting.times(), &WORDS).await;
    let store = DynamoStore::connect(table, &config(&peer).await);
    let fresh = RecordId::new(key.pk().clone(), "event#1");
    let mut untold = false;
    let letter = match cell.call {
        "get" => letter(&store.get(&key).await),
        "list" => letter(&store.list(None).await),
        "query" => letter(&store.query(&key.pk(), "t", None).await),
        "write" => letter(&store.write(&second(&key)).await),
        "transact" => letter(&store.transact(&[second(&key)]).await),
        "describe_table" | "describe_stream" | "shard_iterator" | "records" => {
            let change = async {
                direct.write(&second(&key)).await.unwrap();
            };
            let looks = if cell.lasting == Lasting::Once { 100 } else { 1 };
            let (came, told) = watched(&store, change, &key, looks).await;
            untold = !told && cell.lasting == Lasting::Once;
            came
        }
        // Events may be dropped, which is counted.
        _ => match store.append(&[record(&fresh)]).await {
            Ok(0) => '.',
            Ok(_) => '0',
            other => letter(&other),
        },
    };
    let after = direct.get(&key).await.unwrap().unwrap();
    let n = |item: &Item| item.get("n").cloned();
    let times = if n(&after) == Some(AttributeValue::N("0".into())) { 0 } else { 1 };
    let (changes, succeeded) = (matches!(cell.call, "write" | "transact"), letter == '.');
    let doubled = changes && !matches!(n(&after), Some(AttributeValue::N(n)) if n == "0" || n == "1");
    let lost = changes && succeeded && times == 0;
    let undone = changes && !succeeded && times == 1 && !cell.fault.done();
    let missing = cell.call == "append" && succeeded && direct.get(&fresh).await.unwrap().is_none();
    let wrong = doubled || lost || undone || missing || untold;
    Came { letter, wrong: wrong.then(|| format!("{cell:?}: {letter}, {after:?}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_store_makes_of_every_fault_what_its_row_says() {
    let engine = Engine::dynoxide_memory();
    let table = TableName::parse("runyard").unwrap();
    DynamoStore::connect(table, &config(engine.endpoint()).await).create_table().await.unwrap();
    let numbers = AtomicUsize::new(0);
    judge(&DYNAMODB, async |cell| play(&engine, &numbers, cell).await).await;
}
