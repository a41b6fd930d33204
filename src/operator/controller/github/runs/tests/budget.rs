//! What do runs cost of GitHub's hourly budget, and how long does a job wait until it is asked for?

use super::*;
use crate::model::RequestName;

const REPOSITORIES: u64 = 200;
/// Runs in an hour, as 10 000 a day are.
const RUNS: u64 = 417;
const HOUR: Duration = Duration::from_secs(3600);
/// How long the job of a run runs.
const WORK: Duration = Duration::from_secs(600);
/// What an installation for so many repositories may call in an hour: 5 000, and 50 more for each repository beyond 20, at
/// most this many. <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>
const BUDGET: f64 = 12_500.0;

/// What an hour of runs cost.
struct Hour {
    /// Calls that GitHub counts.
    counted: u64,
    /// How long each job waited until a request was written for it, the shortest first.
    waits: Vec<Duration>,
}

impl Hour {
    fn wait(&self, percent: usize) -> Duration {
        self.waits[(self.waits.len() - 1) * percent / 100]
    }
}

/// One run of one job: queued at its time, run once it is asked for, over after its work.
async fn lives(bench: Arc<Bench>, number: u64, rings: bool) -> Duration {
    tokio::time::sleep(HOUR.mul_f64((number * 7919 % RUNS) as f64 / RUNS as f64)).await;
    let (run, name) = (1_000_000 + number, format!("r{}", number * 31 % REPOSITORIES));
    let repository = format!("acme/{name}");
    let key = RecordId::Request(RequestKey {
        repository: repository.parse().unwrap(),
        run_id: run.to_string().parse().unwrap(),
        name: RequestName::parse("small").unwrap(),
        attempt: 1,
    });
    let github = &bench.github;
    github.queue_job("acme", &name, run, "build", &[&format!("{run}-small")]);
    let queued = tokio::time::Instant::now();
    if rings {
        bench.ring(&repository, run).await;
    }
    while bench.store.get(&key).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let waited = queued.elapsed();
    github.change_jobs("acme", &name, run, 1, |job| {
        (job.state, job.runner) = (JobState::Active, Some("runyard-i-1.2".into()));
    });
    tokio::time::sleep(WORK).await;
    github.change_jobs("acme", &name, run, 1, |job| job.state = JobState::Succeeded);
    bench.complete(&repository, run);
    let released = async || match bench.store.get(&key).await.unwrap().map(|item| read::<Request>(&item)) {
        Some(Reading::Record(request)) => request.is_released(),
        Some(Reading::Newer { .. } | Reading::Unreadable(_)) | None => false,
    };
    while !released().await {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Its machines are given back, and nobody looks at what is over.
    bench.store.remove(&key);
    waited
}

async fn an_hour(rings: bool) -> Hour {
    let names: Vec<String> = (0..REPOSITORIES).map(|number| format!("acme/r{number}")).collect();
    let bench = Arc::new(watching(vec![class(json!({"repositories": names}))], vec![]));
    tokio::time::sleep(2 * EVERY).await;
    let counted = |bench: &Bench| {
        let once = bench.github.calls().get("run").copied().unwrap_or(0);
        bench.github.differed().values().sum::<u64>() + once
    };
    let before = counted(&bench);
    let runs: Vec<_> = (0..RUNS).map(|number| tokio::spawn(lives(bench.clone(), number, rings))).collect();
    let mut waits = Vec::new();
    for run in runs {
        waits.push(run.await.unwrap());
    }
    waits.sort();
    Hour { counted: counted(&bench) - before, waits }
}

/// Prints what 10 000 runs a day cost in 200 repositories.
#[tokio::test(start_paused = true)]
async fn ten_thousand_runs_a_day_cost_less_than_a_quarter_of_the_budget() {
    for (rings, longest) in [(false, EVERY + 2 * KNOWN), (true, Duration::from_secs(2))] {
        let hour = an_hour(rings).await;
        let share = hour.counted as f64 / BUDGET;
        println!(
            "{RUNS} runs an hour, rings {rings}: {} counted calls, {:.1} a run, {:.0} % of {BUDGET}; queued -> asked p50 {:?}, p95 {:?}",
            hour.counted,
            hour.counted as f64 / RUNS as f64,
            100.0 * share,
            hour.wait(50),
            hour.wait(95)
        );
        assert!(share < 0.25, "{} calls", hour.counted);
        assert!(hour.wait(95) <= longest, "{:?}", hour.wait(95));
    }
}
