//! The stand-in as its clients see it: the adapter that also talks to the real GitHub, and bare HTTP.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use runyard_core::ports::github::{GitHub, GitHubError, RunState, RunnerSpec, Scope, Waiting};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub};
use runyard_standin::github::{Behaviour, Conclusion, EndOfLife, JobSpec, JobStatus, Settings, StandIn};

const REPO: &str = "octo/app";

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

async fn start(dir: &Path) -> StandIn {
    let settings = Settings {
        listener: StandIn::bind(Some(dir)).await.unwrap(),
        dir: Some(dir.to_owned()),
        executable: "/nowhere/runyard".into(),
        clock: Arc::new(now),
        behaviour: Behaviour::default(),
    };
    StandIn::start(settings).await.unwrap()
}

/// The same, with a clock that is moved by hand.
async fn start_at(dir: &Path, behaviour: Behaviour) -> (StandIn, Arc<Mutex<Timestamp>>) {
    let time = Arc::new(Mutex::new(now()));
    let clock = Arc::clone(&time);
    let settings = Settings {
        listener: StandIn::bind(Some(dir)).await.unwrap(),
        dir: Some(dir.to_owned()),
        executable: "/nowhere/runyard".into(),
        clock: Arc::new(move || *clock.lock().unwrap()),
        behaviour,
    };
    (StandIn::start(settings).await.unwrap(), time)
}

fn adapter(stand_in: &StandIn) -> RestGitHub {
    let credential = Credential::TokenFile(stand_in.token_file().unwrap());
    let api = ApiUrl::parse(&stand_in.url()).unwrap();
    RestGitHub::new(api, credential, Duration::from_secs(5), Arc::new(now)).unwrap()
}

fn repository() -> Scope {
    Scope::Repository { owner: "octo".to_owned(), name: "app".to_owned() }
}

fn organisation() -> Scope {
    Scope::Organization { owner: "octo".to_owned() }
}

fn spec(name: &str, label: &str) -> RunnerSpec {
    RunnerSpec {
        name: name.to_owned(),
        labels: vec![label.to_owned()],
        group_id: 1,
        work_folder: "_work".to_owned(),
    }
}

fn job(label: &str) -> JobSpec {
    JobSpec { name: "build".to_owned(), runs_on: vec![label.to_owned()], steps: vec![], ..JobSpec::default() }
}

/// A runner played by hand.
struct Player {
    http: reqwest::Client,
    url: String,
    credential: String,
    session: u64,
}

impl Player {
    async fn register(stand_in: &StandIn, token: &str, name: &str, label: &str) -> Self {
        let mut player = Self {
            // A fresh connection each time: a kept one could still reach a stand-in that was dropped.
            http: reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap(),
            url: stand_in.url(),
            credential: String::new(),
            session: 0,
        };
        let body = json!({"token": token, "scope": REPO, "name": name, "labels": [label],
            "no_default_labels": true, "replace": false, "ephemeral": false});
        player.credential = player.post("register", body).await.1["credential"].as_str().unwrap().to_owned();
        player
    }

    async fn connect(mut self) -> Self {
        self.session =
            self.post("session", json!({"version": "2.999.0"})).await.1["session"].as_u64().unwrap();
        self
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}/_runner/{path}", self.url);
        let answer = self.http.post(url).bearer_auth(&self.credential).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    /// Takes the next job and begins it.
    async fn take(&self) -> u64 {
        let (status, job) = self.post("job", json!({"session": self.session})).await;
        assert_eq!(status, 200, "{job}");
        let id = job["job_id"].as_u64().unwrap();
        assert_eq!(self.post("job/begin", json!({"session": self.session, "job_id": id})).await.0, 204);
        id
    }

    async fn finish(&self, job: u64) -> u16 {
        let body = json!({"session": self.session, "job_id": job, "conclusion": "success", "exit_code": 0, "log": "hi"});
        self.post("job/finish", body).await.0
    }
}

