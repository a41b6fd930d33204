//! A first boot that hangs must not cost its request, nor say nothing to anybody.

use std::time::Duration;

use runyard_core::model::{InstanceId, Life, State};

use runyard_tests::agents::Habit;
use runyard_tests::world::{GOOD, World, linux};

/// A request for three of which one machine never boots, in a class whose boots take a few seconds.
async fn one_hangs(world: &World) -> (runyard_core::model::RecordId, InstanceId) {
    world.pool(linux(0, 10)).await;
    world.start();
    let first = world.provision("1", "linux", 3, serde_json::json!({})).await;
    world.until_phase(&first, "Ready", 60).await;
    let key = world.provision("2", "linux", 3, serde_json::json!({})).await;
    world.until("all are launched", Duration::from_secs(5), async || world.live().len() == 6).await;
    let booting = world.in_state(State::Created);
    let hung = booting[0].facts.instance_id.clone();
    world.agents.one(&hung, Habit::NeverBoots);
    (key, hung)
}

#[tokio::test(start_paused = true)]
async fn one_machine_of_three_never_boots_and_the_request_is_ready_in_time() {
    let world = World::new();
    let (key, hung) = one_hangs(&world).await;
    world.sleep(110).await;
    assert_eq!(world.live().len(), 6, "it may yet come");
    // Two minutes, and the boot of the second machine.
    world.until_phase(&key, "Ready", 30).await;
    let request = world.request(&key).await;
    assert_eq!((request.status.instances.len(), request.status.served.len()), (3, 4));
    assert!(!request.status.instances.contains(&hung));
    // Nobody waits for it any more, so that its silence ends it.
    assert_eq!(world.reasons(), ["unhealthy"]);
    assert_eq!(world.compute.machines().len(), 7, "one more was launched, and no more than that");
    world.sleep(400).await;
    assert_eq!((world.live().len(), world.compute.machines().len()), (6, 7));
    assert_eq!(world.request(&key).await.phase().to_string(), "Ready");
}

#[tokio::test(start_paused = true)]
async fn a_first_machine_that_hangs_where_no_boot_is_known_costs_no_default_request() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until("it is launched", Duration::from_secs(1), async || world.live().len() == 1).await;
    world.agents.one(&world.live()[0].facts.instance_id.clone(), Habit::NeverBoots);
    world.until_phase(&key, "Ready", 320).await;
}

#[tokio::test(start_paused = true)]
async fn the_hung_machine_that_comes_first_serves_and_the_second_stays_free() {
    let world = World::new();
    let (key, hung) = one_hangs(&world).await;
    world.until("a second is launched", Duration::from_secs(130), async || world.live().len() == 7).await;
    world.agents.one(&hung, GOOD);
    world.until_phase(&key, "Ready", 30).await;
    let request = world.request(&key).await;
    let second = |id: &InstanceId| world.live().iter().any(|machine| machine.facts.instance_id == *id);
    assert_eq!(request.status.instances.len(), 3);
    assert!(request.status.instances.iter().all(second));
    world.sleep(60).await;
    assert_eq!(world.live().len(), 7);
    assert_eq!(world.pooled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_console_of_a_machine_that_failed_is_recorded_once_its_provider_has_it() {
    let world = World::new();
    world.pool(linux(0, 1)).await;
    world.agents.all(Habit::BootFails);
    world.start();
    world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 20})).await;
    world.until("it ended", Duration::from_secs(20), async || !world.reasons().is_empty()).await;
    let id = world.in_state(State::Terminated)[0].facts.instance_id.clone();
    let console =
        "kernel\r\nrunyard: first boot installs the agent\r\nrunyard: powers off: no packet filter\r\n";
    world.compute.console_says(&id, console, Duration::from_secs(90));
    world.sleep(60).await;
    let of = || world.in_state(State::Terminated).into_iter().find(|m| m.facts.instance_id == id).unwrap();
    assert_eq!(of().console, None);
    world.sleep(120).await;
    assert_eq!(of().console.as_deref(), Some("powers off: no packet filter"));
    assert!(matches!(of().life, Life::Terminated { gone_at: Some(_), .. }));
    let reads = world.compute.consoles_read().iter().filter(|read| **read == id).count();
    assert!(reads <= 5, "{reads}");
    world.sleep(1800).await;
    assert_eq!(world.compute.consoles_read().iter().filter(|read| **read == id).count(), reads);
}
