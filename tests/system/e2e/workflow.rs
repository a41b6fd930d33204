//! What does a workflow do while everything around it is being killed? It asks, waits, runs its jobs and gives back,
//! trying each step again until the yard answers, as a workflow's own retries would.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use runyard_core::model::{Phase, Reading, Repository, Request, RequestKey, RequestName, RunId, read};
use runyard_core::ports::Store as _;
use serde_json::{Value, json};

use crate::e2e::home::Client;
use crate::e2e::waiting::until;

/// The repository of all runs.
pub(crate) const REPOSITORY: &str = "acme/web";
/// How many machines each run asks for.
pub(crate) const MACHINES: usize = 2;

/// How long jobs may take before the run is given up, as a person would who sees a lost runner.
const JOBS: Duration = Duration::from_secs(6);

/// A job notes where it ran, and every process of another run that it finds on its machine.
const JOB: &str = r#"
echo "ran $RUNYARD_MACHINE $GITHUB_RUN_ID" >> "$RESULTS"
for file in $(grep -lsz "^RUNYARD_MACHINE=$RUNYARD_MACHINE\$" /proc/[0-9]*/environ); do
  other=$(tr '\0' '\n' < "$file" 2>/dev/null | sed -n 's/^GITHUB_RUN_ID=//p' || true)
  if [ -n "$other" ] && [ "$other" != "$GITHUB_RUN_ID" ]; then
    echo "met $RUNYARD_MACHINE $GITHUB_RUN_ID $other" >> "$RESULTS"
  fi
done
sleep 0.2
"#;

/// How the runs of a test fared.
#[derive(Debug, Default)]
pub(crate) struct Fared {
    pub(crate) released: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    pub(crate) jobs_done: AtomicUsize,
    pub(crate) jobs_lost: AtomicUsize,
}

/// One run after the other until told to stop; `number` of `of` such loops.
pub(crate) async fn run_on(
    client: &Client,
    (number, of): (u64, u64),
    results: &str,
    stop: &AtomicBool,
    fared: &Fared,
) {
    let mut run = number;
    while !stop.load(Ordering::Relaxed) {
        run_once(client, run, results, fared).await;
        run += of;
    }
}

async fn run_once(client: &Client, run: u64, results: &str, fared: &Fared) {
    let id = run.to_string();
    until("the run at GitHub", async || client.github.run_opened(REPOSITORY, run).await).await;
    provision(client, run).await;
    let phase = until(&format!("run {id} to be served"), async || {
        phase_of(client, &id).await.filter(|phase| *phase == Phase::Ready || phase.is_final())
    })
    .await;
    if phase == Phase::Ready {
        jobs(client, run, results, fared).await;
    }
    let mut release = vec!["release", "--run-id", &id, "--repository", REPOSITORY];
    if run.is_multiple_of(3) {
        release.push("--wait");
    }
    until("the release", async || (client.verb(&release).await.code == Some(0)).then_some(())).await;
    let ended = until(&format!("run {id} to end"), async || {
        phase_of(client, &id).await.filter(|phase| phase.is_final())
    })
    .await;
    let count = if ended == Phase::Released { &fared.released } else { &fared.failed };
    count.fetch_add(1, Ordering::Relaxed);
    until("the run's end at GitHub", async || client.github.run_ended(run).await).await;
}

async fn provision(client: &Client, run: u64) {
    let (id, count) = (run.to_string(), MACHINES.to_string());
    let mut arguments = vec!["provision", "--run-id", &id, "--repository", REPOSITORY, "--class", "small"];
    arguments.extend(["--count", &count, "--timeout", "10m"]);
    if run.is_multiple_of(2) {
        arguments.extend(["--wait", "--keep"]);
    }
    let accepted = async || {
        let ended = client.verb(&arguments).await;
        assert_ne!(ended.code, Some(2), "{ended:?}");
        // 3: it failed, and its record says why.
        matches!(ended.code, Some(0 | 3)).then_some(())
    };
    until("the request to be written", accepted).await;
}

async fn jobs(client: &Client, run: u64, results: &str, fared: &Fared) {
    let job = |number: usize| json!({"name": format!("{run}-{number}"), "runs_on": [run.to_string()], "steps": [JOB], "env": {"RESULTS": results}});
    let jobs: Vec<Value> = (0..MACHINES).map(job).collect();
    until("the jobs to be queued", async || client.github.jobs_queued(run, &jobs).await).await;
    let over = |jobs: &[Value]| jobs.iter().all(|job| job["status"] == "completed");
    let patience = tokio::time::Instant::now() + JOBS;
    let jobs = until("the jobs", async || {
        let jobs = client.github.jobs(run).await?;
        (over(&jobs) || tokio::time::Instant::now() > patience).then_some(jobs)
    })
    .await;
    let done = jobs.iter().filter(|job| job["conclusion"] == "success").count();
    fared.jobs_done.fetch_add(done, Ordering::Relaxed);
    fared.jobs_lost.fetch_add(jobs.len() - done, Ordering::Relaxed);
}

/// How far a run's request is.
async fn phase_of(client: &Client, run: &str) -> Option<Phase> {
    let id = RequestKey {
        repository: Repository::parse(REPOSITORY).expect("a repository"),
        run_id: RunId::parse(run).expect("a run's id"),
        name: RequestName::default_name(),
        attempt: 1,
    };
    let item = client.store.get(&Request::key_of(&id)).await.ok()??;
    match read::<Request>(&item) {
        Reading::Record(request) => Some(request.phase()),
        other => panic!("{other:?}"),
    }
}
