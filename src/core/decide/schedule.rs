//! How many idle machines does a class keep at a given time? A person's override, else the number that the operator set
//! by `sizing`, else the schedule that fired last, else the pool's own number; never below `min`, never above `max`.

use jiff::Timestamp;

use crate::model::{DEMAND_STALE, Pool, Scheduled, Schedules};
use crate::yard::Class;

/// The number of idle machines in effect now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Idle machines to keep.
    pub desired: u32,
    /// When the number changes by itself, as far as that is known.
    pub until: Option<Timestamp>,
}

/// Computes the number of idle machines that a pool wants at a given time.
pub fn effective(pool: &Pool, now: Timestamp) -> Effective {
    effective_by(pool, now, || Schedules::parse(&pool.spec.schedules).at(now))
}

/// Returns the number of idle machines that the pool of a class wants at a given time, by the schedules that the class
/// keeps parsed.
pub fn effective_in(class: &Class, pool: &Pool, now: Timestamp) -> Effective {
    effective_by(pool, now, || class.scheduled.at(now))
}

fn effective_by(pool: &Pool, now: Timestamp, scheduled: impl FnOnce() -> Scheduled) -> Effective {
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
    let scheduled = scheduled();
    Effective { desired: bounded(scheduled.desired.unwrap_or(spec.desired)), until: scheduled.until }
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
    use crate::model::{Bins, Demand, PoolOverride, PoolSpec, PoolStatus, Schedule, SizedDesired};
    use crate::testing::{Scene, launch, secs};

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
    fn the_number_that_a_class_keeps_is_the_one_of_its_schedules_at_every_moment() {
        let schedules = serde_json::json!([
            {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "desired": 5},
            {"cron": "30 17 * * 1-5", "timeZone": "America/New_York", "desired": 1},
            {"cron": "0 12 1 * *", "desired": 3},
        ]);
        let mut scene = Scene::with(serde_json::json!({"schedules": schedules, "desired": 2}));
        for day in 0..400 {
            // On some days nothing is observed when a schedule fires, or the clock is set back.
            let looks = day % 3 > 0;
            for hour in 0..24 {
                scene.wait(if hour == 9 { 60 } else { 3600 });
                if looks {
                    scene.put(&launch("l-1", 1, None));
                }
                let class = scene.yard.class(&crate::testing::linux()).unwrap();
                let pool = class.pool.as_ref().unwrap();
                for wall in [scene.now.wall, scene.now.wall.saturating_sub(secs(90_000)).unwrap()] {
                    assert_eq!(effective_in(class, pool, wall), effective(pool, wall), "at {wall}");
                }
            }
        }
    }

    #[test]
    fn a_changed_schedule_counts_at_once() {
        let mut scene = Scene::with(serde_json::json!({"schedules": [{"cron": "0 8 * * *", "desired": 2}]}));
        let desired = |scene: &Scene| {
            let class = scene.yard.class(&crate::testing::linux()).unwrap();
            effective_in(class, class.pool.as_ref().unwrap(), scene.now.wall).desired
        };
        assert_eq!(desired(&scene), 2);
        scene.pool(2, serde_json::json!({"schedules": [{"cron": "0 8 * * *", "desired": 4}]}));
        assert_eq!(desired(&scene), 4);
        scene.pool(3, serde_json::json!({"desired": 1}));
        assert_eq!(desired(&scene), 1);
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
}
