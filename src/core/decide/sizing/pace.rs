//! How busy is a class? The requests that an hour would bring, by recent requests and by the usual requests at this
//! time of the week. Needs are remembered by that level, so a quiet Monday keeps as many machines as quiet hours need.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model::{Demand, HOURS, Level, PACE_LEVELS, Pace, after};

use super::levels::{Needs, Part, Promise, greedy};
use super::needs::Use;
use crate::decide::sizing::hours::hour_of_week;

/// The time for which a number is set.
pub const QUARTER: Duration = Duration::from_secs(15 * 60);
/// The weight of the usual requests,
const USUAL: f64 = 0.45;
/// and of the recent ones: after how many seconds a request counts for half, and the weight of that sum.
const LATELY: [(f64, f64); 4] = [(900.0, 0.15), (7200.0, 0.15), (21_600.0, 0.15), (86_400.0, 0.10)];
/// The requests an hour that every class may expect at least.
const LEAST: f64 = 0.08;
/// Demand that covers less than this does not know the usual requests.
const WEEK: i64 = 7 * 24 * 3600;
/// The weight with which a level contributes to another one, by their distance.
const NEAR: [f64; 4] = [1.0, 0.80, 0.41, 0.14];

/// The recent requests.
#[derive(Clone, Copy, Debug)]
pub struct Recent {
    sums: [f64; 4],
    at: Timestamp,
}

impl Recent {
    /// Returns the remembered sums, at the end of the demand.
    pub fn of(demand: &Demand) -> Self {
        Self { sums: demand.pace.recent.map(|sum| sum as f64 / 1000.0), at: demand.until }
    }

    fn at(self, at: Timestamp) -> Self {
        let seconds = at.duration_since(self.at).as_secs_f64().max(0.0);
        let mut sums = self.sums;
        for (sum, (half, _)) in sums.iter_mut().zip(LATELY) {
            *sum *= (-seconds / half).exp2();
        }
        Self { sums, at: self.at.max(at) }
    }

    /// Adds the requests made since, in their order, up to a moment.
    #[must_use]
    pub fn with(self, uses: &[Use], until: Timestamp) -> Self {
        let news = uses.iter().filter(|one| one.at >= self.at && one.at < until);
        let sums = news.fold(self, |recent, one| {
            let mut next = recent.at(one.at);
            next.sums.iter_mut().for_each(|sum| *sum += 1.0);
            next
        });
        sums.at(until)
    }

    /// Returns the requests an hour, by each of the sums.
    fn hourly(&self) -> [f64; 4] {
        let mut rates = self.sums;
        for (rate, (half, _)) in rates.iter_mut().zip(LATELY) {
            *rate *= std::f64::consts::LN_2 * 3600.0 / half;
        }
        rates
    }
}

/// Returns the usual requests an hour in the quarter that begins at a moment. Working days contribute to each other,
/// and so do days off; an hour's neighbours contribute too.
fn usual(demand: &Demand, at: Timestamp, zone: &TimeZone) -> f64 {
    let hour = i32::from(hour_of_week(at, zone));
    let into = (at.as_second().rem_euclid(3600) as f64 + 450.0) / 3600.0;
    let off = |day: i32| day >= 5;
    let hours = i32::from(HOURS);
    let count = |hour: i32| -> f64 {
        let bin = demand.bins.0.get(&(hour.rem_euclid(hours) as u16));
        bin.into_iter().flat_map(BTreeMap::values).map(|count| f64::from(*count) / 100.0).sum()
    };
    let (mut sum, mut weights) = (0.0, 0.0);
    for by in -3..=3 {
        let distance = f64::from(by) + 0.5 - into;
        let weight = (-0.5 * distance * distance).exp();
        for day in (0..7).filter(|day| off(*day) == off(hour / 24)) {
            sum += weight * count(day * 24 + hour % 24 + by);
            weights += weight;
        }
    }
    // Each week counts for three quarters of the one after it.
    let weeks = demand.until.duration_since(demand.since).as_secs_f64() / WEEK as f64;
    let counted = (1.0 - 0.75_f64.powf(weeks)) / 0.25;
    sum / weights / counted.max(1.0)
}

/// Returns the expected requests an hour in the quarter that begins at a moment.
pub fn expected(demand: &Demand, recent: &Recent, at: Timestamp, zone: &TimeZone) -> f64 {
    let lately = recent.at(at).hourly();
    let part: f64 = lately.iter().zip(LATELY).map(|(rate, (_, weight))| rate * weight).sum();
    LEAST + USUAL * usual(demand, at, zone) + part
}

