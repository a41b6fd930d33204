//! The table itself: checks whether it exists and has the contract's shape, and creates it.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification,
    StreamViewType, TableDescription, TableStatus, TimeToLiveDescription, TimeToLiveSpecification,
    TimeToLiveStatus,
};
use backon::{ConstantBuilder, Retryable};

use super::DynamoStore;
use super::errors::classify;
use crate::ports::StoreError;

/// The time-to-live attribute, by which DynamoDB deletes expired records.
const TTL: &str = "expiresAt";

/// The subjects of differences.
const STREAM: &str = "stream";
const TIME_TO_LIVE: &str = "time-to-live";
/// The found value of a missing setting.
const NOTHING: &str = "nothing";

/// A difference between a table, or another resource of a yard, and the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The setting: of a table `key`, `stream`, `time-to-live`, `billing`.
    pub what: &'static str,
    /// The contract's value.
    pub wanted: String,
    /// The table's value.
    pub found: String,
}

impl Difference {
    /// Returns whether it can be fixed by adding a missing setting, as after an interrupted creation. A table with
    /// other keys was created for another purpose.
    pub fn mendable(&self) -> bool {
        matches!(self.what, STREAM | TIME_TO_LIVE) && self.found == NOTHING
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wanted {}, found {}", self.what, self.wanted, self.found)
    }
}

/// The table compared with the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableState {
    /// There is no table with that name.
    Missing,
    /// It exists; without differences it has the contract's shape.
    Present(Vec<Difference>),
}

impl DynamoStore {
    /// Compares the table with the contract. Changes nothing.
    ///
    /// # Errors
    /// Those of the store; a missing table is not one.
    pub async fn check_table(&self) -> Result<TableState, StoreError> {
        let Some(table) = self.describe().await? else { return Ok(TableState::Missing) };
        let call = self.client.describe_time_to_live().table_name(self.table.as_str());
        let ttl = call.send().await.map_err(|error| classify(&error))?.time_to_live_description;
        Ok(TableState::Present(differences(&table, ttl.as_ref(), self.streamed)))
    }

    /// Creates the table by the contract and waits, up to a minute, until it can be used.
    ///
    /// # Errors
    /// [`StoreError::NoTable`] if one with that name exists already or is not ready in time.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        self.creation()?.send().await.map_err(|error| classify(&error))?;
        self.settled().await?;
        self.expire_by_ttl().await
    }

    /// Adds missing settings; `differences` that cannot be fixed remain.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn mend_table(&self, differences: &[Difference]) -> Result<(), StoreError> {
        let lacks =
            |what| differences.iter().any(|difference| difference.what == what && difference.mendable());
        if lacks(STREAM) {
            let call = self.client.update_table().table_name(self.table.as_str());
            let call = call.stream_specification(stream()?).send().await;
            call.map_err(|error| classify(&error))?;
            self.settled().await?;
        }
        if lacks(TIME_TO_LIVE) {
            self.expire_by_ttl().await?;
        }
        Ok(())
    }

    /// Waits, up to a minute, until the table can be used.
    async fn settled(&self) -> Result<(), StoreError> {
        let often = ConstantBuilder::default().with_delay(Duration::from_millis(500)).with_max_times(120);
        (|| self.active()).retry(often).when(|error| matches!(error, StoreError::NoTable(_))).await
    }

    async fn expire_by_ttl(&self) -> Result<(), StoreError> {
        let ttl = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build();
        let ttl = ttl.map_err(|error| StoreError::Invalid(error.to_string()))?;
        let call = self.client.update_time_to_live().table_name(self.table.as_str());
        call.time_to_live_specification(ttl).send().await.map_err(|error| classify(&error))?;
        Ok(())
    }

    fn creation(&self) -> Result<CreateTableFluentBuilder, StoreError> {
        let invalid = |error: aws_sdk_dynamodb::error::BuildError| StoreError::Invalid(error.to_string());
        let mut call = self.client.create_table().table_name(self.table.as_str());
        for (name, role) in [("pk", KeyType::Hash), ("sk", KeyType::Range)] {
            let key = KeySchemaElement::builder().attribute_name(name).key_type(role).build();
            let kind =
                AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
            call =
                call.key_schema(key.map_err(invalid)?).attribute_definitions(kind.build().map_err(invalid)?);
        }
        let call = call.billing_mode(BillingMode::PayPerRequest);
        Ok(if self.streamed { call.stream_specification(stream()?) } else { call })
    }

    async fn active(&self) -> Result<(), StoreError> {
        match self.describe().await?.and_then(|table| table.table_status) {
            Some(TableStatus::Active) => Ok(()),
            status => {
                Err(StoreError::NoTable(format!("it is {}", said(status.as_ref().map(TableStatus::as_str)))))
            }
        }
    }

    /// Returns the table's description; `None` if the table does not exist.
    pub(super) async fn describe(&self) -> Result<Option<TableDescription>, StoreError> {
        match self.client.describe_table().table_name(self.table.as_str()).send().await {
            Ok(told) => Ok(told.table),
            Err(error) => match error.as_service_error() {
                Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(None),
                _ => Err(classify(&error)),
            },
        }
    }
}

fn stream() -> Result<StreamSpecification, StoreError> {
    let stream = StreamSpecification::builder().stream_enabled(true);
    let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build();
    stream.map_err(|error| StoreError::Invalid(error.to_string()))
}

fn said(value: Option<&str>) -> String {
    value.unwrap_or(NOTHING).to_owned()
}

fn differences(
    table: &TableDescription,
    ttl: Option<&TimeToLiveDescription>,
    streamed: bool,
) -> Vec<Difference> {
    let stream = table.stream_specification.as_ref().filter(|stream| stream.stream_enabled);
    let stream = stream.and_then(|stream| stream.stream_view_type.as_ref()).map(StreamViewType::as_str);
    let alive = |ttl: &&TimeToLiveDescription| match &ttl.time_to_live_status {
        Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => true,
        Some(_) | None => false,
    };
    let ttl = ttl.filter(alive).and_then(|ttl| ttl.attribute_name.as_deref());
    // DynamoDB reports no billing mode for a table that was created with provisioned throughput.
    let billing = table.billing_mode_summary.as_ref().and_then(|billing| billing.billing_mode.as_ref());
    let billing = billing.map_or("PROVISIONED", BillingMode::as_str);
    [
        ("key", "pk (S, HASH), sk (S, RANGE)".to_owned(), keys(table)),
        (STREAM, "NEW_AND_OLD_IMAGES".to_owned(), said(stream)),
        (TIME_TO_LIVE, TTL.to_owned(), said(ttl)),
        ("billing", "PAY_PER_REQUEST".to_owned(), billing.to_owned()),
    ]
    .into_iter()
    .filter(|(what, wanted, found)| wanted != found && (streamed || *what != STREAM))
    .map(|(what, wanted, found)| Difference { what, wanted, found })
    .collect()
}

fn keys(table: &TableDescription) -> String {
    let kind = |name: &str| {
        let definition = table.attribute_definitions().iter().find(|d| d.attribute_name == name);
        said(definition.map(|d| d.attribute_type.as_str()))
    };
    let key = |key: &KeySchemaElement| {
        format!("{} ({}, {})", key.attribute_name, kind(&key.attribute_name), key.key_type.as_str())
    };
    table.key_schema().iter().map(key).collect::<Vec<_>>().join(", ")
}
