use std::time::Duration;

use runyard::model::State;
use runyard::ports::GitHubError;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn credentials_reach_a_machine_sealed_and_for_its_claim() {
    let world = World::with_github();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let first = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&first, "Ready", 60).await;
    world.release(&first).await;
    world.until_phase(&first, "Released", 60).await;
    let second = world.provision("2", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&second, "Ready", 60).await;
    world.sleep(5).await;
    assert!(world.in_state(State::Running).iter().all(|instance| instance.registration.is_none()));
    for item in world.store.records() {
        let text = format!("{item:?}");
        for (_, token) in world.agents.opened() {
            assert!(token.is_empty() || !text.contains(&token), "a token stands in clear in {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_github_is_away_machines_that_wait_for_it_are_not_ended() {
    let world = World::with_github();
    world.pool(linux(1, 5)).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let waiting = world.pooled()[0].facts.instance_id.clone();
    world.agents.one(&waiting, Habit::NeverRegisters);
    world.github.outage(Some(GitHubError::Unreachable("down".into())));
    let key = world.provision("1", "linux", 1, serde_json::json!({"timeoutSeconds": 3600})).await;
    world
        .until("it is claimed", Duration::from_secs(10), async || !world.in_state(State::Claimed).is_empty())
        .await;
    world.sleep(1200).await;
    assert!(world.reasons().is_empty(), "{}", world.show());
    world.github.outage(None);
    world.agents.one(&waiting, Habit::Good);
    world.until_phase(&key, "Ready", 120).await;
}