#[tokio::test]
async fn every_verb_of_the_port_works_for_repositories_and_organisations() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let github = adapter(&stand_in);
    for (scope, url) in [(repository(), "/octo/app"), (organisation(), "/octo")] {
        assert_eq!(github.runner_url(&scope), format!("{}{url}", stand_in.url()));
        let registration = github.registration_token(&scope).await.unwrap();
        let removal = github.removal_token(&scope).await.unwrap();
        assert_ne!(registration.value, removal.value);
        assert_eq!(registration.expires_at, now() + Duration::from_secs(3600));
        let config = github.job_config(&scope, &spec("once", "x")).await.unwrap();
        let taken = github.job_config(&scope, &spec("once", "x")).await;
        assert!(matches!(taken, Err(GitHubError::NameTaken(_))), "{taken:?}");
        let found = github.runner(&scope, "once").await.unwrap().unwrap();
        assert_eq!((found.id, found.online, found.busy), (config.runner_id, false, false));
        assert_eq!(found.labels, ["x"]);
        assert_eq!(github.runner(&scope, "twice").await.unwrap(), None);
        github.remove_runner(&scope, found.id).await.unwrap();
        github.remove_runner(&scope, found.id).await.unwrap();
        assert_eq!(github.runners(&scope).await.unwrap(), []);
    }
    let run = stand_in.enqueue_run(REPO, Some(77), "w", vec![], true).unwrap().id;
    assert_eq!(github.run("octo", "app", run, Waiting::Machine).await, Ok(RunState::Active { attempt: 1 }));
    stand_in.add_jobs(run, vec![], false).unwrap();
    assert_eq!(
        github.run("octo", "app", run, Waiting::Machine).await,
        Ok(RunState::Completed { attempt: 1 })
    );
    assert!(matches!(
        github.run("octo", "other", run, Waiting::Machine).await,
        Err(GitHubError::NotFound(_))
    ));
}

#[tokio::test]
async fn a_list_longer_than_a_page_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    for some in 0..5 {
        // One adapter alone would keep within what GitHub allows it in a minute.
        let github = adapter(&stand_in);
        for index in 0..41 {
            github.job_config(&repository(), &spec(&format!("r{some}-{index}"), "x")).await.unwrap();
        }
    }
    assert_eq!(adapter(&stand_in).runners(&repository()).await.unwrap().len(), 205);
    assert_eq!(stand_in.offline_runners().unwrap().len(), 205);
}

#[tokio::test]
async fn a_wrong_credential_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let github = adapter(&stand_in);
    std::fs::write(stand_in.token_file().unwrap(), "wrong").unwrap();
    assert!(matches!(github.runners(&repository()).await, Err(GitHubError::Denied(_))));
    let bare = reqwest::get(format!("{}/_workflow/runs/1", stand_in.url())).await.unwrap();
    assert_eq!(bare.status(), 401);
}

#[tokio::test]
async fn a_job_reaches_the_runner_with_its_label_and_a_busy_runner_stays() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let github = adapter(&stand_in);
    let token = github.registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&stand_in, &token, "r", "run-1").await.connect().await;
    stand_in.enqueue_run(REPO, None, "w", vec![job("run-2")], false).unwrap();
    let run = stand_in.enqueue_run(REPO, None, "w", vec![job("run-1")], false).unwrap().id;
    let taken = player.take().await;
    assert_eq!(stand_in.jobs(run).unwrap()[0].id, taken);
    let seen = github.runner(&repository(), "r").await.unwrap().unwrap();
    assert!(seen.online && seen.busy);
    assert!(matches!(github.remove_runner(&repository(), seen.id).await, Err(GitHubError::Busy(_))));
    assert_eq!(player.finish(taken).await, 204);
    let ended = stand_in.finished_jobs(run).await.unwrap();
    assert_eq!(ended[0].status, JobStatus::Completed(Conclusion::Success));
    assert_eq!(
        (ended[0].runner_name.as_deref(), ended[0].exit_code, ended[0].log.as_str()),
        (Some("r"), Some(0), "hi")
    );
    github.remove_runner(&repository(), seen.id).await.unwrap();
    assert_eq!(player.post("heartbeat", json!({"session": player.session})).await.0, 401);
}

