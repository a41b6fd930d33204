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

/// The only job of this name in what `explain run` tells.
fn job<'a>(told: &'a Value, name: &str) -> &'a Value {
    let jobs = told["jobs"].as_array().expect("a list");
    jobs.iter().find(|job| job["name"] == name).unwrap_or_else(|| panic!("no job {name} in {told:#}"))
}

async fn explained(client: &Client) -> Value {
    client.runs(&["explain", "run", "11", "--repository", REPOSITORY, "-o", "json"], 0).await.json()
}

#[tokio::test]
async fn explain_run_tells_what_becomes_of_each_job_and_the_operator_counts_those_without() {
    let _turn = turn().await;
    let mut home = Home::new(&[("RUNYARD_GITHUB__RUN_POLL", "1s")]);
    home.up().await;
    let client = home.client();
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, RUN).await).await;
    let queue = |name: &str, label: &str| json!({"name": name, "runs_on": [label], "steps": ["true"]});
    let jobs = [queue("build", "11-small"), queue("docs", "11-mac"), queue("lint", "ubuntu-latest")];
    until("the jobs", async || client.github.jobs_queued(RUN, &jobs).await).await;
    let told = until("the event and the end of the first job", async || {
        let told = explained(&client).await;
        let events =
            told["events"].as_array()?.iter().filter(|event| event["reason"] == "JobNotServed").count();
        (events == 1 && job(&told, "build")["state"] == "succeeded").then_some(told)
    })
    .await;
    let fate = |name: &str| {
        let job = job(&told, name);
        ["state", "reason", "resourceClass"].map(|name| job[name].as_str().unwrap_or("-").to_owned())
    };
    assert_eq!(fate("build"), ["succeeded", "Ended", "small"], "{told:#}");
    assert_eq!(job(&told, "build")["request"], "11/small/1");
    assert_eq!(fate("docs"), ["queued", "NoClass", "-"]);
    assert_eq!(fate("lint"), ["queued", "HostedRunner", "-"]);
    assert_eq!((&told["run"]["attempt"], &told["unknown"]), (&json!(1), &json!([])));
    assert_eq!(told["requests"][0]["request"], "11/small/1");

    // For people, and without the repository, which the run's request names.
    let text = client.runs(&["explain", "run/11"], 0).await.stdout;
    assert!(text.starts_with("run 11 of acme/web: attempt 1, "), "{text}");
    assert!(text.contains("\njob docs (11-mac): queued: gets no machine: it names no class"), "{text}");
    assert!(text.contains("\njob build (11-small): succeeded: on machine i-"), "{text}");
    let page = home.serving().said();
    let page = page.lines().find_map(|line| line.trim().strip_prefix("status   ")).expect("an address");
    let metrics =
        reqwest::get(format!("{page}metrics")).await.expect("an answer").text().await.expect("text");
    let counted = "runyard_jobs_not_served_total{reason=\"NoClass\",resource_class=\"_other\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");

    // With a person's own token, and with none.
    let mut outside = client.clone();
    let url = outside.environment.remove("RUNYARD_STAND_IN_URL").expect("local mode names its GitHub");
    let token = outside.environment.remove("RUNYARD_STAND_IN_TOKEN").expect("and the token for it");
    let unknown = explained(&outside).await;
    assert_eq!((&unknown["jobs"], unknown["unknown"].as_array().map(Vec::len)), (&json!([]), Some(1)));
    assert_eq!(unknown["requests"][0]["request"], "11/small/1");
    assert!(
        unknown["events"].as_array().expect("a list").iter().any(|event| event["reason"] == "JobNotServed")
    );
    outside.environment.insert("GITHUB_API_URL".into(), url);
    outside.environment.insert("GITHUB_TOKEN".into(), "wrong".into());
    let refused = explained(&outside).await;
    let why = refused["unknown"][0].as_str().expect("a sentence");
    assert!(why.contains("GitHub denied the call") && why.contains("Actions: read"), "{why}");
    outside.environment.insert("GITHUB_TOKEN".into(), token);
    assert_eq!(explained(&outside).await["jobs"], told["jobs"]);
    let other = ["explain", "run", "12", "--repository", REPOSITORY];
    let missing = outside.runs(&other, 1).await.stderr;
    assert!(missing.contains("nothing is known of it in acme/web"), "{missing}");
    home.serving().signal(Signal::SIGTERM);
    assert!(home.serving().ends().await.success());
}
