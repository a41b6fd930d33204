use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{Agent, AttributeValue, Item, JobReport};

use crate::step::local::{Boot, Local};
use crate::step::orders::Sight;
use crate::step::{Effects, Stored, View, step};
use crate::task::{RunnerEnd, RunnerProcess, Task, TaskOutcome};
use crate::testing::{arn, instance, job_credential, key, sealed, with};

const NOW: Duration = Duration::from_secs(100);
const RUNNER: RunnerProcess = RunnerProcess { pid: 7, started: 70 };

fn of_request(mut record: Item, pk: &str) -> Item {
    let pk = ("pk".to_owned(), AttributeValue::S(pk.to_owned()));
    record.insert("request".to_owned(), AttributeValue::M([pk].into()));
    record
}

/// Returns a claim of a slot with the box of this number.
fn boxed(claim: &str, seq: u64) -> Sight {
    let sealed = sealed(&job_credential(claim, seq), &key().public());
    let record = with(instance("running", "set-7", claim), "registration", sealed);
    Sight::of(Some(&of_request(record, "request#acme/~#set-7")))
}

fn report(name: &str) -> JobReport {
    JobReport::of("acme/web", "43", 1, name, Timestamp::UNIX_EPOCH).unwrap()
}

fn shows(job: Option<JobReport>) -> Stored {
    Stored::Known(Box::new(Agent { job, ..Agent::born(&arn(), Timestamp::UNIX_EPOCH) }))
}

fn judged(sight: &Sight, stored: &Stored, local: &Local) -> Effects {
    step(&View { sight, stored, local, key: &key(), now: NOW, reregister: Duration::from_secs(2) })
}

fn ends(sight: &Sight, stored: &Stored, local: &Local, outcome: TaskOutcome) -> Local {
    let effects = judged(sight, stored, local);
    effects.local.after_task(Some(&effects.task), outcome, NOW, 0.0, None)
}

/// Returns the state of a machine whose runner of the next box listens.
fn listening(sight: &Sight, mut local: Local) -> Local {
    for outcome in [TaskOutcome::Started(RUNNER), TaskOutcome::Listening] {
        local = ends(sight, &shows(None), &local, outcome);
    }
    local
}

fn fresh() -> Local {
    listening(&boxed("i-1.4", 1), Local { boot: Boot::Done, ..Local::default() })
}

/// Returns the task, and whose job it awaits.
fn task(sight: &Sight, stored: &Stored, local: &Local) -> (String, Option<String>) {
    let task = judged(sight, stored, local).task;
    let awaited = match &task {
        Task::Serve { awaits, .. } => awaits.as_ref().map(|holder| holder.repository.clone()),
        _ => None,
    };
    (format!("{task:?}"), awaited)
}

fn serve(awaited: Option<&str>) -> (String, Option<String>) {
    ("serve i-1.4".to_owned(), awaited.map(str::to_owned))
}

#[test]
fn a_slots_job_is_shown_before_it_goes_on_and_is_asked_for_once() {
    let (slot, none) = (boxed("i-1.4", 1), shows(None));
    assert_eq!(task(&slot, &none, &fresh()), serve(Some("acme/~")));
    let held = ends(&slot, &none, &fresh(), TaskOutcome::Began(report("build")));
    assert_eq!(judged(&slot, &none, &held).status.job, Some(report("build")));
    for other in [none.clone(), shows(Some(report("other"))), Stored::Unknown, Stored::Absent] {
        assert_eq!(task(&slot, &other, &held), serve(None), "{other:?}");
    }
    let shown = shows(Some(report("build")));
    let admit = ("admit i-1.4".to_owned(), None);
    assert_eq!(task(&slot, &shown, &held), admit);
    assert_eq!(task(&Sight::Absent, &shown, &held), admit, "a missing record is no command");
    let restarted: Local = serde_json::from_str(&serde_json::to_string(&held).unwrap()).unwrap();
    assert_eq!(task(&slot, &shown, &restarted), admit);
    let admitted = ends(&slot, &shown, &held, TaskOutcome::Admitted);
    assert_eq!(task(&slot, &shown, &admitted), serve(None));
    assert_eq!(judged(&slot, &shown, &admitted).status.job, Some(report("build")));
}

#[test]
fn a_run_awaits_no_report() {
    let sealed = sealed(&job_credential("i-1.4", 1), &key().public());
    let record = with(instance("running", "42", "i-1.4"), "registration", sealed);
    let run = Sight::of(Some(&of_request(record, "request#acme/web#42")));
    let local = listening(&run, Local { boot: Boot::Done, ..Local::default() });
    assert_eq!(task(&run, &shows(None), &local), serve(None));
    assert_eq!(judged(&run, &shows(None), &local).status.job, None);
}

/// The runner of the first box did its job, and the operator released the slot late.
#[test]
fn the_next_runner_of_a_claim_reports_its_own_job_and_another_claim_shows_none() {
    let (slot, shown) = (boxed("i-1.4", 1), shows(Some(report("build"))));
    let held = ends(&slot, &shows(None), &fresh(), TaskOutcome::Began(report("build")));
    let admitted = ends(&slot, &shown, &held, TaskOutcome::Admitted);
    let end = RunnerEnd::Lost("its job is done".into());
    let mut local = ends(&slot, &shown, &admitted, TaskOutcome::Ended { worked: true, end });
    assert_eq!(judged(&slot, &shown, &local).status.registration_done, Some(1));
    local = ends(&slot, &shown, &local, TaskOutcome::Renewed);
    let next = boxed("i-1.4", 2);
    local = listening(&next, local);
    assert_eq!(task(&next, &shown, &local), serve(Some("acme/~")));
    assert_eq!(judged(&next, &shown, &local).status.job, Some(report("build")), "until the next one begins");
    let second = ends(&next, &shown, &local, TaskOutcome::Began(report("test")));
    assert_eq!(judged(&next, &shown, &second).status.job, Some(report("test")));
    let idle = Sight::of(Some(&instance("idle", "", "i-1.4")));
    let mut released = second;
    for outcome in [TaskOutcome::Stopped { registered: false }, TaskOutcome::Wiped] {
        released = ends(&idle, &shown, &released, outcome);
    }
    assert_eq!(judged(&idle, &shown, &released).status.job, Some(report("test")), "while it is in the pool");
    let other = judged(&boxed("i-1.9", 1), &shown, &released);
    assert_eq!((other.status.job, format!("{:?}", other.task)), (None, "start i-1.9".to_owned()));
}
