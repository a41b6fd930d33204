//! The adapter of the store port for DynamoDB and all engines with its protocol, and the end of the doorbell that rings.
//! Only the SDK retries calls, except for the unprocessed items of a batch.

mod batch;
mod errors;
mod expression;
pub mod failure;
mod items;
pub mod outcome;
pub mod queue;
mod table;
pub mod transact;
mod watch;

use runyard_core::{model, ports};

use std::time::Duration;

use async_trait::async_trait;
use aws_config::BehaviorVersion;
use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::StalledStreamProtectionConfig;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use aws_sdk_dynamodb::{Client, config};
use aws_sdk_dynamodbstreams as streams;
use aws_types::service_config::ServiceConfigKey;
use tokio::sync::watch as watch_channel;

use self::errors::classify;
use self::expression::Expressions;
use self::items::{from_sdk, key_to_sdk};
use self::outcome::already_done;
use self::queue::SqsRinger;
use crate::model::{AttributeValue, Item, Operation, RecordId, TableName, Write};
use crate::ports::{Page, Refusal, Store, StoreError, Watch};

pub use self::table::{Difference, TableState};
pub use self::watch::Watching;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// Longest wait for one attempt of a call.
const ATTEMPT: Duration = Duration::from_secs(3);
/// Longest wait for a call, all attempts together.
const CALL: Duration = Duration::from_secs(10);
/// Maximum number of attempts of a call; the timeout of all attempts ends it earlier if each is slow.
const ATTEMPTS: u32 = 6;

/// The store on DynamoDB.
#[derive(Clone, Debug)]
pub struct DynamoStore {
    table: TableName,
    /// Whether the table has a stream; the history's has none.
    streamed: bool,
    client: Client,
    /// The AWS configuration; the client of streams is built from it on first use, which an agent never needs.
    sdk: SdkConfig,
    watching: Watching,
    wake: Option<watch_channel::Receiver<()>>,
    page: Option<i32>,
}

impl DynamoStore {
    async fn read(&self, key: &RecordId, consistent: bool) -> Result<Option<Item>, StoreError> {
        let call = self.client.get_item().table_name(self.table.as_str()).consistent_read(consistent);
        let got = call.set_key(Some(key_to_sdk(key))).send().await.map_err(|error| classify(&error))?;
        Ok(got.item.map(from_sdk))
    }

    /// Connects to `table`, configured by `config`. No call is made yet.
    pub fn connect(table: TableName, config: &SdkConfig) -> Self {
        let table_config = config::Builder::from(config)
            .retry_config(retries())
            .timeout_config(timeouts())
            // It protects long bodies; ours are short and limited by the timeout of an attempt.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        Self {
            table,
            streamed: true,
            client: Client::from_conf(table_config.build()),
            sdk: config.clone(),
            watching: Watching::default(),
            wake: None,
            page: None,
        }
    }

    /// Connects to `table`, configured by the environment: region, credentials and endpoints by AWS's own names.
    pub async fn connect_env(table: TableName) -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
        Self::connect(table, &config)
    }

    /// Returns the history table of this yard; `None` if the yard's name is too long for it.
    pub fn history(&self) -> Option<Self> {
        let table = self.table.history()?;
        Some(Self { table, streamed: false, wake: None, ..self.clone() })
    }

    /// Returns the end of this yard's doorbell that rings.
    pub fn ringer(&self) -> SqsRinger {
        SqsRinger::connect(&self.table, &self.sdk)
    }

    /// Sets how the store watches.
    #[must_use]
    pub fn watching(self, watching: Watching) -> Self {
        Self { watching, ..self }
    }

    /// Makes watches of the stream also read when `wake` changes.
    #[must_use]
    pub fn woken_by(self, wake: watch_channel::Receiver<()>) -> Self {
        Self { wake: Some(wake), ..self }
    }

    /// Limits pages to this many records instead of as many as DynamoDB puts into one (1 MB).
    #[must_use]
    pub fn paged(self, records: u16) -> Self {
        Self { page: Some(i32::from(records.max(1))), ..self }
    }

    /// Returns a client of the table's stream.
    fn streams(&self) -> streams::Client {
        let mut config =
            streams::config::Builder::from(&self.sdk).retry_config(retries()).timeout_config(timeouts());
        config.set_endpoint_url(streams_endpoint(&self.sdk));
        streams::Client::from_conf(config.build())
    }

    async fn update(&self, write: &Write) -> Result<Item, StoreError> {
        let told = Expressions::of(&write.operation);
        let call = self.client.update_item().table_name(self.table.as_str());
        let sent = call
            .set_key(Some(key_to_sdk(&write.key)))
            .set_expression_attribute_names(told.names())
            .set_expression_attribute_values(told.values())
            .condition_expression(told.condition)
            .set_update_expression(told.update)
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let error = match sent {
            Ok(done) => return Ok(done.attributes.map(from_sdk).unwrap_or_default()),
            Err(error) => error,
        };
        let current = match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                refused.item().cloned().map(from_sdk)
            }
            _ => return Err(classify(&error)),
        };
        match current {
            Some(current) if already_done(write, Some(&current)) => Ok(current),
            current => Err(refused(write, current)),
        }
    }

    async fn delete(&self, write: &Write) -> Result<Item, StoreError> {
        let told = Expressions::of(&write.operation);
        let call = self.client.delete_item().table_name(self.table.as_str());
        let sent = call
            .set_key(Some(key_to_sdk(&write.key)))
            .set_expression_attribute_names(told.names())
            .set_expression_attribute_values(told.values())
            .condition_expression(told.condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let Err(error) = sent else { return Ok(Item::new()) };
        let current = match error.as_service_error() {
            Some(DeleteItemError::ConditionalCheckFailedException(refused)) => {
                refused.item().cloned().map(from_sdk)
            }
            _ => return Err(classify(&error)),
        };
        // A refusal without the item does not prove that the record is gone, so it is read.
        let current = match current {
            Some(current) => Some(current),
            None => self.get(&write.key).await?,
        };
        if already_done(write, current.as_ref()) { Ok(Item::new()) } else { Err(refused(write, current)) }
    }
}

