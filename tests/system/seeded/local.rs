//! Faults in local mode: `runyard up` with real agents. Those of a class are all in one yard; those of the operator's
//! configuration have a yard each.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use axum::Router;
use axum::http::StatusCode;
use nix::sys::signal::Signal;
use runyard_core::model::{Condition, ConditionType, Instance, Phase, Pool, Request};
use serde_json::{Value, json};

use crate::e2e::history;
use crate::e2e::home::{Client, Home};
use crate::e2e::waiting::{turn, until};
use crate::seeded::named::{Fault, Harm, Named, Part, REPOSITORY, asks};

const fn fault(part: Part, what: &'static str, cause: &'static str, harm: Harm) -> Fault {
    Fault { part, what, cause, harm }
}

/// All of this file.
pub(crate) const FAULTS: &[Fault] = &[
    // Of classes: their names are those of `POOLS`.
    fault(Part::FirstBoot, "script", "pre-runner-script", Harm::Machine),
    fault(Part::FirstBoot, "disk", "disk-full", Harm::Machine),
    fault(Part::FirstBoot, "other-machine", "wrong-architecture", Harm::Machine),
    fault(Part::Network, "no-names", "no-name-service", Harm::Machine),
    fault(Part::Network, "no-way", "no-route", Harm::Machine),
    fault(Part::FirstBoot, "hangs", "fell-silent", Harm::Machine),
    fault(Part::FirstBoot, "killed", "stopped-itself", Harm::Machine),
    fault(Part::CleanUp, "dirty", "left-behind", Harm::Machine),
    fault(Part::Capacity, "full", "class-full", Harm::Waits),
    fault(Part::Capacity, "paused", "class-paused", Harm::Waits),
    fault(Part::Rights, "of-others", "not-allowed", Harm::Request),
    fault(Part::Registration, "no-run", "run-unknown", Harm::Request),
    // Of the operator's configuration, and of what it leads to.
    fault(Part::FirstBoot, "another package", "package-digest", Harm::Machine),
    fault(Part::Network, "a package that is not there", "package-missing", Harm::Machine),
    fault(Part::Network, "a package that nobody serves", "no-route", Harm::Machine),
    fault(Part::FirstBoot, "an agent that never speaks", "never-reported", Harm::Machine),
    fault(Part::Registration, "a token that GitHub refuses", "github-credential", Harm::Bound),
];

/// Quick looks, and short deadlines of what is to hang.
const TIMING: [(&str, &str); 4] = [
    ("RUNYARD_TIMING__AGENT_POLL", "100ms"),
    ("RUNYARD_TIMING__HEARTBEAT", "500ms"),
    ("RUNYARD_TIMING__STALE", "10s"),
    ("RUNYARD_TIMING__RESYNC", "5s"),
];

/// A program of another architecture: as much of its head as the kernel looks at.
const OTHER: &str = r#"printf '\177ELF\002\001\001\000\000\000\000\000\000\000\000\000\002\000\377\000\001\000\000\000' >other
head -c 200 /dev/zero >>other
chmod +x other
./other"#;

/// The first boots, by class; what is not here has none.
const SCRIPTS: [(&str, &str); 5] = [
    ("script", "echo nothing to see; exit 3"),
    ("disk", "set -e; head -c 4096 /dev/zero >/dev/full"),
    ("other-machine", OTHER),
    ("no-names", "curl -sS --max-time 20 http://packages.invalid/"),
    ("no-way", "curl -sS --max-time 20 http://127.0.0.1:9/"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_classes_in_local_mode_are_named_by_debug() {
    let _turn = turn().await;
    let mut home = Home::new(&[&TIMING[..], &[("RUNYARD_GITHUB__VERIFY_RUN", "true")]].concat());
    home.up().await;
    let client = home.client();
    let faults: Vec<(u64, &Fault)> = (1..).zip(FAULTS).take(12).collect();
    let pools: Vec<Value> = faults.iter().map(|(_, fault)| pool(fault.what)).collect();
    let file = home.beside("pools.json");
    std::fs::write(&file, Value::from(pools).to_string()).expect("a file");
    client.runs(&["apply", "-f", file.to_str().expect("UTF-8")], 0).await;
    // The machine that another run has.
    opened(&client, 100).await;
    client
        .runs(
            &[
                "provision",
                "--run-id",
                "100",
                "--repository",
                REPOSITORY,
                "--class",
                "full",
                "--count",
                "1",
                "--wait",
            ],
            0,
        )
        .await;
    for (run, fault) in &faults {
        if fault.what != "no-run" {
            opened(&client, *run).await;
        }
        asks(&client.environment, fault.what, *run).await;
    }
    stopped(&home, &client, "hangs", Signal::SIGSTOP).await;
    stopped(&home, &client, "killed", Signal::SIGKILL).await;
    let dirty = faults.iter().find(|(_, fault)| fault.what == "dirty").expect("it is there").0;
    left_behind(&home, &client, dirty).await;
    let mut named = Named::default();
    for (run, fault) in &faults {
        named.ask((&client.environment, &client.store), fault, (fault.what, *run)).await;
    }
    named.judge(faults.len());
}

fn pool(class: &str) -> Value {
    let script = SCRIPTS.iter().find(|(of, _)| *of == class).map(|(_, script)| *script);
    let mut pool = json!({"resourceClass": class, "cpu": 1, "mmem": 1024, "max": 1});
    if let Some(script) = script {
        pool["launch"] = json!({"preRunnerScript": script});
    }
    match class {
        "paused" => pool["paused"] = json!(true),
        "of-others" => pool["repositories"] = json!(["elsewhere/*"]),
        _ => {}
    }
    pool
}

/// Makes a run known to GitHub.
async fn opened(client: &Client, run: u64) {
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, run).await).await;
}

