//! Recommends desired counts by the hour of the week for a promised wait: learned from a trace as the operator learns,
//! written as schedules, with the replay of the same trace as evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use runyard_core::decide::sizing::{FEWEST, FEWEST_DAYS, LATE, Promise, Use, learned, levels};
use runyard_core::model::{ClassName, Demand, PoolSpec, Schedule};

use crate::outcome::{Outcome, Verdict, percentile};
use crate::trace::{Times, Trace};
use crate::world::{Scenario, play};

/// A week, in which each hour of the week is learned once.
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The recommendation for a class.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The counts by the hour of the week, Monday 00:00 first.
    pub by_hour: Vec<u32>,
    /// The same as schedules.
    pub schedules: Vec<Schedule>,
    /// Whether the cap stopped it before the promise was kept.
    pub capped: bool,
    /// From how many requests, and in how many days, it was learned.
    pub learned: (usize, i64),
    /// Why it is of little value; none where the data is enough.
    pub doubt: Option<String>,
    /// The evidence of the replay for the present configuration, and for the recommendation.
    pub evidence: (Evidence, Evidence),
}

/// The result of a replay for a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The 95th percentile of the waits.
    pub wait_p95: Duration,
    /// The share of requests later than promised, or not served.
    pub late: f64,
    /// Idle machine-hours per day.
    pub idle_hours_a_day: f64,
}

/// Learns the demand that a class would remember of a trace, had it learned all along.
pub fn learn(trace: &Trace, class: &ClassName, spec: &PoolSpec, zone: &TimeZone) -> Option<Demand> {
    let none = Times::default();
    let times = trace.times.get(class).unwrap_or(&none);
    let usual =
        |samples: &crate::Samples, usual: u64| samples.percentile(50).unwrap_or(Duration::from_secs(usual));
    let (clean, hold) = (usual(&times.clean, 5), usual(&times.hold, 600));
    let of_class = trace.arrivals.iter().filter(|arrival| arrival.class == *class);
    let uses: Vec<Use> = of_class
        .map(|arrival| {
            let held = SignedDuration::try_from(arrival.hold.unwrap_or(hold) + clean).unwrap_or_default();
            Use { at: arrival.at, count: arrival.count, back: arrival.at.saturating_add(held).ok() }
        })
        .collect();
    let times = (times.lead(), Duration::from_secs(spec.idle_seconds));
    let mut demand: Option<Demand> = None;
    let mut until = trace.begin;
    while until < trace.end {
        until = until.saturating_add(WEEK).ok()?.min(trace.end);
        let known = uses.partition_point(|one| one.at < until);
        // Requests from long before the week have no influence on it.
        let begun = until.saturating_sub(WEEK + SignedDuration::from_hours(24)).ok()?;
        let first = uses.partition_point(|one| one.at < begun);
        let from = demand.as_ref().map_or(trace.begin, |demand| demand.until);
        let next = learned(demand.as_ref(), &uses[first.min(known)..known], from, until, times, zone);
        demand = next.or(demand);
    }
    demand
}

/// Computes the best counts for the remembered demand.
pub fn by_hour_of(demand: &Demand, promise: Promise) -> (Vec<u32>, bool) {
    let found = levels(&demand.bins, promise);
    (found.by_hour, found.capped)
}

