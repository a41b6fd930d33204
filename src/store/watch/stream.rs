//! A watch by DynamoDB Streams. It follows the open shards from the moment it was opened, and their children when they
//! end (DynamoDB ends a shard every few hours and when it splits a partition), parents before children.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::operation::get_records::{GetRecordsError, GetRecordsOutput};
use aws_sdk_dynamodbstreams::types::{Record, ShardIteratorType, StreamStatus};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::PATIENCE;
use crate::model::Key;
use crate::ports::{Change, StoreError, Watch};
use crate::store::DynamoStore;
use crate::store::errors::classify;
use crate::store::items::from_stream;

/// How long between two looks for the children of a shard that ended.
const CHILDREN: Duration = Duration::from_secs(1);

/// A watch of a stream.
pub(super) struct StreamWatch {
    client: Client,
    arn: String,
    every: Duration,
    /// Tells that there is something to be read now.
    wake: Option<watch::Receiver<()>>,
    /// The shards being read.
    shards: Vec<Shard>,
    /// Every shard that was ever listed and is, was, or need not be read.
    seen: BTreeSet<String>,
    /// Shards that ended and whose children are not found yet.
    ended: BTreeSet<String>,
    /// Changes read and not told yet, so that whoever stops waiting loses nothing.
    changes: Vec<Change>,
    due: Instant,
    children_due: Instant,
}

/// A shard being read.
struct Shard {
    id: String,
    /// Where the next read begins; none at the end of the shard.
    iterator: Option<String>,
    position: Position,
}

/// How far a shard was read, by which an expired iterator is replaced.
enum Position {
    /// Nothing yet, from the opening of the watch on.
    Opening,
    /// Nothing yet, from the shard's beginning.
    Beginning,
    /// Up to this sequence number.
    After(String),
}

/// A shard as the stream lists it.
struct Listed {
    id: String,
    parent: Option<String>,
}

impl StreamWatch {
    /// Opens the table's stream; none when it has none that carries new images.
    pub(super) async fn open(store: &DynamoStore) -> Result<Option<Self>, StoreError> {
        let missing = || StoreError::NoTable(format!("there is no table {}", store.table));
        let table = store.describe().await?.ok_or_else(missing)?;
        let images = table.stream_specification.as_ref().is_some_and(|stream| {
            let view = stream.stream_view_type.as_ref().map(|view| view.as_str());
            stream.stream_enabled && matches!(view, Some("NEW_IMAGE" | "NEW_AND_OLD_IMAGES"))
        });
        let Some(arn) = table.latest_stream_arn.filter(|_| images) else { return Ok(None) };
        let mut watch = Self {
            client: store.streams(),
            arn,
            every: store.watching.every,
            wake: store.wake.clone(),
            shards: Vec::new(),
            seen: BTreeSet::new(),
            ended: BTreeSet::new(),
            changes: Vec::new(),
            due: Instant::now(),
            children_due: Instant::now(),
        };
        let listed = watch.list().await?;
        let parents: BTreeSet<_> = listed.iter().filter_map(|shard| shard.parent.clone()).collect();
        // A shard without children is open, or has ended so lately that its children are not listed yet.
        for Listed { id, .. } in listed {
            if !parents.contains(&id) {
                watch.start(&id, Position::Opening).await?;
            }
            watch.seen.insert(id);
        }
        Ok(Some(watch))
    }

