//! A runner scale set with two slots: jobs come, run and end at GitHub, messages tell of it and may come again, an end may
//! be told late, the operator hears of its own writes late and may die before, within or after each answer, slots fail
//! before they have a runner, and unused runners are given back. The production step decides what is made and what is not
//! wanted.
//!
//! Over 400 lines: what may happen to a set, its laws, and its mutants.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::{Missed, SetClass, SetSlot, SetView, Slots};
use runyard_core::model::{ClassName, PoolSpec, SetPlace, SetRecord, Uid};
use runyard_core::ports::scale_sets::{JobMessage, JobNews, Message, Statistics};
use serde_json::json;
use stateright::{Checker, HasDiscoveries, Model, Property};

use state::{Comes, Happens, JobAt, Left, Slot, SlotAt, State, Told};

mod state;

/// Most slots of the class.
const MOST: u32 = 2;
/// How long a passing of time takes: longer than a class lets unused runners wait, than no slot follows a failed one, and
/// than counts are believed that no runner gets a job of.
const PASSING: SignedDuration = SignedDuration::from_mins(11);
/// Most rounds of a fair run, until jobs must be over and unused runners be gone.
const ROUNDS: usize = 40;

/// A defect of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mutant {
    /// The record does not say which messages were taken in.
    CursorForgotten,
    /// What the operator made counts only once it has heard of it.
    OwnWritesForgotten,
    /// What one answer lacks is made at once.
    OneAnswerIsBelieved,
    /// A slot that is not wanted holds no place although its runner may get a job yet.
    UnwantedHoldsNoPlace,
    /// A runner is given back whether it has a job or not.
    BusyGivenBack,
    /// The set announces how many more jobs it has room for.
    AnnouncesRoom,
}

/// A set of a class, and what may happen to it.
struct Set {
    spec: PoolSpec,
    record: SetRecord,
    begin: State,
    mutant: Option<Mutant>,
}

