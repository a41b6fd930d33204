//! Compares two scenarios over one trace: each measure with both, their difference, and its spread over the seeds; and
//! how far the first is from the recorded values.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::ClassName;
use serde::Serialize;

use crate::outcome::{Outcome, Verdict, percentile};
use crate::trace::Trace;

/// The least and the greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "they say what they are")]
pub struct Spread {
    pub least: f64,
    pub most: f64,
}

/// One measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub measure: &'static str,
    /// Its unit: `s`, `%`, `h`, `$`, or nothing.
    pub unit: &'static str,
    /// The mean over the seeds with the current configuration.
    pub base: f64,
    /// The same with the change; none where nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<f64>,
    /// The mean difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// The spread of the differences of the seeds, each between the same seeds; of the base where nothing was changed.
    pub spread: Spread,
    /// The recorded value, where the trace has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<f64>,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The measures.
    pub rows: Vec<Row>,
    /// How far the 95th percentile of the base is from the recorded one, in seconds; none where none was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Whether the effect on the 95th percentile is larger than that error and than the spread, so that it is credible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub believable: Option<bool>,
    /// The requests that changed most, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// How many of the most changed requests are named.
const NAMED: usize = 5;

/// Returns the measures of an outcome, in the order in which they are shown.
fn measures(
    outcome: &Outcome,
    late: Duration,
    prices: &BTreeMap<ClassName, f64>,
) -> Vec<(&'static str, &'static str, f64)> {
    let waits = outcome.waits();
    let at = |part| percentile(&waits, part).as_secs_f64();
    let of = |verdict| outcome.served.iter().filter(|served| served.verdict == verdict).count() as f64;
    let warm =
        outcome.served.iter().filter(|served| served.verdict == Verdict::Served && served.warm).count();
    let all = outcome.served.len().max(1) as f64;
    let hours = outcome.total();
    let mut rows = vec![
        ("wait p50", "s", at(50)),
        ("wait p90", "s", at(90)),
        ("wait p95", "s", at(95)),
        ("wait p99", "s", at(99)),
        ("warm", "%", 100.0 * warm as f64 / of(Verdict::Served).max(1.0)),
        ("late", "%", 100.0 * outcome.late(late) as f64 / all),
        ("failed", "", of(Verdict::Failed)),
        ("gave up", "", of(Verdict::GaveUp)),
        ("machine-hours", "h", hours.total() / 3600.0),
        ("  starting", "h", hours.starting / 3600.0),
        ("  idle", "h", hours.idle / 3600.0),
        ("  claimed", "h", hours.claimed / 3600.0),
        ("  running", "h", hours.running / 3600.0),
        ("  cleaning", "h", hours.cleaning / 3600.0),
        ("  ending", "h", hours.ending / 3600.0),
    ];
    if !prices.is_empty() {
        let cost = |(class, hours): (&ClassName, &crate::outcome::Hours)| {
            prices.get(class).map_or(0.0, |price| price * hours.total() / 3600.0)
        };
        rows.push(("cost (simulated)", "$", outcome.hours.iter().map(cost).sum()));
    }
    let peak: u32 = outcome.peak.values().sum();
    rows.extend([
        ("peak live", "", f64::from(peak)),
        ("CreateFleet calls", "", outcome.calls.create_fleet as f64),
        ("  most in a minute", "", outcome.calls.create_fleet_peak as f64),
        ("machines ended", "", outcome.calls.terminate as f64),
        ("  most in a minute ", "", outcome.calls.terminate_peak as f64),
    ]);
    rows
}

/// Returns the recorded values, by the names of the measures.
fn truth(trace: &Trace) -> BTreeMap<&'static str, f64> {
    let known: Vec<_> = trace.arrivals.iter().filter_map(|arrival| arrival.truth).collect();
    let mut waits: Vec<Duration> = known.iter().filter_map(|truth| truth.wait).collect();
    if waits.is_empty() {
        return BTreeMap::new();
    }
    waits.sort_unstable();
    let warm = known.iter().filter(|truth| truth.wait.is_some() && truth.warm).count();
    let percentiles = [("wait p50", 50), ("wait p90", 90), ("wait p95", 95), ("wait p99", 99)];
    let mut all: BTreeMap<&'static str, f64> =
        percentiles.into_iter().map(|(name, part)| (name, percentile(&waits, part).as_secs_f64())).collect();
    all.insert("warm", 100.0 * warm as f64 / waits.len() as f64);
    all
}

