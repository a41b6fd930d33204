use std::time::Duration;

use runyard_core::model::{Agent, AttributeValue, RegistrationCredential, Signal};

use crate::step::local::{Boot, Local};
use crate::step::orders::Sight;
use crate::step::{Effects, Stored, View, step};
use crate::task::{GithubFailure, RunnerEnd, RunnerProcess, Task, TaskOutcome};
use crate::testing::{arn, instance, key, run_credential, sealed, with};

const NOW: Duration = Duration::from_secs(100);
const RUNNER: RunnerProcess = RunnerProcess { pid: 7, started: 70 };
const ID: &str = "i-1.5";

/// Returns a machine's record that names a registration ahead of a claim, or none.
fn record(state: &str, run: &str, claim: &str, ahead: Option<&str>) -> runyard_core::model::Item {
    let mut item = instance(state, run, claim);
    if state == "idle" {
        item = with(item, "pooledAt", "2026-01-01T00:00:00Z".to_owned());
    }
    if let Some(id) = ahead {
        let id = ("id".to_owned(), AttributeValue::S(id.to_owned()));
        item.insert("ahead".to_owned(), AttributeValue::M([id].into()));
    }
    item
}

fn boxed(item: runyard_core::model::Item, opened: &RegistrationCredential) -> Sight {
    Sight::of(Some(&with(item, "registration", sealed(opened, &key().public()))))
}

fn credential(id: &str) -> RegistrationCredential {
    let ahead_id = Some(id.to_owned());
    RegistrationCredential { claim_id: String::new(), ahead_id, ..run_credential("") }
}

fn at_rest() -> Sight {
    boxed(record("idle", "", "", Some(ID)), &credential(ID))
}

fn judged(sight: &Sight, local: &Local) -> Effects {
    let stored = Stored::Known(Box::new(Agent::born(&arn(), jiff::Timestamp::UNIX_EPOCH)));
    let reregister = Duration::from_secs(2);
    step(&View { sight, stored: &stored, local, key: &key(), now: NOW, reregister })
}

/// Runs one iteration of the loop: evaluates the step, and applies the outcome of the task.
fn ends(sight: &Sight, local: &Local, outcome: TaskOutcome) -> Local {
    let effects = judged(sight, local);
    let number = outcome.tells_of_a_registration().then_some(Some(23));
    effects.local.after_task(Some(&effects.task), outcome, NOW, 0.0, number)
}

/// Returns the state of a clean machine with an idle, listening runner.
fn resting() -> Local {
    let mut local = Local { boot: Boot::Done, ..Local::default() };
    for outcome in [TaskOutcome::Configured, TaskOutcome::Started(RUNNER), TaskOutcome::Listening] {
        local = ends(&at_rest(), &local, outcome);
    }
    local
}

fn task(sight: &Sight, local: &Local) -> String {
    format!("{:?}", judged(sight, local).task)
}

#[test]
fn a_runner_is_registered_and_rests_before_any_claim() {
    let clean = Local { boot: Boot::Done, ..Local::default() };
    assert_eq!(task(&at_rest(), &clean), format!("configure {ID}"));
    let rests = judged(&at_rest(), &resting());
    assert_eq!(format!("{:?}", rests.task), format!("rest {ID}"));
    let report = rests.status.ahead.unwrap();
    assert_eq!((report.id.as_str(), report.runner_id, report.listening), (ID, Some(23), true));
    assert_eq!(rests.status.runner_id, None, "it is no claim's");
    assert_eq!(rests.status.say.unwrap().signal, Signal::Ok);
}

#[test]
fn only_a_clean_pooled_machine_with_a_box_for_it_registers_ahead() {
    let clean = Local { boot: Boot::Done, ..Local::default() };
    let tainted = Local { tainted: Some("x".into()), ..clean.clone() };
    let over = Local { ahead_over: Some(ID.parse().unwrap()), ..clean.clone() };
    let pooled = || record("idle", "", "", Some(ID));
    let created = record("created", "", "", Some(ID));
    let jit = RegistrationCredential { token: None, jit_config: Some("x".into()), ..credential(ID) };
    for (sight, local) in [
        (at_rest(), &tainted),
        (at_rest(), &over),
        (boxed(created, &credential(ID)), &clean),
        (Sight::of(Some(&pooled())), &clean),
        (boxed(pooled(), &credential("i-1.4")), &clean),
        (boxed(pooled(), &run_credential(ID)), &clean),
        (boxed(record("idle", "", "", None), &credential(ID)), &clean),
        (boxed(pooled(), &jit), &clean),
    ] {
        assert_eq!(task(&sight, local), "idle");
    }
}

#[test]
fn a_claim_takes_the_runner_and_says_so_only_with_its_label() {
    let claimed = Sight::of(Some(&record("claimed", "42", "i-1.7", Some(ID))));
    let lent = judged(&claimed, &resting());
    let Task::Lend { holder, .. } = &lent.task else { panic!("{:?}", lent.task) };
    assert_eq!(holder.run, "42");
    assert_eq!(lent.status.say, None, "it has no label yet");
    assert!(lent.status.ahead.is_some_and(|ahead| ahead.listening));
    let served = ends(&claimed, &resting(), TaskOutcome::Lent);
    assert_eq!(task(&claimed, &served), format!("serve {ID}"));
    let running = Sight::of(Some(&record("running", "42", "i-1.7", Some(ID))));
    let labelled = judged(&running, &served);
    let say = labelled.status.say.unwrap();
    assert_eq!((say.signal, say.claim.unwrap().as_str()), (Signal::RegOk, "i-1.7"));
    assert_eq!(labelled.status.runner_id, Some(23), "it is removed by its number");
    let mut over = instance("idle", "", "i-1.7");
    over.remove("pooledAt");
    let over = Sight::of(Some(&over));
    assert_eq!(task(&over, &labelled.local), format!("stop {ID}"));
}

