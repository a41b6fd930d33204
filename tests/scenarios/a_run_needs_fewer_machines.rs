//! A run by label that needs fewer machines for a while: those without a job are given back, and come again when jobs are
//! queued. No job that has begun is ended.

use std::time::Duration;

use runyard_core::model::{Instance, InstanceId, Phase, RecordId, Request, State, runner_name};
use runyard_core::ports::github::{JobState, RunState, Scope};
use serde_json::json;

use runyard_tests::world::{World, linux};

/// A minute between two looks, what the loop knows, and a boot.
const LOOK: u64 = 60 + 5 + 60;
/// Jobs are read at each fifth look, a quarter of a minute apart; five minutes must pass; then the agent is asked.
const UNNEEDED: u64 = 2 * 5 * 20 + 300 + 60;

fn key() -> RecordId {
    RecordId::new("request#acme/web#41".to_owned(), "request#linux#1".to_owned())
}

fn queue(world: &World, job: &str) {
    world.github.queue_job("acme", "web", 41, job, &["41-linux"]);
}

/// A job ends at GitHub.
fn ends(world: &World, job: &str) {
    let now = world.at();
    world.github.change_jobs("acme", "web", 41, 1, |one| {
        if one.name == job {
            (one.state, one.completed_at) = (JobState::Succeeded, Some(now));
        }
    });
}

/// Registers the runners of the machines that run, as their agents would, and tells their agents the numbers.
fn registered(world: &World) -> Vec<InstanceId> {
    let mut machines = Vec::new();
    for machine in world.in_state(State::Running) {
        let number = world.github.register(&scope(), &name(&machine), vec!["41-linux".into()]);
        world.agents.tells(&machine.facts.instance_id, number);
        machines.push(machine.facts.instance_id);
    }
    machines
}

fn scope() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "web".into() }
}

fn name(machine: &Instance) -> String {
    runner_name(&machine.claim.as_ref().unwrap().id, 1)
}

async fn running(world: &World, machines: usize, within: u64) {
    let what = format!("{machines} machines run");
    let run = async || world.in_state(State::Running).len() == machines;
    world.until(&what, Duration::from_secs(within), run).await;
}

fn events(world: &World, reason: &str) -> usize {
    let named = |item: &&runyard_core::model::Item| format!("{:?}", item.get("reason")).contains(reason);
    world.store.records().iter().filter(named).count()
}

/// A yard with a run whose jobs each have a machine.
async fn serving(jobs: &[&str], more: serde_json::Value) -> (World, Vec<InstanceId>) {
    let world = World::with_github();
    let mut spec = linux(0, 10);
    spec["queue"] = json!({"runLabels": true});
    spec["repositories"] = json!(["acme/web"]);
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.pool(spec).await;
    world.start();
    jobs.iter().for_each(|job| queue(&world, job));
    running(&world, jobs.len(), LOOK).await;
    world.until_phase(&key(), "Ready", 60).await;
    let machines = registered(&world);
    (world, machines)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_an_approval_has_no_machine_meanwhile() {
    let (world, _) = serving(&["build"], json!({"idleSeconds": 600})).await;
    world.agents.have_jobs(&[]);
    ends(&world, "build");
    world.github.set_waiting("acme", "web", 41, true);
    running(&world, 0, UNNEEDED).await;
    world.until("a machine for others", Duration::from_secs(30), async || world.pooled().len() == 1).await;
    assert!(world.github.all_runners().is_empty(), "its runner was removed first");
    // Longer than its machine stays, and than its maximum runtime.
    world.sleep(8 * 3600).await;
    let request: Request = world.request(&key()).await;
    assert_eq!(
        (request.phase(), request.intent.wanted),
        (Phase::Ready, Some(0)),
        "{}",
        request.status.message
    );
    assert!(request.status.instances.is_empty() && world.live().is_empty());
    assert_eq!(request.status.conditions.iter().filter(|one| one.status).count(), 2, "accepted and ready");
    world.github.set_waiting("acme", "web", 41, false);
    queue(&world, "deploy");
    running(&world, 1, LOOK).await;
    let request: Request = world.request(&key()).await;
    let ready_at = request.status.ready_at.unwrap();
    assert!(request.status.lent_since.unwrap() > ready_at, "the maximum runtime counts anew");
    world.sleep(3600).await;
    assert_eq!(world.in_state(State::Running).len(), 1, "its job runs on");
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key(), "Released", 15 + 5 + 60).await;
    world.check();
}

