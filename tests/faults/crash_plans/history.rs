//! What happened to the table, write by write? Every change in its order, and what each record was before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use runyard_core::model::{Item, RecordId};
use runyard_core::ports::{Clock as _, Store as _, Watch};
use runyard_fakes::{MemoryStore, TokioClock};

pub(crate) use runyard_support::laws::{Step, kind};

/// How exact the times of the steps are.
const KEEPING: Duration = Duration::from_millis(250);

/// The history of a table from now on. Clones share it.
#[derive(Clone)]
pub(crate) struct History(Arc<Mutex<Inner>>);

struct Inner {
    watch: Box<dyn Watch>,
    clock: TokioClock,
    steps: Vec<(Duration, Step)>,
    now: BTreeMap<RecordId, Item>,
}

impl History {
    /// Begins with an empty table.
    pub(crate) async fn of(store: &MemoryStore, clock: TokioClock) -> Self {
        let watch = store.watch().await.expect("a table in memory can be watched");
        let inner = Inner { watch, clock, steps: Vec::new(), now: BTreeMap::new() };
        let history = Self(Arc::new(Mutex::new(inner)));
        let keeping = history.clone();
        tokio::spawn(async move {
            loop {
                keeping.with(|_| ());
                tokio::time::sleep(KEEPING).await;
            }
        });
        history
    }

    fn with<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        let mut inner = self.0.lock().expect("nobody panics with it");
        inner.catch_up();
        look(&inner)
    }

    /// Every step so far.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.with(|inner| inner.steps.iter().map(|(_, step)| step.clone()).collect())
    }

    /// What a record was before its last change; none where it never changed.
    pub(crate) fn before(&self, key: &RecordId) -> Option<Option<Item>> {
        self.with(|inner| {
            inner.steps.iter().rev().find(|(_, step)| step.key == *key).map(|(_, step)| step.old.clone())
        })
    }

    /// The whole table as it was so long ago.
    pub(crate) fn ago(&self, by: Duration) -> Vec<Item> {
        self.with(|inner| {
            let then = inner.clock.elapsed().saturating_sub(by);
            let mut table = BTreeMap::new();
            for (_, step) in inner.steps.iter().take_while(|(at, _)| *at <= then) {
                match &step.new {
                    Some(item) => table.insert(&step.key, item),
                    None => table.remove(&step.key),
                };
            }
            table.into_values().cloned().collect()
        })
    }
}

impl Inner {
    fn catch_up(&mut self) {
        let at = self.clock.elapsed();
        while let Some(changes) = self.watch.next().now_or_never() {
            let changes = changes.expect("nobody breaks this watch");
            for change in changes {
                let old = match &change.item {
                    Some(item) => self.now.insert(change.key.clone(), item.clone()),
                    None => self.now.remove(&change.key),
                };
                self.steps.push((at, Step { key: change.key, old, new: change.item }));
            }
        }
    }
}
