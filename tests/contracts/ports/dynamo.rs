//! What only DynamoDB's adapter has: the table's shape, and errors that come over the wire.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use jiff::Timestamp;
use runyard_core::model::history::HistoryLine;
use runyard_core::model::{Event, Guard, RecordId, TableName, Write};
use runyard_core::ports::{Store, StoreError};
use runyard_store::{DynamoStore, TableState};
use tokio::time::Instant;

use crate::ports::store::{connect, sdk_config};
use runyard_support::engine::{Engine, nobody};

async fn a_table_is_missing_then_made_then_as_it_should_be(engine: Engine) {
    let store = connect(engine.endpoint()).await;
    assert_eq!(store.check_table().await.unwrap(), TableState::Missing);
    store.create_table().await.unwrap();
    assert_eq!(store.check_table().await.unwrap(), TableState::Present(Vec::new()));
    let again = store.create_table().await.unwrap_err();
    assert_eq!(again.label(), "no-table", "{again}");
    let history = store.history().expect("the name leaves room");
    assert_eq!(history.check_table().await.unwrap(), TableState::Missing);
    let none = history.query("history#", "", None).await.unwrap_err();
    assert_eq!(none.label(), "no-table", "{none}");
    history.create_table().await.unwrap();
    assert_eq!(history.check_table().await.unwrap(), TableState::Present(Vec::new()), "without a stream");
    let event =
        Event::new(&RecordId::new("pool#linux", "pool"), "1".into(), Timestamp::UNIX_EPOCH, "operator");
    let line = HistoryLine::Event(event).to_item(60);
    assert_eq!(history.append(std::slice::from_ref(&line)).await, Ok(0));
    assert_eq!(history.append(std::slice::from_ref(&line)).await, Ok(0), "again, which changes nothing");
    let key = RecordId::of(&line).unwrap();
    assert_eq!(history.query(&key.pk(), "", None).await.unwrap().items, [line]);
}

#[tokio::test]
async fn dynoxide_makes_the_table_the_contract_wants() {
    a_table_is_missing_then_made_then_as_it_should_be(Engine::dynoxide_memory()).await;
}

#[tokio::test]
async fn ministack_makes_the_table_the_contract_wants() {
    a_table_is_missing_then_made_then_as_it_should_be(Engine::ministack()).await;
}

#[tokio::test]
async fn a_table_of_another_shape_is_told_by_its_differences() {
    let engine = Engine::dynoxide_memory();
    let config = sdk_config(engine.endpoint()).await;
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap();
    let kind = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::N);
    let call = Client::new(&config).create_table().table_name("other").key_schema(key);
    let call = call.attribute_definitions(kind.build().unwrap()).billing_mode(BillingMode::PayPerRequest);
    call.send().await.unwrap();
    let store = DynamoStore::connect(TableName::parse("other").unwrap(), &config);
    let TableState::Present(differences) = store.check_table().await.unwrap() else { panic!("it is there") };
    let told: Vec<_> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "key: wanted pk (S, HASH), sk (S, RANGE), found id (N, HASH)",
            "stream: wanted NEW_AND_OLD_IMAGES, found nothing",
            "time-to-live: wanted expiresAt, found nothing",
        ]
    );
    let key = RecordId::new("instance#x", "instance");
    let write = Write::update(key.clone(), Guard::Version(1), [].into(), [].into());
    assert_eq!(store.get(&key).await.unwrap_err().label(), "no-table");
    assert_eq!(store.write(&write).await.unwrap_err().label(), "no-table");
}

async fn labels(store: &DynamoStore) -> Vec<&'static str> {
    let key = RecordId::new("instance#x", "instance");
    let write = Write::create(key.clone(), [].into());
    let item = [("pk".to_owned(), runyard_core::model::AttributeValue::S("p".into()))];
    let mut item: runyard_core::model::Item = item.into();
    item.insert("sk".into(), runyard_core::model::AttributeValue::S("s".into()));
    let errors: [Option<StoreError>; 7] = [
        store.get(&key).await.err(),
        store.list(None).await.err(),
        store.query("p", "s", None).await.err(),
        store.write(&write).await.err(),
        store.transact(&[write]).await.err(),
        store.append(&[item]).await.err(),
        store.watch().await.err(),
    ];
    errors.iter().map(|error| error.as_ref().map_or("success", StoreError::label)).collect()
}

#[tokio::test]
async fn without_a_table_every_call_says_so() {
    for engine in [Engine::dynoxide_memory(), Engine::ministack()] {
        assert_eq!(labels(&connect(engine.endpoint()).await).await, ["no-table"; 7]);
    }
}

#[tokio::test]
async fn where_nobody_listens_every_call_ends_soon_and_may_or_may_not_have_happened() {
    let (endpoint, _held) = nobody();
    let store = connect(&endpoint).await;
    tokio::time::pause();
    let started = Instant::now();
    assert_eq!(labels(&store).await, ["unknown"; 7]);
    assert!(started.elapsed() <= Duration::from_secs(7 * 10), "took {:?}", started.elapsed());
}

#[tokio::test]
async fn without_credentials_or_region_a_person_must_mend_it() {
    let engine = Engine::dynoxide_memory();
    let whole = sdk_config(engine.endpoint()).await;
    let key = RecordId::new("instance#x", "instance");
    let table = || TableName::parse("runyard").unwrap();
    let mut anonymous = whole.to_builder();
    anonymous.set_credentials_provider(None);
    let nowhere = whole.to_builder().region(None).endpoint_url("http://127.0.0.1:1");
    for (config, wanted) in [(anonymous.build(), "credentials"), (nowhere.build(), "region")] {
        let store = DynamoStore::connect(table(), &config);
        let error = store.get(&key).await.unwrap_err();
        assert_eq!(error.label(), "denied", "{error}");
        assert!(error.to_string().to_lowercase().contains(wanted), "{error}");
    }
}