/// Recommends counts for a class: the least demanding that keep the promise when the trace is replayed with them.
/// `most_hours` is the number of idle machine-hours in a week that a cap allows. None where nothing can be learned.
pub fn recommend(
    trace: &Trace,
    scenario: &Scenario,
    class: &ClassName,
    wait: Duration,
    most_hours: Option<f64>,
    zone: &TimeZone,
) -> Option<Recommendation> {
    let spec = scenario.pools.iter().find(|spec| spec.resource_class == *class)?;
    let demand = learn(trace, class, spec, zone)?;
    let requests = trace.arrivals.iter().filter(|arrival| arrival.class == *class).count();
    let days = trace.end.duration_since(trace.begin).as_hours() / 24;
    let name = zone.iana_name().unwrap_or("UTC").to_owned();
    let lead = trace.times.get(class).map_or(Duration::from_secs(60), Times::lead);
    let base = evidence(trace, class, &play(trace, scenario), wait);
    let mut best = None;
    for late in [LATE, 0.7 * LATE, 0.5 * LATE, 0.3 * LATE, 0.15 * LATE] {
        let promise = Promise { bounds: (spec.min, spec.max), most_hours, late, ..Promise::default() };
        let (by_hour, capped) = by_hour_of(&demand, promise);
        let schedules = schedules_of(&by_hour, &name, lead);
        let mut changed = scenario.clone();
        changed.by_hour.insert(class.clone(), (zone.clone(), by_hour.clone()));
        let shown = evidence(trace, class, &play(trace, &changed), wait);
        let kept = shown.late <= LATE;
        best = Some((by_hour, schedules, capped, shown));
        if kept || capped {
            break;
        }
    }
    let (by_hour, schedules, capped, shown) = best?;
    let doubt = if days < FEWEST_DAYS {
        Some(format!("{days} days say little of a week; wait until there are {FEWEST_DAYS}, better 42"))
    } else if (requests as f64) < FEWEST {
        Some(format!(
            "{requests} requests are too few to say which hours need machines; it takes {FEWEST:.0}"
        ))
    } else {
        None
    };
    Some(Recommendation {
        by_hour,
        schedules,
        capped,
        learned: (requests, days),
        doubt,
        evidence: (base, shown),
    })
}

fn evidence(trace: &Trace, class: &ClassName, outcome: &Outcome, wait: Duration) -> Evidence {
    let of_class = trace.arrivals.iter().zip(&outcome.served).filter(|(arrival, _)| arrival.class == *class);
    let served: Vec<_> = of_class.map(|(_, served)| *served).collect();
    let mut waits: Vec<Duration> =
        served.iter().filter(|one| one.verdict == Verdict::Served).map(|one| one.wait).collect();
    waits.sort_unstable();
    let late = served.iter().filter(|one| one.verdict != Verdict::Served || one.wait > wait).count();
    let days = trace.end.duration_since(trace.begin).as_secs_f64() / 86_400.0;
    let idle = outcome.hours.get(class).map_or(0.0, |hours| hours.idle / 3600.0);
    Evidence {
        wait_p95: percentile(&waits, 95),
        late: late as f64 / served.len().max(1) as f64,
        idle_hours_a_day: idle / days.max(1.0 / 24.0),
    }
}

/// Converts counts by the hour of the week into schedules. A higher count begins a boot before its hour, a lower one at
/// its hour. Days with the same change share a line.
pub fn schedules_of(by_hour: &[u32], zone: &str, lead: Duration) -> Vec<Schedule> {
    let hours = by_hour.len();
    let minutes = lead.as_secs().div_ceil(60).clamp(1, 59);
    // By minute, hour and count: the days of the week, Sunday 0.
    let mut lines: BTreeMap<(usize, u64, u32), BTreeSet<usize>> = BTreeMap::new();
    for (hour, desired) in by_hour.iter().enumerate() {
        let before = by_hour[(hour + hours - 1) % hours];
        let (at, minute) = match desired.cmp(&before) {
            std::cmp::Ordering::Greater => ((hour + hours - 1) % hours, 60 - minutes),
            std::cmp::Ordering::Less => (hour, 0),
            std::cmp::Ordering::Equal => continue,
        };
        lines.entry((at % 24, minute, *desired)).or_default().insert((at / 24 + 1) % 7);
    }
    if lines.is_empty() {
        let first = by_hour.first().copied().unwrap_or(0);
        lines.entry((0, 0, first)).or_default().insert(1);
    }
    let one = |((hour, minute, desired), days): ((usize, u64, u32), BTreeSet<usize>)| Schedule {
        cron: format!("{minute} {hour} * * {}", days_told(&days)),
        time_zone: zone.to_owned(),
        desired,
    };
    lines.into_iter().map(one).collect()
}

fn days_told(days: &BTreeSet<usize>) -> String {
    let all: Vec<usize> = days.iter().copied().collect();
    if all.len() == 7 {
        return "*".into();
    }
    let consecutive = all.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match (all.first(), all.last()) {
        (Some(first), Some(last)) if consecutive && all.len() > 2 => format!("{first}-{last}"),
        (_, _) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}
