//! The common form of all kinds of records: a kind, a key, and a stored form that can be parsed again. A record that is
//! unreadable or of a newer schema is reported by name and left alone.

pub(crate) mod bounds;
pub(crate) mod condition;
pub(crate) mod event;
pub(crate) mod field;
pub(crate) mod identity;
pub(crate) mod ids;
pub(crate) mod item;
pub(crate) mod lease;
pub(crate) mod ring;
pub(crate) mod set_place;
pub(crate) mod slot;
pub(crate) mod state;
pub(crate) mod stored;
pub(crate) mod text;
pub(crate) mod time;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::model::record::bounds::{MOST_RECORD_BYTES, too_large};
use crate::model::record::field::FieldError;
use crate::model::record::identity::{Kind, RecordId};
use crate::model::record::ids::Uid;
use crate::model::record::item::{AttributeValue, Item};
use crate::model::record::stored::{Guard, Write};

/// The newest form of records this program understands.
pub const SCHEMA: u64 = 1;

/// The result of parsing an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading<T> {
    /// A record.
    Record(T),
    /// Written by a newer program: left alone.
    Newer {
        /// Its `schema`.
        schema: u64,
    },
    /// Unreadable: left alone and reported by name.
    Unreadable(Unreadable),
}

/// Why an item cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {key} cannot be read: {problem}")]
pub struct Unreadable {
    /// The record.
    pub key: RecordId,
    /// The attribute and its fault.
    pub problem: String,
}

/// A kind of record and its stored form. `Row` is the flat shape of the contract; in the record's own shape, impossible
/// states cannot be represented.
pub trait Record: Sized + Clone {
    /// The kind of the record.
    const KIND: Kind;
    /// Its attributes as the contract lists them, without `pk`, `sk` and `kind`.
    type Row: Serialize + DeserializeOwned;

    /// Returns its key.
    fn key(&self) -> RecordId;
    /// Returns its attributes.
    fn to_row(&self) -> Self::Row;
    /// Parses the row from an item's attributes.
    ///
    /// # Errors
    /// Names the attribute that is missing or of another type.
    fn row(attributes: &Item) -> Result<Self::Row, String> {
        parse(attributes)
    }
    /// Builds the record from a row.
    ///
    /// # Errors
    /// Names the attribute that contradicts the key, another attribute or the contract.
    fn from_row(key: &RecordId, row: Self::Row) -> Result<Self, FieldError>;

    /// Returns the whole stored item.
    fn to_item(&self) -> Item {
        item_of::<Self>(&self.key(), &self.to_row())
    }
}

/// Builds the stored item of a row.
pub(super) fn item_of<T: Record>(key: &RecordId, row: &T::Row) -> Item {
    let row: serde_dynamo::Item =
        serde_dynamo::to_item(row).expect("a row has only types that DynamoDB can hold");
    let mut item: Item = row.into_inner().into_iter().collect();
    item.insert("pk".into(), AttributeValue::S(key.pk()));
    item.insert("sk".into(), AttributeValue::S(key.sk()));
    item.insert("kind".into(), AttributeValue::S(T::KIND.as_str().into()));
    item
}

/// A record with a version: 1 at first, one more with each write.
pub trait Versioned: Record {
    /// Returns the version that is stored.
    fn version(&self) -> u64;
    /// Returns the identity of the record where its key is not enough. An instance's key is enough: no two machines
    /// share an ARN.
    fn uid(&self) -> Option<&Uid>;
    /// Makes this the next write of the record: version one higher, `updatedAt` now.
    fn advance(&mut self, now: Timestamp);
    /// Records, once the change is made, what the change completes.
    fn settle(&mut self, _before: &Self) {}

    /// Builds the write that replaces `before` by `self`, if the store still has `before`.
    fn replacing(&self, before: &Self) -> Write {
        debug_assert_eq!(
            self.version(),
            before.version() + 1,
            "a change is one version ahead of what it replaces"
        );
        Write::difference(self.key(), Guard::image(before), &before.to_item(), &self.to_item())
    }

    /// Builds the write that creates the record.
    fn creating(&self) -> Write {
        debug_assert_eq!(self.version(), 1, "a record is born with version 1");
        Write::create(self.key(), self.to_item())
    }
}

impl Guard {
    /// Builds the guard that the record is still the one that was read, in the same version.
    pub fn image(read: &impl Versioned) -> Self {
        match read.uid() {
            Some(uid) => Self::Image(uid.clone(), read.version()),
            None => Self::Version(read.version()),
        }
    }
}

