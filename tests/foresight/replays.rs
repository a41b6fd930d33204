//! The replay: the same every time, paired by its seed, and true to what was recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::decide::effective;
use runyard_core::decide::sizing::hour_of_week;
use runyard_core::model::history::HistoryLine;
use runyard_core::model::{Pool, PoolSpec};
use runyard_replay::{
    Scenario, Trace, Truth, Verdict, compare, load, picture, play, recommend, schedules_of,
};
use serde_json::json;

use super::arrivals::{TRACES, WEEK, class, pool, seconds, trace};

fn scenario(desired: u32, seed: u64) -> Scenario {
    let pools = vec![pool(json!({"desired": desired}))];
    Scenario {
        pools,
        sharing: Default::default(),
        demand: Default::default(),
        by_hour: Default::default(),
        seed,
    }
}

#[test]
fn the_same_trace_and_seed_give_the_same_outcome_bit_for_bit() {
    let all = seconds(TRACES[0].1);
    let end = all[all.len() - 1];
    let trace = trace(&all, end - WEEK, end);
    let (first, second) = (play(&trace, &scenario(2, 7)), play(&trace, &scenario(2, 7)));
    assert_eq!(first, second);
    assert_ne!(first.digest, play(&trace, &scenario(2, 8)).digest, "another seed is another day");
}

/// A trace whose truth is what came of a replay of it, with the times of its machines drawn by another seed.
fn recorded(desired: u32, seed: u64) -> runyard_replay::Trace {
    let all = seconds(TRACES[0].1);
    let end = all[all.len() - 1];
    let mut trace = trace(&all, end - 2 * WEEK, end);
    let outcome = play(&trace, &scenario(desired, seed));
    for (arrival, served) in trace.arrivals.iter_mut().zip(&outcome.served) {
        let wait = (served.verdict == Verdict::Served).then_some(served.wait);
        arrival.truth = Some(Truth { wait, warm: served.warm });
    }
    trace
}

#[test]
fn a_replay_is_within_a_twentieth_of_what_was_recorded_at_the_95th_percentile() {
    let errors = (0..5).map(|desired| {
        let trace = recorded(desired, 100 + u64::from(desired));
        let base: Vec<_> = (1..=3).map(|seed| play(&trace, &scenario(desired, seed))).collect();
        let found = compare(&trace, &base, &[], Duration::from_secs(20), &BTreeMap::new());
        let p95 = found.rows.iter().find(|row| row.measure == "wait p95").unwrap();
        (found.error.unwrap() / p95.truth.unwrap()).abs()
    });
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    println!("errors of the 95th percentile: {errors:.3?}");
    assert!(errors[2] <= 0.05, "the median error is {:.3}", errors[2]);
}

/// Histories of yards of real processes with the machines that each kept: in local mode on a busy machine and on one
/// with nothing else to do, as `tests/bench/calibrate/record` wrote them, and at EC2's double
/// (`tests/system/lifecycle/recorded.rs`).
const RECORDED: [(&str, &str, u32); 3] = [
    ("busy", include_str!("../golden/history/busy.jsonl"), 4),
    ("idle", include_str!("../golden/history/idle.jsonl"), 4),
    ("ec2", include_str!("../golden/history/ec2.jsonl"), 3),
];

fn of_processes(recorded: &str, desired: u32) -> (Trace, PoolSpec) {
    let lines: Vec<HistoryLine> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.iter().map(HistoryLine::at).max().unwrap();
    let spec = json!({
        "resourceClass": "small", "cpu": 2, "mmem": 4096, "desired": desired, "max": 12, "idleSeconds": 60,
        "sharing": {"by": "repository", "halfLife": "24h"}, "reuseWithin": "owner",
    });
    (load(lines, Timestamp::MIN, last).unwrap(), serde_json::from_value(spec).unwrap())
}

#[test]
fn real_processes_are_replayed_within_a_twentieth_at_the_95th_percentile() {
    for (name, recorded, desired) in RECORDED {
        let (trace, spec) = of_processes(recorded, desired);
        let once = |seed| play(&trace, &Scenario { pools: vec![spec.clone()], ..scenario(0, seed) });
        let of = |seed| compare(&trace, &[once(seed)], &[], Duration::from_secs(20), &BTreeMap::new());
        let p95 = |seed| {
            let found = of(seed);
            let row = found.rows.iter().find(|row| row.measure == "wait p95").unwrap();
            found.error.unwrap() / row.truth.unwrap()
        };
        let mut errors: Vec<f64> = (1..=11).map(p95).collect();
        println!("{name}: errors of the 95th percentile: {errors:.3?}");
        for row in of(1).rows {
            println!("{}: {:.2} {}, {:?} in truth", row.measure, row.base, row.unit, row.truth);
        }
        errors.iter_mut().for_each(|error| *error = error.abs());
        errors.sort_by(f64::total_cmp);
        println!("{name}: the median error is {:.3}", errors[5]);
        assert!(errors[5] <= 0.05, "{name}: the median error is {:.3}", errors[5]);
        let bytes = || serde_json::to_string(&of(1)).unwrap();
        assert_eq!(bytes(), bytes());
    }
}