impl Set {
    fn of(jobs: usize, standing: u32, left: Left, mutant: Option<Mutant>) -> Self {
        let queue = json!({
            "labels": ["runyard-small"], "scope": "organization", "maxSlots": MOST, "standing": standing,
            "unusedSeconds": 600,
        });
        let spec = json!({
            "resourceClass": "small", "repositories": ["acme/*"], "registrationMode": "job", "queue": queue,
        });
        let place = SetPlace::organization("acme").unwrap();
        let (class, uid) = (ClassName::parse("small").unwrap(), Uid::parse("u").unwrap());
        let mut record = SetRecord::born(class, place, vec!["runyard-small".into()], uid);
        record.scale_set_id = Some(7);
        let begin = State {
            jobs: vec![JobAt::Later; jobs],
            messages: VecDeque::new(),
            kept_back: false,
            last_id: 0,
            slots: Vec::new(),
            next_slot: 1,
            cursor: None,
            assigned: 0,
            seen: Vec::new(),
            made: Vec::new(),
            missed: Missed::default(),
            told: [0; 2],
            taken: 0,
            lacked: 0,
            begins: true,
            passed: 0,
            left,
            wrong: None,
        };
        Self { spec: serde_json::from_value(spec).unwrap(), record, begin, mutant }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn standing(&self) -> u32 {
        self.spec.serves_sets().map_or(0, |queue| queue.standing)
    }

    /// The slots as the operator knows them.
    fn known(&self, state: &State) -> Slots {
        let mut slots = Slots { class: "small".into(), ..Slots::default() };
        let at = |passed: u8| Timestamp::UNIX_EPOCH + PASSING * i32::from(passed);
        for slot in &state.seen {
            slots.highest = slots.highest.max(slot.number);
            if let SlotAt::Failed(passed) = slot.at {
                slots.failed_at = slots.failed_at.max(Some(at(passed)));
            }
            if slot.is_over() || self.has(Mutant::UnwantedHoldsNoPlace) && !slot.wanted {
                continue;
            }
            slots.open.push(SetSlot {
                key: self.record.slot(slot.number).expect("the set has a number"),
                has_job: matches!(slot.at, SlotAt::Busy(_)),
                wanted: slot.wanted,
                waits: slot.at == SlotAt::Waits,
                ready_at: if let SlotAt::Listens(passed) = slot.at { Some(at(passed)) } else { None },
            });
        }
        if !self.has(Mutant::OwnWritesForgotten) {
            let made: Vec<_> = state.made.iter().filter_map(|number| self.record.slot(*number)).collect();
            slots.add_made(&made);
        }
        slots
    }

    /// The operator gets an answer: the next message, or none.
    fn answer(&self, state: &mut State, comes: Comes) {
        let first = state.messages.front().copied();
        let known = self.known(state);
        let mut record = self.record.clone();
        (record.last_message_id, record.next_slot) = (state.cursor, state.next_slot);
        record.statistics.assigned = state.assigned;
        let view = SetView { record: &record, class: SetClass::Serves(&self.spec), slots: &known };
        let capacity = view.capacity();
        let capacity =
            if self.has(Mutant::AnnouncesRoom) { capacity - state.open().min(capacity) } else { capacity };
        if capacity == 0 {
            state.wrong = Some("S42: a set announces that it holds no job");
        }
        let now_assigned = Statistics { assigned: state.assigned_jobs(), ..Statistics::default() };
        let counts = state.begins.then_some(now_assigned);
        let message = first.map(message);
        let mut missed = state.missed;
        if self.has(Mutant::OneAnswerIsBelieved) {
            let _first = view.step(message.as_ref(), counts, &mut missed, state.now());
        }
        let step = view.step(message.as_ref(), counts, &mut missed, state.now());
        if comes == Comes::Nowhere {
            return self.dies(state);
        }
        let fresh = first.filter(|told| told.id > state.taken);
        state.taken = state.taken.max(fresh.map_or(0, |told| told.id));
        if let Some(assigned) = fresh.map(|told| told.assigned).or(counts.map(|counts| counts.assigned)) {
            state.told = [assigned, state.told[0]];
        }
        if !self.has(Mutant::CursorForgotten) {
            state.cursor = step.next.last_message_id;
        }
        (state.next_slot, state.assigned) = (step.next.next_slot, step.next.statistics.assigned);
        let before = state.next_slot - step.make.len() as u64;
        for number in before..state.next_slot {
            state.slots.push(Slot { number, wanted: true, at: SlotAt::Waits });
            state.made.push(number);
        }
        let told = state.told[0].max(state.told[1]) + self.standing();
        let news = fresh.map_or(0, |told| told.news);
        let beyond_news = (step.make.len() as u32).saturating_sub(news);
        if beyond_news > std::mem::take(&mut state.lacked) {
            state.wrong = Some("S41: slots are made for what only one answer lacks");
        } else if state.open() > MOST && !step.make.is_empty() {
            state.wrong = Some("S41: more slots than the class gives the set");
        } else if state.wanted() > told && !step.make.is_empty() {
            state.wrong = Some("S41: more slots than GitHub told of jobs");
        }
        for key in &step.unwanted {
            if let Some(slot) =
                state.slots.iter_mut().find(|slot| self.record.slot(slot.number).as_ref() == Some(key))
            {
                slot.wanted = false;
            }
        }
        (state.missed, state.begins) = (missed, false);
        let serve = known.open.iter().filter(|slot| slot.wanted || slot.has_job).count() + step.make.len();
        state.lacked = (state.assigned + self.standing()).min(MOST).saturating_sub(serve as u32);
        if comes == Comes::Written {
            return self.dies(state);
        }
        state.messages.pop_front();
    }

    /// Another operator takes over: it reads the table, and opens a session.
    fn dies(&self, state: &mut State) {
        state.left.deaths -= 1;
        state.seen.clone_from(&state.slots);
        state.made.clear();
        (state.missed, state.begins, state.lacked) = (Missed::default(), true, 0);
    }

    fn happens(&self, state: &mut State, happens: Happens) {
        match happens {
            Happens::Arrives(job) => {
                state.jobs[job] = JobAt::Waits;
                state.tells(1);
            }
            Happens::Goes(job, slot) => {
                state.jobs[job] = JobAt::Runs;
                state.slot(slot).at = SlotAt::Busy(job);
            }
            Happens::Ends { job, late } => {
                state.jobs[job] = JobAt::Over;
                let slot = state.slots.iter_mut().find(|slot| slot.at == SlotAt::Busy(job));
                slot.expect("it runs").at = SlotAt::Over;
                if late {
                    (state.left.late, state.kept_back) = (state.left.late - 1, true);
                } else {
                    state.tells(0);
                }
            }
            Happens::Answer(comes) => self.answer(state, comes),
            Happens::Hears => {
                state.seen.clone_from(&state.slots);
                state.made.clear();
            }
            Happens::Serves(slot) => state.slot(slot).at = SlotAt::Listens(state.passed),
            Happens::Fails(slot) => {
                state.left.failures -= 1;
                state.slot(slot).at = SlotAt::Failed(state.passed);
            }
            Happens::GivesBack(slot) => {
                let slot = state.slot(slot);
                let busy = matches!(slot.at, SlotAt::Busy(_));
                slot.at = SlotAt::Over;
                if busy {
                    state.wrong = Some("S39: the runner of a job that has begun is given back");
                }
            }
            Happens::Passes => {
                state.passed += 1;
                if std::mem::take(&mut state.kept_back) {
                    state.tells(0);
                }
            }
        }
    }

    fn may_go_back(&self, slot: &Slot) -> bool {
        let busy = matches!(slot.at, SlotAt::Busy(_));
        !slot.wanted && !slot.is_over() && (!busy || self.has(Mutant::BusyGivenBack))
    }

    /// What happens in a fair round: all that can happen to jobs, slots and messages, but for ends of jobs, time and faults.
    fn round(&self, state: &mut State) {
        self.happens(state, Happens::Hears);
        self.happens(state, Happens::Answer(Comes::Through));
        for slot in state.slots.clone() {
            if self.may_go_back(&slot) {
                self.happens(state, Happens::GivesBack(slot.number));
            } else if slot.at == SlotAt::Waits {
                self.happens(state, Happens::Serves(slot.number));
            }
        }
        for slot in state.slots.clone() {
            let waiting = state.jobs.iter().position(|job| *job == JobAt::Waits);
            if let (Some(job), SlotAt::Listens(_)) = (waiting, slot.at)
                && state.slots.contains(&slot)
            {
                self.happens(state, Happens::Goes(job, slot.number));
            }
        }
    }

    /// L17: as many jobs run as may, all end, and then only the runners are left that stand ahead.
    fn rests(&self, state: &State) -> Result<(), &'static str> {
        let mut state = state.clone();
        for number in 0..state.jobs.len() {
            if state.jobs[number] == JobAt::Later {
                self.happens(&mut state, Happens::Arrives(number));
            }
        }
        for _ in 0..ROUNDS {
            for _ in 0..state.messages.len() + 3 {
                self.round(&mut state);
            }
            if let Some(wrong) = state.wrong {
                return Err(wrong);
            }
            let failed = state.slots.iter().any(|slot| slot.at == SlotAt::Failed(state.passed));
            if !failed && state.open() < state.assigned_jobs().min(MOST) {
                return Err("L17: a job waits, and no slot is made for it");
            }
            match state.jobs.iter().position(|job| *job == JobAt::Runs) {
                Some(job) => self.happens(&mut state, Happens::Ends { job, late: false }),
                None => self.happens(&mut state, Happens::Passes),
            }
            let over = state.jobs.iter().all(|job| *job == JobAt::Over);
            if over && state.messages.is_empty() && state.open() == self.standing() {
                return Ok(());
            }
        }
        Err("L17: jobs or runners that no job needs stay")
    }
}

