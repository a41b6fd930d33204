//! How long does a replay take? `cargo bench -p runyard-replay --bench replay --profile measured`: 30 days of 10 000
//! requests a day on one core, twice, with the same outcome (`-- 7 1000`: so many days of so many requests).

#![allow(clippy::unwrap_used, reason = "what a benchmark needs and does not get ends it")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own arguments")]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{ClassName, Repository, RequestKey, RequestName, RunId};
use runyard_replay::{Arrival, Chance, Samples, Scenario, Times, Trace, play};

const DAY: f64 = 86_400.0;
const BEGIN: i64 = 1_767_571_200;

/// This thread's time on a processor: others who use the machine meanwhile do not count.
fn on_cpu() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    told.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn trace(days: u64, a_day: u64) -> Trace {
    let class = ClassName::parse("linux").unwrap();
    let chance = Chance::new(1);
    let mut at = 0.0;
    let arrival = |number: u64| {
        // Four times as many by day as by night.
        let busy = (at / DAY).fract() > 0.33 && (at / DAY).fract() < 0.83;
        let between = DAY / a_day as f64 * if busy { 0.625 } else { 2.5 };
        at += -between * chance.share(1, number, 0).ln();
        let hold = 240.0 * 2_f64.powf(3.0 * chance.share(2, number, 0));
        Arrival {
            key: RequestKey {
                repository: Repository::parse("acme/web").unwrap(),
                run_id: RunId::parse(&(9_000_000_000 + number).to_string()).unwrap(),
                name: RequestName::parse("default").unwrap(),
                attempt: 1,
            },
            class: class.clone(),
            at: Timestamp::from_millisecond(BEGIN * 1000 + (at * 1000.0) as i64).unwrap(),
            notice: Duration::from_millis(300),
            count: 1,
            min_count: 1,
            usage: None,
            types: None,
            priority: None,
            timeout_seconds: 600,
            max_runtime_minutes: None,
            hold: Some(Duration::from_secs_f64(hold)),
            gave_up: None,
            truth: None,
        }
    };
    let arrivals: Vec<Arrival> = (0..days * a_day).map(arrival).collect();
    let seconds = |from: u64, to: u64| Samples::new((from..=to).map(Duration::from_secs).collect());
    let times = Times {
        boot: seconds(48, 94),
        warm_boot: seconds(45, 90),
        claim: seconds(2, 4),
        clean: seconds(4, 8),
        end: seconds(20, 40),
        ..Times::default()
    };
    Trace {
        begin: Timestamp::from_second(BEGIN).unwrap(),
        end: Timestamp::from_second(BEGIN + days as i64 * 86_400).unwrap(),
        arrivals,
        times: BTreeMap::from([(class, times)]),
        failures: Vec::new(),
    }
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let (days, a_day) = (numbers.first().copied().unwrap_or(30), numbers.get(1).copied().unwrap_or(10_000));
    let pool = serde_json::json!({
        "resourceClass": "linux", "cpu": 2, "mmem": 4096, "desired": 8, "max": 1000, "idleSeconds": 600,
        "maxRuntimeMinutes": 120,
    });
    let (sharing, demand, by_hour) = Default::default();
    let scenario =
        Scenario { pools: vec![serde_json::from_value(pool).unwrap()], sharing, demand, by_hour, seed: 1 };
    let trace = trace(days, a_day);
    let once = || {
        let begun = on_cpu();
        let outcome = play(&trace, &scenario);
        println!(
            "{days} days of {a_day} requests: {:.1} s on a processor, digest {:016x}, at most {:?} machines, p95 {:?}",
            on_cpu() - begun,
            outcome.digest,
            outcome.peak.values().max(),
            runyard_replay::percentile(&outcome.waits(), 95),
        );
        outcome
    };
    assert_eq!(once(), once(), "a replay is the same every time");
    println!("the same bit for bit");
}
