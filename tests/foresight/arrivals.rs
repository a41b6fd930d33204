//! Traces of arrivals that nobody here made: the commit times of five public repositories, each as a push. The rules by
//! which repositories, counts and times are chosen stand in docs/foresight.md and were written down before any result.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{ClassName, PoolSpec, Repository, RequestKey, RequestName, RunId};
use runyard_replay::{Arrival, Chance, Samples, Times, Trace};

/// The traces, the busiest first: seconds since the epoch, one a line.
pub(crate) const TRACES: [(&str, &str); 5] = [
    ("ruff", include_str!("../golden/arrivals/ruff.txt")),
    ("rails", include_str!("../golden/arrivals/rails.txt")),
    ("uv", include_str!("../golden/arrivals/uv.txt")),
    ("kafka", include_str!("../golden/arrivals/kafka.txt")),
    ("cargo", include_str!("../golden/arrivals/cargo.txt")),
];

/// Those of the five large repositories: seconds in which somebody pushed.
pub(crate) const LARGE: [(&str, &str); 5] = [
    ("ruff", include_str!("../golden/arrivals/large/ruff.txt")),
    ("kafka", include_str!("../golden/arrivals/large/kafka.txt")),
    ("uv", include_str!("../golden/arrivals/large/uv.txt")),
    ("bevy", include_str!("../golden/arrivals/large/bevy.txt")),
    ("polars", include_str!("../golden/arrivals/large/polars.txt")),
];

pub(crate) const WEEK: i64 = 7 * 24 * 3600;
const SEED: u64 = 21;

pub(crate) fn class() -> ClassName {
    ClassName::parse("linux").unwrap()
}

/// The pool of all of them; what it keeps idle is what is tried.
pub(crate) fn pool(more: serde_json::Value) -> PoolSpec {
    let mut spec = serde_json::json!({
        "resourceClass": "linux", "max": 60, "idleSeconds": 300, "cpu": 2, "mmem": 4096,
        "allowedInstanceTypes": ["m7i.large"], "maxRuntimeMinutes": 120,
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

pub(crate) fn seconds(text: &str) -> Vec<i64> {
    let mut all: Vec<i64> = text.lines().map(|line| line.parse().unwrap()).collect();
    all.sort_unstable();
    all
}

/// A push asks for 1 machine (six of ten), 2 (three) or 4 (one), and holds them for 4 to 32 minutes, by a seed.
pub(crate) fn arrival(number: usize, at: i64) -> Arrival {
    let chance = Chance::new(SEED);
    let subject = number as u64;
    let count = match chance.of(100, subject, 0) % 10 {
        0..6 => 1,
        6..9 => 2,
        _ => 4,
    };
    let hold = 240.0 * 2_f64.powf(3.0 * chance.share(101, subject, 0));
    Arrival {
        key: RequestKey {
            repository: Repository::parse("acme/web").unwrap(),
            run_id: RunId::parse(&(1_000_000 + number).to_string()).unwrap(),
            name: RequestName::parse("default").unwrap(),
            attempt: 1,
        },
        class: class(),
        at: Timestamp::from_second(at).unwrap(),
        notice: Duration::from_millis(300),
        count,
        min_count: count,
        usage: None,
        types: None,
        priority: None,
        timeout_seconds: 600,
        max_runtime_minutes: None,
        hold: Some(Duration::from_secs_f64(hold)),
        gave_up: None,
        truth: None,
    }
}

/// Boots take 45 to 90 s, claims 2 to 4 s, clean-ups 4 to 8 s.
pub(crate) fn times() -> BTreeMap<ClassName, Times> {
    let between = |from: u64, to: u64| {
        let step = |n: u64| Duration::from_millis(1000 * from + (to - from) * 10 * n);
        Samples::new((0..=100).map(step).collect())
    };
    let times = Times {
        boot: between(48, 94),
        warm_boot: between(45, 90),
        claim: between(2, 4),
        clean: between(4, 8),
        end: between(20, 40),
        hold: Samples::default(),
        tell: Samples::default(),
        types: vec!["m7i.large".into()],
    };
    BTreeMap::from([(class(), times)])
}

/// The part of a trace between two moments.
pub(crate) fn trace(all: &[i64], begin: i64, end: i64) -> Trace {
    let within = all.iter().enumerate().filter(|(_, at)| (begin..end).contains(*at));
    Trace {
        begin: Timestamp::from_second(begin).unwrap(),
        end: Timestamp::from_second(end).unwrap(),
        arrivals: within.map(|(number, at)| arrival(number, *at)).collect(),
        times: times(),
        failures: Vec::new(),
    }
}
