use serde_json::json;

use super::*;
use crate::model::{Ahead, ClaimId, Reason, runner_name};
use crate::testing::{Scene, ask, holding, id, machine, request};

fn run() -> WorkflowRun {
    WorkflowRun { id: 41, attempt: 1, started_at: None, updated_at: None, workflow: String::new(), own: true }
}

fn job(labels: &[&str], state: JobState, runner: Option<&str>) -> WorkflowJob {
    WorkflowJob {
        name: "build".into(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        state,
        attempt: 1,
        started_at: None,
        completed_at: None,
        runner: runner.map(str::to_owned),
    }
}

fn queued(label: &str) -> WorkflowJob {
    job(&[label], JobState::Queued, None)
}

fn fates_of(scene: &Scene, run: &WorkflowRun, state: RunState, jobs: &[WorkflowJob]) -> Vec<JobFate> {
    job_fates(&scene.yard, &"Acme/Web".parse().unwrap(), run, state, jobs)
}

fn fate(scene: &Scene, job: WorkflowJob) -> JobFate {
    fates_of(scene, &run(), RunState::Active { attempt: 1 }, &[job]).remove(0)
}

/// A class `linux` that serves labels with these further fields.
fn serving(more: serde_json::Value) -> Scene {
    let mut spec = json!({"queue": {"runLabels": true}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Scene::with(spec)
}

/// The request of label `41-linux`.
fn asked(more: serde_json::Value) -> Request {
    let mut fields = json!({"name": "linux", "asked": "job"});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request("41", 1, fields)
}

#[test]
fn a_queued_job_of_a_class_is_served_by_its_request_or_will_be() {
    let mut scene = serving(json!({"queue": {"runLabels": true, "maxSlots": 1}}));
    let told = fate(&scene, queued("41-LINUX"));
    assert_eq!((told.state, told.reason, told.class.unwrap().as_str()), ("queued", "NotAskedYet", "linux"));
    assert_eq!(told.request.unwrap().to_string(), "acme/web run 41/linux/1");
    assert!(told.message.contains("asks for 1 of class linux when it next looks"), "{}", told.message);
    scene.put(&asked(json!({})));
    let told = fate(&scene, queued("41-linux"));
    assert_eq!(told.reason, "Served");
    assert_eq!(told.message, "waits for a machine of request acme/web run 41/linux/1: Pending, 0 of 1");
    let two = [queued("41-linux"), queued("41-linux")];
    let told = fates_of(&scene, &run(), RunState::Active { attempt: 1 }, &two);
    assert!(told.iter().all(|one| one.reason == "Served"), "{told:?}");
    assert!(told[1].message.contains("2 jobs have its label"), "{told:?}");
    assert!(told[1].message.contains("queue.maxSlots 1"), "{told:?}");
}

#[test]
fn a_queued_job_that_gets_no_machine_is_told_by_the_operators_reason() {
    let reason = |scene: &Scene, label: &str| {
        let told = fate(scene, queued(label));
        (told.reason, told.class.map(|class| class.to_string()), told.message)
    };
    let linux = || Some("linux".to_owned());
    let (why, class, message) = reason(&serving(json!({})), "41-mac");
    assert_eq!((why, class), ("NoClass", None));
    assert!(message.starts_with("gets no machine: it names no class"), "{message}");
    let (why, class, message) = reason(&Scene::with(json!({})), "41-linux");
    assert_eq!((why, class), ("NoLabels", linux()));
    assert!(message.contains("queue.runLabels: true"), "{message}");
    let (why, class, _) = reason(&serving(json!({"repositories": ["acme/api"]})), "41-linux");
    assert_eq!((why, class), ("NotAdmitted", linux()));
    let mut over = serving(json!({}));
    over.put(&asked(json!({"phase": "Released", "releasedBy": "max-runtime", "message": "lent for 6h"})));
    let told = fate(&over, queued("41-linux"));
    assert_eq!((told.reason, told.request.unwrap().name.as_str()), ("RequestOver", "linux"));
    assert!(told.message.contains("Released, by max-runtime: lent for 6h"), "{}", told.message);
    let more = job(&["self-hosted", "41-linux"], JobState::Queued, None);
    assert_eq!(fate(&serving(json!({})), more).reason, "MoreLabels");
    let both = [queued("41-linux"), job(&["self-hosted", "41-linux"], JobState::Queued, None)];
    let told = fates_of(&serving(json!({})), &run(), RunState::Active { attempt: 1 }, &both);
    assert_eq!(told.iter().map(|one| one.reason).collect::<Vec<_>>(), ["NotAskedYet", "MoreLabels"]);
    let fork = WorkflowRun { own: false, ..run() };
    let state = RunState::Active { attempt: 1 };
    assert_eq!(fates_of(&serving(json!({})), &fork, state, &[queued("41-linux")])[0].reason, "Fork");
    let ended = RunState::Completed { attempt: 1 };
    assert_eq!(fates_of(&serving(json!({})), &run(), ended, &[queued("41-linux")])[0].reason, "RunOver");
}

#[test]
fn a_job_of_a_request_that_its_workflow_made_is_judged_by_that_request() {
    let mut scene = Scene::with(json!({"labels": ["gpu"]}));
    assert_eq!(fate(&scene, queued("41")).reason, "NoRequest");
    scene.put(&request("41", 2, json!({})));
    scene.put(&request("41", 1, json!({"name": "odd", "labelSuffix": "abcdefgh"})));
    for label in ["41", "41.gpu", "41-gpu", "41-odd-ABCDEFGH"] {
        let told = fate(&scene, queued(label));
        assert_eq!((told.reason, told.class.unwrap().as_str()), ("Served", "linux"), "{label}");
    }
    let lost = fate(&scene, queued("41-odd"));
    assert_eq!(lost.reason, "NoRequest");
    assert!(lost.message.contains("41, 41-odd-********"), "no secret part is told: {}", lost.message);
    let more = job(&["self-hosted", "41"], JobState::Queued, None);
    assert_eq!(fate(&scene, more).reason, "MoreLabels");
    scene.put(&request("41", 2, json!({"version": 4, "phase": "Released", "desired": "released"})));
    assert_eq!(fate(&scene, queued("41")).reason, "RequestOver");
    let second = WorkflowRun { attempt: 2, ..run() };
    let state = RunState::Active { attempt: 2 };
    assert_eq!(fates_of(&scene, &second, state, &[queued("41")])[0].reason, "NoRequest", "of attempt 1");
}

#[test]
fn a_job_that_is_not_for_the_yard_is_told_what_it_waits_for() {
    let scene = serving(json!({}));
    for (labels, reason) in [
        (&["ubuntu-latest"][..], "HostedRunner"),
        (&["4-core-ubuntu"], "HostedRunner"),
        (&[], "HostedRunner"),
        (&["self-hosted", "linux"], "OtherRunner"),
        (&["17380000001-linux"], "OtherRun"),
    ] {
        let told = fate(&scene, job(labels, JobState::Queued, None));
        assert_eq!((told.reason, told.class), (reason, None), "{labels:?}");
        assert!(told.message.ends_with("its label is 41-CLASS"), "{}", told.message);
    }
    let waits = fate(&scene, job(&["41-linux"], JobState::Active, None));
    assert_eq!((waits.state, waits.reason), ("waiting", "NotQueued"));
}

#[test]
fn a_job_that_runs_or_ran_is_told_with_its_machine() {
    let mut scene = serving(json!({}));
    let key = ask("41");
    scene.put(&holding("41", 1, &["i-1"], json!({"phase": "Ready"})));
    scene.add(machine("i-1").running(&key));
    scene.add(machine("i-2").ended(Reason::Surplus));
    let claim = ClaimId::of(&id("i-1"), 5);
    let first = runner_name(&claim, 1);
    for runner in [first.clone(), runner_name(&claim, 2), Ahead::name_of(&claim)] {
        let told = fate(&scene, job(&["41"], JobState::Active, Some(&runner)));
        assert_eq!(
            (told.state, told.reason, &told.request),
            ("running", "Runs", &Some(key.clone())),
            "{runner}"
        );
        assert_eq!(
            told.message,
            "runs on machine i-1 of class linux under request acme/web run 41/default/1"
        );
    }
    let told = fate(&scene, job(&["41"], JobState::Failed, Some(&first)));
    assert!(told.message.starts_with("failed on machine i-1"), "{}", told.message);
    for (runner, said) in [
        (Some("GitHub Actions 2"), "succeeded on runner GitHub Actions 2, which is no machine of Runyard"),
        (Some("runyard-i-9.5"), "succeeded on machine i-9, which has no record any more"),
        (None, "succeeded without a runner"),
        (Some(""), "succeeded without a runner"),
    ] {
        assert_eq!(fate(&scene, job(&["41"], JobState::Succeeded, runner)).message, said);
    }
}

/// A class `linux` with a scale set of organisation `acme`.
fn with_a_set() -> Scene {
    let queue = json!({"labels": ["runyard-small", "x64"], "scope": "organization"});
    let spec = json!({"repositories": ["acme/*"], "reuseWithin": "owner", "registrationMode": "job", "queue": queue});
    Scene::with(spec)
}

#[test]
fn a_queued_job_with_the_labels_of_a_scale_set_waits_for_one_of_its_runners() {
    let scene = with_a_set();
    for labels in [&["RUNYARD-small"][..], &["runyard-small", "x64"]] {
        let told = fate(&scene, job(labels, JobState::Queued, None));
        assert_eq!((told.reason, told.class.unwrap().as_str()), ("InScaleSet", "linux"), "{labels:?}");
        let expected = "waits for a runner of scale set runyard-small at acme, of class linux; no operator has begun with it";
        assert_eq!(told.message, expected);
    }
    let more = job(&["runyard-small", "gpu"], JobState::Queued, None);
    assert_eq!(fate(&scene, more).reason, "HostedRunner", "the set lacks a label");
}

#[test]
fn a_job_on_a_slots_machine_is_told_with_its_class_and_its_set() {
    let mut scene = with_a_set();
    let slot = crate::model::RequestKey {
        repository: Repository::of_organization("acme").unwrap(),
        run_id: RunId::parse("set-7").unwrap(),
        ..ask("41")
    };
    scene.add(machine("i-1").running(&slot));
    let runner = runner_name(&ClaimId::of(&id("i-1"), 5), 1);
    let told = fate(&scene, job(&["runyard-small"], JobState::Active, Some(&runner)));
    assert_eq!((told.reason, told.class.as_ref().unwrap().as_str()), ("Runs", "linux"));
    assert_eq!(told.message, "runs on machine i-1 of class linux, a runner of scale set set-7 at acme");
    assert_eq!(told.request, Some(slot));
}
