//! Runs and jobs as a caller of the API reads them who asks for what has changed since the last time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{ETAG, IF_NONE_MATCH, LINK};
use serde_json::{Value, json};

use crate::github::state::{Registration, TokenKind};
use crate::github::{Behaviour, Call, Conclusion, JobSpec, Run, RunId, Settings, Source, StandIn};

const REPO: &str = "octo/app";
const RUNS: &str = "/repos/octo/app/actions/runs";

struct Bench {
    stand_in: StandIn,
    time: Arc<Mutex<Timestamp>>,
    http: reqwest::Client,
}

/// A response, with its mark.
struct Answer {
    status: u16,
    mark: String,
    link: String,
    body: Value,
}

/// A runner that is connected.
struct Connected {
    credential: String,
    session: u64,
}

impl Bench {
    async fn new(behaviour: Behaviour) -> Self {
        let time = Arc::new(Mutex::new("2026-03-01T12:00:00Z".parse().unwrap()));
        let clock = Arc::clone(&time);
        let settings = Settings {
            listener: StandIn::bind(None).await.unwrap(),
            dir: None,
            executable: "/nowhere/runyard".into(),
            clock: Arc::new(move || *clock.lock().unwrap()),
            behaviour,
        };
        Self { stand_in: StandIn::start(settings).await.unwrap(), time, http: reqwest::Client::new() }
    }

    fn pass(&self, seconds: u64) {
        *self.time.lock().unwrap() += Duration::from_secs(seconds);
    }

    async fn ask(&self, path: &str, known: Option<&str>) -> Answer {
        let request = self.http.get(format!("{}{path}", self.stand_in.url()));
        let request = request.bearer_auth(self.stand_in.api_token());
        let request = known.into_iter().fold(request, |request, mark| request.header(IF_NONE_MATCH, mark));
        let answer = request.send().await.unwrap();
        let header = |name| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (status, mark, link) = (answer.status().as_u16(), header(ETAG), header(LINK));
        Answer { status, mark, link, body: answer.json().await.unwrap_or_default() }
    }

