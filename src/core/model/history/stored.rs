//! Lines as items of the history table. A day's lines are in a few partitions, in the order of their times, so that
//! queries can read them; its events are in separate partitions, by subject.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::Serialize;

use super::HistoryLine;
use crate::model::record::event::Event;
use crate::model::record::identity::{Key, RecordId};
use crate::model::record::ids::{Repository, RunId};
use crate::model::record::item::{AttributeValue, Item};
use crate::model::record::{Reading, read};

/// How many partitions a day's lines have, and how many its events have: each takes 1 000 writes a second.
pub const SHARDS: u32 = 4;

/// The value of `kind` of a line.
const KIND: &str = "history";

/// Returns the day, in UTC, on which something ended.
pub fn day_of(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

/// Lists the days from one moment to another, both included, in order.
pub fn days(from: Timestamp, to: Timestamp) -> impl Iterator<Item = Date> {
    let last = day_of(to);
    day_of(from).series(Span::new().days(1)).take_while(move |day| *day <= last)
}

/// Returns the partitions of a day's lines.
pub fn partitions(day: Date) -> impl Iterator<Item = String> {
    (0..SHARDS).map(move |shard| format!("history#{day}#{shard}"))
}

/// Returns the partitions of a day's events.
pub fn event_partitions(day: Date) -> impl Iterator<Item = String> {
    (0..SHARDS).map(move |shard| format!("events#{day}#{shard}"))
}

/// Returns the partition of a day's events of a subject, given by its `pk`, and the prefix of their sort keys.
pub fn events_of(subject: &str, day: Date) -> (String, String) {
    (format!("events#{day}#{}", shard(subject)), format!("{subject}#event#"))
}

/// Returns the partition of the statements about the claims of a run. It is the run's alone, so that a workflow can be
/// allowed to read its own.
pub fn statements_of_run(repository: &Repository, run: &RunId) -> String {
    format!("statement#{}", RecordId::partition(&repository.folded(), run))
}

/// Returns the partition of a day that a name belongs to: FNV-1a, which every program computes alike.
fn shard(name: &str) -> u32 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % SHARDS
}

/// Builds the item of a line of this kind under a key, which may be deleted at that second.
pub(crate) fn item_of(line: &impl Serialize, key: Key, kind: &str, expires_at: i64) -> Item {
    let row: serde_dynamo::Item =
        serde_dynamo::to_item(line).expect("a line has only types that DynamoDB can hold");
    let mut item: Item = row.into_inner().into_iter().collect();
    item.insert("pk".into(), AttributeValue::S(key.pk));
    item.insert("sk".into(), AttributeValue::S(key.sk));
    item.insert("kind".into(), AttributeValue::S(kind.into()));
    item.insert("expiresAt".into(), AttributeValue::N(expires_at.to_string()));
    item
}

impl HistoryLine {
    /// Returns the key under which every writer of this line stores it.
    pub fn key(&self) -> Key {
        let (kind, name) = match self {
            Self::Request(line) => {
                let begun = line.created_at.or(line.accepted_at).unwrap_or(line.ended_at);
                ("request", format!("{}#{}#{begun:.3}", line.request.pk(), line.request.sk()))
            }
            Self::Machine(line) => ("machine", format!("{}#{:.3}", line.instance_id, line.from())),
            Self::LaunchFailure(line) => ("launch", format!("{}#{}", line.launch_id, line.attempt)),
            Self::Statement(line) => {
                let (request, claim) = (&line.request, &line.claim_id);
                return Key::new(format!("statement#{}", request.pk()), format!("{}#{claim}", request.sk()));
            }
            Self::Event(event) => {
                let (pk, prefix) = events_of(&event.subject, day_of(event.at));
                return Key::new(pk, format!("{prefix}{}", event.place));
            }
        };
        let at = self.at();
        let pk = format!("history#{}#{}", day_of(at), shard(&name));
        Key::new(pk, format!("{at:.3}#{kind}#{name}"))
    }

    /// Returns the item that is stored, and may be deleted after `keep_seconds`.
    pub fn to_item(&self, keep_seconds: i64) -> Item {
        item_of(self, self.key(), KIND, self.at().as_second().saturating_add(keep_seconds))
    }

    /// Parses an item of the history table as a line.
    ///
    /// # Errors
    /// Describes the part of the item that cannot be read.
    pub fn of_item(item: &Item) -> Result<Self, String> {
        let row = AttributeValue::M(item.clone().into_iter().collect());
        let line: Self = serde_dynamo::from_attribute_value(row).map_err(|error| error.to_string())?;
        Ok(match line {
            Self::Event(event) => {
                let sk = Key::of(item).map(|key| key.sk).unwrap_or_default();
                let place = sk.split_once("#event#").map_or("", |(_, place)| place).to_owned();
                Self::Event(Event { place, ..event })
            }
            line @ (Self::Request(_) | Self::Machine(_) | Self::LaunchFailure(_) | Self::Statement(_)) => {
                line
            }
        })
    }

    /// Builds the line of an event from its item in the yard's table; none for another record.
    pub fn of_event(item: &Item) -> Option<Self> {
        match read::<Event>(item) {
            Reading::Record(event) => Some(Self::Event(event)),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        }
    }
}

impl Event {
    /// Returns its key in the yard's table, whichever table stores it.
    pub fn id(&self) -> RecordId {
        RecordId::Event { subject: self.subject.as_str().into(), place: self.place.as_str().into() }
    }
}
