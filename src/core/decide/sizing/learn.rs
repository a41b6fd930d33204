//! The past demand that a class remembers, hour by hour, and the number that follows from it now.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model::{Bins, Demand, HOURS, PoolSpec, after};

use super::hours::hour_of_week;
use super::needs::{Use, needs};
use super::pace;

const HOUR: i64 = 3600;

/// Returns the zone of a class's hours of the week: that of its first schedule, else UTC.
pub fn zone_of(spec: &PoolSpec) -> TimeZone {
    let named = spec.schedules.first().and_then(|schedule| TimeZone::get(&schedule.time_zone).ok());
    named.unwrap_or(TimeZone::UTC)
}

/// Returns the beginning of the hour that contains a moment.
fn hour(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second().div_euclid(HOUR) * HOUR).unwrap_or(at)
}

/// Learns the whole hours until now from these uses, which are in the order of time and begin well before the first new
/// hour; returns none when there is no new hour. `from` is the earliest moment from which every use is known.
pub fn learned(
    demand: Option<&Demand>,
    uses: &[Use],
    from: Timestamp,
    now: Timestamp,
    (lead, idle): (Duration, Duration),
    zone: &TimeZone,
) -> Option<Demand> {
    let (until, known) = (hour(now), hour(after(from, Duration::from_secs(3599))));
    let begin = demand.map_or(known, |demand| demand.until.max(known));
    if begin >= until {
        return None;
    }
    // Hours whose uses are lost are treated as if they had not existed: the demand learned before them moves up.
    let missed = demand.map_or(jiff::SignedDuration::ZERO, |demand| begin.duration_since(demand.until));
    let since = demand.map_or(begin, |demand| demand.since.saturating_add(missed).unwrap_or(begin));
    let mut bins = demand.map(|demand| demand.bins.clone()).unwrap_or_default();
    forget(&mut bins, begin, until, zone);
    let new = uses.iter().copied().zip(needs(uses, lead, idle));
    let new: Vec<(Use, u32)> = new.filter(|(one, _)| one.at >= begin && one.at < until).collect();
    let pace = pace::learned(demand, &new, (begin, until), zone);
    for (one, need) in new {
        let bin = bins.0.entry(hour_of_week(one.at, zone)).or_default();
        let count = bin.entry(need).or_default();
        *count = count.saturating_add(100);
    }
    Some(Demand { since, until, bins, pace })
}

/// Multiplies the counts of the hours that are learned anew by three quarters, and drops those that reach nothing.
fn forget(bins: &mut Bins, begin: Timestamp, until: Timestamp, zone: &TimeZone) {
    let mut at = begin;
    while at < until {
        if let Some(bin) = bins.0.get_mut(&hour_of_week(at, zone)) {
            bin.values_mut().for_each(|count| *count = (u64::from(*count) * 3 / 4) as u32);
            bin.retain(|_, count| *count > 0);
        }
        at = after(at, Duration::from_secs(HOUR.unsigned_abs()));
    }
    bins.0.retain(|hour, bin| *hour < HOURS && !bin.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const TIMES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

    #[test]
    fn an_hour_of_the_week_is_that_of_the_zone_across_a_change_of_the_clock() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        // Sunday 2026-10-25: at 01:00 UTC the clock goes from 03:00 back to 02:00.
        assert_eq!(hour_of_week(at("2026-10-25T00:30:00Z"), &berlin), 146);
        assert_eq!(hour_of_week(at("2026-10-25T01:30:00Z"), &berlin), 146);
        assert_eq!(hour_of_week(at("2026-10-26T07:00:00Z"), &berlin), 8, "Monday 08:00 in winter");
        assert_eq!(hour_of_week(at("2026-10-19T06:00:00Z"), &berlin), 8, "Monday 08:00 in summer");
        assert_eq!(hour_of_week(at("2026-10-19T00:00:00Z"), &TimeZone::UTC), 0);
    }

    #[test]
    fn whole_hours_are_learned_once_and_a_new_week_counts_for_more_than_an_old_one() {
        let from = at("2026-10-19T08:00:00Z");
        let use_at = |text: &str| Use { at: at(text), count: 2, back: None };
        let learn = |demand: Option<&Demand>, uses: &[Use], from, now: &str| {
            learned(demand, uses, from, at(now), TIMES, &TimeZone::UTC)
        };
        let uses = [use_at("2026-10-19T08:10:00Z"), use_at("2026-10-19T09:10:00Z")];
        let first = learn(None, &uses, from, "2026-10-19T09:30:00Z").unwrap();
        assert_eq!((first.since, first.until), (from, at("2026-10-19T09:00:00Z")));
        assert_eq!(String::from(first.bins.clone()), "8=2:100", "the hour of 09:10 is not over");
        assert_eq!(learn(Some(&first), &uses, from, "2026-10-19T09:59:00Z"), None);
        let week = [use_at("2026-10-26T08:10:00Z")];
        let second = learn(Some(&first), &week, from, "2026-10-26T09:00:00Z").unwrap();
        assert_eq!(String::from(second.bins.clone()), "8=2:175");
        // Nothing is known of the next three weeks: they are treated as if they had not existed.
        let later = learn(Some(&second), &[], at("2026-11-16T09:00:00Z"), "2026-11-16T10:00:00Z").unwrap();
        assert_eq!(later.until.duration_since(later.since).as_hours(), 7 * 24 + 2);
    }
}
