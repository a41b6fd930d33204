//! `runyard demo`: takes three workflow runs through the whole life of their machines, shows them live, and checks them
//! against the jobs, the records, the stand-in GitHub and the process table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::opened_environment::{self, LocalModeError, OpenedEnvironment};
use runyard_core::model::{PoolSpec, RegisteredAhead};
use runyard_core::ports::{Entropy as _, Store};
use runyard_operator::process::clock::{SystemClock, SystemEntropy};
use runyard_operator::wire;
use runyard_operator::wire::Stop;
use runyard_standin::demo::{self, Check, DemoError, DemoStage, Facts, Journal, PATIENCE};
use runyard_standin::{files, say};

/// Runs the demonstration in its own directory, which is removed if all is well; returns whether it is.
///
/// # Errors
/// The demonstration could not be completed.
pub(super) async fn run(environment: &BTreeMap<String, String>) -> Result<bool, LocalModeError> {
    let stop = wire::on_signals()?;
    let dir = std::env::temp_dir().join(format!("runyard-demo-{}", SystemEntropy.hex()));
    files::private_dir(&dir).map_err(|error| system(&dir, error))?;
    let environment = quiet(environment);
    let checks = play(&dir, &environment, stop).await;
    let good = checks.as_ref().is_ok_and(|checks| checks.iter().all(|check| check.against.is_empty()));
    if good {
        files::remove_dir(&dir).map_err(|error| system(&dir, error))?;
    } else {
        say(format_args!("\nWhat it left to look at: {}", dir.display()));
    }
    checks.map(|_| good)
}

/// Returns the environment without the settings of the user's own operator, so that the demonstration is always the
/// same; only the agent and the log can be configured.
fn quiet(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = |name: &str| !name.starts_with("RUNYARD_") || ["RUNYARD_AGENT", "RUNYARD_LOG"].contains(&name);
    let log = ("RUNYARD_LOG".to_owned(), "warn".to_owned());
    let given = environment.iter().filter(|(name, _)| kept(name));
    [log].into_iter().chain(given.map(|(name, value)| (name.clone(), value.clone()))).collect()
}

fn system(path: &Path, error: std::io::Error) -> LocalModeError {
    LocalModeError::System(path.display().to_string(), error)
}

async fn play(
    dir: &Path,
    environment: &BTreeMap<String, String>,
    stop: Stop,
) -> Result<Vec<Check>, LocalModeError> {
    let results = dir.join("results.txt");
    std::fs::write(&results, "").map_err(|error| system(&results, error))?;
    let journal = Arc::new(Journal::starting(Arc::new(SystemClock::new())));
    let opened = opened_environment::open(dir.join("yard"), environment, classes()).await?;
    let OpenedEnvironment { local, config, store, wired, machines, client, .. } = opened;
    let store: Arc<dyn Store> = store;
    let telling = {
        let (journal, store) = (journal.clone(), store.clone());
        tokio::spawn(async move { journal.follow(store).await })
    };
    let operator = {
        let stop = stop.clone();
        tokio::spawn(async move { wire::serve(wired, &config, stop).await })
    };
    let stage = DemoStage {
        store,
        standin: local.standin.as_ref().expect("the demonstration has a stand-in GitHub"),
        journal: &journal,
        executable: std::env::current_exe().map_err(|error| system(dir, error))?,
        environment: child_environment(environment, client),
        results: results.to_string_lossy().into_owned(),
    };
    let mut facts = Facts::default();
    let acted = tokio::select! {
        acted = demo::act(&stage, &machines, &mut facts) => acted,
        () = stop.gently.cancelled() => Err(DemoError::Interrupted),
    };
    stop.gently.cancel();
    let stopped = tokio::time::timeout(PATIENCE, operator).await;
    telling.abort();
    // The operator wrote its last events as it stopped, and a watch shows them later.
    let written = demo::everything(stage.store.as_ref()).await;
    journal.finish(&written.unwrap_or_default());
    // Processes that still run now were left behind; they are killed only after that check.
    facts.left.processes = demo::processes(&demo::ids(&machines).await);
    machines.end_all().await;
    local.close().await;
    acted?;
    match stopped {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => return Err(error.into()),
        Ok(Err(error)) => return Err(system(dir, std::io::Error::other(error))),
        Err(_) => facts.left.processes.push("of the operator itself: it did not stop".into()),
    }
    demo::read_results(&results, &mut facts)?;
    Ok(demo::verdict(&facts))
}

/// Returns the classes. A machine's first boot takes time everywhere; here it is three seconds.
fn classes() -> Vec<PoolSpec> {
    let mut classes = opened_environment::classes();
    for class in &mut classes {
        class.launch.pre_runner_script = Some("sleep 3\n".into());
        // The checks identify a claim by its runner's name, which a runner registered ahead of the claim does not have.
        class.registered_ahead = RegisteredAhead::Never;
    }
    classes
}

/// Returns the environment of the verbs: enough to find programs and the table.
fn child_environment(
    environment: &BTreeMap<String, String>,
    client: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let kept =
        environment.iter().filter(|(name, _)| ["PATH", "HOME", "USER", "LANG"].contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).chain(client).collect()
}
