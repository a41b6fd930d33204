//! Runs that ask for nothing: their jobs name their run and a class by their label. GitHub assigns queued jobs to runners
//! with their label, lists them late, and rings for some of them; some rings are forged. Runs wait between two jobs, and
//! some are cancelled. The laws:
//!
//! - L16: once nothing goes wrong any more, a queued job begins within an interval, a boot and a clean-up;
//! - S39: no job that has begun is ended by us while its run goes on;
//! - S40: no request is made for a label that no queued job had, nor for more machines than jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{Asked, JobRing, Record as _, RegistrationMode, Request};
use runyard_core::ports::github::{JobState, RunState, Scope, WorkflowJob};
use runyard_core::ports::{JobBell, JobRings, QueueError};
use runyard_fakes::queued_job;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::simulation::actor::{Actor, Role};
use crate::simulation::bugs::Bug;
use crate::simulation::chance::Chance;
use crate::simulation::fault_rates::Fault;
use crate::simulation::services::Services;
use crate::simulation::table::Table;
use crate::simulation::users::create;
use crate::simulation::world::World;
use crate::simulation::{machines, operators};

/// What goes wrong in this world. Nothing ends a machine but the operators, and each boots in its time: a boot that
/// lasts until its deadline would be waited for long after faults have stopped.
pub(crate) const FAULTS: [Fault; 8] = [
    Fault::GitHubFails,
    Fault::GitHubThrottles,
    Fault::GitHubRefuses,
    Fault::GitHubLosesAnswer,
    Fault::GitHubBusy,
    Fault::QueueFails,
    Fault::StoreLosesAnswer,
    Fault::OperatorCrashes,
];
/// How long things go wrong.
const FAULTY: Duration = Duration::from_secs(900);
/// How long the yard is watched after that.
const CALM: Duration = Duration::from_secs(3 * 3600);
/// When a queued job must have begun: two intervals, because GitHub lists it late; a boot; a machine of another trust
/// domain that ends first; and the pause after what failed before.
const BOUND: Duration = Duration::from_secs(2 * 60 + 45 + 120 + 90);
/// How long a machine takes to be given back, until its place is another's.
const GIVEN_BACK: Duration = Duration::from_secs(90);
const REPOSITORIES: [(&str, &str); 3] = [("acme", "web"), ("acme", "api"), ("other", "site")];

/// A job that a runner has.
#[derive(Clone, Debug)]
struct Work {
    run: u64,
    /// Whether it has begun; before, it may go to another runner.
    begun: bool,
}

/// The jobs of this world.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Whether this is a world of queued jobs.
    on: bool,
    /// The work of each runner, by its name.
    at_work: Mutex<BTreeMap<String, Work>>,
    /// The runs that are over or cancelled: what becomes of their jobs is nobody's loss.
    over: Mutex<BTreeSet<u64>>,
    /// How many jobs had each label.
    labels: Mutex<BTreeMap<String, u32>>,
    rings: Mutex<BTreeSet<JobRing>>,
    begun: Mutex<u64>,
}

impl Jobs {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether a job has begun on a runner.
    pub(crate) fn has_begun(&self, runner: &str) -> bool {
        self.at_work.lock().unwrap().get(runner).is_some_and(|work| work.begun)
    }

    /// S39: a runner is ended by its agent.
    pub(crate) fn ended(&self, runner: &str) -> Option<String> {
        let work = self.at_work.lock().unwrap().get(runner).cloned().filter(|work| work.begun)?;
        let over = self.over.lock().unwrap().contains(&work.run);
        (!over).then(|| format!("S39 {runner}: it is ended while a job of run {} runs on it", work.run))
    }

    /// S40: what a request by label asks for.
    pub(crate) fn judge(&self, request: &Request) -> Option<String> {
        if !self.on || request.intent.asked != Asked::Job {
            return None;
        }
        let queued = self.labels.lock().unwrap().get(&request.label()).copied().unwrap_or(0);
        let count = request.intent.count;
        (count > queued)
            .then(|| format!("S40 {}: {count} asked for, {queued} jobs were queued", request.key()))
    }

