//! Sets the number of idle machines of a class with `sizing`: learns each whole hour from the stored requests, and
//! keeps in each quarter of an hour the number that an equally busy quarter needs. The learned demand is stored in the
//! pool's record, so the number survives a restart and is the same for two operators.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{ClassName, Demand, Pool, Record, SizedDesired, Sizing, after};

use crate::decide::context::Context;
use crate::decide::sizing::{
    FEWEST, FEWEST_DAYS, LATE, Promise, QUARTER, Recent, Use, by_level, expected, foreseen, hour_of_week,
    learned, level_of, levels, zone_of,
};
use crate::decide::{Plan, Planned, Step};
use crate::yard::{Class, Yard};

/// How far back the stored requests are complete: they are kept for seven days after their end.
const ON_RECORD: SignedDuration = SignedDuration::from_hours(6 * 24);
/// How long before an hour the machines were lent that were returned in it.
const BEFORE: Duration = Duration::from_secs(2 * 3600);
/// How many hours ahead are reported.
const AHEAD: usize = 24;
const HOUR: Duration = Duration::from_secs(3600);

/// Learns the new hours, and sets the number of idle machines for the quarter of an hour that has begun.
pub(super) fn size(cx: &Context<'_>, name: &ClassName, class: &Class, pool: &Pool, plan: &mut Plan) {
    let status = &pool.status;
    let left_over = status.sized_desired.is_some() || status.demand.is_some();
    let may = cx.role.lease.is_some() && !cx.yard.is_busy(pool.key());
    if !may || plan.actions.iter().any(|planned| planned.holds(pool.key())) {
        return;
    }
    let Some(sizing) = &pool.spec.sizing else {
        if left_over {
            plan.actions.push(Planned::pool(Step::of(pool, cx.now.wall, |next| {
                (next.status.sized_desired, next.status.demand) = (None, None);
            })));
        }
        return;
    };
    let now = cx.now.wall;
    let quarter = begun(now);
    plan.wake_at(cx.now.when(after(quarter, QUARTER)));
    let set = status.sized_desired.as_ref();
    let hour_over = status.demand.as_ref().is_none_or(|demand| now >= after(demand.until, HOUR));
    let looked = set.is_some_and(|set| set.looked_at == Some(quarter))
        || status.demand.as_ref().is_some_and(|demand| too_little(demand).is_some());
    if !hour_over && looked {
        return;
    }
    let lead = class.boots.usual();
    let uses = uses(cx, name, status.demand.as_ref());
    let news = if hour_over { newly_learned(cx, pool, &uses, (lead, pool.idle_time())) } else { None };
    let Some(demand) = news.as_ref().or(status.demand.as_ref()) else { return };
    // A walk over the machines, which is needed only for the cap.
    let price = sizing.max_cost_per_day.and_then(|_| dearest(cx, name));
    let asked = asked(pool, sizing, demand, &uses, (quarter, lead), price);
    let sized = asked.map(|asked| match set {
        // At most one change in each quarter of an hour.
        Some(set) if set.desired == asked.desired || begun(set.at) == quarter => {
            SizedDesired { looked_at: Some(quarter), next: asked.next, ..set.clone() }
        }
        Some(_) | None => SizedDesired {
            desired: asked.desired,
            at: now,
            looked_at: Some(quarter),
            reason: told(pool, sizing, demand, &asked, now),
            next: asked.next,
        },
    });
    if news.is_none() && (sized.is_none() || sized.as_ref() == set) {
        return;
    }
    plan.actions.push(Planned::pool(Step::of(pool, now, |after| {
        after.status.sized_desired = sized;
        after.status.demand = news.or_else(|| status.demand.clone());
    })));
}

/// Returns the beginning of the quarter of an hour that contains a moment.
fn begun(now: Timestamp) -> Timestamp {
    let quarter = i64::try_from(QUARTER.as_secs()).unwrap_or(900);
    Timestamp::from_second(now.as_second().div_euclid(quarter) * quarter).unwrap_or(now)
}

/// Returns the hourly cost of the most expensive machine of the class by the price table; none where no machine has a
/// price.
fn dearest(cx: &Context<'_>, name: &ClassName) -> Option<f64> {
    let of_class = cx.yard.instances().filter(|tracked| tracked.instance.facts.resource_class == *name);
    let hours = of_class.filter_map(|tracked| {
        let facts = &tracked.instance.facts;
        let (kind, zone) = (&facts.instance_type, &facts.availability_zone);
        cx.policy.prices.hour(name.as_str(), kind, zone, facts.usage_class).ok()
    });
    hours.max().map(crate::ledger::Money::dollars)
}

