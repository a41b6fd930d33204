//! The yard of one seed: the fakes, who acts on them, what really is, and what was found broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::decide::{Followed, Following, Policy};
use runyard_core::model::{
    Ahead, Instance, InstanceArn, InstanceId, Item, Life, Place, Reason, Record, RecordId, RegistrationMode,
    ReleasedBy, Request, RunnerPackage, State, Timing, Write, label,
};
use runyard_core::ports::github::{EndOfLife, RunnerApplication, Scope};
use runyard_core::ports::{Clock, GitHub as _, Machine, Store};
use runyard_fakes::{
    FakeCompute, FakeGitHub, MemoryNotices, MemoryQueue, MemoryStore, SeededEntropy, TokioClock,
};
use runyard_operator::controller::{GitHubWatch, Settings};

use crate::simulation::actor::Actor;
use crate::simulation::bugs::{Bug, Highest};
use crate::simulation::chance::Chance;
use crate::simulation::fault_rates::{Fault, FaultRates};
use crate::simulation::laws::{Laws, record};
use crate::simulation::ledger::{CLOCKS, Shelf};
use crate::simulation::plans::{Effects, Plan};
use crate::simulation::queued_jobs::{self, Jobs};
use crate::simulation::rings::Rings;
use crate::simulation::set_jobs::{self, SetJobs};
use crate::simulation::shares::{Drawn, Watched};
use crate::simulation::sim_host::SimHost;
use crate::simulation::trace::Trace;
use crate::simulation::trace_file;
use crate::simulation::versions::{Knowledge, VersionEnds};

/// Which classes of one seed's yard register their runners ahead of claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegistersAhead {
    /// Whether any does.
    any: bool,
    /// Whether every one does that can.
    all: bool,
    seed: u64,
}

impl RegistersAhead {
    /// What the spec of a class says, by its number and whether it can.
    pub(crate) fn said(self, number: usize, able: bool) -> serde_json::Value {
        let drawn = self.seed.wrapping_add(number as u64) % 4;
        match (self.any, self.all, able, drawn) {
            (false, ..) | (true, false, _, 3) => false.into(),
            (true, false, true, 2) | (true, true, true, _) => true.into(),
            (true, ..) => "auto".into(),
        }
    }
}

/// One seed's yard.
pub(crate) struct World {
    /// The defect it is to have.
    pub(crate) bug: Option<Bug>,
    pub(crate) chance: Chance,
    /// When a person holds which machine.
    pub(crate) holds: Chance,
    pub(crate) fault_rates: FaultRates,
    pub(crate) trace: Trace,
    pub(crate) store: MemoryStore,
    pub(crate) queue: MemoryQueue,
    pub(crate) compute: FakeCompute,
    pub(crate) github: FakeGitHub,
    pub(crate) notices: MemoryNotices,
    pub(crate) clock: TokioClock,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) settings: Settings,
    /// How far the operators' clocks may be off while things go wrong.
    pub(crate) operators_off: Duration,
    /// The classes, and how each registers its runners.
    pub(crate) classes: BTreeMap<String, RegistrationMode>,
    /// Which classes that can do so register runners ahead.
    pub(crate) registers_ahead: RegistersAhead,
    pub(crate) machines: Mutex<BTreeMap<InstanceId, Arc<SimHost>>>,
    pub(crate) actors: Mutex<Vec<Arc<Actor>>>,
    pub(crate) laws: Mutex<Laws>,
    /// Which classes are shared and how, and what is seen of it.
    pub(crate) shares: Drawn,
    pub(crate) watched: Mutex<Watched>,
    pub(crate) shelf: Shelf,
    pub(crate) broken: Mutex<Vec<String>>,
    pub(crate) decided: AtomicBool,
    /// What operators take for classes, where they go by the version alone.
    pub(crate) highest: Highest,
    /// What agents and commands did, where one of their effects goes wrong by plan.
    pub(crate) effects: Effects,
    /// Jobs that GitHub assigns to runners, in a world of those.
    pub(crate) jobs: Jobs,
    /// The runner scale sets, in a world of those.
    pub(crate) set_jobs: SetJobs,
    /// The doorbell, where there is one.
    pub(crate) rings: Rings,
    /// The requests that jobs wait for: of attempts that were run again, and for which nobody asks.
    pub(crate) waited_for: Mutex<BTreeSet<RecordId>>,
    /// The newest runner version, and those of which no runner can register.
    versions: Mutex<(u32, BTreeSet<String>)>,
    /// How the version that machines are launched with ends, where it does, and who knows.
    pub(crate) ends: Option<VersionEnds>,
    pub(crate) knowledge: Mutex<Knowledge>,
    /// When the provider refused an order last.
    pub(crate) refused: Mutex<Option<tokio::time::Instant>>,
    stirred: AtomicBool,
}

