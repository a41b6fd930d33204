//! A class that several repositories share, each a trust domain: how many requests find a warm machine, and what the idle
//! machines for that cost. The arrivals carry no repositories, so each is given one by a seed, a few more often than
//! others, as in docs/foresight.md.

use runyard_core::model::Repository;
use runyard_replay::{Chance, Scenario, Trace, Verdict, play};
use serde_json::json;

use super::arrivals::{LARGE, TRACES, WEEK, pool, seconds, trace};

/// The repositories, each with how many of 100 requests are its own.
const REPOSITORIES: [(&str, u64); 4] =
    [("acme/web", 50), ("acme/api", 25), ("other/site", 15), ("third/lib", 10)];
/// How many machines the class keeps idle.
const DESIRED: u32 = 4;
const SEED: u64 = 21;

/// The repository of a push: its place among them.
fn repository_of(number: usize) -> usize {
    let mut drawn = Chance::new(SEED).of(102, number as u64, 0) % 100;
    for (place, (_, share)) in REPOSITORIES.iter().enumerate() {
        match drawn.checked_sub(*share) {
            Some(rest) => drawn = rest,
            None => return place,
        }
    }
    unreachable!("the shares are 100 together")
}

/// The last week of a trace, by the repositories, and of which each request is.
fn week(text: &str) -> (Trace, Vec<usize>) {
    let all = seconds(text);
    let end = all[all.len() - 1] + 1;
    let mut week = trace(&all, end - WEEK, end);
    let places: Vec<usize> = (0..week.arrivals.len()).map(repository_of).collect();
    for (arrival, place) in week.arrivals.iter_mut().zip(&places) {
        arrival.key.repository = Repository::parse(REPOSITORIES[*place].0).unwrap();
    }
    (week, places)
}

/// What came of a week.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Warm {
    /// Of 100 requests, how many got all their machines from the pool.
    all: f64,
    /// The same of the repositories but the largest.
    smaller: f64,
    idle_hours: f64,
}

fn played(text: &str, within: &str) -> Warm {
    let (trace, places) = week(text);
    let spec = pool(json!({"desired": DESIRED, "reuseWithin": within}));
    let (demand, by_hour) = Default::default();
    let scenario = Scenario { pools: vec![spec], sharing: Default::default(), demand, by_hour, seed: 1 };
    let outcome = play(&trace, &scenario);
    let share = |of: &dyn Fn(usize) -> bool| {
        let served = outcome.served.iter().zip(&places).filter(|(_, place)| of(**place));
        let warm = served.clone().filter(|(one, _)| one.verdict == Verdict::Served && one.warm).count();
        100.0 * warm as f64 / served.count() as f64
    };
    Warm {
        all: share(&|_| true),
        smaller: share(&|place| place > 0),
        idle_hours: outcome.total().idle / 3600.0,
    }
}

/// The same weeks by the rule before, played at commit f9b78f96: `desired` was met by idle machines of any trust domain.
/// Of 100 requests, those of all and of the smaller repositories that found warm machines, and the idle hours.
const BY_NUMBER: [(f64, f64, f64); 10] = [
    (74.1, 66.7, 675.0),
    (74.6, 73.8, 675.0),
    (50.0, 44.4, 675.0),
    (79.3, 75.0, 674.0),
    (80.6, 73.7, 673.0),
    (64.3, 56.2, 698.0),
    (70.4, 62.0, 689.0),
    (70.0, 62.9, 689.0),
    (71.2, 65.9, 687.0),
    (66.2, 56.6, 687.0),
];

const HEAD: &str = "| trace | requests | any: warm | smaller | idle h | by number: warm | smaller | idle h | by domain: warm | smaller | idle h |";

/// How many points of 100 a trust domain may cost, where the next requests are to find a machine but 5 of 100.
const COST: f64 = 6.0;

#[test]
fn smaller_repositories_find_warm_machines_though_each_machine_is_for_one() {
    println!("{HEAD}");
    let large = LARGE.map(|(name, text)| (format!("{name}, large"), text));
    let all = TRACES.map(|(name, text)| (name.to_owned(), text)).into_iter().chain(large);
    for ((name, text), before) in all.zip(BY_NUMBER) {
        let (any, own) = (played(text, "any"), played(text, "repository"));
        let before = Warm { all: before.0, smaller: before.1, idle_hours: before.2 };
        let told = [any, before, own]
            .map(|warm| format!("{:.1} % | {:.1} % | {:.0}", warm.all, warm.smaller, warm.idle_hours));
        println!("| {name} | {} | {} |", week(text).1.len(), told.join(" | "));
        assert!(own.all > before.all && own.smaller > before.smaller, "{name}: {own:?} after {before:?}");
        assert!(own.smaller >= any.smaller - COST, "{name}: {own:?} beside {any:?}");
        assert!(own.idle_hours <= 1.1 * any.idle_hours, "{name}: {own:?} beside {any:?}");
    }
}
