//! A watch by DynamoDB Streams. It follows the open shards from the moment it was opened, and their children when they
//! end (DynamoDB ends a shard every few hours and when it splits a partition), parents before children. Shards are read
//! concurrently: a slow one delays no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::operation::get_records::{GetRecordsError, GetRecordsOutput};
use aws_sdk_dynamodbstreams::types::{Record, ShardIteratorType, StreamStatus};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::PATIENCE;
use crate::DynamoStore;
use crate::errors::classify;
use crate::items::from_stream;
use crate::model::RecordId;
use crate::ports::{Change, StoreError, Watch};

/// Interval between two listings that look for the children of an ended shard.
const CHILDREN: Duration = Duration::from_secs(1);
/// How many listings follow the one that found a first child: the stream may list the second child of a split later.
const FURTHER_LOOKS: u32 = 10;
/// Most concurrent calls of one watch; each takes a connection.
const AT_ONCE: usize = 64;

/// A watch of a stream.
pub(super) struct StreamWatch {
    stream: Stream,
    every: Duration,
    /// Signals that there is something to read now.
    wake: Option<watch::Receiver<()>>,
    /// The shards being followed, by their ids.
    shards: BTreeMap<String, Shard>,
    /// Every shard that was listed, whether it is read, was read or need not be read.
    seen: BTreeSet<String>,
    /// Ended shards whose children may not all be listed yet, with the remaining listings once one was found.
    ended: BTreeMap<String, Option<u32>>,
    /// Calls in progress, kept here so that a cancelled wait loses nothing. They end with the watch.
    calls: JoinSet<Answer>,
    /// Whether one of them is a listing of the shards.
    listing: bool,
    /// Changes that were read and not returned yet.
    changes: Vec<Change>,
    /// A failure that was not returned yet.
    failed: Option<StoreError>,
    /// When the last result was returned.
    told: Instant,
    due: Instant,
    children_due: Instant,
}

/// A shard being followed.
struct Shard {
    /// The start of the next read; `None` until an iterator is fetched for the position.
    iterator: Option<String>,
    position: Position,
    /// Whether a read is in progress.
    reading: bool,
    /// When the last successful read began.
    answered: Option<Instant>,
}

/// The position in a shard, from which an expired iterator is replaced.
#[derive(Clone)]
enum Position {
    /// Nothing has been read; the first read starts where the watch was opened.
    Opening,
    /// Nothing has been read; the first read starts at the shard's beginning.
    Beginning,
    /// Everything up to this sequence number has been read.
    After(String),
}

/// A shard as the stream lists it.
struct Listed {
    id: String,
    parent: Option<String>,
}

/// The result of a call.
enum Answer {
    /// A read of this shard, with its start time.
    Read(String, Instant, Result<Got, StoreError>),
    Listed(Result<Vec<Listed>, StoreError>),
}

enum Got {
    Records(GetRecordsOutput),
    /// The iterator expired: the next read fetches another for its position.
    Expired,
}

/// The stream, with its client.
#[derive(Clone)]
struct Stream {
    client: Client,
    arn: String,
    places: Arc<Semaphore>,
}

impl Stream {
    /// Lists all its shards.
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
        let _place = self.places.acquire().await;
        Ok(call.send().await.map_err(|error| classify(&error))?.shard_iterator)
    }

    /// Reads a shard once from its position.
    async fn read(
        &self,
        shard: &str,
        iterator: Option<String>,
        position: &Position,
    ) -> Result<Got, StoreError> {
        let iterator = match iterator {
            Some(iterator) => Some(iterator),
            None => self.iterator(shard, position).await?,
        };
        // A shard without an iterator has ended.
        let Some(iterator) = iterator else { return Ok(Got::Records(GetRecordsOutput::builder().build())) };
        let _place = self.places.acquire().await;
        let error = match self.client.get_records().shard_iterator(iterator).send().await {
            Ok(got) => return Ok(Got::Records(got)),
            Err(error) => error,
        };
        match (error.as_service_error(), position) {
            (Some(GetRecordsError::ExpiredIteratorException(_)), Position::Opening) => {
                Err(lost("it was not read for too long"))
            }
            (
                Some(GetRecordsError::ExpiredIteratorException(_)),
                Position::Beginning | Position::After(_),
            ) => Ok(Got::Expired),
            (Some(GetRecordsError::ResourceNotFoundException(_)), _) => Err(lost("it is gone")),
            (Some(_) | None, _) => Err(classify(&error)),
        }
    }
}

impl Shard {
    fn new(iterator: Option<String>, position: Position) -> Self {
        Self { iterator, position, reading: false, answered: None }
    }
}

