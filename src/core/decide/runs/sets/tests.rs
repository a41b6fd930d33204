use serde_json::json;

use super::*;
use crate::model::{ClassName, Uid};
use crate::ports::scale_sets::JobMessage;
use crate::testing::{at, start};

fn class(queue: serde_json::Value) -> PoolSpec {
    let mut settings = json!({"labels": ["runyard-small"], "scope": "organization", "maxSlots": 8});
    settings.as_object_mut().unwrap().extend(queue.as_object().unwrap().clone());
    let spec = json!({"resourceClass": "small", "repositories": ["acme/*"], "registrationMode": "job", "queue": settings});
    serde_json::from_value(spec).unwrap()
}

/// A set, what it has, and what GitHub says of it.
struct Set {
    record: SetRecord,
    spec: Option<PoolSpec>,
    slots: Slots,
    missed: Missed,
    messages: u64,
}

impl Set {
    fn of(queue: serde_json::Value) -> Self {
        let place = SetPlace::organization("acme").unwrap();
        let (class_name, uid) = (ClassName::parse("small").unwrap(), Uid::parse("u").unwrap());
        let mut record = SetRecord::born(class_name, place, vec!["runyard-small".into()], uid);
        record.scale_set_id = Some(7);
        Self {
            record,
            spec: Some(class(queue)),
            slots: Slots::default(),
            missed: Missed::default(),
            messages: 0,
        }
    }

    fn view(&self) -> SetView<'_> {
        let class = self.spec.as_ref().map_or(SetClass::Dropped, SetClass::Serves);
        SetView { record: &self.record, class, slots: &self.slots }
    }

    /// Takes in an answer, and makes what it says; returns how many slots were made and which became unwanted.
    fn answer(
        &mut self,
        message: Option<Message>,
        counts: Option<u32>,
        seconds: i64,
    ) -> (usize, Vec<String>) {
        let counts = counts.map(|assigned| Statistics { assigned, ..Statistics::default() });
        let mut missed = self.missed;
        let step = self.view().step(message.as_ref(), counts, &mut missed, at(seconds));
        self.missed = missed;
        self.record = step.next;
        for key in &step.make {
            let slot =
                SetSlot { key: key.clone(), has_job: false, wanted: true, waits: true, ready_at: None };
            self.slots.open.push(slot);
        }
        for slot in &mut self.slots.open {
            slot.wanted &= !step.unwanted.contains(&slot.key);
        }
        (step.make.len(), step.unwanted.iter().map(|key| key.name.to_string()).collect())
    }

    /// GitHub assigns so many more jobs; then it has `assigned` in all.
    fn assigns(&mut self, jobs: usize, assigned: u32, seconds: i64) -> usize {
        let message = self.message(jobs, assigned);
        self.answer(Some(message), None, seconds).0
    }

    fn message(&mut self, jobs: usize, assigned: u32) -> Message {
        self.messages += 1;
        let job = |number: usize| JobMessage {
            news: JobNews::Assigned,
            runner_request_id: number as u64,
            job_id: format!("j-{number}"),
            owner: "acme".into(),
            repository: "web".into(),
            run_id: 41,
            name: "build".into(),
            labels: vec!["runyard-small".into()],
            queued_at: None,
            runner: String::new(),
            result: String::new(),
        };
        let statistics = Statistics { assigned, ..Statistics::default() };
        Message { id: self.messages, statistics, jobs: (0..jobs).map(job).collect(), unknown: 0 }
    }

    /// The runners of all slots wait for jobs since then.
    fn ready(&mut self, seconds: i64) {
        for slot in &mut self.slots.open {
            (slot.waits, slot.ready_at) = (false, Some(at(seconds)));
        }
    }
}

#[test]
fn jobs_that_come_get_slots_at_once_and_a_message_that_comes_again_gets_none() {
    let mut set = Set::of(json!({}));
    let message = set.message(3, 3);
    assert_eq!(set.answer(Some(message.clone()), None, 0).0, 3);
    let names: Vec<String> = set.slots.open.iter().map(|slot| slot.key.to_string()).collect();
    assert_eq!(names, ["acme/~ run set-7/s1/1", "acme/~ run set-7/s2/1", "acme/~ run set-7/s3/1"]);
    assert_eq!((set.record.next_slot, set.record.last_message_id), (4, Some(1)));
    assert_eq!(set.answer(Some(message), None, 1).0, 0);
    assert_eq!(set.assigns(1, 4, 2), 1);
    assert_eq!(set.assigns(9, 13, 3), 4, "no more than the class gives it");
    assert_eq!(set.assigns(0, 13, 4) + set.assigns(0, 13, 5), 0);
}