/// Reads an item as a record of a kind.
pub fn read<T: Record>(item: &Item) -> Reading<T> {
    let Some(key) = RecordId::of(item) else {
        return unreadable(RecordId::new("", ""), "pk and sk must be strings".into());
    };
    if let Some(bytes) = too_large(item) {
        return unreadable(key, format!("it has {bytes} bytes; at most {MOST_RECORD_BYTES} bytes are read"));
    }
    match item.get("schema") {
        None => {}
        Some(AttributeValue::N(n)) => match n.parse::<u64>() {
            Ok(schema) if schema > SCHEMA => return Reading::Newer { schema },
            Ok(_) => {}
            Err(_) => return unreadable(key, format!("schema: {n} is not a whole number")),
        },
        Some(_) => return unreadable(key, "schema: must be a number".into()),
    }
    match item.get("kind") {
        Some(AttributeValue::S(kind)) if kind == T::KIND.as_str() => {}
        Some(AttributeValue::S(kind)) => {
            return unreadable(key, format!("kind: {kind} under the key of a {}", T::KIND));
        }
        Some(_) | None => return unreadable(key, "kind: missing or not a string".into()),
    }
    if let Some(problem) = COUNTS.iter().find_map(|name| overflowing(name, item.get(*name))) {
        return unreadable(key, problem);
    }
    let row = match T::row(item) {
        Ok(row) => row,
        Err(problem) => return unreadable(key, problem),
    };
    match T::from_row(&key, row) {
        Ok(record) if record.key() == key => Reading::Record(record),
        Ok(record) => unreadable(key, format!("pk, sk: its attributes belong under {}", record.key())),
        Err(error) => unreadable(key, error.to_string()),
    }
}

/// Attributes that rise by one.
const COUNTS: [&str; 11] = [
    "attempt",
    "generation",
    "heartbeatSeq",
    "observedGeneration",
    "registrationDone",
    "registrationFailures",
    "registrationSeq",
    "renewals",
    "token",
    "uses",
    "version",
];

/// The largest count. At ten a second it takes six years to reach it; a larger one was forged to provoke an overflow.
const COUNT_LIMIT: u64 = 1 << 31;

fn overflowing(name: &str, value: Option<&AttributeValue>) -> Option<String> {
    let Some(AttributeValue::N(n)) = value else { return None };
    let counts = n.parse::<u64>().is_ok_and(|n| n < COUNT_LIMIT);
    (!counts).then(|| format!("{name}: {n} is not a whole number below {COUNT_LIMIT}"))
}

/// Parses attributes as a type that lists them, and ignores unknown ones. Errors distinguish types by the names of
/// their attributes, so a row with flattened parts (serde forgets names there) parses its parts one by one.
pub(super) fn parse<T: DeserializeOwned>(attributes: &Item) -> Result<T, String> {
    let entries = attributes.iter().map(|(name, value)| (name.as_str(), Attribute(value)));
    serde_path_to_error::deserialize(MapDeserializer::new(entries)).map_err(|error| {
        let path = error.path().to_string();
        let name = path.split(['.', '[']).next().unwrap_or_default();
        match attributes.get(name) {
            Some(value) if has_null(value) => {
                format!("{path}: NULL is no value; none is \"\" or the attribute left out")
            }
            Some(_) | None => format!("{path}: {}", error.inner()),
        }
    })
}

/// Returns whether a value is NULL, or contains one.
fn has_null(value: &AttributeValue) -> bool {
    match value {
        AttributeValue::Null(_) => true,
        AttributeValue::L(list) => list.iter().any(has_null),
        AttributeValue::M(map) => map.values().any(has_null),
        AttributeValue::N(_)
        | AttributeValue::S(_)
        | AttributeValue::Bool(_)
        | AttributeValue::B(_)
        | AttributeValue::Ss(_)
        | AttributeValue::Ns(_)
        | AttributeValue::Bs(_) => false,
    }
}

/// Replaces each NULL in a value by one that no attribute of ours can be parsed from. Serde reads NULL as an absent
/// attribute, which the contract writes differently.
fn without_null(value: &AttributeValue) -> AttributeValue {
    match value {
        AttributeValue::Null(_) => AttributeValue::B(vec![0xff]),
        AttributeValue::L(list) => AttributeValue::L(list.iter().map(without_null).collect()),
        AttributeValue::M(map) => {
            AttributeValue::M(map.iter().map(|(name, value)| (name.clone(), without_null(value))).collect())
        }
        AttributeValue::N(_)
        | AttributeValue::S(_)
        | AttributeValue::Bool(_)
        | AttributeValue::B(_)
        | AttributeValue::Ss(_)
        | AttributeValue::Ns(_)
        | AttributeValue::Bs(_) => value.clone(),
    }
}

/// An attribute that is copied when it is parsed, instead of the whole item before.
struct Attribute<'a>(&'a AttributeValue);

impl<'de> IntoDeserializer<'de, serde_dynamo::Error> for Attribute<'_> {
    type Deserializer = serde_dynamo::Deserializer;

    fn into_deserializer(self) -> Self::Deserializer {
        let value = if has_null(self.0) { without_null(self.0) } else { self.0.clone() };
        serde_dynamo::Deserializer::from_attribute_value(value)
    }
}

/// Longest problem text, in characters: the value may have 400 KB.
const SHOWN: usize = 400;

fn unreadable<T>(key: RecordId, problem: String) -> Reading<T> {
    Reading::Unreadable(Unreadable { key, problem: problem.chars().take(SHOWN).collect() })
}
