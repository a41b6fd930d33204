//! Does one machine serve one run after the other without leaving a trace at GitHub? Ten runs in each registration
//! mode; after each of them the stand-in GitHub lists no runner at all.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::e2e::home::{Client, Home};
use crate::e2e::waiting::{turn, until};
use crate::e2e::workflow::REPOSITORY;

/// Runs that the one machine serves.
const CYCLES: u64 = 10;
/// One machine and never another, whose jobs are registered for as `mode` says.
const SPEC: &str =
    r#"[{"resourceClass": "one", "cpu": 1, "mmem": 1024, "max": 1, "registrationMode": "MODE"}]"#;
/// Quick looks; patient deadlines.
const TIMING: [(&str, &str); 2] =
    [("RUNYARD_TIMING__AGENT_POLL", "100ms"), ("RUNYARD_TIMING__HEARTBEAT", "500ms")];

#[tokio::test]
async fn ten_runs_on_one_machine_with_a_runner_per_run_leave_no_registration_behind() {
    ten_runs_on_one_machine("run", 1).await;
}

#[tokio::test]
async fn ten_runs_on_one_machine_with_a_runner_per_job_leave_no_registration_behind() {
    ten_runs_on_one_machine("job", 2).await;
}

async fn ten_runs_on_one_machine(mode: &str, jobs: u64) {
    let _turn = turn().await;
    let mut home = Home::new(&TIMING);
    let exchanges = keep_exchanges(&home);
    home.up().await;
    let client = home.client();
    let spec = home.beside("pool.json");
    std::fs::write(&spec, SPEC.replace("MODE", mode)).expect("a file");
    client.runs(&["apply", "-f", spec.to_str().expect("UTF-8")], 0).await;
    for run in 1..=CYCLES {
        serve(&client, run, jobs).await;
        let left = client.github.runners(REPOSITORY).await.expect("the stand-in answers");
        assert_eq!(left, Vec::<String>::new(), "after run {run} in mode {mode}");
    }
    let listed = client.runs(&["get", "instances", "-o", "json"], 0).await.json();
    let machines = listed["items"].as_array().expect("a list");
    assert_eq!((machines.len(), home.machines().len()), (1, 1), "always the same machine: {machines:?}");
    assert_eq!(machines[0]["uses"], json!(CYCLES), "{machines:?}");
    // For tests/system/github_openapi/check.sh, which holds them against GitHub's published description.
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("github-exchanges-{mode}.jsonl"));
    // Of whole lines, as the operator still asks; and there all at once, as the check may run beside this test.
    let mut text = std::fs::read(exchanges).expect("the exchanges with the stand-in were kept");
    text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
    let beside = kept.with_extension("new");
    std::fs::write(&beside, text).expect("a file can be written");
    std::fs::rename(beside, kept).expect("a file can be renamed");
}

/// The file in which the stand-in keeps its exchanges when it is there before it starts.
fn keep_exchanges(home: &Home) -> PathBuf {
    let file = home.github_dir().join("exchanges.jsonl");
    std::fs::write(&file, "").expect("a file");
    file
}

/// How many boxes the machine got so far.
async fn boxes(client: &Client) -> u64 {
    let listed = client.runs(&["get", "instances", "-o", "json"], 0).await.json();
    listed["items"][0]["registrationSeq"].as_u64().unwrap_or_default()
}

/// A run from its first word to its last.
async fn serve(client: &Client, run: u64, jobs: u64) {
    let (id, before) = (run.to_string(), boxes(client).await);
    let of_run = ["--run-id", &id, "--repository", REPOSITORY];
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, run).await).await;
    client
        .runs(&[&["provision"], &of_run[..], &["--class", "one", "--count", "1", "--wait"]].concat(), 0)
        .await;
    let registered = client.github.runners(REPOSITORY).await.expect("the stand-in answers");
    assert_eq!(registered.len(), 1, "run {run}: {registered:?}");
    let job = |n| json!({"name": format!("{run}-{n}"), "runs_on": [id], "steps": ["true"]});
    let queued: Vec<Value> = (0..jobs).map(job).collect();
    until("the jobs to be queued", async || client.github.jobs_queued(run, &queued).await).await;
    until(&format!("the jobs of run {run}"), async || {
        let jobs = client.github.jobs(run).await?;
        jobs.iter().all(|job| job["conclusion"] == "success").then_some(())
    })
    .await;
    // With a runner per job the next one is made by now, and is between its start and its first session, or about there.
    if jobs > 1 {
        until("the next runner", async || (boxes(client).await > before + jobs).then_some(())).await;
    }
    client.runs(&[&["release"], &of_run[..], &["--wait"]].concat(), 0).await;
    until("the run's end at GitHub", async || client.github.run_ended(run).await).await;
}