#[test]
fn what_only_the_counts_lack_is_made_when_two_answers_lack_it() {
    let mut set = Set::of(json!({"standing": 2}));
    assert_eq!(set.answer(None, Some(1), 0).0, 0, "one answer lacks three");
    assert_eq!(set.answer(None, Some(0), 50).0, 2, "two of them are still missing");
    assert_eq!((set.answer(None, None, 100).0, set.slots.open.len()), (0, 2));
    let mut set = Set::of(json!({}));
    assert_eq!(set.assigns(1, 3, 0), 1, "two of them come with a later message");
    assert_eq!(set.assigns(2, 3, 1), 2);
    assert_eq!(set.answer(None, None, 50).0 + set.answer(None, None, 100).0, 0);
}

#[test]
fn a_set_never_announces_that_it_holds_no_job() {
    let mut set = Set::of(json!({"maxSlots": 8}));
    assert_eq!(set.view().capacity(), 8);
    set.spec.as_mut().unwrap().max = 5;
    assert_eq!(set.view().capacity(), 5);
    set.spec.as_mut().unwrap().paused = true;
    assert_eq!((set.view().capacity(), set.assigns(2, 2, 0)), (1, 0), "nothing is made while it is paused");
    set.spec = None;
    assert_eq!((set.view().capacity(), set.assigns(2, 2, 1)), (1, 0));
}

/// A model found it: the runner of a slot that is not wanted any more may get a job before it is removed.
#[test]
fn a_slot_that_is_not_wanted_holds_its_place_until_it_is_over() {
    let mut set = Set::of(json!({"maxSlots": 2, "unusedSeconds": 60}));
    assert_eq!(set.assigns(2, 2, 0), 2);
    set.ready(0);
    assert_eq!((set.assigns(0, 0, 100), set.answer(None, None, 150).1.len()), (0, 2), "both are given up");
    assert_eq!(set.assigns(2, 2, 151), 0, "their runners may get these jobs");
    set.slots.open.remove(0);
    assert_eq!((set.answer(None, None, 160).0, set.answer(None, None, 161).0), (1, 0), "one is over");
}

#[test]
fn a_thousand_jobs_in_a_minute_take_few_transactions() {
    let mut set = Set::of(json!({"maxSlots": 500}));
    set.spec.as_mut().unwrap().max = 2000;
    let (mut transactions, mut assigned) = (0, 0);
    for second in 0..20 {
        assigned += 50;
        transactions += usize::from(set.assigns(50, assigned, second * 3) > 0);
    }
    assert_eq!((set.slots.open.len(), transactions), (500, 10));
    set.spec.as_mut().unwrap().queue.as_mut().unwrap().max_slots = 1000;
    let mut set = Set { slots: Slots::default(), ..set };
    let made: Vec<usize> =
        (0..20).map(|second| set.assigns(50, 50 + 50 * second as u32, 60 + second)).collect();
    assert_eq!((made.iter().sum::<usize>(), made.iter().max()), (1000, Some(&50)));
}

#[test]
fn surplus_slots_go_without_a_machine_first_and_then_the_longest_waiting() {
    let mut set = Set::of(json!({}));
    assert_eq!(set.assigns(4, 4, 0), 4);
    set.ready(10);
    set.slots.open[0].ready_at = Some(at(20));
    (set.slots.open[3].waits, set.slots.open[3].ready_at) = (true, None);
    set.slots.open[1].has_job = true;
    assert_eq!(set.answer(None, Some(1), 30).1, [""; 0], "one answer may be wrong");
    assert_eq!(set.answer(None, Some(1), 31).1, ["s4"], "it has no machine");
    assert_eq!(set.answer(None, Some(1), 32).1, [""; 0], "the others have not waited for long");
    assert_eq!(set.answer(None, Some(1), 610).1, ["s3"]);
    assert_eq!(set.answer(None, Some(1), 620).1, ["s1"]);
    assert_eq!(set.answer(None, Some(1), 9999).1, [""; 0], "it has a job");
}