fn refused(write: &Write, current: Option<Item>) -> StoreError {
    StoreError::Refused { refusals: vec![Refusal { key: write.key.clone(), current }] }
}

/// Returns the SDK's retry policy; no other layer repeats calls.
pub fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(ATTEMPTS)
        .with_initial_backoff(Duration::from_millis(50))
        .with_max_backoff(Duration::from_secs(2))
}

/// Returns the timeouts of calls.
pub fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(CALL)
        .build()
}

/// Returns the endpoint of streams. `AWS_ENDPOINT_URL_DYNAMODB` alone means both, because AWS has no stream of a table
/// that is stored elsewhere.
fn streams_endpoint(config: &SdkConfig) -> Option<String> {
    let named = |service| {
        let key = ServiceConfigKey::builder().service_id(service);
        let key = key.env("AWS_ENDPOINT_URL").profile("endpoint_url").build().ok()?;
        config.service_config()?.load_config(key)
    };
    let explicit = config.get_origin("endpoint_url").is_client_config();
    let given = || config.endpoint_url().map(str::to_owned);
    if explicit { given() } else { named("DynamoDB Streams").or_else(|| named("DynamoDB")).or_else(given) }
}

/// Returns the key at which the next page begins.
fn next(
    last: Option<impl IntoIterator<Item = (String, aws_sdk_dynamodb::types::AttributeValue)>>,
) -> Option<RecordId> {
    RecordId::of(&from_sdk(last?))
}

#[async_trait]
impl Store for DynamoStore {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.read(key, true).await
    }

    async fn glance(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.read(key, false).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let call = self.client.scan().table_name(self.table.as_str()).consistent_read(true);
        let call = call.set_limit(self.page).set_exclusive_start_key(after.map(key_to_sdk));
        let got = call.send().await.map_err(|error| classify(&error))?;
        let items = got.items.unwrap_or_default().into_iter().map(from_sdk).collect();
        Ok(Page { items, next: next(got.last_evaluated_key) })
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let text = |text: &str| AttributeValue::S(text.to_owned()).into();
        let call = self.client.query().table_name(self.table.as_str()).consistent_read(true);
        let mut call = call.set_limit(self.page).set_exclusive_start_key(after.map(key_to_sdk));
        call = call.expression_attribute_names("#pk", "pk").expression_attribute_values(":pk", text(pk));
        // DynamoDB refuses an empty string as the value of a key, even as a prefix.
        call = if sk_prefix.is_empty() {
            call.key_condition_expression("#pk = :pk")
        } else {
            call.expression_attribute_names("#sk", "sk")
                .expression_attribute_values(":sk", text(sk_prefix))
                .key_condition_expression("#pk = :pk AND begins_with(#sk, :sk)")
        };
        let got = call.send().await.map_err(|error| classify(&error))?;
        let items = got.items.unwrap_or_default().into_iter().map(from_sdk).collect();
        Ok(Page { items, next: next(got.last_evaluated_key) })
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        match &write.operation {
            Operation::Create(_) | Operation::Update { .. } => self.update(write).await,
            Operation::Delete(_) => self.delete(write).await,
            Operation::Check(_) => {
                transact::transact(&self.client, &self.table, std::slice::from_ref(write)).await?;
                Ok(self.get(&write.key).await?.unwrap_or_default())
            }
        }
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        transact::transact(&self.client, &self.table, writes).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        batch::append(&self.client, &self.table, items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        watch::open(self).await
    }
}

#[cfg(test)]
mod tests {
    use aws_types::service_config::LoadServiceConfig;

    use super::*;

    /// An environment in which one service has another endpoint.
    #[derive(Debug)]
    struct Moved(&'static str);

    impl LoadServiceConfig for Moved {
        fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
            (key.service_id() == self.0).then(|| format!("http://127.0.0.1:1/{}", self.0))
        }
    }

    #[test]
    fn streams_are_read_where_the_table_is() {
        let config = SdkConfig::builder().service_config(Moved("DynamoDB")).build();
        assert_eq!(streams_endpoint(&config).as_deref(), Some("http://127.0.0.1:1/DynamoDB"));
        let config = SdkConfig::builder().service_config(Moved("DynamoDB Streams")).build();
        assert_eq!(streams_endpoint(&config).as_deref(), Some("http://127.0.0.1:1/DynamoDB Streams"));
        let config = SdkConfig::builder().endpoint_url("http://127.0.0.1:2").build();
        assert_eq!(streams_endpoint(&config).as_deref(), Some("http://127.0.0.1:2"));
        assert_eq!(streams_endpoint(&SdkConfig::builder().build()), None);
    }
}
