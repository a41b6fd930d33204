//! How many idle machines a class keeps at a moment: a person's override, else the schedule that fired last, else the
//! pool's own number; never under `min`, never above `max`.

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model::{FieldError, Pool, Schedule};

/// What is wanted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Idle machines to keep.
    pub desired: u32,
    /// When that changes by itself, as far as it is known.
    pub until: Option<Timestamp>,
}

/// Checks a schedule.
///
/// # Errors
/// Names the pattern or the time zone that cannot be read.
pub fn check(schedule: &Schedule) -> Result<(), FieldError> {
    parse(schedule).map(|_| ())
}

fn parse(schedule: &Schedule) -> Result<(Cron, TimeZone), FieldError> {
    let zone = TimeZone::get(&schedule.time_zone).map_err(|error| {
        let fix = "use an IANA name such as Europe/Berlin or UTC";
        FieldError::new("schedules.timeZone", &schedule.time_zone, error.to_string(), fix)
    })?;
    let cron: Cron = schedule.cron.parse().map_err(|error: croner::errors::CronError| {
        let fix = "use five fields: minute hour day-of-month month day-of-week, for example 0 8 * * 1-5";
        FieldError::new("schedules.cron", &schedule.cron, error.to_string(), fix)
    })?;
    Ok((cron, zone))
}

/// When a schedule fired last and fires next. A schedule that cannot be read never fires.
fn firings(schedule: &Schedule, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let Ok((cron, zone)) = parse(schedule) else { return (None, None) };
    let now = now.to_zoned(zone);
    let last = cron.find_previous_occurrence(&now, true).ok();
    let next = cron.find_next_occurrence(&now, false).ok();
    (last.map(|at| at.timestamp()), next.map(|at| at.timestamp()))
}

/// What a pool wants at a moment.
pub fn effective(pool: &Pool, now: Timestamp) -> Effective {
    let spec = &pool.spec;
    let bounded = |desired: u32| desired.max(spec.min).min(spec.max);
    let over = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
    if let Some(scale) = pool.scale.as_ref().filter(|scale| !over(scale.until)) {
        return Effective { desired: bounded(scale.desired), until: scale.until };
    }
    let fired: Vec<_> =
        spec.schedules.iter().map(|schedule| (firings(schedule, now), schedule.desired)).collect();
    let last = fired.iter().filter_map(|((last, _), desired)| last.map(|at| (at, *desired))).max();
    let until = fired.iter().filter_map(|((_, next), _)| *next).min();
    Effective { desired: bounded(last.map_or(spec.desired, |(_, desired)| desired)), until }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PoolOverride, PoolSpec, PoolStatus};

    fn pool(schedules: &[(&str, &str, u32)]) -> Pool {
        let mut spec: PoolSpec =
            serde_json::from_value(serde_json::json!({"resourceClass": "linux", "desired": 1, "max": 10}))
                .unwrap();
        spec.schedules = schedules
            .iter()
            .map(|(cron, zone, desired)| Schedule {
                cron: (*cron).into(),
                time_zone: (*zone).into(),
                desired: *desired,
            })
            .collect();
        Pool { spec, scale: None, status: PoolStatus::default(), version: 1, updated_at: None }
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn without_schedules_the_pools_own_number_counts() {
        assert_eq!(effective(&pool(&[]), at("2026-01-05T12:00:00Z")), Effective { desired: 1, until: None });
    }

    #[test]
    fn the_schedule_that_fired_last_counts_until_the_next() {
        let pool = pool(&[("0 8 * * 1-5", "Europe/Berlin", 5), ("0 18 * * 1-5", "Europe/Berlin", 0)]);
        // A Monday in January: Berlin is UTC+1.
        let morning = effective(&pool, at("2026-01-05T07:30:00Z"));
        assert_eq!(morning, Effective { desired: 5, until: Some(at("2026-01-05T17:00:00Z")) });
        assert_eq!(effective(&pool, at("2026-01-05T17:00:00Z")).desired, 0);
        // In July it is UTC+2.
        assert_eq!(effective(&pool, at("2026-07-06T06:00:00Z")).desired, 5);
    }

    #[test]
    fn of_two_that_fire_together_the_larger_counts() {
        let pool = pool(&[("0 8 * * *", "UTC", 2), ("0 8 * * *", "UTC", 4)]);
        assert_eq!(effective(&pool, at("2026-01-05T08:00:00Z")).desired, 4);
    }

    #[test]
    fn an_override_beats_schedules_until_it_is_over() {
        let mut pool = pool(&[("0 8 * * *", "UTC", 2)]);
        let until = Some(at("2026-01-05T10:00:00Z"));
        pool.scale =
            Some(PoolOverride { desired: 7, until, by: "me".into(), at: at("2026-01-05T09:00:00Z") });
        assert_eq!(effective(&pool, at("2026-01-05T09:59:59Z")), Effective { desired: 7, until });
        assert_eq!(effective(&pool, at("2026-01-05T10:00:00Z")).desired, 2);
    }

    #[test]
    fn min_and_max_bound_whatever_is_wanted() {
        let mut pool = pool(&[("0 8 * * *", "UTC", 99)]);
        assert_eq!(effective(&pool, at("2026-01-05T09:00:00Z")).desired, 10);
        pool.spec.schedules[0].desired = 0;
        pool.spec.min = 3;
        assert_eq!(effective(&pool, at("2026-01-05T09:00:00Z")).desired, 3);
    }

    #[test]
    fn patterns_and_zones_that_cannot_be_read_are_refused_by_name() {
        let schedule =
            |cron: &str, zone: &str| Schedule { cron: cron.into(), time_zone: zone.into(), desired: 1 };
        assert!(check(&schedule("0 8 * * 1-5", "Europe/Berlin")).is_ok());
        assert_eq!(check(&schedule("often", "UTC")).unwrap_err().field, "schedules.cron");
        assert_eq!(check(&schedule("0 8 * * *", "Berlin")).unwrap_err().field, "schedules.timeZone");
    }
}
