use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{Agent, RetireReport};

use crate::step::local::{Boot, Local};
use crate::step::orders::Sight;
use crate::step::{Effects, Stored, View, step};
use crate::task::{RunnerEnd, RunnerProcess, TaskOutcome};
use crate::testing::{arn, instance, key, run_credential, sealed, with};

const NOW: Duration = Duration::from_secs(100);
const RUNNER: RunnerProcess = RunnerProcess { pid: 7, started: 70 };
const FIRST: &str = "2026-01-01T00:00:00Z";
const SECOND: &str = "2026-01-01T00:01:00Z";

fn asked(at: Option<&str>) -> Sight {
    let record = instance("running", "42", "i-1.4");
    let record = with(record, "registration", sealed(&run_credential("i-1.4"), &key().public()));
    Sight::of(Some(&match at {
        Some(at) => with(record, "retireAskedAt", at.to_owned()),
        None => record,
    }))
}

fn judged(sight: &Sight, local: &Local, now: Duration) -> Effects {
    let stored = Stored::Known(Box::new(Agent::born(&arn(), Timestamp::UNIX_EPOCH)));
    let reregister = Duration::from_secs(2);
    step(&View { sight, stored: &stored, local, key: &key(), now, reregister })
}

fn ends(sight: &Sight, local: &Local, outcome: TaskOutcome) -> Local {
    let effects = judged(sight, local, NOW);
    let number = outcome.tells_of_a_registration().then_some(Some(23));
    effects.local.after_task(Some(&effects.task), outcome, NOW, 0.0, number)
}

/// Returns the state of a machine whose runner listens.
fn listening() -> Local {
    let mut local = Local { boot: Boot::Done, ..Local::default() };
    for outcome in [TaskOutcome::Configured, TaskOutcome::Started(RUNNER), TaskOutcome::Listening] {
        local = ends(&asked(None), &local, outcome);
    }
    local
}

fn task(sight: &Sight, local: &Local, now: Duration) -> String {
    format!("{:?}", judged(sight, local, now).task)
}

fn told(sight: &Sight, local: &Local) -> Option<RetireReport> {
    judged(sight, local, NOW).status.retire
}

fn report(at: &str, busy: bool) -> RetireReport {
    RetireReport { at: at.parse().unwrap(), busy }
}

#[test]
fn a_runner_without_a_job_stays_suspended_for_thirty_seconds_and_serves_again() {
    let (first, local) = (asked(Some(FIRST)), listening());
    assert_eq!(task(&asked(None), &local, NOW), "serve i-1.4");
    assert_eq!((task(&first, &local, NOW), told(&first, &local)), ("freeze i-1.4".to_owned(), None));
    let frozen = ends(&first, &local, TaskOutcome::Frozen { busy: false });
    assert_eq!(told(&first, &frozen), Some(report(FIRST, false)));
    let wakes = |local: &Local| judged(&first, local, NOW).local.retry_at();
    assert_eq!(wakes(&frozen), Some(NOW + Duration::from_secs(30)), "the loop wakes by itself");
    let last = Duration::from_millis(19_999);
    assert_eq!(task(&first, &frozen, NOW + last), "frozen i-1.4");
    // The operator did not come: the runner goes on, and the question stays answered.
    let over = judged(&first, &frozen, NOW + Duration::from_secs(30));
    assert_eq!((format!("{:?}", over.task), over.local.retry_at()), ("serve i-1.4".to_owned(), None));
    assert_eq!(over.status.retire, Some(report(FIRST, false)));
}

#[test]
fn a_suspended_runner_goes_on_after_a_restart_of_the_agent_and_after_a_boot() {
    let first = asked(Some(FIRST));
    let frozen = ends(&first, &listening(), TaskOutcome::Frozen { busy: false });
    let stored = serde_json::to_string(&frozen).unwrap();
    let restarted: Local = serde_json::from_str(&stored).unwrap();
    assert_eq!(restarted.retry_at(), None, "it is not stored");
    for sight in [&first, &Sight::Absent] {
        let effects = judged(sight, &restarted, NOW + Duration::from_secs(5));
        assert_eq!(format!("{:?}", effects.task), "frozen i-1.4");
        assert_eq!(effects.local.retry_at(), Some(NOW + Duration::from_secs(30)), "the loop wakes by itself");
    }
    // Time is counted from the boot on: what it said before means nothing.
    assert_eq!(task(&first, &restarted, Duration::from_secs(3)), "serve i-1.4");
}

#[test]
fn a_runner_with_a_job_serves_on_and_each_question_is_answered_once() {
    let (first, second) = (asked(Some(FIRST)), asked(Some(SECOND)));
    let busy = ends(&first, &listening(), TaskOutcome::Frozen { busy: true });
    assert_eq!(
        (task(&first, &busy, NOW), told(&first, &busy)),
        ("serve i-1.4".into(), Some(report(FIRST, true)))
    );
    assert_eq!((task(&second, &busy, NOW), told(&second, &busy)), ("freeze i-1.4".into(), None));
    let free = ends(&second, &busy, TaskOutcome::Frozen { busy: false });
    assert_eq!(told(&second, &free), Some(report(SECOND, false)));
    let withdrawn = judged(&asked(None), &free, NOW);
    assert_eq!((format!("{:?}", withdrawn.task), withdrawn.status.retire), ("serve i-1.4".to_owned(), None));
}

#[test]
fn a_missing_record_changes_nothing_and_a_release_ends_a_suspended_runner() {
    let frozen = ends(&asked(Some(FIRST)), &listening(), TaskOutcome::Frozen { busy: false });
    assert_eq!(task(&Sight::Absent, &frozen, NOW), "frozen i-1.4");
    assert_eq!(task(&Sight::Absent, &frozen, NOW + Duration::from_secs(30)), "serve i-1.4");
    let record = with(instance("idle", "", "i-1.4"), "retireAskedAt", FIRST.to_owned());
    let released = judged(&Sight::of(Some(&record)), &frozen, NOW);
    assert_eq!((format!("{:?}", released.task), released.status.retire), ("stop i-1.4".to_owned(), None));
}

/// The operator removed the runner at GitHub, and its write was lost: the machine still serves its claim.
#[test]
fn a_runner_that_was_removed_and_not_released_is_registered_anew() {
    let first = asked(Some(FIRST));
    let frozen = ends(&first, &listening(), TaskOutcome::Frozen { busy: false });
    let over = judged(&first, &frozen, NOW + Duration::from_secs(30)).local;
    let end = RunnerEnd::Forgotten("deleted".into());
    let lost = ends(&first, &over, TaskOutcome::Ended { worked: false, end });
    let effects = judged(&first, &lost, NOW);
    assert_eq!(effects.status.registration_done, Some(1), "it asks for the next credential");
}
