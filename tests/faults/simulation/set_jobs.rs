//! A class with a runner scale set: jobs name its label, GitHub decides which runner of the set gets which, and tells of
//! them late, twice or never. Runners are what GitHub's service says; the hook of each tells its agent which job began. The
//! laws:
//!
//! - L17: once all jobs are over only the runners are left that stand ahead;
//! - L18: once nothing goes wrong any more and there is room, a queued job begins within a bound;
//! - S4: no runner of a pooled machine is left at GitHub;
//! - S39: no job that has begun is ended by us;
//! - S41: never more slots that are not over than the class gives the set;
//! - S42: never announced that the set holds no job.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_agent::task::{RunnerEnd, TaskOutcome};
use runyard_core::model::{InstanceId, JobReport, RegistrationCredential, RegistrationMode};
use runyard_core::ports::ScaleSets;
use runyard_core::ports::github::{JobConfig, Runner, Scope};
use runyard_core::ports::scale_sets::{Message, ScaleSet, ScaleSetError, Session, SetSpec};
use runyard_fakes::{FakeScaleSets, TokioClock};
use runyard_standin::github::scale_sets::{JobPlace, SetJob};
use runyard_standin::github::{Completion, Routing, SetBehaviour};
use serde_json::json;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use crate::simulation::actor::{Actor, Role};
use crate::simulation::bugs::Bug;
use crate::simulation::chance::Chance;
use crate::simulation::fault_rates::Fault;
use crate::simulation::services::Services;
use crate::simulation::table::Table;
use crate::simulation::users::create;
use crate::simulation::world::World;
use crate::simulation::{machines, operators};

/// What goes wrong in this world, beside the bad days of the service itself.
pub(crate) const FAULTS: [Fault; 8] = [
    Fault::GitHubFails,
    Fault::GitHubThrottles,
    Fault::GitHubLosesAnswer,
    Fault::QueueFails,
    Fault::StoreLosesAnswer,
    Fault::StoreFails,
    Fault::AgentCrashes,
    Fault::OperatorCrashes,
];
/// How long things go wrong.
const FAULTY: Duration = Duration::from_secs(1800);
/// How long jobs come: some when runners that no job needed are being given back.
const COME: Duration = Duration::from_secs(3600);
/// How long a runner waits for a job that a class does not want to stand ahead.
const UNUSED: Duration = Duration::from_secs(300);
/// How long the yard is watched after that.
const CALM: Duration = Duration::from_secs(4 * 3600);
/// When a queued job must have begun: a session that a dead listener holds, pauses after failures, two answers with the
/// counts, a boot, a slot that failed before, and a job that lapses because its runner went.
const BOUND: Duration = Duration::from_secs(60 + 60 + 2 * 50 + 45 + 120 + 90 + 5 * 60);
const REPOSITORIES: [&str; 3] = ["web", "api", "site"];

/// The scale sets of this world.
#[derive(Default)]
pub(crate) struct SetJobs {
    sets: Option<FakeScaleSets>,
    most: Mutex<u32>,
    /// The longest time of a job, in seconds.
    longest: Mutex<u64>,
}

/// The runner of a slot on its machine.
#[derive(Clone)]
pub(crate) struct SlotRunner {
    number: u64,
    /// The job that it has, and when that is over.
    job: Option<(u64, JobReport, Instant)>,
}

impl SlotRunner {
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn has_job(&self) -> bool {
        self.job.is_some()
    }
}

impl SetJobs {
    pub(crate) fn over(clock: &TokioClock) -> Self {
        Self {
            sets: Some(FakeScaleSets::new(Arc::new(*clock))),
            most: Mutex::default(),
            longest: Mutex::new(300),
        }
    }

    /// The port of an operator to them.
    pub(crate) fn port(&self, services: &Arc<Services>) -> Option<Arc<dyn ScaleSets>> {
        let sets = self.sets.clone()?;
        Some(Arc::new(Listened { services: services.clone(), sets }))
    }

    fn sets(&self) -> &FakeScaleSets {
        self.sets.as_ref().expect("a world of scale sets")
    }

    /// The runner of a sealed box, if that is a slot's.
    pub(crate) fn runner(&self, sealed: &RegistrationCredential) -> Option<SlotRunner> {
        let number = sealed.runner_id.filter(|_| self.sets.is_some())?;
        Some(SlotRunner { number, job: None })
    }

    /// S4: what GitHub still has of a machine that is in the pool.
    pub(crate) fn left_of(&self, id: &InstanceId) -> Vec<String> {
        let own = format!("runyard-{id}.");
        let runners = self.sets.iter().flat_map(FakeScaleSets::runners);
        let left = runners.filter(|runner| runner.name.starts_with(&own));
        left.map(|runner| format!("S4 {id}: in the pool while its set has runner {}", runner.name)).collect()
    }

