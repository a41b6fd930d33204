//! Does "Re-run failed jobs" work? GitHub does not run the job again that asked for machines: the operator asks for
//! those that wait, once, and gives them back when the run is over.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::e2e::home::{Client, Home};
use crate::e2e::waiting::{turn, until};
use crate::e2e::workflow::REPOSITORY;

const RUN: u64 = 11;

/// Fails in the first attempt, and notes in the second where it ran.
const JOB: &str = r#"
[ -e "$RESULTS" ] || { touch "$RESULTS"; exit 1; }
echo "$RUNYARD_MACHINE $GITHUB_RUN_ID" >> "$RESULTS"
"#;

async fn requests(client: &Client) -> Vec<Value> {
    let listed = client.runs(&["get", "requests", "--all", "-o", "json"], 0).await.json();
    listed["items"].as_array().expect("a list").clone()
}

/// How the jobs of an attempt ended, once all have.
async fn ended(client: &Client, attempt: u64) -> Vec<Value> {
    until(&format!("the jobs of attempt {attempt}"), async || {
        let jobs: Vec<Value> = client.github.jobs(RUN).await?;
        let jobs: Vec<Value> = jobs
            .into_iter()
            .filter(|job| job["attempt"] == attempt || job["run_attempt"] == attempt)
            .collect();
        let over = !jobs.is_empty() && jobs.iter().all(|job| job["status"] == "completed");
        over.then(|| jobs.iter().map(|job| job["conclusion"].clone()).collect())
    })
    .await
}

#[tokio::test]
async fn failed_jobs_that_are_run_again_get_a_machine_and_give_it_back() {
    let _turn = turn().await;
    let mut home = Home::new(&[("RUNYARD_GITHUB__RUN_POLL", "1s")]);
    home.up().await;
    let (client, results) = (home.client(), home.beside("results"));
    let run = RUN.to_string();
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, RUN).await).await;
    let asked = ["--run-id", &run, "--repository", REPOSITORY];
    let provision = [&["provision", "--class", "small", "--count", "1", "--wait"], &asked[..]].concat();
    // The job that asks runs on a machine of GitHub's, and is over before any of ours begins.
    let hosted =
        json!({"name": "provision", "runs_on": ["ubuntu-24.04"], "steps": ["true"], "hosted": "success"});
    let job = json!({"name": "test", "runs_on": [&run], "steps": [JOB], "env": {"RESULTS": results}});
    until("the jobs", async || client.github.jobs_queued(RUN, &[hosted.clone(), job.clone()]).await).await;
    client.runs(&provision, 0).await;
    let first = ended(&client, 1).await;
    assert!(first.contains(&json!("failure")), "{first:?}");
    until("the run's end at GitHub", async || client.github.run_ended(RUN).await).await;
    client.runs(&[&["release", "--wait"], &asked[..]].concat(), 0).await;

    until("the re-run", async || client.github.failed_jobs_run_again(REPOSITORY, RUN).await).await;
    let ended = ended(&client, 2).await;
    assert!(!ended.is_empty() && ended.iter().all(|conclusion| conclusion == "success"), "{ended:?}");
    let said = std::fs::read_to_string(&results).expect("the second attempt wrote it");
    assert!(said.ends_with(&format!(" {RUN}\n")), "{said}");
    let of_second = until("the machine's return", async || {
        let all = requests(&client).await;
        let second = all.into_iter().filter(|request| request["attempt"] == 2).collect::<Vec<_>>();
        second.iter().all(|request| request["phase"] == "Released").then_some(second)
    })
    .await;
    let [derived] = of_second.as_slice() else { panic!("one request: {of_second:?}") };
    assert_eq!((&derived["derivedFrom"], &derived["count"]), (&json!(1), &json!(1)));
    home.serving().signal(Signal::SIGTERM);
    assert!(home.serving().ends().await.success());
}
