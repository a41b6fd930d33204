//! One state of the whole system, small enough to visit all there are: the table as it is, what each operator has seen
//! of it, the machines with their agents, and how many faults may still come.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::decide::Policy;
use runyard_core::model::{
    Agent, Claim, ClaimId, Instance, InstanceArn, Place, Record, RecordId, Signal, Timing,
};
use runyard_core::ports::Machine;
use runyard_core::yard::{Now, Observation};

use crate::models::ahead::AtRest;
use crate::models::mutants::Mutant;
use crate::models::operator::{Operator, Operators, Possible};
use crate::models::stored::{Kept, Stored, Table, print_of};

/// How far one passing of time goes: longer than the grace of a machine without a record, shorter than any deadline.
const MINUTES: u64 = 11;

/// When each model begins.
const START: Timestamp = Timestamp::constant(1_767_614_400, 0);

/// Faults that may still come, and what people may still do.
#[derive(Clone, Debug, Default, Hash, PartialEq)]
pub(crate) struct Left {
    /// Operators that die and start again with an empty memory.
    pub(crate) crashes: u8,
    /// Writes and launches that happen although their caller hears nothing of it.
    pub(crate) lost: u8,
    /// Launches that bring fewer machines than asked for, and labels that are set without an answer.
    pub(crate) partial: u8,
    /// Removals of a runner that GitHub refuses, because it takes the runner for busy, and labels that it refuses.
    pub(crate) busy: u8,
    /// Machines that EC2 takes away.
    pub(crate) reclaimed: u8,
    /// Agents that lose the runner that was registered ahead.
    pub(crate) loses: u8,
    /// Lists of machines that do not show one that is there.
    pub(crate) unlisted: u8,
    /// Changes of the lease's holder.
    pub(crate) leases: u8,
    /// Times that eleven minutes pass.
    pub(crate) passes: u8,
    /// Times that a minute passes in which nobody hears of any agent.
    pub(crate) quiet: u8,
    /// Beats of agents beside their signals; the last may come when the machine is gone.
    pub(crate) beats: u8,
    /// Signals that agents write once more, because they heard nothing of the first write.
    pub(crate) repeats: u8,
    /// Requests that workflows still write: for whom, and the number of the run.
    pub(crate) arrivals: Vec<(&'static str, &'static str)>,
    /// Releases by the workflow, one for each request that is named.
    pub(crate) releases: Vec<RecordId>,
}

/// A machine's agent: what it read of its record last, and for which claim its runner listens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hand {
    pub(crate) arn: InstanceArn,
    pub(crate) sight: Option<Sight>,
    pub(crate) runner: Option<ClaimId>,
    /// Whether GitHub lists a runner of this machine.
    pub(crate) listed: bool,
    /// The runner that was registered ahead of a claim.
    pub(crate) rest: Option<AtRest>,
    /// What it said last, and for which claim.
    pub(crate) said: Option<(Signal, String)>,
    /// All that its record ever said; kept only where an agent may read the past.
    pub(crate) past: Vec<Sight>,
}

impl Hand {
    /// Of a machine that was just recorded.
    pub(crate) fn of(arn: &InstanceArn) -> Self {
        let (arn, past) = (arn.clone(), Vec::new());
        Self { arn, sight: None, runner: None, listed: false, rest: None, said: None, past }
    }
}

/// A record as its agent reads it: its place, its claim, and the runner registered ahead that it names.
pub(crate) type Sight = (Place, Option<ClaimId>, Option<ClaimId>);

