//! Comparisons and recommendations as lines of text.

use runyard_replay::{Comparison, Evidence, Recommendation, Row};
use serde_json::{Value, json};

use super::input::Input;
use runyard_core::model::WaitTarget;

/// Formats a comparison.
pub(super) fn comparison(input: &Input, comparison: &Comparison) -> Vec<String> {
    let trace = &input.trace;
    let mut lines = vec![format!(
        "{} requests from {} until {}",
        trace.arrivals.len(),
        trace.begin.strftime("%F %H:%M"),
        trace.end.strftime("%F %H:%M")
    )];
    if input.unread > 0 {
        lines.push(format!("{} lines of the history could not be read and are left out", input.unread));
    }
    let known = comparison.rows.iter().any(|row| row.truth.is_some());
    let changed = comparison.rows.iter().any(|row| row.change.is_some());
    let mut head = format!("{:<20}", "");
    if known {
        head += &format!("{:>12}", "HAPPENED");
    }
    head += &format!("{:>12}", "BASE");
    if changed {
        head += &format!("{:>12}{:>12}", "CHANGE", "DIFFERENCE");
    }
    lines.push(format!("{head}  SPREAD"));
    lines.extend(comparison.rows.iter().map(|row| one(row, known, changed)));
    lines.push(match comparison.error {
        Some(error) => format!("error of the base: its 95th percentile is {error:+.1} s off what happened"),
        None => "nothing is known of what truly happened, so the base has no known error".into(),
    });
    match comparison.believable {
        Some(true) => lines.push("the change of the 95th percentile is larger than that error and alike for all seeds".into()),
        Some(false) => lines.push(
            "not ranked: the change of the 95th percentile is within the error of the base, or differs between seeds".into(),
        ),
        None => (),
    }
    if !comparison.changed.is_empty() {
        lines.push("changed most:".into());
        lines.extend(comparison.changed.iter().map(|line| format!("  {line}")));
    }
    lines
}

fn one(row: &Row, known: bool, changed: bool) -> String {
    let number = |value: f64| {
        if row.unit.is_empty() { format!("{value:.0}") } else { format!("{value:.1} {}", row.unit) }
    };
    let mut line = format!("{:<20}", row.measure);
    if known {
        line += &format!("{:>12}", row.truth.map_or_else(String::new, number));
    }
    line += &format!("{:>12}", number(row.base));
    if changed {
        line += &format!("{:>12}", row.change.map_or_else(String::new, number));
        line += &format!("{:>12}", row.difference.map_or_else(String::new, number));
    }
    format!("{line}  {} to {}", number(row.spread.least), number(row.spread.most))
}

/// Formats the result of a replay as JSON.
pub(super) fn evidence_json(evidence: &Evidence) -> Value {
    json!({
        "waitP95Seconds": evidence.wait_p95.as_secs_f64(),
        "lateShare": evidence.late,
        "idleHoursADay": evidence.idle_hours_a_day,
    })
}

/// Formats a recommendation as a part of a file of pools, with its evidence as comments.
pub(super) fn recommendation(class: &str, wait: WaitTarget, found: &Recommendation) -> Vec<String> {
    let (requests, days) = found.learned;
    let mut lines = vec![format!("# class {class}, learned from {requests} requests of {days} days")];
    if let Some(doubt) = &found.doubt {
        lines.push(format!("# doubtful: {doubt}"));
    }
    if found.capped {
        lines.push(format!("# the cap was spent before 95 of 100 requests were within {wait}"));
    }
    let (before, after) = &found.evidence;
    for (name, evidence) in [("as it is", before), ("as recommended", after)] {
        lines.push(format!(
            "# {name:<15} p95 {:>6.1} s, {:>5.1} % later than {wait}, {:>6.1} idle machine-hours a day",
            evidence.wait_p95.as_secs_f64(),
            100.0 * evidence.late,
            evidence.idle_hours_a_day
        ));
    }
    lines.push("# the replay is of the weeks that it was learned from; the next ones differ".into());
    lines.push("schedules:".into());
    lines.extend(found.schedules.iter().map(|schedule| {
        format!(
            "  - {{cron: \"{}\", timeZone: {}, desired: {}}}",
            schedule.cron, schedule.time_zone, schedule.desired
        )
    }));
    lines
}
