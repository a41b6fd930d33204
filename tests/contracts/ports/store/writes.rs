//! Single writes: what they leave, what they answer, and what refuses them.

use runyard_core::model::{AttributeValue, Guard, Item, Operation, Write};

use super::{Table, born, is, item, key, keyed, number, on_every_engine, on_strict_engines, refusals, text};

on_every_engine!(
    a_created_record_reads_back_as_written,
    a_second_creation_is_refused_and_shows_what_is_there,
    the_same_creation_again_is_a_success,
    an_update_changes_what_it_names_and_answers_the_whole_record,
    an_update_of_a_version_gone_by_is_refused_and_changes_nothing,
    the_same_update_again_is_a_success,
    an_update_of_nothing_is_refused_and_creates_nothing,
    an_update_that_changes_nothing_answers_the_record,
    numbers_rise_from_what_is_stored_and_from_nothing,
    a_removal_takes_the_version_that_was_read,
    what_cannot_be_done_is_invalid,
);

async fn a_created_record_reads_back_as_written(table: Table) {
    let key = key("all");
    let nested = [("inner".to_owned(), number(-7)), ("empty".to_owned(), text(""))].into_iter().collect();
    let attributes = item([
        ("version", number(1)),
        // Words DynamoDB reserves, as contract names them.
        ("state", text("idle")),
        ("count", number(500)),
        ("token", number(0)),
        ("name", text("default")),
        ("runId", text("")),
        ("paused", AttributeValue::Bool(false)),
        ("nothing", AttributeValue::Null(true)),
        ("bytes", AttributeValue::B(vec![0, 1, 255])),
        ("list", AttributeValue::L(vec![text("a"), number(1), AttributeValue::L(vec![])])),
        ("map", AttributeValue::M(nested)),
        ("big", AttributeValue::N("12345678901234567890123456789".into())),
        ("unicode", text("Grüße \u{202e} 雪 \0")),
    ]);
    let written = keyed(&key, attributes);
    let answered = table.store.write(&Write::create(key.clone(), written.clone())).await.unwrap();
    assert_eq!(answered, written);
    assert_eq!(table.store.get(&key).await.unwrap(), Some(written));
}

async fn a_second_creation_is_refused_and_shows_what_is_there(table: Table) {
    let key = key("twice");
    let first = born(&*table.store, &key, "first").await;
    let second = keyed(&key, item([("version", number(1)), ("state", text("second"))]));
    let refused = refusals(table.store.write(&Write::create(key.clone(), second)).await);
    assert_eq!(refused.len(), 1);
    assert_eq!((&refused[0].key, &refused[0].current), (&key, &Some(first.clone())));
    assert_eq!(table.store.get(&key).await.unwrap(), Some(first));
}

async fn the_same_creation_again_is_a_success(table: Table) {
    let key = key("again");
    let first = born(&*table.store, &key, "same").await;
    assert_eq!(born(&*table.store, &key, "same").await, first);
}

async fn an_update_changes_what_it_names_and_answers_the_whole_record(table: Table) {
    let key = key("update");
    let before = item([
        ("version", number(1)),
        ("state", text("idle")),
        ("pooledAt", text("now")),
        ("fromTheFuture", AttributeValue::L(vec![text("kept")])),
    ]);
    table.store.write(&Write::create(key.clone(), keyed(&key, before))).await.unwrap();
    let write = Write {
        key: key.clone(),
        operation: Operation::Update {
            guard: Guard::Version(1),
            set: item([("version", number(2)), ("state", text("claimed"))]),
            remove: ["pooledAt".to_owned(), "neverThere".to_owned()].into(),
            add: [].into(),
        },
    };
    let wanted = item([
        ("version", number(2)),
        ("state", text("claimed")),
        ("fromTheFuture", AttributeValue::L(vec![text("kept")])),
    ]);
    let answered = table.store.write(&write).await.unwrap();
    assert_eq!(answered, keyed(&key, wanted));
    assert_eq!(table.store.get(&key).await.unwrap(), Some(answered));
}

fn to(key: &runyard_core::model::RecordId, version: i64, state: &str) -> Write {
    let guard = Guard::Version(u64::try_from(version - 1).unwrap());
    let set = item([("version", number(version)), ("state", text(state))]);
    Write::update(key.clone(), guard, set, [].into())
}

async fn an_update_of_a_version_gone_by_is_refused_and_changes_nothing(table: Table) {
    let key = key("stale");
    born(&*table.store, &key, "one").await;
    let current = table.store.write(&to(&key, 2, "two")).await.unwrap();
    let refused = refusals(table.store.write(&to(&key, 2, "other")).await);
    assert_eq!(refused[0].current.as_ref(), Some(&current));
    assert_eq!(table.store.get(&key).await.unwrap(), Some(current));
}

