//! GitHub: the REST adapter, before answers as GitHub gives them. What GitHub itself says (401, limits, 404, 409, 422)
//! is a table of its own beside the adapter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use runyard_core::ports::github::{Listed, RunnerSpec, Scope, Waiting};
use runyard_core::ports::{GitHub as _, GitHubError};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub};
use serde_json::json;

use crate::wire::judge::{Came, Cell, judge};
use crate::wire::matrix::GITHUB;
use crate::wire::proxy::{Words, before};

const JSON: &str = "application/json; charset=utf-8";
const WORDS: Words = Words {
    internal: (500, JSON, r#"{"message":"Server Error"}"#),
    throttled: (429, JSON, r#"{"message":"You have exceeded a secondary rate limit"}"#),
    foreign: (200, "text/xml", "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"),
};

async fn answer(State(changes): State<Arc<AtomicUsize>>, method: Method, uri: Uri) -> Response {
    let path = uri.path();
    if method != Method::GET {
        changes.fetch_add(1, Ordering::SeqCst);
    }
    let runner = json!({"id": 7, "name": "n", "status": "online", "busy": false, "labels": []});
    let (status, body) = match path.rsplit('/').next().unwrap_or_default() {
        "registration-token" | "remove-token" => {
            (201, json!({"token": "T", "expires_at": "2030-01-01T00:00:00Z"}))
        }
        "generate-jitconfig" => (201, json!({"runner": runner, "encoded_jit_config": "e"})),
        "runner-groups" => (200, json!({"total_count": 1, "runner_groups": [{"id": 3, "name": "n"}]})),
        "runners" => (200, json!({"total_count": 1, "runners": [runner]})),
        "7" if method == Method::DELETE => return StatusCode::NO_CONTENT.into_response(),
        "7" => (200, runner),
        "2.330.0" => (200, json!({"runner_version": "2.330.0", "runtime_deprecates_at": null})),
        "rerun-failed-jobs" => (201, json!({})),
        "downloads" => {
            let file = "actions-runner-linux-x64-2.330.0.tar.gz";
            let package = json!({"os": "linux", "architecture": "x64", "download_url": "https://github.com/a", "filename": file});
            (200, json!([package]))
        }
        "runs" => (200, json!({"total_count": 0, "workflow_runs": []})),
        "jobs" => (200, json!({"total_count": 0, "jobs": []})),
        _ => (200, json!({"id": 41, "status": "completed", "run_attempt": 1})),
    };
    (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

async fn serve() -> (String, Arc<AtomicUsize>) {
    let changes = Arc::new(AtomicUsize::new(0));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(changes.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, changes)
}

fn letter<T>(outcome: &Result<T, GitHubError>) -> char {
    match outcome {
        Ok(_) => '.',
        Err(GitHubError::Unreachable(_)) => 'u',
        Err(GitHubError::Throttled { .. } | GitHubError::Deferred { .. }) => 't',
        Err(GitHubError::Denied(_)) => 'd',
        Err(GitHubError::Invalid(_)) => 'i',
        Err(GitHubError::NotFound(_)) => 'n',
        Err(GitHubError::NameTaken(_)) => 'k',
        Err(GitHubError::Busy(_)) => 'b',
    }
}

async fn play(cell: Cell) -> Came {
    let (url, changes) = serve().await;
    let wire = before(&url, "HTTP/1.1", cell.fault, cell.lasting.times(), &WORDS).await;
    let now = || "2026-03-01T12:00:00Z".parse().unwrap();
    let origin = ApiUrl::parse(&wire).unwrap();
    let github = RestGitHub::new(origin, Credential::None, Duration::from_secs(8), Arc::new(now)).unwrap();
    let scope = Scope::Repository { owner: "acme".into(), name: "web".into() };
    let spec =
        RunnerSpec { name: "n".into(), labels: vec!["l".into()], group_id: 1, work_folder: "_work".into() };
    let letter = match cell.call {
        "registration_token" => letter(&github.registration_token(&scope).await),
        "removal_token" => letter(&github.removal_token(&scope).await),
        "job_config" => letter(&github.job_config(&scope, &spec).await),
        "runner_group" => letter(&github.runner_group("acme", "n").await),
        "runner" => letter(&github.runner(&scope, "n").await),
        "runner_by_id" => letter(&github.runner_by_id(&scope, 7).await),
        "end_of_life" => letter(&github.end_of_life(&scope, "2.330.0").await),
        "runner_applications" => letter(&github.runner_applications(&scope).await),
        "runners" => letter(&github.runners(&scope).await),
        "remove_runner" => letter(&github.remove_runner(&scope, 7).await),
        "run" => letter(&github.run("acme", "web", 41, Waiting::Machine).await),
        "open_runs" => letter(&github.open_runs("acme", "web", Listed::Running).await),
        "run_jobs" => letter(&github.run_jobs("acme", "web", 41, 2).await),
        "rerun_failed_jobs" => letter(&github.rerun_failed_jobs("acme", "web", 41).await),
        other => panic!("no call {other}"),
    };
    let changes = changes.load(Ordering::SeqCst);
    let wrong = changes > 1;
    Came { letter, wrong: wrong.then(|| format!("{cell:?}: {letter}, {changes} changes")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_github_makes_of_every_fault_what_its_row_says() {
    judge(&GITHUB, async |cell| play(cell).await).await;
}
