//! Faults of a runner that was registered: it ends without being asked, or cannot reach GitHub.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runyard_core::model::{Agent, Instance, State};
use runyard_standin::github::{Behaviour, EndOfLife, StandIn, TokenService};
use serde_json::{Value, json};

use crate::e2e::history;
use crate::e2e::home::{Client, Home};
use crate::e2e::own_github::{begins, github, home};
use crate::e2e::waiting::{turn, until};
use crate::seeded::named::{Fault, Harm, Named, Part, REPOSITORY, asks};

const VERSION: &str = "2.999.0";
/// Between two looks at a runner that is to end.
const AGAIN: Duration = Duration::from_millis(200);

const fn fault(what: &'static str, cause: &'static str, harm: Harm) -> Fault {
    Fault { part: Part::Runner, what, cause, harm }
}

/// All of this file; the names are those of classes.
pub(crate) const FAULTS: &[Fault] = &[
    fault("killed", "runner-killed", Harm::Machine),
    fault("deleted", "runner-forgotten", Harm::Machine),
    fault("cut-off", "runner-cut-off", Harm::Troubled),
    fault("refused", "runner-deprecated", Harm::Degraded),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_a_registered_runner_are_named_by_debug() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().expect("a place for files");
    let listener = StandIn::bind(None).await.expect("loopback has a free port");
    let github = github(scratch.path(), listener, Behaviour::default()).await;
    let mut home = home(&github, VERSION, &[]);
    home.up().await;
    let client = home.client();
    let pools: Vec<Value> = FAULTS
        .iter()
        .map(|fault| json!({"resourceClass": fault.what, "cpu": 1, "mmem": 1024, "max": 1}))
        .collect();
    let file = home.beside("pools.json");
    fs::write(&file, Value::from(pools).to_string()).expect("a file");
    client.runs(&["apply", "-f", file.to_str().expect("UTF-8")], 0).await;

    for run in 1..=4 {
        begins(&client, run).await;
    }
    let mut named = Named::default();
    let [killed, deleted, cut_off, refused] = FAULTS else { panic!("four faults") };
    asks(&client.environment, killed.what, 1).await;
    tokio::select! {
        () = named.ask((&client.environment, &client.store), killed, (killed.what, 1)) => {}
        () = each_that_serves(&client, killed.what, async || kills_listeners(&home)) => {}
    }
    asks(&client.environment, deleted.what, 2).await;
    tokio::select! {
        () = named.ask((&client.environment, &client.store), deleted, (deleted.what, 2)) => {}
        () = each_that_serves(&client, deleted.what, async || {
            client.github.runners_deleted(REPOSITORY, "2").await;
        }) => {}
    }

    github
        .behave(Behaviour { token_service: TokenService::Unwell, ..Behaviour::default() })
        .expect("it does");
    asks(&client.environment, cut_off.what, 3).await;
    named.ask((&client.environment, &client.store), cut_off, (cut_off.what, 3)).await;

    github.behave(Behaviour::default()).expect("it does");
    asks(&client.environment, refused.what, 4).await;
    until("a runner that listens", async || serving(&client, refused.what).await).await;
    let ended = EndOfLife {
        version: VERSION.to_owned(),
        registration: None,
        runtime: Some(jiff::Timestamp::UNIX_EPOCH),
    };
    github.behave(Behaviour { ends_of_life: vec![ended], ..Behaviour::default() }).expect("it does");
    named.ask((&client.environment, &client.store), refused, (refused.what, 4)).await;
    named.judge(FAULTS.len());
}

/// A machine of a class that serves, and whose runner listens.
async fn serving(client: &Client, class: &str) -> Option<()> {
    let seen = history::snapshot(&client.store).await?;
    let machines = seen.all::<Instance>().into_iter();
    let mut ours = machines.filter(|machine| {
        machine.facts.resource_class.as_str() == class && machine.state() == State::Running
    });
    let arn = ours.next()?.facts.instance_arn;
    let agents = seen.all::<Agent>();
    let agent = agents.iter().find(|agent| agent.arn.as_ref() == Some(&arn))?;
    agent.runner_trouble.is_none().then_some(())
}

/// Does harm to each runner of a class that serves.
async fn each_that_serves(client: &Client, class: &str, harm: impl AsyncFn()) {
    loop {
        if serving(client, class).await.is_some() {
            harm().await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Kills the listeners of a home's machines.
fn kills_listeners(home: &Home) {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        let root = home.dir().join("machines");
        let [_, b"stand-in-runner", b"--root", at, b"run", ..] = arguments[..] else { continue };
        if at.starts_with(root.as_os_str().as_encoded_bytes()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