async fn the_same_update_again_is_a_success(table: Table) {
    let key = key("lost-answer");
    born(&*table.store, &key, "one").await;
    let first = table.store.write(&to(&key, 2, "two")).await.unwrap();
    assert_eq!(table.store.write(&to(&key, 2, "two")).await.unwrap(), first);
    table.store.write(&to(&key, 3, "three")).await.unwrap();
    let refused = refusals(table.store.write(&to(&key, 2, "two")).await);
    assert_eq!(refused.len(), 1, "its result has been overwritten since");
}

async fn an_update_of_nothing_is_refused_and_creates_nothing(table: Table) {
    let key = key("zombie");
    let beat = |guard| Write::update(key.clone(), guard, item([("state", text("back"))]), [].into());
    for guard in [Guard::Exists, Guard::Version(1), Guard::StillProvisioned, Guard::Lease(1)] {
        let refused = refusals(table.store.write(&beat(guard)).await);
        assert_eq!(refused[0].current, None);
    }
    assert_eq!(table.store.get(&key).await.unwrap(), None);
}

async fn an_update_that_changes_nothing_answers_the_record(table: Table) {
    let key = key("touch");
    let before = born(&*table.store, &key, "same").await;
    let touch = Write::update(key.clone(), Guard::Exists, Item::new(), [].into());
    assert_eq!(table.store.write(&touch).await.unwrap(), before);
    table.store.transact(std::slice::from_ref(&touch)).await.unwrap();
    assert_eq!(table.store.get(&key).await.unwrap(), Some(before));
}

async fn numbers_rise_from_what_is_stored_and_from_nothing(table: Table) {
    let key = key("beat");
    born(&*table.store, &key, "alive").await;
    let set = item([("heartbeatAt", text("now"))]);
    let beat = Write::update(key.clone(), Guard::Exists, set, [("heartbeatSeq".to_owned(), 1)].into());
    for wanted in 1..=3 {
        assert_eq!(table.store.write(&beat).await.unwrap()["heartbeatSeq"], number(wanted));
    }
    let down =
        Write::update(key.clone(), Guard::Exists, Item::new(), [("heartbeatSeq".to_owned(), -5)].into());
    assert_eq!(table.store.write(&down).await.unwrap()["heartbeatSeq"], number(-2));
}

async fn a_removal_takes_the_version_that_was_read(table: Table) {
    let key = key("remove");
    let current = born(&*table.store, &key, "there").await;
    let refused = refusals(table.store.write(&Write::delete(key.clone(), Guard::Version(2))).await);
    assert_eq!(refused[0].current, Some(current));
    let delete = Write::delete(key.clone(), Guard::Version(1));
    assert_eq!(table.store.write(&delete).await.unwrap(), Item::new());
    assert_eq!(table.store.get(&key).await.unwrap(), None);
    assert_eq!(table.store.write(&delete).await.unwrap(), Item::new(), "gone is what it wanted");
}

async fn what_cannot_be_done_is_invalid(table: Table) {
    let key = key("invalid");
    born(&*table.store, &key, "there").await;
    let huge = item([("detail", text(&"x".repeat(410 * 1024)))]);
    let outcome =
        table.store.write(&Write::update(key.clone(), Guard::Exists, huge.clone(), [].into())).await;
    assert!(is(&outcome, "invalid"), "an item over 400 KB: {outcome:?}");
    let fresh = super::key("huge");
    let outcome = table.store.write(&Write::create(fresh.clone(), keyed(&fresh, huge))).await;
    assert!(is(&outcome, "invalid"), "a new item over 400 KB: {outcome:?}");
    let raise = Write::update(key.clone(), Guard::Exists, Item::new(), [("state".to_owned(), 1)].into());
    let outcome = table.store.write(&raise).await;
    assert!(is(&outcome, "invalid"), "a text that rises: {outcome:?}");
}

mod strict {
    use super::*;

    on_strict_engines!(an_attribute_cannot_change_in_two_ways);

    async fn an_attribute_cannot_change_in_two_ways(table: Table) {
        let key = key("two-ways");
        born(&*table.store, &key, "there").await;
        let twice = item([("uses", number(1))]);
        let twice = Write::update(key.clone(), Guard::Exists, twice, [("uses".to_owned(), 1)].into());
        let outcome = table.store.write(&twice).await;
        assert!(is(&outcome, "invalid"), "one attribute changed in two ways: {outcome:?}");
    }
}
