//! The table in memory, with DynamoDB's semantics as far as the port shows them. Comes in a deliberately broken kind
//! too, whose conditions are checked in one breath and written in the next: a race test that it passes tests nothing.

mod engine;
mod watch;

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::script::{Fault, Script, locked};
use runyard_core::model::{Item, Key, Operation, RecordId, Write};
use runyard_core::ports::{Change, Page, Refusal, Store, StoreError, Watch};
use runyard_store::outcome::already_done;
use runyard_store::transact::all_done;

use self::engine::{applied, check, held};

/// Most records on a page unless a test wants fewer.
const PAGE: usize = 1000;

/// A table in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    page: usize,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<BTreeMap<Key, Item>>,
    watches: Mutex<Vec<mpsc::UnboundedSender<Change>>>,
    reads: Script<StoreError>,
    writes: Script<StoreError>,
    delay: Mutex<Duration>,
    silent: AtomicBool,
    atomic: bool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with(true)
    }
}

impl MemoryStore {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty table whose writes are not atomic: others get in between the condition and the change.
    pub fn racy() -> Self {
        Self::with(false)
    }

    fn with(atomic: bool) -> Self {
        let shared = Shared {
            table: Mutex::default(),
            watches: Mutex::default(),
            reads: Script::default(),
            writes: Script::default(),
            delay: Mutex::default(),
            silent: AtomicBool::new(false),
            atomic,
        };
        Self { shared: Arc::new(shared), page: PAGE }
    }

    /// The same table, giving at most so many records a page.
    #[must_use]
    pub fn paged(self, records: u16) -> Self {
        Self { page: usize::from(records.max(1)), ..self }
    }

    /// What the next read (get, list, query, watch) meets; several stand in line.
    pub fn next_read(&self, fault: Fault<StoreError>) {
        self.shared.reads.add(fault);
    }

    /// What the next write (write, transact, append) meets; several stand in line.
    pub fn next_write(&self, fault: Fault<StoreError>) {
        self.shared.writes.add(fault);
    }

    /// Forgets the faults that nothing has met yet.
    pub fn heal(&self) {
        self.shared.reads.clear();
        self.shared.writes.clear();
    }

    /// How long every call takes from now on.
    pub fn every_call_takes(&self, delay: Duration) {
        *locked(&self.shared.delay) = delay;
    }