#[test]
fn a_change_is_ranked_when_its_effect_is_larger_than_the_error_and_else_not() {
    let trace = recorded(1, 100);
    let late = Duration::from_secs(20);
    let of = |desired| (1..=3).map(|seed| play(&trace, &scenario(desired, seed))).collect::<Vec<_>>();
    let (one, many) = (of(1), of(12));
    let large = compare(&trace, &one, &many, late, &BTreeMap::new());
    assert_eq!(large.believable, Some(true), "{large:?}");
    assert_eq!(large.changed.len(), 5);
    assert!(large.changed[0].contains("instead of"), "{}", large.changed[0]);
    let none = compare(&trace, &one, &one, late, &BTreeMap::new());
    assert_eq!(none.believable, Some(false), "nothing changed");
    assert!(none.changed.is_empty() && none.rows.iter().all(|row| row.difference == Some(0.0)));
    // As wrong as can be about what happened: nothing is ranked within that.
    let mut wrong = trace.clone();
    for arrival in &mut wrong.arrivals {
        arrival.truth = Some(Truth { wait: Some(Duration::from_secs(3600)), warm: false });
    }
    assert_eq!(compare(&wrong, &one, &many, late, &BTreeMap::new()).believable, Some(false));
}

#[test]
fn a_picture_and_a_comparison_are_the_same_bytes_every_time() {
    let trace = recorded(1, 100);
    let (base, change) = (play(&trace, &scenario(1, 1)), play(&trace, &scenario(4, 1)));
    assert_eq!(picture(&base, Some(&change)), picture(&base, Some(&change)));
    assert!(picture(&base, None).starts_with("<svg ") && picture(&base, None).ends_with("</svg>\n"));
    let json = || {
        let (base, change) = ([base.clone()], [change.clone()]);
        let found = compare(&trace, &base, &change, Duration::from_secs(20), &BTreeMap::new());
        serde_json::to_string(&found).unwrap()
    };
    assert_eq!(json(), json());
}

#[test]
fn a_history_is_read_in_any_order_and_a_line_given_twice_counts_once() {
    let request = |run: u32, at: &str, ready: &str, ended: &str| {
        json!({"line": "request", "request": {"pk": format!("request#acme/web#{run}"), "sk": "request#default#1"},
               "repository": "acme/web", "runId": run.to_string(), "name": "default", "attempt": 1,
               "resourceClass": "linux", "count": 1, "minCount": 1, "createdAt": at, "acceptedAt": at,
               "readyAt": ready, "releasedAt": ended, "endedAt": ended, "phase": "Released",
               "timeoutSeconds": 600})
    };
    let lines = [
        request(2, "2026-01-05T09:00:00Z", "2026-01-05T09:01:00Z", "2026-01-05T09:11:00Z"),
        request(1, "2026-01-05T08:00:00Z", "2026-01-05T08:00:03Z", "2026-01-05T08:10:03Z"),
        request(2, "2026-01-05T09:00:00Z", "2026-01-05T09:01:00Z", "2026-01-05T09:11:00Z"),
    ];
    let lines = lines.map(|line| serde_json::from_value::<HistoryLine>(line).unwrap());
    let trace = load(lines, Timestamp::MIN, "2026-01-05T10:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(trace.arrivals.len(), 2);
    assert_eq!(trace.arrivals[0].hold, Some(Duration::from_secs(600)));
    assert_eq!(trace.arrivals[1].truth.unwrap().wait, Some(Duration::from_secs(60)));
    assert!(load([], Timestamp::MIN, Timestamp::MAX).is_none(), "nothing was requested");
}

#[test]
fn recommended_counts_become_schedules_that_say_the_same_at_every_hour() {
    let by_hour: Vec<u32> =
        (0..168).map(|hour| u32::from(hour / 24 < 5) * u32::from(hour % 24 > 7) * 3).collect();
    let schedules = schedules_of(&by_hour, "Europe/Berlin", Duration::from_secs(90));
    assert_eq!(schedules.len(), 2, "{schedules:?}");
    let pool = Pool {
        spec: runyard_core::model::PoolSpec { schedules, ..pool(json!({})) },
        scale: None,
        status: Default::default(),
        uid: None,
        version: 1,
        updated_at: None,
    };
    let zone = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    // Across the change of the clock in March.
    let begin: Timestamp = "2026-03-23T00:00:00Z".parse().unwrap();
    for hour in 0..336 {
        let at = begin + jiff::SignedDuration::from_mins(60 * hour + 30);
        let wanted = by_hour[usize::from(hour_of_week(at, &zone))];
        assert_eq!(effective(&pool, at).desired, wanted, "at {at}");
    }
}

#[test]
fn a_recommendation_says_when_there_is_too_little_to_go_by() {
    let all = seconds(TRACES[4].1);
    let end = all[all.len() - 1];
    let few = trace(&all, end - WEEK, end);
    let wait = Duration::from_secs(20);
    let of =
        |trace: &Trace| recommend(trace, &scenario(1, 1), &class(), wait, None, &jiff::tz::TimeZone::UTC);
    let found = of(&few).unwrap();
    assert!(found.doubt.unwrap().contains("days say little"));
    let capped =
        recommend(&few, &scenario(1, 1), &class(), wait, Some(3.0), &jiff::tz::TimeZone::UTC).unwrap();
    assert!(capped.capped && capped.by_hour.iter().sum::<u32>() <= 3);
    assert!(
        of(&Trace { arrivals: Vec::new(), ..few }).is_some_and(|none| none.by_hour.iter().all(|n| *n == 0))
    );
}
