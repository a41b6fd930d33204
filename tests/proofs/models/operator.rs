//! One operator of the model: the production `Yard` with what it saw, and the production `decide` on it. What an
//! operator learns and what it plans depend on nothing else, so each is computed once and remembered.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};

use runyard_core::decide::{Change, Context, Effect, Planned, Policy, Role, decide};
use runyard_core::model::{Pool, Record};
use runyard_core::yard::{Now, Observation, Yard};

use crate::models::stored::{Stored, Table, print_of};

/// One operator: what it has seen, and whether it believes that the lease is its own.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    yard: Yard,
    pub(crate) lease: Option<u64>,
    /// Each record as it saw it last.
    pub(crate) images: Table,
    pub(crate) print: u64,
    /// What it would do, by the moment.
    plans: Mutex<BTreeMap<Moment, Arc<Vec<Arc<Possible>>>>>,
}

/// How often time passed, and how often in silence.
type Moment = (u8, u8);

/// One action with the writes it comes to.
#[derive(Debug)]
pub(crate) struct Possible {
    pub(crate) action: Planned,
    /// Records that are replaced, each with the version that was read.
    pub(crate) steps: Vec<(u64, Arc<Stored>)>,
    /// Records that must not be there.
    pub(crate) new: Vec<Arc<Stored>>,
    print: OnceLock<u64>,
}

impl PartialEq for Possible {
    fn eq(&self, other: &Self) -> bool {
        self.print() == other.print()
    }
}

impl Possible {
    fn of(action: Planned) -> Self {
        let (mut steps, mut new) = (Vec::new(), Vec::new());
        for change in action.effect.changes() {
            match change {
                Change::Instance(step) => {
                    steps.push((step.before.version, Stored::of(step.after.to_item())));
                }
                Change::Request(step) => steps.push((step.before.version, Stored::of(step.after.to_item()))),
                Change::Launch(step) => steps.push((step.before.version, Stored::of(step.after.to_item()))),
                Change::Born(instance) => new.push(Stored::of(instance.to_item())),
                Change::Agent(agent) => new.push(Stored::of(agent.to_item())),
                Change::Pool(_) => {}
            }
        }
        Self { action, steps, new, print: OnceLock::new() }
    }

    pub(crate) fn print(&self) -> u64 {
        *self.print.get_or_init(|| print_of(&self.action))
    }

    /// Whether it only asks or tells: the order of such things makes no difference to others.
    pub(crate) fn alone(&self) -> bool {
        matches!(
            self.action.effect,
            Effect::Describe(_)
                | Effect::Console(_)
                | Effect::Receive(..)
                | Effect::Look(_)
                | Effect::Announce(..)
                | Effect::SweepRunner(..)
        )
    }
}

/// The operators met so far, each once, and what each came to by what it saw.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    known: Mutex<BTreeMap<u64, Arc<Operator>>>,
    learned: Mutex<BTreeMap<(u64, u64), Arc<Operator>>>,
}

impl Operators {
    /// The operator that an operator is after `seen`, which `mark` tells from all else that may be seen.
    pub(crate) fn learn(
        &self,
        operator: &Arc<Operator>,
        mark: u64,
        now: &Now,
        image: Option<(&runyard_core::model::RecordId, Option<&Arc<Stored>>)>,
        seen: impl FnOnce() -> Observation,
    ) -> Arc<Operator> {
        let step = (operator.print, mark);
        if let Some(known) = self.learned.lock().expect("no thread panicked").get(&step) {
            return known.clone();
        }
        let (mut yard, mut images) = (operator.yard.clone(), operator.images.clone());
        yard.observe(seen(), now);
        match image {
            Some((_, Some(stored))) => images.put(stored.clone()),
            Some((key, None)) => images.remove(key),
            None => {}
        }
        let after = self.one(yard, images, operator.lease);
        self.learned.lock().expect("no thread panicked").insert(step, after.clone());
        after
    }

    /// The same operator with another belief about the lease.
    pub(crate) fn with_lease(&self, operator: &Operator, lease: Option<u64>) -> Arc<Operator> {
        self.one(operator.yard.clone(), operator.images.clone(), lease)
    }

    fn one(&self, yard: Yard, images: Table, lease: Option<u64>) -> Arc<Operator> {
        let mut hasher = DefaultHasher::new();
        (print_of(&yard), lease).hash(&mut hasher);
        images.iter().for_each(|stored| stored.print.hash(&mut hasher));
        let print = hasher.finish();
        let mut known = self.known.lock().expect("no thread panicked");
        let new = || Arc::new(Operator { yard, lease, images, print, plans: Mutex::default() });
        known.entry(print).or_insert_with(new).clone()
    }
}

impl Operator {
    /// The pool's record as it would be written now, if another status is due.
    pub(crate) fn reports(&self, policy: &Policy, now: Now) -> Option<Pool> {
        let cx = Context { yard: &self.yard, policy, now, role: Role { lease: self.lease } };
        let mut actions = self.yard.units().into_iter().flat_map(|unit| decide(&cx, &unit).actions);
        let reported = |action: Planned| match action.effect {
            Effect::Pool(step) => Some(step.after),
            _ => None,
        };
        actions.find_map(reported)
    }

    /// What it would do now, pools' statuses left out: they decide nothing.
    pub(crate) fn plans(
        &self,
        policy: &Policy,
        moment: Moment,
        now: impl FnOnce() -> Now,
    ) -> Arc<Vec<Arc<Possible>>> {
        let mut plans = self.plans.lock().expect("no thread panicked");
        let plans = plans.entry(moment).or_insert_with(|| {
            let role = Role { lease: self.lease };
            let cx = Context { yard: &self.yard, policy, now: now(), role };
            let actions = self.yard.units().into_iter().flat_map(|unit| decide(&cx, &unit).actions);
            let mine = |action: &Planned| {
                !matches!(action.effect, Effect::Pool(_)) && (self.lease.is_some() || !action.leader_only)
            };
            Arc::new(actions.filter(mine).map(|action| Arc::new(Possible::of(action))).collect())
        });
        plans.clone()
    }
}
