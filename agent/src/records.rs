//! An agent's access to its records: it reads its instance record, and reads and changes attributes of its own agent
//! record if that exists. No other access can be expressed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use runyard_core::model::{
    Agent, Guard, Instance, InstanceArn, Item, Operation, Reading, RecordId, Write, read,
};
use runyard_core::ports::{Store, StoreError};

use crate::step::Stored;
use crate::step::orders::Sight;

/// A change of the agent's own record; every change increments `heartbeatSeq`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Attributes and their new values.
    pub set: Item,
    /// Attributes to remove.
    pub remove: BTreeSet<String>,
}

/// A machine's two records.
#[async_trait]
pub trait Records: Send + Sync {
    /// Reads the instance record, with strong consistency.
    ///
    /// # Errors
    /// The store did not respond.
    async fn instance(&self) -> Result<Sight, StoreError>;

    /// Reads the instance record as it was at some earlier moment ([`Store::glance`]). Nothing is decided by it.
    ///
    /// # Errors
    /// The store did not respond.
    async fn glance(&self) -> Result<Sight, StoreError>;

    /// Reads the agent's own record.
    ///
    /// # Errors
    /// The store did not respond.
    async fn own(&self) -> Result<Stored, StoreError>;

    /// Changes the agent's own record, if it exists, and returns its new state: [`Stored::Absent`] if there is none.
    ///
    /// # Errors
    /// The store did not respond, or refused for another reason.
    async fn write(&self, change: &Change) -> Result<Stored, StoreError>;

    /// Writes the machine's `log` record, and replaces its former contents.
    ///
    /// # Errors
    /// The store did not respond, or refused.
    async fn log(&self, item: &Item) -> Result<(), StoreError>;
}

/// Returns the key of a machine's `log` record. Operators read no records of its kind.
pub fn log_key(arn: &InstanceArn) -> RecordId {
    RecordId::new(Agent::key_of(arn).pk(), "log")
}

/// The records in the table. Generic, so that a program links only those functions of a store that are called here.
pub struct TableRecords<S> {
    store: Arc<S>,
    arn: InstanceArn,
}

impl<S: Store> TableRecords<S> {
    /// Creates the records of one machine.
    pub fn new(store: Arc<S>, arn: InstanceArn) -> Self {
        Self { store, arn }
    }
}

/// Reads the agent's own record. Others may have damaged it; then every field is written again.
fn stored(item: Option<&Item>) -> Stored {
    match item.map(read::<Agent>) {
        None => Stored::Absent,
        Some(Reading::Record(agent)) => Stored::Known(Box::new(agent)),
        Some(Reading::Newer { .. } | Reading::Unreadable(_)) => Stored::Unknown,
    }
}

#[async_trait]
impl<S: Store> Records for TableRecords<S> {
    async fn instance(&self) -> Result<Sight, StoreError> {
        Ok(Sight::of(self.store.get(&Instance::key_of(&self.arn)).await?.as_ref()))
    }

    async fn glance(&self) -> Result<Sight, StoreError> {
        Ok(Sight::of(self.store.glance(&Instance::key_of(&self.arn)).await?.as_ref()))
    }

    async fn own(&self) -> Result<Stored, StoreError> {
        Ok(stored(self.store.get(&Agent::key_of(&self.arn)).await?.as_ref()))
    }

    async fn write(&self, change: &Change) -> Result<Stored, StoreError> {
        let operation = Operation::Update {
            guard: Guard::Exists,
            set: change.set.clone(),
            remove: change.remove.clone(),
            add: BTreeMap::from([("heartbeatSeq".to_owned(), 1)]),
        };
        match self.store.write(&Write { key: Agent::key_of(&self.arn), operation }).await {
            Ok(item) => Ok(stored(Some(&item))),
            Err(StoreError::Refused { .. }) => Ok(Stored::Absent),
            Err(error) => Err(error),
        }
    }

    async fn log(&self, item: &Item) -> Result<(), StoreError> {
        let write = Write::update(log_key(&self.arn), Guard::Anything, item.clone(), BTreeMap::new());
        self.store.write(&write).await.map(drop)
    }
}
