//! "Re-run failed jobs": a later attempt of a run whose jobs wait, and whose job that asked does not run again.

use std::time::Duration;

use runyard_core::model::{Phase, RecordId, ReleasedBy, Request, State, UsageClass, runner_name};
use runyard_core::ports::GitHubError;
use runyard_core::ports::github::{JobState, RunState, WorkflowJob};
use runyard_operator::controller::GitHubWatch;
use serde_json::json;

use runyard_tests::world::{World, linux, watch};

const WARNING: &str = include_str!("../golden/events/spot-interruption-warning.json");
const HOSTED: &str = "ubuntu-latest";

fn key(run: &str, name: &str, attempt: u32) -> RecordId {
    RecordId::new(format!("request#acme/web#{run}"), format!("request#{name}#{attempt}"))
}

/// A job of the first attempt of run 41, as it is now.
fn job(world: &World, name: &str, label: &str, state: JobState) -> WorkflowJob {
    let over = !matches!(state, JobState::Queued | JobState::Active);
    WorkflowJob {
        name: name.to_owned(),
        labels: vec![label.to_owned()],
        state,
        attempt: 1,
        started_at: Some(world.at()),
        completed_at: over.then(|| world.at()),
        runner: None,
    }
}

fn add(world: &World, name: &str, label: &str, state: JobState) {
    world.github.add_job("acme", "web", 41, job(world, name, label, state));
}

fn state(world: &World, attempt: u32, name: &str, state: JobState) {
    let now = world.at();
    world.github.change_jobs("acme", "web", 41, attempt, |job| {
        if job.name == name {
            (job.state, job.completed_at) = (state, Some(now));
        }
    });
}

/// Run 41 asked in its first attempt, two of its three jobs failed, and it is over and released.
async fn failed_run(world: &World, spec: serde_json::Value) -> RecordId {
    world.pool(spec).await;
    world.start();
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    let first = world.provision("41", "linux", 3, json!({"minCount": 2})).await;
    add(world, "provision", HOSTED, JobState::Succeeded);
    for name in ["build", "test", "pack"] {
        add(world, name, "41", JobState::Queued);
    }
    world.until_phase(&first, "Ready", 120).await;
    world.sleep(300).await;
    state(world, 1, "build", JobState::Failed);
    state(world, 1, "test", JobState::Failed);
    state(world, 1, "pack", JobState::Succeeded);
    world.release(&first).await;
    world.until_phase(&first, "Released", 120).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    world.sleep(120).await;
    first
}

/// Waits for a request that the operator is to write.
async fn until_served(world: &World, key: &RecordId, within: u64) {
    let ready = |request: Request| request.phase() == Phase::Ready;
    let what = format!("{key} is served");
    world.until(&what, Duration::from_secs(within), async || world.get(key).await.is_some_and(ready)).await;
}

fn events(world: &World, reason: &str) -> usize {
    let named = |item: &&runyard_core::model::Item| format!("{:?}", item.get("reason")).contains(reason);
    world.store.records().iter().filter(named).count()
}

