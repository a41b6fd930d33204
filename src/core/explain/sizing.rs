//! Describes how many idle machines a class keeps in the coming hours, and by which setting.

use jiff::Timestamp;

use crate::decide::{ahead, too_little};
use crate::model::Pool;
use crate::yard::Now;

/// How many hours are listed.
const HOURS_TOLD: u32 = 12;

/// Describes the numbers of the next hours in one sentence; none where they do not change.
pub fn hours_ahead(pool: &Pool, now: Timestamp) -> Option<String> {
    let hours = ahead(pool, now, HOURS_TOLD);
    let changes = hours.windows(2).any(|pair| pair[0].desired != pair[1].desired);
    let told: Vec<String> = hours.iter().map(|hour| hour.desired.to_string()).collect();
    let by = hours.iter().find(|hour| hour.desired != hours[0].desired)?.by;
    changes.then(|| format!("idle machines in the next {HOURS_TOLD} hours: {} (by {by})", told.join(", ")))
}

/// Describes how many idle machines the class keeps in the next hours, and why.
pub(super) fn told(pool: &Pool, now: Now) -> Vec<String> {
    let mut lines: Vec<String> = hours_ahead(pool, now.wall).into_iter().collect();
    if pool.spec.sizing.is_none() {
        return lines;
    }
    lines.push(match (pool.sized(), &pool.status.demand) {
        (Some(sized), Some(_)) => format!("sizing set {} at {}: {}", sized.desired, sized.at, sized.reason),
        (_, None) => "sizing has learned no whole hour yet; schedules and desired count".into(),
        (None, Some(demand)) => {
            let why = too_little(demand).unwrap_or_else(|| "it is about to".into());
            format!("sizing sets no number: {why}; schedules and desired count")
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Scene, linux};

    fn lines(spec: serde_json::Value) -> Vec<String> {
        let scene = Scene::with(spec);
        told(scene.yard.pool(&linux()).unwrap(), scene.now)
    }

    #[test]
    fn the_next_hours_are_told_where_a_schedule_changes_them() {
        assert_eq!(lines(json!({"max": 9, "desired": 2})), Vec::<String>::new());
        let schedules =
            json!([{"cron": "30 */4 * * *", "desired": 5}, {"cron": "30 2-23/4 * * *", "desired": 1}]);
        let told = lines(json!({"max": 9, "schedules": schedules}));
        assert!(told.len() == 1 && told[0].ends_with("(by schedule)"), "{told:?}");
    }

    #[test]
    fn a_class_whose_sizing_knows_nothing_says_what_counts_meanwhile() {
        let told = lines(json!({"max": 9, "sizing": {"waitP95": "20s"}}));
        assert_eq!(told, ["sizing has learned no whole hour yet; schedules and desired count"]);
    }
}
