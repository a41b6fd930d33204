use std::time::Duration;

use runyard_core::model::State;

use runyard_tests::agents::Habit;
use runyard_tests::world::{GOOD, World, linux};

#[tokio::test(start_paused = true)]
async fn a_launched_machine_that_never_boots_ends_at_the_boot_deadline_and_is_replaced() {
    let world = World::new();
    // No room for a second machine beside it.
    world.pool(linux(0, 1)).await;
    world.agents.all(Habit::NeverBoots);
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 3000})).await;
    world.until("it is launched", Duration::from_secs(10), async || world.live().len() == 1).await;
    world.sleep(890).await;
    assert!(world.reasons().is_empty());
    world.agents.all(GOOD);
    let first = world.live()[0].facts.instance_id.clone();
    world.agents.one(&first, Habit::NeverBoots);
    world.sleep(15).await;
    assert_eq!(world.reasons(), ["threshold"]);
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!(world.request(&key).await.status.served.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_claimed_machine_that_never_registers_ends_and_the_request_takes_another() {
    let world = World::new();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let lazy = world.pooled()[0].facts.instance_id.clone();
    world.agents.one(&lazy, Habit::NeverRegisters);
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 1000})).await;
    world
        .until("it is claimed", Duration::from_secs(10), async || !world.in_state(State::Claimed).is_empty())
        .await;
    world.sleep(295).await;
    assert!(world.reasons().is_empty());
    world.sleep(10).await;
    assert_eq!(world.reasons(), ["threshold"]);
    world.until_phase(&key, "Ready", 60).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_failed_registration_cleans_the_machine_the_second_ends_it() {
    let world = World::new();
    world.pool(linux(1, 1)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let broken = world.pooled()[0].facts.instance_id.clone();
    world.agents.one(&broken, Habit::RegistrationFails);
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 500})).await;
    world
        .until("it ended", Duration::from_secs(60), async || world.reasons() == ["registration-failed"])
        .await;
    let ended = &world.in_state(State::Terminated)[0];
    assert_eq!(ended.registration_failures, 1, "the one before the last");
    world.until_phase(&key, "Ready", 120).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_launched_for_a_request_ends_at_its_first_failed_registration() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.agents.all(Habit::RegistrationFails);
    world.start();
    world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 30})).await;
    world.until("it ended", Duration::from_secs(20), async || !world.reasons().is_empty()).await;
    assert!(world.reasons().iter().all(|reason| reason == "registration-failed"));
}

#[tokio::test(start_paused = true)]
async fn machines_that_keep_failing_to_boot_do_not_become_a_storm() {
    let world = World::new();
    world.pool(linux(0, 50)).await;
    world.agents.all(Habit::BootFails);
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 3600})).await;
    world.sleep(3500).await;
    let orders = world.compute.orders().len();
    assert!((4..40).contains(&orders), "{orders} launches in an hour");
    assert!(world.reasons().iter().all(|reason| reason == "boot-failed"));
    world.until_phase(&key, "Failed", 200).await;
}