/// What is the same in all states of a model, and what was found out in some.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) policy: Policy,
    pub(crate) mutant: Option<Mutant>,
    /// Whether operators and agents read every change at once.
    pub(crate) prompt: bool,
    pub(crate) operators: Operators,
    /// Records that came of a change of another: by its fingerprint and the change's.
    pub(crate) changed: Mutex<BTreeMap<(u64, u64), Arc<Stored>>>,
    /// What is wrong with a fair run from a state, if something is.
    pub(crate) rests: Mutex<BTreeMap<u64, Option<&'static str>>>,
    /// Whether a write was ever refused.
    pub(crate) refused: AtomicBool,
    /// What was found to be wrong first: that is the nearest, others do not count.
    pub(crate) failed: OnceLock<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) setting: Arc<Setting>,
    pub(crate) table: Table,
    pub(crate) operators: Vec<Arc<Operator>>,
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) hands: Vec<Hand>,
    pub(crate) token: u64,
    pub(crate) launches: u8,
    /// Of each operator, the intent of which it does not know whether it stands.
    pub(crate) unsettled: Vec<Option<u8>>,
    pub(crate) passed: u8,
    pub(crate) silent: u8,
    pub(crate) left: Left,
    /// What went wrong, if something did.
    pub(crate) wrong: Option<&'static str>,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Happens {
    /// An operator sees one record as it is now, or everything.
    Sees(usize, Option<RecordId>),
    /// An operator carries out what it decided.
    Acts(usize, Arc<Possible>, Fate),
    /// An operator dies and starts anew.
    Crashes(usize),
    /// The lease goes to the other operator.
    Changes(usize),
    /// The agent of a machine reads its record; from the past, if so many steps are named.
    Reads(InstanceArn, Option<usize>),
    /// The agent of a machine does what its record asks, and says so.
    Speaks(InstanceArn),
    /// The agent of a machine says again what it said last.
    Repeats(InstanceArn),
    /// The agent of a machine says that it is there.
    Beats(InstanceArn),
    /// The agent of a machine loses the runner that was registered ahead.
    Loses(InstanceArn),
    /// EC2 takes a machine away.
    Reclaims(InstanceArn),
    /// A workflow of a repository writes the request of a run.
    Arrives(&'static str, &'static str),
    /// The workflow releases its request.
    Releases(RecordId),
    /// An operator lists the machines of EC2; the list may lack one.
    Lists(usize, Option<InstanceArn>),
    /// Eleven minutes pass.
    Passes,
    /// A minute passes in which no operator hears of any agent.
    Quiet,
}

/// What comes of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// It is done and answered.
    Heard,
    /// It is done, and the answer is lost.
    Lost,
    /// It is done in part and answered.
    Partial,
    /// GitHub takes the runner for busy, or refuses its label.
    Busy,
    /// It is done at GitHub, and the operator dies before it writes.
    Cut,
}

impl World {
    pub(crate) fn new(operators: usize, left: Left, mutant: Option<Mutant>) -> Self {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let mut policy = Policy {
            timing: Timing {
                created: minutes(600),
                claimed: minutes(600),
                cleanup: minutes(600),
                end: minutes(3),
                grace: minutes(5),
                heartbeat: Duration::from_secs(10),
                stale: minutes(1),
                agent_poll: Duration::from_secs(1),
                resync: minutes(5),
                reannounce: minutes(600),
                lease: Duration::from_secs(15),
                orphan: minutes(10),
                image: Duration::from_secs(3600),
            },
            requests_per_repository: 2000,
            prices: Default::default(),
            sharing: Default::default(),
            following: Default::default(),
            github: false,
            organization: false,
            watches_runs: false,
            inventory: false,
            rebalance: runyard_core::model::Rebalance::Last,
            statements: false,
            ended_stays: Policy::ENDED_STAYS,
        };
        mutant.iter().for_each(|mutant| mutant.policy(&mut policy));
        let setting = Setting {
            policy,
            mutant,
            prompt: false,
            operators: Operators::default(),
            changed: Mutex::default(),
            rests: Mutex::default(),
            refused: AtomicBool::new(false),
            failed: OnceLock::new(),
        };
        Self {
            setting: Arc::new(setting),
            table: Table::default(),
            operators: vec![Arc::default(); operators],
            machines: Vec::new(),
            hands: Vec::new(),
            token: 1,
            launches: 0,
            unsettled: vec![None; operators],
            passed: 0,
            silent: 0,
            left,
            wrong: None,
        }
    }

