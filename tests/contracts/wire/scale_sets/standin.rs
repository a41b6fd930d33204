//! The suite on our adapter before our stand-in, over HTTP, and on the fake; and what only a wire can do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use runyard_core::ports::github::{JobConfig, Scope};
use runyard_core::ports::{GitHub as _, ScaleSets};
use runyard_fakes::{FakeScaleSets, ManualClock};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub, RestScaleSets};
use runyard_standin::github::{Behaviour, JobSpec, SetBehaviour, Settings, StandIn};
use serde_json::{Value, json};

use super::letter;
use super::suite::{World, holds, quick, scope, spec};

fn begin() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Our adapter before our stand-in.
pub(super) struct OverHttp {
    pub(super) stand_in: StandIn,
    pub(super) github: Arc<RestGitHub>,
    pub(super) sets: RestScaleSets,
    time: Arc<Mutex<Timestamp>>,
    http: reqwest::Client,
    /// The runners that are connected: credential, session and job of each.
    connected: Mutex<BTreeMap<u64, (String, u64, u64)>>,
}

impl OverHttp {
    pub(super) async fn new(behaviour: SetBehaviour) -> Self {
        let time = Arc::new(Mutex::new(begin()));
        let (of_stand_in, of_adapter) = (Arc::clone(&time), Arc::clone(&time));
        let settings = Settings {
            listener: StandIn::bind(None).await.unwrap(),
            dir: None,
            executable: "/nowhere/runyard".into(),
            clock: Arc::new(move || *of_stand_in.lock().unwrap()),
            behaviour: Behaviour { scale_sets: behaviour, ..Behaviour::default() },
        };
        let stand_in = StandIn::start(settings).await.unwrap();
        let api = ApiUrl::parse(&stand_in.url()).unwrap();
        let credential = Credential::Token(stand_in.api_token().to_owned());
        let clock = Arc::new(move || *of_adapter.lock().unwrap());
        let github = Arc::new(RestGitHub::new(api, credential, Duration::from_secs(20), clock).unwrap());
        let sets = RestScaleSets::new(Arc::clone(&github));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { stand_in, github, sets, time, http, connected: Mutex::default() }
    }

    async fn call(&self, path: &str, credential: &str, body: Value) -> Value {
        let url = format!("{}/_runner/{path}", self.stand_in.url());
        let answer = self.http.post(url).bearer_auth(credential).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.json().await.unwrap_or_default()
    }

    /// How often registration tokens and service tokens were had.
    fn exchanges(&self) -> (u64, u64) {
        let calls = self.stand_in.calls();
        let of = |path: &str| {
            calls.iter().filter(|(call, _)| call.path.ends_with(path)).map(|(_, count)| *count).sum()
        };
        (of("/registration-token"), of("/runner-registration"))
    }
}

impl World for OverHttp {
    fn sets(&self) -> &dyn ScaleSets {
        &self.sets
    }

    fn behave(&self, behaviour: SetBehaviour) {
        self.stand_in.behave(Behaviour { scale_sets: behaviour, ..Behaviour::default() }).unwrap();
    }

    fn pass(&self, time: Duration) {
        *self.time.lock().unwrap() += time;
    }

    fn queue(&self, name: &str, label: &str) {
        let job = JobSpec { name: name.into(), runs_on: vec![label.into()], ..JobSpec::default() };
        self.stand_in.enqueue_run("octo/app", None, "ci", vec![job], false).unwrap();
    }

    async fn begin(&self, runner: &JobConfig) {
        let files: Value = serde_json::from_slice(&BASE64_STANDARD.decode(&runner.encoded).unwrap()).unwrap();
        let credentials = BASE64_STANDARD.decode(files[".credentials"].as_str().unwrap()).unwrap();
        let credentials: Value = serde_json::from_slice(&credentials).unwrap();
        let credential = credentials["credential"].as_str().unwrap().to_owned();
        let opened = self.call("session", &credential, json!({"version": "2.999.0"})).await;
        let session = opened["session"].as_u64().unwrap();
        let job = self.call("job", &credential, json!({"session": session})).await;
        let job = job["job_id"].as_u64().unwrap();
        self.call("job/begin", &credential, json!({"session": session, "job_id": job})).await;
        self.connected.lock().unwrap().insert(runner.runner_id, (credential, session, job));
    }

    async fn end(&self, runner: &JobConfig) {
        let (credential, session, job) = self.connected.lock().unwrap().remove(&runner.runner_id).unwrap();
        let body =
            json!({"session": session, "job_id": job, "conclusion": "success", "exit_code": 0, "log": ""});
        self.call("job/finish", &credential, body).await;
    }

    fn evict(&self, set: u64) {
        self.stand_in.change_scale_sets(|service, _| service.evict(set)).unwrap();
    }

    fn expire(&self) {
        self.stand_in.change_scale_sets(|service, _| service.expire_tokens()).unwrap();
    }

    fn vanish(&self, set: u64) {
        let outcome =
            self.stand_in.change_scale_sets(|service, now| service.delete_set("octo/app", set, now));
        outcome.unwrap().unwrap();
    }
}

struct InMemory {
    sets: FakeScaleSets,
    clock: Arc<ManualClock>,
}

impl InMemory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(begin()));
        let sets = FakeScaleSets::new(clock.clone());
        sets.behave(quick());
        Self { sets, clock }
    }
}

