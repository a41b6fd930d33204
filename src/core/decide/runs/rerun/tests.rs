use serde_json::json;

use super::*;
use crate::model::{InstanceId, Uid};
use crate::testing::{ask, at, item};

fn original() -> Request {
    let asked = at(100).to_string();
    let stored = json!({
        "pk": "request#acme/web#41", "sk": "request#default#1", "kind": "request", "version": 9, "runId": "41",
        "attempt": 1, "repository": "acme/web", "name": "default", "resourceClass": "linux", "count": 3,
        "minCount": 2, "desired": "released", "generation": 2, "createdAt": asked, "phase": "Released",
        "acceptedAt": asked, "labelSuffix": "k3v9x0qa",
    });
    match crate::model::read::<Request>(&item(stored)) {
        crate::model::Reading::Record(request) => request,
        other => panic!("{other:?}"),
    }
}

/// The second attempt, which began an hour after the first.
const RUN: fn() -> WorkflowRun = || WorkflowRun {
    id: 41,
    attempt: 2,
    started_at: Some(at(3600)),
    updated_at: None,
    workflow: String::new(),
    own: true,
};

fn job(name: &str, label: &str, state: JobState, attempt: u32, times: Option<(i64, i64)>) -> WorkflowJob {
    WorkflowJob {
        name: name.to_owned(),
        labels: vec![label.to_owned()],
        state,
        attempt,
        started_at: times.map(|(started, _)| at(started)),
        completed_at: times.map(|(_, ended)| at(ended)),
        runner: None,
    }
}

const HOSTED: &str = "ubuntu-latest";
const OURS: &str = "41-k3v9x0qa";

fn provision() -> WorkflowJob {
    job("provision", HOSTED, JobState::Succeeded, 1, Some((90, 110)))
}

/// Returns the first attempt: a job that requested machines, one beside it that failed, and two on our machines, of
/// which one failed.
fn first() -> Vec<WorkflowJob> {
    vec![
        provision(),
        job("lint", HOSTED, JobState::Failed, 1, Some((90, 130))),
        job("test", OURS, JobState::Succeeded, 1, Some((120, 200))),
        job("build", OURS, JobState::Failed, 1, Some((120, 300))),
    ]
}

fn queued(name: &str, label: &str) -> WorkflowJob {
    job(name, label, JobState::Queued, 2, None)
}

#[test]
fn jobs_that_were_re_run_get_machines_however_github_lists_the_others() {
    let only_what_runs = vec![queued("build", OURS), job("lint", HOSTED, JobState::Active, 2, None)];
    let with_their_attempt = [&only_what_runs[..], &first()[..1], &first()[2..3]].concat();
    let counted_anew: Vec<WorkflowJob> =
        with_their_attempt.iter().cloned().map(|job| WorkflowJob { attempt: 2, ..job }).collect();
    for jobs in [&only_what_runs, &with_their_attempt, &counted_anew] {
        assert_eq!(rerun(&original(), &first(), &RUN(), jobs), Rerun::Serve(1), "{jobs:?}");
    }
    let at_once = WorkflowRun { started_at: provision().completed_at, ..RUN() };
    assert_eq!(rerun(&original(), &first(), &at_once, &counted_anew), Rerun::Serve(1), "in the same second");
}

#[test]
fn a_run_that_is_run_again_as_a_whole_asks_for_itself() {
    let again = |state, times| job("provision", HOSTED, state, 2, times);
    let asks = vec![again(JobState::Active, None), queued("build", OURS)];
    assert_eq!(rerun(&original(), &first(), &RUN(), &asks), Rerun::AsksItself);
    let asked = vec![again(JobState::Succeeded, Some((3610, 3620))), queued("build", OURS)];
    assert_eq!(rerun(&original(), &first(), &RUN(), &asked), Rerun::NobodyAsks, "and it did not ask");
    let lint = job("lint", HOSTED, JobState::Failed, 2, Some((3610, 3700)));
    let beside = vec![again(JobState::Active, None), lint, queued("build", OURS)];
    assert_eq!(rerun(&original(), &first(), &RUN(), &beside), Rerun::AsksItself);
}

#[test]
fn jobs_that_wait_for_another_label_or_wait_no_more_get_none() {
    let active = job("build", OURS, JobState::Active, 2, Some((3610, 3700)));
    for jobs in [vec![], vec![active], vec![queued("x", "41-k3v9x0qab")], vec![queued("x", "41")]] {
        assert_eq!(rerun(&original(), &first(), &RUN(), &jobs), Rerun::NoneWaits, "{jobs:?}");
    }
    let extra = vec![queued("a", "41-K3V9X0QA.gpu"), queued("b", OURS)];
    assert_eq!(rerun(&original(), &first(), &RUN(), &extra), Rerun::Serve(2));
}

#[test]
fn a_job_that_did_not_succeed_before_ours_began_did_not_ask() {
    let jobs = vec![queued("build", OURS)];
    let with = |provision: WorkflowJob| [&[provision][..], &first()[1..]].concat();
    let late = with(job("provision", HOSTED, JobState::Succeeded, 1, Some((90, 121))));
    assert_eq!(rerun(&original(), &late, &RUN(), &jobs), Rerun::NobodyAsks);
    let failed = with(job("provision", HOSTED, JobState::Failed, 1, Some((90, 110))));
    assert_eq!(rerun(&original(), &failed, &RUN(), &jobs), Rerun::NobodyAsks);
    let alone = [provision()];
    assert_eq!(rerun(&original(), &alone, &RUN(), &jobs), Rerun::NobodyAsks, "none of ours ever began");
}

#[test]
fn a_derived_request_asks_for_what_waits_and_never_for_more_than_the_original() {
    let uid: Uid = "u-2".parse().unwrap();
    for (waits, count, least) in [(1, 1, 1), (2, 2, 2), (9, 3, 2)] {
        let derived = original().derived(2, waits, uid.clone(), at(3700));
        assert_eq!((derived.intent.count, derived.intent.min_count), (count, least));
        assert_eq!((derived.label(), derived.version), (original().label(), 1));
        assert_eq!((derived.id.attempt, derived.status.derived_from), (2, Some(1)));
        assert!(!derived.is_released() && derived.status.phase.is_none());
    }
    assert_eq!(original().derived(2, 1, uid, at(0)).id.run_id, ask("41").run_id);
}

#[test]
fn a_job_failed_with_its_machine_if_its_runner_was_there_and_it_ended_later() {
    let claim = ClaimId::of(&InstanceId::parse("i-0123456789abcdef0").unwrap(), 7);
    let lost = [(claim.clone(), at(250))];
    let failed = |runner: &str, ended| WorkflowJob {
        runner: Some(runner.to_owned()),
        ..job("build", OURS, JobState::Failed, 1, Some((120, ended)))
    };
    let name = format!("runyard-{claim}");
    assert!(
        failed_with(&lost, &[failed(&name, 900)]) && failed_with(&lost, &[failed(&format!("{name}-2"), 260)])
    );
    assert!(!failed_with(&lost, &[failed(&name, 100)]), "it failed before its machine was lost");
    assert!(!failed_with(&lost, &[failed(&format!("{name}1"), 900)]), "another claim");
    let cancelled = WorkflowJob { state: JobState::Ended, ..failed(&name, 900) };
    assert!(!failed_with(&lost, &[cancelled]) && !failed_with(&[], &[failed(&name, 900)]));
}
