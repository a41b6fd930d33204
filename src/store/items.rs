//! Converts items to the SDK's types and back. Inbound conversion never fails: a value of an unknown type becomes a
//! null, which none of our records contains, so its record is unreadable and blocks no others. Of a record that is too
//! large only the key is converted. Writes contain only what they change, so the stored value is never touched.

use aws_sdk_dynamodb::types::AttributeValue as Table;
use aws_sdk_dynamodbstreams::types::AttributeValue as Stream;

use crate::model::{AttributeValue, Item, RecordId, bounded};

/// Converts an item to the SDK's form, in the map type of the call.
pub(super) fn to_sdk<M: FromIterator<(String, Table)>>(item: &Item) -> M {
    item.iter().map(|(name, value)| (name.clone(), Table::from(value.clone()))).collect()
}

/// Converts a record's key to the SDK's form.
pub(super) fn key_to_sdk<M: FromIterator<(String, Table)>>(id: &RecordId) -> M {
    [("pk", id.pk()), ("sk", id.sk())]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Table::S(value)))
        .collect()
}

/// Declares the inbound conversion of one crate's attribute values; the two crates have equal types of their own.
macro_rules! inbound {
    ($(#[$doc:meta])* $item:ident, $value:ident, $from:ident) => {
        $(#[$doc])*
        pub(super) fn $item(item: impl IntoIterator<Item = (String, $from)>) -> Item {
            bounded(item.into_iter().map(|(name, value)| (name, $value(value))).collect())
        }

        fn $value(value: $from) -> AttributeValue {
            match value {
                $from::N(n) => AttributeValue::N(n),
                $from::S(s) => AttributeValue::S(s),
                $from::Bool(b) => AttributeValue::Bool(b),
                $from::B(bytes) => AttributeValue::B(bytes.into_inner()),
                $from::Null(null) => AttributeValue::Null(null),
                $from::M(map) => AttributeValue::M(map.into_iter().map(|(k, v)| (k, $value(v))).collect()),
                $from::L(list) => AttributeValue::L(list.into_iter().map($value).collect()),
                $from::Ss(set) => AttributeValue::Ss(set),
                $from::Ns(set) => AttributeValue::Ns(set),
                $from::Bs(set) => AttributeValue::Bs(set.into_iter().map(|bytes| bytes.into_inner()).collect()),
                _ => AttributeValue::Null(true),
            }
        }
    };
}

inbound!(
    /// Converts an item of the table.
    from_sdk, value_from_sdk, Table
);
inbound!(
    /// Converts an item of a stream.
    from_stream, value_from_stream, Stream
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_attribute_crosses_and_comes_back() {
        let list = vec![AttributeValue::N("1".into()), AttributeValue::Bool(false)];
        let map = [("x".to_owned(), AttributeValue::Null(true))].into_iter().collect();
        let item: Item = [
            ("n", AttributeValue::N("-12.5".into())),
            ("s", AttributeValue::S(String::new())),
            ("bool", AttributeValue::Bool(true)),
            ("b", AttributeValue::B(vec![0, 255])),
            ("null", AttributeValue::Null(true)),
            ("l", AttributeValue::L(list)),
            ("m", AttributeValue::M(map)),
            ("ss", AttributeValue::Ss(vec!["a".into()])),
            ("ns", AttributeValue::Ns(vec!["1".into()])),
            ("bs", AttributeValue::Bs(vec![vec![1]])),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        assert_eq!(from_sdk(to_sdk::<Vec<_>>(&item)), item);
    }

    #[test]
    fn of_a_record_that_is_too_large_the_key_alone_comes_in() {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let large = [("pk", text("request#o/r#1")), ("sk", text("junk")), ("x", text(&"x".repeat(390_000)))];
        let large: Item = large.map(|(name, value)| (name.to_owned(), value)).into();
        let kept = from_sdk(to_sdk::<Vec<_>>(&large));
        assert_eq!((kept.len(), &kept["pk"], &kept["sk"]), (3, &large["pk"], &large["sk"]));
        assert!(!kept.contains_key("x"));
    }
}