impl World for InMemory {
    fn sets(&self) -> &dyn ScaleSets {
        &self.sets
    }

    fn behave(&self, behaviour: SetBehaviour) {
        self.sets.behave(behaviour);
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn queue(&self, name: &str, label: &str) {
        self.sets.queue_job("octo", "app", 41, name, &[label]);
    }

    async fn begin(&self, runner: &JobConfig) {
        assert!(self.sets.start_job(runner.runner_id).is_some());
    }

    async fn end(&self, runner: &JobConfig) {
        let busy = self.sets.runners().into_iter().find(|own| own.id == runner.runner_id);
        self.sets.finish_job(busy.unwrap().job.unwrap(), "succeeded");
    }

    fn evict(&self, set: u64) {
        self.sets.evict(set);
    }

    fn expire(&self) {
        self.sets.expire_tokens();
    }

    fn vanish(&self, set: u64) {
        self.sets.vanish(set);
    }
}

#[tokio::test]
async fn our_adapter_and_our_stand_in_keep_the_contract() {
    holds(async || OverHttp::new(quick()).await).await;
}

#[tokio::test]
async fn our_adapter_reads_answers_with_a_byte_order_mark() {
    let world = OverHttp::new(SetBehaviour { byte_order_mark: true, ..quick() }).await;
    let set = world.sets.create(&scope(), &spec("small")).await.unwrap();
    let session = world.sets.open(&scope(), set.id, "yard").await.unwrap();
    assert_eq!(world.sets.message(&session, None, 1).await.unwrap(), None);
    world.queue("build", "small");
    assert_eq!(world.sets.message(&session, None, 1).await.unwrap().unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn the_fake_keeps_the_contract() {
    holds(async || InMemory::new()).await;
}

#[tokio::test]
async fn an_answer_without_a_body_and_a_session_without_a_queue_are_no_use() {
    let world = OverHttp::new(quick()).await;
    let set = world.sets.create(&scope(), &spec("small")).await.unwrap();
    let session = world.sets.open(&scope(), set.id, "yard").await.unwrap();
    world.queue("build", "small");
    world.behave(SetBehaviour { no_queue_url: true, ..quick() });
    let error = world.sets.renew(&session).await.unwrap_err();
    assert!(error.to_string().contains("no address"), "{error}");
    let session = {
        world.behave(quick());
        world.sets.renew(&session).await.unwrap()
    };
    world.behave(SetBehaviour { no_body: true, ..quick() });
    let error = world.sets.message(&session, None, 1).await.unwrap_err();
    assert!(error.to_string().contains("the answer is empty"), "{error}");
    assert_eq!(letter(&world.sets.find(&scope(), 1, "small").await), 'u');
    assert_eq!(letter(&world.sets.job_config(&scope(), set.id, "r", "_work").await), 'u');
}

#[tokio::test]
async fn the_service_s_token_is_kept_and_renewed_before_its_end_and_once_it_is_refused() {
    let world = OverHttp::new(quick()).await;
    let other = Scope::Organization { owner: "octo".into() };
    for _ in 0..3 {
        world.sets.find(&scope(), 1, "small").await.unwrap();
    }
    assert_eq!(world.exchanges(), (1, 1));
    world.sets.find(&other, 1, "small").await.unwrap();
    assert_eq!(world.exchanges(), (2, 2), "each scope has its own");
    world.pass(Duration::from_secs(3600 - 61));
    world.sets.find(&scope(), 1, "small").await.unwrap();
    assert_eq!(world.exchanges(), (2, 2));
    world.pass(Duration::from_secs(1));
    world.sets.find(&scope(), 1, "small").await.unwrap();
    assert_eq!(world.exchanges(), (3, 3), "a minute before its end");
    world.stand_in.revoke_service_tokens().unwrap();
    world.sets.find(&scope(), 1, "small").await.unwrap();
    assert_eq!(world.exchanges(), (4, 4));
}

#[tokio::test]
async fn the_rest_view_has_the_runners_of_a_set_and_removes_them() {
    let world = OverHttp::new(quick()).await;
    let set = world.sets.create(&scope(), &spec("small")).await.unwrap();
    let session = world.sets.open(&scope(), set.id, "yard").await.unwrap();
    assert_eq!(world.sets.message(&session, None, 5).await.unwrap(), None);
    world.queue("first", "small");
    world.queue("second", "small");
    let (one, two) = (
        world.sets.job_config(&scope(), set.id, "r1", "_work").await.unwrap(),
        world.sets.job_config(&scope(), set.id, "r2", "_work").await.unwrap(),
    );
    // The second runner comes first, and takes the first job.
    world.begin(&two).await;
    let shown = world.github.runner(&scope(), "r2").await.unwrap().unwrap();
    assert_eq!((shown.id, shown.online, shown.busy), (two.runner_id, true, true));
    assert_eq!(shown.labels, ["small", "linux"]);
    let idle = world.github.runner(&scope(), "r1").await.unwrap().unwrap();
    assert!(!idle.online && !idle.busy);
    world.github.remove_runner(&scope(), one.runner_id).await.unwrap();
    assert_eq!(world.sets.runner(&scope(), "r1").await.unwrap(), None);
    world.sets.delete(&scope(), set.id).await.unwrap();
    world.end(&two).await;
    assert_eq!(world.stand_in.runners().unwrap().len(), 0);
}
