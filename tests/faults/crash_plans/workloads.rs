//! What does a yard do all day? The reference workloads: each a short story of workflows and mishaps, told to the real
//! operator, that ends where nothing more is to be done.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{InstanceId, Phase, Pool, RecordId, Request, State, Versioned as _};
use runyard_core::ports::github::RunState;
use runyard_core::ports::{Clock as _, MachineState, Store as _};
use runyard_operator::controller::{GitHubWatch, Settings};
use serde_json::{Value, json};

use runyard_tests::agents::Habit;
use runyard_tests::slots::SlotRunners;
use runyard_tests::world::{World, linux};

/// A story in progress.
type Telling<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A reference workload.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Whether runners are registered at a GitHub.
    pub(crate) github: bool,
    /// Whether EC2's notices are heard.
    pub(crate) notices: bool,
    /// The class.
    pub(crate) pool: fn() -> Value,
    pub(crate) script: for<'a> fn(&'a World) -> Telling<'a>,
}

macro_rules! workload {
    ($name:ident, $pool:expr $(, $with:ident)*) => {
        Workload {
            name: stringify!($name),
            pool: || $pool,
            script: |world| Box::pin($name(world)),
            $($with: true,)*
            ..Workload { name: "", github: false, notices: false, pool: || Value::Null, script: |_| Box::pin(async {}) }
        }
    };
}

/// All of them.
pub(crate) const ALL: [Workload; 14] = [
    workload!(cold_provision, linux(0, 6)),
    workload!(warm_claim, linux(2, 6)),
    workload!(claim_and_launch, linux(1, 6)),
    workload!(release_and_reuse, linux(0, 4), github),
    workload!(single_use_runners, with(linux(0, 4), "registrationMode", "job"), github),
    workload!(machine_never_registers, linux(0, 4)),
    workload!(machine_lost_while_running, linux(0, 4)),
    workload!(machine_that_cannot_be_cleaned, linux(0, 4)),
    workload!(spot_interruption, linux(0, 4), notices),
    workload!(scale_up_and_down, with(linux(0, 6), "idleSeconds", 40)),
    workload!(request_cancelled_while_it_boots, linux(0, 6)),
    workload!(two_requests_for_two_machines, linux(0, 2)),
    workload!(run_ends_without_release, linux(0, 4), github),
    workload!(scale_set_serves_jobs, of_a_set(linux(0, 4)), github),
];

/// The workload of this name.
pub(crate) fn named(name: &str) -> &'static Workload {
    static WORKLOADS: [Workload; ALL.len()] = ALL;
    WORKLOADS.iter().find(|workload| workload.name == name).expect("a workload of that name")
}

fn with(mut spec: Value, name: &str, value: impl Into<Value>) -> Value {
    spec[name] = value.into();
    spec
}

/// The class with a scale set at acme.
fn of_a_set(mut spec: Value) -> Value {
    let more = json!({
        "repositories": ["acme/*"], "registrationMode": "job", "reuseWithin": "owner",
        "queue": {"labels": ["runyard-linux"], "scope": "organization"},
    });
    spec.as_object_mut().expect("a spec is a map").extend(more.as_object().expect("it is a map").clone());
    spec
}

/// Deadlines short enough that every one of them passes within a plan, in the proportions of the defaults.
pub(crate) fn timing(settings: &mut Settings) {
    let seconds = Duration::from_secs;
    settings.timing.created = seconds(120);
    settings.timing.claimed = seconds(60);
    settings.timing.cleanup = seconds(60);
    settings.timing.grace = seconds(30);
    settings.timing.resync = seconds(30);
    settings.timing.reannounce = seconds(30);
    settings.timing.orphan = seconds(60);
    settings.sweep = seconds(10);
    settings.github = GitHubWatch {
        run_poll: Some(seconds(10)),
        sweep: Some(seconds(60)),
        verify_removed: true,
        verify_run: false,
        reruns: false,
        rerun_lost: false,
    };
}

