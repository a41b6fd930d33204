//! The stored form of one record: its attributes.

use std::collections::BTreeMap;

pub use serde_dynamo::AttributeValue;

/// The attributes of one record as DynamoDB holds them, in a fixed order.
pub type Item = BTreeMap<String, AttributeValue>;
