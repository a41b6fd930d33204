//! Sizing on arrivals that nobody here made: four weeks to learn from, the fifth to judge, beside every static count and
//! beside somebody who knows the fifth week.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use runyard_core::decide::sizing::Promise;
use runyard_core::model::PoolSpec;
use runyard_replay::{Scenario, Trace, by_hour_of, learn, play};
use serde_json::json;

use super::arrivals::{LARGE, TRACES, WEEK, class, pool, seconds, trace};

const PROMISE: Duration = Duration::from_secs(20);

/// What came of a week.
#[derive(Clone, Copy, Debug)]
struct Week {
    late: f64,
    idle: f64,
}

fn week_by_hour(trace: &Trace, by_hour: Vec<u32>) -> Week {
    let by_hour = BTreeMap::from([(class(), (TimeZone::UTC, by_hour))]);
    of(trace, Scenario { by_hour, ..scenario(pool(json!({}))) })
}

fn scenario(spec: PoolSpec) -> Scenario {
    let (demand, by_hour) = Default::default();
    Scenario { pools: vec![spec], sharing: Default::default(), demand, by_hour, seed: 1 }
}

fn week(trace: &Trace, spec: PoolSpec, demand: Option<runyard_core::model::Demand>) -> Week {
    let demand = demand.map(|demand| BTreeMap::from([(class(), demand)])).unwrap_or_default();
    of(trace, Scenario { demand, ..scenario(spec) })
}

fn of(trace: &Trace, scenario: Scenario) -> Week {
    let outcome = play(trace, &scenario);
    Week {
        late: outcome.late(PROMISE) as f64 / trace.arrivals.len() as f64,
        idle: outcome.total().idle / 3600.0,
    }
}

/// One trace judged.
#[derive(Debug)]
struct Judged {
    name: String,
    requests: usize,
    sized: Week,
    statics: Vec<Week>,
    /// Who knows when each request of the week comes, and keeps counts by the hour.
    clairvoyant: Option<Week>,
    /// Who knows how many come in each hour of the week on average, as they come on days alike and in hours near it.
    rates: Option<Week>,
}

impl Judged {
    /// The smallest static count that has no more late requests.
    fn best_static(&self) -> Option<(usize, Week)> {
        let mut statics = self.statics.iter().copied().enumerate();
        statics.find(|(_, week)| week.late <= self.sized.late)
    }

    /// The idle hours of static counts at exactly this share of late requests, as if two were mixed.
    fn mixed_static(&self) -> Option<f64> {
        let pair = self.statics.windows(2).find(|pair| pair[1].late <= self.sized.late)?;
        let (more, less) = (pair[0], pair[1]);
        let part = if more.late > less.late {
            ((more.late - self.sized.late) / (more.late - less.late)).clamp(0.0, 1.0)
        } else {
            1.0
        };
        Some(more.idle + part * (less.idle - more.idle))
    }
}

/// The cheapest counts by the hour of who knows the week, at no more late requests.
fn knowing(judging: &Trace, late: f64, apart: bool) -> Option<Week> {
    let known = learn(judging, &class(), &pool(json!({})), &TimeZone::UTC).unwrap();
    let tried = (0..15).map(|part| {
        let late = late * 1.5 * (1.0 - f64::from(part) / 15.0);
        let promise = Promise { bounds: (0, 60), late, apart, ..Promise::default() };
        week_by_hour(judging, by_hour_of(&known, promise).0)
    });
    let kept = tried.filter(|week| week.late <= late);
    kept.min_by(|one, other| one.idle.total_cmp(&other.idle))
}

fn judged(name: &str, text: &str) -> Judged {
    let all = seconds(text);
    let end = *all.last().unwrap() + 1;
    let (learning, judging) = (trace(&all, end - 5 * WEEK, end - WEEK), trace(&all, end - WEEK, end));
    let sizing = pool(json!({"sizing": {"waitP95": "20s"}}));
    let demand = learn(&learning, &class(), &sizing, &TimeZone::UTC).unwrap();
    let sized = week(&judging, sizing, Some(demand));
    let mut statics: Vec<Week> = Vec::new();
    while statics.len() <= 24 && statics.last().is_none_or(|week| week.late > sized.late) {
        statics.push(week(&judging, pool(json!({"desired": statics.len()})), None));
    }
    let (clairvoyant, rates) = (knowing(&judging, sized.late, true), knowing(&judging, sized.late, false));
    Judged { name: name.to_owned(), requests: judging.arrivals.len(), sized, statics, clairvoyant, rates }
}

fn row(judged: &Judged) -> String {
    let sized = judged.sized;
    let saved = |idle: f64| 100.0 * (1.0 - sized.idle / idle);
    let known = |week: Option<Week>| {
        week.map_or("none found".to_owned(), |week| {
            format!("{:.0} ({:.2})", week.idle, sized.idle / week.idle)
        })
    };
    let best = judged.best_static().map_or("none".to_owned(), |(count, best)| {
        let mixed = judged.mixed_static().unwrap_or(best.idle);
        let (first, second) = (saved(best.idle), saved(mixed));
        let (late, idle) = (100.0 * best.late, best.idle);
        format!("{count} ({late:.1}%) | {idle:.0} | {first:.0}% | {mixed:.0} | {second:.0}%")
    });
    format!(
        "| {} | {} | {:.1}% | {:.0} | {best} | {} | {} |",
        judged.name,
        judged.requests,
        100.0 * sized.late,
        sized.idle,
        known(judged.clairvoyant),
        known(judged.rates),
    )
}

const HEAD: &str = "| trace | requests | late | idle h | static (late) | idle h | saved | mixed h | saved | clairvoyant (times) | knows the rates (times) |";

#[test]
fn sizing_on_pushes_of_public_repositories_beside_the_best_static_count() {
    println!("{HEAD}");
    for (name, text) in LARGE {
        let judged = judged(name, text);
        println!("{}", row(&judged));
        assert!(judged.sized.late < 0.15, "the promise is 5 of 100: {judged:?}");
        let (_, best) = judged.best_static().unwrap();
        assert!(judged.sized.idle < best.idle, "no static count is better: {judged:?}");
    }
}

#[test]
fn sizing_on_commits_of_small_default_branches_is_reported() {
    println!("{HEAD}");
    for (name, text) in TRACES {
        let judged = judged(name, text);
        println!("{}", row(&judged));
        assert!(judged.sized.idle > 0.0 && judged.sized.late < 0.5, "{judged:?}");
    }
}

/// `RUNYARD_ARRIVALS=FILE,FILE cargo test -p runyard-replay --test foresight -- --ignored --nocapture other` tries sizing
/// on other arrivals: files of seconds since the epoch, one a line, of at least 35 days.
#[test]
#[ignore = "it reads files that RUNYARD_ARRIVALS names"]
#[allow(clippy::disallowed_methods, reason = "somebody names files to try")]
fn sizing_on_other_arrivals_that_somebody_names() {
    println!("{HEAD}");
    for file in std::env::var("RUNYARD_ARRIVALS").unwrap().split(',') {
        println!("{}", row(&judged(file, &std::fs::read_to_string(file).unwrap())));
    }
}
