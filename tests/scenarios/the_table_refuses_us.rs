//! What if the table is not there, or we may not list it? At the start that is a mistake in the set-up, and the
//! operator says so and ends; later it passes, and the operator goes on with what it knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use runyard_core::model::{Item, RecordId, Write};
use runyard_core::ports::{Page, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;
use runyard_operator::controller::{OperatorError, Ports, run};
use runyard_operator::status::Health;
use tokio_util::sync::CancellationToken;

use runyard_tests::world::{World, linux, settings};

/// A table that answers its first so many lists, and then refuses them.
struct Refusing {
    store: MemoryStore,
    missing: bool,
    lists: AtomicU32,
}

impl Refusing {
    fn after(lists: u32, world: &World) -> Arc<Self> {
        Arc::new(Self { store: world.store.clone(), missing: false, lists: lists.into() })
    }
}

#[async_trait]
impl Store for Refusing {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        if self.missing {
            return Err(StoreError::NoTable("runyard".into()));
        }
        self.store.get(key).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        let left = self.lists.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map_err(|_| StoreError::Denied("dynamodb:Scan".into()))?;
        self.store.list(after).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.store.query(pk, sk_prefix, after).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.store.write(write).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.store.transact(writes).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.store.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.store.watch().await
    }
}

/// How an operator on this table ends by itself.
async fn ends(world: &World, store: Arc<dyn Store>) -> OperatorError {
    let health = Arc::new(Health::new(Arc::new(world.clock)));
    let ports = world.ports("one", |ports| Ports { store, ..ports });
    let stop = CancellationToken::new();
    let ended = run(ports, settings("one"), health, stop.clone()).await.unwrap_err();
    assert!(!stop.is_cancelled(), "whoever started it decides what becomes of the rest");
    ended
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_not_there_is_said_at_once() {
    let world = World::new();
    let store = Refusing { store: world.store.clone(), missing: true, lists: 9.into() };
    let ended = ends(&world, Arc::new(store)).await;
    assert!(matches!(ended, OperatorError::Table(StoreError::NoTable(_))), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_may_not_be_listed_at_the_start_ends_the_operator_with_the_reason() {
    let world = World::new();
    let ended = ends(&world, Refusing::after(0, &world)).await;
    assert!(ended.to_string().contains("dynamodb:Scan"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_may_not_be_listed_any_more_is_worked_on_from_what_is_known() {
    let world = World::new();
    world.pool(linux(0, 2)).await;
    world.start_on("one", Refusing::after(1, &world));
    world.sleep(2000).await;
    let request = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&request, "Ready", 60).await;
    world.stop().await;
}