impl StreamWatch {
    /// Opens the table's stream; returns `None` if the table has no stream with new images.
    pub(super) async fn open(store: &DynamoStore) -> Result<Option<Self>, StoreError> {
        let missing = || StoreError::NoTable(format!("there is no table {}", store.table));
        let table = store.describe().await?.ok_or_else(missing)?;
        let images = table.stream_specification.as_ref().is_some_and(|stream| {
            let view = stream.stream_view_type.as_ref().map(|view| view.as_str());
            stream.stream_enabled && matches!(view, Some("NEW_IMAGE" | "NEW_AND_OLD_IMAGES"))
        });
        let Some(arn) = table.latest_stream_arn.filter(|_| images) else { return Ok(None) };
        let stream = Stream { client: store.streams(), arn, places: Arc::new(Semaphore::new(AT_ONCE)) };
        let listed = stream.list().await?;
        let mut children: BTreeMap<&String, u32> = BTreeMap::new();
        for parent in listed.iter().filter_map(|shard| shard.parent.as_ref()) {
            *children.entry(parent).or_default() += 1;
        }
        let mut opening = JoinSet::new();
        // A shard without children is open, or has ended so lately that its children are not listed yet.
        for Listed { id, .. } in listed.iter().filter(|shard| !children.contains_key(&shard.id)) {
            let (stream, id) = (stream.clone(), id.clone());
            opening.spawn(async move { (stream.iterator(&id, &Position::Opening).await, id) });
        }
        // A parent with a single child may have been split, and the stream may list its second child later.
        let split = children.iter().filter(|(_, children)| **children == 1);
        let mut ended: BTreeMap<_, _> =
            split.map(|(parent, _)| ((*parent).clone(), Some(FURTHER_LOOKS))).collect();
        let mut shards = BTreeMap::new();
        while let Some(opened) = opening.join_next().await {
            match answered(opened) {
                (Ok(None), id) => drop(ended.insert(id, None)),
                (iterator, id) => drop(shards.insert(id, Shard::new(iterator?, Position::Opening))),
            }
        }
        let now = Instant::now();
        Ok(Some(Self {
            stream,
            every: store.watching.every,
            wake: store.wake.clone(),
            shards,
            seen: listed.into_iter().map(|shard| shard.id).collect(),
            ended,
            calls: JoinSet::new(),
            listing: false,
            changes: Vec::new(),
            failed: None,
            told: now,
            due: now,
            children_due: now,
        }))
    }

    /// Starts a read of every shard that has none in progress, and a listing if children are missing.
    fn look(&mut self) {
        let now = Instant::now();
        self.due = now + self.every;
        for (id, shard) in self.shards.iter_mut().filter(|(_, shard)| !shard.reading) {
            shard.reading = true;
            let (stream, id, position) = (self.stream.clone(), id.clone(), shard.position.clone());
            let iterator = shard.iterator.clone();
            self.calls.spawn(async move {
                let got = stream.read(&id, iterator, &position).await;
                Answer::Read(id, now, got)
            });
        }
        if !self.ended.is_empty() && !self.listing && self.children_due <= now {
            (self.listing, self.children_due) = (true, now + CHILDREN);
            let stream = self.stream.clone();
            self.calls.spawn(async move { Answer::Listed(stream.list().await) });
        }
    }

    fn take_in(&mut self, answer: Answer) {
        match answer {
            Answer::Read(id, begun, got) => {
                let Some(shard) = self.shards.get_mut(&id) else { return };
                shard.reading = false;
                match got {
                    Ok(Got::Records(got)) => {
                        shard.answered = Some(begun);
                        self.records(id, got);
                    }
                    Ok(Got::Expired) => shard.iterator = None,
                    Err(error) => self.fails(error),
                }
            }
            Answer::Listed(listed) => {
                self.listing = false;
                match listed {
                    Ok(listed) => self.follow(listed),
                    Err(error) => self.fails(error),
                }
            }
        }
    }

    fn records(&mut self, id: String, got: GetRecordsOutput) {
        let Some(shard) = self.shards.get_mut(&id) else { return };
        shard.iterator = got.next_shard_iterator;
        for record in got.records.unwrap_or_default() {
            let number = record.dynamodb.as_ref().and_then(|told| told.sequence_number.clone());
            if let Some(number) = number {
                shard.position = Position::After(number);
            }
            self.changes.extend(change(record));
        }
        if shard.iterator.is_none() {
            self.shards.remove(&id);
            self.ended.insert(id, None);
        }
    }

    /// Stores a failure until it is returned; one after which changes may be missing is never replaced by another.
    fn fails(&mut self, error: StoreError) {
        if !matches!(self.failed, Some(StoreError::Invalid(_))) {
            self.failed = Some(error);
        }
    }

    /// Follows the children of ended shards.
    fn follow(&mut self, listed: Vec<Listed>) {
        let unread: BTreeSet<_> =
            listed.iter().map(|shard| &shard.id).filter(|id| !self.seen.contains(*id)).collect();
        let waits = |parent: &String| unread.contains(parent) || self.shards.contains_key(parent);
        let ready = |shard: &&Listed| unread.contains(&shard.id) && !shard.parent.as_ref().is_some_and(waits);
        let ready: Vec<_> = listed.iter().filter(ready).collect();
        for Listed { id, parent } in ready {
            self.seen.insert(id.clone());
            self.shards.insert(id.clone(), Shard::new(None, Position::Beginning));
            if let Some(left) = parent.as_ref().and_then(|parent| self.ended.get_mut(parent)) {
                left.get_or_insert(FURTHER_LOOKS);
            }
        }
        self.ended.retain(|_, left| match left {
            None => true,
            Some(0) => false,
            Some(looks) => {
                *looks -= 1;
                true
            }
        });
    }

    /// Returns whether every shard was read since the last result was returned.
    fn all_read(&self) -> bool {
        self.shards.values().all(|shard| shard.answered.is_some_and(|at| at >= self.told))
    }
}

/// Returns the result of a task; a panic is propagated.
pub(super) fn answered<T>(ended: Result<T, tokio::task::JoinError>) -> T {
    match ended {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Waits for the signal to read; forever if there is none.
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
    let key = RecordId::of(&from_stream(told.keys?))?;
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
        loop {
            if !self.changes.is_empty() {
                self.told = Instant::now();
                return Ok(std::mem::take(&mut self.changes));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.told.elapsed() >= PATIENCE && self.all_read() {
                self.told = Instant::now();
                return Ok(Vec::new());
            }
            tokio::select! {
                Some(answer) = self.calls.join_next() => self.take_in(answered(answer)),
                () = sleep_until(self.due) => self.look(),
                // The signal may be later than a read in progress.
                () = woken(&mut self.wake), if self.calls.is_empty() => self.look(),
            }
        }
    }
}
