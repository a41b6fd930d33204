//! Witnesses, so that our client and our double do not merely agree with each other: the emulator of the crate
//! `scaleset` before our adapter, and its client before our stand-in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::ports::ScaleSets as _;
use runyard_core::ports::github::Scope;
use runyard_core::ports::scale_sets::{JobNews, SetSpec};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub, RestScaleSets};
use runyard_standin::github::SetBehaviour;
use scaleset::testing::{DEFAULT_PAT, Emulator, Endpoint};
use scaleset::{
    Client, Credentials, JitRunnerSetting, JobRequestId, RunnerGroupId, RunnerScaleSetSpec, ScaleSetId,
};

use super::faults::WORDS;
use super::letter;
use super::standin::OverHttp;
use super::suite::{World as _, quick};
use crate::wire::proxy::{Fault, before};

#[expect(clippy::disallowed_methods, reason = "the emulator's tokens end by the wall clock")]
fn wall_clock() -> Timestamp {
    Timestamp::now()
}

fn adapter(emulator: &Emulator) -> RestScaleSets {
    let api = ApiUrl::parse(&format!("{}/api/v3", emulator.uri())).unwrap();
    let credential = Credential::Token(DEFAULT_PAT.to_owned());
    let github = RestGitHub::new(api, credential, Duration::from_secs(20), Arc::new(wall_clock)).unwrap();
    RestScaleSets::new(Arc::new(github))
}

#[tokio::test]
async fn our_adapter_serves_a_job_of_an_emulator_that_others_wrote() {
    let emulator = Emulator::builder().long_poll(Duration::from_millis(50)).runner_group("gpu").start().await;
    let (github, org) = (adapter(&emulator), Scope::Organization { owner: "org".into() });
    assert_eq!(github.group(&org, "gpu").await.unwrap(), Some(2));
    let spec = SetSpec { name: "small".into(), labels: vec!["small".into()], group_id: 2 };
    let set = github.create(&org, &spec).await.unwrap();
    assert_eq!((github.find(&org, 2, "small").await.unwrap(), &set.spec), (Some(set.clone()), &spec));
    assert!(emulator.state().scale_sets[0].runner_setting.disable_update);
    assert_eq!(letter(&github.create(&org, &spec).await), 'k');
    let session = github.open(&org, set.id, "yard").await.unwrap();
    assert_eq!(letter(&github.open(&org, set.id, "yard").await), 'h');
    assert_eq!(github.message(&session, None, 0).await.unwrap(), None);
    assert_eq!(emulator.requests_to(Endpoint::GetMessage)[0].max_capacity, Some(1));
    let theirs = ScaleSetId(i64::try_from(set.id).unwrap());
    let job = emulator.queue_job(theirs, ["small"]);
    let offered = github.message(&session, None, 5).await.unwrap().unwrap();
    assert_eq!((offered.jobs[0].news, offered.jobs[0].owner.as_str()), (JobNews::Available, "org"));
    let number = offered.jobs[0].runner_request_id;
    assert_eq!(JobRequestId(i64::try_from(number).unwrap()), job);
    github.acquire(&session, &[number]).await.unwrap();
    github.delete_message(&session, offered.id).await.unwrap();
    let assigned = github.message(&session, Some(offered.id), 5).await.unwrap().unwrap();
    assert_eq!((assigned.jobs[0].news, assigned.statistics.assigned), (JobNews::Assigned, 1));
    github.delete_message(&session, assigned.id).await.unwrap();
    let runner = github.job_config(&org, set.id, "r1", "_work").await.unwrap();
    assert_eq!(letter(&github.job_config(&org, set.id, "r1", "_work").await), 'k');
    assert_eq!(github.runner(&org, "r1").await.unwrap().unwrap().id, runner.runner_id);
    emulator.start_job(job, Some("r1"));
    assert_eq!(letter(&github.remove_runner(&org, runner.runner_id).await), 'b');
    emulator.complete_job(job, None);
    let told = github.message(&session, Some(assigned.id), 5).await.unwrap().unwrap();
    let kinds: Vec<JobNews> = told.jobs.iter().map(|job| job.news).collect();
    assert_eq!(kinds, [JobNews::Started, JobNews::Completed]);
    assert_eq!((told.jobs[1].runner.as_str(), told.jobs[1].result.as_str()), ("r1", "succeeded"));
    github.delete_message(&session, told.id).await.unwrap();
    assert_eq!(github.runner_by_id(&org, runner.runner_id).await.unwrap(), None);
    github.remove_runner(&org, runner.runner_id).await.unwrap();
    github.close(&session).await.unwrap();
    github.close(&session).await.unwrap();
    github.delete(&org, set.id).await.unwrap();
    github.delete(&org, set.id).await.unwrap();
    let state = emulator.state();
    assert!(state.queues_drained() && state.scale_sets.is_empty() && state.sessions.is_empty());
}

#[tokio::test]
async fn our_adapter_meets_the_failures_of_that_emulator() {
    let emulator = Emulator::builder().long_poll(Duration::from_millis(50)).start().await;
    let (github, org) = (adapter(&emulator), Scope::Organization { owner: "org".into() });
    let spec = SetSpec { name: "small".into(), labels: vec!["small".into()], group_id: 1 };
    let set = github.create(&org, &spec).await.unwrap();
    let theirs = ScaleSetId(i64::try_from(set.id).unwrap());
    let session = github.open(&org, set.id, "yard").await.unwrap();
    emulator.expire_admin_tokens();
    assert_eq!(github.find(&org, 1, "small").await.unwrap(), Some(set.clone()));
    emulator.expire_queue_token(theirs);
    assert_eq!(letter(&github.message(&session, None, 5).await), 'e');
    let session = github.renew(&session).await.unwrap();
    assert_eq!(github.message(&session, None, 5).await.unwrap(), None);
    emulator.expire_session(theirs);
    assert_eq!(letter(&github.message(&session, None, 5).await), 'o');
    assert_eq!(letter(&github.renew(&session).await), 'o');
    assert_eq!(letter(&github.open(&org, set.id + 7, "yard").await), 'n');
}