    /// All shards of the stream.
    async fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let mut listed = Vec::new();
        let mut from = None;
        loop {
            let call = self.client.describe_stream().stream_arn(&self.arn);
            let told =
                call.set_exclusive_start_shard_id(from).send().await.map_err(|error| classify(&error))?;
            let Some(stream) = told.stream_description else { return Ok(listed) };
            if let Some(StreamStatus::Disabled) = stream.stream_status {
                return Err(lost("it was disabled"));
            }
            for shard in stream.shards.unwrap_or_default() {
                let parent = shard.parent_shard_id;
                listed.extend(shard.shard_id.map(|id| Listed { id, parent }));
            }
            from = stream.last_evaluated_shard_id;
            if from.is_none() {
                return Ok(listed);
            }
        }
    }

    async fn iterator(&self, shard: &str, position: &Position) -> Result<Option<String>, StoreError> {
        let call = self.client.get_shard_iterator().stream_arn(&self.arn).shard_id(shard);
        let call = match position {
            Position::Opening => call.shard_iterator_type(ShardIteratorType::Latest),
            Position::Beginning => call.shard_iterator_type(ShardIteratorType::TrimHorizon),
            Position::After(number) => {
                call.shard_iterator_type(ShardIteratorType::AfterSequenceNumber).sequence_number(number)
            }
        };
        Ok(call.send().await.map_err(|error| classify(&error))?.shard_iterator)
    }

    async fn start(&mut self, id: &str, position: Position) -> Result<(), StoreError> {
        let iterator = self.iterator(id, &position).await?;
        self.shards.push(Shard { id: id.to_owned(), iterator, position });
        Ok(())
    }

    /// Takes up the children of shards that ended.
    async fn follow(&mut self) -> Result<(), StoreError> {
        if self.ended.is_empty() || self.children_due > Instant::now() {
            return Ok(());
        }
        self.children_due = Instant::now() + CHILDREN;
        for Listed { id, parent } in self.list().await? {
            let waits = self.shards.iter().any(|shard| Some(&shard.id) == parent.as_ref());
            if waits || self.seen.contains(&id) {
                continue;
            }
            self.start(&id, Position::Beginning).await?;
            self.seen.insert(id);
            parent.map(|parent| self.ended.remove(&parent));
        }
        Ok(())
    }

    /// Reads every shard once. One that cannot be read does not keep the others from being read.
    async fn look(&mut self) -> Result<(), StoreError> {
        let mut outcome = self.follow().await;
        for at in 0..self.shards.len() {
            if let Err(error) = self.read(at).await {
                outcome = outcome.and(Err(error));
            }
        }
        let ended = self.shards.extract_if(.., |shard| shard.iterator.is_none()).map(|shard| shard.id);
        self.ended.extend(ended);
        outcome
    }

    async fn read(&mut self, at: usize) -> Result<(), StoreError> {
        let Shard { iterator: Some(iterator), id, position } = &self.shards[at] else { return Ok(()) };
        match self.client.get_records().shard_iterator(iterator).send().await {
            Ok(got) => self.take(at, got),
            Err(error) => match error.as_service_error() {
                Some(GetRecordsError::ExpiredIteratorException(_)) => {
                    if let Position::Opening = position {
                        return Err(lost("it was not read for too long"));
                    }
                    let iterator = self.iterator(id, position).await?;
                    self.shards[at].iterator = iterator;
                }
                Some(GetRecordsError::ResourceNotFoundException(_)) => return Err(lost("it is gone")),
                _ => return Err(classify(&error)),
            },
        }
        Ok(())
    }

    fn take(&mut self, at: usize, got: GetRecordsOutput) {
        let shard = &mut self.shards[at];
        shard.iterator = got.next_shard_iterator;
        for record in got.records.unwrap_or_default() {
            let number = record.dynamodb.as_ref().and_then(|told| told.sequence_number.clone());
            if let Some(number) = number {
                shard.position = Position::After(number);
            }
            self.changes.extend(change(record));
        }
    }
}

/// Waits until there is something to be read, for ever where nobody tells.
async fn woken(wake: &mut Option<watch::Receiver<()>>) {
    if let Some(wake) = wake
        && wake.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn change(record: Record) -> Option<Change> {
    let told = record.dynamodb?;
    let key = Key::of(&from_stream(told.keys?))?;
    Some(Change { key, item: told.new_image.map(from_stream) })
}

fn lost(why: &str) -> StoreError {
    StoreError::Invalid(format!(
        "the table's stream can no longer be followed: {why}; changes may have been missed"
    ))
}

#[async_trait]
impl Watch for StreamWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if !self.changes.is_empty() {
                return Ok(std::mem::take(&mut self.changes));
            }
            tokio::select! {
                () = sleep_until(self.due) => {}
                () = woken(&mut self.wake) => {}
            }
            self.due = Instant::now() + self.every;
            let outcome = self.look().await;
            if self.changes.is_empty() {
                outcome?;
                if Instant::now() >= until {
                    return Ok(Vec::new());
                }
            }
        }
    }
}