    /// S41 and S42.
    pub(crate) fn judge(&self, open: usize) -> Option<String> {
        let sets = self.sets.as_ref()?;
        let most = *self.most.lock().unwrap();
        if sets.capacities().contains(&0) {
            return Some("S42: a set announces that it holds no job".to_owned());
        }
        (open > most as usize).then(|| format!("S41: {open} slots, the class gives the set {most}"))
    }

    /// Whether a runner takes a job now; its hook then reports it.
    pub(crate) fn take(&self, world: &World, runner: &mut SlotRunner) -> Option<TaskOutcome> {
        let sets = self.sets();
        if runner.job.is_none() {
            let job = sets.start_job(runner.number)?;
            let SetJob { facts, .. } = sets.jobs().into_iter().find(|one| one.facts.number == job)?;
            let (of, run) = (format!("{}/{}", facts.owner, facts.repository), facts.run_id.to_string());
            let report =
                JobReport::of(&of, &run, 1, &facts.name, world.clock_now()).expect("a job of GitHub's");
            world.trace.tell(&format!("job {} begins on runner {}", facts.name, runner.number));
            runner.job =
                Some((job, report, Instant::now() + world.chance.seconds(5..*self.longest.lock().unwrap())));
        }
        let (_, report, _) = runner.job.as_ref()?;
        Some(TaskOutcome::Began(report.clone()))
    }

    /// Whether the job of a runner is over by now; then the runner is gone.
    pub(crate) fn ends(&self, runner: &SlotRunner) -> Option<TaskOutcome> {
        let (job, _, until) = runner.job.as_ref()?;
        (*until <= Instant::now()).then(|| {
            self.sets().finish_job(*job, "succeeded");
            TaskOutcome::Ended { worked: true, end: RunnerEnd::Lost("its one job is over".into()) }
        })
    }

    /// A runner's process is gone. A job on its way to it goes to another one.
    pub(crate) fn lost(&self, runner: &SlotRunner) {
        self.sets().lose_runner(runner.number);
    }

    /// S39: our side ends a runner.
    pub(crate) fn ended(&self, runner: &SlotRunner) -> Option<String> {
        self.lost(runner);
        let (_, report, until) = runner.job.as_ref()?;
        (*until > Instant::now()).then(|| {
            format!("S39 runner {}: it is ended while job {} runs on it", runner.number, report.name)
        })
    }
}

/// Lives one seed; tells what is broken, and how many jobs were served.
pub(crate) async fn live(world: &Arc<World>, seed: u64) -> Result<u64, String> {
    let chance = Arc::new(Chance::of(seed ^ 0x0053_6574_7300));
    let max = chance.number(3..9) as u32;
    let most = chance.number(2..u64::from(max) + 1) as u32;
    *world.set_jobs.most.lock().unwrap() = most;
    let standing = chance.number(0..u64::from(most.min(3))) as usize;
    let organization = chance.percent(60);
    let (scope, reuse) = if organization { ("organization", "owner") } else { ("repository", "repository") };
    let spec = json!({
        "resourceClass": "small", "cpu": 2, "mmem": 4096, "max": max, "desired": chance.number(0..3),
        "usageClass": "on-demand", "registrationMode": RegistrationMode::Job.as_str(), "idleSeconds": 1800,
        "reuseWithin": reuse, "maxRuntimeMinutes": 600,
        "repositories": if organization { json!(["acme/*"]) } else { json!(["acme/web"]) },
        "queue": {
            "labels": ["runyard-small"], "scope": scope, "maxSlots": most,
            "standing": standing, "unusedSeconds": UNUSED.as_secs(),
        },
    });
    create(&Table(Actor::new(world, "admin", Role::Person)), spec).await;
    tokio::spawn(machines::keep(world.clone()));
    (1..=2).for_each(|n| drop(tokio::spawn(operators::operate(world.clone(), format!("op-{n}")))));
    spawn_local(bad_days(world.clone(), chance.clone()));
    let jobs = chance.number(15..40);
    let all: Vec<_> = (0..jobs)
        .map(|number| {
            let repository = if organization { *chance.one(&REPOSITORIES) } else { "web" };
            spawn_local(job(world.clone(), chance.clone(), repository, number, most))
        })
        .collect();
    world.until_over(&all, [FAULTY, CALM], "L18: of the jobs").await?;
    let over = Instant::now();
    while world.open_slots() != standing {
        if over.elapsed() > UNUSED + BOUND {
            return Err(format!("L17: {} slots are left, {standing} stand ahead", world.open_slots()));
        }
        sleep(Duration::from_secs(1)).await;
    }
    world.broken.lock().unwrap().first().cloned().map_or(Ok(jobs), Err)
}

