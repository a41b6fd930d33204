//! A stream as AWS has it and no engine shows it: shards that end and split, iterators that expire, records trimmed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runyard_core::model::TableName;
use runyard_core::ports::{Store, StoreError, Watch};
use runyard_store::{DynamoStore, Watching};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::ports::store::sdk_config;
use crate::ports::wire::{Plan, error, peer};

const ARN: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/runyard/stream/1";

/// A stream that a test scripts. An iterator is `<shard>/<position>/<age>`.
#[derive(Default)]
struct Stream {
    shards: BTreeMap<&'static str, Shard>,
    /// Iterators of an older age have expired.
    age: usize,
    /// What reading says instead, once.
    fault: Option<(u16, String)>,
    disabled: bool,
    /// Whether the table has no stream.
    missing: bool,
    /// The calls that are refused.
    refused: BTreeSet<&'static str>,
    /// What a scan of the table finds, and how many there were.
    scanned: Vec<&'static str>,
    scans: usize,
    /// The shards that were read, each time.
    reads: Vec<String>,
    /// Told when a shard is read.
    asked: BTreeMap<&'static str, watch::Sender<bool>>,
    /// Until when reads of a shard are not answered.
    held: BTreeMap<&'static str, watch::Receiver<bool>>,
}

#[derive(Default)]
struct Shard {
    parent: Option<&'static str>,
    records: Vec<&'static str>,
    closed: bool,
}

impl Stream {
    fn answer(&mut self, call: &str, body: &Value) -> (u16, String) {
        match call {
            refused if self.refused.contains(refused) => (400, error("AccessDeniedException")),
            "DescribeTable" => {
                if self.missing {
                    return (200, json!({ "Table": { "TableName": "runyard" } }).to_string());
                }
                let stream = json!({ "StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES" });
                let table =
                    json!({ "TableName": "runyard", "StreamSpecification": stream, "LatestStreamArn": ARN });
                (200, json!({ "Table": table }).to_string())
            }
            "Scan" => {
                self.scans += 1;
                let items: Vec<_> = self.scanned.iter().map(|pk| keys(pk)).collect();
                (200, json!({ "Items": items }).to_string())
            }
            "DescribeStream" => self.describe(body["ExclusiveStartShardId"].as_str()),
            "GetShardIterator" => self.iterator(body),
            "GetRecords" => self.read(body["ShardIterator"].as_str().unwrap()),
            other => panic!("a watch has no need of {other}"),
        }
    }

    /// What becomes of a call: a read of a shard that is held is answered later.
    fn plan(&mut self, call: &str, body: &Value) -> Plan {
        let (status, text) = self.answer(call, body);
        let shard = body["ShardIterator"].as_str().and_then(|iterator| iterator.split('/').next());
        let Some(shard) = shard else { return Plan::Instead(status, text) };
        self.reads.push(shard.to_owned());
        if let Some(asked) = self.asked.get(shard) {
            asked.send_replace(true);
        }
        match self.held.get(shard) {
            Some(held) => Plan::When(held.clone(), Box::new(Plan::Instead(status, text))),
            None => Plan::Instead(status, text),
        }
    }

    /// One shard a page.
    fn describe(&self, after: Option<&str>) -> (u16, String) {
        let status = if self.disabled { "DISABLED" } else { "ENABLED" };
        let mut shards = self.shards.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        let Some((id, shard)) = shards.next() else {
            return (200, json!({ "StreamDescription": { "StreamStatus": status } }).to_string());
        };
        let last = shards.next().is_some().then_some(id);
        let listed = json!([{ "ShardId": id, "ParentShardId": shard.parent }]);
        let told = json!({ "StreamStatus": status, "Shards": listed, "LastEvaluatedShardId": last });
        (200, json!({ "StreamDescription": told }).to_string())
    }

    fn iterator(&self, body: &Value) -> (u16, String) {
        let id = body["ShardId"].as_str().unwrap();
        let position = match body["ShardIteratorType"].as_str().unwrap() {
            "LATEST" => self.shards[id].records.len(),
            "TRIM_HORIZON" => 0,
            "AFTER_SEQUENCE_NUMBER" => 1 + body["SequenceNumber"].as_str().unwrap().parse::<usize>().unwrap(),
            other => panic!("no need of {other}"),
        };
        (200, json!({ "ShardIterator": format!("{id}/{position}/{}", self.age) }).to_string())
    }