#[tokio::test(start_paused = true)]
async fn of_many_machines_those_without_a_job_are_given_back() {
    let (world, machines) = serving(&["a", "b", "c", "d"], json!({})).await;
    // GitHub says that three jobs are over; on one of their machines the last step still runs.
    world.agents.have_jobs(&machines[..2]);
    ["a", "b", "c"].iter().for_each(|job| ends(&world, job));
    running(&world, 2, UNNEEDED + 60).await;
    world.sleep(900).await;
    let left: Vec<InstanceId> =
        world.in_state(State::Running).into_iter().map(|machine| machine.facts.instance_id).collect();
    let mut busy = machines[..2].to_vec();
    busy.sort();
    assert_eq!(left, busy, "a machine with a job is never taken back");
    let request: Request = world.request(&key()).await;
    assert_eq!((request.intent.count, request.intent.wanted), (4, Some(1)));
    assert_eq!(events(&world, "Degraded"), 0);
    // Its job ends too, and is asked for again once in a while.
    world.agents.have_jobs(&machines[..1]);
    running(&world, 1, 120).await;
    // Jobs that come later get machines at once.
    ["e", "f"].iter().for_each(|job| queue(&world, job));
    running(&world, 3, LOOK).await;
    let request: Request = world.request(&key()).await;
    assert_eq!(request.intent.wanted, Some(3));
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_github_calls_busy_keeps_its_machine() {
    let (world, _) = serving(&["build"], json!({})).await;
    world.agents.have_jobs(&[]);
    let machine = world.in_state(State::Running).remove(0);
    world.github.set_runner(&scope(), &name(&machine), true, true);
    ends(&world, "build");
    world.sleep(UNNEEDED + 300).await;
    assert_eq!(world.in_state(State::Running).len(), 1);
    assert!(events(&world, "RetireAsked") >= 2, "it is asked again");
    world.github.set_runner(&scope(), &name(&machine), true, false);
    running(&world, 0, 120).await;
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_agent_does_not_answer_is_kept_and_asked_rarely() {
    let (world, _) = serving(&["build"], json!({})).await;
    ends(&world, "build");
    world.sleep(UNNEEDED + 3600).await;
    assert_eq!(world.in_state(State::Running).len(), 1);
    let asked = events(&world, "RetireAsked");
    assert!((4..=8).contains(&asked), "once in ten minutes: {asked}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_a_few_minutes_between_two_jobs_costs_no_machine() {
    let (world, machines) = serving(&["build"], json!({})).await;
    world.agents.have_jobs(&[]);
    for (before, job) in [("build", "test"), ("test", "deploy"), ("deploy", "check")] {
        ends(&world, before);
        world.sleep(240).await;
        queue(&world, job);
        world.sleep(60).await;
    }
    let left = world.in_state(State::Running);
    assert_eq!(left.iter().map(|one| &one.facts.instance_id).collect::<Vec<_>>(), [&machines[0]]);
    assert_eq!(events(&world, "RetireAsked"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_after_its_maximum_runtime() {
    let (world, machines) = serving(&["a", "b"], json!({"maxRuntimeMinutes": 60})).await;
    // Each job that waits begins on a machine of these.
    let begin = |machines: Vec<Instance>| {
        let mut runners = machines.into_iter().map(|machine| name(&machine));
        world.github.change_jobs("acme", "web", 41, 1, |job| {
            if job.state == JobState::Queued {
                (job.state, job.runner) = (JobState::Active, runners.next());
            }
        });
    };
    begin(world.in_state(State::Running));
    world.sleep(3700).await;
    let request: Request = world.request(&key()).await;
    assert_eq!((request.phase(), request.intent.wanted), (Phase::Ready, Some(0)));
    assert!(world.in_state(State::Running).is_empty(), "both machines were taken back");
    // GitHub still lists the jobs of the machines that are gone as running: they get no others.
    world.sleep(900).await;
    assert!(world.in_state(State::Running).is_empty());
    queue(&world, "c");
    running(&world, 1, LOOK).await;
    assert_eq!(world.request(&key()).await.intent.wanted, Some(1));
    // Now it has a machine again; two jobs are still listed on the ones that it had.
    begin(world.in_state(State::Running));
    world.sleep(900).await;
    assert_eq!(
        (world.in_state(State::Running).len(), world.request(&key()).await.intent.wanted),
        (1, Some(1))
    );
    assert!(world.live().len() <= machines.len());
    world.sleep(2800).await;
    assert!(world.in_state(State::Running).is_empty(), "the second hour is over too");
    assert_eq!(events(&world, "JobNotServed"), 0);
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.until_phase(&key(), "Released", 15 + 5 + 60).await;
    world.check();
}