    async fn play(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.http.post(format!("{}/_workflow/runs{path}", self.stand_in.url()));
        let answer = request.bearer_auth(self.stand_in.api_token()).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    fn start(&self, jobs: Vec<JobSpec>) -> Run {
        self.stand_in.enqueue_run(REPO, None, "w", jobs, false).unwrap()
    }

    /// Reads the only run of the repository.
    async fn entry(&self) -> Value {
        let body = self.ask(RUNS, None).await.body;
        assert_eq!(body["total_count"], 1, "{body}");
        body["workflow_runs"][0].clone()
    }

    /// Reads the numbers of the runs of this status.
    async fn of_status(&self, status: &str) -> Vec<RunId> {
        let body = self.ask(&format!("{RUNS}?status={status}"), None).await.body;
        body["workflow_runs"].as_array().unwrap().iter().map(|run| run["id"].as_u64().unwrap()).collect()
    }

    fn connect(&self) -> Connected {
        let credential = "a runner's".to_owned();
        let change = self.stand_in.shared.change(|state, now| {
            state.mint_token(TokenKind::Registration, REPO, "token".to_owned(), now);
            let registration = Registration {
                scope: REPO.to_owned(),
                name: "r".to_owned(),
                labels: vec!["x".to_owned()],
                group_id: 1,
                ..Registration::default()
            };
            state.register("token", registration, credential.clone(), now)?;
            state.open_session(&credential, "2.999.0", now)
        });
        Connected { session: change.unwrap(), credential }
    }

    /// Assigns the next job.
    fn assign(&self, runner: &Connected) -> u64 {
        let take = |job: Option<_>| job.map(|job: crate::github::Job| job.id);
        let given = self
            .stand_in
            .shared
            .change(|state, now| state.acquire(&runner.credential, runner.session, now).map(take));
        given.unwrap().expect("a job that it takes is queued")
    }

    fn begin(&self, runner: &Connected, job: u64) {
        self.stand_in
            .shared
            .change(|state, now| state.begin(&runner.credential, runner.session, job, now))
            .unwrap();
    }

    fn finish(&self, runner: &Connected, job: u64, conclusion: Conclusion) {
        let end = (job, conclusion, Some(0));
        self.stand_in
            .shared
            .change(|state, now| state.finish(&runner.credential, runner.session, end, "", now))
            .unwrap();
    }
}

fn job() -> JobSpec {
    JobSpec { name: "build".to_owned(), runs_on: vec!["x".to_owned()], steps: vec![], ..JobSpec::default() }
}

fn hosted() -> JobSpec {
    JobSpec { hosted: Some(Conclusion::Success), ..job() }
}

#[tokio::test]
async fn the_entry_of_a_run_has_what_a_look_reads_of_it() {
    let bench = Bench::new(Behaviour::default()).await;
    let run = bench.start(vec![job()]);
    let entry = bench.entry().await;
    let at = "2026-03-01T12:00:00Z";
    for (field, expected) in [
        ("id", json!(run.id)),
        ("status", json!("queued")),
        ("conclusion", Value::Null),
        ("run_attempt", json!(1)),
        ("run_started_at", json!(at)),
        ("created_at", json!(at)),
        ("updated_at", json!(at)),
        ("event", json!("workflow_dispatch")),
        ("path", json!(".github/workflows/workflow.yml")),
        ("head_branch", json!("main")),
        ("head_sha", json!("0".repeat(40))),
    ] {
        assert_eq!(entry.get(field), Some(&expected), "{field}");
    }
    for field in ["repository", "head_repository"] {
        assert!(entry[field]["id"].is_u64() && entry[field]["full_name"] == REPO, "{field}");
    }
    let alone = bench.ask(&format!("{RUNS}/{}", run.id), None).await.body;
    assert_eq!(alone, entry);
}

#[tokio::test]
async fn a_run_is_queued_until_a_job_of_its_attempt_has_begun() {
    let bench = Bench::new(Behaviour::default()).await;
    let runner = bench.connect();
    let run = bench.start(vec![job(), job()]);
    let status = async || bench.entry().await["status"].clone();
    let first = bench.assign(&runner);
    assert_eq!(status().await, "queued", "an assigned job has not begun");
    bench.begin(&runner, first);
    assert_eq!(status().await, "in_progress");
    bench.finish(&runner, first, Conclusion::Success);
    assert_eq!(status().await, "in_progress", "the other one is still queued");
    let second = bench.assign(&runner);
    bench.begin(&runner, second);
    bench.finish(&runner, second, Conclusion::Failure);
    let entry = bench.entry().await;
    assert_eq!((&entry["status"], &entry["conclusion"]), (&json!("completed"), &json!("failure")));
    bench.pass(10);
    bench.stand_in.rerun_failed(REPO, run.id).unwrap();
    let entry = bench.entry().await;
    assert_eq!((&entry["status"], &entry["run_attempt"]), (&json!("queued"), &json!(2)));
    assert_eq!(entry["run_started_at"], "2026-03-01T12:00:10Z");
}

#[tokio::test]
async fn a_run_with_a_queued_job_is_queued_although_others_run_where_github_is_so() {
    let bench = Bench::new(Behaviour { queued_hides_running: true, ..Behaviour::default() }).await;
    let runner = bench.connect();
    let run = bench.start(vec![job(), job()]);
    let first = bench.assign(&runner);
    bench.begin(&runner, first);
    assert_eq!(
        (bench.of_status("queued").await, bench.of_status("in_progress").await),
        (vec![run.id], vec![])
    );
    bench.finish(&runner, first, Conclusion::Success);
    let second = bench.assign(&runner);
    bench.begin(&runner, second);
    assert_eq!(
        (bench.of_status("queued").await, bench.of_status("in_progress").await),
        (vec![], vec![run.id])
    );
}

#[tokio::test]
async fn an_entry_changes_when_a_job_is_queued_begins_or_ends() {
    let bench = Bench::new(Behaviour::default()).await;
    let runner = bench.connect();
    let run = bench.stand_in.enqueue_run(REPO, None, "w", vec![], true).unwrap().id;
    let mut mark = bench.ask(RUNS, None).await.mark;
    let mut told = async |changes: bool| {
        let answer = bench.ask(RUNS, Some(&mark)).await;
        assert_eq!(answer.status, if changes { 200 } else { 304 });
        mark = answer.mark;
        let expected = bench.time.lock().unwrap().to_string();
        assert!(!changes || answer.body["workflow_runs"][0]["updated_at"] == expected.as_str());
        bench.pass(2);
    };
    told(false).await;
    bench.stand_in.add_jobs(run, vec![job(), job()], false).unwrap();
    told(true).await;
    let first = bench.assign(&runner);
    told(false).await;
    bench.begin(&runner, first);
    told(true).await;
    told(false).await;
    bench.finish(&runner, first, Conclusion::Success);
    told(true).await;
    bench.stand_in.cancel_run(run).unwrap();
    told(true).await;
    bench.stand_in.rerun_failed(REPO, run).unwrap();
    told(true).await;
}

#[tokio::test]
async fn two_changes_within_a_second_may_leave_an_entry_as_it_was() {
    let bench = Bench::new(Behaviour::default()).await;
    let run = bench.stand_in.enqueue_run(REPO, None, "w", vec![job()], true).unwrap().id;
    let mark = bench.ask(RUNS, None).await.mark;
    bench.stand_in.add_jobs(run, vec![job()], false).unwrap();
    assert_eq!(bench.ask(RUNS, Some(&mark)).await.status, 304);
    assert_eq!(bench.ask(&format!("{RUNS}/{run}/jobs"), None).await.body["total_count"], 2);
}

#[tokio::test]
async fn a_job_is_listed_late_and_the_entry_of_its_run_does_not_tell() {
    let delay = Duration::from_secs(5);
    let bench = Bench::new(Behaviour { job_list_delay: delay, ..Behaviour::default() }).await;
    let run = bench.start(vec![job()]).id;
    assert_eq!(bench.of_status("queued").await, [run]);
    let mark = bench.ask(RUNS, None).await.mark;
    for path in [format!("{RUNS}/{run}/jobs"), format!("{RUNS}/{run}/attempts/1/jobs")] {
        *bench.time.lock().unwrap() = "2026-03-01T12:00:04Z".parse().unwrap();
        let jobs = bench.ask(&path, None).await;
        assert_eq!(jobs.body["total_count"], 0, "{path}");
        bench.pass(1);
        assert_eq!(bench.ask(RUNS, Some(&mark)).await.status, 304);
        let jobs = bench.ask(&path, Some(&jobs.mark)).await;
        assert_eq!((jobs.status, &jobs.body["total_count"]), (200, &json!(1)), "{path}");
    }
}

#[tokio::test]
async fn a_run_that_waits_for_an_approval_is_waiting_until_jobs_are_added() {
    let bench = Bench::new(Behaviour::default()).await;
    let listed = async || {
        let mut found = Vec::new();
        for status in ["queued", "in_progress", "waiting", "completed"] {
            found.extend(bench.of_status(status).await.into_iter().map(|_| status));
        }
        found
    };
    let (status, run) = bench.play("", json!({"repository": REPO, "jobs": [], "waits": true})).await;
    assert_eq!((status, &run["run"]["waits"], &run["over"]), (201, &json!(true), &json!(false)));
    assert_eq!(listed().await, ["waiting"]);
    let more = format!("/{}/jobs", run["run"]["id"]);
    let one = json!({"name": "b", "runs_on": ["x"], "steps": []});
    assert_eq!(bench.play(&more, json!({"jobs": [one], "waits": true})).await.0, 201);
    assert_eq!(listed().await, ["queued"]);
    let runner = bench.connect();
    let job = bench.assign(&runner);
    bench.begin(&runner, job);
    assert_eq!(listed().await, ["in_progress"]);
    bench.finish(&runner, job, Conclusion::Success);
    assert_eq!(listed().await, ["waiting"], "it waits for the next approval");
    assert_eq!(bench.play(&more, json!({"jobs": []})).await.0, 201);
    assert_eq!(listed().await, ["completed"]);
    let (status, refused) = bench.play(&more, json!({"wait": true})).await;
    assert!(status == 422 && refused["message"].as_str().unwrap().contains("`wait`"), "{refused}");
}

#[tokio::test]
async fn the_entry_of_a_forks_run_names_the_fork_or_nothing_once_it_was_deleted() {
    let bench = Bench::new(Behaviour::default()).await;
    let source = json!({"event": "pull_request", "head_branch": "patch-1", "head_repository": "mallory/app"});
    let body = json!({"repository": REPO, "jobs": [], "open": true, "source": source});
    let (status, run) = bench.play("", body).await;
    assert_eq!((status, &run["run"]["source"]["head_repository"]), (201, &json!("mallory/app")));
    let entry = bench.entry().await;
    assert_eq!((&entry["event"], &entry["head_branch"]), (&json!("pull_request"), &json!("patch-1")));
    assert_eq!(entry["repository"]["full_name"], REPO);
    assert_eq!(entry["head_repository"]["full_name"], "mallory/app");
    assert_ne!(entry["head_repository"]["id"], entry["repository"]["id"]);
    let id = run["run"]["id"].as_u64().unwrap();
    bench.stand_in.set_source(id, Source { head_repository_deleted: true, ..Source::default() }).unwrap();
    assert_eq!(bench.entry().await.get("head_repository"), Some(&Value::Null));
}

#[tokio::test]
async fn queued_jobs_ring_once_they_can_be_read() {
    let bench = Bench::new(Behaviour::default()).await;
    bench.start(vec![job()]);
    let mut bell = bench.stand_in.queued_jobs();
    assert!(bell.try_recv().is_err(), "what was queued before is not told");
    let (_, run) = bench.play("", json!({"repository": REPO, "open": true})).await;
    assert!(bell.try_recv().is_err(), "no job was queued");
    let id = run["run"]["id"].as_u64().unwrap();
    bench.stand_in.add_jobs(id, vec![job(), job()], false).unwrap();
    let rung = bell.recv().await.unwrap();
    assert_eq!((rung.repository.as_str(), rung.run_id), (REPO, id));
    assert_eq!(bench.stand_in.jobs(id).unwrap().len(), 2);
    assert!(bell.try_recv().is_err(), "it rings once for both");
}

#[tokio::test]
async fn a_bell_that_nobody_hears_for_long_loses_the_oldest_rings() {
    let bench = Bench::new(Behaviour::default()).await;
    let mut bell = bench.stand_in.queued_jobs();
    for _ in 0..1000 {
        bench.start(vec![hosted()]);
    }
    assert!(bell.recv().await.is_err(), "it says that it lost some");
    assert!(bell.recv().await.is_ok());
}

#[tokio::test]
async fn calls_are_counted_by_method_path_and_status() {
    let bench = Bench::new(Behaviour::default()).await;
    let run = bench.start(vec![job()]).id;
    let mark = bench.ask(&format!("{RUNS}?status=queued"), None).await.mark;
    for _ in 0..3 {
        bench.ask(&format!("{RUNS}?status=queued"), Some(&mark)).await;
    }
    bench.ask(&format!("{RUNS}/{run}"), None).await;
    bench.ask(&format!("{RUNS}/{}", run + 1), None).await;
    bench.http.get(format!("{}/orgs/octo/actions/runners", bench.stand_in.url())).send().await.unwrap();
    let counted: Vec<_> = bench.stand_in.calls().into_iter().collect();
    let call = |path: &str, status| Call { method: "GET".to_owned(), path: path.to_owned(), status };
    assert_eq!(
        counted,
        [
            (call("/orgs/{org}/actions/runners", 401), 1),
            (call("/repos/{owner}/{repo}/actions/runs", 200), 1),
            (call("/repos/{owner}/{repo}/actions/runs", 304), 3),
            (call("/repos/{owner}/{repo}/actions/runs/{run_id}", 200), 1),
            (call("/repos/{owner}/{repo}/actions/runs/{run_id}", 404), 1),
        ]
    );
}

#[tokio::test]
async fn the_next_page_of_a_filtered_list_is_filtered_too() {
    let bench = Bench::new(Behaviour::default()).await;
    for _ in 0..3 {
        bench.start(vec![job()]);
        bench.start(vec![hosted()]);
    }
    let first = bench.ask(&format!("{RUNS}?status=queued&per_page=2"), None).await;
    assert_eq!(first.body["total_count"], 3);
    let next = first.link.split(['<', '>']).nth(1).unwrap().strip_prefix(&bench.stand_in.url()).unwrap();
    assert_eq!(next, format!("{RUNS}?status=queued&per_page=2&page=2"));
    let second = bench.ask(next, None).await.body;
    let rest: Vec<_> = second["workflow_runs"].as_array().unwrap().iter().map(|run| &run["status"]).collect();
    assert_eq!(rest, ["queued"]);
    assert_eq!(bench.of_status("success").await.len(), 3, "a conclusion filters as well");
}
