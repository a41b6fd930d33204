use serde_json::json;

use super::*;
use crate::model::{InstanceId, Phase, ReleasedBy, Uid, Versioned as _};
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
    let runner = Some("elsewhere".to_owned());
    jobs.push(WorkflowJob { runner, ..job(&["41-SMALL"], JobState::Active) });
    // One that waits for an approval.
    jobs.push(job(&["41-small"], JobState::Active));
    for over in [JobState::Succeeded, JobState::Failed, JobState::Ended] {
        jobs.push(job(&["41-small"], over));
    }
    jobs.push(job(&["ubuntu-latest"], JobState::Queued));
    jobs.push(job(&["41-small-2"], JobState::Queued));
    let slots = json!({"runLabels": true, "maxSlots": 2});
    for (more, count, most) in [
        (json!({}), 4, Limit::Max(5)),
        (json!({"max": 4}), 4, Limit::Max(4)),
        (json!({"max": 3}), 3, Limit::Max(3)),
        (json!({"queue": slots}), 2, Limit::MaxSlots(2)),
        (json!({"max": 1, "queue": slots}), 1, Limit::Max(1)),
    ] {
        let found = judged(&run(), &jobs, &[class("small", more)]);
        let [first, second] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((first.name.as_str(), first.jobs(None), first.queued), ("small", 4, 3));
        let wanted = Wanted { name: "small".parse().unwrap(), class: "small".parse().unwrap(), most };
        assert_eq!((&first.verdict, first.needed(None)), (&Ok(wanted), count));
        assert_eq!((second.name.as_str(), second.jobs(None)), ("small-2", 1));
    }
}

