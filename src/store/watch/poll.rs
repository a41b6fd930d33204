//! A watch without a stream: it scans and reports the difference to the last scan. It ends, as a lost stream does, once
//! the table has a readable stream: the caller then opens another watch and lists the table anew.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::PATIENCE;
use super::stream::{StreamWatch, answered};
use crate::DynamoStore;
use crate::model::{Item, Key, RecordId};
use crate::ports::{Change, Store, StoreError, Watch};

/// A watch that scans.
pub(super) struct PollWatch {
    store: DynamoStore,
    /// The table as of the last complete scan.
    known: BTreeMap<Key, Item>,
    /// The scan in progress, kept here so that a cancelled wait loses nothing.
    scan: Scan,
    due: Instant,
    /// The search for a stream, which ends once there is one; empty if none may be read. It ends with the watch.
    search: JoinSet<()>,
}

#[derive(Default)]
struct Scan {
    seen: BTreeMap<Key, Item>,
    next: Option<RecordId>,
}

impl PollWatch {
    /// Reads the table once, so that everything after is a change.
    pub(super) async fn open(store: DynamoStore) -> Result<Self, StoreError> {
        let due = Instant::now();
        let search = JoinSet::new();
        let mut watch = Self { store, known: BTreeMap::new(), scan: Scan::default(), due, search };
        watch.look().await?;
        if watch.store.watching.stream {
            watch.search.spawn(streamed(watch.store.clone()));
        }
        Ok(watch)
    }

    /// Completes one scan and returns its changes.
    async fn look(&mut self) -> Result<Vec<Change>, StoreError> {
        loop {
            let page = self.store.list(self.scan.next.as_ref()).await?;
            let keyed = page.items.into_iter().filter_map(|item| Key::of(&item).map(|key| (key, item)));
            self.scan.seen.extend(keyed);
            self.scan.next = page.next;
            if self.scan.next.is_none() {
                break;
            }
        }
        let seen = std::mem::take(&mut self.scan).seen;
        let before = std::mem::replace(&mut self.known, seen);
        self.due = Instant::now() + self.store.watching.scan_every;
        Ok(difference(&before, &self.known))
    }
}

/// Waits until the table has a readable stream.
async fn streamed(store: DynamoStore) {
    loop {
        sleep(store.watching.stream_every).await;
        let found = match StreamWatch::open(&store).await {
            // A role may describe a stream that it may not read.
            Ok(Some(mut stream)) => stream.next().await.map(|_| true),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match found {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(table = %store.table, %error, "the stream still cannot be read"),
        }
    }
}

fn difference(before: &BTreeMap<Key, Item>, after: &BTreeMap<Key, Item>) -> Vec<Change> {
    let changed = after.iter().filter(|(key, item)| before.get(key) != Some(item));
    let changed = changed.map(|(key, item)| Change { key: key.clone().into(), item: Some(item.clone()) });
    let gone = before.keys().filter(|key| !after.contains_key(key));
    changed.chain(gone.map(|key| Change { key: key.clone().into(), item: None })).collect()
}

#[async_trait]
impl Watch for PollWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let until = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                biased;
                Some(found) = self.search.join_next() => {
                    answered(found);
                    let table = &self.store.table;
                    tracing::info!(%table, "the table's stream can be read now: following it instead of scanning");
                    return Err(StoreError::Invalid("the table's stream can be read now".to_owned()));
                }
                () = sleep_until(self.due.min(until)) => {}
            }
            if self.due > until {
                return Ok(Vec::new());
            }
            let looked = self.look().await;
            if looked.is_err() {
                self.due = Instant::now() + self.store.watching.scan_every;
            }
            let changes = looked?;
            if !changes.is_empty() || Instant::now() >= until {
                return Ok(changes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AttributeValue;

    fn table(records: &[(&str, &str)]) -> BTreeMap<Key, Item> {
        let record = |(pk, v): &(&str, &str)| {
            (Key::new(*pk, "s"), [("v".to_owned(), AttributeValue::S((*v).to_owned()))].into())
        };
        records.iter().map(record).collect()
    }

    #[test]
    fn what_is_new_changed_or_gone_is_told_and_nothing_else() {
        let before = table(&[("same", "1"), ("changed", "1"), ("gone", "1")]);
        let after = table(&[("same", "1"), ("changed", "2"), ("new", "1")]);
        let told: Vec<_> =
            difference(&before, &after).into_iter().map(|c| (c.key.pk(), c.item.is_some())).collect();
        assert_eq!(told, [("changed".into(), true), ("new".into(), true), ("gone".into(), false)]);
    }
}