/// Whether a request is released because its maximum runtime is over.
fn is_over(request: &Request) -> bool {
    request.status.released_by == Some(ReleasedBy::MaxRuntime)
}

/// The slots of scale sets that are not over.
fn open_slots(laws: &Laws) -> impl Iterator<Item = &Request> {
    let open = |request: &&Request| !request.is_released() && !request.phase().is_final();
    laws.requests().filter(|request| request.is_slot()).filter(open)
}

impl World {
    /// How many slots of scale sets are not over.
    pub(crate) fn open_slots(&self) -> usize {
        open_slots(&self.laws.lock().unwrap()).count()
    }

    /// How many slots that are not over are not wanted.
    pub(crate) fn asked_runners(&self) -> usize {
        open_slots(&self.laws.lock().unwrap()).filter(|slot| slot.wanted() == 0).count()
    }

    /// A yard in which nothing acts yet.
    pub(crate) fn new(seed: u64, told: bool, bug: Option<Bug>, only: Option<&[Fault]>) -> Self {
        let (chance, holds) = (Chance::of(seed), Chance::of(seed ^ 0x0048_6f6c_6473));
        let fault_rates = only.map_or_else(|| FaultRates::draw(&chance, &holds), FaultRates::only);
        // The race that it loses is rare: the workflow asks again at the moment at which the operator does.
        let fault_rates = match bug {
            Some(Bug::RerunOverwrites) => fault_rates.always(Fault::JobsRunAgain),
            Some(_) | None => fault_rates,
        };
        // A world with some faults alone is there for those.
        let shelf = Shelf::of(seed, only.is_none());
        let clock = TokioClock::starting(shelf.begin("2026-01-05T12:00:00Z".parse().unwrap()));
        let shared: Arc<dyn Clock> = Arc::new(clock);
        let compute = FakeCompute::new(shared.clone(), Arc::new(SeededEntropy::new(seed)));
        compute.lists_lag(*chance.one(&[Duration::ZERO, Duration::from_secs(5), Duration::from_secs(45)]));
        let classes = ["small", "large"].map(|name| {
            let mode = *chance.one(&[RegistrationMode::Run, RegistrationMode::Job]);
            (name.to_owned(), mode)
        });
        // No draw, so that the others are as they were.
        let registers_ahead = only.is_none_or(<[Fault]>::is_empty);
        let registers_ahead =
            RegistersAhead { any: registers_ahead, all: bug == Some(Bug::LabelBeforeClaim), seed };
        let classes = classes.map(|(name, mode)| match bug {
            Some(Bug::LabelBeforeClaim) => (name, RegistrationMode::Run),
            Some(_) | None => (name, mode),
        });
        let shares = Drawn::of(seed, only.is_none_or(<[Fault]>::is_empty), &["small", "large"]);
        let ends = VersionEnds::of(seed, bug, only.is_none(), clock.now());
        let github = FakeGitHub::new(shared.clone());
        if let Some(ends) = ends {
            let end = EndOfLife { registration: None, runtime: Some(ends.at) };
            github.set_end_of_life(&pinned().version, end);
        }
        let newest = if ends.is_some_and(|ends| ends.latest) { PINNED + 1 } else { PINNED };
        if newest > PINNED {
            github.offer(vec![application(package(newest))]);
        }
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self {
            bug,
            settings: Settings {
                sharing: shares.of_yard(),
                ended_stays: shelf.ended_stays(),
                ..settings(&chance, &fault_rates, ends)
            },
            operators_off: Duration::from_secs(*chance.one(&[2, 20, 120, 3600])).min(if shelf.is_on() {
                CLOCKS
            } else {
                Duration::MAX
            }),
            chance,
            holds,
            fault_rates,
            trace: Trace::new(told, trace_file(seed).as_deref()),
            store: MemoryStore::new(),
            queue: MemoryQueue::new(shared.clone()),
            compute,
            github,
            notices: MemoryNotices::new(shared),
            clock,
            dir: dir.unwrap(),
            classes: classes.into(),
            registers_ahead,
            machines: Mutex::default(),
            actors: Mutex::default(),
            laws: Mutex::default(),
            shares,
            watched: Mutex::default(),
            shelf,
            broken: Mutex::default(),
            decided: false.into(),
            highest: Highest::default(),
            effects: Effects::default(),
            jobs: Jobs::default(),
            set_jobs: SetJobs::default(),
            rings: Rings::drawn(seed),
            waited_for: Mutex::default(),
            versions: Mutex::new((newest, BTreeSet::new())),
            ends,
            knowledge: Mutex::default(),
            refused: Mutex::default(),
            stirred: false.into(),
        }
    }