/// Lists the requests of the class since shortly before the end of its learned demand, in the order of time: one walk
/// over the stored requests.
fn uses(cx: &Context<'_>, name: &ClassName, demand: Option<&Demand>) -> Vec<Use> {
    let now = cx.now.wall;
    let oldest = now.saturating_sub(ON_RECORD).unwrap_or(now);
    let from = demand.map_or(oldest, |demand| demand.until.max(oldest));
    let lent = from.saturating_sub(BEFORE).unwrap_or(from);
    let of_class = cx.yard.requests().filter(|(_, request)| Yard::class_of(request).as_ref() == Some(name));
    let mut uses: Vec<(Timestamp, &_, Use)> = of_class
        // A refused request is no demand of the class.
        .filter(|(_, request)| !request.was_refused())
        .filter_map(|(key, request)| {
            let at = request.status.accepted_at.filter(|at| *at >= lent)?;
            let back = request.status.ended_at;
            Some((at, key, Use { at, count: request.intent.count, back }))
        })
        .collect();
    uses.sort_unstable_by_key(|(at, key, _)| (*at, *key));
    uses.into_iter().map(|(_, _, one)| one).collect()
}

/// Returns the demand including the hours that have ended and are not learned yet; none where there are no such hours.
fn newly_learned(cx: &Context<'_>, pool: &Pool, uses: &[Use], times: (Duration, Duration)) -> Option<Demand> {
    let now = cx.now.wall;
    let demand = pool.status.demand.as_ref();
    let oldest = now.saturating_sub(ON_RECORD).unwrap_or(now);
    let from = match demand {
        Some(demand) => demand.until.max(oldest),
        None => uses.first().map_or(now, |one| one.at).max(oldest),
    };
    learned(demand, uses, from, now, times, &zone_of(&pool.spec))
}

/// Returns why there are too few observations; none when there are enough.
pub(crate) fn too_little(demand: &Demand) -> Option<String> {
    let days = demand.until.duration_since(demand.since).as_hours() / 24;
    let requests = demand.bins.requests();
    if days < FEWEST_DAYS {
        Some(format!("{days} of the {FEWEST_DAYS} days that it takes are learned"))
    } else if requests < FEWEST {
        Some(format!("{requests:.0} requests are too few to learn from; it takes {FEWEST:.0}"))
    } else {
        None
    }
}

/// The number of idle machines that the demand asks for.
struct Asked {
    /// Idle machines in this quarter of an hour.
    desired: u32,
    /// Idle machines of the hours from the end of the demand on, as far as they can be predicted.
    next: Vec<u32>,
    /// The expected number of requests an hour; none where only hours of the week are known.
    rate: Option<f64>,
    /// The setting that keeps the number below the one that the promised wait needs.
    cap: Option<&'static str>,
}

/// Computes the number that the demand asks for; none while there are too few observations.
fn asked(
    pool: &Pool,
    sizing: &Sizing,
    demand: &Demand,
    uses: &[Use],
    (quarter, lead): (Timestamp, Duration),
    price: Option<f64>,
) -> Option<Asked> {
    if too_little(demand).is_some() {
        return None;
    }
    let most = sizing.max.unwrap_or(pool.spec.max);
    let bounds = (sizing.min.min(most), most);
    // A class whose requests may wait for a boot needs no idle machine.
    let late = if sizing.wait_p95.get() >= lead { 1.0 } else { LATE };
    let most_hours = sizing.max_cost_per_day.zip(price).map(|(cost, price)| cost.get() / price * 7.0);
    let promise = Promise { bounds, late, most_hours, ..Promise::default() };
    let told = |capped: bool| match (sizing.max_cost_per_day, price) {
        (Some(_), None) => Some("maxCostPerDay is not applied: no price of its machines is known"),
        (Some(_), Some(_)) if capped => Some("maxCostPerDay allows no more"),
        (Some(_) | None, _) => None,
    };
    let zone = zone_of(&pool.spec);
    let hour = |ahead: usize| after(demand.until, HOUR * ahead as u32);
    if demand.pace.requests() < FEWEST {
        let found = levels(&demand.bins, promise);
        let of = |at: Timestamp| found.by_hour[usize::from(hour_of_week(at, &zone))];
        let desired = of(quarter).max(of(after(quarter, lead)));
        let next = (0..AHEAD).map(|ahead| of(hour(ahead))).collect();
        return Some(Asked { desired, next, rate: None, cap: told(found.capped) });
    }
    let found = by_level(&demand.pace, promise);
    let recent = Recent::of(demand).with(uses, quarter);
    let rate = expected(demand, &recent, quarter, &zone);
    let next = (0..AHEAD)
        .map(|ahead| found.count(level_of(foreseen(demand, &recent, hour(ahead), &zone))))
        .collect();
    Some(Asked { desired: found.count(level_of(rate)), next, rate: Some(rate), cap: told(found.capped) })
}

