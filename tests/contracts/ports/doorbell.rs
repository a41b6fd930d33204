//! Is a ring heard once, and does the watch of the table look at once? On real engines.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use runyard_core::model::{AttributeValue, RecordId, TableName, Write};
use runyard_core::ports::{Doorbell as _, QueueError, Ringer as _, Store as _};
use runyard_operator::aws::SqsDoorbell;
use runyard_operator::aws::queues::{QueueState, Queues, WantedQueue};
use runyard_store::queue::SqsRinger;
use runyard_store::{DynamoStore, Watching};
use tokio::sync::watch;

use crate::ports::store::sdk_config;
use runyard_support::engine::Engine;

static TABLES: AtomicU32 = AtomicU32::new(0);

fn table() -> TableName {
    let number = TABLES.fetch_add(1, Ordering::SeqCst);
    TableName::parse(&format!("bell-{}-{number}", std::process::id())).unwrap()
}

/// A bell that is not there is told of; of one that `init` made each ring is heard once, with the record that it names.
async fn is_heard_once(engine: &Engine) {
    let (config, table) = (sdk_config(engine.endpoint()).await, table());
    let (caller, leader) = (SqsRinger::connect(&table, &config), SqsDoorbell::impatient(&table, &config));
    let key = RecordId::new("request#acme/web#1", "request#default#1");
    for answer in [caller.find().await, caller.ring(&key).await, leader.rung().await.map(|_| ())] {
        assert_eq!(answer, Err(QueueError::Missing));
    }
    let (queues, wanted) = (Queues::connect(&config), WantedQueue::of_doorbell(&table));
    assert!(matches!(queues.ensure(&wanted).await, Ok(QueueState::Missing(_))));
    assert_eq!(queues.ensure(&wanted).await, Ok(QueueState::Present(Vec::new())));
    assert_eq!(leader.rung().await, Ok(Vec::new()));
    caller.find().await.unwrap();
    for _ in 0..3 {
        caller.ring(&key).await.unwrap();
    }
    let client = Client::new(&config);
    let url = client.get_queue_url().queue_name(&wanted.name).send().await.unwrap().queue_url.unwrap();
    // As programs of former versions ring.
    client.send_message().queue_url(&url).message_body("ring").send().await.unwrap();
    let mut heard = Vec::new();
    // An engine may answer with a part; none answers with a ring again.
    for _ in 0..6 {
        heard.extend(leader.rung().await.unwrap());
    }
    heard.sort_by_key(|ring| ring.key.clone());
    let keys: Vec<_> = heard.iter().map(|ring| ring.key.clone()).collect();
    assert_eq!(keys, [None, Some(key.clone()), Some(key.clone()), Some(key)]);
    assert!(heard.iter().all(|ring| ring.sender.is_some()), "{heard:?}");
    let told = client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
    let told = told.send().await.unwrap().attributes.unwrap();
    assert_eq!(told[&QueueAttributeName::MessageRetentionPeriod], "60");
}

#[tokio::test]
async fn a_ring_is_heard_once_on_ministack() {
    is_heard_once(&Engine::ministack()).await;
}

#[tokio::test]
async fn a_ring_is_heard_once_on_moto() {
    is_heard_once(&Engine::moto()).await;
}

#[tokio::test]
async fn a_watch_of_the_stream_that_is_rung_for_reads_at_once() {
    let engine = Engine::dynoxide_memory();
    // Nobody waits for a look of its own in a test.
    let rarely = Watching { every: Duration::from_secs(3600), ..Watching::default() };
    let (look, looks) = watch::channel(());
    let config = sdk_config(engine.endpoint()).await;
    let store = DynamoStore::connect(table(), &config).watching(rarely).woken_by(looks);
    store.create_table().await.unwrap();
    let mut changes = store.watch().await.unwrap();
    // The first is seen by the look with which a watch begins, the second only by one for the ring.
    for run in ["request#acme/web#1", "request#acme/web#2"] {
        let key = RecordId::new(run, "test");
        let item = [("pk", key.pk()), ("sk", key.sk())];
        let item = item.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_string()))).into();
        store.write(&Write::create(key.clone(), item)).await.unwrap();
        if run.ends_with("#2") {
            look.send_replace(());
        }
        let seen = tokio::time::timeout(Duration::from_secs(600), changes.next()).await;
        assert_eq!(seen.expect("it does not wait an hour").unwrap()[0].key, key);
    }
}
