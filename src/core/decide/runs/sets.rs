//! How many slots does a runner scale set need? A slot is a request of one machine, whose runner serves any one job of
//! the set. GitHub's messages say that jobs came, and its counts how many there are; a slot ends by its own runner alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::health::runtime::STANDS;
use crate::model::{
    Condition, ConditionType, PoolSpec, Request, RequestKey, SetCounts, SetPlace, SetRecord, after, millis,
    slot_number,
};
use crate::ports::scale_sets::{JobMessage, JobNews, Message, Statistics};
use crate::yard::{SlotsOfSet, Yard};

/// Most slots that are made in one transaction.
const MOST_AT_ONCE: u32 = 50;
/// How long no slot is made after one that failed, so that a class that cannot be served does not make them all
/// the time.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// How long runners must wait for the jobs that GitHub counts before its counts are not believed.
const STUCK_AFTER: Duration = Duration::from_secs(600);
/// The reason of the condition that says so.
const COUNTS_STUCK: &str = "CountsStuck";

/// A slot of a set that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSlot {
    /// Its request.
    pub key: RequestKey,
    /// Whether its runner has, or had, a job.
    pub has_job: bool,
    /// Whether a machine is wanted for it.
    pub wanted: bool,
    /// Whether it has no machine yet.
    pub waits: bool,
    /// Since when its runner waits for a job.
    pub ready_at: Option<Timestamp>,
}

impl SetSlot {
    /// Returns whether it serves a job, or will serve one that comes.
    const fn counts(&self) -> bool {
        self.wanted || self.has_job
    }
}

/// The slots of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Those that are not over, in their order.
    pub open: Vec<SetSlot>,
    /// When the last one failed.
    pub failed_at: Option<Timestamp>,
    /// The class of the last one.
    pub class: String,
    /// The highest number of a slot, over or not.
    pub highest: u64,
}

impl Slots {
    /// Collects the slots of all sets, by the place and the number of each set.
    #[must_use]
    pub fn all(yard: &Yard) -> BTreeMap<(SetPlace, u64), Self> {
        yard.slots().map(|(set, slots)| (set.clone(), Self::of(yard, slots))).collect()
    }

    fn of(yard: &Yard, slots: &SlotsOfSet) -> Self {
        let last = slots.last();
        let class = last.and_then(|(_, key)| yard.request(key)).map(|last| &last.intent.resource_class);
        let open = slots.open().filter_map(|key| Some(slot(yard, key, yard.request(key)?)));
        Self {
            open: open.collect(),
            failed_at: slots.failed_at(),
            class: class.cloned().unwrap_or_default(),
            highest: last.map_or(0, |(number, _)| number),
        }
    }

    /// Adds slots that were made and that the yard does not show yet: it hears of a write a little later, and another
    /// message may come before that.
    pub fn add_made(&mut self, made: &[RequestKey]) {
        let unseen = made.iter().filter(|key| slot_number(key).is_some_and(|number| number > self.highest));
        self.open.extend(unseen.map(|key| SetSlot {
            key: key.clone(),
            has_job: false,
            wanted: true,
            waits: true,
            ready_at: None,
        }));
    }

    /// Returns those that have no job and for which a machine is wanted.
    pub fn free(&self) -> impl Iterator<Item = &RequestKey> {
        self.open.iter().filter(|slot| slot.wanted && !slot.has_job).map(|slot| &slot.key)
    }
}

fn slot(yard: &Yard, key: &RequestKey, request: &Request) -> SetSlot {
    SetSlot {
        key: key.clone(),
        has_job: yard.jobs_of_slot(request).any(|(id, _)| request.status.instances.contains(id)),
        wanted: request.wanted() > 0,
        waits: request.status.instances.is_empty(),
        ready_at: request.status.ready_at,
    }
}

/// What the last answers of GitHub lacked. Only what two answers in a row lack is believed, because the counts are late;
/// a new leader begins without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Missed {
    missing: u32,
    surplus: u32,
    /// Since when as many runners wait for a job as GitHub counts jobs that wait for a runner.
    idle_since: Option<Timestamp>,
}

