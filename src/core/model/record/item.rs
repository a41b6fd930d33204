//! The stored form of one record: its attributes.

use std::collections::BTreeMap;

use jiff::Timestamp;
pub use serde_dynamo::AttributeValue;

/// The attributes of one record as DynamoDB holds them, in a fixed order.
pub type Item = BTreeMap<String, AttributeValue>;

/// Returns the text of an attribute, if it is one, without parsing the record.
pub fn text_of<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    match item.get(name) {
        Some(AttributeValue::S(text)) => Some(text),
        Some(_) | None => None,
    }
}

/// Returns the time of an attribute, if it is one, without parsing the record.
pub fn time_of(item: &Item, name: &str) -> Option<Timestamp> {
    text_of(item, name)?.parse().ok()
}