    fn read(&mut self, iterator: &str) -> (u16, String) {
        if let Some(fault) = self.fault.take() {
            return fault;
        }
        let parts: Vec<_> = iterator.split('/').collect();
        if parts[2].parse::<usize>().unwrap() < self.age {
            return (400, error("ExpiredIteratorException"));
        }
        let (shard, from) = (&self.shards[parts[0]], parts[1].parse::<usize>().unwrap());
        let records: Vec<_> = (from..).zip(&shard.records[from..]).map(|(at, pk)| record(at, pk)).collect();
        let end = shard.records.len();
        let next = (!shard.closed).then(|| format!("{}/{end}/{}", parts[0], self.age));
        (200, json!({ "Records": records, "NextShardIterator": next }).to_string())
    }
}

fn keys(pk: &str) -> Value {
    json!({ "pk": { "S": pk }, "sk": { "S": "test" } })
}

fn record(at: usize, pk: &str) -> Value {
    let keys = keys(pk);
    let told = json!({ "Keys": keys, "NewImage": keys, "SequenceNumber": format!("{at:021}") });
    json!({ "eventName": "MODIFY", "dynamodb": told })
}

type Shared = Arc<Mutex<Stream>>;

/// A watch of a stream that begins with one open shard, `a`, which has one old record.
async fn watched() -> (Shared, Box<dyn Watch>) {
    watched_on(&["a"]).await
}

/// A watch of a stream that begins with these open shards, each with one old record.
async fn watched_on(shards: &[&'static str]) -> (Shared, Box<dyn Watch>) {
    let mut stream = Stream::default();
    let shard = |id: &&'static str| (*id, Shard { records: vec!["old"], ..Shard::default() });
    stream.shards.extend(shards.iter().map(shard));
    opened(stream).await
}

/// A watch of this stream.
async fn opened(stream: Stream) -> (Shared, Box<dyn Watch>) {
    let (scan_every, stream_every) = (Duration::from_secs(3600), Duration::from_secs(3600));
    let every = Duration::from_millis(5);
    let (stream, store) = store(stream, Watching { stream: true, every, scan_every, stream_every }).await;
    let watch = store.watch().await.unwrap();
    (stream, watch)
}

/// A store of the table of this stream.
async fn store(stream: Stream, watching: Watching) -> (Shared, DynamoStore) {
    let stream = Arc::new(Mutex::new(stream));
    let answers = stream.clone();
    let judge = move |call: &str, _: usize, body: &Value| answers.lock().unwrap().plan(call, body);
    let (endpoint, _) = peer("", judge).await;
    let store = DynamoStore::connect(TableName::parse("runyard").unwrap(), &sdk_config(&endpoint).await);
    (stream, store.watching(watching))
}

fn add(stream: &Shared, shard: &'static str, records: &[&'static str]) {
    stream.lock().unwrap().shards.get_mut(shard).unwrap().records.extend(records);
}

/// The first so many partition keys the watch tells, in its order.
async fn told(watch: &mut dyn Watch, wanted: usize) -> Vec<String> {
    let (mut seen, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(600));
    while seen.len() < wanted {
        assert!(Instant::now() < deadline, "only {seen:?}");
        seen.extend(watch.next().await.unwrap().into_iter().map(|change| change.key.pk()));
    }
    seen
}

#[tokio::test]
async fn a_split_is_followed_parents_before_children_and_nothing_is_missed() {
    let (stream, mut watch) = watched().await;
    add(&stream, "a", &["a-1"]);
    {
        let mut stream = stream.lock().unwrap();
        stream.shards.get_mut("a").unwrap().closed = true;
        let child = |records| Shard { parent: Some("a"), records, closed: false };
        stream.shards.insert("b", child(vec!["b-1"]));
        stream.shards.insert("c", child(vec!["c-1", "c-2"]));
    }
    let seen = told(&mut *watch, 4).await;
    assert_eq!(seen[0], "a-1");
    // Siblings are read side by side, each in its order.
    let of = |shard: &str| seen.iter().filter(|pk| pk.starts_with(shard)).cloned().collect::<Vec<_>>();
    assert_eq!((of("b"), of("c")), (vec!["b-1".into()], vec!["c-1".into(), "c-2".into()]));
    add(&stream, "c", &["c-3"]);
    add(&stream, "b", &["b-2"]);
    let mut seen = told(&mut *watch, 2).await;
    seen.sort();
    assert_eq!(seen, ["b-2", "c-3"]);
}