fn message(told: Told) -> Message {
    let job = |number: u32| JobMessage {
        news: JobNews::Assigned,
        runner_request_id: u64::from(number),
        job_id: format!("j-{}-{number}", told.id),
        owner: "acme".into(),
        repository: "web".into(),
        run_id: 41,
        name: "build".into(),
        labels: vec!["runyard-small".into()],
        queued_at: None,
        runner: String::new(),
        result: String::new(),
    };
    let statistics = Statistics { assigned: told.assigned, ..Statistics::default() };
    Message { id: told.id, statistics, jobs: (0..told.news).map(job).collect(), unknown: 0 }
}

impl Model for Set {
    type State = State;
    type Action = Happens;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Happens>) {
        if state.wrong.is_some() {
            return;
        }
        let left = state.left;
        // Jobs are alike: the first that may come is the one that comes.
        actions.extend(state.jobs.iter().position(|job| *job == JobAt::Later).map(Happens::Arrives));
        let waiting = state.jobs.iter().position(|job| *job == JobAt::Waits);
        for slot in &state.slots {
            match slot.at {
                SlotAt::Waits => {
                    actions.push(Happens::Serves(slot.number));
                    actions.extend((left.failures > 0).then_some(Happens::Fails(slot.number)));
                }
                SlotAt::Listens(_) => actions.extend(waiting.map(|job| Happens::Goes(job, slot.number))),
                SlotAt::Busy(job) => {
                    actions.push(Happens::Ends { job, late: false });
                    actions.extend((left.late > 0).then_some(Happens::Ends { job, late: true }));
                }
                SlotAt::Failed(_) | SlotAt::Over => {}
            }
            if self.may_go_back(slot) {
                actions.push(Happens::GivesBack(slot.number));
            }
        }
        actions.push(Happens::Answer(Comes::Through));
        if left.deaths > 0 {
            actions.extend([Happens::Answer(Comes::Written), Happens::Answer(Comes::Nowhere)]);
        }
        actions.extend((state.seen != state.slots).then_some(Happens::Hears));
        actions.extend((left.passes > 0).then_some(Happens::Passes));
    }

    fn next_state(&self, last: &State, happens: Happens) -> Option<State> {
        let mut next = last.clone();
        self.happens(&mut next, happens);
        if happens == Happens::Passes {
            next.left.passes -= 1;
        }
        next.forget();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("S41, S42, S39", |_: &Self, state: &State| state.wrong.is_none()),
            Property::always("L17", |set: &Self, state: &State| {
                state.wrong.is_some() || set.rests(state).is_ok()
            }),
            Property::sometimes("two jobs run", |_, state: &State| {
                state.jobs.iter().filter(|job| **job == JobAt::Runs).count() == 2
            }),
            Property::sometimes("a runner is given back", |_, state: &State| {
                state.slots.iter().any(|slot| !slot.wanted && slot.at == SlotAt::Over)
            }),
        ]
    }
}

