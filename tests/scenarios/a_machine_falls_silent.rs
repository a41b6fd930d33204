use std::time::Duration;

use runyard_core::model::State;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn a_silent_running_machine_ends_and_its_request_says_why_and_gets_another() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let dead = world.in_state(State::Running)[0].facts.instance_id.clone();
    world.agents.one(&dead, Habit::Dies(0));
    world.sleep(45).await;
    assert!(world.reasons().is_empty(), "silence counts after a minute");
    world.until("it ended", Duration::from_secs(40), async || world.reasons() == ["unhealthy"]).await;
    world
        .until("another runs", Duration::from_secs(60), async || {
            let request = world.request(&key).await;
            request.status.instances.len() == 1
                && request.status.instances[0] != dead
                && !world.in_state(State::Running).is_empty()
        })
        .await;
    let request = world.request(&key).await;
    assert_eq!(world.phase(&key).await, "Ready");
    assert!(request.status.conditions.iter().any(|c| c.condition_type.as_str() == "Degraded"));
    world
        .until("it says it recovered", Duration::from_secs(30), async || {
            let request = world.request(&key).await;
            request.status.conditions.iter().any(|c| c.condition_type.as_str() == "Degraded" && !c.status)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_table_could_not_be_read_ages_nobody() {
    let world = World::new();
    world.pool(linux(2, 5)).await;
    world.start();
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    for _ in 0..200_000 {
        world
            .store
            .next_read(runyard_fakes::Fault::Fail(runyard_core::ports::StoreError::Unknown("away".into())));
    }
    world.store.break_watches();
    tokio::time::sleep(Duration::from_secs(3 * 3600 / 6)).await;
    world.store.heal();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!world.reasons().iter().any(|reason| reason == "unhealthy"), "{}", world.show());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_cleaned_ends_and_is_never_pooled() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.agents.all(Habit::CleaningFails);
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    assert_eq!(world.reasons(), ["cleanup-failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_says_it_is_clean_ends_at_the_clean_up_deadline() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.agents.all(Habit::NeverCleans);
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.release(&key).await;
    world.until_phase(&key, "Releasing", 60).await;
    world.sleep(290).await;
    assert_eq!(world.phase(&key).await, "Releasing");
    world.until_phase(&key, "Released", 30).await;
    assert_eq!(world.reasons(), ["threshold"]);
}

#[tokio::test(start_paused = true)]
async fn an_endless_run_gives_its_machines_back_at_its_maximum_runtime_and_gets_no_others() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({"maxRuntimeMinutes": 5})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.sleep(290).await;
    assert_eq!(world.phase(&key).await, "Ready");
    world.until_phase(&key, "Released", 60).await;
    assert!(world.reasons().is_empty(), "a gentle end: no machine is ended with its job");
    assert_eq!((world.pooled().len(), world.compute.orders().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_is_noticed_long_before_the_next_resync() {
    let world = World::new();
    world.pool(linux(0, 3)).await;
    world.start();
    world.sleep(5).await;
    world.store.silence_watches(true);
    world.calls.take();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Fulfilling", 62).await;
    let lists = world.calls.take().iter().filter(|call| call.name == "list").count();
    assert_eq!(lists, 1, "it was found by one list");
    world.store.silence_watches(false);
    world.until_phase(&key, "Ready", 30).await;
}
