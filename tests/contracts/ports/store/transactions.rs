//! Several writes at once: all or none, and told which were refused.

use runyard_core::model::{Guard, Item, RecordId, Write};

use super::{Table, born, is, item, key, keyed, number, on_every_engine, refusals, text};

on_every_engine!(
    a_transaction_writes_all_of_it,
    a_transaction_with_one_refusal_writes_nothing_and_names_it,
    a_transaction_repeated_after_a_lost_answer_is_a_success,
    a_transaction_of_nothing_is_done_at_once,
    what_no_transaction_can_hold_is_invalid,
    a_hundred_writes_fit,
);

fn to(key: &RecordId, version: i64, state: &str) -> Write {
    let guard = Guard::Version(u64::try_from(version - 1).unwrap());
    let set = item([("version", number(version)), ("state", text(state))]);
    Write::update(key.clone(), guard, set, [].into())
}

fn new(key: &RecordId) -> Write {
    Write::create(key.clone(), keyed(key, item([("version", number(1))])))
}

async fn a_transaction_writes_all_of_it(table: Table) {
    let (updated, created, deleted, checked) =
        (key("updated"), key("created"), key("deleted"), key("checked"));
    for there in [&updated, &deleted, &checked] {
        born(&*table.store, there, "one").await;
    }
    let writes = [
        to(&updated, 2, "two"),
        new(&created),
        Write::delete(deleted.clone(), Guard::Version(1)),
        Write::check(checked.clone(), Guard::Version(1)),
    ];
    table.store.transact(&writes).await.unwrap();
    assert_eq!(table.store.get(&updated).await.unwrap().unwrap()["state"], text("two"));
    assert!(table.store.get(&created).await.unwrap().is_some());
    assert_eq!(table.store.get(&deleted).await.unwrap(), None);
    assert_eq!(table.store.get(&checked).await.unwrap().unwrap()["version"], number(1));
}

async fn a_transaction_with_one_refusal_writes_nothing_and_names_it(table: Table) {
    let (good, bad, fresh) = (key("good"), key("bad"), key("fresh"));
    let before = born(&*table.store, &good, "one").await;
    let current = born(&*table.store, &bad, "one").await;
    let outcome = table.store.transact(&[to(&good, 2, "two"), to(&bad, 9, "nine"), new(&fresh)]).await;
    let refused = refusals(outcome);
    assert_eq!(refused.len(), 1);
    assert_eq!((&refused[0].key, &refused[0].current), (&bad, &Some(current)));
    assert_eq!(table.store.get(&good).await.unwrap(), Some(before));
    assert_eq!(table.store.get(&fresh).await.unwrap(), None);
}

async fn a_transaction_repeated_after_a_lost_answer_is_a_success(table: Table) {
    let (claimed, born_with_it, lease) = (key("claimed"), key("born"), key("lease"));
    born(&*table.store, &claimed, "idle").await;
    born(&*table.store, &lease, "held").await;
    let writes =
        [to(&claimed, 2, "claimed"), new(&born_with_it), Write::check(lease.clone(), Guard::Version(1))];
    table.store.transact(&writes).await.unwrap();
    let records = records(&table).await;
    table.store.transact(&writes).await.unwrap();
    assert_eq!(self::records(&table).await, records, "nothing was written twice");
    table.store.write(&to(&claimed, 3, "running")).await.unwrap();
    let refused = refusals(table.store.transact(&writes).await);
    assert!(refused.iter().any(|refusal| refusal.key == claimed), "its result has been overwritten since");
}

async fn records(table: &Table) -> Vec<Item> {
    table.store.list(None).await.unwrap().items
}

async fn a_transaction_of_nothing_is_done_at_once(table: Table) {
    table.store.transact(&[]).await.unwrap();
}

async fn what_no_transaction_can_hold_is_invalid(table: Table) {
    let key = key("once");
    let outcome = table.store.transact(&[new(&key), Write::check(key.clone(), Guard::Absent)]).await;
    assert!(is(&outcome, "invalid"), "two writes of one record: {outcome:?}");
    let many: Vec<_> = (0..101).map(|number| new(&super::key(&format!("many-{number}")))).collect();
    let outcome = table.store.transact(&many).await;
    assert!(is(&outcome, "invalid"), "101 writes: {outcome:?}");
    assert_eq!(records(&table).await, Vec::<Item>::new());
}

async fn a_hundred_writes_fit(table: Table) {
    let many: Vec<_> = (0..100).map(|number| new(&key(&format!("many-{number}")))).collect();
    table.store.transact(&many).await.unwrap();
    assert_eq!(records(&table).await.len(), 100);
}