/// What is done about a set after an answer of GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetStep {
    /// The record afterwards; it is written in one transaction with the slots that are made.
    pub next: SetRecord,
    /// The slots that are made.
    pub make: Vec<RequestKey>,
    /// The slots for which no machine is wanted any more. A runner that has a job by then keeps its machine.
    pub unwanted: Vec<RequestKey>,
}

/// What the class of a set says of it.
#[derive(Clone, Copy, Debug)]
pub enum SetClass<'a> {
    /// The class has the set.
    Serves(&'a PoolSpec),
    /// Nobody can say: its record cannot be read, or is no spec that a set can follow. What there is stays.
    Held,
    /// The class does not have the set any more.
    Dropped,
}

impl<'a> SetClass<'a> {
    /// Returns the spec of a class that has the set.
    #[must_use]
    pub const fn spec(self) -> Option<&'a PoolSpec> {
        match self {
            Self::Serves(spec) => Some(spec),
            Self::Held | Self::Dropped => None,
        }
    }
}

/// A set and its class.
#[derive(Clone, Copy, Debug)]
pub struct SetView<'a> {
    /// Its record.
    pub record: &'a SetRecord,
    /// What its class says of it.
    pub class: SetClass<'a>,
    /// Its slots.
    pub slots: &'a Slots,
}

/// How many slots there are, and how many there are to be.
struct Level {
    open: u32,
    target: u32,
}

