//! The yard of one seed: the fakes, who acts on them, what really is, and what was found broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runyard::controller::{GitHubWatch, Settings};
use runyard::model::{
    Instance, InstanceArn, InstanceId, Item, Life, Record, RecordId, RegistrationMode, State, Timing, Write,
};
use runyard::ports::{Clock, Machine, Store};
use runyard_fakes::{
    FakeCompute, FakeGitHub, MemoryNotices, MemoryQueue, MemoryStore, SeededEntropy, TokioClock,
};

use crate::simulation::actor::Actor;
use crate::simulation::bugs::{Bug, Highest};
use crate::simulation::chance::Chance;
use crate::simulation::fault_rates::{Fault, FaultRates};
use crate::simulation::laws::{Laws, record};
use crate::simulation::plans::{Effects, Plan};
use crate::simulation::sim_host::SimHost;
use crate::simulation::trace::Trace;

/// One seed's yard.
pub(crate) struct World {
    /// The defect it is to have.
    pub(crate) bug: Option<Bug>,
    pub(crate) chance: Chance,
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
    pub(crate) machines: Mutex<BTreeMap<InstanceId, Arc<SimHost>>>,
    pub(crate) actors: Mutex<Vec<Arc<Actor>>>,
    pub(crate) laws: Mutex<Laws>,
    pub(crate) broken: Mutex<Vec<String>>,
    pub(crate) decided: AtomicBool,
    /// What operators take for classes, where they go by the version alone.
    pub(crate) highest: Highest,
    /// What agents and commands did, where one of their effects goes wrong by plan.
    pub(crate) effects: Effects,
    /// The requests that jobs wait for: of attempts that were run again, and for which nobody asks.
    pub(crate) waited_for: Mutex<BTreeSet<RecordId>>,
    stirred: AtomicBool,
}

impl World {
    /// A yard in which nothing acts yet.
    pub(crate) fn new(seed: u64, told: bool, bug: Option<Bug>, only: Option<&[Fault]>) -> Self {
        let chance = Chance::of(seed);
        let fault_rates = only.map_or_else(|| FaultRates::draw(&chance), FaultRates::only);
        let clock = TokioClock::starting("2026-01-05T12:00:00Z".parse().unwrap());
        let shared: Arc<dyn Clock> = Arc::new(clock);
        let compute = FakeCompute::new(shared.clone(), Arc::new(SeededEntropy::new(seed)));
        compute.lists_lag(*chance.one(&[Duration::ZERO, Duration::from_secs(5), Duration::from_secs(45)]));
        let classes = ["small", "large"].map(|name| {
            let mode = *chance.one(&[RegistrationMode::Run, RegistrationMode::Job]);
            (name.to_owned(), mode)
        });
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self {
            bug,
            settings: settings(&chance, &fault_rates),
            operators_off: Duration::from_secs(*chance.one(&[2, 20, 120, 3600])),
            chance,
            fault_rates,
            trace: Trace::new(told),
            store: MemoryStore::new(),
            queue: MemoryQueue::new(shared.clone()),
            compute,
            github: FakeGitHub::new(shared.clone()),
            notices: MemoryNotices::new(shared),
            clock,
            dir: dir.unwrap(),
            classes: classes.into(),
            machines: Mutex::default(),
            actors: Mutex::default(),
            laws: Mutex::default(),
            broken: Mutex::default(),
            decided: false.into(),
            highest: Highest::default(),
            effects: Effects::default(),
            waited_for: Mutex::default(),
            stirred: false.into(),
        }
    }

    /// A yard in fair weather with one class, in which one effect goes wrong.
    pub(crate) fn planned(mode: RegistrationMode, plan: Option<Plan>) -> Self {
        let classes = [("small".to_owned(), mode)].into();
        Self { classes, effects: Effects::planned(plan), ..Self::new(1, false, None, Some(&[])) }
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

    /// Notes that a promise was broken.
    pub(crate) fn broke(&self, what: String) {
        self.trace.tell(&format!("BROKEN {what}"));
        self.broken.lock().unwrap().push(what);
    }

    /// Whether all work is to come to its end now.
    pub(crate) fn ending(&self) -> bool {
        self.decided.load(Ordering::SeqCst)
    }

    fn sim_host(&self, id: &InstanceId) -> Option<Arc<SimHost>> {
        self.machines.lock().unwrap().get(id).cloned()
    }

    /// A write that was applied.
    pub(crate) fn written(&self, who: &str, write: &Write, old: Option<&Item>, new: Option<&Item>) {
        let mut laws = self.laws.lock().unwrap();
        let mut broken = laws.written(write, old, new);
        if write.key.pk().starts_with("instance#")
            && let Some(after) = laws.instance_of(&write.key)
        {
            self.tell_of(who, after);
            if let Some(sim_host) = self.sim_host(&after.facts.instance_id) {
                broken.extend(sim_host.judge(self, after));
            }
        }
        drop(laws);
        broken.into_iter().for_each(|what| self.broke(what));
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

/// Durations as shipped, or short ones, which make more of an hour.
fn settings(chance: &Chance, fault_rates: &FaultRates) -> Settings {
    let brisk = chance.percent(85);
    let pick = |shipped: u64, short: u64| Duration::from_secs(if brisk { short } else { shipped });
    Settings {
        identity: String::new(),
        table: "runyard".parse().unwrap(),
        organization: false,
        timing: Timing {
            created: pick(900, 240),
            claimed: pick(300, 120),
            cleanup: pick(300, 120),
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
        runner_version: None,
        sharing: Default::default(),
        sweep: pick(60, 20),
        github: GitHubWatch {
            run_poll: Some(Duration::from_secs(60)),
            sweep: Some(pick(3600, 180)),
            verify_removed: true,
            verify_run: true,
            reruns: fault_rates.has(Fault::JobsRunAgain),
            rerun_lost: fault_rates.has(Fault::JobsRunAgain),
        },
    }
}
