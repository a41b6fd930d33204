//! Shows the runner scale sets of a class, and the jobs of a slot.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{line, table};
use crate::common::failure::CliResult;
use crate::output::screen::Screen;
use crate::output::table::{distance, indented};
use crate::session::context::CliContext;
use runyard_core::explain;
use runyard_core::model::{ClassName, Item, Pool, Reading, RequestKey, read};

/// Returns whether a class has scale sets, or still has a record of one.
pub(super) async fn are_there(context: &CliContext, class: &ClassName, item: &Item) -> CliResult<bool> {
    let serves = matches!(read::<Pool>(item), Reading::Record(pool) if pool.spec.serves_sets().is_some());
    Ok(serves || !context.under(&format!("queue#{class}"), "queue#").await?.is_empty())
}

/// Returns the jobs that the machines of a slot have or had: GitHub decides which job a slot serves.
pub(super) fn jobs_of(items: &[Item], now: Timestamp, slot: &RequestKey) -> Value {
    let (yard, ..) = explain::picture(items, now);
    let jobs = yard.request(slot).map(|request| explain::jobs_of_slot(&yard, request));
    jobs.into_iter()
        .flatten()
        .map(|(machine, job)| {
            let mut job = json!(job);
            job["instanceId"] = json!(machine);
            job
        })
        .collect()
}

/// Appends the table of a class's scale sets; nothing without any.
pub(super) fn show(text: &mut String, screen: &Screen, sets: &Value, now: Timestamp) {
    let ago = |at: &Value| at.as_str().and_then(|at| at.parse().ok()).map(|at| distance(at, now));
    let row = |set: &Value| {
        let state = set["state"].as_str().unwrap_or("none");
        let state = match ago(&set["condition"]["at"]) {
            Some(since) => format!("{state}, in trouble ({since})"),
            None => state.to_owned(),
        };
        let lacks = set["lacks"].as_array().into_iter().flatten().map(|lack| line(&lack["message"]));
        vec![
            line(&set["place"]),
            state,
            format!("{}, {} run", set["statistics"]["assigned"], set["statistics"]["running"]),
            ago(&set["statisticsAt"]).unwrap_or_else(|| "never".into()),
            format!(
                "{}, {} with a job, {} wait",
                set["slots"]["open"], set["slots"]["job"], set["slots"]["waiting"]
            ),
            line(&set["announced"]),
            lacks.collect::<Vec<_>>().join("; "),
        ]
    };
    let rows: Vec<Vec<String>> = sets.as_array().into_iter().flatten().map(row).collect();
    if !rows.is_empty() {
        let heads = ["PLACE", "STATE", "JOBS", "COUNTED", "SLOTS", "ANNOUNCED", "LACKS"];
        table(text, "Scale sets", indented(screen, &heads, rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::Format;

    #[test]
    fn the_scale_sets_of_a_class_are_a_table_with_ages() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let sets = json!([{
            "place": "acme", "state": "Listening", "statistics": {"assigned": 5, "running": 1},
            "statisticsAt": "2026-01-01T00:09:40Z", "slots": {"open": 2, "job": 1, "waiting": 1}, "announced": 3,
            "condition": {"at": "2026-01-01T00:05:00Z"},
            "lacks": [{"reason": "AtMost", "message": "2 jobs wait"}, {"reason": "Machines", "message": "1 waits"}],
        }]);
        let mut text = String::new();
        show(&mut text, &Screen::nowhere(Format::Text), &sets, now);
        let expected = "\
Scale sets:
  PLACE  STATE                           JOBS      COUNTED  SLOTS                    ANNOUNCED  LACKS
  acme   Listening, in trouble (5m ago)  5, 1 run  20s ago  2, 1 with a job, 1 wait  3          2 jobs wait; 1 waits

";
        assert_eq!(text, expected);
    }
}