/// Visits everything; the number of states.
fn exhaust(set: Set) -> usize {
    let checker = set.checker().spawn_bfs().join();
    for name in ["S41, S42, S39", "L17"] {
        if let Some(path) = checker.discovery(name) {
            let (last, steps) = (path.last_state().clone(), path.into_actions());
            panic!("{name}: {:?} {:?}\n  {steps:?}\n  {last:?}", last.wrong, checker.model().rests(&last));
        }
    }
    checker.assert_properties();
    checker.unique_state_count()
}

/// What refutes a mutant, by a shortest way.
fn refuted(jobs: usize, standing: u32, left: Left, mutant: Mutant) -> &'static str {
    let set = Set::of(jobs, standing, left, Some(mutant));
    let checker = set.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let Some(path) = ["S41, S42, S39", "L17"].iter().find_map(|name| checker.discovery(name)) else {
        panic!("{mutant:?} is not seen in {} states", checker.unique_state_count());
    };
    let last = path.last_state();
    let wrong = last.wrong.or_else(|| checker.model().rests(last).err()).expect("it is wrong there");
    println!(
        "{mutant:?}: {wrong}, in {} steps: {:?}",
        path.clone().into_actions().len(),
        path.into_actions()
    );
    wrong
}

#[test]
fn jobs_that_come_while_operators_die_have_their_slots_and_no_more() {
    let left = Left { deaths: 1, passes: 1, ..Left::default() };
    assert_eq!(exhaust(Set::of(3, 0, left, None)), 115_163);
}

#[test]
fn a_set_with_a_standing_runner_gives_back_what_no_job_needs() {
    let left = Left { deaths: 1, late: 1, passes: 1, ..Left::default() };
    assert_eq!(exhaust(Set::of(2, 1, left, None)), 113_238);
}

#[test]
fn slots_that_fail_are_followed_by_others() {
    let left = Left { failures: 1, late: 1, passes: 2, ..Left::default() };
    assert_eq!(exhaust(Set::of(2, 0, left, None)), 58_847);
}

#[test]
fn each_defect_of_the_protocol_is_refuted() {
    let dies = Left { deaths: 1, ..Left::default() };
    let late = Left { late: 1, passes: 2, ..Left::default() };
    for (mutant, jobs, standing, left, law) in [
        (Mutant::CursorForgotten, 2, 0, dies, "S41"),
        (Mutant::OwnWritesForgotten, 2, 0, Left::default(), "S41"),
        (Mutant::OneAnswerIsBelieved, 2, 0, late, "S41"),
        (Mutant::UnwantedHoldsNoPlace, 3, 1, late, "S41"),
        (Mutant::BusyGivenBack, 2, 1, late, "S39"),
        (Mutant::AnnouncesRoom, 2, 0, Left::default(), "S42"),
    ] {
        let wrong = refuted(jobs, standing, left, mutant);
        assert!(wrong.starts_with(law), "{mutant:?}: {wrong}");
    }
}