/// Returns the same for a future moment, whose day is known no better than from today.
pub fn foreseen(demand: &Demand, recent: &Recent, at: Timestamp, zone: &TimeZone) -> f64 {
    let (day, weight) = (recent.hourly()[3], LATELY[3].1);
    LEAST + (1.0 - weight) * usual(demand, at, zone) + weight * day
}

/// Returns the level of this many requests an hour.
pub fn level_of(rate: f64) -> i16 {
    let level = (2.0 * rate.max(1e-3).log2()).floor();
    (level as i16).clamp(PACE_LEVELS.0, PACE_LEVELS.1)
}

/// Returns the needs remembered by level once the hours from `begin` to `until` are learned. `uses` are those of these
/// hours, each with its need.
pub(super) fn learned(
    demand: Option<&Demand>,
    uses: &[(Use, u32)],
    (begin, until): (Timestamp, Timestamp),
    zone: &TimeZone,
) -> Pace {
    let mut pace = demand.map(|demand| demand.pace.clone()).unwrap_or_default();
    let mut recent =
        demand.map_or(Recent { sums: [0.0; 4], at: begin }, |demand| Recent::of(demand).at(begin));
    let knows = demand.filter(|demand| begin.duration_since(demand.since).as_secs() >= WEEK);
    let mut at = begin;
    while at < until {
        let next = after(at, QUARTER);
        let of: Vec<(Use, u32)> =
            uses.iter().filter(|(one, _)| one.at >= at && one.at < next).copied().collect();
        if let Some(demand) = knows {
            if at.as_second().rem_euclid(3600) == 0 && hour_of_week(at, zone) == 0 {
                fade(&mut pace.levels);
            }
            let level = pace.levels.entry(level_of(expected(demand, &recent, at, zone))).or_default();
            level.quarters = level.quarters.saturating_add(100);
            for (_, need) in &of {
                let count = level.needs.entry(*need).or_default();
                *count = count.saturating_add(100);
            }
        }
        let of: Vec<Use> = of.into_iter().map(|(one, _)| one).collect();
        recent = recent.with(&of, next);
        at = next;
    }
    pace.recent = recent.sums.map(|sum| (sum * 1000.0).round() as u64);
    pace
}

/// Handles the beginning of a week: everything before it counts for three quarters.
fn fade(levels: &mut BTreeMap<i16, Level>) {
    let less = |count: &mut u32| *count = (u64::from(*count) * 3 / 4) as u32;
    for level in levels.values_mut() {
        less(&mut level.quarters);
        level.needs.values_mut().for_each(less);
        level.needs.retain(|_, count| *count > 0);
    }
    levels.retain(|_, level| level.quarters > 0);
}

/// The counts of the known levels.
#[derive(Clone, Debug, PartialEq)]
pub struct ByLevel {
    counts: BTreeMap<i16, u32>,
    least: u32,
    /// The share of the remembered requests that would have been late with these counts.
    pub late: f64,
    /// Whether the cap stopped it before the promise was kept.
    pub capped: bool,
}

impl ByLevel {
    /// Returns the count of a level; that of the nearest level below for one that was never seen.
    pub fn count(&self, level: i16) -> u32 {
        let below = self.counts.range(..=level).next_back();
        below.or_else(|| self.counts.iter().next()).map_or(self.least, |(_, count)| *count)
    }
}