    fn count(&self, label: &str) {
        *self.labels.lock().unwrap().entry(label.to_owned()).or_default() += 1;
    }
}

#[async_trait]
impl JobBell for Services {
    async fn queued(&self) -> Result<JobRings, QueueError> {
        self.queue("jobs", "", async {
            for _ in 0..20 {
                sleep(Duration::from_secs(1)).await;
                if !self.0.world.jobs.rings.lock().unwrap().is_empty() {
                    break;
                }
            }
            let rings = std::mem::take(&mut *self.0.world.jobs.rings.lock().unwrap());
            Ok(JobRings { rings, ignored: 0 })
        })
        .await
    }
}

/// Lives one seed; tells what is broken, and how many jobs began.
pub(crate) async fn live(world: &Arc<World>, seed: u64) -> Result<u64, String> {
    let chance = Arc::new(Chance::of(seed ^ 0x0051_7565_7565));
    let max = chance.number(4..9);
    let spec = json!({
        "resourceClass": "small", "cpu": 2, "mmem": 4096, "max": max, "desired": chance.number(0..3),
        "usageClass": "on-demand", "registrationMode": RegistrationMode::Run.as_str(), "idleSeconds": 1800,
        "reuseWithin": *chance.one(&["repository", "owner", "any"]), "maxRuntimeMinutes": 600,
        "queue": {"runLabels": true}, "repositories": ["acme/web", "acme/api", "other/site"],
    });
    create(&Table(Actor::new(world, "admin", Role::Person)), spec).await;
    tokio::spawn(machines::keep(world.clone()));
    (1..=2).for_each(|n| drop(tokio::spawn(operators::operate(world.clone(), format!("op-{n}")))));
    spawn_local(forge(world.clone(), chance.clone()));
    let places = Arc::new(Semaphore::new(max as usize));
    let runs: Vec<_> = (1..=chance.number(4..9))
        .map(|number| spawn_local(run(world.clone(), chance.clone(), places.clone(), 100 + number, max)))
        .collect();
    world.until_over(&runs, [FAULTY, CALM], "L16: of the runs").await?;
    Ok(*world.jobs.begun.lock().unwrap())
}

/// Rings that nobody at GitHub caused.
async fn forge(world: Arc<World>, chance: Arc<Chance>) {
    loop {
        sleep(chance.seconds(1..60)).await;
        let forged = *chance.one(&["acme/web", "nobody/knows", "other/site"]);
        let repository = forged.parse().expect("a repository");
        world.jobs.rings.lock().unwrap().insert(JobRing { repository, run: chance.number(90..120) });
    }
}

/// A run of a few stages, each with a few jobs, with pauses between them. It begins a stage when the class has places for
/// its machines.
async fn run(world: Arc<World>, chance: Arc<Chance>, places: Arc<Semaphore>, number: u64, max: u64) {
    let (owner, name) = *chance.one(&REPOSITORIES);
    sleep(chance.seconds(0..900)).await;
    let widest = chance.number(1..max.min(4)) as u32;
    // The machines that it had may stay with it between its stages.
    let _places = places.acquire_many(widest).await.expect("nobody closes it");
    let mut jobs = 0;
    for stage in 0..chance.number(1..4) {
        world.github.set_run(owner, name, number, RunState::Active { attempt: 1 });
        world.github.set_waiting(owner, name, number, false);
        let width = if stage == 0 { widest } else { chance.number(1..u64::from(widest) + 1) as u32 };
        let jobs: Vec<_> = (0..width)
            .map(|_| {
                jobs += 1;
                let job = Job { owner, name, number, id: format!("job-{jobs}") };
                spawn_local(job.lives(world.clone(), chance.clone()))
            })
            .collect();
        for job in jobs {
            let _ = job.await;
        }
        if chance.percent(50) {
            world.github.set_waiting(owner, name, number, chance.percent(50));
            sleep(chance.seconds(1..1500)).await;
        }
    }
    world.jobs.over.lock().unwrap().insert(number);
    world.github.set_run(owner, name, number, RunState::Completed { attempt: 1 });
    let of_run = format!("request#{owner}/{name}#{number}");
    let open = |request: &Request| request.key().pk() == of_run && !request.phase().is_final();
    while world.laws.lock().unwrap().requests().any(open) {
        sleep(Duration::from_secs(2)).await;
    }
    sleep(GIVEN_BACK).await;
}

