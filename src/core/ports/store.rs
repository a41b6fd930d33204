//! The store port. Reads are strongly consistent, but for [`Store::glance`]. Writes are conditional by construction (`model::Write`), so no write
//! can overwrite another writer's. The two exceptions are appended events, which have fresh keys, and an agent's own
//! status (`Guard::Exists`).

use async_trait::async_trait;

use crate::model::{Item, RecordId, Write};

/// A page of records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The records; possibly none although more follow.
    pub items: Vec<Item>,
    /// The key after which the next page begins; none at the end.
    pub next: Option<RecordId>,
}

/// A change of a record, as a watch reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The record's key.
    pub key: RecordId,
    /// The record's current content; none when it is gone. A hint: order and completeness are not guaranteed.
    pub item: Option<Item>,
}

/// Why one write of a transaction, or a single write, was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The record's key.
    pub key: RecordId,
    /// The record's actual content; none when it does not exist or was not returned.
    pub current: Option<Item>,
}

/// Why a call to the store failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A guard did not hold, because another writer was first. Read and decide again.
    #[error("another writer was first: {}", refusals.iter().map(|r| r.key.to_string()).collect::<Vec<_>>().join(", "))]
    Refused {
        /// The records whose guards failed.
        refusals: Vec<Refusal>,
    },
    /// Another transaction holds the record. Try again. As with every error but a refusal, an earlier attempt of this
    /// call may have been applied.
    #[error("another transaction holds the record")]
    Contended,
    /// Too many calls. Try again later. An attempt before the throttled one may have been applied.
    #[error("the table limits the rate of calls")]
    Throttled,
    /// No response: a write may or may not have happened.
    #[error("no answer from the table: {0}")]
    Unknown(String),
    /// A person must fix credentials or permissions.
    #[error("the table denied the call: {0}")]
    Denied(String),
    /// There is no such table, or it has another shape.
    #[error("no usable table: {0}")]
    NoTable(String),
    /// The call is invalid, for example an item over 400 KB.
    #[error("the table refused the call: {0}")]
    Invalid(String),
}

impl StoreError {
    /// Returns the label for metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Contended => "contended",
            Self::Throttled => "throttled",
            Self::Unknown(_) => "unknown",
            Self::Denied(_) => "denied",
            Self::NoTable(_) => "no-table",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// The store port.
#[async_trait]
pub trait Store: Send + Sync {
    /// Returns one record.
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError>;

    /// Returns one record as it was at some earlier moment, for half the price of [`Store::get`]. The last writes may be
    /// missing, and the record may be older than an earlier read showed it. So nothing is decided by it: it tells when
    /// to use [`Store::get`]. A store without such reads makes a strong one.
    async fn glance(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.get(key).await
    }

    /// Lists every record of the table, a page at a time, in no particular order.
    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError>;

    /// Lists the records under one partition key whose sort key begins with a prefix, a page at a time, in the order of
    /// their sort keys.
    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError>;

    /// Sends one conditional write and returns the record afterwards (empty after a deletion). A write that finds its
    /// own result, because the response to an earlier attempt was lost, is a success.
    async fn write(&self, write: &Write) -> Result<Item, StoreError>;

    /// Sends several conditional writes of different records (at most 100): all or none.
    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError>;

    /// Adds records under fresh keys, without conditions, and returns how many were dropped.
    async fn append(&self, items: &[Item]) -> Result<usize, StoreError>;

    /// Opens a watch of all changes from now on.
    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError>;
}

/// A running watch.
#[async_trait]
pub trait Watch: Send {
    /// Waits for changes, at most a second or two, and returns them. An empty result is a successful read without
    /// changes. It can be cancelled at any await without losing changes.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] and [`StoreError::Throttled`] pass; after [`StoreError::Invalid`] changes may have been
    /// missed (a trimmed stream): open a new watch and list again.
    async fn next(&mut self) -> Result<Vec<Change>, StoreError>;
}