/// Computes the counts of the levels that keep a promise with the fewest idle hours.
pub fn by_level(pace: &Pace, promise: Promise) -> ByLevel {
    let all: f64 = pace.levels.values().map(|level| f64::from(level.quarters)).sum();
    let part = |(at, level): (&i16, &Level)| {
        let (mut sums, mut quarters) = (BTreeMap::<u32, f64>::new(), 0.0);
        for (other, level) in &pace.levels {
            let Some(weight) = NEAR.get(usize::from(at.abs_diff(*other))) else { continue };
            quarters += weight * f64::from(level.quarters);
            for (need, count) in &level.needs {
                *sums.entry(*need).or_default() += weight * f64::from(*count);
            }
        }
        let share = f64::from(level.quarters) / quarters;
        let needs: Needs = sums.into_iter().map(|(need, sum)| (need, sum * share)).collect();
        Part { hours: f64::from(HOURS) * f64::from(level.quarters) / all, needs }
    };
    let known = || pace.levels.iter().filter(|(_, level)| level.quarters > 0);
    let parts: Vec<Part> = known().map(part).collect();
    let found = greedy(&parts, promise);
    let counts = known().map(|(at, _)| *at).zip(found.counts).collect();
    ByLevel { counts, least: promise.bounds.0, late: found.late, capped: found.capped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Bins;

    fn at(second: i64) -> Timestamp {
        // A Monday, 00:00.
        Timestamp::from_second(1_767_571_200 + second).unwrap()
    }

    fn demand(weeks: i64, bins: &str, pace: &str) -> Demand {
        let (bins, pace) = (Bins::from(bins.to_owned()), Pace::from(pace.to_owned()));
        Demand { since: at(-weeks * WEEK), until: at(0), bins, pace }
    }

    fn used(second: i64) -> Use {
        Use { at: at(second), count: 1, back: None }
    }

    #[test]
    fn requests_that_came_just_now_make_more_be_expected_and_that_fades() {
        let quiet = demand(4, "", "");
        let expected = |uses: &[Use], second: i64| {
            expected(&quiet, &Recent::of(&quiet).with(uses, at(second)), at(second), &TimeZone::UTC)
        };
        let many: Vec<Use> = (0..20).map(|n| used(60 * n)).collect();
        assert_eq!(level_of(expected(&[], 3600)), level_of(LEAST));
        assert!(expected(&many, 1200) > 6.0 && expected(&many, 3600) < 3.0);
        assert!(expected(&many, 24 * 3600) < 0.5);
    }

    #[test]
    fn what_usually_comes_is_of_the_hour_and_of_days_like_it() {
        let bins: Vec<String> = (0..5).map(|day| format!("{}=1:{}", day * 24 + 9, 6 * 273)).collect();
        let weekly = demand(4, &bins.join(";"), "");
        let usual = |hour: i64| usual(&weekly, at(hour * 3600 + 1350), &TimeZone::UTC);
        assert!(usual(9) > 2.0 && usual(9) < 6.0, "{}", usual(9));
        assert!(usual(3) < 0.01 && usual(5 * 24 + 9) < 0.01, "neither at night nor on Saturday");
    }

    #[test]
    fn levels_are_learned_from_the_second_week_on_and_fade_by_weeks() {
        let uses = [(used(100), 2), (used(1000), 0)];
        let first = learned(Some(&demand(0, "", "")), &uses, (at(0), at(3600)), &TimeZone::UTC);
        assert!(first.levels.is_empty() && first.recent[3] > 1900, "{first:?}");
        let later = demand(2, "", "0,0,0,0/-8=400|1:400");
        let next = learned(Some(&later), &uses, (at(0), at(3600)), &TimeZone::UTC);
        assert_eq!(next.requests(), 3.0 + 2.0, "a week began, so four count as three");
        assert_eq!(next.levels.values().map(|level| level.quarters).sum::<u32>(), 300 + 400);
    }

    #[test]
    fn machines_are_kept_at_the_levels_where_they_save_most() {
        let pace = Pace::from("0,0,0,0/-6=40000|1:1000;6=2000|1:2000,2:9000,4:400".to_owned());
        let found = by_level(&pace, Promise { late: 0.15, ..Promise::default() });
        assert_eq!((found.count(-6), found.count(6)), (0, 2));
        assert_eq!((found.count(20), found.count(-10)), (2, 0), "as the nearest that is known");
        assert!(found.late <= 0.15 && !found.capped);
        let none = by_level(&Pace::default(), Promise { bounds: (1, 9), ..Promise::default() });
        assert_eq!(none.count(3), 1);
    }

    #[test]
    fn a_cap_of_money_is_spent_where_it_saves_most() {
        let pace = Pace::from("0,0,0,0/-6=30000|1:3000;6=10000|1:9000,4:3000".to_owned());
        let of = |most_hours| by_level(&pace, Promise { most_hours, ..Promise::default() });
        assert_eq!((of(None).count(-6), of(None).count(6)), (1, 4));
        let capped = of(Some(100.0));
        assert_eq!(
            (capped.count(-6), capped.count(6)),
            (0, 1),
            "42 hours a week for each machine at level 6"
        );
        assert!(capped.capped && capped.late > 0.05);
    }
}