impl SetView<'_> {
    /// Returns the most slots that the class gives the set.
    fn most(&self) -> u32 {
        let queue = self.class.spec().and_then(|spec| Some((spec.serves_sets()?, spec.max)));
        queue.map_or(0, |(queue, max)| queue.max_slots.min(max))
    }

    fn is_paused(&self) -> bool {
        self.class.spec().is_none_or(|spec| spec.paused)
    }

    fn open(&self) -> u32 {
        number(self.slots.open.iter().filter(|slot| slot.counts()).count())
    }

    /// Returns how many jobs the set may hold, as it is announced to GitHub. It is never 0: GitHub never offers a job again
    /// that was queued while a set announced 0.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        if self.is_paused() { self.open().max(1) } else { self.most().max(1) }
    }

    /// Plans what is done after an answer: a message, or the end of a wait without one.
    ///
    /// # Guarantees
    /// - The slots that are not over and those that are made are at most as many as the class gives the set.
    /// - A message that was taken in before makes no slot, and the record's numbers only rise.
    /// - No slot whose runner has a job becomes unwanted, as far as records show.
    #[must_use]
    pub fn step(
        &self,
        message: Option<&Message>,
        counts: Option<Statistics>,
        missed: &mut Missed,
        now: Timestamp,
    ) -> SetStep {
        let mut next = self.record.clone();
        let fresh =
            message.filter(|message| self.record.last_message_id.is_none_or(|last| message.id > last));
        if let Some(counts) = fresh.map(|message| message.statistics).or(counts) {
            (next.statistics, next.statistics_at) = (counted(counts), Some(millis(now)));
        }
        if let Some(message) = fresh {
            next.last_message_id = Some(message.id);
        }
        next.announced = self.capacity();
        let news = fresh.map_or(0, |message| {
            let come = |job: &&JobMessage| match job.news {
                JobNews::Assigned | JobNews::Available => true,
                JobNews::Started | JobNews::Completed => false,
            };
            number(message.jobs.iter().filter(come).count())
        });
        let stuck = self.stuck(&next.statistics, news, missed, now);
        next.conditions.retain(|one| one.reason != COUNTS_STUCK);
        if let Some(message) = &stuck {
            let kind = ConditionType::Listening;
            let before = &self.record.conditions;
            next.conditions.push(Condition::since(before, kind, true, COUNTS_STUCK, message.clone(), now));
        }
        let level = self.level(&next.statistics, stuck.is_some());
        let make = self.make(&level, news, missed, now);
        let mut keys = Vec::new();
        for _ in 0..make {
            keys.extend(next.slot(next.next_slot));
            next.next_slot += 1;
        }
        SetStep { next, make: keys, unwanted: self.unwanted(&level, missed, now) }
    }

    /// Returns why GitHub's counts are not believed: runners wait for the jobs that it counts, and none comes. Its counts
    /// have been too high for hours (actions/actions-runner-controller#4397).
    fn stuck(&self, counts: &SetCounts, news: u32, missed: &mut Missed, now: Timestamp) -> Option<String> {
        let have_jobs = self.have_jobs();
        let waiting = counts.assigned.saturating_sub(have_jobs);
        let idle =
            number(self.slots.open.iter().filter(|slot| slot.ready_at.is_some() && !slot.has_job).count());
        if waiting == 0 || idle < waiting || news > 0 {
            missed.idle_since = None;
            return None;
        }
        let since = *missed.idle_since.get_or_insert(now);
        (after(since, STUCK_AFTER) <= now).then(|| {
            format!("GitHub counts {waiting} waiting jobs that no runner gets; {idle} runners wait for a job")
        })
    }

    fn have_jobs(&self) -> u32 {
        number(self.slots.open.iter().filter(|slot| slot.has_job).count())
    }

    fn level(&self, counts: &SetCounts, stuck: bool) -> Level {
        let standing = self.class.spec().and_then(PoolSpec::serves_sets).map_or(0, |queue| queue.standing);
        let jobs = if stuck { self.have_jobs() } else { counts.assigned };
        let target = jobs.saturating_add(standing).min(self.most());
        let open = self.open();
        let target = match self.class {
            SetClass::Serves(_) => target,
            SetClass::Held => open,
            SetClass::Dropped => 0,
        };
        Level { open, target }
    }

    /// Returns how many slots are made, as far as there is room: at once for jobs that came, and otherwise for what two
    /// answers in a row lack.
    fn make(&self, level: &Level, news: u32, missed: &mut Missed, now: Timestamp) -> usize {
        let missing = level.target.saturating_sub(level.open);
        let at_once = missing.min(news);
        let again = (missing - at_once).min(missed.missing);
        // One that is not wanted holds its place: it may get a job yet.
        let room = self.most().saturating_sub(number(self.slots.open.len()));
        let failed = self.slots.failed_at.is_some_and(|at| after(at, AFTER_FAILURE) > now);
        let rests = self.is_paused() || failed;
        let make = if rests { 0 } else { (at_once + again).min(room).min(MOST_AT_ONCE) };
        missed.missing = missing - make;
        make as usize
    }

    /// Returns the slots that are not needed: those without a machine first, then runners that waited for the longest
    /// time, once that is longer than the class lets them wait.
    fn unwanted(&self, level: &Level, missed: &mut Missed, now: Timestamp) -> Vec<RequestKey> {
        let surplus = level.open.saturating_sub(level.target);
        let believed = surplus.min(missed.surplus) as usize;
        missed.surplus = surplus;
        let queue = self.class.spec().and_then(PoolSpec::serves_sets);
        let patience = queue.map_or(Duration::ZERO, |queue| Duration::from_secs(queue.unused_seconds));
        let free = || self.slots.open.iter().filter(|slot| slot.wanted && !slot.has_job);
        let mut waiting: Vec<&SetSlot> =
            free().filter(|slot| slot.ready_at.is_some_and(|at| after(at, patience) <= now)).collect();
        waiting.sort_by_key(|slot| slot.ready_at);
        let unserved = free().filter(|slot| slot.waits && slot.ready_at.is_none());
        let surplus: Vec<&SetSlot> = unserved.chain(waiting).take(believed).collect();
        // One that waits for long gives way to a new one, so that a job that comes has its whole runtime.
        let aged = free()
            .filter(|_| queue.is_some())
            .find(|slot| slot.ready_at.is_some_and(|at| after(at, STANDS) <= now));
        surplus
            .into_iter()
            .chain(aged)
            .map(|slot| slot.key.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

fn counted(counts: Statistics) -> SetCounts {
    let Statistics { available: _, acquired: _, assigned, running, registered, busy, idle } = counts;
    SetCounts { assigned, running, registered, busy, idle }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