/// Explains a number, for people.
fn told(pool: &Pool, sizing: &Sizing, demand: &Demand, asked: &Asked, now: Timestamp) -> String {
    let days = demand.until.duration_since(demand.since).as_hours() / 24;
    let zone = zone_of(&pool.spec);
    let hour = now.to_zoned(zone).strftime("%A %H:%M").to_string();
    let rate =
        asked.rate.map_or_else(String::new, |rate| format!("; {rate:.1} requests an hour are expected"));
    let cap = asked.cap.map_or_else(String::new, |cap| format!("; {cap}"));
    format!(
        "{} idle machines at {hour} keep 95 of 100 requests within {}, by {:.0} requests of {days} days{rate}{cap}",
        asked.desired,
        sizing.wait_p95,
        demand.bins.requests(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::Effect;
    use crate::model::{Bins, Pace};
    use crate::testing::{Scene, at, linux, machine};

    fn scene(days: i64, bins: &str) -> Scene {
        let mut scene = Scene::with(json!({"max": 9, "sizing": {"waitP95": "20s", "max": 6}}));
        let mut pool = scene.yard.class(&linux()).unwrap().pool.clone().unwrap();
        let until = Timestamp::from_second(scene.now.wall.as_second().div_euclid(3600) * 3600).unwrap();
        let since = until.saturating_sub(SignedDuration::from_hours(24 * days)).unwrap();
        pool.status.demand =
            Some(Demand { since, until, bins: Bins::from(bins.to_owned()), pace: Pace::default() });
        pool.version += 1;
        scene.put(&pool);
        scene
    }

    fn written(scene: &Scene) -> Option<Pool> {
        scene.of_class().actions.into_iter().find_map(|planned| {
            let Effect::Pool(step) = planned.effect else { return None };
            step.after.status.demand.is_some().then_some(step.after)
        })
    }

    /// Builds demand in which every hour of the week needs this many.
    fn always(need: u32) -> String {
        (0..168).map(|hour| format!("{hour}={need}:100")).collect::<Vec<_>>().join(";")
    }

    #[test]
    fn an_hour_that_is_over_is_learned_and_the_number_follows_from_it() {
        let mut scene = scene(20, &always(3));
        let before = written(&scene).expect("nothing was set yet");
        assert_eq!(before.status.demand, scene.yard.pool(&linux()).unwrap().status.demand, "no hour is over");
        scene.now.wall = scene.now.wall.saturating_add(SignedDuration::from_hours(1)).unwrap();
        let pool = written(&scene).expect("an hour is over");
        let sized = pool.status.sized_desired.expect("there is enough to go by");
        assert_eq!((sized.desired, sized.next.len()), (3, 24));
        assert!(sized.reason.starts_with("3 idle machines at "), "{}", sized.reason);
        assert!(sized.at == scene.now.wall && pool.status.demand.unwrap().until > at(0));
    }

    #[test]
    fn what_was_refused_is_no_demand() {
        let mut scene = scene(20, &always(3));
        let failed = |run: &str, deadline: i64| {
            let more = json!({"acceptedAt": at(-60), "deadline": at(deadline), "phase": "Failed"});
            crate::testing::request(run, 4, more)
        };
        scene.put(&failed("1", -60));
        let counted = |scene: &Scene| {
            let cx = Context { yard: &scene.yard, policy: &scene.policy, now: scene.now, role: scene.role };
            uses(&cx, &linux(), None).len()
        };
        assert_eq!(counted(&scene), 0);
        scene.put(&failed("2", -59));
        assert_eq!(counted(&scene), 1, "it waited, and in vain");
    }

    #[test]
    fn too_few_days_and_too_few_requests_set_no_number_and_say_why() {
        for (days, bins, why) in [
            (5, always(3), "5 of the 14 days that it takes are learned"),
            (20, "9=1:300".to_owned(), "3 requests are too few to learn from; it takes 40"),
        ] {
            let mut scene = scene(days, &bins);
            scene.now.wall = scene.now.wall.saturating_add(SignedDuration::from_hours(1)).unwrap();
            let pool = written(&scene).expect("an hour is learned all the same");
            assert_eq!(pool.status.sized_desired, None);
            let told = too_little(&pool.status.demand.unwrap()).unwrap();
            assert!(told == why || told.starts_with("5 of"), "{told}");
        }
    }

    #[test]
    fn a_number_never_goes_over_the_max_of_its_sizing() {
        let mut scene = scene(20, &always(6));
        scene.now.wall = scene.now.wall.saturating_add(SignedDuration::from_hours(1)).unwrap();
        let sized = written(&scene).unwrap().status.sized_desired.unwrap();
        assert_eq!(sized.desired, 6);
    }

    /// Builds a class that knows quiet and busy quarters: 2 machines where 6 requests an hour are expected, and 16 are.
    fn paced(more: serde_json::Value) -> Scene {
        let mut scene = scene(20, &always(1));
        let mut pool = scene.yard.class(&linux()).unwrap().pool.clone().unwrap();
        let pace = "0,400000,0,0/-8=90000|1:100;5=4000|1:2000,2:9000".to_owned();
        pool.status.demand.as_mut().unwrap().pace = Pace::from(pace);
        pool.spec.sizing = Some(serde_json::from_value(more).unwrap());
        pool.version += 1;
        scene.put(&pool);
        scene
    }

    #[test]
    fn a_busy_quarter_keeps_what_busy_ones_need_and_a_quiet_one_does_not() {
        let mut scene = paced(json!({"waitP95": "20s"}));
        let busy = written(&scene).unwrap();
        let sized = busy.status.sized_desired.clone().unwrap();
        assert_eq!((sized.desired, sized.next.len()), (2, 24));
        assert!(sized.reason.ends_with("requests an hour are expected"), "{}", sized.reason);
        assert_eq!(sized.next[23], 0, "tomorrow nobody came just now");
        let mut other = busy;
        other.status.sized_desired.as_mut().unwrap().desired = 5;
        scene.put(&other);
        let kept = written(&scene).is_none_or(|pool| pool.status.sized_desired == other.status.sized_desired);
        assert!(kept, "it looks once in each quarter of an hour");
        // Requests of half a day ago are forgotten.
        scene.now.wall = scene.now.wall.saturating_add(SignedDuration::from_hours(12)).unwrap();
        assert_eq!(written(&scene).unwrap().status.sized_desired.unwrap().desired, 0);
    }

    #[test]
    fn idle_machines_cost_no_more_in_a_day_than_max_cost_per_day() {
        use crate::ledger::{Price, Prices, RegionPrices};
        let price = Price::parse("1.0").unwrap();
        let mut region = RegionPrices::default();
        region.on_demand.insert("m7i.large".to_owned(), price);
        let desired = |cost: f64, known: bool| {
            let mut scene = paced(json!({"waitP95": "20s", "maxCostPerDay": cost}));
            scene.add(machine("one").pooled());
            if known {
                let facts = scene.yard.instances().next().unwrap().instance.facts.clone();
                let here = crate::ledger::region_of(&facts.availability_zone).to_owned();
                let prices = Prices { regions: [(here, region.clone())].into(), ..Prices::default() };
                scene.policy.prices = prices.into();
            }
            let sized = written(&scene).unwrap().status.sized_desired.unwrap();
            (sized.desired, sized.reason)
        };
        // 4000 of 94000 quarters are busy: about one hour of a day for each machine.
        assert_eq!(desired(4.0, true).0, 2);
        let (capped, why) = desired(0.5, true);
        assert_eq!(capped, 0);
        assert!(why.ends_with("maxCostPerDay allows no more"), "{why}");
        let (unknown, why) = desired(0.5, false);
        assert_eq!(unknown, 2);
        assert!(why.ends_with("maxCostPerDay is not applied: no price of its machines is known"), "{why}");
    }

    #[test]
    fn who_may_wait_for_a_boot_keeps_no_machine() {
        let mut scene = scene(20, &always(3));
        let mut pool = scene.yard.class(&linux()).unwrap().pool.clone().unwrap();
        pool.spec.sizing = Some(serde_json::from_value(json!({"waitP95": "20m"})).unwrap());
        pool.version += 1;
        scene.put(&pool);
        scene.now.wall = scene.now.wall.saturating_add(SignedDuration::from_hours(1)).unwrap();
        assert_eq!(written(&scene).unwrap().status.sized_desired.unwrap().desired, 0);
    }

    #[test]
    fn a_class_without_sizing_forgets_what_it_learned() {
        let mut scene = scene(20, &always(3));
        let mut pool = scene.yard.class(&linux()).unwrap().pool.clone().unwrap();
        pool.spec.sizing = None;
        pool.version += 1;
        scene.put(&pool);
        let forgets = scene.of_class().actions.into_iter().any(
            |planned| matches!(planned.effect, Effect::Pool(step) if step.after.status.demand.is_none()),
        );
        assert!(forgets);
    }
}