#[tokio::test]
async fn the_busy_flag_is_late_forgets_a_job_and_lingers() {
    let dir = tempfile::tempdir().unwrap();
    let (stand_in, time) = start_at(dir.path(), Behaviour::of_github_com()).await;
    let pass = |seconds: u64| *time.lock().unwrap() += Duration::from_secs(seconds);
    let github = adapter(&stand_in);
    let token = github.registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&stand_in, &token, "r", "x").await.connect().await;
    let run = stand_in.enqueue_run(REPO, None, "w", vec![job("x")], false).unwrap().id;
    let taken = player.take().await;
    let busy = async || github.runner(&repository(), "r").await.unwrap().unwrap().busy;
    let alive =
        async || assert_eq!(player.post("heartbeat", json!({"session": player.session})).await.0, 200);
    assert!(!busy().await, "the flag is late");
    for _ in 0..6 {
        pass(10);
        alive().await;
    }
    assert!(busy().await);
    for _ in 0..24 {
        pass(10);
        alive().await;
    }
    assert!(!busy().await, "and false in the middle of the job");
    for _ in 0..6 {
        pass(10);
        alive().await;
    }
    assert!(busy().await);
    assert_eq!(player.finish(taken).await, 204);
    let id = stand_in.runners().unwrap()[0].id;
    assert!(matches!(github.remove_runner(&repository(), id).await, Err(GitHubError::Busy(_))), "it lingers");
    pass(600);
    github.remove_runner(&repository(), id).await.unwrap();
    assert_eq!(stand_in.jobs(run).unwrap()[0].status, JobStatus::Completed(Conclusion::Success));
}

#[tokio::test]
async fn a_runner_whose_job_github_forgot_is_removed_and_the_job_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (stand_in, _) = start_at(dir.path(), Behaviour::of_github_com()).await;
    let github = adapter(&stand_in);
    let token = github.registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&stand_in, &token, "r", "x").await.connect().await;
    let run = stand_in.enqueue_run(REPO, None, "w", vec![job("x")], false).unwrap().id;
    player.take().await;
    let id = stand_in.runners().unwrap()[0].id;
    github.remove_runner(&repository(), id).await.unwrap();
    assert_eq!(stand_in.jobs(run).unwrap()[0].status, JobStatus::Completed(Conclusion::Lost));
}

#[tokio::test]
async fn packages_and_the_end_of_their_support_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (stand_in, _) = start_at(dir.path(), Behaviour::of_github_com()).await;
    let http = reqwest::Client::new();
    let ask = async |path: &str| {
        let url = format!("{}/repos/octo/app/actions/runners/{path}", stand_in.url());
        let answer = http.get(url).bearer_auth(stand_in.api_token()).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, listed) = ask("downloads").await;
    assert_eq!((status, &listed[0]["sha256_checksum"]), (200, &json!(stand_in.package_sha256())));
    let told = json!({"runner_version": "2.336.0", "runtime_deprecates_at": "2026-11-05T08:04:55Z"});
    assert_eq!(ask("deprecations/2.336.0").await, (200, told));
    assert_eq!(ask("deprecations/2.337.0").await, (200, json!({"runner_version": "2.337.0"})));
    assert_eq!(ask("deprecations/9.9.9").await.0, 404);
    assert_eq!(EndOfLife::known().len(), 11);
}

#[tokio::test]
async fn a_listening_runner_takes_a_job_by_a_label_that_is_set_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let token = adapter(&stand_in).registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&stand_in, &token, "r", "at-rest").await.connect().await;
    let id = stand_in.runners().unwrap()[0].id;
    let run = stand_in.enqueue_run(REPO, None, "w", vec![job("run-1")], false).unwrap().id;
    let waiting = tokio::spawn(async move { player.take().await });
    let http = reqwest::Client::new();
    let set = async |id: u64, body: Value| {
        let url = format!("{}/repos/octo/app/actions/runners/{id}/labels", stand_in.url());
        let answer = http.put(url).bearer_auth(stand_in.api_token()).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    assert_eq!(set(id + 1000, json!({"labels": ["run-1"]})).await.0, 404);
    assert_eq!(set(id, json!({"labels": ["a,b"]})).await.0, 422);
    assert_eq!(set(id, json!({"label": ["run-1"]})).await.0, 422);
    assert_eq!(stand_in.runners().unwrap()[0].labels[0].name, "at-rest", "what is refused changes nothing");
    let (status, said) = set(id, json!({"labels": ["run-1"]})).await;
    assert_eq!(
        (status, &said["total_count"], &said["labels"][0]["type"]),
        (200, &json!(1), &json!("custom"))
    );
    let taken = tokio::time::timeout(Duration::from_secs(600), waiting).await.unwrap().unwrap();
    assert_eq!(stand_in.jobs(run).unwrap()[0].id, taken);
}