#[test]
fn a_job_with_labels_that_no_runner_has_keeps_no_other_from_its_machine() {
    let runner = Some("elsewhere".to_owned());
    let misfit = |state| job(&["self-hosted", "41-small"], state);
    let jobs = [
        misfit(JobState::Queued),
        job(&["41-small"], JobState::Queued),
        misfit(JobState::Queued),
        WorkflowJob { runner, ..misfit(JobState::Active) },
        job(&["41-small"], JobState::Queued),
    ];
    let classes = [class("small", json!({}))];
    let why = || Unserved::MoreLabels("small".parse().unwrap(), "self-hosted".into());
    let [label] = judged(&run(), &jobs, &classes).try_into().unwrap();
    assert_eq!((label.jobs(None), label.queued, label.needed(None)), (2, 2, 2));
    assert_eq!(label.misfits, Some((2, why())));
    let [label] = judged(&run(), &jobs[..1], &classes).try_into().unwrap();
    assert_eq!((label.queued, label.needed(None)), (1, 0));
    assert_eq!((label.verdict, label.misfits), (Err(why()), None));
    let [label] = judged(&run(), &jobs[3..], &classes).try_into().unwrap();
    assert_eq!((label.jobs(None), label.misfits), (1, None), "none of them waits");
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
        ("41-big", Err(Unserved::NoLabels("big".parse().unwrap()))),
        ("41-big-1", Err(Unserved::NoLabels("big".parse().unwrap()))),
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

/// Returns a label with so many jobs, of which some wait for a runner and the others run on runners of no yard.
fn wanted(jobs: u32, queued: u32) -> RunLabel {
    let (name, class) = ("small".parse().unwrap(), "small".parse().unwrap());
    let runners = (queued..jobs).map(|number| format!("elsewhere-{number}")).collect();
    let verdict = Ok(Wanted { name, class, most: Limit::Max(5) });
    RunLabel { name: "small".into(), queued, runners, verdict, misfits: None }
}

#[test]
fn a_count_is_raised_and_never_lowered() {
    let request = asked(2);
    let create = wanted(1, 1);
    assert_eq!(for_label(&create, None, false), ForLabel::Create(create.verdict.as_ref().unwrap()));
    assert_eq!(for_label(&wanted(1, 0), None, false), ForLabel::Nothing, "another runner has it");
    assert_eq!(
        for_label(&wanted(9, 8), Some(&request), false),
        ForLabel::Raise(5),
        "its class gives no more"
    );
    for (count, done) in [(1, ForLabel::Nothing), (2, ForLabel::Nothing), (3, ForLabel::Raise(3))] {
        assert_eq!(for_label(&wanted(count, 1), Some(&request), false), done);
    }
    let mut raised = request.clone();
    raised.raise_to(3, 3, at(1));
    raised.advance(at(1));
    assert_eq!((raised.intent.count, raised.written.as_ref().unwrap().count), (2, 3));
    assert_eq!(for_label(&wanted(3, 1), Some(&raised), false), ForLabel::Nothing, "it is written already");
}

#[test]
fn what_a_workflow_asked_for_or_is_over_is_left_alone() {
    for asked_by in [Asked::Verb, Asked::Rerun, Asked::Set] {
        let mut request = asked(1);
        request.intent.asked = asked_by;
        assert_eq!(for_label(&wanted(3, 3), Some(&request), false), ForLabel::Nothing, "{asked_by}");
    }
    let mut released = asked(1);
    released.status.released_by = Some(ReleasedBy::MaxRuntime);
    let mut failed = asked(1);
    (failed.status.phase, failed.status.message) = (Some(Phase::Failed), "no capacity".into());
    for (over, said) in [(released, "Pending, by max-runtime"), (failed, "Failed: no capacity")] {
        let why = Unserved::RequestOver("small".parse().unwrap(), said.into());
        assert_eq!(for_label(&wanted(1, 1), Some(&over), false), ForLabel::NotServed(why));
        assert_eq!(for_label(&wanted(1, 0), Some(&over), false), ForLabel::Nothing, "no job waits");
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
    let mut request = asked(3);
    request.status.phase = Some(Phase::Ready);
    request.want(0, at(1));
    assert!(request.rests() && request.status.lent_since.is_none());
    // GitHub lists jobs as running whose machines were taken back.
    let runners = ["runyard-i-1.4", "runyard-i-2.9-2", "runyard-ahead-i-3.1"].map(str::to_owned).to_vec();
    let label = |queued| RunLabel { runners: runners.clone(), ..wanted(queued, queued) };
    assert_eq!(label(0).jobs(None), 3);
    assert_eq!(for_label(&label(0), Some(&request), false), ForLabel::Nothing);
    assert_eq!(for_label(&label(1), Some(&request), false), ForLabel::Raise(1));
    request.raise_to(1, 1, at(2));
    assert_eq!(
        (request.intent.count, request.intent.wanted, request.status.lent_since),
        (3, Some(1), Some(at(2)))
    );
    assert_eq!(request.written, None, "the count was enough");
    // They are listed so for minutes, and its next machine is not one of theirs.
    request.status.instances = vec![InstanceId::parse("i-4").unwrap()];
    assert_eq!(for_label(&label(1), Some(&request), false), ForLabel::Nothing);
    request.status.instances.push(InstanceId::parse("i-2").unwrap());
    assert_eq!((label(1).needed(Some(&request)), label(0).needed(Some(&request))), (2, 1));
}

#[test]
fn a_label_without_a_class_is_refused_unless_its_workflow_asks_itself() {
    let small = || "small".parse::<ClassName>().unwrap();
    for (why, itself) in [
        (Unserved::NoClass, ForLabel::Nothing),
        (Unserved::NoLabels(small()), ForLabel::Nothing),
        (Unserved::Fork(small()), ForLabel::NotServed(Unserved::Fork(small()))),
    ] {
        let label = RunLabel { verdict: Err(why.clone()), ..wanted(1, 1) };
        assert_eq!(for_label(&label, None, false), ForLabel::NotServed(why.clone()));
        assert_eq!(for_label(&label, None, true), itself);
        let runs = RunLabel { queued: 0, ..label };
        assert_eq!(for_label(&runs, None, false), ForLabel::Nothing, "{why}: no job waits");
    }
}

#[test]
fn each_reason_has_a_word_of_its_own_and_names_its_class() {
    let class = || "small".parse::<ClassName>().unwrap();
    let all = [
        Unserved::NoClass,
        Unserved::NoLabels(class()),
        Unserved::TooLong(class()),
        Unserved::NotAdmitted(class()),
        Unserved::Fork(class()),
        Unserved::MoreLabels(class(), "x".into()),
        Unserved::RequestOver(class(), "Failed".into()),
    ];
    assert_eq!(all.each_ref().map(Unserved::reason), Unserved::REASONS);
    assert_eq!(all.iter().filter(|why| why.class() == Some(&class())).count(), 6);
}
