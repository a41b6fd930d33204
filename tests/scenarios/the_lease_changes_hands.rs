//! When does another operator lead? After the lease's whole term without a renewal, and at once where it is our own.

use std::time::Duration;

use runyard_core::model::Lease;

use runyard_tests::world::{World, linux};

async fn lease(world: &World) -> Option<Lease> {
    world.get(&Lease::key_of(Lease::OPERATOR)).await
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_no_sooner_than_a_whole_term_after_its_last_renewal() {
    let world = World::new();
    world.pool(linux(1, 3)).await;
    let leader = world.start_as("one");
    world.until("it leads", Duration::from_secs(30), async || lease(&world).await.is_some()).await;
    world.start_as("two");
    world.sleep(20).await;
    world.hang(&leader);
    let last = lease(&world).await.unwrap();
    assert_eq!(last.holder, "one");
    world
        .until("the other leads", Duration::from_secs(60), async || {
            lease(&world).await.is_some_and(|lease| lease.holder == "two")
        })
        .await;
    let taken = lease(&world).await.unwrap();
    let between = taken.updated_at.unwrap().duration_since(last.updated_at.unwrap());
    assert_eq!(taken.token, last.token + 1);
    assert!(between.as_secs() >= 15, "taken {between} after the last renewal, its term is 15 s");
    assert!(between.as_secs() <= 25, "taken {between} after the last renewal");
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_again_takes_its_own_lease_back_at_once() {
    let world = World::new();
    world.pool(linux(1, 3)).await;
    world.start_as("one");
    world.until("it leads", Duration::from_secs(30), async || lease(&world).await.is_some()).await;
    world.sleep(20).await;
    let before = lease(&world).await.unwrap();
    world.kill();
    world.start_as("one");
    world
        .until("it leads again", Duration::from_secs(2), async || {
            lease(&world).await.is_some_and(|lease| lease.token == before.token + 1)
        })
        .await;
}
