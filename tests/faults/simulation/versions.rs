//! A runner version that GitHub ends while machines use it: the date is known from the beginning, as GitHub publishes it
//! weeks before. From then on a runner of it is refused, or listens and gets no job. Half of these worlds follow
//! GitHub's list, which has a newer version by then; the others pin the one that ends.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::model::{ConditionType, Instance, Item, Lease, Operation, Place, Pool, Write};
use runyard_core::ports::Clock;
use tokio::time::Instant;

use crate::simulation::bugs::Bug;
use crate::simulation::laws::{Laws, record};
use crate::simulation::world::{World, pinned};

/// Every so many seeds have such a world. The others are as they were before there were any.
const EVERY: u64 = 6;
/// How long what an operator planned before it knew of the end may still be written.
const LATELY: Duration = Duration::from_secs(120);

/// How the version that machines are launched with ends.
#[derive(Clone, Copy)]
pub(crate) struct VersionEnds {
    pub(crate) at: Timestamp,
    /// Whether classes follow GitHub's list.
    pub(crate) latest: bool,
    /// Whether its runners listen and get no job from then on; else they are refused.
    pub(crate) starves: bool,
}

impl VersionEnds {
    /// What this seed has of it.
    pub(crate) fn of(seed: u64, bug: Option<Bug>, everything: bool, begun: Timestamp) -> Option<Self> {
        let wanted = bug == Some(Bug::EndNotBelieved);
        let at = begun + Duration::from_secs(150 + seed * 37 % 300);
        let turn = seed / EVERY;
        let latest = turn.is_multiple_of(2) && !wanted;
        let ends = Self { at, latest, starves: wanted || (turn / 2).is_multiple_of(2) };
        (wanted || (everything && seed.is_multiple_of(EVERY))).then_some(ends)
    }
}

/// Who leads, by its record, and which operators GitHub told when the version ends.
#[derive(Default)]
pub(crate) struct Knowledge {
    leads: Option<(String, u64, Instant)>,
    told: BTreeMap<String, Instant>,
    /// Whether the last question was answered.
    answered: bool,
}

impl Knowledge {
    /// An operator asked GitHub when the version ends.
    pub(crate) fn asked(&mut self, who: &str, answered: bool) {
        self.answered = answered;
        if answered {
            self.told.insert(who.to_owned(), Instant::now());
        }
    }

    /// An operator begins anew, and knows nothing.
    pub(crate) fn forget(&mut self, who: &str) {
        self.told.remove(who);
    }

    fn lease(&mut self, lease: &Lease) {
        let known = self.leads.as_ref().map(|(holder, token, _)| (holder, *token));
        if known != Some((&lease.holder, lease.token)) {
            self.leads = Some((lease.holder.clone(), lease.token, Instant::now()));
        }
    }

    /// Since when this operator has led and known.
    fn since(&self, who: &str) -> Option<Instant> {
        let (holder, _, since) = self.leads.as_ref()?;
        let own = holder == who || holder.strip_prefix(who).is_some_and(|life| life.starts_with('-'));
        self.told.get(who).copied().filter(|told| own && told >= since)
    }
}

fn created<'a>(write: &'a Write, kind: &str) -> Option<&'a Item> {
    match &write.operation {
        Operation::Create(item) if write.key.pk().starts_with(kind) => Some(item),
        Operation::Create(_) | Operation::Update { .. } | Operation::Delete(_) | Operation::Check(_) => None,
    }
}

impl World {
    /// Whether GitHub has ended a version; none: the one that machines are launched with.
    pub(crate) fn has_ended(&self, version: Option<&str>) -> bool {
        let own = |ends: &VersionEnds| {
            version.is_none_or(|version| version == pinned().version) && ends.at <= self.clock_now()
        };
        self.ends.as_ref().is_some_and(own)
    }

    /// S34: an operator that leads and knows of the end lends no machine with the version that ended, and launches none
    /// of a class that pins it.
    pub(crate) fn lends_ended(
        &self,
        who: &str,
        write: &Write,
        before: Option<Place>,
        new: Option<&Item>,
    ) -> Option<String> {
        let ends = self.ends?;
        let mut knowledge = self.knowledge.lock().unwrap();
        if write.key.sk() == "lease"
            && let Some(lease) = record::<Lease>(new).filter(|lease| lease.name == Lease::OPERATOR)
        {
            knowledge.lease(&lease);
        }
        let since = knowledge.since(who).filter(|since| since.elapsed() >= LATELY)?;
        let late = SignedDuration::try_from(LATELY).unwrap_or_default();
        let actors = self.actors.lock().unwrap();
        let actor = actors.iter().find(|actor| actor.name == who)?;
        let by_all_clocks = [self.clock_now(), actor.now()].into_iter().all(|now| ends.at + late <= now);
        if !by_all_clocks || !actor.undisturbed(LATELY) {
            return None;
        }
        let version = pinned().version;
        let known = since.elapsed();
        if created(write, "launch#").is_some() && !ends.latest {
            return Some(format!(
                "S34 {}: launched by {who}, who knows for {known:?} that runner {version} ended",
                write.key
            ));
        }
        let instance = record::<Instance>(new).filter(|_| write.key.sk() == "instance")?;
        let claimed = instance.place() == Place::Claimed && before != Some(Place::Claimed);
        let own = instance.runner.as_ref().is_none_or(|package| package.version == version);
        (claimed && own).then(|| {
            format!("S34 {}: lent by {who}, who knows for {known:?} that runner {version} ended", write.key)
        })
    }

    /// Whether the leader of the yard tells that it holds a class back for its runner version.
    pub(crate) fn held_back(pool: &Pool) -> bool {
        let told = |one: &runyard_core::model::Condition| {
            one.condition_type == ConditionType::Blocked && one.status && one.reason == "RunnerDeprecated"
        };
        pool.status.conditions.iter().any(told)
    }

    /// S34 in the end: where all is well, a class whose version ended says so.
    pub(crate) fn untold(&self, laws: &Laws) -> Vec<String> {
        let pins = self.ends.is_some_and(|ends| !ends.latest) && self.has_ended(None);
        if !pins || !self.knowledge.lock().unwrap().answered {
            return Vec::new();
        }
        let silent = laws.pools().filter(|pool| !Self::held_back(pool));
        silent
            .map(|pool| format!("S34 {} does not tell that its runner ended", pool.spec.resource_class))
            .collect()
    }
}
