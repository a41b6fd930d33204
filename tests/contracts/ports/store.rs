//! The suite of the store port, and what it is run on.

mod guards;
mod races;
mod reads;
mod tables;
mod transactions;
mod watches;
mod writes;

use std::sync::Arc;

use runyard_core::model::{AttributeValue, Item, RecordId, Write};
use runyard_core::ports::{Refusal, Store, StoreError};

pub(crate) use tables::{Tables, connect, sdk_config};

/// One empty table, through several doors.
pub(crate) struct Table {
    /// As it is used.
    pub(crate) store: Arc<dyn Store>,
    /// In pages of two records.
    pub(crate) paged: Arc<dyn Store>,
    /// Watching without a stream, where there is a choice.
    pub(crate) polling: Arc<dyn Store>,
}

/// Runs each test on each engine, on a table of its own.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        $crate::ports::store::on_strict_engines!($($test),+);
        mod ministack {
            $(#[tokio::test] async fn $test() { super::$test($crate::ports::store::Tables::Ministack.fresh().await).await })+
        }
    };
}
pub(crate) use on_every_engine;

/// The same without ministack, which takes some of what DynamoDB refuses.
macro_rules! on_strict_engines {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test($crate::ports::store::Tables::Memory.fresh().await).await })+
        }
        mod dynoxide {
            $(#[tokio::test] async fn $test() { super::$test($crate::ports::store::Tables::Dynoxide.fresh().await).await })+
        }
        mod given {
            $(#[tokio::test]
            async fn $test() {
                if let Some(table) = $crate::ports::store::Tables::given().await { super::$test(table).await }
            })+
        }
    };
}
pub(crate) use on_strict_engines;

/// The key of the record most tests need.
fn key(name: &str) -> RecordId {
    RecordId::new(format!("test#{name}"), "test")
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Attributes by name.
fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A record with its key, as a store answers it.
fn keyed(key: &RecordId, mut attributes: Item) -> Item {
    attributes.insert("pk".into(), text(&key.pk()));
    attributes.insert("sk".into(), text(&key.sk()));
    attributes
}

/// Creates a record with version 1 and this state.
async fn born(store: &dyn Store, key: &RecordId, state: &str) -> Item {
    let attributes = item([("version", number(1)), ("state", text(state))]);
    let write = Write::create(key.clone(), keyed(key, attributes));
    store.write(&write).await.expect("a fresh key can be created")
}

/// The refusals of an outcome that must be one.
fn refusals<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> Vec<Refusal> {
    match outcome {
        Err(StoreError::Refused { refusals }) => refusals,
        other => panic!("a refusal was due, not {other:?}"),
    }
}

/// Whether an outcome is the error of this label.
fn is<T>(outcome: &Result<T, StoreError>, label: &str) -> bool {
    outcome.as_ref().is_err_and(|error| error.label() == label)
}