#[tokio::test(start_paused = true)]
async fn re_run_jobs_get_machines_within_a_poll_and_a_claim() {
    for only_what_runs in [false, true] {
        let world = World::with_github();
        failed_run(&world, linux(3, 3)).await;
        if only_what_runs {
            world.github.list_only_what_runs();
        }
        assert_eq!(world.github.rerun("acme", "web", 41, false), Ok(2));
        let second = key("41", "default", 2);
        // The poll, the look at what is known before it, and a claim.
        until_served(&world, &second, 60 + 5 + 5).await;
        let request: Request = world.request(&second).await;
        assert_eq!((request.intent.count, request.intent.min_count), (2, 2), "two jobs wait");
        assert_eq!((request.status.derived_from, request.label()), (Some(1), "41".to_owned()));
        assert_eq!(world.in_state(State::Running).len(), 2);
        world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 2 });
        world.until_phase(&second, "Released", 120).await;
        let over: Request = world.request(&second).await;
        assert_eq!(over.status.released_by, Some(ReleasedBy::RunEnded));
        assert_eq!(events(&world, "RerunServed"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_github_fails_at_hold_up_the_re_runs_of_no_other() {
    for failed_at_too in [false, true] {
        let world = World::with_github();
        failed_run(&world, linux(3, 10)).await;
        let fails = |run, error| world.github.outage_in(&format!("acme/web#{run}"), error);
        let bad = || Some(GitHubError::Unreachable("502".into()));
        for run in 37..41 {
            world.github.set_run("acme", "web", run, RunState::Active { attempt: 1 });
            let other = world.provision(&run.to_string(), "linux", 1, json!({})).await;
            world.until_phase(&other, "Ready", 120).await;
            world.github.set_run("acme", "web", run, RunState::Active { attempt: 2 });
            fails(run, bad());
        }
        if failed_at_too {
            fails(41, bad());
        }
        assert_eq!(world.github.rerun("acme", "web", 41, false), Ok(2));
        if failed_at_too {
            world.sleep(600).await;
            assert_eq!(events(&world, "RerunServed"), 0);
            fails(41, None);
        }
        // The poll, the look at what is known before it, two rests after GitHub's failures, and a claim.
        until_served(&world, &key("41", "default", 2), 60 + 5 + 2 * 30 + 5).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_github_that_fails_at_three_runs_is_left_alone_until_the_next_look() {
    let world = World::with_github();
    world.pool(linux(0, 1)).await;
    world.start();
    for run in 40..45 {
        world.github.set_run("acme", "web", run, RunState::Active { attempt: 1 });
        world.provision(&run.to_string(), "linux", 1, json!({})).await;
    }
    world.sleep(30).await;
    world.github.outage_of("run_jobs", Some(GitHubError::Unreachable("timed out".into())));
    for run in 40..45 {
        world.github.set_run("acme", "web", run, RunState::Active { attempt: 2 });
    }
    world.sleep(600).await;
    let looked = world.github.calls_in("acme/web");
    world.sleep(600).await;
    let calls = world.github.calls_in("acme/web");
    let more = |verb| calls[verb] - looked[verb];
    assert!(more("open_runs") > 10, "{calls:?}");
    assert_eq!(more("run_jobs"), 3 * more("open_runs"));
}

#[tokio::test(start_paused = true)]
async fn a_third_attempt_is_served_as_the_first_asked() {
    let world = World::with_github();
    failed_run(&world, linux(3, 3)).await;
    world.github.rerun("acme", "web", 41, false).unwrap();
    let second = key("41", "default", 2);
    until_served(&world, &second, 120).await;
    state(&world, 2, "test", JobState::Succeeded);
    state(&world, 2, "build", JobState::Failed);
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 2 });
    world.until_phase(&second, "Released", 120).await;
    assert_eq!(world.github.rerun("acme", "web", 41, false), Ok(3));
    let third = key("41", "default", 3);
    until_served(&world, &third, 120).await;
    let request: Request = world.request(&third).await;
    assert_eq!((request.intent.count, request.status.derived_from), (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_run_again_as_a_whole_gets_no_request_but_its_own() {
    let world = World::with_github();
    failed_run(&world, linux(3, 3)).await;
    world.github.rerun("acme", "web", 41, true).unwrap();
    world.sleep(400).await;
    let second = key("41", "default", 2);
    assert!(world.all::<Request>().iter().all(|request| request.id.attempt == 1), "{}", world.show());
    let now = world.at();
    world.github.change_jobs("acme", "web", 41, 2, |job| {
        if job.name == "provision" {
            (job.state, job.started_at, job.completed_at) = (JobState::Succeeded, Some(now), Some(now));
        }
    });
    world.provision("41", "linux", 3, json!({"attempt": 2, "sk": second.sk()})).await;
    until_served(&world, &second, 120).await;
    world.sleep(200).await;
    let request: Request = world.request(&second).await;
    assert_eq!((request.status.derived_from, request.intent.count), (None, 3));
    assert_eq!((events(&world, "RerunServed"), events(&world, "RerunNotServed")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn jobs_that_nobody_asks_for_and_nothing_proves_carried_over_are_told_of_once() {
    let world = World::with_github();
    let first = failed_run(&world, linux(3, 3)).await;
    world.github.rerun("acme", "web", 41, true).unwrap();
    world.sleep(20).await;
    let now = world.at();
    world.github.change_jobs("acme", "web", 41, 2, |job| {
        if job.name == "provision" {
            (job.state, job.started_at, job.completed_at) = (JobState::Failed, Some(now), Some(now));
        }
    });
    world.sleep(600).await;
    assert_eq!(world.all::<Request>().len(), 1);
    assert_eq!(events(&world, "RerunNotServed"), 1, "{first}");
}

#[tokio::test(start_paused = true)]
async fn two_operators_write_one_request_for_one_attempt() {
    let world = World::with_github();
    failed_run(&world, linux(3, 3)).await;
    world.start_as("two");
    world.github.rerun("acme", "web", 41, false).unwrap();
    let second = key("41", "default", 2);
    until_served(&world, &second, 120).await;
    world.sleep(5).await;
    let derived = world.all::<Request>().into_iter().filter(|request| request.status.derived_from.is_some());
    assert_eq!((derived.count(), events(&world, "RerunServed")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn re_runs_are_left_alone_where_that_is_off() {
    let world = World::with_github().watching(GitHubWatch { reruns: false, ..watch() });
    failed_run(&world, linux(3, 3)).await;
    world.github.rerun("acme", "web", 41, false).unwrap();
    let looks = || world.github.calls().get("open_runs").copied();
    let before = looks();
    world.sleep(600).await;
    assert_eq!(world.all::<Request>().len(), 1);
    assert_eq!(looks(), before, "no request is open there");
}

#[tokio::test(start_paused = true)]
async fn a_github_that_is_away_delays_a_re_run_and_loses_none() {
    let world = World::with_github();
    failed_run(&world, linux(3, 3)).await;
    world.github.rerun("acme", "web", 41, false).unwrap();
    world.github.outage(Some(GitHubError::Unreachable("down".into())));
    world.sleep(900).await;
    world.github.outage(None);
    until_served(&world, &key("41", "default", 2), 120).await;
}

/// A run whose spot machine is taken back in the middle of its job, which fails with it.
async fn robbed_run(world: &World) -> RecordId {
    let mut spec = linux(1, 2);
    spec["usageClass"] = json!("spot");
    world.pool(spec).await;
    world.start();
    world.github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
    let first = world.provision("41", "linux", 1, json!({})).await;
    add(world, "provision", HOSTED, JobState::Succeeded);
    world.until_phase(&first, "Ready", 120).await;
    let machine = world.in_state(State::Running).remove(0);
    assert_eq!(machine.facts.usage_class, UsageClass::Spot);
    let runner = runner_name(&machine.claim.as_ref().unwrap().id, 1);
    let lost = WorkflowJob { runner: Some(runner), ..job(world, "build", "41", JobState::Active) };
    world.github.add_job("acme", "web", 41, lost);
    let now = world.at().to_string();
    let warning = WARNING.replace("i-1234567890abcdef0", machine.facts.instance_id.as_str());
    world.notices.post(&warning.replace("2026-01-05T12:00:00Z", &now));
    world.until("it is taken back", Duration::from_secs(300), async || !world.reasons().is_empty()).await;
    world.sleep(60).await;
    state(world, 1, "build", JobState::Failed);
    world.release(&first).await;
    world.until_phase(&first, "Released", 300).await;
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 1 });
    first
}

#[tokio::test(start_paused = true)]
async fn the_failed_jobs_of_a_run_that_lost_a_spot_machine_are_run_again_once() {
    let world = World::with_github().watching(GitHubWatch { rerun_lost: true, ..watch() });
    let first = robbed_run(&world).await;
    let second = key("41", "default", 2);
    until_served(&world, &second, 300).await;
    let request: Request = world.request(&first).await;
    assert!(request.status.rerun_requested_at.is_some());
    // It fails again, and its machine is fine.
    state(&world, 2, "build", JobState::Failed);
    world.github.set_run("acme", "web", 41, RunState::Completed { attempt: 2 });
    world.sleep(900).await;
    assert_eq!((world.github.calls()["rerun_failed_jobs"], events(&world, "RerunAsked")), (1, 1));
    assert_eq!(world.request(&second).await.phase(), Phase::Released);
}

#[tokio::test(start_paused = true)]
async fn a_re_run_that_was_recorded_and_not_asked_for_is_asked_for_by_the_next_leader() {
    let world = World::with_github().watching(GitHubWatch { rerun_lost: true, ..watch() });
    let first = robbed_run(&world).await;
    world.github.outage_of("rerun_failed_jobs", Some(GitHubError::Unreachable("down".into())));
    world
        .until("it is recorded", Duration::from_secs(300), async || {
            world.request(&first).await.status.rerun_requested_at.is_some()
        })
        .await;
    world.kill();
    world.github.outage_of("rerun_failed_jobs", None);
    world.start_as("two");
    until_served(&world, &key("41", "default", 2), 300).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_a_machine_is_not_run_again_unless_that_is_wanted() {
    let world = World::with_github();
    let first = robbed_run(&world).await;
    world.sleep(900).await;
    assert!(!world.github.calls().contains_key("rerun_failed_jobs"));
    assert_eq!(world.request(&first).await.status.rerun_requested_at, None);
}

#[tokio::test(start_paused = true)]
async fn a_github_that_refuses_a_re_run_is_told_of_and_asked_no_more() {
    let world = World::with_github().watching(GitHubWatch { rerun_lost: true, ..watch() });
    robbed_run(&world).await;
    world.github.outage_of("rerun_failed_jobs", Some(GitHubError::Denied("no".into())));
    world.sleep(900).await;
    assert_eq!((world.github.calls()["rerun_failed_jobs"], events(&world, "RerunRefused")), (1, 1));
}
