//! What do runs cost of GitHub's hourly budget, and how long does a job wait until it is asked for?

use super::*;
use crate::model::RequestName;

const HOUR: Duration = Duration::from_secs(3600);

/// What an installation is used for.
#[derive(Clone, Copy)]
struct Load {
    repositories: u64,
    /// Runs that begin in an hour.
    runs: u64,
    /// How long the job of a run runs.
    work: Duration,
}

/// 10 000 runs a day of ten minutes.
const DAY: Load = Load { repositories: 200, runs: 417, work: Duration::from_secs(600) };
/// 100 runs at any moment in 10 repositories, each of two hours.
const CONCURRENT: Load = Load { repositories: 10, runs: 50, work: Duration::from_secs(7200) };

impl Load {
    /// Returns what an installation for these repositories may call in an hour: 5 000, and 50 more for each repository
    /// beyond 20, at most 12 500.
    /// <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>
    fn budget(self) -> f64 {
        (5_000 + 50 * self.repositories.saturating_sub(20)).min(12_500) as f64
    }
}

/// What an hour of runs cost.
struct Hour {
    /// Calls that GitHub counts.
    counted: u64,
    /// How long each job waited until a request was written for it, the shortest first.
    waits: Vec<Duration>,
}

impl Hour {
    /// Prints what it cost, and returns the share of the budget.
    fn tells(&self, load: Load, rings: bool) -> f64 {
        let (runs, share) = (load.runs, self.counted as f64 / load.budget());
        println!(
            "{runs} runs an hour of {:?}, rings {rings}: {} counted calls, {:.1} a run, {:.0} % of {}; queued -> asked p50 {:?}, p95 {:?}",
            load.work,
            self.counted,
            self.counted as f64 / runs as f64,
            100.0 * share,
            load.budget(),
            self.wait(50),
            self.wait(95)
        );
        share
    }

    fn wait(&self, percent: usize) -> Duration {
        self.waits[(self.waits.len() - 1) * percent / 100]
    }
}

/// One run of one job: queued at its time, run once it is asked for, over after its work.
async fn lives(bench: Arc<Bench>, load: Load, number: u64, rings: bool) -> Duration {
    let (hours, of_hour) = (number / load.runs, number % load.runs);
    let begins = (of_hour * 7919 % load.runs) as f64 / load.runs as f64 + hours as f64;
    tokio::time::sleep(HOUR.mul_f64(begins)).await;
    let (run, name) = (1_000_000 + number, format!("r{}", number * 31 % load.repositories));
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
    tokio::time::sleep(load.work).await;
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

/// Lives the load for so many hours, until all runs are over, and returns what the last of these hours cost and how
/// long the jobs waited that began by then.
async fn hours(load: Load, rings: bool, hours: u32) -> Hour {
    let names: Vec<String> = (0..load.repositories).map(|number| format!("acme/r{number}")).collect();
    let bench = Arc::new(watching(vec![class(json!({"repositories": names}))], vec![]));
    tokio::time::sleep(2 * EVERY).await;
    let counted = |bench: &Bench| {
        let once = bench.github.calls().get("run").copied().unwrap_or(0);
        bench.github.differed().values().sum::<u64>() + once
    };
    let all = load.runs * u64::from(hours);
    let runs: Vec<_> =
        (0..all).map(|number| tokio::spawn(lives(bench.clone(), load, number, rings))).collect();
    tokio::time::sleep(HOUR * (hours - 1)).await;
    let before = counted(&bench);
    tokio::time::sleep(HOUR).await;
    let within = counted(&bench) - before;
    let mut waits = Vec::new();
    for run in runs {
        waits.push(run.await.unwrap());
    }
    waits.sort();
    Hour { counted: within, waits }
}

/// Prints what 10 000 runs a day cost in 200 repositories.
#[tokio::test(start_paused = true)]
async fn ten_thousand_runs_a_day_cost_less_than_a_quarter_of_the_budget() {
    for (rings, longest) in [(false, EVERY + 2 * KNOWN), (true, Duration::from_secs(2))] {
        let hour = hours(DAY, rings, 2).await;
        let share = hour.tells(DAY, rings);
        assert!(share < 0.25, "{} calls", hour.counted);
        assert!(hour.wait(95) <= longest, "{:?}", hour.wait(95));
    }
}

/// Prints what 500 concurrent runs cost in 50 repositories. A fifth of them is lived: each repository is looked at by
/// itself, so the others cost as much.
#[tokio::test(start_paused = true)]
async fn five_hundred_concurrent_runs_cost_less_than_a_quarter_of_the_budget() {
    let all = Load { repositories: 5 * CONCURRENT.repositories, runs: 5 * CONCURRENT.runs, ..CONCURRENT };
    let hour = hours(CONCURRENT, false, 3).await;
    let share = Hour { counted: 5 * hour.counted, ..hour }.tells(all, false);
    assert!(share < 0.25, "{share}");
}
