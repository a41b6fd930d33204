//! How many idle machines does a class keep at a given time? A person's override, else the number that the operator set
//! by `sizing`, else the schedule that fired last, else the pool's own number; never below `min`, never above `max`.

use croner::Cron;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::model::{DEMAND_STALE, FieldError, Pool, Schedule};

/// The number of idle machines in effect now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Idle machines to keep.
    pub desired: u32,
    /// When the number changes by itself, as far as that is known.
    pub until: Option<Timestamp>,
}

/// Checks a schedule.
///
/// # Errors
/// Names the pattern that cannot be read or never fires, or the time zone that cannot be read.
pub fn check(schedule: &Schedule) -> Result<(), FieldError> {
    parse(schedule).map(|_| ())
}

fn parse(schedule: &Schedule) -> Result<(Cron, TimeZone), FieldError> {
    let zone = TimeZone::get(&schedule.time_zone).map_err(|error| {
        let fix = "use an IANA name such as Europe/Berlin or UTC";
        FieldError::new("schedules.timeZone", &schedule.time_zone, error.to_string(), fix)
    })?;
    let refused = |message: String| {
        let fix = "use five fields: minute hour day-of-month month day-of-week, for example 0 8 * * 1-5";
        FieldError::new("schedules.cron", &schedule.cron, message, fix)
    };
    let fields = schedule.cron.split_whitespace().count();
    if fields != 5 && !schedule.cron.trim_start().starts_with('@') {
        return Err(refused(format!("has {fields} fields, not five")));
    }
    let cron: Cron =
        schedule.cron.parse().map_err(|error: croner::errors::CronError| refused(error.to_string()))?;
    if !fires(&cron) {
        return Err(refused("never fires: there is no such day".into()));
    }
    Ok((cron, zone))
}

/// Returns whether there is a day on which a schedule fires, within the 28 years after which the days of the week
/// repeat. A schedule that never fires would be searched through the years to 5000, in every decision about its class.
fn fires(cron: &Cron) -> bool {
    let months = (2000_i16..2028).flat_map(|year| (1_i8..=12).map(move |month| date(year, month, 1)));
    let on = |day: Date| {
        let (year, month, of_month) =
            (i32::from(day.year()), day.month().unsigned_abs(), day.day().unsigned_abs());
        let weekday = day.weekday().to_sunday_zero_offset().unsigned_abs();
        let weekday = croner::Weekday::from_days_from_sunday(weekday.into());
        cron.pattern.day_match(year, month.into(), of_month.into(), weekday).is_ok_and(|on| on)
    };
    months
        .filter(|first| cron.pattern.month_match(first.month().unsigned_abs().into()).is_ok_and(|on| on))
        .any(|first| {
            let days = 0..first.days_in_month();
            days.filter_map(|n| first.checked_add(i64::from(n).days()).ok()).any(on)
        })
}

/// Returns when a schedule fired last and fires next. A schedule that cannot be read never fires.
fn firings(schedule: &Schedule, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let Ok((cron, zone)) = parse(schedule) else { return (None, None) };
    let now = now.to_zoned(zone);
    let last = cron.find_previous_occurrence(&now, true).ok();
    let next = cron.find_next_occurrence(&now, false).ok();
    (last.map(|at| at.timestamp()), next.map(|at| at.timestamp()))
}

/// Computes the number of idle machines that a pool wants at a given time.
pub fn effective(pool: &Pool, now: Timestamp) -> Effective {
    let spec = &pool.spec;
    let bounded = |desired: u32| desired.max(spec.min).min(spec.max);
    let over = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
    if let Some(scale) = pool.scale.as_ref().filter(|scale| !over(scale.until)) {
        return Effective { desired: bounded(scale.desired), until: scale.until };
    }
    let remembered =
        pool.status.demand.as_ref().map(|demand| crate::model::after(demand.until, DEMAND_STALE));
    if let (Some(sized), Some(until)) = (pool.sized(), remembered.filter(|until| now < *until)) {
        return Effective { desired: bounded(sized.desired), until: Some(until) };
    }
    let fired: Vec<_> =
        spec.schedules.iter().map(|schedule| (firings(schedule, now), schedule.desired)).collect();
    let last = fired.iter().filter_map(|((last, _), desired)| last.map(|at| (at, *desired))).max();
    let until = fired.iter().filter_map(|((_, next), _)| *next).min();
    Effective { desired: bounded(last.map_or(spec.desired, |(_, desired)| desired)), until }
}

/// The number of idle machines of a coming hour, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The beginning of the hour; now for the current hour.
    pub at: Timestamp,
    /// The number.
    pub desired: u32,
    /// `scale`, `sizing`, `schedule` or `desired`.
    pub by: &'static str,
}