/// Their client before our stand-in. It knows an API on a host of its own (`api.github.localhost`); the stand-in answers
/// under its address only, so a peer that spoils nothing stands between.
async fn client(world: &OverHttp) -> Client {
    let peer = before(&world.stand_in.url(), "nothing", Fault::Internal, 0, &WORDS).await;
    let peer: SocketAddr = peer.trim_start_matches("http://").parse().unwrap();
    let http = scaleset::http_client_builder().no_proxy().resolve("api.github.localhost", peer);
    let url = format!("http://github.localhost:{}/octo/app", peer.port());
    let credentials = Credentials::personal_access_token(world.stand_in.api_token()).unwrap();
    let builder = Client::builder(url, credentials).allow_http(true);
    builder.http_client(http.build().unwrap()).build().unwrap()
}

#[tokio::test]
async fn a_client_that_others_wrote_serves_a_job_of_our_stand_in() {
    for behaviour in [quick(), SetBehaviour { byte_order_mark: true, ..quick() }] {
        let world = OverHttp::new(behaviour).await;
        let client = client(&world).await;
        let group = client.get_runner_group_by_name("default").await.unwrap().unwrap();
        assert!(group.id == RunnerGroupId::DEFAULT && group.is_default);
        let spec = RunnerScaleSetSpec::new("small").runner_group_id(group.id).labels(["small", "linux"]);
        let set = client.create_runner_scale_set(&spec.disable_update(true)).await.unwrap();
        assert!(set.runner_setting.disable_update);
        assert_eq!(client.get_runner_scale_set_by_id(set.id).await.unwrap(), set);
        assert_eq!(client.get_runner_scale_set_by_name(group.id, "small").await.unwrap().unwrap().id, set.id);
        let session = client.create_message_session(set.id, "witness").await.unwrap();
        assert!(client.create_message_session(set.id, "other").await.unwrap_err().is_conflict());
        assert!(session.get_message(None, 5).await.unwrap().is_none());
        world.queue("build", "small");
        let assigned = session.get_message(None, 5).await.unwrap().unwrap();
        let job = &assigned.jobs_assigned().next().unwrap().job;
        assert_eq!((job.job_display_name.as_str(), job.repository_name.as_str()), ("build", "app"));
        assert_eq!(assigned.statistics.unwrap().total_assigned_jobs, 1);
        session.delete_message(assigned.id).await.unwrap();
        // Their session renews itself.
        world.expire();
        assert!(session.get_message(Some(assigned.id), 5).await.unwrap().is_none());
        let made = client.generate_jit_config(set.id, &JitRunnerSetting::new("r1")).await.unwrap();
        let again = client.generate_jit_config(set.id, &JitRunnerSetting::new("r1")).await.unwrap_err();
        assert!(again.is_runner_exists(), "{again}");
        let runner = made.runner.clone().unwrap();
        assert_eq!(client.get_runner_by_name("r1").await.unwrap(), Some(runner.clone()));
        assert_eq!(client.get_runner(runner.id).await.unwrap(), runner);
        let config = ours(&made);
        world.begin(&config).await;
        let busy = client.remove_runner(runner.id).await.unwrap_err();
        assert!(busy.is_job_still_running(), "{busy}");
        world.end(&config).await;
        let told = session.get_message(Some(assigned.id), 5).await.unwrap().unwrap();
        assert_eq!(told.jobs_started().next().unwrap().runner_name, "r1");
        assert_eq!(told.jobs_completed().next().unwrap().result, "succeeded");
        session.delete_message(told.id).await.unwrap();
        assert!(client.remove_runner(runner.id).await.unwrap_err().is_runner_not_found());
        session.close().await.unwrap();
        client.delete_runner_scale_set(set.id).await.unwrap();
        assert!(client.get_runner_scale_set_by_id(set.id).await.unwrap_err().is_not_found());
    }
}

#[tokio::test]
async fn jobs_to_acquire_are_acquired_by_a_client_that_others_wrote() {
    let world = OverHttp::new(SetBehaviour { acquires: true, ..quick() }).await;
    let client = client(&world).await;
    let set = client.create_runner_scale_set(&RunnerScaleSetSpec::new("small")).await.unwrap();
    let session = client.create_message_session(set.id, "witness").await.unwrap();
    assert!(session.get_message(None, 5).await.unwrap().is_none());
    world.queue("build", "small");
    let offered = session.get_message(None, 5).await.unwrap().unwrap();
    let number = offered.jobs_available().next().unwrap().job.runner_request_id;
    assert_eq!(session.acquire_jobs(&[number]).await.unwrap(), [number]);
    session.delete_message(offered.id).await.unwrap();
    let assigned = session.get_message(Some(offered.id), 5).await.unwrap().unwrap();
    assert_eq!(assigned.jobs_assigned().next().unwrap().job.runner_request_id, number);
}

/// Their configuration of a runner as ours.
fn ours(theirs: &scaleset::JitRunnerConfig) -> runyard_core::ports::github::JobConfig {
    use scaleset::ExposeSecret as _;
    runyard_core::ports::github::JobConfig {
        runner_id: u64::try_from(theirs.runner.as_ref().unwrap().id.get()).unwrap(),
        encoded: theirs.encoded_jit_config.expose_secret().to_owned(),
    }
}
