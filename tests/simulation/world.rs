//! The yard of one seed: the fakes, who acts on them, what really is, and what was found broken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runyard::controller::{GitHubWatch, Settings};
use runyard::fakes::{
    FakeCompute, FakeGitHub, MemoryNotices, MemoryQueue, MemoryStore, SeededEntropy, TokioClock,
};
use runyard::model::{Instance, InstanceId, Item, Key, Record, RegistrationMode, State, Write};
use runyard::ports::{Clock, Machine, Store};

use crate::actor::Actor;
use crate::bugs::Bug;
use crate::chance::Chance;
use crate::ground::Ground;
use crate::laws::{Laws, record};
use crate::table::short;
use crate::trace::Trace;
use crate::weather::{Fault, Weather};

/// One seed's yard.
pub(crate) struct World {
    /// The defect it is to have.
    pub(crate) bug: Option<Bug>,
    pub(crate) chance: Chance,
    pub(crate) weather: Weather,
    pub(crate) trace: Trace,
    pub(crate) store: MemoryStore,
    pub(crate) queue: MemoryQueue,
    pub(crate) compute: FakeCompute,
    pub(crate) github: FakeGitHub,
    pub(crate) notices: MemoryNotices,
    pub(crate) clock: TokioClock,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) settings: Settings,
    /// The classes, and how each registers its runners.
    pub(crate) classes: BTreeMap<String, RegistrationMode>,
    pub(crate) machines: Mutex<BTreeMap<InstanceId, Arc<Ground>>>,
    pub(crate) actors: Mutex<Vec<Arc<Actor>>>,
    pub(crate) laws: Mutex<Laws>,
    pub(crate) broken: Mutex<Vec<String>>,
    pub(crate) decided: std::sync::atomic::AtomicBool,
}

impl World {
    /// A yard in which nothing acts yet.
    pub(crate) fn new(seed: u64, told: bool, bug: Option<Bug>, only: Option<&[Fault]>) -> Arc<Self> {
        let chance = Chance::of(seed);
        let weather = only.map_or_else(|| Weather::draw(&chance), Weather::only);
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
        Arc::new(Self {
            bug,
            settings: settings(&chance),
            chance,
            weather,
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
        })
    }

    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let strikes = self.weather.strikes(fault, &self.chance);
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
        self.decided.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn ground(&self, id: &InstanceId) -> Option<Arc<Ground>> {
        self.machines.lock().unwrap().get(id).cloned()
    }

    /// A write that was applied.
    pub(crate) fn written(&self, who: &str, write: &Write, old: Option<&Item>, new: Option<&Item>) {
        if let Some(after) = record::<Instance>(new) {
            let claim = after.claim.as_ref().map_or("", |claim| claim.id.as_str());
            let line =
                format!("{who:<8} {} is {:?} {claim} v{}", short(&write.key), after.place(), after.version);
            self.trace.tell(&line);
        }
        let mut broken = self.laws.lock().unwrap().written(write, old, new);
        if let Some(after) = record::<Instance>(new)
            && let Some(ground) = self.ground(&after.facts.instance_id)
        {
            broken.extend(ground.judge(self, &after));
        }
        broken.into_iter().for_each(|what| self.broke(what));
    }

    /// A machine started a runner: is that what its record says?
    pub(crate) async fn judge_ground(&self, ground: &Ground) {
        let item = self.store.get(&Instance::key_of(&ground.machine.arn)).await.expect("the fake answers");
        match record::<Instance>(item.as_ref()) {
            Some(instance) => ground.judge(self, &instance).into_iter().for_each(|what| self.broke(what)),
            None => self.broke(format!("S3 {}: a runner runs and there is no record", ground.machine.id)),
        }
    }

    /// S5 and S9: an operator is about to end machines.
    pub(crate) fn ends(&self, who: &str, ids: &[InstanceId]) {
        let records = self.all::<Instance>();
        for id in ids {
            let record = records.iter().find(|instance| instance.facts.instance_id == *id);
            let state = record.map(Instance::state);
            if state != Some(State::Terminated) {
                self.broke(format!("S5 {id}: {who} ends it, its record says {state:?}"));
            }
        }
    }

    pub(crate) async fn get<T: Record>(&self, key: &Key) -> Option<T> {
        record(self.store.get(key).await.expect("the fake answers").as_ref())
    }

    pub(crate) fn all<T: Record>(&self) -> Vec<T> {
        self.store.records().iter().filter_map(|item| record(Some(item))).collect()
    }
}

/// Durations as shipped, or short ones, which make more of an hour.
fn settings(chance: &Chance) -> Settings {
    let brisk = chance.percent(75);
    let pick = |shipped: u64, short: u64| Duration::from_secs(if brisk { short } else { shipped });
    Settings {
        identity: String::new(),
        table: "runyard".parse().unwrap(),
        organization: false,
        created: pick(900, 240),
        claimed: pick(300, 120),
        cleanup: pick(300, 120),
        grace: pick(300, 60),
        heartbeat: Duration::from_secs(10),
        stale: pick(60, 45),
        agent_poll: Duration::from_secs(*chance.one(&[1, 2, 4])),
        resync: pick(300, 60),
        reannounce: pick(300, 60),
        lease: pick(15, 9),
        orphan: pick(600, 150),
        sweep: pick(60, 20),
        github: GitHubWatch {
            run_poll: Some(Duration::from_secs(60)),
            sweep: Some(pick(3600, 180)),
            verify_removed: true,
        },
    }
}
