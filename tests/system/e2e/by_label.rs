//! Is a label enough? Jobs that say `runs-on: <run id>-<class>` get machines although no job asks for them: the operator
//! hears that they were queued, asks for as many machines as they are, and takes them back when their run is over.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::e2e::home::{Client, Home};
use crate::e2e::waiting::{turn, until};
use crate::e2e::workflow::REPOSITORY;

const RUN: u64 = 11;

async fn requests(client: &Client) -> Vec<Value> {
    let listed = client.runs(&["get", "requests", "--all", "-o", "json"], 0).await.json();
    listed["items"].as_array().expect("a list").clone()
}

/// Waits until these many jobs of the run are over, and returns how they ended.
async fn ended(client: &Client, count: usize) -> Vec<Value> {
    until(&format!("{count} jobs"), async || {
        let jobs: Vec<Value> = client.github.jobs(RUN).await?;
        let over = jobs.len() == count && jobs.iter().all(|job| job["status"] == "completed");
        over.then(|| jobs.iter().map(|job| job["conclusion"].clone()).collect())
    })
    .await
}

#[tokio::test]
async fn jobs_that_name_their_run_and_a_class_get_machines_without_a_job_that_asks() {
    let _turn = turn().await;
    // Nothing but a ring makes the operator look soon.
    let mut home = Home::new(&[("RUNYARD_GITHUB__RUN_POLL", "60s")]);
    home.up().await;
    let client = home.client();
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, RUN).await).await;
    let label = format!("{RUN}-small");
    let job = |name: &str, label: &str| json!({"name": name, "runs_on": [label], "steps": ["true"]});
    let first = [job("build", &label), job("test", &label.to_uppercase())];
    until("the jobs", async || client.github.jobs_queued(RUN, &first).await).await;
    assert_eq!(ended(&client, 2).await, [json!("success"), json!("success")]);
    let [request] = &requests(&client).await[..] else { panic!("one request") };
    let said = ["asked", "name", "resourceClass"].map(|name| request[name].as_str().unwrap_or_default());
    assert_eq!(said, ["job", "small", "small"]);

    // A later job of the run finds its machines, and one of another class gets one of its own.
    let later = [job("deploy", &label), job("pack", &format!("{RUN}-large-1"))];
    until("the jobs", async || client.github.jobs_added(RUN, &later).await).await;
    assert_eq!(ended(&client, 4).await, vec![json!("success"); 4]);
    assert_eq!(requests(&client).await.len(), 2);

    until("the run's end at GitHub", async || client.github.run_ended(RUN).await).await;
    until("the machines given back", async || {
        let all = requests(&client).await;
        all.iter().all(|one| one["phase"] == "Released" && one["releasedBy"] == "run-ended").then_some(())
    })
    .await;
    home.serving().signal(Signal::SIGTERM);
    assert!(home.serving().ends().await.success());
}