    /// The operators go by EC2's lists of machines.
    pub(crate) fn with_inventory(mut self) -> Self {
        Arc::get_mut(&mut self.setting).expect("nobody shares it yet").policy.inventory = true;
        self
    }

    /// The operators remove runners at GitHub.
    pub(crate) fn with_github(mut self) -> Self {
        Arc::get_mut(&mut self.setting).expect("nobody shares it yet").policy.github = true;
        self
    }

    /// Operators and agents read every change at once: fewer states, where old pictures are not what is asked about.
    pub(crate) fn with_prompt_readers(mut self) -> Self {
        Arc::get_mut(&mut self.setting).expect("nobody shares it yet").prompt = true;
        self
    }

    /// Every operator has read everything; the first holds the lease.
    pub(crate) fn started(mut self) -> Self {
        (0..self.operators.len()).for_each(|who| self.starts(who));
        self.believes(0, Some(self.token));
        self.asks();
        self
    }

    pub(crate) fn mutant(&self) -> Option<Mutant> {
        self.setting.mutant
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.setting.mutant == Some(mutant)
    }

    pub(crate) fn now(&self) -> Now {
        let mono = Duration::from_secs(100_000 + u64::from(self.passed) * MINUTES * 60);
        let wall = START + Duration::from_secs(u64::from(self.passed) * MINUTES * 60);
        let seen = Duration::from_secs(100_000 + u64::from(self.silent) * 61);
        Now { wall, mono, seen }
    }

    pub(crate) fn starts(&mut self, who: usize) {
        self.operators[who] = Arc::default();
        self.unsettled[who] = None;
        self.sees_all(who);
        let keys: BTreeSet<RecordId> = self.table.iter().map(|stored| stored.key.clone()).collect();
        self.observe(who, Observation::Listed(self.now().mono, keys));
    }

    pub(crate) fn believes(&mut self, who: usize, lease: Option<u64>) {
        if self.operators[who].lease != lease {
            self.operators[who] = self.setting.operators.with_lease(&self.operators[who], lease);
        }
    }

    /// An operator takes in something that is not a record's image.
    pub(crate) fn observe(&mut self, who: usize, seen: Observation) {
        self.observe_as(who, print_of(&seen), || seen);
    }

    /// The same, where something simpler tells what is seen from all else.
    pub(crate) fn observe_as(&mut self, who: usize, mark: u64, seen: impl FnOnce() -> Observation) {
        let mut hasher = DefaultHasher::new();
        (mark, self.passed, self.silent).hash(&mut hasher);
        let (mark, now) = (hasher.finish(), self.now());
        self.operators[who] = self.setting.operators.learn(&self.operators[who], mark, &now, None, seen);
    }

    /// An operator sees a record as it is now; `looked` when it asked for this one strongly.
    pub(crate) fn sees(&mut self, who: usize, key: &RecordId, looked: bool) {
        let (now, mutant, stored) = (self.now(), self.mutant(), self.table.get(key));
        let mut mark = DefaultHasher::new();
        (looked, key, stored.map(|stored| stored.print), self.passed, self.silent).hash(&mut mark);
        let show = || {
            let (key, mut item) = (key.clone(), stored.map(|stored| stored.item.clone()));
            item.iter_mut().for_each(|item| mutant.iter().for_each(|mutant| mutant.reads(item)));
            // It begins after all that was seen at this moment.
            let begun = now.mono + Duration::from_nanos(1);
            if looked { Observation::Looked(begun, key, item) } else { Observation::Record(key, item) }
        };
        let image = Some((key, stored));
        self.operators[who] =
            self.setting.operators.learn(&self.operators[who], mark.finish(), &now, image, show);
    }

    /// An operator sees everything at once, as a list or a batch of the stream shows it.
    pub(crate) fn sees_all(&mut self, who: usize) {
        let behind: Vec<RecordId> = self.behind(who).into_iter().cloned().collect();
        behind.iter().for_each(|key| self.sees(who, key, false));
    }

