//! GitHub ends its support of the runner version that machines get.

use std::time::Duration;

use runyard::model::{ConditionType, Pool, RecordId};
use runyard::ports::github::EndOfLife;
use serde_json::json;

use runyard_tests::world::{World, linux};

fn pinned(version: &str) -> World {
    let version = version.to_owned();
    World::with_github().set(move |settings| settings.runner_version = Some(version))
}

async fn blocked(world: &World) -> Option<String> {
    let pool: Pool = world.get(&RecordId::new("pool#linux", "pool")).await?;
    let mut conditions = pool.status.conditions.into_iter();
    let found = conditions.find(|one| one.condition_type == ConditionType::Blocked && one.status)?;
    Some(format!("{}: {}", found.reason, found.message))
}

fn left(world: &World, kind: &str) -> f64 {
    let name = format!("runyard_runner_version_deadline_seconds{{kind=\"{kind}\"}} ");
    let text = world.metrics.render();
    text.lines().find_map(|line| line.strip_prefix(&name)).expect("the series is there").parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_class_is_held_back_with_the_reason_and_launches_nothing_that_gets_no_job() {
    let world = pinned("2.336.0");
    let end = world.at() + Duration::from_secs(3600);
    world.github.set_end_of_life("2.336.0", EndOfLife { registration: None, runtime: Some(end) });
    world.pool(linux(0, 9)).await;
    world.start();
    let first = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&first, "Ready", 120).await;
    world.sleep(180).await;
    assert!(left(&world, "runtime") < 3600.0 && left(&world, "registration").is_infinite());
    assert_eq!(blocked(&world).await, None);
    world.sleep(3600).await;
    let launched = world.compute.orders().len();
    let second = world.provision("2", "linux", 3, json!({})).await;
    world.until_phase(&second, "Failed", 700).await;
    let why = blocked(&world).await.expect("the class says so");
    assert!(why.starts_with("RunnerDeprecated: ") && why.contains("2.336.0"), "{why}");
    assert_eq!(world.compute.orders().len(), launched, "nothing is launched in vain");
    let failed = world.request(&second).await.status.message;
    assert!(failed.contains("no runner of its version"), "{failed}");
    assert!(left(&world, "runtime") < 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_github_does_not_know_holds_nothing_back() {
    let world = pinned("2.999.0");
    world.pool(linux(1, 2)).await;
    world.start();
    let first = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&first, "Ready", 120).await;
    world.sleep(7200).await;
    assert_eq!(blocked(&world).await, None);
    assert!(left(&world, "runtime").is_infinite());
    assert!((1..=4).contains(&world.github.calls()["end_of_life"]), "it is no poll");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_version_is_looked_up_once_a_day_and_by_the_leader_alone() {
    let world = pinned("2.336.0");
    world.github.set_end_of_life("2.336.0", EndOfLife::default());
    world.pool(linux(0, 2)).await;
    world.start();
    world.start_as("two");
    let first = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&first, "Ready", 120).await;
    world.sleep(23 * 3600).await;
    assert_eq!(world.github.calls()["end_of_life"], 1);
}