/// The first machine of a class that has an agent that speaks.
async fn speaking(client: &Client, class: &str) -> Instance {
    until(&format!("a machine of {class}"), async || {
        let seen = history::snapshot(&client.store).await?;
        seen.all::<Instance>().into_iter().find(|machine| {
            let ours = machine.facts.resource_class.as_str() == class;
            ours && machine.state() == runyard_core::model::State::Running
        })
    })
    .await
}

/// Sends a signal to the agent of a class's machine once that serves.
async fn stopped(home: &Home, client: &Client, class: &str, signal: Signal) {
    let machine = speaking(client, class).await;
    let agent = until("its agent", async || home.agent(&machine.facts.instance_id)).await;
    agent.signal(signal);
}

/// A job puts a file where the agent empties a directory, and the run gives back.
async fn left_behind(home: &Home, client: &Client, run: u64) {
    speaking(client, "dirty").await;
    let machines = home.dir().join("machines");
    let hooks = format!("find {}/$RUNYARD_MACHINE -type d -name claims", machines.display());
    let step = format!("for at in $({hooks}); do mv $at $at.old; touch $at; done");
    let job = json!({"name": "leaves", "runs_on": [run.to_string()], "steps": [step]});
    until("the job to be queued", async || client.github.jobs_queued(run, std::slice::from_ref(&job)).await)
        .await;
    until("the job's end", async || {
        let jobs = client.github.jobs(run).await?;
        jobs.iter().all(|job| !job["conclusion"].is_null()).then_some(())
    })
    .await;
    let run = run.to_string();
    client.runs(&["release", "--run-id", &run, "--repository", REPOSITORY], 0).await;
}

/// One fault of the configuration: the settings that are beside the usual ones.
async fn configured(named: &mut Named, what: &str, settings: &[(&str, &str)]) {
    let fault = FAULTS.iter().find(|fault| fault.what == what).expect("a fault of that name");
    let mut home = Home::new(&[&TIMING[..], settings].concat());
    home.up().await;
    let (environment, store) = home.table();
    asks(&environment, "small", 1).await;
    named.ask((&environment, &store), fault, ("small", 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_a_configuration_in_local_mode_are_named_by_debug() {
    let _turn = turn().await;
    let mut named = Named::default();
    let digest = "0".repeat(64);
    configured(&mut named, "another package", &[("RUNYARD_AGENT__RUNNER_SHA256", &digest)]).await;
    let url = format!("{}/runner.tar.gz", nothing().await);
    configured(&mut named, "a package that is not there", &[("RUNYARD_AGENT__RUNNER_URL", &url)]).await;
    let short = ("RUNYARD_TIMING__CREATED", "15s");
    let url = ("RUNYARD_AGENT__RUNNER_URL", "http://127.0.0.1:9/runner.tar.gz");
    configured(&mut named, "a package that nobody serves", &[url, short]).await;
    let scratch = tempfile::tempdir().expect("a place for files");
    let agent = scratch.path().join("agent");
    std::fs::write(&agent, "#!/bin/sh\nexec sleep 600\n").expect("a file");
    std::fs::set_permissions(&agent, Permissions::from_mode(0o755)).expect("it is ours");
    let agent = agent.to_str().expect("UTF-8");
    configured(&mut named, "an agent that never speaks", &[("RUNYARD_AGENT", agent), short]).await;
    replaced(&mut named).await;
    named.judge(FAULTS.len() - 12);
}

/// The operator reads its token for each call, so it is replaced beneath it, and put back.
async fn replaced(named: &mut Named) {
    let fault = FAULTS.last().expect("there are faults");
    let mut home = Home::new(&TIMING);
    home.up().await;
    let file = home.dir().join("github/github-token");
    let token = std::fs::read_to_string(&file).expect("the stand-in's token");
    std::fs::write(&file, "revoked").expect("it is ours");
    let (environment, store) = home.table();
    asks(&environment, "small", 1).await;
    named.ask((&environment, &store), fault, ("small", 1)).await;
    std::fs::write(&file, token).expect("it is ours");
    until("the request to be served, and nothing stuck", async || {
        let seen = history::snapshot(&store).await?;
        let ready = seen.all::<Request>().iter().all(|request| request.phase() == Phase::Ready);
        let stuck = |one: &Condition| one.condition_type == ConditionType::Stuck;
        let pools = seen.all::<Pool>();
        (ready && !pools.iter().any(|pool| pool.status.conditions.iter().any(stuck))).then_some(())
    })
    .await;
}

/// A server that has nothing; its address.
async fn nothing() -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound listener has an address");
    let app = Router::new().fallback(async || StatusCode::NOT_FOUND);
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}