/// Jobs that come while a runner that waited in vain is given back, each at another moment: one before it is cancelled as
/// soon as it has its slot. Tells how many runners were given back without a job, and how many got the late job.
pub(crate) async fn race(world: &Arc<World>, timings: u64) -> Result<(u64, u64), String> {
    (*world.set_jobs.most.lock().unwrap(), *world.set_jobs.longest.lock().unwrap()) = (2, 30);
    let (sets, chance) = (world.set_jobs.sets(), &world.chance);
    let queue = |name: String| sets.queue_job("acme", "web", 100, &name, &["runyard-small"]);
    let spec = json!({
        "resourceClass": "small", "cpu": 2, "mmem": 4096, "max": 2, "desired": 1, "usageClass": "on-demand",
        "registrationMode": RegistrationMode::Job.as_str(), "idleSeconds": 7200, "reuseWithin": "repository",
        "maxRuntimeMinutes": 600, "repositories": ["acme/web"],
        "queue": {"labels": ["runyard-small"], "scope": "repository", "maxSlots": 2, "unusedSeconds": 60},
    });
    create(&Table(Actor::new(world, "admin", Role::Person)), spec).await;
    tokio::spawn(machines::keep(world.clone()));
    tokio::spawn(operators::operate(world.clone(), "op-1".to_owned()));
    let (mut given_back, mut taken) = (0, 0);
    for timing in 0..timings {
        let unneeded = queue(format!("cancelled-{timing}"));
        until(world, "a slot for the job that is cancelled", || world.open_slots() > 0).await?;
        sets.finish_job(unneeded, "cancelled");
        until(world, "the runner is asked", || world.asked_runners() > 0 || world.open_slots() == 0).await?;
        // Most of what there is to meet lies within a few seconds of the question.
        let longest = *chance.one(&[1_000, 4_000, 40_000]);
        sleep(chance.millis(0..longest)).await;
        let asked: Vec<u64> = sets.runners().into_iter().map(|runner| runner.id).collect();
        let late = queue(format!("late-{timing}"));
        let runner = || match sets.jobs().into_iter().find(|job| job.facts.number == late)?.place {
            JobPlace::Running { runner, .. } => Some(runner),
            _ => None,
        };
        until(world, "the late job begins", || runner().is_some()).await?;
        let by_asked = runner().is_some_and(|runner| asked.contains(&runner));
        (taken, given_back) = if by_asked { (taken + 1, given_back) } else { (taken, given_back + 1) };
        until(world, "all is over", || sets.jobs().is_empty() && world.open_slots() == 0).await?;
    }
    Ok((given_back, taken))
}

