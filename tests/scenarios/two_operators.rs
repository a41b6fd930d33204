use std::collections::BTreeSet;
use std::time::Duration;

use runyard_fakes::MemoryStore;

use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn fifty_requests_and_two_operators_never_hold_a_machine_twice() {
    let world = World::on(MemoryStore::new(), false);
    world.pool(linux(20, 60)).await;
    world.store.every_call_takes(Duration::from_millis(3));
    world.start_as("one");
    world.start_as("two");
    world.until("twenty are warm", Duration::from_secs(120), async || world.pooled().len() >= 20).await;
    let mut keys = Vec::new();
    for run in 0..50 {
        keys.push(world.provision(&run.to_string(), "linux", 1, serde_json::json!({})).await);
    }
    for key in &keys {
        world.until_phase(key, "Ready", 300).await;
    }
    let held: Vec<_> = world.live().into_iter().filter_map(|i| i.held_by().cloned()).collect();
    assert_eq!(held.len(), 50);
    assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), 50, "no request holds two");
}

#[tokio::test(start_paused = true)]
async fn a_stand_by_serves_claims_when_the_leader_is_gone_and_then_leads() {
    let world = World::new();
    world.pool(linux(2, 6)).await;
    let leader = world.start_as("one");
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    world.start_as("two");
    world.sleep(20).await;
    // The leader hangs: nothing of it moves any more, and its lease is not handed back.
    world.hang(&leader);
    let warm = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&warm, "Ready", 10).await;
    let cold = world.provision("2", "linux", 4, serde_json::json!({})).await;
    world.until_phase(&cold, "Ready", 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_stand_by_leaves_a_class_to_a_leader_that_serves_it_however_long_the_line_is() {
    let world = World::new();
    world.pool(linux(40, 40)).await;
    world.start_as("one");
    world.until("forty are warm", Duration::from_secs(120), async || world.pooled().len() == 40).await;
    world.start_as("two");
    world.sleep(5).await;
    world.store.every_call_takes(Duration::from_millis(200));
    world.calls.take();
    // One request every tenth of a second: at no moment is there none that waits.
    let mut keys = Vec::new();
    for run in 0..40 {
        keys.push(world.provision(&run.to_string(), "linux", 1, serde_json::json!({})).await);
    }
    for key in &keys {
        world.until_phase(key, "Ready", 60).await;
    }
    let claims = world.calls.take().into_iter().filter(|call| call.name == "transact").collect::<Vec<_>>();
    let wasted = claims.iter().filter(|call| call.outcome != "ok").count();
    assert_eq!((claims.len(), wasted), (40, 0), "each claim once, none in vain");
}