#[tokio::test]
async fn a_waiting_runner_is_woken_by_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let token = adapter(&stand_in).registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&stand_in, &token, "r", "x").await.connect().await;
    let waiting = tokio::spawn(async move { player.take().await });
    let run = stand_in.enqueue_run(REPO, None, "w", vec![job("x")], false).unwrap().id;
    let taken = tokio::time::timeout(Duration::from_secs(600), waiting).await.unwrap().unwrap();
    assert_eq!(stand_in.jobs(run).unwrap()[0].id, taken);
}

#[tokio::test]
async fn a_killed_stand_in_comes_back_with_its_runners_and_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path()).await;
    let (port, secret) = (first.address().port(), first.api_token().to_owned());
    let token = adapter(&first).registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&first, &token, "r", "x").await.connect().await;
    let jobs = vec![job("x"), job("x")];
    let run = first.enqueue_run(REPO, Some(5), "w", jobs, false).unwrap().id;
    let taken = player.take().await;
    // Everything answered so far is on disk: nothing is written on the way out.
    drop(first);
    let second = start_again(dir.path(), port).await;
    assert_eq!(second.api_token(), secret);
    let statuses: Vec<_> = second.jobs(run).unwrap().iter().map(|j| j.status).collect();
    assert_eq!(statuses, [JobStatus::InProgress, JobStatus::Queued]);
    assert!(second.runners().unwrap()[0].online());
    assert_eq!(player.finish(taken).await, 204);
    let next = player.take().await;
    assert_ne!(next, taken);
    assert!(Player::register(&second, &token, "s", "x").await.credential.len() > 20, "tokens survive, too");
}

async fn start_again(dir: &Path, port: u16) -> StandIn {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    loop {
        // The aborted server lets go of its port a moment later.
        let stand_in = start(dir).await;
        if stand_in.address().port() == port {
            return stand_in;
        }
        assert!(tokio::time::Instant::now() < deadline, "the port was not free again");
        stand_in.stop().await.unwrap();
        std::fs::write(dir.join("github-port"), port.to_string()).unwrap();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_package_is_served_with_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let archive = reqwest::get(stand_in.package_url()).await.unwrap().bytes().await.unwrap();
    let digest: String = Sha256::digest(&archive).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(digest, stand_in.package_sha256());
}

#[tokio::test]
async fn what_it_stores_is_for_its_owner_only_and_a_damaged_state_is_not_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    stand_in.enqueue_run(REPO, None, "w", vec![], false).unwrap();
    for name in ["github.json", "github-token"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(stand_in);
    std::fs::write(dir.path().join("github.json"), "{").unwrap();
    let settings = Settings {
        listener: StandIn::bind(None).await.unwrap(),
        dir: Some(dir.path().to_owned()),
        executable: "/nowhere/runyard".into(),
        clock: Arc::new(now),
        behaviour: Behaviour::default(),
    };
    let error = StandIn::start(settings).await.err().unwrap().to_string();
    assert!(error.contains("github.json"), "{error}");
}

#[tokio::test]
async fn it_serves_on_loopback_only() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let settings = Settings {
        listener,
        dir: None,
        executable: "/nowhere/runyard".into(),
        clock: Arc::new(now),
        behaviour: Behaviour::default(),
    };
    assert!(StandIn::start(settings).await.is_err());
}

#[tokio::test]
async fn a_workflow_can_be_played_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let http = reqwest::Client::new();
    let runs = format!("{}/_workflow/runs", stand_in.url());
    let post = async |url: &str, body: Value| {
        let answer = http.post(url).bearer_auth(stand_in.api_token()).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
    };
    let body = json!({"repository": REPO, "jobs": [{"name": "b", "runs_on": ["x"], "steps": ["true"]}]});
    let (status, run) = post(&runs, body).await;
    assert_eq!((status, &run["jobs"][0]["status"], &run["over"]), (201, &json!("queued"), &json!(false)));
    let one = format!("{runs}/{}", run["run"]["id"]);
    assert_eq!(post(&format!("{one}/cancel"), json!({})).await.0, 202);
    let seen: Value =
        http.get(&one).bearer_auth(stand_in.api_token()).send().await.unwrap().json().await.unwrap();
    assert_eq!((&seen["over"], &seen["jobs"][0]["conclusion"]), (&json!(true), &json!("cancelled")));
    let (status, refused) = post(&runs, json!({"repository": "octo"})).await;
    assert_eq!(status, 422);
    assert!(refused["message"].as_str().unwrap().contains("owner/name"), "{refused}");
    let (status, refused) = post(&runs, json!({"repository": REPO, "job": []})).await;
    assert!(status == 422 && refused["message"].as_str().unwrap().contains("`job`"), "{refused}");
}

