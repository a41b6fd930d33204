//! What does a claim cost from end to end? `tests/bench/run` prints one table: how long until a warm machine is `Ready`
//! and until it can be claimed again, on the embedded engine and on the engines of the tests, where that time goes, how
//! long a restart takes, and the exact numbers of calls; and judges ratios and counts by `tests/bench/floors.toml`.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock and its own arguments")]
#![allow(clippy::unwrap_used, reason = "what a benchmark needs and does not get ends it")]

mod beating;
mod claims;
mod fixture;
mod floors;
mod lines;
mod program;
mod restart;
mod timed;
mod watching;
mod wire;

use fixture::{Bells, Services};
use runyard_support::engine::Engine;

/// Samples of every distribution.
const SAMPLES: usize = 200;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut figures = floors::Figures::default();
    runtime.block_on(async {
        claims::heading();
        if wanted("embedded") {
            let yards = [
                ("embedded, 10 records", Services::Embedded, 10),
                ("embedded, 10 000 records", Services::Embedded, 10_000),
            ];
            let [few, many] = claims::compare(yards, SAMPLES, &mut figures).await;
            figures.add("claim: 10 000 records over 10", many.claim / few.claim);
            figures.add("claim over its four store operations", few.claim / few.floor);
            few.print_phases();
        }
        if wanted("engines") {
            type Started = fn() -> Engine;
            for (name, hints) in [("moto", Engine::moto as Started), ("ministack", Engine::ministack)] {
                let title = format!("dynoxide in memory, SQS of {name}");
                claims::measure(&title, Services::Foreign(hints), 10, SAMPLES, &mut figures).await;
            }
        }
        if wanted("aws") {
            let yards = [
                ("AWS's latencies", Services::LikeAws(Bells::None), 10),
                ("AWS's latencies, doorbell", Services::LikeAws(Bells::Rung), 10),
                ("AWS's latencies, doorbell, agent's pace", Services::LikeAws(Bells::RungWithPacedAgent), 10),
            ];
            let measured = claims::compare(yards, SAMPLES, &mut figures).await;
            figures.add("claim: with a doorbell over without", measured[1].claim / measured[0].claim);
            measured.iter().for_each(claims::Measured::print_phases);
        }
        if wanted("shards") {
            watching::shards(64, SAMPLES / 5, &mut figures).await;
        }
        if wanted("list") {
            let records = std::env::var("RECORDS").map_or(10_000, |records| records.parse().unwrap());
            watching::list(records, SAMPLES / 10, &mut figures).await;
        }
        if wanted("restart") {
            restart::measure(10_000, &mut figures).await;
        }
        if wanted("beats") {
            println!();
            for machines in [10, 1000, 10_000] {
                beating::measure(machines, &mut figures).await;
            }
        }
        if wanted("lines") {
            lines::measure(&mut figures).await;
        }
        if wanted("flood") {
            lines::floods(&mut figures).await;
        }
    });
    if wanted("program") {
        program::measure(&mut figures);
    }
    std::process::exit(i32::from(!figures.judge()));
}