    /// A yard in fair weather with one class, in which one effect goes wrong.
    pub(crate) fn planned(mode: RegistrationMode, plan: Option<Plan>) -> Self {
        let classes = [("small".to_owned(), mode)].into();
        Self { classes, effects: Effects::planned(plan), ..Self::new(1, false, None, Some(&[])) }
    }

    /// A yard whose runs ask for nothing.
    pub(crate) fn of_queued_jobs(seed: u64, told: bool, bug: Option<Bug>) -> Self {
        let mut world = Self::new(seed, told, bug, Some(&queued_jobs::FAULTS));
        world.fault_rates = FaultRates::among(&queued_jobs::FAULTS, &world.chance);
        world.classes = [("small".to_owned(), RegistrationMode::Run)].into();
        Self { jobs: Jobs::new(true), ..world }
    }

    /// A yard whose jobs name the label of a runner scale set.
    pub(crate) fn of_set_jobs(seed: u64, told: bool, bug: Option<Bug>) -> Self {
        Self::with_sets(seed, told, bug, &set_jobs::FAULTS)
    }

    pub(crate) fn of_set_jobs_in_fair_weather(seed: u64, bug: Option<Bug>) -> Self {
        Self::with_sets(seed, false, bug, &[])
    }

    fn with_sets(seed: u64, told: bool, bug: Option<Bug>, faults: &[Fault]) -> Self {
        let mut world = Self::new(seed, told, bug, Some(faults));
        world.fault_rates = FaultRates::among(faults, &world.chance);
        world.classes = [("small".to_owned(), RegistrationMode::Job)].into();
        Self { set_jobs: SetJobs::over(&world.clock), ..world }
    }

    /// Whether a job that GitHub assigns to a runner begins there.
    pub(crate) fn takes_jobs(&self, runner: &str) -> bool {
        self.machines.lock().unwrap().values().any(|sim_host| sim_host.takes_jobs_as(runner))
    }