/// Waits until something is so; tells what is broken first, or what is not so after an hour.
async fn until(world: &World, what: &str, is: impl Fn() -> bool) -> Result<(), String> {
    for _ in 0..36_000 {
        if let Some(first) = world.broken.lock().unwrap().first() {
            return Err(first.clone());
        }
        if is() {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(format!("L17 L18: not so after an hour: {what}"))
}

/// The bad days of GitHub's service, until nothing goes wrong any more.
async fn bad_days(world: Arc<World>, chance: Arc<Chance>) {
    let sets = world.set_jobs.sets();
    while !world.fault_rates.calm() {
        let completion = *chance.one(&[
            Completion::OnTime,
            Completion::Late(Duration::from_secs(240)),
            Completion::Never,
            Completion::Early,
        ]);
        let routing = *chance.one(&[Routing::Oldest, Routing::Newest, Routing::Scattered]);
        let stale_assigned = if chance.percent(20) { chance.number(1..4) as u32 } else { 0 };
        sets.behave(SetBehaviour {
            completion,
            routing,
            stale_assigned,
            repeats_the_last: chance.percent(30),
            unknown_news: chance.percent(20),
            ..SetBehaviour::default()
        });
        sleep(chance.seconds(10..300)).await;
        match chance.number(0..4) {
            0 => sets.sets().iter().for_each(|set| sets.evict(set.id)),
            1 => sets.expire_tokens(),
            2 => {
                sets.outage_of("message", Some(ScaleSetError::Unreachable("simulated".into())));
                sleep(chance.seconds(1..200)).await;
                sets.outage_of("message", None);
            }
            _ => {}
        }
    }
    sets.behave(SetBehaviour::default());
}

/// A job of some run: queued at some time, over once a runner has done it.
async fn job(world: Arc<World>, chance: Arc<Chance>, repository: &str, number: u64, most: u32) {
    let sets = world.set_jobs.sets();
    // Many come together.
    sleep(chance.seconds(0..COME.as_secs() / 60) * 60).await;
    let job = sets.queue_job("acme", repository, 100 + number, &format!("job-{number}"), &["runyard-small"]);
    let mut waits = Duration::ZERO;
    loop {
        sleep(Duration::from_secs(1)).await;
        let jobs = sets.jobs();
        let Some(own) = jobs.iter().find(|one| one.facts.number == job) else { return };
        let running = jobs.iter().filter(|job| job.place.running()).count();
        let room = world.fault_rates.calm() && running < most as usize && !own.place.running();
        waits = if room { waits + Duration::from_secs(1) } else { Duration::ZERO };
        if waits > BOUND {
            return world.broke(format!("L18 job-{number}: it waits for {waits:?}: {:?}", own.place));
        }
    }
}

/// The port of an operator, with what goes wrong between it and GitHub.
struct Listened {
    services: Arc<Services>,
    sets: FakeScaleSets,
}

impl Listened {
    async fn call<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, ScaleSetError>>,
    ) -> Result<T, ScaleSetError> {
        let actor = &self.services.0;
        let world = &actor.world;
        actor.enter().await;
        let outcome = if world.strikes(Fault::GitHubFails) {
            sleep(world.chance.millis(1..10_000)).await;
            Err(ScaleSetError::Unreachable("simulated".into()))
        } else if world.strikes(Fault::GitHubThrottles) {
            Err(ScaleSetError::Throttled { retry_after: world.chance.seconds(1..90) })
        } else {
            call.await
        };
        actor.leave().await;
        let outcome = match outcome {
            Ok(_) if world.strikes(Fault::GitHubLosesAnswer) => {
                Err(ScaleSetError::Unreachable("simulated: the answer was lost".into()))
            }
            outcome => outcome,
        };
        let label = outcome.as_ref().map_or_else(ToString::to_string, |_| "ok".into());
        world.trace.call(&actor.name, name, "scale sets", &label, name == "message" && label == "ok");
        outcome
    }

    fn has(&self, bug: Bug) -> bool {
        self.services.0.world.bug == Some(bug)
    }
}

#[async_trait]
impl ScaleSets for Listened {
    async fn find(&self, at: &Scope, group: u64, name: &str) -> Result<Option<ScaleSet>, ScaleSetError> {
        self.call("find", self.sets.find(at, group, name)).await
    }

    async fn create(&self, at: &Scope, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        self.call("create", self.sets.create(at, spec)).await
    }

    async fn update(&self, at: &Scope, id: u64, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        self.call("update", self.sets.update(at, id, spec)).await
    }

    async fn delete(&self, at: &Scope, id: u64) -> Result<(), ScaleSetError> {
        self.call("delete", self.sets.delete(at, id)).await
    }

    async fn group(&self, at: &Scope, name: &str) -> Result<Option<u64>, ScaleSetError> {
        self.call("group", self.sets.group(at, name)).await
    }

    async fn open(&self, at: &Scope, set: u64, owner: &str) -> Result<Session, ScaleSetError> {
        self.call("open", self.sets.open(at, set, owner)).await
    }

    async fn renew(&self, session: &Session) -> Result<Session, ScaleSetError> {
        self.call("renew", self.sets.renew(session)).await
    }

    async fn close(&self, session: &Session) -> Result<(), ScaleSetError> {
        self.call("close", self.sets.close(session)).await
    }

    async fn message(
        &self,
        session: &Session,
        last: Option<u64>,
        capacity: u32,
    ) -> Result<Option<Message>, ScaleSetError> {
        let capacity = if self.has(Bug::AnnouncesNone) { 0 } else { capacity };
        self.call("message", self.sets.message(session, last, capacity)).await
    }

    async fn delete_message(&self, session: &Session, id: u64) -> Result<(), ScaleSetError> {
        self.call("delete message", self.sets.delete_message(session, id)).await
    }

    async fn acquire(&self, session: &Session, jobs: &[u64]) -> Result<(), ScaleSetError> {
        self.call("acquire", self.sets.acquire(session, jobs)).await
    }

    async fn job_config(
        &self,
        at: &Scope,
        set: u64,
        name: &str,
        folder: &str,
    ) -> Result<JobConfig, ScaleSetError> {
        self.call("job config", self.sets.job_config(at, set, name, folder)).await
    }

    async fn runner(&self, at: &Scope, name: &str) -> Result<Option<Runner>, ScaleSetError> {
        self.call("runner", self.sets.runner(at, name)).await
    }

    async fn runner_by_id(&self, at: &Scope, id: u64) -> Result<Option<Runner>, ScaleSetError> {
        self.call("runner by id", self.sets.runner_by_id(at, id)).await
    }

    async fn remove_runner(&self, at: &Scope, id: u64) -> Result<(), ScaleSetError> {
        if self.has(Bug::SetRunnerKept) {
            return Ok(());
        }
        match self.call("remove runner", self.sets.remove_runner(at, id)).await {
            Err(ScaleSetError::Busy(_)) if self.has(Bug::BusyGivenBack) => Ok(()),
            removed => removed,
        }
    }
}