/// A job of a run.
struct Job {
    owner: &'static str,
    name: &'static str,
    number: u64,
    id: String,
}

impl Job {
    async fn lives(self, world: Arc<World>, chance: Arc<Chance>) {
        let label = format!("{}-small", self.number);
        let job = queued_job(&self.id, &[&label]);
        world.jobs.count(&label);
        let listed_late = chance.percent(30);
        if listed_late {
            world.github.add_job_late(self.owner, self.name, self.number, job);
        } else {
            world.github.add_job(self.owner, self.name, self.number, job);
        }
        if chance.percent(50) {
            let repository = format!("{}/{}", self.owner, self.name).parse().expect("a repository");
            world.jobs.rings.lock().unwrap().insert(JobRing { repository, run: self.number });
        }
        let (mut waits, bound) = (Duration::ZERO, if listed_late { 2 * BOUND } else { BOUND });
        let runner = loop {
            if let Some(runner) = self.assigned(&world, &chance, &label).await {
                break runner;
            }
            sleep(Duration::from_secs(1)).await;
            waits = if world.fault_rates.calm() { waits + Duration::from_secs(1) } else { Duration::ZERO };
            if waits > bound {
                return world.broke(format!("L16 {label} {}: it waits for {waits:?}", self.id));
            }
        };
        *world.jobs.begun.lock().unwrap() += 1;
        sleep(chance.seconds(5..600)).await;
        world.jobs.at_work.lock().unwrap().remove(&runner);
        let now = world.clock_now();
        self.change(&world, |job| (job.state, job.completed_at) = (JobState::Succeeded, Some(now)));
        self.tell(&world, &runner, false);
    }

    /// GitHub assigns it to a runner with its label that has no job; it begins there a moment later, unless that runner
    /// is suspended or gone by then.
    async fn assigned(&self, world: &World, chance: &Chance, label: &str) -> Option<String> {
        let runner = {
            let mut at_work = world.jobs.at_work.lock().unwrap();
            let mut free = world.github.all_runners().into_iter().filter(|runner| runner.online);
            let free =
                free.find(|one| one.labels.iter().any(|of| of == label) && !at_work.contains_key(&one.name))?;
            at_work.insert(free.name.clone(), Work { run: self.number, begun: false });
            free.name
        };
        sleep(chance.millis(50..3000)).await;
        let takes = world.takes_jobs(&runner);
        match world.jobs.at_work.lock().unwrap().get_mut(&runner) {
            Some(work) if takes => work.begun = true,
            Some(_) | None => {}
        }
        if !takes {
            world.jobs.at_work.lock().unwrap().remove(&runner);
            return None;
        }
        self.change(world, |job| (job.state, job.runner) = (JobState::Active, Some(runner.clone())));
        // GitHub calls the runner busy later, or for a short job never.
        if chance.percent(50) {
            self.tell(world, &runner, true);
        }
        Some(runner)
    }

    fn change(&self, world: &World, mut change: impl FnMut(&mut WorkflowJob)) {
        world.github.change_jobs(self.owner, self.name, self.number, 1, |job| {
            if job.name == self.id {
                change(job);
            }
        });
    }

    fn tell(&self, world: &World, runner: &str, busy: bool) {
        let scope = Scope::Repository { owner: self.owner.to_owned(), name: self.name.to_owned() };
        let online = world.github.all_runners().into_iter().any(|one| one.name == runner && one.online);
        world.github.set_runner(&scope, runner, online, busy);
    }
}

/// Whether an answer of GitHub's is spoiled: a run that goes on is told to be over.
pub(crate) fn told_over(bug: Option<Bug>, state: RunState) -> RunState {
    match (bug, state) {
        (Some(Bug::RunTakenForOver), RunState::Active { attempt }) => RunState::Completed { attempt },
        (_, state) => state,
    }
}
