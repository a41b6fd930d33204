//! Two versions of the operator on one table, as during a rolling upgrade or on the way back from one. The newer one
//! writes an attribute that the older has never heard of into every record it touches, and records of kinds that the
//! older does not know stand in the table.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{
    AttributeValue, Instance, Item, Operation, Pool, Record, RecordId, Request, State, Write,
};
use runyard_core::ports::{Page, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;
use serde_json::json;

use runyard_tests::world::{World, item, linux};

/// What the newer version adds to all it writes.
const ADDED: &str = "preemptionScore";

/// The table as the newer version writes it.
#[derive(Clone)]
struct Newer {
    store: MemoryStore,
    /// Every record it wrote.
    wrote: Arc<Mutex<BTreeSet<RecordId>>>,
}

impl Newer {
    fn of(world: &World) -> Self {
        Self { store: world.store.clone(), wrote: Arc::default() }
    }

    fn with(&self, write: &Write) -> Write {
        let mut write = write.clone();
        let added = match &mut write.operation {
            Operation::Create(item) => Some(item),
            Operation::Update { set, .. } => Some(set),
            Operation::Delete(_) | Operation::Check(_) => None,
        };
        if let Some(item) = added {
            item.insert(ADDED.into(), AttributeValue::N("7".into()));
        }
        write
    }

    fn note(&self, writes: &[Write]) {
        let changed = |write: &&Write| match write.operation {
            Operation::Create(_) | Operation::Update { .. } => true,
            Operation::Delete(_) | Operation::Check(_) => false,
        };
        self.wrote.lock().unwrap().extend(writes.iter().filter(changed).map(|write| write.key.clone()));
    }
}

#[async_trait]
impl Store for Newer {
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
        let written = self.store.write(&self.with(write)).await?;
        self.note(std::slice::from_ref(write));
        Ok(written)
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        let with: Vec<Write> = writes.iter().map(|write| self.with(write)).collect();
        self.store.transact(&with).await?;
        self.note(writes);
        Ok(())
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.store.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.store.watch().await
    }
}

/// Which version comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    OldThenNew,
    NewThenOld,
}

/// How the first one goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    Stopped,
    Killed,
}

/// Records of kinds nobody here knows: under a key of its own, and beside a class's and a run's own records.
async fn unknown_kinds(world: &World) -> Vec<Item> {
    let records = [("quota#acme", "quota"), ("pool#linux", "forecast"), ("request#acme/web#1", "bill#1")];
    let records = records.map(|(pk, sk)| item(&json!({"pk": pk, "sk": sk, "kind": "quota", "cores": 64})));
    for record in &records {
        let key = RecordId::of(record).unwrap();
        world.store.write(&Write::create(key, record.clone())).await.unwrap();
    }
    records.into()
}

fn start(world: &World, newer: &Newer, new: bool) -> tokio_util::sync::CancellationToken {
    if new { world.start_on("new", Arc::new(newer.clone())) } else { world.start_as("old") }
}

/// One version takes over from the other while a claim is half way.
async fn drill(order: Order, going: Going) {
    let world = World::new();
    let newer = Newer::of(&world);
    let strange = unknown_kinds(&world).await;
    world.pool(linux(2, 8)).await;
    let first_is_new = order == Order::NewThenOld;
    let first = start(&world, &newer, first_is_new);
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;

    let warm = world.provision("1", "linux", 2, json!({})).await;
    let cold = world.provision("2", "linux", 3, json!({})).await;
    world
        .until("the claim is half way", Duration::from_secs(10), async || {
            world.in_state(State::Claimed).len() == 2
        })
        .await;
    let versions: Vec<(RecordId, u64)> =
        world.in_state(State::Claimed).iter().map(|instance| (instance.key(), instance.version)).collect();
    start(&world, &newer, !first_is_new);
    match going {
        Going::Stopped => first.cancel(),
        Going::Killed => world.hang(&first),
    }

    for key in [&warm, &cold] {
        world.until_phase(key, "Ready", 60).await;
    }
    for key in [&warm, &cold] {
        world.release(key).await;
        world.until_phase(key, "Released", 60).await;
    }
    let again = world.provision("3", "linux", 4, json!({})).await;
    world.until_phase(&again, "Ready", 60).await;

    for (key, version) in versions {
        let now = world.get::<Instance>(&key).await.expect("claimed machines are not lost").version;
        assert!(now > version, "{order:?}, {going:?}: the second one went on with {key}");
    }
    kept(&world, &newer, order, going).await;
    for record in strange {
        let key = RecordId::of(&record).unwrap();
        assert_eq!(world.store.get(&key).await.unwrap().as_ref(), Some(&record), "{order:?}, {going:?}");
    }
    let unreadable = world.metrics.render().contains("\nrunyard_unreadable_records 0\n");
    assert!(unreadable, "{order:?}, {going:?}: what is not ours is not broken");
    let machines: BTreeSet<_> = world.compute.machines().into_iter().map(|machine| machine.id).collect();
    let recorded: BTreeSet<_> = world.live().into_iter().map(|instance| instance.facts.instance_id).collect();
    assert_eq!(
        machines, recorded,
        "{order:?}, {going:?}: every machine has its record, every record its machine"
    );
    assert_eq!(world.reasons(), Vec::<String>::new(), "{order:?}, {going:?}: no machine ended for it");
    for request in world.all::<Request>() {
        assert_eq!(
            request.status.served.len(),
            request.intent.count as usize,
            "{order:?}, {going:?}: {}",
            request.id
        );
    }
    world.stop().await;
}

/// What the newer one added is where it put it, whatever the older wrote since.
async fn kept(world: &World, newer: &Newer, order: Order, going: Going) {
    let wrote = newer.wrote.lock().unwrap().clone();
    let (mut instances, mut requests) = (0, 0);
    for key in &wrote {
        let Some(item) = world.store.get(key).await.unwrap() else { continue };
        assert_eq!(item.get(ADDED), Some(&AttributeValue::N("7".into())), "{order:?}, {going:?}: {key}");
        instances += usize::from(key.sk() == "instance");
        requests += usize::from(key.sk().starts_with("request#"));
    }
    assert!(instances >= 2 && requests >= 2, "{order:?}, {going:?}: the newer one wrote {wrote:?}");
    assert!(wrote.contains(&Pool::key_of(&"linux".parse().unwrap())), "{order:?}, {going:?}: {wrote:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newer_operator_takes_over_in_the_middle_of_a_claim_and_nothing_is_lost() {
    drill(Order::OldThenNew, Going::Stopped).await;
    drill(Order::OldThenNew, Going::Killed).await;
}

#[tokio::test(start_paused = true)]
async fn an_older_operator_takes_over_within_a_claim_and_keeps_unknown_attributes() {
    drill(Order::NewThenOld, Going::Stopped).await;
    drill(Order::NewThenOld, Going::Killed).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_newer_form_is_left_alone_until_its_program_is_back() {
    let world = World::new();
    world.pool(linux(0, 8)).await;
    world.start_as("old");
    let strange = world.provision("1", "linux", 1, json!({"schema": 2, "preemptible": true})).await;
    let plain = world.provision("2", "linux", 1, json!({})).await;
    world.until_phase(&plain, "Ready", 60).await;
    let before = world.store.get(&strange).await.unwrap().unwrap();
    world.sleep(700).await;
    assert_eq!(world.store.get(&strange).await.unwrap().unwrap(), before, "not a byte of it was written");
    assert!(world.metrics.render().contains("\nrunyard_newer_records 1\n"));
    assert_eq!(world.live().len(), 1, "nothing was launched for it");
}
