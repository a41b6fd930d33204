//! Does a new version of GitHub's runner reach machines that wait in the pool, with real processes? A few claims try it,
//! then all have it, and no machine is replaced.

use std::path::Path;

use runyard_core::model::{Adoption, Pool, RunnerTrial};
use runyard_standin::github::{Behaviour, PackageBehaviour, StandIn};
use serde_json::json;

use crate::e2e::history;
use crate::e2e::home::Client;
use crate::e2e::own_github::{apply, begins, github, home, machines, provision, works};
use crate::e2e::waiting::{turn, until};

const FORMER: &str = "2.998.0";
const NEWER: &str = "2.999.0";

/// A GitHub whose newest package is of this version; where it was before in this directory.
async fn offering(dir: &Path, version: &str) -> StandIn {
    let package = PackageBehaviour { version: version.to_owned(), ..PackageBehaviour::default() };
    let listener = StandIn::bind(Some(dir)).await.expect("loopback has a free port");
    github(dir, listener, Behaviour { package, ..Behaviour::default() }).await
}

/// Serves a run; the version that its claim names, and the one that its runner told GitHub.
async fn served(client: &Client, github: &StandIn, run: u64) -> (Option<String>, Option<String>) {
    begins(client, run).await;
    provision(client, run).await;
    let [machine] = &machines(client).await[..] else { panic!("one machine") };
    let named = machine.runner.as_ref().map(|package| package.version.clone());
    let told = github.runners().expect("the stand-in answers").pop().and_then(|runner| runner.version);
    works(client, run).await;
    (named, told)
}

async fn adoption(client: &Client) -> Adoption {
    let table = until("the table", async || history::snapshot(&client.store).await).await;
    let pools = table.all::<Pool>().into_iter();
    let mut ours = pools.filter(|pool| pool.spec.resource_class.as_str() == "one");
    ours.next().expect("it was applied").status.runner
}

#[tokio::test]
async fn a_newer_runner_is_tried_and_adopted_by_the_machine_that_is_there() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().expect("a place for files");
    let former = offering(scratch.path(), FORMER).await;
    let address = former.address();
    let mut home = home(&former, FORMER, &[("RUNYARD_AGENT__RUNNER_FOLLOW", "latest")]);
    home.up().await;
    let client = home.client();
    apply(&client, &home, &json!({"resourceClass": "one", "cpu": 1, "mmem": 1024, "max": 1})).await;
    // One class of all tries a version, and that is to be ours.
    for other in ["pool/small", "pool/large"] {
        client.runs(&["delete", other, "--yes"], 0).await;
    }
    let pinned = (Some(FORMER.to_owned()), Some(FORMER.to_owned()));
    assert_eq!(served(&client, &former, 1).await, pinned);

    // GitHub releases a version. The operator asks when it begins, and once a day.
    former.stop().await.expect("it stops");
    let github = offering(scratch.path(), NEWER).await;
    assert_eq!(github.address(), address);
    home.serving().kill_nine();
    home.up().await;
    let tries = async || {
        adoption(&client).await.trial.is_some_and(|trial| trial.package.version == NEWER).then_some(())
    };
    until("the trial", tries).await;
    let newer = (Some(NEWER.to_owned()), Some(NEWER.to_owned()));
    for run in 2..2 + RunnerTrial::CLAIMS as u64 {
        assert_eq!(served(&client, &github, run).await, newer, "run {run} tries it");
    }
    let adopts = async || {
        adoption(&client).await.adopted.is_some_and(|package| package.version == NEWER).then_some(())
    };
    until("the adoption", adopts).await;
    assert_eq!(served(&client, &github, 9).await, newer);
    assert_eq!(home.machines().len(), 1, "always the same machine");
}
