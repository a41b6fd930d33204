//! What does the operator do while it lists the table, and how often does it? A list of a large table takes seconds to
//! minutes; requests and signals must not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{Item, RecordId, State, Write};
use runyard_core::ports::{Page, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use runyard_tests::world::{World, item, linux};

/// A table whose pages take their time, or do not come until they are let through.
struct Slow {
    store: MemoryStore,
    page_takes: Duration,
    /// How long a page that was read is on its way.
    on_its_way: Duration,
    /// Whether pages come.
    open: watch::Sender<bool>,
    /// Lists that were begun, and that came to their end.
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Slow {
    fn new(world: &World, page_takes: Duration) -> Arc<Self> {
        Arc::new(Self::of(world, page_takes, Duration::ZERO))
    }

    fn of(world: &World, page_takes: Duration, on_its_way: Duration) -> Self {
        let (store, open) = (world.store.clone(), watch::Sender::new(true));
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { store, page_takes, on_its_way, open, begun, ended }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Store for Slow {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.store.get(key).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.begun.fetch_add(usize::from(after.is_none()), Ordering::SeqCst);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the table outlives its lists");
        tokio::time::sleep(self.page_takes).await;
        let page = self.store.list(after).await?;
        tokio::time::sleep(self.on_its_way).await;
        self.ended.fetch_add(usize::from(page.next.is_none()), Ordering::SeqCst);
        Ok(page)
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

/// Waits until another list has begun than those so far.
async fn until_listing(world: &World, table: &Slow) {
    let before = table.begun();
    world.until("a list begins", Duration::from_secs(400), async || table.begun() > before).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_read_before_a_removal_and_taken_in_after_it_brings_nothing_back() {
    let world = World::new();
    let table = Arc::new(Slow::of(&world, Duration::ZERO, Duration::from_secs(10)));
    world.pool(linux(0, 5)).await;
    world.start_on("one", table.clone());
    until_listing(&world, &table).await;
    world.sleep(1).await;
    world.store.remove(&RecordId::new("pool#linux", "pool"));
    let (lists, asked) = (table.ended(), world.provision("1", "linux", 1, json!({})).await);
    world.until("the page came", Duration::from_secs(30), async || table.ended() > lists).await;
    world.until_phase(&asked, "Failed", 60).await;
    let request = world.request(&asked).await;
    assert!(request.status.message.starts_with("UnknownClass"), "{}", request.status.message);
    assert_eq!(world.compute.orders().len(), 0, "nothing was launched");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_is_served_while_a_list_does_not_come_to_its_end() {
    let world = World::new();
    let table = Slow::new(&world, Duration::ZERO);
    world.pool(linux(1, 2)).await;
    world.start_on("one", table.clone());
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    table.open.send_replace(false);
    until_listing(&world, &table).await;
    let ended = table.ended();
    let request = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&request, "Ready", 5).await;
    world.release(&request).await;
    world.until_phase(&request, "Released", 5).await;
    assert_eq!(table.ended(), ended, "the list is still in progress");
    table.open.send_replace(true);
    world.until("the list ends", Duration::from_secs(5), async || table.ended() == ended + 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_is_taken_in_within_200_ms_inside_a_list_of_100_000_records() {
    let world = World::on(MemoryStore::new().paged(1000), false);
    let event =
        |number: u32| item(&json!({"pk": format!("event#{number}"), "sk": "event#1", "kind": "event"}));
    (0..100_000).for_each(|number| world.store.put(event(number)));
    let table = Slow::new(&world, Duration::from_millis(100));
    world.pool(linux(2, 2)).await;
    world.start_on("one", table.clone());
    // Both are warm by then; each look at all records would take a while.
    world.sleep(90).await;
    let mut took = Vec::new();
    for run in ["outside", "inside"] {
        if run == "inside" {
            until_listing(&world, &table).await;
        }
        let (listing, asked) = (table.begun() > table.ended(), Instant::now());
        assert_eq!(listing, run == "inside");
        let request = world.provision(&format!("run-{run}"), "linux", 1, json!({})).await;
        world.until_phase(&request, "Ready", 60).await;
        took.push(asked.elapsed());
        assert_eq!(table.begun() > table.ended(), listing, "the list did not end meanwhile");
    }
    assert!(took[1] <= took[0] + Duration::from_millis(200), "{took:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_lists_once_when_it_starts_and_once_when_it_takes_over() {
    let world = World::new();
    world.pool(linux(1, 4)).await;
    let tables = [(); 2].map(|()| Slow::new(&world, Duration::from_millis(20)));
    let leader = world.start_on("one", tables[0].clone());
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    world.start_on("two", tables[1].clone());
    world.sleep(60).await;
    assert_eq!(tables.each_ref().map(|table| table.begun()), [1, 1], "each once at its start");
    world.hang(&leader);
    let cold = world.provision("1", "linux", 3, json!({})).await;
    world.until_phase(&cold, "Ready", 120).await;
    assert_eq!(tables[1].begun(), 2, "once more before it spends the first budget");
    assert!(world.in_state(State::Running).len() >= 3);
    world.stop().await;
}
