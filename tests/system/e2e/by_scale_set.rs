//! Is `runs-on: runyard-small` enough? A class with a runner scale set gets the jobs that say so, of whatever run; each has a
//! machine of its own, which is cleaned and reused.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::e2e::home::{Client, Home};
use crate::e2e::waiting::{turn, until};
use crate::e2e::workflow::REPOSITORY;

const RUN: u64 = 21;

async fn slots(client: &Client) -> Vec<Value> {
    let listed = client.runs(&["get", "requests", "--all", "-o", "json"], 0).await.json();
    let all = listed["items"].as_array().expect("a list").clone();
    all.into_iter().filter(|request| request["asked"] == "set").collect()
}

#[tokio::test]
async fn jobs_that_name_a_scale_set_get_machines_which_serve_others_later() {
    let _turn = turn().await;
    let mut home = Home::new(&[]);
    home.up().await;
    let client = home.client();
    let owner = REPOSITORY.split_once('/').expect("owner and name").0;
    let spec = json!({"pools": [{
        "resourceClass": "set", "cpu": 1, "mmem": 1024, "max": 2, "idleSeconds": 3600,
        "repositories": [format!("{owner}/*")], "reuseWithin": "owner", "registrationMode": "job",
        "queue": {"labels": ["runyard-small", "linux"], "scope": "organization"},
    }]});
    let file = home.beside("set.json");
    std::fs::write(&file, spec.to_string()).expect("a file");
    client.runs(&["apply", "-f", file.to_str().expect("UTF-8"), "--allow-widening"], 0).await;
    for (run, jobs) in [(RUN, 2), (RUN + 1, 2)] {
        until("the run at GitHub", async || client.github.run_opened(REPOSITORY, run).await).await;
        let job = |number: u64| {
            let labels =
                if number == 0 { json!(["runyard-small"]) } else { json!(["Linux", "runyard-small"]) };
            json!({"name": format!("job-{number}"), "runs_on": labels, "steps": ["true"]})
        };
        let queued: Vec<Value> = (0..jobs).map(job).collect();
        until("the jobs", async || client.github.jobs_queued(run, &queued).await).await;
        until("their end", async || {
            let jobs: Vec<Value> = client.github.jobs(run).await?;
            jobs.iter().all(|job| job["conclusion"] == "success").then_some(())
        })
        .await;
        until("the slots given back", async || {
            let all = slots(&client).await;
            let over = |one: &Value| one["phase"] == "Released" && one["releasedBy"] == "runner-ended";
            (all.len() >= 2 && all.iter().all(over)).then_some(())
        })
        .await;
        until("the run's end at GitHub", async || client.github.run_ended(run).await).await;
    }
    assert_eq!(slots(&client).await.len(), 4, "one slot a job");
    let machines = client.runs(&["get", "instances", "--all", "-o", "json"], 0).await.json();
    let machines = machines["items"].as_array().expect("a list").clone();
    let of_set = machines.iter().filter(|one| one["resourceClass"] == "set").count();
    assert!((1..=2).contains(&of_set), "{of_set} machines for four jobs");
    home.serving().signal(Signal::SIGTERM);
    assert!(home.serving().ends().await.success());
}
