//! Hours of the week in the zone of a class.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns the hour of the week at a given time, with Monday 00:00 to 01:00 as 0. The clock of the zone counts, so an
/// hour that a clock change repeats is learned twice, and one that it skips is not learned.
pub fn hour_of_week(at: Timestamp, zone: &TimeZone) -> u16 {
    let local = at.to_zoned(zone.clone());
    let day = local.weekday().to_monday_zero_offset().unsigned_abs();
    u16::from(day) * 24 + u16::from(local.hour().unsigned_abs())
}