    /// Whether the provider refused an order within the last two minutes.
    pub(crate) fn refused_lately(&self) -> bool {
        let refused = *self.refused.lock().unwrap();
        refused.is_some_and(|at| at.elapsed() < Duration::from_secs(120))
    }

    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let strikes = self.fault_rates.strikes(fault, &self.chance);
        let told = !matches!(fault, Fault::WatchShuffles | Fault::ListInPieces);
        if strikes && told {
            self.trace.tell(&format!("* {fault:?}"));
        }
        strikes
    }

    pub(crate) fn clock_now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn single_use(&self, machine: &Machine) -> bool {
        let class = machine.class.as_ref().and_then(|class| self.classes.get(class.as_str()));
        class == Some(&RegistrationMode::Job)
    }

    /// Whether a machine's agent can be heard now.
    pub(crate) fn is_heard(&self, id: &InstanceId) -> bool {
        self.sim_host(id).is_some_and(|sim_host| !sim_host.dead.is_cancelled())
    }

    /// Judges how machines are shared, now.
    pub(crate) fn look_at_shares(&self) {
        let broken = self.watched.lock().unwrap().look(self, &self.laws.lock().unwrap());
        broken.into_iter().for_each(|what| self.broke(what));
    }

    /// Notes that a promise was broken.
    pub(crate) fn broke(&self, what: String) {
        self.trace.tell(&format!("BROKEN {what}"));
        self.broken.lock().unwrap().push(what);
    }

    /// Whether all work is to come to its end now.
    pub(crate) fn ending(&self) -> bool {
        self.decided.load(Ordering::SeqCst)
    }

    /// Waits until all of these are over, first while things go wrong, and then while nothing does; tells what is broken
    /// first, or how many of them are left.
    pub(crate) async fn until_over(
        &self,
        tasks: &[tokio::task::JoinHandle<()>],
        [faulty, calm]: [Duration; 2],
        of_law: &str,
    ) -> Result<(), String> {
        let begun = tokio::time::Instant::now();
        let left = || tasks.iter().filter(|task| !task.is_finished()).count();
        while begun.elapsed() < faulty + calm && left() > 0 {
            if begun.elapsed() >= faulty && !self.fault_rates.calm() {
                self.fault_rates.clear_up();
                self.actors.lock().unwrap().iter().for_each(|actor| actor.disturb());
                self.trace.tell("faults stop");
            }
            if let Some(first) = self.broken.lock().unwrap().first() {
                return Err(first.clone());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        match left() {
            0 => Ok(()),
            left => Err(format!("{of_law} {left} are not over after {:?}", faulty + calm)),
        }
    }

    fn sim_host(&self, id: &InstanceId) -> Option<Arc<SimHost>> {
        self.machines.lock().unwrap().get(id).cloned()
    }

    /// A write that was applied.
    pub(crate) fn written(&self, who: &str, write: &Write, old: Option<&Item>, new: Option<&Item>) {
        let mut laws = self.laws.lock().unwrap();
        let before = laws.instance_of(&write.key).map(Instance::place);
        let released = laws.request_of(&write.key).is_some_and(is_over);
        let mut broken = laws.written(write, old, new);
        self.shelf.written(self.clock.now(), &write.key, new);
        broken.extend(old.filter(|_| new.is_none()).and_then(|old| self.shelf.removed(&write.key, old)));
        broken.extend(self.lends_ended(who, write, before, new));
        if write.key.pk().starts_with("instance#")
            && let Some(after) = laws.instance_of(&write.key)
        {
            self.tell_of(who, after);
            broken.extend(self.cut_short(&laws, before, after));
            if let Some(sim_host) = self.sim_host(&after.facts.instance_id) {
                broken.extend(sim_host.judge(self, after));
            }
        }
        broken.extend(laws.request_of(&write.key).and_then(|request| self.jobs.judge(request)));
        broken.extend(self.set_jobs.judge(open_slots(&laws).count()));
        if let Some(request) = laws.request_of(&write.key).filter(|request| is_over(request) && !released) {
            broken.extend(self.released_early(&laws, request));
        }
        drop(laws);
        broken.into_iter().for_each(|what| self.broke(what));
    }

    /// S36: a machine that serves a run is not ended by its deadline before the maximum runtime, counted from ready, is
    /// over. Operators whose clocks are wrong may end it sooner.
    fn cut_short(&self, laws: &Laws, before: Option<Place>, after: &Instance) -> Option<String> {
        let Life::Terminated { reason: Reason::Threshold, .. } = after.life else { return None };
        if before != Some(Place::Running) {
            return None;
        }
        let request = after.claim.as_ref()?.request.request()?;
        let request = laws.request_of(&request.into()).filter(|request| !request.phase().is_final())?;
        let over = self.too_early(laws, request)?;
        let id = &after.facts.instance_id;
        Some(format!("S36 {id}: ended by its deadline before {over}"))
    }

    /// S36: no request is released for its maximum runtime before it is over.
    fn released_early(&self, laws: &Laws, request: &Request) -> Option<String> {
        let over = self.too_early(laws, request)?;
        Some(format!("S36 {}: released for its maximum runtime before {over}", request.key()))
    }

    /// When the maximum runtime of a request is over, where that is not yet so and clocks are right.
    fn too_early(&self, laws: &Laws, request: &Request) -> Option<Timestamp> {
        if [Fault::ClocksDiffer, Fault::ClockSteps].iter().any(|fault| self.fault_rates.has(*fault)) {
            return None;
        }
        let class = &request.intent.resource_class;
        let pool = laws.pools().find(|pool| pool.spec.resource_class.as_str() == class)?;
        let minutes = request.intent.max_runtime_minutes.or(pool.spec.max_runtime_minutes)?;
        let from = request.status.ready_at.or(request.status.deadline)?;
        let over = from + Duration::from_secs(60 * minutes);
        (self.clock.now() < over).then_some(over)
    }

    fn tell_of(&self, who: &str, after: &Instance) {
        let why = match &after.life {
            Life::Terminated { reason, .. } => format!("{reason:?}"),
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => {
                after.claim.as_ref().map(|claim| claim.id.to_string()).unwrap_or_default()
            }
        };
        let (id, version) = (&after.facts.instance_id, after.version);
        self.trace.tell(&format!("{who:<8} {id} is {:?} {why} v{version}", after.place()));
    }

    /// A machine started a runner: is that what its record says?
    pub(crate) fn judge_host(&self, sim_host: &SimHost) {
        let laws = self.laws.lock().unwrap();
        let broken = match laws.instance_of(&Instance::key_of(&sim_host.machine.arn)) {
            Some(instance) => sim_host.judge(self, instance),
            None => vec![format!("S3 {}: a runner runs and there is no record", sim_host.machine.id)],
        };
        drop(laws);
        broken.into_iter().for_each(|what| self.broke(what));
    }

    /// S28: a runner that was registered ahead is about to get these labels. The claim that has it is written before.
    pub(crate) fn labels(&self, number: u64, labels: &[String]) {
        let listed = self.github.all_runners().into_iter().find(|runner| runner.id == number);
        let Some((id, ahead)) = listed.and_then(|runner| Ahead::named(&runner.name)) else { return };
        let laws = self.laws.lock().unwrap();
        let record = laws.instance_of(&Instance::key_of(&InstanceArn::local(&id)));
        let taken = record.filter(|record| record.ahead.as_ref().is_some_and(|of| of.id == ahead));
        let request = taken.and_then(|record| record.claim.as_ref()?.request.request());
        let own = request.is_some_and(|request| labels.contains(&label(request)));
        let place = record.map(Instance::place);
        drop(laws);
        if !own || matches!(place, Some(Place::IdlePooled | Place::CreatedWarm)) {
            self.broke(format!("S28 {id}: its runner at rest gets {labels:?}, and is {place:?}"));
        }
    }

    /// The defect that S28 is there for.
    pub(crate) async fn label_early(&self, key: &RecordId, run: &str) {
        let Some(machine) = self.get::<Instance>(key).await else { return };
        let number = machine.ahead.as_ref().and_then(|ahead| ahead.runner_id);
        let repository = machine.trust_domain.strip_prefix("repository:").and_then(|of| of.split_once('/'));
        if let (Some(number), Some((owner, name))) = (number, repository) {
            let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
            let labels = [run.to_owned()];
            self.labels(number, &labels);
            let _ = self.github.set_labels(&scope, number, &labels).await;
        }
    }

    /// S5 and S9: an operator is about to end machines.
    pub(crate) fn ends(&self, who: &str, ids: &[InstanceId]) {
        for id in ids {
            let key = Instance::key_of(&InstanceArn::local(id));
            let state = self.laws.lock().unwrap().instance_of(&key).map(Instance::state);
            if state != Some(State::Terminated) {
                self.broke(format!("S5 {id}: {who} ends it, its record says {state:?}"));
            }
        }
    }

    /// GitHub lists a newer runner version, which may be broken.
    pub(crate) fn new_version(&self) {
        let mut versions = self.versions.lock().unwrap();
        versions.0 += 1;
        let package = package(versions.0);
        if self.chance.percent(40) {
            versions.1.insert(package.version.clone());
        }
        self.trace.tell(&format!("runner {} is to be had", package.version));
        self.github.offer(vec![application(package)]);
    }

    /// Whether no runner of a version can register.
    pub(crate) fn is_broken(&self, version: &str) -> bool {
        self.versions.lock().unwrap().1.contains(version)
    }

    /// The compute provider has done something: whoever looks after machines is to look.
    pub(crate) fn stir(&self) {
        self.stirred.store(true, Ordering::SeqCst);
    }

    /// Whether it has since this was last asked.
    pub(crate) fn was_stirred(&self) -> bool {
        self.stirred.swap(false, Ordering::SeqCst)
    }

    pub(crate) async fn get<T: Record>(&self, key: &RecordId) -> Option<T> {
        record(self.store.get(key).await.expect("the fake answers").as_ref())
    }
}

/// The minor version that machines are launched with.
const PINNED: u32 = 330;

fn package(minor: u32) -> RunnerPackage {
    RunnerPackage {
        version: format!("2.{minor}.0"),
        url: format!("https://github.com/actions/runner/releases/download/v2.{minor}.0/a.tar.gz"),
        sha256: format!("{minor:064x}"),
    }
}

/// What machines are launched with.
pub(crate) fn pinned() -> RunnerPackage {
    package(PINNED)
}

/// A package as GitHub lists it.
fn application(package: RunnerPackage) -> RunnerApplication {
    RunnerApplication {
        os: "linux".into(),
        architecture: "x64".into(),
        filename: format!("actions-runner-linux-x64-{}.tar.gz", package.version),
        download_url: package.url,
        sha256: Some(package.sha256),
    }
}

fn following(fault_rates: &FaultRates, ends: Option<VersionEnds>) -> Following {
    let follows = ends.map_or_else(|| fault_rates.has(Fault::VersionsAppear), |ends| ends.latest);
    let usual = follows.then(|| Followed { architecture: "x64".into(), pinned: pinned() });
    Following { usual, ..Following::default() }
}

/// Durations as shipped, or short ones, which make more of an hour.
fn settings(chance: &Chance, fault_rates: &FaultRates, ends: Option<VersionEnds>) -> Settings {
    let brisk = chance.percent(85);
    let pick = |shipped: u64, short: u64| Duration::from_secs(if brisk { short } else { shipped });
    Settings {
        identity: String::new(),
        table: "runyard".parse().unwrap(),
        organization: false,
        rebalance: runyard_core::model::Rebalance::Last,
        timing: Timing {
            created: pick(900, 240),
            claimed: pick(300, 120),
            cleanup: pick(300, 120),
            end: pick(180, 60),
            grace: pick(300, 60),
            heartbeat: Duration::from_secs(10),
            stale: pick(60, 45),
            agent_poll: Duration::from_secs(*chance.one(&[1, 1, 3])),
            resync: pick(300, 60),
            reannounce: pick(300, 60),
            lease: pick(15, 9),
            orphan: pick(600, 150),
            image: Duration::from_secs(3600),
        },
        requests_per_repository: 2000,
        runner_version: (ends.is_some() || fault_rates.has(Fault::VersionsAppear)).then(|| pinned().version),
        following: following(fault_rates, ends),
        sharing: Default::default(),
        prices: Default::default(),
        sweep: pick(60, 20),
        github: GitHubWatch {
            run_poll: Some(Duration::from_secs(60)),
            sweep: Some(pick(3600, 180)),
            verify_removed: true,
            verify_run: true,
            reruns: fault_rates.has(Fault::JobsRunAgain),
            rerun_lost: fault_rates.has(Fault::JobsRunAgain),
        },
        ended_stays: Policy::ENDED_STAYS,
    }
}
