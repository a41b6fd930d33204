use std::time::Duration;

use runyard_core::model::{ConditionType, InstanceId, Rebalance, Request, State};
use runyard_core::ports::{Clock, MachineState, QueueError};
use runyard_fakes::Fault;

use runyard_tests::agents::Habit;
use runyard_tests::world::{World, linux};

const WARNING: &str = include_str!("../golden/events/spot-interruption-warning.json");
const REBALANCE: &str = include_str!("../golden/events/rebalance-recommendation.json");
const CHANGED: &str = include_str!("../golden/events/state-change.json");

/// The event, of this machine and of now.
fn event(world: &World, golden: &str, id: &InstanceId) -> String {
    let now = world.clock.now().to_string();
    golden.replace("i-1234567890abcdef0", id.as_str()).replace("2026-01-05T12:00:00Z", &now)
}

fn degraded(request: &Request) -> Option<(bool, String)> {
    let mut conditions = request.status.conditions.iter();
    let found = conditions.find(|c| c.condition_type == ConditionType::Degraded)?;
    Some((found.status, found.reason.clone()))
}

async fn pooled(world: &World, n: usize) -> Vec<InstanceId> {
    world.until("they are pooled", Duration::from_secs(60), async || world.pooled().len() == n).await;
    world.pooled().iter().map(|instance| instance.facts.instance_id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_free_machine_leaves_the_pool_at_once_and_is_replaced() {
    for (golden, rebalance) in [(WARNING, Rebalance::Ignore), (REBALANCE, Rebalance::End)] {
        let world = World::new().set(|settings| settings.rebalance = rebalance);
        world.pool(linux(1, 5)).await;
        world.start();
        let taken = pooled(&world, 1).await.remove(0);
        world.notices.post(&event(&world, golden, &taken));
        world.until("it left", Duration::from_secs(3), async || world.reasons() == ["interrupted"]).await;
        let again = pooled(&world, 1).await.remove(0);
        assert_ne!(again, taken);
        world.until("acknowledged", Duration::from_secs(5), async || world.notices.bodies().is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_running_machine_ends_in_time_and_degrades_its_request() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let taken = world.in_state(State::Running)[0].facts.instance_id.clone();
    let noticed = world.clock.elapsed();
    world.notices.post(&event(&world, WARNING, &taken));
    world
        .until("the request knows", Duration::from_secs(3), async || {
            degraded(&world.request(&key).await) == Some((true, "interrupted".into()))
        })
        .await;
    assert_eq!(world.in_state(State::Running).len(), 1, "its job has time to end");
    world.until("it is ended", Duration::from_secs(110), async || world.reasons() == ["interrupted"]).await;
    let after = world.clock.elapsed() - noticed;
    assert!((Duration::from_secs(90)..=Duration::from_secs(100)).contains(&after), "{after:?}");
    world
        .until("another serves", Duration::from_secs(60), async || {
            degraded(&world.request(&key).await) == Some((false, "Recovered".into()))
        })
        .await;
    assert_eq!(world.phase(&key).await, "Ready");
    assert!(!world.request(&key).await.status.instances.contains(&taken));
    world.until("acknowledged", Duration::from_secs(5), async || world.notices.bodies().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_machine_at_risk_leaves_the_pool_when_its_replacement_is_idle() {
    let world = World::new();
    world.pool(linux(1, 5)).await;
    world.start();
    let risky = pooled(&world, 1).await.remove(0);
    world.notices.post(&event(&world, REBALANCE, &risky));
    world.until("acknowledged", Duration::from_secs(5), async || world.notices.bodies().is_empty()).await;
    assert_eq!(world.pooled()[0].facts.instance_id, risky, "its replacement boots first");
    world.until("it left", Duration::from_secs(120), async || world.reasons() == ["interrupted"]).await;
    assert_ne!(pooled(&world, 1).await.remove(0), risky);
    world.sleep(600).await;
    assert_eq!(
        (world.pooled().len(), world.reasons().len()),
        (1, 1),
        "and nothing more is ended or launched"
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_at_risk_finishes_and_is_pooled_again_only_where_that_is_wanted() {
    for (rebalance, ended) in [(Rebalance::Last, false), (Rebalance::End, true)] {
        at_risk_after_its_run(rebalance, ended).await;
    }
}

async fn at_risk_after_its_run(rebalance: Rebalance, ended: bool) {
    let world = World::new().set(|settings| settings.rebalance = rebalance);
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let risky = world.in_state(State::Running)[0].facts.instance_id.clone();
    world.notices.post(&event(&world, REBALANCE, &risky));
    world.until("acknowledged", Duration::from_secs(5), async || world.notices.bodies().is_empty()).await;
    world.sleep(300).await;
    assert_eq!(world.in_state(State::Running).len(), 1);
    assert_eq!(degraded(&world.request(&key).await), None);
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    let reasons: &[&str] = if ended { &["interrupted"] } else { &[] };
    world
        .until("it is over", Duration::from_secs(60), async || world.in_state(State::Running).is_empty())
        .await;
    world.sleep(30).await;
    assert_eq!(world.reasons(), reasons);
    assert_eq!(world.pooled().len(), usize::from(!ended));
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_runner_does_not_listen_yet_is_given_up_at_once_for_another() {
    let world = World::new();
    world.agents.all(Habit::NeverRegisters);
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until("one boots", Duration::from_secs(30), async || world.live().len() == 1).await;
    let taken = world.live()[0].facts.instance_id.clone();
    world.agents.all(Habit::Good);
    world.agents.one(&taken, Habit::NeverRegisters);
    world.notices.post(&event(&world, WARNING, &taken));
    world.until_phase(&key, "Ready", 60).await;
    assert_eq!(world.reasons(), ["interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_state_is_looked_into_before_the_next_list() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let lost = world.in_state(State::Running)[0].facts.instance_id.clone();
    // A word alone ends nothing.
    world.notices.post(&event(&world, CHANGED, &lost));
    world.until("acknowledged", Duration::from_secs(5), async || world.notices.bodies().is_empty()).await;
    assert_eq!(world.in_state(State::Running).len(), 1);
    world.compute.set_state(&lost, MachineState::ShuttingDown);
    world.notices.post(&event(&world, CHANGED, &lost));
    world.until("it is known", Duration::from_secs(3), async || world.reasons() == ["vanished"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ours_is_dropped_and_what_cannot_be_read_is_left_to_the_queue() {
    let world = World::new();
    world.pool(linux(1, 5)).await;
    world.start();
    pooled(&world, 1).await;
    world.notices.next(Fault::Fail(QueueError::Unreachable("reset".into())));
    let foreign: InstanceId = "i-0fedcba0987654321".parse().unwrap();
    world.notices.post(&event(&world, WARNING, &foreign));
    world.notices.post("not an event");
    world
        .until("dropped", Duration::from_secs(30), async || world.notices.bodies() == ["not an event"])
        .await;
    world.sleep(120).await;
    assert_eq!(world.notices.bodies(), ["not an event"]);
    assert_eq!(world.pooled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_had_received_when_it_died_comes_to_its_successor_in_time() {
    let world = World::new();
    world.pool(linux(0, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 1, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    let taken = world.in_state(State::Running)[0].facts.instance_id.clone();
    let noticed = world.clock.elapsed();
    world.notices.post(&event(&world, WARNING, &taken));
    world.sleep(5).await;
    world.kill();
    world.start_as("two");
    world.until("it is ended", Duration::from_secs(110), async || world.reasons() == ["interrupted"]).await;
    assert!(world.clock.elapsed() - noticed <= Duration::from_secs(101));
}