/// Asks the stand-in everything of GitHub's API that it answers, and writes down each exchange: one JSON object a line.
/// `tests/system/github_openapi/check.sh` compares them with GitHub's published description.
#[tokio::test]
#[ignore = "writes a file for tests/system/github_openapi/check.sh, which runs it"]
#[expect(clippy::disallowed_methods, reason = "how the script says where the file goes")]
async fn exchanges_for_the_published_description() {
    let path =
        std::env::var("RUNYARD_GITHUB_EXCHANGES").expect("set by tests/system/github_openapi/check.sh");
    let dir = tempfile::tempdir().unwrap();
    let stand_in = start(dir.path()).await;
    let token = adapter(&stand_in).registration_token(&repository()).await.unwrap().value;
    let player = Player::register(&stand_in, &token, "r", "x").await.connect().await;
    let run = stand_in.enqueue_run(REPO, None, "ci", vec![job("x"), job("y")], false).unwrap().id;
    let taken = player.take().await;
    let (mut lines, http) = (String::new(), reqwest::Client::new());
    let busy = stand_in.runners().unwrap()[0].id;
    let mut ask = async |method: &str, template: &str, id: u64, query: &str, body: Option<Value>| {
        let filled = template
            .replace("{owner}", "octo")
            .replace("{org}", "octo")
            .replace("{repo}", "app")
            .replace("{runner_id}", &id.to_string())
            .replace("{run_id}", &id.to_string());
        let request = http.request(method.parse().unwrap(), format!("{}{filled}{query}", stand_in.url()));
        let request = request.bearer_auth(stand_in.api_token());
        let request = if let Some(body) = &body { request.json(body) } else { request };
        let answer = request.send().await.unwrap();
        let (status, link) = (answer.status().as_u16(), answer.headers().contains_key("link"));
        let text = answer.text().await.unwrap();
        let said: Value = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        let line = json!({"method": method, "path": template, "request": body, "status": status, "body": said,
            "link": link});
        lines.push_str(&format!("{line}\n"));
        said
    };
    for base in ["/repos/{owner}/{repo}", "/orgs/{org}"] {
        let at = |path: &str| format!("{base}/actions/runners{path}");
        ask("POST", &at("/registration-token"), 0, "", None).await;
        ask("POST", &at("/remove-token"), 0, "", None).await;
        let body = json!({"name": "once", "runner_group_id": 1, "labels": ["x"], "work_folder": "_work"});
        let made = ask("POST", &at("/generate-jitconfig"), 0, "", Some(body.clone())).await;
        ask("POST", &at("/generate-jitconfig"), 0, "", Some(body)).await;
        let empty = json!({"name": "none", "runner_group_id": 1, "labels": [""]});
        ask("POST", &at("/generate-jitconfig"), 0, "", Some(empty)).await;
        ask("GET", &at(""), 0, "?per_page=1&page=1", None).await;
        ask("GET", &at(""), 0, "?name=once", None).await;
        let id = made["runner"]["id"].as_u64().unwrap();
        ask("GET", &at("/{runner_id}"), id, "", None).await;
        let labels = at("/{runner_id}/labels");
        ask("GET", &labels, id, "", None).await;
        ask("PUT", &labels, id, "", Some(json!({"labels": ["run-1", "run-1.gpu"]}))).await;
        ask("PUT", &labels, id, "", Some(json!({"labels": [""]}))).await;
        ask("DELETE", &at("/{runner_id}"), id, "", None).await;
        ask("PUT", &labels, id, "", Some(json!({"labels": []}))).await;
    }
    ask("GET", "/repos/{owner}/{repo}/actions/runners/{runner_id}", busy, "", None).await;
    ask("DELETE", "/repos/{owner}/{repo}/actions/runners/{runner_id}", busy, "", None).await;
    for ended in [false, true] {
        ask("GET", "/repos/{owner}/{repo}/actions/runs/{run_id}", run, "", None).await;
        ask("GET", "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs", run, "", None).await;
        if !ended {
            assert_eq!(player.finish(taken).await, 204);
            stand_in.cancel_run(run).unwrap();
        }
    }
    std::fs::write(path, lines).unwrap();
}
