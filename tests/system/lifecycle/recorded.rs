//! Writes the history of a yard at EC2's double, where the operator, the agents and the command line are processes and
//! machines take 5 to 15 s to boot: what `runyard simulate` is measured by (docs/foresight.md). `KEEPS=0` keeps no machine
//! warm.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::e2e::program::{Environment, verb};
use crate::e2e::waiting::turn;
use crate::lifecycle::cloud::Cloud;
use crate::lifecycle::yard::{CLASS, REPOSITORY, Yard};

const REQUESTS: u64 = 220;
/// Seconds between requests and seconds that their machines are used, on average.
const BETWEEN: f64 = 3.0;
const HELD: f64 = 10.0;
/// Seconds from a launch to the agent's first word.
const BOOTS: Range<f64> = 5.0..15.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "what a person asks this test for")]
#[ignore = "takes 15 minutes and writes RECORD=FILE: on demand, see docs/foresight.md"]
async fn a_history_at_ec2_is_recorded() {
    let file = std::env::var("RECORD").expect("RECORD=FILE says where to");
    let _turn = turn().await;
    let mut yard = Yard::of_boots(Cloud::with_bad_days(), BOOTS).await;
    let keeps: u32 = std::env::var("KEEPS").map_or(3, |count| count.parse().expect("KEEPS is a number"));
    let (desired, idle) = (format!("desired={keeps}"), if keeps == 0 { 5 } else { 60 });
    yard.runs(&["set", "pool", CLASS, &desired, "max=12", &format!("idleSeconds={idle}")]).await;
    yard.pools(keeps as usize).await;
    let environment = Arc::new(yard.environment.clone());
    let mut chance = fastrand::Rng::with_seed(1);
    let mut borrowed = JoinSet::new();
    for run in 1..=REQUESTS {
        sleep(Duration::from_secs_f64(-BETWEEN * (1.0 - chance.f64()).ln())).await;
        let held = Duration::from_secs_f64(HELD * (0.2 + 1.6 * chance.f64()));
        let count = if chance.u8(0..4) == 0 { "2" } else { "1" };
        yard.github.enqueue_run(REPOSITORY, Some(run), "build", Vec::new(), true).unwrap();
        borrowed.spawn(borrow(environment.clone(), run.to_string(), count, held));
    }
    borrowed.join_all().await;
    // Machines that are idle end, so that their lines say how long that took.
    yard.runs(&["set", "pool", CLASS, "desired=0"]).await;
    yard.pools(0).await;
    sleep(Duration::from_secs(20)).await;
    yard.runs(&["history", "export", "--since", "1d", "--file", &file]).await;
    yard.stop().await;
}

/// Asks for machines, uses them, gives them back.
async fn borrow(environment: Arc<Environment>, run: String, count: &'static str, held: Duration) {
    let of = ["--run-id", &run, "--repository", REPOSITORY];
    let asks = [["provision"].as_slice(), &of, &["--class", CLASS, "--count", count, "--wait"]].concat();
    let asked = verb(&environment, &asks).await;
    if asked.code != Some(0) {
        eprintln!("run {run}: {asked:?}");
    }
    sleep(held).await;
    let released = verb(&environment, &[["release"].as_slice(), &of].concat()).await;
    assert_eq!(released.code, Some(0), "run {run}: {released:?}");
}