    /// The records of which an operator has an old picture.
    pub(crate) fn behind(&self, who: usize) -> Vec<&RecordId> {
        self.table.differs(&self.operators[who].images)
    }

    pub(crate) fn put<T: Record>(&mut self, record: &T) {
        self.table.put(Stored::of(record.to_item()));
    }

    /// What a record becomes by a change; `mark` tells the change from others of the same record.
    pub(crate) fn change<T: Kept + Clone>(&mut self, key: &RecordId, mark: u64, change: impl FnOnce(&mut T)) {
        let Some(before) = self.table.get(key) else { return };
        let step = (before.print, mark);
        let known = self.setting.changed.lock().expect("no thread panicked").get(&step).cloned();
        let after = known.unwrap_or_else(|| {
            let mut record: T = before.as_kind::<T>().expect("of its kind").clone();
            change(&mut record);
            Stored::of(record.to_item())
        });
        self.setting.changed.lock().expect("no thread panicked").insert(step, after.clone());
        self.table.put(after);
    }

    pub(crate) fn get<T: Kept>(&self, key: &RecordId) -> Option<&T> {
        self.table.record(key)
    }

    pub(crate) fn all<T: Kept + 'static>(&self) -> impl Iterator<Item = &T> {
        self.table.all()
    }

    pub(crate) fn plans(&self, who: usize) -> Arc<Vec<Arc<Possible>>> {
        let plans =
            self.operators[who].plans(&self.setting.policy, (self.passed, self.silent), || self.now());
        match self.mutant() {
            Some(mutant) => {
                let kept = plans.iter().filter(|planned| !mutant.omits(self, who, &planned.action));
                Arc::new(kept.cloned().collect())
            }
            None => plans,
        }
    }

    pub(crate) fn alive(&self, arn: &InstanceArn) -> bool {
        self.machines.iter().any(|machine| machine.arn == *arn && machine.state.alive())
    }

    pub(crate) fn machine(&mut self, arn: &InstanceArn) -> Option<&mut Machine> {
        self.machines.iter_mut().find(|machine| machine.arn == *arn).map(Arc::make_mut)
    }

    pub(crate) fn instance(&self, arn: &InstanceArn) -> Option<&Instance> {
        self.get(&Instance::key_of(arn))
    }

    pub(crate) fn agent(&self, arn: &InstanceArn) -> Option<&Agent> {
        self.get(&Agent::key_of(arn))
    }

    /// What the agent of a machine reads in its record now.
    pub(crate) fn sight(&self, arn: &InstanceArn) -> Option<Sight> {
        let claim = |instance: &Instance| instance.claim.as_ref().map(|claim: &Claim| claim.id.clone());
        let ahead = |instance: &Instance| instance.ahead.as_ref().map(|ahead| ahead.id.clone());
        self.instance(arn).map(|instance| (instance.place(), claim(instance), ahead(instance)))
    }

    pub(crate) fn refused(&self) -> bool {
        self.setting.refused.load(Ordering::Relaxed)
    }

    /// All that can change, as one number; with what may still come, or without.
    pub(crate) fn print(&self, with_left: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self { table, operators, machines, hands, token, launches, unsettled, .. } = self;
        let Self { passed, silent, left, wrong, .. } = self;
        table.iter().for_each(|stored| stored.print.hash(&mut hasher));
        operators.iter().for_each(|operator| operator.print.hash(&mut hasher));
        machines.iter().for_each(|machine| (&machine.id, machine.state as u8).hash(&mut hasher));
        for hand in hands {
            let said = hand.said.as_ref().map(|(signal, claim)| (*signal as u8, claim));
            (&hand.arn, &hand.sight, &hand.runner, hand.listed, said, &hand.past).hash(&mut hasher);
            hand.rest.hash(&mut hasher);
        }
        (token, launches, unsettled, passed, silent, wrong).hash(&mut hasher);
        if with_left {
            left.hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.print(true));
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.print(true) == other.print(true)
    }
}
