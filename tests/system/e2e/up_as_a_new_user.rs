//! Does the first hour go well? `runyard up` and then every verb a new user tries, in the order of the greeting: each
//! ends with 0 and says what is so.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::e2e::home::{Client, Home};
use crate::e2e::program::Ended;
use crate::e2e::waiting::{turn, until_none};

const RUN: [&str; 4] = ["--run-id", "7", "--repository", "demo/app"];

fn with_run<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb], &RUN[..], more].concat()
}

/// Ends with 0 and says all of this.
async fn says(client: &Client, arguments: &[&str], words: &[&str]) -> Ended {
    let ended = client.runs(arguments, 0).await;
    for word in words {
        assert!(
            ended.stdout.contains(word),
            "`{}` does not say {word:?}:\n{}",
            arguments.join(" "),
            ended.stdout
        );
    }
    ended
}

async fn instances(client: &Client) -> Vec<Value> {
    let listed = client.runs(&["get", "instances", "-o", "json"], 0).await.json();
    listed["items"].as_array().expect("a list").clone()
}

fn named(instance: &Value) -> &str {
    instance["instanceId"].as_str().expect("an id")
}

#[tokio::test]
async fn a_new_user_gets_machines_looks_around_and_gives_them_back() {
    let _turn = turn().await;
    let mut home = Home::new(&[]);
    home.up().await;
    let greeting = home.serving().said();
    for word in ["runyard provision", "http://127.0.0.1:", "small", "Ctrl-C"] {
        assert!(greeting.contains(word), "the greeting does not say {word:?}:\n{greeting}");
    }
    let client = home.client();
    says(&client, &["get", "pools"], &["small", "large"]).await;
    machines_are_had(&client).await;
    second_up_is_refused(&mut home).await;
    machines_are_given_back(&client).await;
    stopped(&mut home).await;
}

async fn machines_are_had(client: &Client) {
    let provision = with_run("provision", &["--class", "small", "--count", "2", "--wait"]);
    says(client, &provision, &["2 of 2 machines are running", "runs-on 7"]).await;
    // Asked again, the same request is the answer.
    says(client, &provision, &["2 of 2 machines are running"]).await;
    let running = instances(client).await;
    assert_eq!(running.len(), 2, "{running:?}");
    assert!(running.iter().all(|i| i["state"] == "running" && i["runId"] == "7"), "{running:?}");
    let first = named(&running[0]);
    says(client, &["get", "instances"], &[first, "running", "small"]).await;
    says(client, &["get", "requests"], &["7", "Ready"]).await;
    says(client, &["describe", "request", "7"], &["Ready", first, "Events:", "deadline"]).await;
    says(client, &["describe", "instance", first], &["running", "UD_REG_OK"]).await;
    says(client, &["describe", "pool", "small"], &["small", "max"]).await;
    says(client, &["explain", "request", "7"], &["Ready", first]).await;
    says(client, &["plan"], &["there is nothing to do"]).await;
    says(client, &["doctor"], &["nothing is wrong"]).await;
    says(client, &["scale", "small", "--desired", "1"], &["small", "1"]).await;
    says(client, &["refresh"], &["looked at"]).await;
    until_none("not idle in the pool", async || {
        let pooled =
            instances(client).await.into_iter().filter(|instance| instance.get("pooledAt").is_some());
        Some(if pooled.count() == 1 { Vec::new() } else { vec!["the machine that `scale` asked for".into()] })
    })
    .await;
}

async fn second_up_is_refused(home: &mut Home) {
    let pid = home.serving().pid().to_string();
    let refused = home.up_again().await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for word in [pid.as_str(), "--dir", "served by another"] {
        assert!(refused.stderr.contains(word), "{word:?}: {}", refused.stderr);
    }
    assert!(home.serving().ended().is_none(), "the first one serves on");
}

async fn machines_are_given_back(client: &Client) {
    says(client, &with_run("release", &["--wait"]), &["Released"]).await;
    // Once more is no mistake.
    client.runs(&with_run("release", &[]), 0).await;
    let idle = instances(client).await;
    assert!(idle.iter().all(|i| i["state"] == "idle" && i["runId"] == ""), "{idle:?}");
    told_by_events(client, &["Accepted", "Ready", "Released", "Cleaned"]).await;
    says(client, &["get", "requests", "--all"], &["7", "Released"]).await;
    says(client, &["doctor"], &["nothing is wrong"]).await;
}

/// The operator writes events in batches, after what they tell of.
async fn told_by_events(client: &Client, reasons: &[&str]) {
    until_none("not told by `events`", async || {
        let told = client.runs(&["events"], 0).await.stdout;
        Some(reasons.iter().filter(|reason| !told.contains(**reason)).map(ToString::to_string).collect())
    })
    .await;
}

async fn stopped(home: &mut Home) {
    assert!(home.machines().len() >= 3, "two for the run and one warm: {:?}", home.machines());
    home.serving().signal(Signal::SIGTERM);
    let status = home.serving().ends().await;
    assert!(status.success(), "{status}");
    assert_eq!(home.processes(), Vec::<String>::new());
}
