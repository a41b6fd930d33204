//! Watching: what is written after a watch was opened is told, even to somebody who keeps turning away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{Guard, Item, RecordId, Write};
use runyard_core::ports::{Store, Watch};
use tokio::time::{Instant, timeout};

use super::{Table, born, item, key, number, on_every_engine, text};

on_every_engine!(
    a_watch_tells_what_comes_after_it_was_opened,
    a_poll_tells_what_comes_after_it_was_opened,
    a_watch_that_finds_nothing_says_so,
    a_watcher_that_keeps_turning_away_misses_nothing,
    a_poller_that_keeps_turning_away_misses_nothing,
);

const LONG: Duration = Duration::from_secs(600);

/// What a watch told last of each record, once `done` is content with it.
async fn told(
    watch: &mut dyn Watch,
    done: impl Fn(&BTreeMap<RecordId, Option<Item>>) -> bool,
) -> BTreeMap<RecordId, Option<Item>> {
    let mut seen = BTreeMap::new();
    let deadline = Instant::now() + LONG;
    while !done(&seen) {
        assert!(Instant::now() < deadline, "the watch told only {seen:?}");
        seen.extend(watch.next().await.unwrap().into_iter().map(|change| (change.key, change.item)));
    }
    seen
}

async fn a_watch_tells_what_comes_after_it_was_opened(table: Table) {
    tells_what_comes_after_it_was_opened(&table.store).await;
}

async fn a_poll_tells_what_comes_after_it_was_opened(table: Table) {
    tells_what_comes_after_it_was_opened(&table.polling).await;
}

async fn tells_what_comes_after_it_was_opened(store: &Arc<dyn Store>) {
    let (before, changed, gone, new) = (key("before"), key("changed"), key("gone"), key("new"));
    for there in [&before, &changed, &gone] {
        born(&**store, there, "one").await;
    }
    let mut watch = store.watch().await.unwrap();
    let created = born(&**store, &new, "one").await;
    let set = item([("version", number(2)), ("state", text("two"))]);
    let update = Write::update(changed.clone(), Guard::Version(1), set, [].into());
    let updated = store.write(&update).await.unwrap();
    store.write(&Write::delete(gone.clone(), Guard::Version(1))).await.unwrap();
    let told = told(&mut *watch, |seen| seen.len() >= 3).await;
    assert_eq!(told.get(&new), Some(&Some(created)));
    assert_eq!(told.get(&changed), Some(&Some(updated)));
    assert_eq!(told.get(&gone), Some(&None));
    assert_eq!(told.get(&before), None, "it was written before the watch was opened");
}

async fn a_watch_that_finds_nothing_says_so(table: Table) {
    for store in [&table.store, &table.polling] {
        let mut watch = store.watch().await.unwrap();
        let told = timeout(Duration::from_secs(600), watch.next()).await.expect("an empty look comes back");
        assert_eq!(told.unwrap(), Vec::new());
    }
}

async fn a_watcher_that_keeps_turning_away_misses_nothing(table: Table) {
    misses_nothing_turning_away(&table.store).await;
}

async fn a_poller_that_keeps_turning_away_misses_nothing(table: Table) {
    misses_nothing_turning_away(&table.polling).await;
}

async fn misses_nothing_turning_away(store: &Arc<dyn Store>) {
    const RECORDS: usize = 40;
    let mut watch = store.watch().await.unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..RECORDS {
                born(&*store, &key(&format!("turning-{number}")), "one").await;
            }
        }
    });
    let mut seen = BTreeMap::new();
    let deadline = Instant::now() + LONG;
    let mut patience = 0;
    while seen.len() < RECORDS {
        assert!(Instant::now() < deadline, "the watch told {} of {RECORDS}", seen.len());
        // From none to 32 ms: the look is left at every point it can be left at.
        patience = (patience + 1) % 33;
        if let Ok(changes) = timeout(Duration::from_millis(patience), watch.next()).await {
            seen.extend(changes.unwrap().into_iter().map(|change| (change.key, ())));
        }
    }
    writer.await.unwrap();
}
