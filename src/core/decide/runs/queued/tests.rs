use serde_json::json;

use super::*;
use crate::model::{Phase, ReleasedBy, Uid, Versioned as _};
use crate::testing::at;

fn class(name: &str, more: serde_json::Value) -> PoolSpec {
    let mut fields = json!({"resourceClass": name, "max": 5, "queue": {"runLabels": true}});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(fields).unwrap()
}

fn run() -> WorkflowRun {
    WorkflowRun { id: 41, attempt: 2, started_at: None, updated_at: None, workflow: String::new(), own: true }
}

fn job(labels: &[&str], state: JobState) -> WorkflowJob {
    WorkflowJob {
        name: "build".into(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        state,
        attempt: 2,
        started_at: None,
        completed_at: None,
        runner: None,
    }
}

fn judged(run: &WorkflowRun, jobs: &[WorkflowJob], classes: &[PoolSpec]) -> Vec<RunLabel> {
    run_labels(run, &"Acme/Web".parse().unwrap(), jobs, classes.iter())
}

fn verdicts(run: &WorkflowRun, labels: &[&str], classes: &[PoolSpec]) -> Vec<Result<String, Unserved>> {
    let found = judged(run, &[job(labels, JobState::Queued)], classes);
    found.into_iter().map(|label| label.verdict.map(|wanted| wanted.class.to_string())).collect()
}

#[test]
fn jobs_of_a_label_that_run_or_wait_for_a_runner_are_counted_within_limits() {
    let mut jobs: Vec<WorkflowJob> = (0..3).map(|_| job(&["41-small"], JobState::Queued)).collect();
    let runner = Some("runyard-1".to_owned());
    jobs.push(WorkflowJob { runner, ..job(&["41-SMALL"], JobState::Active) });
    // One that waits for an approval.
    jobs.push(job(&["41-small"], JobState::Active));
    for over in [JobState::Succeeded, JobState::Failed, JobState::Ended] {
        jobs.push(job(&["41-small"], over));
    }
    jobs.push(job(&["ubuntu-latest"], JobState::Queued));
    jobs.push(job(&["41-small-2"], JobState::Queued));
    for (more, count) in [
        (json!({}), 4),
        (json!({"max": 3}), 3),
        (json!({"queue": {"runLabels": true, "maxSlots": 2}}), 2),
        (json!({"max": 1, "queue": {"runLabels": true, "maxSlots": 2}}), 1),
    ] {
        let found = judged(&run(), &jobs, &[class("small", more)]);
        let [first, second] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((first.name.as_str(), first.jobs, first.queued), ("small", 4, 3));
        let wanted = Wanted { name: "small".parse().unwrap(), class: "small".parse().unwrap(), count };
        assert_eq!(first.verdict, Ok(wanted));
        assert_eq!((second.name.as_str(), second.jobs), ("small-2", 1));
    }
}

#[test]
fn the_longest_class_name_that_fits_counts() {
    let classes =
        [class("small", json!({})), class("small-2", json!({})), class("big", json!({"queue": {}}))];
    for (label, named) in [
        ("41-small", Ok("small")),
        ("41-small-1", Ok("small")),
        ("41-small-2", Ok("small-2")),
        ("41-small-2-7", Ok("small-2")),
        ("41-big", Err(Unserved::NoClass)),
        ("41-other", Err(Unserved::NoClass)),
        ("41-", Err(Unserved::NoClass)),
        ("41-Späti", Err(Unserved::NoClass)),
    ] {
        assert_eq!(verdicts(&run(), &[label], &classes), [named.map(str::to_owned)], "{label}");
    }
    let long = "a".repeat(40);
    let found = verdicts(&run(), &[&format!("41-{long}-1")], &[class(&long, json!({}))]);
    assert_eq!(found, [Err(Unserved::TooLong(long.parse().unwrap()))]);
    for label in ["41", "410-small", "small", "self-hosted"] {
        assert_eq!(verdicts(&run(), &[label], &classes), [], "{label}: it is no label of the run");
    }
}

#[test]
fn a_class_serves_its_repositories_its_own_code_and_its_own_labels() {
    let name = || "small".parse::<ClassName>().unwrap();
    let fork = WorkflowRun { own: false, ..run() };
    let forks = json!({"queue": {"runLabels": true, "forks": true}});
    for (run, labels, more, wanted) in [
        (run(), vec!["41-small"], json!({"repositories": ["acme/*"]}), Ok(())),
        (run(), vec!["41-small"], json!({"repositories": ["acme/api"]}), Err(Unserved::NotAdmitted(name()))),
        (fork.clone(), vec!["41-small"], json!({}), Err(Unserved::Fork(name()))),
        (fork, vec!["41-small"], forks, Ok(())),
        (run(), vec!["41-small", "41-small.gpu"], json!({"labels": ["gpu"]}), Ok(())),
        (run(), vec!["41-small.gpu"], json!({"labels": ["gpu"]}), Ok(())),
        (run(), vec!["41-small.gpu"], json!({}), Err(Unserved::MoreLabels(name(), "41-small.gpu".into()))),
        (
            run(),
            vec!["self-hosted", "41-small"],
            json!({}),
            Err(Unserved::MoreLabels(name(), "self-hosted".into())),
        ),
    ] {
        let found = verdicts(&run, &labels, &[class("small", more)]);
        assert_eq!(found, [wanted.map(|()| "small".to_owned())], "{labels:?}");
    }
}

fn asked(count: u32) -> Request {
    let key = key_of(&run(), &"Acme/Web".parse().unwrap(), &"small".parse().unwrap());
    let uid: Uid = "u-1".parse().unwrap();
    Request::asked_by_job(&key, &"small".parse().unwrap(), count, uid, at(0))
}

#[test]
fn a_count_is_raised_and_never_lowered() {
    let label =
        |jobs, queued| RunLabel { name: "small".into(), jobs, queued, verdict: Err(Unserved::NoClass) };
    let wants = |count| Wanted { name: "small".parse().unwrap(), class: "small".parse().unwrap(), count };
    let request = asked(2);
    assert_eq!(for_label(&label(1, 1), &wants(1), None), ForLabel::Create);
    assert_eq!(for_label(&label(1, 0), &wants(1), None), ForLabel::Nothing, "another runner has it");
    for (count, done) in [(1, ForLabel::Nothing), (2, ForLabel::Nothing), (3, ForLabel::Raise(3))] {
        assert_eq!(for_label(&label(count, 1), &wants(count), Some(&request)), done);
    }
    let mut raised = request.clone();
    raised.raise_to(3, 3, at(1));
    raised.advance(at(1));
    assert_eq!((raised.intent.count, raised.written.as_ref().unwrap().count), (2, 3));
    assert_eq!(for_label(&label(3, 1), &wants(3), Some(&raised)), ForLabel::Nothing, "it is written already");
}

#[test]
fn what_a_workflow_asked_for_or_is_over_is_left_alone() {
    let label = |queued| RunLabel { name: "small".into(), jobs: 3, queued, verdict: Err(Unserved::NoClass) };
    let wants = Wanted { name: "small".parse().unwrap(), class: "small".parse().unwrap(), count: 3 };
    for asked_by in [Asked::Verb, Asked::Rerun, Asked::Set] {
        let mut request = asked(1);
        request.intent.asked = asked_by;
        assert_eq!(for_label(&label(3), &wants, Some(&request)), ForLabel::Nothing, "{asked_by}");
    }
    let mut released = asked(1);
    released.status.released_by = Some(ReleasedBy::MaxRuntime);
    let mut failed = asked(1);
    failed.status.phase = Some(Phase::Failed);
    for over in [released, failed] {
        assert_eq!(for_label(&label(1), &wants, Some(&over)), ForLabel::Over);
        assert_eq!(for_label(&label(0), &wants, Some(&over)), ForLabel::Nothing);
    }
}

#[test]
fn what_is_wanted_falls_to_the_most_that_jobs_needed_for_five_minutes() {
    let (mut needed, request) = (Needed::default(), asked(4));
    let minute = |minutes: u64| Duration::from_secs(60 * minutes);
    assert_eq!(needed.lowered(&request, 1, minute(0)), None);
    assert_eq!(needed.lowered(&request, 2, minute(2)), None);
    assert_eq!(needed.lowered(&request, 0, minute(4)), None);
    assert_eq!(needed.lowered(&request, 1, minute(5)), Some(2));
    // All of them were needed in between: the five minutes begin anew.
    assert_eq!(needed.lowered(&request, 0, minute(6)), None);
    assert_eq!(needed.lowered(&request, 4, minute(9)), None);
    assert_eq!(needed.lowered(&request, 0, minute(11)), None);
    assert_eq!(needed.lowered(&request, 0, minute(16)), Some(0));
}

#[test]
fn what_a_workflow_wants_or_is_over_is_not_lowered() {
    let mut others: Vec<Request> = [Asked::Verb, Asked::Rerun, Asked::Set].map(|_| asked(2)).into();
    others
        .iter_mut()
        .zip([Asked::Verb, Asked::Rerun, Asked::Set])
        .for_each(|(one, by)| one.intent.asked = by);
    let mut released = asked(2);
    released.status.released_by = Some(ReleasedBy::RunEnded);
    let mut over = asked(2);
    over.status.phase = Some(Phase::Failed);
    for request in others.into_iter().chain([released, over]) {
        let mut needed = Needed::default();
        assert_eq!(needed.lowered(&request, 0, Duration::ZERO), None);
        assert_eq!(
            needed.lowered(&request, 0, Duration::from_secs(3600)),
            None,
            "{:?}",
            request.intent.asked
        );
    }
}

#[test]
fn a_request_that_rests_gets_machines_for_jobs_that_wait_and_begins_its_time_anew() {
    let label =
        |jobs, queued| RunLabel { name: "small".into(), jobs, queued, verdict: Err(Unserved::NoClass) };
    let wants = |count| Wanted { name: "small".parse().unwrap(), class: "small".parse().unwrap(), count };
    let mut request = asked(3);
    request.status.phase = Some(Phase::Ready);
    request.want(0, at(1));
    assert!(request.rests() && request.status.lent_since.is_none());
    // GitHub lists jobs as running whose machines were taken back.
    assert_eq!(for_label(&label(2, 0), &wants(2), Some(&request)), ForLabel::Nothing);
    assert_eq!(for_label(&label(3, 1), &wants(3), Some(&request)), ForLabel::Raise(1));
    request.raise_to(1, 1, at(2));
    assert_eq!(
        (request.intent.count, request.intent.wanted, request.status.lent_since),
        (3, Some(1), Some(at(2)))
    );
    assert_eq!(request.written, None, "the count was enough");
}
