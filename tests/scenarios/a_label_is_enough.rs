//! Jobs that name their run and a class by their label get machines, and no job asks for them.

use std::time::Duration;

use runyard_core::model::{Asked, Phase, RecordId, ReleasedBy, Request, State};
use runyard_core::ports::github::{JobState, RunState};
use serde_json::json;

use runyard_tests::world::{World, linux};

/// A minute between two looks, what the loop knows, and a boot.
const LOOK: u64 = 60 + 5 + 60;

fn queue(world: &World, run: u64, label: &str) {
    world.github.queue_job("acme", "web", run, "build", &[label]);
}

/// All jobs of the run's first attempt end.
fn done(world: &World, run: u64) {
    let now = world.at();
    world.github.change_jobs("acme", "web", run, 1, |job| {
        (job.state, job.completed_at) = (JobState::Succeeded, Some(now));
    });
}

fn key(run: u64, name: &str) -> RecordId {
    RecordId::new(format!("request#acme/web#{run}"), format!("request#{name}#1"))
}

fn events(world: &World, reason: &str) -> usize {
    let named = |item: &&runyard_core::model::Item| format!("{:?}", item.get("reason")).contains(reason);
    world.store.records().iter().filter(named).count()
}

async fn world(desired: u32, max: u32, queue: serde_json::Value) -> World {
    let world = World::with_github();
    let mut spec = linux(desired, max);
    spec["queue"] = queue;
    spec["repositories"] = json!(["acme/web"]);
    world.pool(spec).await;
    world.start();
    world
}

async fn running(world: &World, machines: usize, within: u64) {
    let what = format!("{machines} machines run");
    let run = async || world.in_state(State::Running).len() == machines;
    world.until(&what, Duration::from_secs(within), run).await;
}

#[tokio::test(start_paused = true)]
async fn queued_jobs_get_machines_and_their_runs_end_gives_them_back() {
    let world = world(2, 5, json!({"runLabels": true})).await;
    world.sleep(180).await;
    queue(&world, 41, "41-linux");
    queue(&world, 41, "41-LINUX");
    queue(&world, 41, "41-linux-7");
    queue(&world, 41, "ubuntu-latest");
    running(&world, 3, LOOK).await;
    let request: Request = world.request(&key(41, "linux")).await;
    assert_eq!(
        (request.intent.count, request.intent.asked, request.label()),
        (2, Asked::Job, "41-linux".into())
    );
    let numbered: Request = world.request(&key(41, "linux-7")).await;
    assert_eq!((numbered.intent.count, numbered.intent.resource_class.as_str()), (1, "linux"));
    // A job that comes later raises the count.
    queue(&world, 41, "41-linux");
    running(&world, 4, LOOK).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    for name in ["linux", "linux-7"] {
        world.until_phase(&key(41, name), "Released", 15 + 5 + 60).await;
        let over: Request = world.request(&key(41, name)).await;
        assert_eq!(over.status.released_by, Some(ReleasedBy::RunEnded));
    }
    world.check();
    assert_eq!(events(&world, "JobNotServed"), 0);
}

/// A class, a workflow that asks, and the jobs of another run write one repository in three ways.
#[tokio::test(start_paused = true)]
async fn a_repository_is_one_in_whichever_case_it_is_written() {
    let world = World::with_github();
    let mut spec = linux(1, 1);
    spec["queue"] = json!({"runLabels": true});
    (spec["repositories"], spec["reuseWithin"]) = (json!(["ACME/Web"]), json!("repository"));
    world.pool(spec).await;
    world.start();
    world.github.set_run("Acme", "web", 40, RunState::Active { attempt: 1 });
    let asked = world.provision("40", "linux", 1, json!({"repository": "Acme/WEB"})).await;
    running(&world, 1, LOOK).await;
    world.release(&asked).await;
    world.until_phase(&asked, "Released", 60).await;
    world.github.queue_job("Acme", "Web", 41, "build", &["41-linux"]);
    running(&world, 1, LOOK).await;
    let request: Request = world.request(&key(41, "linux")).await;
    assert_eq!((request.intent.asked, request.phase()), (Asked::Job, Phase::Ready));
    assert_eq!(world.instances().len(), 1, "the machine is of one trust domain");
    world.github.set_run("aCME", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key(41, "linux"), "Released", 15 + 5 + 60).await;
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_matrix_of_forty_jobs_gets_as_many_machines_as_its_class_allows_a_label() {
    let world = world(0, 20, json!({"runLabels": true, "maxSlots": 8})).await;
    (0..40).for_each(|_| queue(&world, 41, "41-linux"));
    running(&world, 8, LOOK).await;
    world.sleep(600).await;
    assert_eq!(world.in_state(State::Running).len(), 8);
    let request: Request = world.request(&key(41, "linux")).await;
    assert_eq!((request.intent.count, request.phase()), (8, Phase::Ready));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_an_hour_for_an_approval_keeps_its_request_open() {
    let world = world(1, 5, json!({"runLabels": true})).await;
    queue(&world, 41, "41-linux");
    running(&world, 1, LOOK).await;
    done(&world, 41);
    world.github.set_waiting("acme", "web", 41, true);
    world.sleep(3600).await;
    assert_eq!(world.request(&key(41, "linux")).await.phase(), Phase::Ready);
    world.github.set_waiting("acme", "web", 41, false);
    queue(&world, 41, "41-linux");
    queue(&world, 41, "41-linux");
    running(&world, 2, LOOK).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key(41, "linux"), "Released", 15 + 5 + 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_before_its_machines_come_gives_its_request_back() {
    let world = world(0, 5, json!({"runLabels": true})).await;
    queue(&world, 41, "41-linux");
    let asked = async || world.get::<Request>(&key(41, "linux")).await.is_some();
    world.until("a request", Duration::from_secs(65), asked).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key(41, "linux"), "Released", 15 + 5 + 60).await;
    world.sleep(120).await;
    assert!(world.in_state(State::Running).is_empty());
    world.check();
}

#[tokio::test(start_paused = true)]
async fn each_attempt_of_a_run_gets_a_request_of_its_own() {
    let world = world(2, 5, json!({"runLabels": true})).await;
    queue(&world, 41, "41-linux");
    running(&world, 1, LOOK).await;
    world.github.change_jobs("acme", "web", 41, 1, |job| job.state = JobState::Failed);
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key(41, "linux"), "Released", 15 + 5 + 60).await;
    assert_eq!(world.github.rerun("acme", "web", 41, false), Ok(2));
    let second = RecordId::new("request#acme/web#41".to_owned(), "request#linux#2".to_owned());
    let ready = |request: Request| request.phase() == Phase::Ready;
    let served = async || world.get(&second).await.is_some_and(ready);
    world.until("the second attempt", Duration::from_secs(LOOK), served).await;
    let request: Request = world.request(&second).await;
    assert_eq!((request.intent.asked, request.status.derived_from), (Asked::Job, None));
    assert_eq!((events(&world, "RerunServed"), events(&world, "RerunNotServed")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_fork_gets_no_machine_unless_the_class_serves_forks() {
    for forks in [false, true] {
        let world = world(1, 5, json!({"runLabels": true, "forks": forks})).await;
        world.github.set_fork("acme", "web", 41);
        queue(&world, 41, "41-linux");
        world.sleep(10 * LOOK).await;
        assert_eq!(world.in_state(State::Running).len(), usize::from(forks));
        assert_eq!(events(&world, "JobNotServed"), usize::from(!forks), "once");
    }
}