#[test]
fn a_job_that_reaches_a_runner_that_was_not_wanted_counts() {
    let mut set = Set::of(json!({}));
    assert_eq!(set.assigns(1, 1, 0), 1);
    set.ready(10);
    set.slots.open[0].wanted = false;
    set.slots.open[0].has_job = true;
    assert_eq!(set.answer(None, Some(1), 20).0 + set.answer(None, Some(1), 70).0, 0);
}

#[test]
fn a_runner_that_waits_for_hours_gives_way_to_another() {
    let mut set = Set::of(json!({"standing": 1}));
    assert_eq!(set.answer(None, Some(0), 0).0 + set.answer(None, Some(0), 50).0, 1);
    set.ready(60);
    assert_eq!(set.answer(None, None, 60 + 3 * 3600 - 1), (0, vec![]));
    assert_eq!(set.answer(None, None, 60 + 3 * 3600), (0, vec!["s1".into()]));
    set.slots.open.clear();
    assert_eq!(set.answer(None, None, 3 * 3600 + 110).0 + set.answer(None, None, 3 * 3600 + 160).0, 1);
}

#[test]
fn a_class_whose_slots_fail_makes_no_more_for_a_minute() {
    let mut set = Set::of(json!({}));
    set.slots.failed_at = Some(start());
    assert_eq!(set.assigns(2, 2, 30), 0);
    assert_eq!(set.answer(None, None, 60).0, 2, "two answers lack them");
}

#[test]
fn a_class_that_has_no_set_any_more_gives_back_all_but_jobs() {
    let mut set = Set::of(json!({}));
    assert_eq!(set.assigns(3, 3, 0), 3);
    set.ready(10);
    set.slots.open[2].has_job = true;
    set.spec = None;
    assert_eq!(set.answer(None, Some(3), 20).1, [""; 0]);
    assert_eq!(set.answer(None, Some(3), 21).1, ["s1", "s2"]);
}

#[test]
fn slots_that_the_yard_has_not_heard_of_yet_count() {
    let mut set = Set::of(json!({}));
    assert_eq!(set.assigns(3, 3, 0), 3);
    let made: Vec<RequestKey> = set.slots.open.drain(..).map(|slot| slot.key).collect();
    set.slots.highest = 1;
    set.slots.add_made(&made);
    assert_eq!(set.slots.open.iter().map(|slot| slot.key.clone()).collect::<Vec<_>>(), made[1..]);
    assert_eq!(set.assigns(2, 4, 1), 2, "the first ended meanwhile");
    assert_eq!(set.assigns(0, 4, 2) + set.assigns(0, 4, 3), 0);
}

#[test]
fn counts_that_no_runner_gets_a_job_of_are_not_believed_after_ten_minutes() {
    let mut set = Set::of(json!({"unusedSeconds": 60}));
    assert_eq!(set.assigns(2, 5, 0), 2);
    set.slots.open[0].has_job = true;
    assert_eq!(set.answer(None, Some(5), 50).0, 3, "three of them do not exist");
    set.ready(60);
    for seconds in [100, 150, 690] {
        assert_eq!(set.answer(None, Some(5), seconds), (0, vec![]));
    }
    assert_eq!(set.answer(None, Some(5), 700).1, [""; 0], "one answer may be wrong");
    let (made, unwanted) = set.answer(None, Some(5), 750);
    assert_eq!((made, unwanted.len()), (0, 4));
    assert_eq!(set.record.conditions[0].reason, "CountsStuck");
    assert_eq!(set.assigns(1, 6, 800), 1, "a job that comes gets its slot");
    assert!(set.record.conditions.is_empty());
}

#[test]
fn nothing_is_made_and_nothing_ends_while_nobody_knows_what_the_class_says() {
    let mut set = Set::of(json!({}));
    assert_eq!(set.assigns(2, 2, 0), 2);
    set.ready(10);
    let counts = Some(Statistics::default());
    let message = set.message(3, 5);
    let view = SetView { class: SetClass::Held, ..set.view() };
    assert_eq!(view.capacity(), 2);
    let mut missed = Missed::default();
    for seconds in [20, 70, 5 * 3600] {
        let step = view.step(Some(&message), counts, &mut missed, at(seconds));
        assert_eq!((step.make.len(), step.unwanted.len()), (0, 0));
    }
}
