//! GitHub's webhook says that jobs were queued, and the operator looks at once; what others say in its place costs
//! little.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{RecordId, Request, State};
use runyard_core::ports::QueueError;
use runyard_core::ports::github::RunState;
use runyard_fakes::{Fault, MemoryJobBell};
use runyard_operator::controller::Ports;
use serde_json::json;

use runyard_tests::world::{World, linux};

const QUEUED: &str = include_str!("../golden/webhooks/workflow-job-queued.json");

fn body(repository: &str, run: u64) -> String {
    json!({
        "action": "queued", "workflow_job": {"run_id": run}, "repository": {"full_name": repository},
    })
    .to_string()
}

/// A yard with a warm machine that serves labels of acme, whose operator hears what is posted.
async fn world() -> (World, MemoryJobBell) {
    let (world, bell) = (World::with_github(), MemoryJobBell::new());
    let mut spec = linux(1, 5);
    spec["queue"] = json!({"runLabels": true});
    spec["repositories"] = json!(["acme/*"]);
    world.pool(spec).await;
    world.github.set_run("acme", "web", 7, RunState::Active { attempt: 1 });
    world.start_over("one", |ports| Ports { job_bell: Some(Arc::new(bell.clone())), ..ports });
    // A machine waits, and the repository was looked at a moment ago.
    world.sleep(185).await;
    (world, bell)
}

fn queue(world: &World, run: u64) {
    world.github.queue_job("acme", "web", run, "build", &[&format!("{run}-linux")]);
}

fn key(run: u64) -> RecordId {
    RecordId::new(format!("request#acme/web#{run}"), "request#linux#1")
}

/// A look, which comes two seconds after the last one at the earliest.
const SOON: Duration = Duration::from_secs(3);

async fn asked_within(world: &World, run: u64, within: Duration) {
    let asked = async || world.get::<Request>(&key(run)).await.is_some();
    world.until("a request of the run", within, asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_job_that_rings_gets_its_machine_at_once() {
    let (world, bell) = world().await;
    queue(&world, 42);
    bell.post(QUEUED);
    asked_within(&world, 42, SOON).await;
    let run = async || world.in_state(State::Running).len() == 1;
    world.until("its machine runs", Duration::from_secs(10), run).await;
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_lost_ring_costs_an_interval_and_a_queue_that_fails_is_heard_again() {
    let (world, bell) = world().await;
    for _ in 0..3 {
        bell.next(Fault::Fail(QueueError::Unreachable("reset".into())));
    }
    queue(&world, 41);
    asked_within(&world, 41, Duration::from_secs(65)).await;
    world.sleep(60).await;
    queue(&world, 42);
    bell.post(&body("acme/web", 42));
    asked_within(&world, 42, SOON).await;
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_ten_thousand_forged_bodies_hides_no_true_one() {
    let (world, bell) = world().await;
    let looks = |world: &World| world.github.calls().get("open_runs").copied().unwrap_or(0);
    let before = looks(&world);
    queue(&world, 42);
    for number in 0..10_000_u64 {
        bell.post(&match number % 4 {
            0 => "no JSON".to_owned(),
            1 => json!({"repository": {"full_name": "acme/web"}}).to_string(),
            2 => body(&format!("evil/x{number}"), number),
            _ => body(&format!("acme/x{number}"), number),
        });
        if number == 5_000 {
            bell.post(QUEUED);
        }
    }
    asked_within(&world, 42, SOON).await;
    world.sleep(7).await;
    assert_eq!(bell.waiting(), 0, "nothing is kept");
    let looked = looks(&world) - before;
    assert!(looked <= 20, "{looked} looks for one true ring");
    world.check();
}