#[test]
fn a_runner_that_no_claim_takes_is_ended_before_anything_else() {
    let other = Sight::of(Some(&record("claimed", "42", "i-1.7", None)));
    let off = Sight::of(Some(&record("idle", "", "", None)));
    let anew = Sight::of(Some(&record("idle", "", "", Some("i-1.9"))));
    for sight in [other, off, anew] {
        assert_eq!(task(&sight, &resting()), format!("stop {ID}"));
        let stopped = ends(&sight, &resting(), TaskOutcome::Stopped { registered: true });
        assert_eq!(task(&sight, &stopped), format!("wipe {ID}"));
        let wiped = ends(&sight, &stopped, TaskOutcome::Wiped);
        let over = judged(&sight, &wiped);
        assert_eq!((over.local.ahead.as_ref(), over.status.ahead), (None, None));
        assert_eq!(format!("{:?}", over.task), "idle");
    }
}

#[test]
fn a_claim_whose_runner_is_taken_back_registers_its_own() {
    let claimed = Sight::of(Some(&record("claimed", "42", "i-1.7", Some(ID))));
    let lent = ends(&claimed, &resting(), TaskOutcome::Lent);
    let back = boxed(record("claimed", "42", "i-1.7", None), &run_credential("i-1.7"));
    assert_eq!(task(&back, &lent), format!("stop {ID}"));
    let stopped = ends(&back, &lent, TaskOutcome::Stopped { registered: true });
    let wiped = ends(&back, &stopped, TaskOutcome::Wiped);
    assert_eq!(task(&back, &wiped), "configure i-1.7");
}

#[test]
fn what_a_runner_at_rest_left_behind_ends_its_machine() {
    let off = Sight::of(Some(&record("idle", "", "", None)));
    let stopped = ends(&off, &resting(), TaskOutcome::Stopped { registered: true });
    let unclean = ends(&off, &stopped, TaskOutcome::Unproved("a file".into()));
    assert_eq!(judged(&off, &unclean).status.say.unwrap().signal, Signal::Failed);
}

#[test]
fn a_registration_ahead_that_is_refused_is_given_up_and_not_begun_again() {
    let mut local = Local { boot: Boot::Done, ..Local::default() };
    for _ in 0..crate::step::local::REFUSALS {
        local = ends(&at_rest(), &local, TaskOutcome::Failed(GithubFailure::Refused("no".into())));
        if let Some(ahead) = local.ahead.as_mut() {
            ahead.retry_at = None;
        }
    }
    let stopped = ends(&at_rest(), &local, TaskOutcome::Stopped { registered: false });
    let wiped = ends(&at_rest(), &stopped, TaskOutcome::Wiped);
    assert_eq!(task(&at_rest(), &wiped), "idle");
    assert_eq!(judged(&at_rest(), &wiped).status.ahead, None);
}

#[test]
fn an_agent_that_starts_again_goes_on_with_its_runner_at_rest() {
    let kept: Local = serde_json::from_str(&serde_json::to_string(&resting()).unwrap()).unwrap();
    assert_eq!(task(&at_rest(), &kept), format!("rest {ID}"));
    assert_eq!(task(&Sight::Unseen, &kept), format!("rest {ID}"), "no record is no command");
    let away = RunnerEnd::Failed(GithubFailure::Unreachable("away".into()));
    let away = TaskOutcome::Ended { worked: false, end: away };
    let again = ends(&at_rest(), &ends(&at_rest(), &kept, away), TaskOutcome::Renewed);
    let mut again = again;
    again.ahead.as_mut().unwrap().retry_at = None;
    assert_eq!(task(&at_rest(), &again), format!("start {ID}"));
}

#[test]
fn a_runner_at_rest_that_github_refuses_or_forgot_is_given_up_and_told_no_more() {
    for end in [
        RunnerEnd::Failed(GithubFailure::Deprecated("its version".into())),
        RunnerEnd::Forgotten("deleted".into()),
        RunnerEnd::Lost("its listener died".into()),
    ] {
        let ended = ends(&at_rest(), &resting(), TaskOutcome::Ended { worked: false, end });
        let effects = judged(&at_rest(), &ended);
        assert_eq!((effects.task.label(), &effects.status.ahead), ("stop", &None));
        assert_eq!(
            (effects.status.say.map(|say| say.signal), effects.status.trouble),
            (Some(Signal::Ok), None)
        );
        let stopped = ends(&at_rest(), &ended, TaskOutcome::Stopped { registered: true });
        let mut wiped = stopped;
        while wiped.ahead.is_some() && judged(&at_rest(), &wiped).task.label() == "wipe" {
            wiped = ends(&at_rest(), &wiped, TaskOutcome::Wiped);
        }
        assert_eq!(task(&at_rest(), &wiped), "idle", "its box is not used again");
        assert!(judged(&at_rest(), &wiped).local.is_clean(), "its machine waits for a claim all the same");
    }
}
