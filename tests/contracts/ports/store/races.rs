//! Sixteen clients on one condition. The races are functions that report what they saw, so that a store which is
//! known to be broken can be shown to fail them.

use std::sync::Arc;

use runyard_core::model::{AttributeValue, Guard, Item, RecordId, Write};
use runyard_core::ports::{Store, StoreError};
use runyard_fakes::MemoryStore;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Table, born, item, key, keyed, number, on_every_engine, text};

const CLIENTS: usize = 16;
const ROUNDS: usize = 12;

on_every_engine!(
    of_sixteen_creators_one_wins,
    of_sixteen_writers_of_one_version_one_wins,
    of_sixteen_claims_of_one_machine_one_wins,
    failing_transactions_take_nothing_back_from_others,
    beats_of_sixteen_clients_are_all_counted,
);

/// Lets every client do its part at the same moment.
async fn race<F, T>(store: &Arc<dyn Store>, part: impl Fn(usize, Arc<dyn Store>) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let start = Arc::new(Barrier::new(CLIENTS));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (part, start) = (part(client, store.clone()), start.clone());
        clients.spawn(async move {
            start.wait().await;
            part.await
        });
    }
    clients.join_all().await
}

/// The clients that won; losers must have been refused.
fn winners(outcomes: Vec<(usize, Result<(), StoreError>)>) -> Result<Vec<usize>, String> {
    let mut winners = Vec::new();
    for (client, outcome) in outcomes {
        match outcome {
            Ok(()) => winners.push(client),
            Err(StoreError::Refused { .. }) => {}
            Err(other) => return Err(format!("client {client} met {other}")),
        }
    }
    Ok(winners)
}

/// Tries again while another transaction is on the record.
async fn settled(store: &dyn Store, writes: &[Write]) -> Result<(), StoreError> {
    loop {
        match store.transact(writes).await {
            Err(StoreError::Contended) => tokio::task::yield_now().await,
            outcome => return outcome,
        }
    }
}

fn mark(client: usize) -> AttributeValue {
    text(&format!("client-{client}"))
}

fn exactly_one(round: usize, won: &[usize], stored: &AttributeValue) -> Result<(), String> {
    match won {
        [winner] if mark(*winner) == *stored => Ok(()),
        _ => Err(format!("round {round}: winners {won:?}, and {stored:?} is stored")),
    }
}

async fn versions(store: &Arc<dyn Store>) -> Result<(), String> {
    let key = key("race-version");
    born(&**store, &key, "start").await;
    for round in 1..=ROUNDS {
        let outcomes = race(store, |client, store| {
            let set = item([("version", number(round as i64 + 1)), ("state", mark(client))]);
            let write = Write::update(key.clone(), Guard::Version(round as u64), set, [].into());
            async move { (client, store.write(&write).await.map(|_| ())) }
        });
        let won = winners(outcomes.await)?;
        let stored = store.get(&key).await.unwrap().unwrap();
        exactly_one(round, &won, &stored["state"])?;
    }
    Ok(())
}

async fn creations(store: &Arc<dyn Store>) -> Result<(), String> {
    for round in 1..=ROUNDS {
        let key = key(&format!("race-create-{round}"));
        let outcomes = race(store, |client, store| {
            let write = Write::create(key.clone(), keyed(&key, item([("state", mark(client))])));
            async move { (client, store.write(&write).await.map(|_| ())) }
        });
        let won = winners(outcomes.await)?;
        exactly_one(round, &won, &store.get(&key).await.unwrap().unwrap()["state"])?;
    }
    Ok(())
}

/// Each client has a request of its own; all want the same machine.
async fn claims(store: &Arc<dyn Store>) -> Result<(), String> {
    let machine = key("race-machine");
    born(&**store, &machine, "idle").await;
    let request = |client: usize| key(&format!("race-request-{client}"));
    for client in 0..CLIENTS {
        born(&**store, &request(client), "Pending").await;
    }
    let mut held = [0_u64; CLIENTS];
    for round in 1..=ROUNDS {
        let outcomes = race(store, |client, store| {
            let to = |key: RecordId, from: u64, state| {
                let set = item([("version", number(from as i64 + 1)), ("state", state)]);
                Write::update(key, Guard::Version(from), set, [].into())
            };
            let own = to(request(client), 1 + held[client], text(&format!("holds-{round}")));
            let writes = [to(machine.clone(), round as u64, mark(client)), own];
            async move { (client, settled(&*store, &writes).await) }
        });
        let won = winners(outcomes.await)?;
        exactly_one(round, &won, &store.get(&machine).await.unwrap().unwrap()["state"])?;
        held[won[0]] += 1;
        for (client, held) in held.iter().enumerate() {
            let stored = store.get(&request(client)).await.unwrap().unwrap();
            let version = number(1 + *held as i64);
            if stored["version"] != version {
                return Err(format!("round {round}: request {client} is {stored:?}, not at {version:?}"));
            }
        }
    }
    Ok(())
}

async fn of_sixteen_creators_one_wins(table: Table) {
    creations(&table.store).await.unwrap();
}

async fn of_sixteen_writers_of_one_version_one_wins(table: Table) {
    versions(&table.store).await.unwrap();
}

async fn of_sixteen_claims_of_one_machine_one_wins(table: Table) {
    claims(&table.store).await.unwrap();
}

async fn failing_transactions_take_nothing_back_from_others(table: Table) {
    let never = key("race-never");
    for round in 0..ROUNDS {
        let own = |client: usize| key(&format!("race-own-{round}-{client}"));
        let outcomes: Vec<Result<(), StoreError>> = race(&table.store, |client, store| {
            let key = own(client);
            let create = Write::create(key.clone(), keyed(&key, item([("state", mark(client))])));
            let failing = Write::check(never.clone(), Guard::Exists);
            async move {
                match client % 2 {
                    0 => store.write(&create).await.map(|_| ()),
                    _ => settled(&*store, &[create, failing]).await,
                }
            }
        })
        .await;
        let succeeded = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(succeeded, CLIENTS / 2, "{outcomes:?}");
        for client in 0..CLIENTS {
            let there = table.store.get(&own(client)).await.unwrap().is_some();
            assert_eq!(there, client % 2 == 0, "round {round}, client {client}");
        }
    }
}

async fn beats_of_sixteen_clients_are_all_counted(table: Table) {
    let key = key("race-beat");
    born(&*table.store, &key, "alive").await;
    for _ in 0..ROUNDS {
        let add = [("heartbeatSeq".to_owned(), 1)];
        let beat = Write::update(key.clone(), Guard::Exists, Item::new(), add.into());
        let outcomes = race(&table.store, |_, store| {
            let beat = beat.clone();
            async move { store.write(&beat).await }
        });
        assert!(outcomes.await.iter().all(Result::is_ok));
    }
    let beats = table.store.get(&key).await.unwrap().unwrap()["heartbeatSeq"].clone();
    assert_eq!(beats, number((CLIENTS * ROUNDS) as i64));
}

#[tokio::test]
async fn a_store_that_is_not_atomic_fails_every_race() {
    let racy = || -> Arc<dyn Store> { Arc::new(MemoryStore::racy()) };
    assert!(creations(&racy()).await.is_err());
    assert!(versions(&racy()).await.is_err());
    assert!(claims(&racy()).await.is_err());
}