/// Waits until something is so.
async fn until(world: &World, what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = world.clock.elapsed() + Duration::from_secs(400);
    while !so().await {
        assert!(world.clock.elapsed() < end, "in vain: {what}\n{}", world.show());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn phase(world: &World, key: &RecordId, phase: &str) {
    until(world, &format!("{key} is {phase}"), async || world.phase(key).await == phase).await;
}

async fn pooled(world: &World, count: usize) {
    until(world, &format!("{count} in the pool"), async || world.pooled().len() == count).await;
}

async fn cold_provision(world: &World) {
    let key = world.provision("1", "linux", 2, json!({})).await;
    phase(world, &key, "Ready").await;
}

async fn warm_claim(world: &World) {
    pooled(world, 2).await;
    let key = world.provision("1", "linux", 1, json!({})).await;
    phase(world, &key, "Ready").await;
    pooled(world, 2).await;
}

async fn claim_and_launch(world: &World) {
    pooled(world, 1).await;
    let key = world.provision("1", "linux", 3, json!({})).await;
    phase(world, &key, "Ready").await;
    pooled(world, 1).await;
}

async fn release_and_reuse(world: &World) {
    for run in ["1", "2"] {
        let key = world.provision(run, "linux", 2, json!({})).await;
        phase(world, &key, "Ready").await;
        world.release(&key).await;
        phase(world, &key, "Released").await;
    }
}

async fn single_use_runners(world: &World) {
    release_and_reuse(world).await;
}

/// The first machine that comes up has this habit, all others are good.
async fn first(world: &World, habit: Habit) -> InstanceId {
    until(world, "a machine", async || !world.compute.machines().is_empty()).await;
    let first = world.compute.machines()[0].id.clone();
    world.agents.one(&first, habit);
    first
}

async fn machine_never_registers(world: &World) {
    let key = world.provision("1", "linux", 1, json!({})).await;
    first(world, Habit::NeverRegisters).await;
    phase(world, &key, "Ready").await;
    until(world, "the other is gone", async || world.in_state(State::Terminated).len() == 1).await;
}

async fn machine_lost_while_running(world: &World) {
    let key = world.provision("1", "linux", 2, json!({})).await;
    phase(world, &key, "Ready").await;
    let lost = world.in_state(State::Running)[0].facts.instance_id.clone();
    world.compute.set_state(&lost, MachineState::Terminated);
    until(world, "it is known to be lost", async || world.in_state(State::Terminated).len() == 1).await;
    until(world, "another serves", async || world.in_state(State::Running).len() == 2).await;
}

async fn machine_that_cannot_be_cleaned(world: &World) {
    let key = world.provision("1", "linux", 2, json!({})).await;
    first(world, Habit::CleaningFails).await;
    phase(world, &key, "Ready").await;
    world.release(&key).await;
    phase(world, &key, "Released").await;
}

async fn spot_interruption(world: &World) {
    const WARNING: &str = include_str!("../../golden/events/spot-interruption-warning.json");
    let key = world.provision("1", "linux", 1, json!({"usageClass": "spot"})).await;
    phase(world, &key, "Ready").await;
    let taken = world.in_state(State::Running)[0].facts.instance_id.clone();
    let now = world.clock.now().to_string();
    let told = WARNING.replace("i-1234567890abcdef0", taken.as_str());
    world.notices.post(&told.replace("2026-01-05T12:00:00Z", &now));
    until(world, "it is ended", async || world.in_state(State::Terminated).len() == 1).await;
    until(world, "another serves", async || world.in_state(State::Running).len() == 1).await;
    until(world, "the notice is done with", async || world.notices.bodies().is_empty()).await;
}

async fn desire(world: &World, machines: u32) {
    let key = Pool::key_of(&"linux".parse().expect("a name"));
    until(world, "the wish is written", async || {
        let pool: Pool = world.get(&key).await.expect("the class is there");
        let mut next = pool.clone();
        next.advance(world.at());
        next.spec.desired = machines;
        world.store.write(&next.replacing(&pool)).await.is_ok()
    })
    .await;
}

async fn scale_up_and_down(world: &World) {
    desire(world, 3).await;
    pooled(world, 3).await;
    desire(world, 1).await;
    until(world, "two are gone", async || world.in_state(State::Terminated).len() == 2).await;
    pooled(world, 1).await;
}

async fn request_cancelled_while_it_boots(world: &World) {
    let key = world.provision("1", "linux", 3, json!({})).await;
    until(world, "its machines boot", async || world.live().len() == 3).await;
    world.release(&key).await;
    phase(world, &key, "Released").await;
}

async fn two_requests_for_two_machines(world: &World) {
    let one = world.provision("1", "linux", 2, json!({})).await;
    phase(world, &one, "Ready").await;
    let two = world.provision("2", "linux", 2, json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.release(&one).await;
    phase(world, &one, "Released").await;
    phase(world, &two, "Ready").await;
}

async fn run_ends_without_release(world: &World) {
    let key = world.provision("41", "linux", 1, json!({})).await;
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    phase(world, &key, "Ready").await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    phase(world, &key, "Released").await;
    pooled(world, 1).await;
}

async fn scale_set_serves_jobs(world: &World) {
    let runners = Arc::new(SlotRunners::of(world.sets.clone()));
    runners.take(Duration::from_secs(5));
    world.agents.serve_sets(&runners);
    until(world, "the set is listened to", async || !world.sets.sessions().is_empty()).await;
    for number in 0..2 {
        world.sets.queue_job("acme", "web", 41, &format!("job-{number}"), &["runyard-linux"]);
    }
    until(world, "the jobs ran", async || world.sets.jobs().is_empty()).await;
    let ended = async || {
        let slots = world.all::<Request>();
        slots.len() >= 2 && slots.iter().all(|slot| slot.phase() == Phase::Released)
    };
    until(world, "the slots are over", ended).await;
    pooled(world, 2).await;
}
