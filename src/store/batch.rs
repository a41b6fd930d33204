//! Adds records under fresh keys, in batches. Records that the table does not accept after a few tries are dropped and
//! counted: they are events for people, and no decision depends on them.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use backon::{BackoffBuilder, ExponentialBuilder};

use super::errors::classify;
use super::items::to_sdk;
use crate::model::{Item, Key, TableName};
use crate::ports::StoreError;

/// Most records of one batch (`BatchWriteItem`).
const BATCH: usize = 25;

/// Returns the retry policy for unprocessed items.
fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(1))
        .with_max_times(4)
        .with_jitter()
}

/// Writes all items and returns how many were dropped.
pub(super) async fn append(client: &Client, table: &TableName, items: &[Item]) -> Result<usize, StoreError> {
    // DynamoDB refuses a batch that names one key twice as a whole.
    let fresh: BTreeMap<Key, &Item> =
        items.iter().filter_map(|item| Key::of(item).map(|key| (key, item))).collect();
    let mut dropped = items.iter().filter(|item| Key::of(item).is_none()).count();
    let mut requests = fresh.into_values().map(request).collect::<Result<Vec<_>, _>>()?;
    while !requests.is_empty() {
        let rest = requests.split_off(requests.len().min(BATCH));
        dropped += batch(client, table, requests).await?;
        requests = rest;
    }
    Ok(dropped)
}

fn request(item: &Item) -> Result<WriteRequest, StoreError> {
    let put = PutRequest::builder().set_item(Some(to_sdk(item))).build();
    let put = put.map_err(|error| StoreError::Invalid(error.to_string()))?;
    Ok(WriteRequest::builder().put_request(put).build())
}

/// Sends one batch with its retries and returns how many items were dropped.
async fn batch(
    client: &Client,
    table: &TableName,
    mut requests: Vec<WriteRequest>,
) -> Result<usize, StoreError> {
    let mut waits = patience().build();
    loop {
        let left = requests.len();
        let sent = client.batch_write_item().request_items(table.as_str(), requests).send().await;
        requests = match sent {
            Ok(done) => done.unprocessed_items.unwrap_or_default().into_values().flatten().collect(),
            Err(error) => match classify(&error) {
                StoreError::Throttled => return Ok(left),
                other => return Err(other),
            },
        };
        if requests.is_empty() {
            return Ok(0);
        }
        match waits.next() {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Ok(requests.len()),
        }
    }
}
