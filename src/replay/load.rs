//! Builds a trace from the lines of a history.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::history::{Activity, HistoryLine, MachineLine, RequestLine};
use runyard_core::model::{ClassName, Phase, RecordId, RequestKey};

use crate::trace::{Arrival, Failure, Samples, Times, Trace, Truth};

/// Builds the trace of the requests in a period. Lines may come in any order; a line that was given twice counts once.
/// None where there were no requests.
pub fn load(lines: impl IntoIterator<Item = HistoryLine>, from: Timestamp, to: Timestamp) -> Option<Trace> {
    let mut arrivals: BTreeMap<(Timestamp, RequestKey), Arrival> = BTreeMap::new();
    let mut machines: BTreeMap<(String, Timestamp), MachineLine> = BTreeMap::new();
    let mut failures = BTreeMap::new();
    for line in lines {
        match line {
            HistoryLine::Request(line) => {
                if let Some(arrival) = arrival(&line).filter(|arrival| (from..to).contains(&arrival.at)) {
                    arrivals.insert((arrival.at, arrival.key.clone()), arrival);
                }
            }
            HistoryLine::Machine(line) => {
                machines.insert((line.instance_id.to_string(), line.from()), line);
            }
            HistoryLine::LaunchFailure(line) => {
                let code = line.code.unwrap_or_else(|| "LaunchFailed".into());
                let (at, class, usage) = (line.at, line.resource_class, line.usage_class);
                failures.insert(
                    (at, line.launch_id.to_string(), line.attempt),
                    Failure { at, class, usage, code },
                );
            }
            HistoryLine::Statement(_) | HistoryLine::Event(_) => (),
        }
    }
    let (Some(first), Some(_)) = (arrivals.keys().next(), arrivals.keys().next_back()) else { return None };
    let begin = first.0;
    let cold = cold_requests(machines.values());
    let mut arrivals: Vec<Arrival> = arrivals.into_values().collect();
    for arrival in &mut arrivals {
        if let Some(truth) = &mut arrival.truth {
            truth.warm = truth.wait.is_some() && !cold.contains(&arrival.key);
        }
    }
    let times = times(machines.values(), &arrivals);
    Some(Trace { begin, end: to, arrivals, times, failures: failures.into_values().collect() })
}

/// Returns the requests for which a machine was launched.
fn cold_requests<'a>(
    machines: impl Iterator<Item = &'a MachineLine>,
) -> std::collections::BTreeSet<RequestKey> {
    let starting = machines.flat_map(|line| &line.spans).filter(|span| span.activity == Activity::Starting);
    starting.filter_map(|span| span.request.as_ref().and_then(RecordId::request).cloned()).collect()
}

fn arrival(line: &RequestLine) -> Option<Arrival> {
    let key = line.request.request()?.clone();
    let class = ClassName::parse(&line.resource_class).ok()?;
    let at = line.created_at.or(line.accepted_at)?;
    let since =
        |at: Timestamp, until: Timestamp| Duration::try_from(until.duration_since(at)).unwrap_or_default();
    // The workflow's clock may be ahead of the operator's.
    let accepted = line.accepted_at.map_or(at, |accepted| accepted.max(at));
    let hold = line.ready_at.map(|ready| since(ready, line.released_at.unwrap_or(line.ended_at)));
    let gave_up = match (line.ready_at, line.phase) {
        (None, Phase::Released) => Some(since(at, line.released_at.unwrap_or(line.ended_at))),
        (Some(_) | None, _) => None,
    };
    Some(Arrival {
        key,
        class,
        at,
        notice: since(at, accepted),
        count: line.count,
        min_count: line.min_count,
        usage: line.usage_class,
        types: line.allowed_instance_types.clone(),
        priority: line.priority.clone(),
        timeout_seconds: line.timeout_seconds,
        max_runtime_minutes: line.max_runtime_minutes,
        hold,
        gave_up,
        truth: Some(Truth { wait: line.ready_at.map(|ready| since(at, ready)), warm: false }),
    })
}

/// Times of one class while they are collected.
#[derive(Default)]
struct Collected {
    boot: Vec<(Timestamp, Duration)>,
    warm_boot: Vec<(Timestamp, Duration)>,
    claim: Vec<(Timestamp, Duration)>,
    clean: Vec<(Timestamp, Duration)>,
    end: Vec<(Timestamp, Duration)>,
    hold: Vec<Duration>,
    tell: Vec<(Timestamp, Duration)>,
    types: BTreeMap<String, usize>,
}

impl From<Collected> for Times {
    fn from(collected: Collected) -> Self {
        let mut types: Vec<(String, usize)> = collected.types.into_iter().collect();
        types.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Self {
            boot: Samples::recorded(collected.boot),
            warm_boot: Samples::recorded(collected.warm_boot),
            claim: Samples::recorded(collected.claim),
            clean: Samples::recorded(collected.clean),
            end: Samples::recorded(collected.end),
            tell: Samples::recorded(collected.tell),
            hold: Samples::new(collected.hold),
            types: types.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

fn times<'a>(
    machines: impl Iterator<Item = &'a MachineLine>,
    arrivals: &[Arrival],
) -> BTreeMap<ClassName, Times> {
    let mut classes: BTreeMap<ClassName, Collected> = BTreeMap::new();
    // When the last runner of each request listened.
    let mut listened: BTreeMap<RequestKey, Timestamp> = BTreeMap::new();
    for line in machines {
        let class = classes.entry(line.resource_class.clone()).or_default();
        if !line.instance_type.is_empty() {
            *class.types.entry(line.instance_type.clone()).or_default() += 1;
        }
        for (at, span) in line.spans.iter().enumerate() {
            let took = (span.from, Duration::try_from(span.to.duration_since(span.from)).unwrap_or_default());
            let next = line.spans.get(at + 1).map(|next| next.activity);
            if let (Activity::Running, Some(key)) =
                (span.activity, span.request.as_ref().and_then(RecordId::request))
            {
                let last = listened.entry(key.clone()).or_insert(span.from);
                *last = span.from.max(*last);
            }
            // A span that ended otherwise, by a failure, does not show how long the activity takes.
            match (span.activity, next) {
                (Activity::Starting, Some(Activity::Running)) => class.boot.push(took),
                (Activity::Starting, None | Some(Activity::Idle)) => class.warm_boot.push(took),
                (Activity::Claimed, Some(Activity::Running)) => class.claim.push(took),
                (Activity::Cleaning, None | Some(Activity::Idle)) => class.clean.push(took),
                (Activity::Ending, _) => class.end.push(took),
                (
                    Activity::Starting
                    | Activity::Idle
                    | Activity::Claimed
                    | Activity::Running
                    | Activity::Cleaning
                    | Activity::Held,
                    _,
                ) => (),
            }
        }
    }
    for arrival in arrivals {
        let class = classes.entry(arrival.class.clone()).or_default();
        class.hold.extend(arrival.hold);
        let ready =
            arrival.truth.and_then(|truth| truth.wait).and_then(|wait| arrival.at.checked_add(wait).ok());
        if let Some((ready, listened)) = ready.zip(listened.get(&arrival.key)) {
            let told = Duration::try_from(ready.duration_since(*listened)).unwrap_or_default();
            class.tell.push((*listened, told));
        }
    }
    classes.into_iter().map(|(class, collected)| (class, Times::from(collected))).collect()
}