    /// Whether watches are told nothing from now on; what they miss is lost.
    pub fn silence_watches(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// Ends all watches, as a trimmed stream does.
    pub fn break_watches(&self) {
        locked(&self.shared.watches).clear();
    }

    /// Every record, in the order of their keys.
    pub fn records(&self) -> Vec<Item> {
        locked(&self.shared.table).values().cloned().collect()
    }

    /// Puts a record there unconditionally, as a person with the console does.
    ///
    /// # Panics
    /// When the item has no key.
    pub fn put(&self, item: Item) {
        let key = Key::of(&item).expect("an item put by a test has pk and sk");
        locked(&self.shared.table).insert(key.clone(), item.clone());
        self.tell(Change { key: key.into(), item: Some(item) });
    }

    /// Takes a record away unconditionally, as a person with the console does.
    pub fn remove(&self, key: &RecordId) {
        locked(&self.shared.table).remove(&key.key());
        self.tell(Change { key: key.clone(), item: None });
    }

    fn tell(&self, change: Change) {
        if !self.shared.silent.load(Ordering::SeqCst) {
            locked(&self.shared.watches).retain(|watch| watch.send(change.clone()).is_ok());
        }
    }

    async fn take_time(&self) {
        let delay = *locked(&self.shared.delay);
        pass(delay).await;
    }

    /// The guards that do not hold, with what is there instead.
    fn refusals(table: &BTreeMap<Key, Item>, writes: &[Write]) -> Vec<Refusal> {
        let refused = writes.iter().filter(|write| !held(&write.operation, table.get(&write.key.key())));
        refused
            .map(|write| Refusal { key: write.key.clone(), current: table.get(&write.key.key()).cloned() })
            .collect()
    }

    /// Makes the changes of writes whose guards held, all or none.
    fn apply(&self, table: &mut BTreeMap<Key, Item>, writes: &[Write]) -> Result<(), StoreError> {
        let results: Result<Vec<_>, StoreError> =
            writes.iter().map(|write| applied(write, table.get(&write.key.key()))).collect();
        for (write, result) in writes.iter().zip(results?) {
            let before = table.get(&write.key.key()).cloned();
            match &result {
                Some(item) => table.insert(write.key.key(), item.clone()),
                None => table.remove(&write.key.key()),
            };
            if result != before {
                self.tell(Change { key: write.key.clone(), item: result });
            }
        }
        Ok(())
    }

    /// Judges and changes; in the broken kind others get in between.
    async fn change(&self, writes: &[Write]) -> Result<(), StoreError> {
        check(writes)?;
        let refused = |refusals: Vec<Refusal>| match refusals {
            refusals if refusals.is_empty() => Ok(false),
            refusals if done(writes, &refusals) => Ok(true),
            refusals => Err(StoreError::Refused { refusals }),
        };
        if !self.shared.atomic {
            let refusals = Self::refusals(&locked(&self.shared.table), writes);
            tokio::task::yield_now().await;
            let there_already = refused(refusals)?;
            return if there_already { Ok(()) } else { self.apply(&mut locked(&self.shared.table), writes) };
        }
        let mut table = locked(&self.shared.table);
        if refused(Self::refusals(&table, writes))? { Ok(()) } else { self.apply(&mut table, writes) }
    }

    fn page<'a>(&self, records: impl Iterator<Item = (&'a Key, &'a Item)>) -> Page {
        let mut records = records.peekable();
        let items: Vec<_> = records.by_ref().take(self.page).map(|(_, item)| item.clone()).collect();
        let next = records.peek().and_then(|_| items.last().and_then(RecordId::of));
        Page { items, next }
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn done(writes: &[Write], refusals: &[Refusal]) -> bool {
    match writes {
        [write] => already_done(write, refusals[0].current.as_ref()),
        writes => all_done(writes, refusals),
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        self.take_time().await;
        let exit = self.shared.reads.enter()?;
        exit.answer(Ok(locked(&self.shared.table).get(&key.key()).cloned()))
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        // A page is old by the time it arrives: half of its time is the way back.
        let half = *locked(&self.shared.delay) / 2;
        pass(half).await;
        let exit = self.shared.reads.enter()?;
        let from = after.map_or(Unbounded, |after| Excluded(after.key()));
        let page = self.page(locked(&self.shared.table).range::<Key, _>((from, Unbounded)));
        pass(half).await;
        exit.answer(Ok(page))
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        self.take_time().await;
        let exit = self.shared.reads.enter()?;
        let table = locked(&self.shared.table);
        let from = after.map_or(Unbounded, |after| Excluded(after.key()));
        let of_partition = table.range::<Key, _>((from, Unbounded)).filter(|(key, _)| key.pk == pk);
        exit.answer(Ok(self.page(of_partition.filter(|(key, _)| key.sk.starts_with(sk_prefix)))))
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        self.take_time().await;
        let exit = self.shared.writes.enter()?;
        let outcome = self.change(std::slice::from_ref(write)).await;
        let after = || match write.operation {
            Operation::Delete(_) => Item::new(),
            Operation::Create(_) | Operation::Update { .. } | Operation::Check(_) => {
                locked(&self.shared.table).get(&write.key.key()).cloned().unwrap_or_default()
            }
        };
        exit.answer(outcome.map(|()| after()))
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.take_time().await;
        let exit = self.shared.writes.enter()?;
        exit.answer(self.change(writes).await)
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.take_time().await;
        let exit = self.shared.writes.enter()?;
        let keyed: Vec<_> = items.iter().filter(|item| Key::of(item).is_some()).collect();
        let dropped = items.len() - keyed.len();
        keyed.into_iter().for_each(|item| self.put(item.clone()));
        exit.answer(Ok(dropped))
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        self.take_time().await;
        let exit = self.shared.reads.enter()?;
        let (sender, receiver) = mpsc::unbounded_channel();
        locked(&self.shared.watches).push(sender);
        exit.answer(Ok(Box::new(watch::MemoryWatch(receiver))))
    }
}