/// Compares the outcome of the base with the outcome of the change, seed by seed. `late` is the wait after which a
/// request is late, `prices` are dollars for an hour of a machine.
pub fn compare(
    trace: &Trace,
    base: &[Outcome],
    change: &[Outcome],
    late: Duration,
    prices: &BTreeMap<ClassName, f64>,
) -> Comparison {
    let of = |outcomes: &[Outcome]| -> Vec<_> {
        outcomes.iter().map(|outcome| measures(outcome, late, prices)).collect()
    };
    let (bases, changes, truth) = (of(base), of(change), truth(trace));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let names = bases.first().cloned().unwrap_or_default();
    let rows: Vec<Row> = names
        .iter()
        .enumerate()
        .map(|(at, (measure, unit, _))| {
            let values = |all: &[Vec<(_, _, f64)>]| all.iter().map(|rows| rows[at].2).collect::<Vec<f64>>();
            let (before, after) = (values(&bases), values(&changes));
            let differences: Vec<f64> =
                before.iter().zip(&after).map(|(before, after)| after - before).collect();
            let spread_over = if differences.is_empty() { &before } else { &differences };
            Row {
                measure,
                unit,
                base: mean(&before),
                change: (!after.is_empty()).then(|| mean(&after)),
                difference: (!after.is_empty()).then(|| mean(&differences)),
                spread: Spread {
                    least: spread_over.iter().copied().fold(f64::INFINITY, f64::min),
                    most: spread_over.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                },
                truth: truth.get(measure).copied(),
            }
        })
        .collect();
    let p95 = rows.iter().find(|row| row.measure == "wait p95");
    let error = p95.and_then(|row| row.truth.map(|truth| row.base - truth));
    let believable =
        p95.and_then(|row| row.difference.map(|difference| (row, difference))).map(|(row, by)| {
            let certain = row.spread.least > 0.0 || row.spread.most < 0.0;
            certain && error.is_none_or(|error| by.abs() > error.abs())
        });
    let changed = match (base.first(), change.first()) {
        (Some(base), Some(change)) => changed_most(trace, base, change),
        (_, None) | (None, _) => Vec::new(),
    };
    Comparison { rows, error, believable, changed }
}

/// Describes the requests whose waits changed most, and why.
fn changed_most(trace: &Trace, base: &Outcome, change: &Outcome) -> Vec<String> {
    let each = trace.arrivals.iter().zip(base.served.iter().zip(&change.served));
    let mut by: Vec<_> = each
        .map(|(arrival, (before, after))| (before.wait.abs_diff(after.wait), arrival, before, after))
        .filter(|(by, ..)| *by >= Duration::from_secs(1))
        .collect();
    by.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.at.cmp(&b.1.at)).then_with(|| a.1.key.cmp(&b.1.key)));
    let line = |(_, arrival, before, after): &(Duration, &crate::Arrival, &crate::Served, &crate::Served)| {
        let ended = |served: &crate::Served| {
            let seconds = served.wait.as_secs_f64();
            match served.verdict {
                Verdict::Served => format!("ready after {seconds:.1} s"),
                Verdict::Failed => format!("failed after {seconds:.0} s"),
                Verdict::GaveUp => format!("given up after {seconds:.0} s"),
                Verdict::Open => "not ready at the end".to_owned(),
            }
        };
        let state = |served: &crate::Served| {
            format!("{} idle, {} waiting, {} launched for it", served.idle, served.waiting, served.launched)
        };
        format!(
            "{} at {} ({} of {}): {} instead of {}; when it came {} instead of {}",
            arrival.key,
            arrival.at,
            arrival.count,
            arrival.class,
            ended(after),
            ended(before),
            state(after),
            state(before),
        )
    };
    by.iter().take(NAMED).map(line).collect()
}
