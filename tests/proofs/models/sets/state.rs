//! A set's jobs, messages and slots, and what the operator has heard of them.

use std::collections::VecDeque;

use jiff::Timestamp;
use runyard_core::decide::Missed;

use super::PASSING;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JobAt {
    Later,
    Waits,
    Runs,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SlotAt {
    /// It has no machine.
    Waits,
    /// Its runner waits for a job since then, in passings of time.
    Listens(u8),
    /// Its runner has this job.
    Busy(usize),
    /// It failed then.
    Failed(u8),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) number: u64,
    pub(super) wanted: bool,
    pub(super) at: SlotAt,
}

impl Slot {
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.at, SlotAt::Failed(_) | SlotAt::Over)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) id: u64,
    /// How many jobs it tells as assigned.
    pub(super) news: u32,
    /// How many jobs were assigned then.
    pub(super) assigned: u32,
}

/// How far an operator comes with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Comes {
    Through,
    /// It dies once the slots are written, before the message is deleted.
    Written,
    /// It dies before anything is written.
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happens {
    Arrives(usize),
    /// A job goes to the runner of this slot.
    Goes(usize, u64),
    /// A job is over; the message about it comes with the next passing of time, if it is late.
    Ends {
        job: usize,
        late: bool,
    },
    Answer(Comes),
    Hears,
    /// A slot gets its machine.
    Serves(u64),
    Fails(u64),
    /// The runner of a slot that is not wanted is asked, and given back if it has no job.
    GivesBack(u64),
    Passes,
}

/// What may still go wrong, and how much time may pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) deaths: u8,
    pub(super) late: u8,
    pub(super) failures: u8,
    pub(super) passes: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) jobs: Vec<JobAt>,
    pub(super) messages: VecDeque<Told>,
    /// The message that is told with the next passing of time.
    pub(super) kept_back: bool,
    pub(super) last_id: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) next_slot: u64,
    pub(super) cursor: Option<u64>,
    /// How many jobs the record says were assigned.
    pub(super) assigned: u32,
    /// The slots as the operator has heard of them, and those that it made since.
    pub(super) seen: Vec<Slot>,
    pub(super) made: Vec<u64>,
    pub(super) missed: Missed,
    /// What GitHub told last, and before that, each time for the first time.
    pub(super) told: [u32; 2],
    /// The last message whose slots were written.
    pub(super) taken: u64,
    /// How many slots were missing after the last answer of this operator, as it knew them.
    pub(super) lacked: u32,
    /// Whether the operator begins: a new session tells the counts.
    pub(super) begins: bool,
    pub(super) passed: u8,
    pub(super) left: Left,
    pub(super) wrong: Option<&'static str>,
}

impl State {
    pub(super) fn assigned_jobs(&self) -> u32 {
        self.jobs.iter().filter(|job| matches!(job, JobAt::Waits | JobAt::Runs)).count() as u32
    }

    pub(super) fn open(&self) -> u32 {
        self.slots.iter().filter(|slot| !slot.is_over()).count() as u32
    }

    pub(super) fn wanted(&self) -> u32 {
        self.slots.iter().filter(|slot| !slot.is_over() && slot.wanted).count() as u32
    }

    /// Forgets what no decision depends on any more: slots that the operator knows to be over, and how high numbers are.
    pub(super) fn forget(&mut self) {
        let gone = |slot: &Slot, passed| match slot.at {
            SlotAt::Over => true,
            SlotAt::Failed(at) => at < passed,
            SlotAt::Waits | SlotAt::Listens(_) | SlotAt::Busy(_) => false,
        };
        let (passed, seen) = (self.passed, self.seen.clone());
        self.slots.retain(|slot| !gone(slot, passed) || !seen.contains(slot));
        let numbers: Vec<u64> = self.slots.iter().map(|slot| slot.number).collect();
        self.seen.retain(|slot| numbers.contains(&slot.number));
        self.made.retain(|made| numbers.contains(made));
        let place = |number: u64| numbers.partition_point(|one| *one < number) as u64 + 1;
        for slot in self.slots.iter_mut().chain(&mut self.seen) {
            slot.number = place(slot.number);
        }
        self.made.iter_mut().for_each(|made| *made = place(*made));
        self.next_slot = numbers.len() as u64 + 1;
        let first = self.messages.front().map_or(self.last_id, |told| told.id - 1);
        let base = self.taken.min(self.cursor.unwrap_or(self.taken)).min(first);
        self.messages.iter_mut().for_each(|told| told.id -= base);
        (self.last_id, self.taken) = (self.last_id - base, self.taken - base);
        self.cursor = self.cursor.map(|cursor| cursor - base);
    }

    pub(super) fn tells(&mut self, news: u32) {
        self.last_id += 1;
        let assigned = self.assigned_jobs();
        self.messages.push_back(Told { id: self.last_id, news, assigned });
    }

    pub(super) fn slot(&mut self, number: u64) -> &mut Slot {
        self.slots.iter_mut().find(|slot| slot.number == number).expect("one that was made")
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + PASSING * i32::from(self.passed)
    }
}