#[tokio::test]
async fn shards_are_read_side_by_side() {
    let (stream, mut watch) = watched_on(&["a", "b"]).await;
    let (asked_a, asked_b) = (watch::Sender::new(false), watch::Sender::new(false));
    {
        let mut stream = stream.lock().unwrap();
        // Each is answered once the other was asked.
        stream.held.extend([("a", asked_b.subscribe()), ("b", asked_a.subscribe())]);
        stream.asked.extend([("a", asked_a), ("b", asked_b)]);
        stream.reads.clear();
    }
    add(&stream, "a", &["a-1"]);
    add(&stream, "b", &["b-1"]);
    let mut seen = told(&mut *watch, 2).await;
    seen.sort();
    assert_eq!(seen, ["a-1", "b-1"]);
    let reads = &stream.lock().unwrap().reads;
    assert_ne!(reads[0], reads[1], "one is not given up before the other is read: {reads:?}");
}

#[tokio::test]
async fn a_shard_that_does_not_answer_holds_up_no_other() {
    let (stream, mut watch) = watched_on(&["a", "b", "c"]).await;
    let answers = watch::Sender::new(false);
    stream.lock().unwrap().held.insert("b", answers.subscribe());
    add(&stream, "b", &["b-1"]);
    for (shard, record) in [("a", "a-1"), ("c", "c-1"), ("a", "a-2"), ("c", "c-2")] {
        add(&stream, shard, &[record]);
        assert_eq!(told(&mut *watch, 1).await, [record]);
    }
    let reads = stream.lock().unwrap().reads.clone();
    let of = |shard: &str| reads.iter().filter(|read| *read == shard).count();
    assert!(of("b") < of("a") && of("b") < of("c"), "they are read on while it is waited for: {reads:?}");
    answers.send_replace(true);
    assert_eq!(told(&mut *watch, 1).await, ["b-1"]);
}

#[tokio::test]
async fn the_second_child_of_a_split_is_found_though_it_is_listed_later() {
    let (stream, mut watch) = watched().await;
    let child = |record| Shard { parent: Some("a"), records: vec![record], closed: false };
    {
        let mut stream = stream.lock().unwrap();
        stream.shards.get_mut("a").unwrap().closed = true;
        stream.shards.insert("b", child("b-1"));
    }
    assert_eq!(told(&mut *watch, 1).await, ["b-1"]);
    stream.lock().unwrap().shards.insert("c", child("c-1"));
    assert_eq!(told(&mut *watch, 1).await, ["c-1"]);
}

#[tokio::test]
async fn the_second_child_of_a_split_is_found_by_a_watch_that_opened_before_it_was_listed() {
    let child = |record| Shard { parent: Some("a"), records: vec![record], closed: false };
    let ended = Shard { records: vec!["old"], closed: true, ..Shard::default() };
    let shards = BTreeMap::from([("a", ended), ("b", child("old"))]);
    let (stream, mut watch) = opened(Stream { shards, ..Stream::default() }).await;
    stream.lock().unwrap().shards.insert("c", child("c-1"));
    assert_eq!(told(&mut *watch, 1).await, ["c-1"]);
    add(&stream, "b", &["b-1"]);
    assert_eq!(told(&mut *watch, 1).await, ["b-1"]);
}

#[tokio::test]
async fn a_grandchild_that_is_listed_first_is_read_after_its_parent() {
    let (stream, mut watch) = watched_on(&["m"]).await;
    {
        let mut stream = stream.lock().unwrap();
        stream.shards.get_mut("m").unwrap().closed = true;
        stream.shards.insert("n", Shard { parent: Some("m"), records: vec!["n-1"], closed: true });
        stream.shards.insert("a", Shard { parent: Some("n"), records: vec!["a-1"], closed: false });
    }
    assert_eq!(told(&mut *watch, 2).await, ["n-1", "a-1"]);
}

#[tokio::test]
async fn children_that_are_listed_late_are_found() {
    let (stream, mut watch) = watched().await;
    stream.lock().unwrap().shards.get_mut("a").unwrap().closed = true;
    assert_eq!(watch.next().await.unwrap(), Vec::new());
    let child = Shard { parent: Some("a"), records: vec!["b-1"], closed: true };
    stream.lock().unwrap().shards.insert("b", child);
    assert_eq!(told(&mut *watch, 1).await, ["b-1"]);
    let grandchild = Shard { parent: Some("b"), records: vec!["c-1"], closed: false };
    stream.lock().unwrap().shards.insert("c", grandchild);
    assert_eq!(told(&mut *watch, 1).await, ["c-1"]);
}

