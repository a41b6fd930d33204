//! What happened to the table, write by write? Its stream from the first record on, as steps from one image of a
//! record to the next.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_dynamodbstreams::types::{AttributeValue as Delivery, Record as Write, ShardIteratorType};
use aws_sdk_dynamodbstreams::{Client, config::Builder};
use runyard_core::model::{AttributeValue, Item, Reading, Record, RecordId, TableName, read};
use runyard_core::ports::{Page, Store as _, StoreError};
use runyard_store::{DynamoStore, Watching};
use tokio::time::Instant;

use crate::e2e::waiting::PATIENCE;

pub(crate) use runyard_support::laws::{Step, kind};

/// A client's configuration for an engine on loopback.
///
/// The key is that of a data directory, for the table of `up`; other engines take any.
pub(crate) fn sdk_as(key: &str, endpoint: &str) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            key, "test", None, None, "a test",
        )))
        .endpoint_url(endpoint)
        .build()
}

/// The table of an engine, looked at often.
pub(crate) fn store(endpoint: &str) -> DynamoStore {
    store_as("test", endpoint)
}

/// The table of `up`, for whoever has its directory's key.
pub(crate) fn store_as(key: &str, endpoint: &str) -> DynamoStore {
    let often = Watching { every: std::time::Duration::from_millis(20), ..Watching::default() };
    DynamoStore::connect(table(), &sdk_as(key, endpoint)).watching(often)
}

fn table() -> TableName {
    TableName::parse("runyard").expect("a name")
}

/// Everything that was ever written to the table, in the order of its writing.
pub(crate) async fn all(endpoint: &str) -> Vec<Step> {
    all_as("test", endpoint).await
}

/// The same of the table of `up`, for whoever has its directory's key.
pub(crate) async fn all_as(key: &str, endpoint: &str) -> Vec<Step> {
    let client = Client::from_conf(Builder::from(&sdk_as(key, endpoint)).build());
    let streams = client.list_streams().table_name(table().as_str()).send().await.expect("a stream");
    let arn = streams.streams()[0].stream_arn().expect("a stream's ARN").to_owned();
    let told = client.describe_stream().stream_arn(&arn).send().await.expect("the stream is described");
    let shards = told.stream_description().expect("a description").shards();
    assert_eq!(shards.len(), 1, "with one shard the order of its records is the order of the writes");
    let shard = shards[0].shard_id().expect("a shard's id");
    let call = client.get_shard_iterator().stream_arn(&arn).shard_id(shard);
    let begun = call.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.expect("an iterator");
    let (mut steps, mut iterator) = (Vec::new(), begun.shard_iterator);
    while let Some(at) = iterator {
        let got = client.get_records().shard_iterator(at).send().await.expect("the stream is read");
        let records = got.records.unwrap_or_default();
        if records.is_empty() {
            break;
        }
        steps.extend(records.into_iter().filter_map(step));
        iterator = got.next_shard_iterator;
    }
    steps
}

/// What the table answers; asked again where no answer came in time, as on a machine that is busy with other things.
/// What was written by an earlier attempt is refused then.
pub(crate) async fn answered<T, F>(call: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Err(StoreError::Unknown(_)) if Instant::now() < end => {}
            answer => return answer,
        }
    }
}

/// The whole table, events aside.
pub(crate) struct Snapshot {
    pub(crate) items: Vec<Item>,
    /// Whether one answer held them all, so that they are of one moment.
    pub(crate) of_one_moment: bool,
}

/// Looks at the whole table; none while the engine is away.
pub(crate) async fn snapshot(store: &DynamoStore) -> Option<Snapshot> {
    let (mut items, mut pages) = (Vec::new(), 0);
    let mut after = None;
    loop {
        let Page { items: page, next } = store.list(after.as_ref()).await.ok()?;
        items.extend(page.into_iter().filter(|item| kind(item) != "event"));
        (after, pages) = (next, pages + 1);
        if after.is_none() {
            return Some(Snapshot { items, of_one_moment: pages == 1 });
        }
    }
}

impl Snapshot {
    /// Those of one kind; every one of them can be read.
    pub(crate) fn all<T: Record>(&self) -> Vec<T> {
        let of_kind = self.items.iter().filter(|item| kind(item) == T::KIND.as_str());
        let readable = of_kind.map(|item| match read::<T>(item) {
            Reading::Record(record) => record,
            Reading::Newer { schema } => panic!("schema {schema}: {item:?}"),
            Reading::Unreadable(problem) => panic!("{problem}"),
        });
        readable.collect()
    }
}

fn step(record: Write) -> Option<Step> {
    let change = record.dynamodb?;
    let (old, new) = (change.old_image.map(item), change.new_image.map(item));
    Some(Step { key: RecordId::of(&item(change.keys?))?, old, new })
}

fn item(told: impl IntoIterator<Item = (String, Delivery)>) -> Item {
    told.into_iter().map(|(name, value)| (name, attribute(value))).collect()
}

fn attribute(value: Delivery) -> AttributeValue {
    match value {
        Delivery::S(text) => AttributeValue::S(text),
        Delivery::N(number) => AttributeValue::N(number),
        Delivery::Bool(is) => AttributeValue::Bool(is),
        Delivery::L(list) => AttributeValue::L(list.into_iter().map(attribute).collect()),
        Delivery::M(map) => AttributeValue::M(map.into_iter().map(|(k, v)| (k, attribute(v))).collect()),
        Delivery::Ss(set) => AttributeValue::Ss(set),
        other => panic!("no record of ours holds {other:?}"),
    }
}
