//! A yard whose GitHub is the test's own stand-in, and so the test's to change.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use runyard_core::model::Instance;
use runyard_core::ports::Clock as _;
use runyard_operator::process::clock::SystemClock;
use runyard_standin::github::{Behaviour, Settings, StandIn};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::e2e::history;
use crate::e2e::home::{Client, Home};
use crate::e2e::program::runyard;
use crate::e2e::waiting::until;
use crate::e2e::workflow::REPOSITORY;

/// A GitHub that keeps its state in this directory.
pub(crate) async fn github(dir: &Path, listener: TcpListener, behaviour: Behaviour) -> StandIn {
    let clock = SystemClock::new();
    let settings = Settings {
        listener,
        dir: Some(dir.to_owned()),
        executable: runyard().to_owned(),
        clock: Arc::new(move || clock.now()),
        behaviour,
    };
    StandIn::start(settings).await.expect("the stand-in starts")
}

/// A home that uses this GitHub, and its package of this version, in place of one of its own.
pub(crate) fn home(github: &StandIn, version: &str, more: &[(&str, &str)]) -> Home {
    let token_file = github.token_file().expect("the token is in a file").display().to_string();
    let (url, package) = (github.url(), github.package_url());
    let settings = [
        ("RUNYARD_GITHUB__API_URL", &*url),
        ("RUNYARD_GITHUB__TOKEN_FILE", &*token_file),
        ("RUNYARD_AGENT__RUNNER_URL", &*package),
        ("RUNYARD_AGENT__RUNNER_SHA256", github.package_sha256()),
        ("RUNYARD_AGENT__RUNNER_VERSION", version),
        ("RUNYARD_TIMING__AGENT_POLL", "200ms"),
        ("RUNYARD_TIMING__HEARTBEAT", "500ms"),
    ];
    let home = Home::new(&[&settings[..], more].concat());
    // Where a workflow looks for GitHub.
    let dir = home.github_dir();
    fs::write(dir.join("api.port"), github.address().port().to_string()).expect("a file");
    fs::write(dir.join("github-token"), github.api_token()).expect("a file");
    home
}

pub(crate) async fn apply(client: &Client, home: &Home, pool: &Value) {
    let file = home.beside("pool.json");
    fs::write(&file, json!([pool]).to_string()).expect("a file");
    client.runs(&["apply", "-f", file.to_str().expect("UTF-8")], 0).await;
}

pub(crate) async fn machines(client: &Client) -> Vec<Instance> {
    until("a look at the table", async || history::snapshot(&client.store).await).await.all()
}

/// Asks for a machine of class `one`.
pub(crate) async fn provision(client: &Client, run: u64) {
    let id = run.to_string();
    let of_run = ["--run-id", &id, "--repository", REPOSITORY];
    client
        .runs(&[&["provision"], &of_run[..], &["--class", "one", "--count", "1", "--wait"]].concat(), 0)
        .await;
}

/// Begins a run at GitHub.
pub(crate) async fn begins(client: &Client, run: u64) {
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, run).await).await;
}

/// The jobs of the run, and what they are given back with.
pub(crate) async fn works(client: &Client, run: u64) {
    let id = run.to_string();
    let job = json!({"name": id, "runs_on": [id], "steps": ["true"]});
    until("the job to be queued", async || client.github.jobs_queued(run, std::slice::from_ref(&job)).await)
        .await;
    until(&format!("the job of run {run}"), async || {
        let jobs = client.github.jobs(run).await?;
        (!jobs.is_empty() && jobs.iter().all(|job| job["conclusion"] == "success")).then_some(())
    })
    .await;
    client.runs(&["release", "--run-id", &id, "--repository", REPOSITORY, "--wait"], 0).await;
    until("the run's end at GitHub", async || client.github.run_ended(run).await).await;
}
