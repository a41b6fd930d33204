//! The schedules of a class: the number of idle machines from a moment on, again and again. A schedule is parsed once
//! for each change of a class, because parsing one takes as long as many decisions.

use croner::Cron;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use crate::model::record::field::FieldError;

/// The number of idle machines from a moment on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Five fields (minute, hour, day of month, month, day of week).
    pub cron: String,
    /// An IANA time zone; UTC when absent.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// Idle machines kept from then on.
    pub desired: u32,
}

fn utc() -> String {
    "UTC".into()
}

impl Schedule {
    /// Checks the schedule.
    ///
    /// # Errors
    /// Names the pattern that cannot be read or never fires, or the time zone that cannot be read.
    pub fn check(&self) -> Result<(), FieldError> {
        self.parse().map(|_| ())
    }

    fn parse(&self) -> Result<Parsed, FieldError> {
        let zone = TimeZone::get(&self.time_zone).map_err(|error| {
            let fix = "use an IANA name such as Europe/Berlin or UTC";
            FieldError::new("schedules.timeZone", &self.time_zone, error.to_string(), fix)
        })?;
        let cron = cron_of(&self.cron)
            .map_err(|message| FieldError::new("schedules.cron", &self.cron, message, Self::CRON_FIX))?;
        Ok(Parsed { cron, zone, desired: self.desired })
    }

    /// The fix of a pattern that cannot be read.
    pub const CRON_FIX: &str =
        "use five fields: minute hour day-of-month month day-of-week, for example 0 8 * * 1-5";

    /// Checks the pattern of a schedule.
    ///
    /// # Errors
    /// Says why it cannot be read, or that it never fires.
    pub fn check_cron(pattern: &str) -> Result<(), String> {
        cron_of(pattern).map(|_| ())
    }
}

fn cron_of(pattern: &str) -> Result<Cron, String> {
    let fields = pattern.split_whitespace().count();
    if fields != 5 && !pattern.trim_start().starts_with('@') {
        return Err(format!("has {fields} fields, not five"));
    }
    let cron: Cron = pattern.parse().map_err(|error: croner::errors::CronError| error.to_string())?;
    if fires(&cron) { Ok(cron) } else { Err("never fires: there is no such day".into()) }
}

/// Returns whether there is a day on which a schedule fires, within the 28 years after which the days of the week
/// repeat. A schedule that never fires would be searched through the years to 5000, whenever it is looked at.
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

#[derive(Clone, Debug)]
struct Parsed {
    cron: Cron,
    zone: TimeZone,
    desired: u32,
}

impl Parsed {
    /// Returns when the schedule fired last and fires next.
    fn firings(&self, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        let now = now.to_zoned(self.zone.clone());
        let last = self.cron.find_previous_occurrence(&now, true).ok();
        let next = self.cron.find_next_occurrence(&now, false).ok();
        (last.map(|at| at.timestamp()), next.map(|at| at.timestamp()))
    }
}

/// The schedules of a class, parsed. One that cannot be read never fires.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedules(Vec<Parsed>);

/// The number that schedules want from one firing to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduled {
    /// The number; none where no schedule has fired.
    pub(crate) desired: Option<u32>,
    /// When the last of them fired; none where none has.
    from: Option<Timestamp>,
    /// When the next of them fires; none where none does.
    pub(crate) until: Option<Timestamp>,
}

impl Schedules {
    pub(crate) fn parse(schedules: &[Schedule]) -> Self {
        Self(schedules.iter().filter_map(|schedule| schedule.parse().ok()).collect())
    }

    /// Returns the number in effect at a moment. Of schedules that fired together the largest number counts.
    pub(crate) fn at(&self, now: Timestamp) -> Scheduled {
        let fired: Vec<_> = self.0.iter().map(|parsed| (parsed.firings(now), parsed.desired)).collect();
        let last = fired.iter().filter_map(|((last, _), desired)| last.map(|at| (at, *desired))).max();
        let until = fired.iter().filter_map(|((_, next), _)| *next).min();
        Scheduled { desired: last.map(|(_, desired)| desired), from: last.map(|(at, _)| at), until }
    }
}

impl Scheduled {
    /// Returns whether no schedule fires between a moment and the one for which this was computed.
    pub(crate) fn holds_at(&self, now: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(cron: &str, zone: &str) -> Schedule {
        Schedule { cron: cron.into(), time_zone: zone.into(), desired: 1 }
    }

    /// Fuzzing found that each decision about a class with such a schedule took the better part of a second: the days
    /// of three thousand years were searched.
    #[test]
    fn a_schedule_that_never_fires_is_refused_and_never_looked_for() {
        let now = "2026-01-05T12:00:00Z".parse().unwrap();
        for never in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 * * L"] {
            let schedule = schedule(never, "UTC");
            assert_eq!(schedule.check().unwrap_err().message, "never fires: there is no such day");
            let none = Scheduled { desired: None, from: None, until: None };
            assert_eq!(Schedules::parse(&[schedule]).at(now), none);
        }
        for rarely in ["0 0 29 2 *", "0 0 31 12 *", "0 0 * * 5L", "0 0 LW * *", "0 0 * * 1#5", "@yearly"] {
            assert_eq!(schedule(rarely, "UTC").check(), Ok(()), "{rarely}");
        }
        let refused = schedule("0 0 0 1 1 * 2020", "UTC").check().unwrap_err();
        assert_eq!(refused.message, "has 7 fields, not five");
    }

    #[test]
    fn patterns_and_zones_that_cannot_be_read_are_refused_by_name() {
        assert!(schedule("0 8 * * 1-5", "Europe/Berlin").check().is_ok());
        assert_eq!(schedule("often", "UTC").check().unwrap_err().field, "schedules.cron");
        assert_eq!(schedule("0 8 * * *", "Berlin").check().unwrap_err().field, "schedules.timeZone");
    }
}
