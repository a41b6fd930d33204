//! Does a runner that was registered ahead serve a run with real processes? It listens before any claim, gets the
//! run's label with one call, is gone when its machine is pooled again, and another takes its place. GitHub and its
//! runner take as long as they do (`Behaviour::of_github_com`).

use std::time::Duration;

use runyard_core::model::{Ahead, State};
use runyard_standin::github::{Behaviour, PACKAGE_VERSION, StandIn};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::e2e::history;
use crate::e2e::home::Client;
use crate::e2e::own_github::{apply, begins, github, home, machines, provision, works};
use crate::e2e::waiting::{turn, until};

/// As long as github.com takes for what is on the way of a claim; the rest is as the stand-in has it.
fn behaviour() -> Behaviour {
    let of_github = Behaviour::of_github_com();
    let mut behaviour = Behaviour {
        labels_answer: of_github.labels_answer,
        labels_late: of_github.labels_late,
        ..Behaviour::default()
    };
    behaviour.package.pace = of_github.package.pace;
    behaviour
}

/// Waits until the only machine is in the pool and its runner is at rest, or has none.
async fn rests(client: &Client, ahead: bool) -> Option<Ahead> {
    let what = format!("a machine in the pool, registered ahead: {ahead}");
    until(&what, async || {
        let pooled: Vec<_> =
            machines(client).await.into_iter().filter(|one| one.pooled_at().is_some()).collect();
        let [machine] = &pooled[..] else { return None };
        match (&machine.ahead, ahead) {
            (Some(known), true) if known.runner_id.is_some() => Some(Some(known.clone())),
            (None, false) => Some(None),
            (Some(_) | None, _) => None,
        }
    })
    .await
}

fn pool(ahead: bool) -> Value {
    json!({"resourceClass": "one", "cpu": 1, "mmem": 1024, "max": 1, "reuseWithin": "repository",
        "registeredAhead": ahead})
}

/// Asks for a machine, and says how long that took.
async fn timed(client: &Client, run: u64) -> Duration {
    begins(client, run).await;
    let begun = Instant::now();
    provision(client, run).await;
    begun.elapsed()
}

#[tokio::test]
async fn a_runner_registered_ahead_serves_a_run_and_is_gone_before_the_next() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().expect("a place for files");
    let listener = StandIn::bind(None).await.expect("loopback has a free port");
    let github = github(scratch.path(), listener, behaviour()).await;
    let mut home = home(&github, PACKAGE_VERSION, &[]);
    home.up().await;
    let client = home.client();
    apply(&client, &home, &pool(true)).await;
    timed(&client, 1).await;
    works(&client, 1).await;

    let first = rests(&client, true).await.expect("it is known");
    let listed = github.runners().expect("the stand-in answers");
    let [resting] = &listed[..] else { panic!("one runner: {listed:?}") };
    assert_eq!(resting.name, Ahead::name_of(&first.id));
    let label = resting.labels.iter().map(|label| label.name.as_str()).collect::<String>();
    assert_eq!(label.len(), 32, "128 random bits: {label}");
    let table = until("the table", async || history::snapshot(&client.store).await).await;
    assert!(!format!("{:?}", table.items).contains(&label), "the label at rest stands in no record");
    assert!(!home.serving().said().contains(&label), "nor in the log");

    let ahead = timed(&client, 2).await;
    let held = machines(&client).await;
    let held = held.iter().find(|one| one.state() == State::Running).expect("it runs");
    assert_eq!((held.ahead.as_ref(), held.registration.is_some()), (Some(&first), false));
    let served = github.runners().expect("the stand-in answers");
    let names: Vec<_> = served.iter().flat_map(|one| &one.labels).map(|label| label.name.as_str()).collect();
    assert_eq!((served.len(), &names[..]), (1, &["2"][..]));
    works(&client, 2).await;
    let second = rests(&client, true).await.expect("it is known");
    assert_ne!(second.id, first.id);
    let listed = github.runners().expect("the stand-in answers");
    assert_eq!(listed.iter().map(|one| one.name.clone()).collect::<Vec<_>>(), [Ahead::name_of(&second.id)]);

    apply(&client, &home, &pool(false)).await;
    rests(&client, false).await;
    until("no runner at GitHub", async || github.runners().ok()?.is_empty().then_some(())).await;
    let usual = timed(&client, 3).await;
    works(&client, 3).await;
    // For docs/performance.md: shown with `-- --nocapture`.
    println!("registered ahead {ahead:?}, the normal way {usual:?}");
    assert_eq!(home.machines().len(), 1, "always the same machine");
}
