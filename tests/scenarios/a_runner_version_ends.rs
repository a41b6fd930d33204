//! GitHub ends its support of the runner version that machines get.

use std::time::Duration;

use runyard_core::decide::{Followed, Following};
use runyard_core::model::{ConditionType, Pool, RecordId, State};
use runyard_core::ports::github::{EndOfLife, RunnerApplication};
use runyard_core::ports::{GitHubError, StoreError};
use runyard_fakes::Fault;
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

async fn without_the_table(world: &World, length: Duration) {
    world.store.heal();
    for _ in 0..100_000 {
        world.store.next_read(Fault::Fail(StoreError::Unknown("away".into())));
        world.store.next_write(Fault::Fail(StoreError::Unknown("away".into())));
    }
    world.store.break_watches();
    tokio::time::sleep(length).await;
}

/// What it was told a day ago a leader would have asked for again.
#[tokio::test(start_paused = true)]
async fn an_operator_that_leads_no_more_forgets_after_a_day_when_a_version_ends() {
    let world = pinned("2.336.0");
    let end = world.at() + Duration::from_secs(40 * 24 * 3600);
    world.github.set_end_of_life("2.336.0", EndOfLife { registration: None, runtime: Some(end) });
    world.pool(linux(0, 9)).await;
    world.start();
    let first = world.provision("1", "linux", 1, json!({})).await;
    world.until_phase(&first, "Ready", 120).await;
    world.sleep(180).await;
    for _ in 0..23 {
        without_the_table(&world, Duration::from_secs(3600)).await;
        assert!(left(&world, "runtime").is_finite());
    }
    for _ in 0..2 {
        without_the_table(&world, Duration::from_secs(3600)).await;
    }
    assert!(left(&world, "runtime").is_infinite());
}

/// Its lease ran out while the table was away. Until GitHub answered again it launched machines that get no job.
#[tokio::test(start_paused = true)]
async fn an_operator_that_leads_again_after_an_outage_still_knows_that_a_version_ended() {
    let world = pinned("2.336.0");
    let end = world.at() + Duration::from_secs(600);
    world.github.set_end_of_life("2.336.0", EndOfLife { registration: None, runtime: Some(end) });
    world.pool(linux(0, 9)).await;
    world.start();
    let first = world.provision("1", "linux", 1, json!({"maxRuntimeMinutes": 5})).await;
    world.until_phase(&first, "Ready", 120).await;
    world.sleep(700).await;
    let launched = world.compute.orders().len();
    world.github.outage_of("end_of_life", Some(GitHubError::Unreachable("away".into())));
    without_the_table(&world, Duration::from_secs(120)).await;
    world.store.heal();
    world.sleep(60).await;
    let second = world.provision("2", "linux", 3, json!({})).await;
    world.until_phase(&second, "Failed", 700).await;
    assert!(blocked(&world).await.is_some(), "the class says so");
    assert_eq!(world.compute.orders().len(), launched, "nothing is launched in vain");
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
    world.sleep(6 * 3600).await;
    assert_eq!(world.github.calls()["end_of_life"], 1);
}

fn application(version: &str, sha256: Option<String>) -> RunnerApplication {
    let filename = format!("actions-runner-linux-x64-{version}.tar.gz");
    let download_url = format!("https://github.com/actions/runner/releases/download/v{version}/{filename}");
    RunnerApplication { os: "linux".into(), architecture: "x64".into(), download_url, filename, sha256 }
}

fn follows(version: &str) -> World {
    let package = application(version, Some("0a".repeat(32))).package(&[]).unwrap();
    let usual = Some(Followed { architecture: "x64".into(), pinned: package });
    pinned(version).set(|settings| settings.following = Following { usual, ..Following::default() })
}

/// A run from its request to the end; the version that its machine's claim named.
async fn run(world: &World, id: u32) -> Option<String> {
    let key = world.provision(&id.to_string(), "linux", 1, json!({})).await;
    world.until_phase(&key, "Ready", 120).await;
    let held = world.in_state(State::Running).pop().expect("it is lent");
    world.sleep(5).await;
    world.release(&key).await;
    world.until_phase(&key, "Released", 60).await;
    world.until("it is pooled", Duration::from_secs(60), async || !world.pooled().is_empty()).await;
    held.runner.map(|package| package.version)
}

#[tokio::test(start_paused = true)]
async fn a_new_version_is_tried_by_a_few_claims_and_then_given_to_all_on_the_same_machine() {
    let world = follows("2.336.0");
    let digest = |two: &str| Some(two.repeat(32));
    world.github.offer(vec![
        application("2.337.0", digest("0b")),
        application("2.338.0", None),
        application("2.339.0", digest("xy")),
        RunnerApplication { architecture: "arm64".into(), ..application("2.340.0", digest("0c")) },
        RunnerApplication { os: "win".into(), ..application("2.341.0", digest("0d")) },
    ]);
    world.pool(linux(1, 1)).await;
    world.start();
    assert_eq!(run(&world, 1).await.as_deref(), Some("2.336.0"), "nobody asked GitHub yet");
    world.sleep(120).await;
    let mut named = Vec::new();
    for id in 2..=6 {
        named.extend(run(&world, id).await);
    }
    assert_eq!(named, ["2.337.0"; 5], "what has no digest, or is for other machines, is not adopted");
    let pool: Pool = world.get(&RecordId::new("pool#linux", "pool")).await.unwrap();
    assert_eq!(pool.status.runner.adopted.unwrap().version, "2.337.0");
    assert_eq!(pool.status.runner.trial, None);
    assert_eq!(world.compute.orders().len(), 1, "no machine was replaced");
    assert_eq!(world.github.calls()["runner_applications"], 1, "once a day");
    let pooled = world.pooled().pop().unwrap();
    assert_eq!(pooled.runner.unwrap().version, "2.337.0", "and its agent can prepare it");
}
