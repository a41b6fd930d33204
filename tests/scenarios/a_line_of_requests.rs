//! Many requests wait for machines of one class.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{Item, Phase, RecordId, Request, Write};
use runyard_core::ports::{Page, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;
use runyard_operator::status::{Health, Unready};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use runyard_tests::world::{World, linux, settings};

/// A table that cannot hold one claim, as DynamoDB cannot whose request would pass 400 KB.
struct Poisoned {
    store: MemoryStore,
    request: RecordId,
}

#[async_trait]
impl Store for Poisoned {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.store.get(key).await
    }
    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.store.list(after).await
    }
    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.store.query(pk, sk_prefix, after).await
    }
    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.store.write(write).await
    }
    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        if writes.iter().any(|write| write.key == self.request) {
            return Err(StoreError::Invalid("Item size has exceeded the maximum allowed size".into()));
        }
        self.store.transact(writes).await
    }
    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.store.append(items).await
    }
    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.store.watch().await
    }
}

#[tokio::test(start_paused = true)]
async fn one_claim_that_can_never_be_written_does_not_hold_up_its_class() {
    let world = World::new();
    world.pool(linux(3, 3)).await;
    let request = RecordId::new("request#acme/web#1", "request#default#1");
    world.start_on("one", Arc::new(Poisoned { store: world.store.clone(), request }));
    world.until("three are free", Duration::from_secs(300), async || world.pooled().len() == 3).await;
    let poisoned = world.provision("1", "linux", 1, json!({"timeoutSeconds": 3600})).await;
    // It rests half a minute at a time by now.
    world.sleep(120).await;
    let honest = world.provision("2", "linux", 1, json!({})).await;
    world.until_phase(&honest, "Ready", 5).await;
    assert_eq!(world.request(&poisoned).await.status.instances, []);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_line_is_ready_before_the_last_is_claimed() {
    let world = World::new();
    world.pool(linux(400, 400)).await;
    world.start();
    world.until("all are free", Duration::from_secs(600), async || world.pooled().len() == 400).await;
    for run in 0..400 {
        world.provision(&format!("{run:03}"), "linux", 1, json!({})).await;
    }
    world.store.every_call_takes(Duration::from_millis(50));
    let ready = |requests: &[Request]| requests.iter().filter(|r| r.phase() == Phase::Ready).count();
    world.until("the first is ready", Duration::from_secs(30), async || ready(&world.all()) > 0).await;
    assert!(!world.pooled().is_empty(), "all are claimed before one is ready");
    let all = async || ready(&world.all()) == 400;
    world.until("all are ready", Duration::from_secs(60), all).await;
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_floods_is_told_so_and_another_is_served() {
    let world = World::new().set(|settings| settings.requests_per_repository = 5);
    world.pool(linux(0, 1)).await;
    world.start();
    let mut flood = Vec::new();
    for run in 0..40 {
        flood.push(world.provision(&format!("{run:02}"), "linux", 1, json!({})).await);
    }
    let refused = || {
        let all: Vec<Request> = world.all();
        all.into_iter().filter(|r| r.status.message.starts_with("TooMany: acme/web has 5 open")).count()
    };
    world.until("all but five are refused", Duration::from_secs(10), async || refused() == 35).await;
    let other = json!({"pk": "request#acme/api#99", "runId": "99", "repository": "acme/api"});
    let other = world.provision("99", "linux", 1, other).await;
    world.until_phase(&other, "Pending", 2).await;
    let open = |request: &&Request| request.status.phase.is_some_and(Phase::wants_machines);
    assert_eq!(world.all::<Request>().iter().filter(open).count(), 6);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_does_not_turn_any_more_is_not_ready() {
    let world = World::new();
    let health = Arc::new(Health::new(Arc::new(world.clock)));
    let ports = world.ports("one", |ports| ports);
    let running =
        runyard_operator::controller::run(ports, settings("one"), health.clone(), CancellationToken::new());
    let running = tokio::spawn(running);
    let verdict = || health.verdict();
    world.until("it is ready", Duration::from_secs(5), async || verdict() == Ok(())).await;
    world.sleep(30).await;
    assert_eq!(verdict(), Ok(()), "it turns although nothing happens");
    running.abort();
    world.sleep(7).await;
    assert!(matches!(verdict(), Err(Unready::Behind(_))), "{:?}", verdict());
}