#[tokio::test]
async fn an_expired_iterator_goes_on_after_the_last_record() {
    let (stream, mut watch) = watched().await;
    add(&stream, "a", &["a-1"]);
    assert_eq!(told(&mut *watch, 1).await, ["a-1"]);
    stream.lock().unwrap().age += 1;
    add(&stream, "a", &["a-2", "a-3"]);
    assert_eq!(told(&mut *watch, 2).await, ["a-2", "a-3"]);
}

/// What the watch says once something is wrong.
async fn broken(watch: &mut dyn Watch) -> StoreError {
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        assert!(Instant::now() < deadline, "nothing was told");
        if let Err(error) = timeout(Duration::from_secs(600), watch.next()).await.unwrap() {
            return error;
        }
    }
}

#[tokio::test]
async fn where_changes_may_be_missed_the_watch_says_so() {
    // Expired before anything was read: nobody knows where it stood.
    let (stream, mut watch) = watched().await;
    stream.lock().unwrap().age += 1;
    assert_eq!(broken(&mut *watch).await.label(), "invalid");
    for code in ["TrimmedDataAccessException", "ResourceNotFoundException"] {
        let (stream, mut watch) = watched().await;
        stream.lock().unwrap().fault = Some((400, error(code)));
        assert_eq!(broken(&mut *watch).await.label(), "invalid", "{code}");
    }
    let (stream, mut watch) = watched().await;
    stream.lock().unwrap().disabled = true;
    stream.lock().unwrap().shards.get_mut("a").unwrap().closed = true;
    assert_eq!(broken(&mut *watch).await.label(), "invalid", "disabled");
}

#[tokio::test]
async fn a_stream_that_fails_for_a_while_is_taken_up_where_it_was() {
    let (stream, mut watch) = watched().await;
    add(&stream, "a", &["a-1"]);
    stream.lock().unwrap().fault = Some((400, error("AccessDeniedException")));
    assert_eq!(broken(&mut *watch).await.label(), "denied");
    assert_eq!(told(&mut *watch, 1).await, ["a-1"]);
}

/// A table that is scanned: its stream and its watch, and the store that opened it.
async fn scanned(stream: Stream) -> (Shared, Box<dyn Watch>, DynamoStore) {
    let often = Duration::from_millis(5);
    let shards = BTreeMap::from([("a", Shard { records: vec!["old"], ..Shard::default() })]);
    let watching = Watching { stream: true, every: often, scan_every: often, stream_every: often };
    let (stream, store) = store(Stream { shards, ..stream }, watching).await;
    let mut watch = store.watch().await.unwrap();
    stream.lock().unwrap().scanned.push("one");
    assert_eq!(told(&mut *watch, 1).await, ["one"], "it is scanned");
    (stream, watch, store)
}

/// The watch ends, and the next one follows the stream and scans nothing.
async fn goes_over(stream: Shared, mut watch: Box<dyn Watch>, store: DynamoStore) {
    let over = broken(&mut *watch).await;
    assert!(
        over.label() == "invalid" && over.to_string().contains("stream"),
        "whoever watches lists anew: {over}"
    );
    let mut watch = store.watch().await.unwrap();
    let scans = stream.lock().unwrap().scans;
    for record in ["a-1", "a-2"] {
        add(&stream, "a", &[record]);
        assert_eq!(told(&mut *watch, 1).await, [record], "it is followed");
    }
    assert_eq!(stream.lock().unwrap().scans, scans);
}

#[tokio::test]
async fn a_table_that_is_scanned_is_followed_once_it_has_a_stream() {
    let (stream, watch, store) = scanned(Stream { missing: true, ..Stream::default() }).await;
    stream.lock().unwrap().missing = false;
    goes_over(stream, watch, store).await;
}

#[tokio::test]
async fn a_stream_that_was_refused_is_followed_once_it_can_be_described_and_read() {
    let refused = BTreeSet::from(["DescribeStream", "GetRecords"]);
    let (stream, mut watch, store) = scanned(Stream { refused, ..Stream::default() }).await;
    stream.lock().unwrap().refused.remove("DescribeStream");
    for record in ["two", "three"] {
        stream.lock().unwrap().reads.clear();
        let tried = async || {
            while stream.lock().unwrap().reads.is_empty() {
                tokio::task::yield_now().await
            }
        };
        timeout(Duration::from_secs(600), tried()).await.unwrap();
        stream.lock().unwrap().scanned.push(record);
        assert_eq!(told(&mut *watch, 1).await, [record], "it is scanned while it cannot be read");
    }
    stream.lock().unwrap().refused.clear();
    goes_over(stream, watch, store).await;
}
