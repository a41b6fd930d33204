//! What if a person deletes a class and applies it again, and nobody saw that it was gone in between? The record that
//! stands there is another one, whatever its version: by a change, by a list, and by what a refused write shows.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{ClassName, Item, Pool, Reading, Record, RecordId, Write, read};
use runyard_core::ports::{Change, MachineState, Page, Store, StoreError, Watch};

use runyard_tests::world::{World, item, linux, settings};

/// A table whose watch tells what is there and not what is gone, as one that looks now and then.
struct Polled(runyard_fakes::MemoryStore);

struct Kept(Box<dyn Watch>);

#[async_trait]
impl Watch for Kept {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let changes = self.0.next().await?;
        Ok(changes.into_iter().filter(|change| change.item.is_some()).collect())
    }
}

#[async_trait]
impl Store for Polled {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.0.get(key).await
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.0.list(after).await
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.0.query(pk, sk_prefix, after).await
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.0.write(write).await
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.0.transact(writes).await
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.0.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        Ok(Box::new(Kept(self.0.watch().await?)))
    }
}

fn key() -> RecordId {
    Pool::key_of(&ClassName::parse("linux").unwrap())
}

async fn pool(world: &World) -> Pool {
    world.get(&key()).await.unwrap()
}

/// A yard whose class has been served for a while.
async fn served(uid: Option<&str>) -> World {
    let world = World::new();
    make(&world, uid, 0).await;
    world.start_on("one", Arc::new(Polled(world.store.clone())));
    world
        .until("its status is written", Duration::from_secs(60), async || pool(&world).await.version > 1)
        .await;
    for max in 6..10 {
        let mut after = pool(&world).await;
        let before = after.clone();
        after.spec.max = max;
        runyard_core::model::Versioned::advance(&mut after, world.at());
        world.store.write(&runyard_core::model::Versioned::replacing(&after, &before)).await.unwrap();
        world.sleep(15).await;
    }
    assert!(pool(&world).await.version > 5, "{:?}", pool(&world).await);
    world
}

async fn make(world: &World, uid: Option<&str>, desired: u32) {
    let mut fields = linux(desired, 5);
    let key = key();
    for (name, value) in [("pk", key.pk()), ("sk", key.sk()), ("kind", "pool".into())] {
        fields[name] = value.into();
    }
    fields["version"] = 1.into();
    if let Some(uid) = uid {
        fields["uid"] = uid.into();
    }
    let made = item(&fields);
    let Reading::Record(record) = read::<Pool>(&made) else { panic!("a pool") };
    world.store.write(&Write::create(record.key(), made)).await.unwrap();
}

/// Deletes the class and applies it again with two machines kept, at one moment.
async fn make_anew(world: &World, uid: Option<&str>) {
    world.store.remove(&key());
    make(world, uid, 2).await;
}

async fn until_kept(world: &World, within: u64) {
    let within = Duration::from_secs(within);
    world
        .until("the new record is served", within, async || {
            pool(world).await.status.message.contains("of 2 wanted")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_class_made_anew_within_one_look_is_served_by_its_new_record() {
    let world = served(Some("a")).await;
    make_anew(&world, Some("b")).await;
    until_kept(&world, 30).await;
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    assert_eq!(pool(&world).await.uid.unwrap().as_str(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_class_made_anew_without_a_uid_is_served_after_the_next_list() {
    let world = served(None).await;
    world.store.silence_watches(true);
    make_anew(&world, None).await;
    let resync = settings("one").timing.resync.as_secs();
    until_kept(&world, 2 * resync + 30).await;
}

/// Its status was written on the version of the former record, refused, and the record that the refusal showed was
/// dropped as an older image: for ever.
#[tokio::test(start_paused = true)]
async fn a_class_made_anew_is_served_as_soon_as_a_write_meets_it() {
    let world = served(None).await;
    let request = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&request, "Ready", 60).await;
    world.store.silence_watches(true);
    let machine = world.live()[0].facts.instance_id.clone();
    make_anew(&world, None).await;
    world.sleep(1).await;
    world.compute.set_state(&machine, MachineState::Terminated);
    until_kept(&world, 120).await;
}
