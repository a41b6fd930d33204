//! Services that are away, and how often they are asked all the same: a store and a compute provider that refuse when
//! told to, counting every call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use runyard_core::model::{InstanceId, Item, RecordId, Write};
use runyard_core::ports::{
    Change, Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState, Page, Store, StoreError,
    Watch,
};
use runyard_operator::controller::Ports;

/// Which services are away. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Switches(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    table_away: bool,
    launches_fail: Option<ComputeError>,
    asked: BTreeMap<&'static str, usize>,
}

impl Switches {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().expect("nobody panics with it"))
    }

    /// Takes the table away, or gives it back.
    pub(crate) fn table_away(&self, away: bool) {
        self.with(|inner| inner.table_away = away);
    }

    /// What every launch meets from now on.
    pub(crate) fn launches_fail(&self, error: Option<ComputeError>) {
        self.with(|inner| inner.launches_fail = error);
    }

    /// How often each service was asked since the last time this was.
    pub(crate) fn take(&self) -> BTreeMap<&'static str, usize> {
        self.with(|inner| std::mem::take(&mut inner.asked))
    }

    /// The same ports, with these switches before them.
    pub(crate) fn before(&self, ports: Ports) -> Ports {
        Ports {
            store: Arc::new(Switched { inner: ports.store, switches: self.clone() }),
            compute: Arc::new(Switched { inner: ports.compute, switches: self.clone() }),
            ..ports
        }
    }

    fn ask_table(&self) -> Result<(), StoreError> {
        self.with(|inner| {
            *inner.asked.entry("dynamodb").or_default() += 1;
            if inner.table_away { Err(StoreError::Unknown("connection refused".into())) } else { Ok(()) }
        })
    }

    fn ask_provider(&self, service: &'static str) {
        self.with(|inner| *inner.asked.entry(service).or_default() += 1);
    }
}

struct Switched<T> {
    inner: T,
    switches: Switches,
}

#[async_trait]
impl Store for Switched<Arc<dyn Store>> {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.switches.ask_table()?;
        self.inner.get(key).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.switches.ask_table()?;
        self.inner.list(after).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.switches.ask_table()?;
        self.inner.query(pk, sk_prefix, after).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.switches.ask_table()?;
        self.inner.write(write).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.switches.ask_table()?;
        self.inner.transact(writes).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.switches.ask_table()?;
        self.inner.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.switches.ask_table()?;
        let inner = self.inner.watch().await?;
        Ok(Box::new(Switched { inner, switches: self.switches.clone() }))
    }
}

#[async_trait]
impl Watch for Switched<Box<dyn Watch>> {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        self.switches.ask_table()?;
        let changes = self.inner.next().await?;
        // What was in progress when the table went away is told after it is back.
        if self.switches.with(|inner| inner.table_away) && changes.is_empty() {
            return Err(StoreError::Unknown("the connection was reset".into()));
        }
        Ok(changes)
    }
}

#[async_trait]
impl Compute for Switched<Arc<dyn Compute>> {
    fn keeps_inventory(&self) -> bool {
        self.inner.keeps_inventory()
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        self.switches.ask_provider("launches");
        if let Some(error) = self.switches.with(|inner| inner.launches_fail.clone()) {
            return Err(error);
        }
        self.inner.launch(order).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.switches.ask_provider("ec2");
        self.inner.terminate(ids).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.switches.ask_provider("ec2");
        self.inner.describe(ids).await
    }

    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        self.switches.ask_provider("ec2");
        self.inner.console(id).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.switches.ask_provider("ec2");
        self.inner.list().await
    }
}