/// Lists the numbers of the coming hours, as they are known now. `sizing` learns, so its later numbers may change.
pub fn ahead(pool: &Pool, now: Timestamp, hours: u32) -> Vec<Ahead> {
    let spec = &pool.spec;
    let hour = now.as_second().div_euclid(3600) * 3600;
    let at = |ahead: u32| {
        let begins = Timestamp::from_second(hour + i64::from(ahead) * 3600);
        begins.unwrap_or(now).max(now)
    };
    let sized = |at: Timestamp| {
        let (sized, demand) = (pool.sized()?, pool.status.demand.as_ref()?);
        let ahead = usize::try_from((at.as_second() - demand.until.as_second()).div_euclid(3600)).ok()?;
        sized.next.get(ahead).map(|desired| (*desired).max(spec.min).min(spec.max))
    };
    let of = |at: Timestamp| {
        let scaled = pool.scale.as_ref().is_some_and(|scale| scale.until.is_none_or(|until| at < until));
        if !scaled
            && at > now
            && let Some(desired) = sized(at)
        {
            return Ahead { at, desired, by: "sizing" };
        }
        let desired = effective(pool, at).desired;
        let by = match (scaled, pool.sized().is_some(), spec.schedules.is_empty()) {
            (true, _, _) => "scale",
            (false, true, _) => "sizing",
            (false, false, false) => "schedule",
            (false, false, true) => "desired",
        };
        Ahead { at, desired, by }
    };
    (0..hours).map(at).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Bins, Demand, PoolOverride, PoolSpec, PoolStatus, SizedDesired};

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
        Pool { spec, scale: None, status: PoolStatus::default(), uid: None, version: 1, updated_at: None }
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
    fn a_number_set_by_sizing_counts_before_schedules_and_while_its_demand_is_fresh() {
        let mut pool = pool(&[("0 8 * * *", "UTC", 2)]);
        let now = at("2026-01-05T09:00:00Z");
        pool.status.sized_desired = Some(SizedDesired {
            desired: 6,
            at: now,
            looked_at: None,
            reason: String::new(),
            next: Vec::new(),
        });
        let demand = Demand { since: now, until: now, bins: Bins::default(), pace: Default::default() };
        assert_eq!(effective(&pool, now).desired, 2, "a class without `sizing` has none");
        pool.spec.sizing = serde_json::from_value(serde_json::json!({"waitP95": "20s"})).unwrap();
        assert_eq!(effective(&pool, now).desired, 2, "nothing is remembered");
        pool.status.demand = Some(demand);
        let until = Some(at("2026-01-06T09:00:00Z"));
        assert_eq!(effective(&pool, now), Effective { desired: 6, until });
        assert_eq!(effective(&pool, at("2026-01-06T09:00:00Z")).desired, 2, "its demand is stale");
        pool.spec.max = 4;
        assert_eq!(effective(&pool, now).desired, 4);
        pool.scale = Some(PoolOverride { desired: 1, until: None, by: "me".into(), at: now });
        assert_eq!(effective(&pool, now).desired, 1, "a person comes first");
    }

    #[test]
    fn min_and_max_bound_whatever_is_wanted() {
        let mut pool = pool(&[("0 8 * * *", "UTC", 99)]);
        assert_eq!(effective(&pool, at("2026-01-05T09:00:00Z")).desired, 10);
        pool.spec.schedules[0].desired = 0;
        pool.spec.min = 3;
        assert_eq!(effective(&pool, at("2026-01-05T09:00:00Z")).desired, 3);
    }

    /// Fuzzing found that each decision about a class with such a schedule took the better part of a second: the days
    /// of three thousand years were searched.
    #[test]
    fn a_schedule_that_never_fires_is_refused_and_never_looked_for() {
        let schedule = |cron: &str| Schedule { cron: cron.into(), time_zone: "UTC".into(), desired: 1 };
        for never in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 * * L"] {
            assert_eq!(check(&schedule(never)).unwrap_err().message, "never fires: there is no such day");
            let wanted = effective(&pool(&[(never, "UTC", 5)]), at("2026-01-05T12:00:00Z"));
            assert_eq!(wanted, Effective { desired: 1, until: None });
        }
        for rarely in ["0 0 29 2 *", "0 0 31 12 *", "0 0 * * 5L", "0 0 LW * *", "0 0 * * 1#5", "@yearly"] {
            assert_eq!(check(&schedule(rarely)), Ok(()), "{rarely}");
        }
        assert_eq!(check(&schedule("0 0 0 1 1 * 2020")).unwrap_err().message, "has 7 fields, not five");
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
