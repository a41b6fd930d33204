//! Reading: one record, all of them, those under one key; and adding many at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{Item, RecordId, Write};
use runyard_core::ports::{Page, Store, StoreError};
use tokio::time::Instant;

use super::{Table, item, key, keyed, number, on_every_engine, text};

on_every_engine!(
    a_record_that_is_not_there_is_none,
    a_glance_shows_what_is_there_before_long,
    a_list_has_every_record_once_however_small_its_pages,
    a_query_has_what_is_under_its_key_in_order,
    records_are_added_in_any_number,
    what_has_no_key_is_dropped_and_counted,
);

async fn a_record_that_is_not_there_is_none(table: Table) {
    assert_eq!(table.store.get(&key("nobody")).await.unwrap(), None);
}

async fn a_glance_shows_what_is_there_before_long(table: Table) {
    let key = key("glanced-at");
    assert_eq!(table.store.glance(&key).await.unwrap(), None);
    let there = keyed(&key, item([("state", text("idle"))]));
    table.store.write(&Write::create(key.clone(), there.clone())).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(600);
    // It may show the time before the write, and nothing else.
    let shown = loop {
        match table.store.glance(&key).await.unwrap() {
            Some(shown) => break shown,
            None => assert!(Instant::now() < deadline, "the record never came"),
        }
    };
    assert_eq!(shown, there);
}

/// Follows pages to their end.
async fn all<F>(mut page: impl FnMut(Option<RecordId>) -> F) -> Vec<Item>
where
    F: Future<Output = Result<Page, StoreError>>,
{
    let (mut items, mut after) = (Vec::new(), None);
    for _ in 0..1000 {
        let page = page(after).await.unwrap();
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return items;
        }
    }
    panic!("the pages have no end");
}

async fn list(store: &Arc<dyn Store>) -> Vec<Item> {
    all(|after| async move { store.list(after.as_ref()).await }).await
}

fn event(subject: &str, number: i64) -> Item {
    let key = RecordId::new(subject, format!("event#{number:04}"));
    keyed(&key, item([("at", super::number(number))]))
}

async fn a_list_has_every_record_once_however_small_its_pages(table: Table) {
    assert_eq!(list(&table.store).await, Vec::<Item>::new());
    let written: Vec<_> = (0..7).map(|number| event(&format!("subject#{number}"), number)).collect();
    assert_eq!(table.store.append(&written).await.unwrap(), 0);
    for store in [&table.store, &table.paged] {
        let listed = list(store).await;
        assert_eq!(listed.len(), 7);
        let keys: BTreeSet<_> = listed.iter().filter_map(RecordId::of).collect();
        assert_eq!(keys, written.iter().filter_map(RecordId::of).collect());
    }
    assert!(table.paged.list(None).await.unwrap().items.len() <= 2, "pages are as small as asked for");
}

async fn a_query_has_what_is_under_its_key_in_order(table: Table) {
    let mut written: Vec<_> = (0..7).map(|number| event("instance#a", number)).collect();
    written.push(keyed(&RecordId::new("instance#a", "instance"), item([("state", text("idle"))])));
    written.push(event("instance#ab", 3));
    written.reverse();
    assert_eq!(table.store.append(&written).await.unwrap(), 0);
    for store in [&table.store, &table.paged] {
        let events =
            all(|after| async move { store.query("instance#a", "event#", after.as_ref()).await }).await;
        let at: Vec<_> = events.iter().map(|event| event["at"].clone()).collect();
        assert_eq!(at, (0..7).map(number).collect::<Vec<_>>());
        let everything =
            all(|after| async move { store.query("instance#a", "", after.as_ref()).await }).await;
        assert_eq!(everything.len(), 8);
        assert_eq!(store.query("instance#nobody", "event#", None).await.unwrap(), Page::default());
        assert_eq!(store.query("instance#a", "nothing#", None).await.unwrap(), Page::default());
    }
}

async fn records_are_added_in_any_number(table: Table) {
    assert_eq!(table.store.append(&[]).await.unwrap(), 0);
    let many: Vec<_> = (0..60).map(|number| event("subject#many", number)).collect();
    assert_eq!(table.store.append(&many).await.unwrap(), 0);
    assert_eq!(list(&table.store).await.len(), 60);
    assert_eq!(table.store.append(&[event("subject#x", 1), event("subject#x", 1)]).await.unwrap(), 0);
    assert_eq!(list(&table.store).await.len(), 61);
}

async fn what_has_no_key_is_dropped_and_counted(table: Table) {
    let keyless = item([("at", number(1))]);
    assert_eq!(table.store.append(&[keyless, event("subject#y", 1)]).await.unwrap(), 1);
    assert_eq!(list(&table.store).await.len(), 1);
}
