//! Every guard, on records for which it holds and does not: alone, and as a check in a transaction.

use runyard_core::model::{Guard, Item, Write};

use super::{Table, item, key, keyed, number, on_every_engine, refusals, text};

on_every_engine!(
    every_guard_holds_exactly_when_it_says_so,
    the_agents_record_goes_with_its_instance_whatever_it_holds,
    a_record_that_was_given_more_time_is_not_removed,
    a_release_is_fenced_off_from_a_second_one_only,
);

/// A guard, the record it meets (none: not there), and whether it holds.
fn cases() -> Vec<(Guard, Option<Item>, bool)> {
    let one = |name: &str, value| Some(item([(name, value)]));
    let image = |uid: &str| Guard::Image(uid.parse().expect("a uid"), 2);
    vec![
        (Guard::Absent, None, true),
        (Guard::Absent, one("version", number(1)), false),
        (Guard::Exists, one("version", number(1)), true),
        (Guard::Exists, None, false),
        (Guard::Version(2), one("version", number(2)), true),
        (Guard::Version(2), one("version", number(3)), false),
        (Guard::Version(2), one("version", text("2")), false),
        (Guard::Version(2), one("state", text("idle")), false),
        (Guard::Version(2), None, false),
        (image("u-1"), Some(item([("uid", text("u-1")), ("version", number(2))])), true),
        (image("u-1"), Some(item([("uid", text("u-1")), ("version", number(3))])), false),
        (image("u-1"), Some(item([("uid", text("u-2")), ("version", number(2))])), false),
        (image("u-1"), one("version", number(2)), false),
        (image("u-1"), None, false),
        (Guard::Beat(0), one("heartbeatSeq", number(0)), true),
        (Guard::Beat(0), one("heartbeatSeq", number(1)), false),
        (Guard::Beat(0), None, false),
        (Guard::Lease(7), one("token", number(7)), true),
        (Guard::Lease(7), one("token", number(8)), false),
        (Guard::Lease(7), None, false),
        (Guard::StillProvisioned, one("desired", text("provisioned")), true),
        (Guard::StillProvisioned, one("desired", text("released")), false),
        (Guard::StillProvisioned, None, false),
        (Guard::Anything, one("kind", text("agent")), true),
        (Guard::Anything, None, true),
        (Guard::Anything, one("kind", text("mine")), true),
        (Guard::Anything, one("heartbeatSeq", text("many")), true),
        (Guard::ExpiresAt(100), one("expiresAt", number(100)), true),
        (Guard::ExpiresAt(100), one("expiresAt", number(101)), false),
        (Guard::ExpiresAt(100), one("version", number(1)), false),
    ]
}

async fn every_guard_holds_exactly_when_it_says_so(table: Table) {
    for (number, (guard, record, holds)) in cases().into_iter().enumerate() {
        let key = key(&format!("guard-{number}"));
        let there = record.map(|record| keyed(&key, record));
        if let Some(there) = &there {
            table.store.write(&Write::create(key.clone(), there.clone())).await.unwrap();
        }
        let told = format!("{guard:?} on {there:?}");
        for check in [true, false] {
            let write = Write::check(key.clone(), guard.clone());
            let outcome = if check {
                table.store.transact(&[write]).await
            } else {
                table
                    .store
                    .write(&write)
                    .await
                    .map(|now| assert_eq!(Some(now).filter(|i| !i.is_empty()), there))
            };
            match (&outcome, holds) {
                (Ok(()), true) => {}
                (Err(_), false) => assert_eq!(refusals(outcome)[0].current, there, "{told}"),
                _ => panic!("{told}: {outcome:?}"),
            }
        }
        assert_eq!(table.store.get(&key).await.unwrap(), there, "a check changes nothing: {told}");
    }
}

/// A machine may write any attribute of its agent record: none of them may keep it from being buried.
async fn the_agents_record_goes_with_its_instance_whatever_it_holds(table: Table) {
    let (agent, instance) = (key("agent"), key("instance"));
    let bury = |version| {
        let dead = Write::update(
            instance.clone(),
            Guard::Version(version),
            item([("version", number(version as i64 + 1))]),
            [].into(),
        );
        [dead, Write::delete(agent.clone(), Guard::Anything)]
    };
    let born = keyed(&instance, item([("kind", text("instance")), ("version", number(1))]));
    table.store.write(&Write::create(instance.clone(), born)).await.unwrap();
    for (version, holds) in [(1, Some(text("agent"))), (2, Some(text("mine"))), (3, None)] {
        if let Some(kind) = holds {
            let record = keyed(&agent, item([("kind", kind)]));
            table.store.write(&Write::create(agent.clone(), record)).await.unwrap();
        }
        table.store.transact(&bury(version)).await.unwrap();
        assert_eq!(table.store.get(&agent).await.unwrap(), None);
    }
    let record = keyed(&agent, item([("kind", text("agent"))]));
    table.store.write(&Write::create(agent.clone(), record)).await.unwrap();
    assert_eq!(refusals(table.store.transact(&bury(1)).await).len(), 1, "its instance changed meanwhile");
    assert!(table.store.get(&agent).await.unwrap().is_some());
}

async fn a_record_that_was_given_more_time_is_not_removed(table: Table) {
    let key = key("expiring");
    let record = keyed(&key, item([("expiresAt", number(200))]));
    table.store.write(&Write::create(key.clone(), record)).await.unwrap();
    refusals(table.store.write(&Write::delete(key.clone(), Guard::ExpiresAt(100))).await);
    table.store.write(&Write::delete(key.clone(), Guard::ExpiresAt(200))).await.unwrap();
    assert_eq!(table.store.get(&key).await.unwrap(), None);
}

async fn a_release_is_fenced_off_from_a_second_one_only(table: Table) {
    let key = key("release");
    let record = item([("desired", text("provisioned")), ("version", number(9)), ("generation", number(1))]);
    table.store.write(&Write::create(key.clone(), keyed(&key, record))).await.unwrap();
    let release = |at: &str| {
        let set = item([("desired", text("released")), ("updatedAt", text(at))]);
        let add = [("version".to_owned(), 1), ("generation".to_owned(), 1)].into();
        Write::update(key.clone(), Guard::StillProvisioned, set, add)
    };
    let released = table.store.write(&release("first")).await.unwrap();
    assert_eq!((&released["version"], &released["generation"]), (&number(10), &number(2)));
    assert_eq!(table.store.write(&release("first")).await.unwrap(), released, "its own result, once more");
    assert_eq!(refusals(table.store.write(&release("second")).await)[0].current, Some(released));
}
