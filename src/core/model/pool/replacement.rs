//! How a class's idle machines are replaced when its launch configuration has changed: in which way, how many at once,
//! and in which hours.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use crate::model::record::field::FieldError;

/// How drifted machines are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replacement {
    /// Machines of the class that are being replaced at a time, until their replacements are idle; 0: never any.
    pub at_once: u32,
    /// `HH:MM-HH:MM`, the hours in which machines may be replaced; over midnight where the second is the smaller.
    /// Always when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<String>,
    /// An IANA time zone for the hours.
    pub time_zone: String,
}

impl Default for Replacement {
    fn default() -> Self {
        Self { at_once: 1, hours: None, time_zone: "UTC".into() }
    }
}

/// Whether machines may be replaced now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hours {
    /// Yes.
    Open,
    /// Not before this moment.
    ClosedUntil(Timestamp),
    /// The hours or their time zone cannot be read.
    Unreadable,
}

impl Replacement {
    /// Returns whether this is the value of a spec that does not set it.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the hours and their time zone.
    ///
    /// # Errors
    /// Names the field that cannot be read.
    pub fn check(&self) -> Result<(), FieldError> {
        TimeZone::get(&self.time_zone).map_err(|error| {
            let fix = "use an IANA name such as Europe/Berlin or UTC";
            FieldError::new("replacement.timeZone", &self.time_zone, error.to_string(), fix)
        })?;
        match &self.hours {
            Some(hours) if span(hours).is_none() => {
                let fix = "write HH:MM-HH:MM with two different times, such as 22:00-06:00";
                Err(FieldError::new("replacement.hours", hours, "are not hours of a day", fix))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether machines may be replaced at this moment.
    pub fn hours_at(&self, now: Timestamp) -> Hours {
        let Some(hours) = &self.hours else { return Hours::Open };
        let (Some((from, to)), Ok(zone)) = (span(hours), TimeZone::get(&self.time_zone)) else {
            return Hours::Unreadable;
        };
        let local = now.to_zoned(zone.clone());
        let time = local.time();
        let open = if from < to { from <= time && time < to } else { from <= time || time < to };
        if open {
            return Hours::Open;
        }
        let day = if time < from { Ok(local.date()) } else { local.date().checked_add(1.day()) };
        let opening = day.and_then(|day| day.to_datetime(from).to_zoned(zone));
        opening.map_or(Hours::Unreadable, |at| Hours::ClosedUntil(at.timestamp()))
    }
}

/// Parses the two times of `HH:MM-HH:MM`; none where the text has another form, or is not a time.
fn span(hours: &str) -> Option<(Time, Time)> {
    let time = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        if hour.len() != 2 || minute.len() != 2 {
            return None;
        }
        Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
    };
    let (from, to) = hours.split_once('-')?;
    let (from, to) = (time(from)?, time(to)?);
    (from != to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::drift;
    use crate::model::{LaunchTemplate, PoolSpec, launch_digest};

    fn spec(more: serde_json::Value) -> PoolSpec {
        let mut fields = serde_json::json!({"resourceClass": "linux", "launch": {"ami": "ami-1"}});
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn the_digest_is_the_same_everywhere_and_for_ever() {
        assert_eq!(launch_digest(&spec(serde_json::json!({}))), "60a559ebb288fdf5-7cec96a1410b1bd1");
    }

    #[test]
    fn what_is_launched_changes_the_digest_and_how_many_are_wanted_does_not() {
        let was = launch_digest(&spec(serde_json::json!({})));
        assert_eq!(launch_digest(&spec(serde_json::json!({"desired": 3, "max": 9, "idleSeconds": 5}))), was);
        for more in [
            serde_json::json!({"launch": {"ami": "ami-2"}}),
            serde_json::json!({"launch": {"ami": "ami-1", "volumeGiB": 9}}),
            serde_json::json!({"cpu": 4}),
            serde_json::json!({"mmem": 4}),
            serde_json::json!({"allowedInstanceTypes": ["m*"]}),
        ] {
            assert_ne!(launch_digest(&spec(more.clone())), was, "{more}");
        }
    }

    #[test]
    fn a_machine_drifted_when_it_is_launched_differently_or_does_not_fit_any_more() {
        let block = spec(serde_json::json!({})).launch;
        for (was, is, fits, drifted) in [
            (Some("a-a"), "a-a", false, false),
            (Some("b-a"), "a-a", true, true),
            (Some("a-b"), "a-a", true, false),
            (Some("a-b"), "a-a", false, true),
            (None, "a-a", false, false),
            (Some("odd"), "a-a", false, false),
        ] {
            assert_eq!(drift(was, is, fits, &block).is_some(), drifted, "{was:?} {is} {fits}");
        }
        assert_eq!(drift(Some("b-a"), "a-a", false, &LaunchTemplate::default()), None);
    }

    fn hours(hours: &str, zone: &str) -> Replacement {
        Replacement { at_once: 1, hours: Some(hours.into()), time_zone: zone.into() }
    }

    #[test]
    fn hours_are_local_and_may_go_over_midnight() {
        let at = |time: &str| -> Timestamp { time.parse().unwrap() };
        let day = hours("09:00-17:00", "UTC");
        assert_eq!(day.hours_at(at("2026-01-05T09:00:00Z")), Hours::Open);
        assert_eq!(day.hours_at(at("2026-01-05T17:00:00Z")), Hours::ClosedUntil(at("2026-01-06T09:00:00Z")));
        assert_eq!(day.hours_at(at("2026-01-05T08:59:59Z")), Hours::ClosedUntil(at("2026-01-05T09:00:00Z")));
        // Berlin is an hour ahead in January and two in July.
        let night = hours("22:00-06:00", "Europe/Berlin");
        assert_eq!(night.hours_at(at("2026-01-05T21:00:00Z")), Hours::Open);
        assert_eq!(night.hours_at(at("2026-01-05T04:59:00Z")), Hours::Open);
        assert_eq!(
            night.hours_at(at("2026-01-05T05:00:00Z")),
            Hours::ClosedUntil(at("2026-01-05T21:00:00Z"))
        );
        assert_eq!(
            night.hours_at(at("2026-07-05T12:00:00Z")),
            Hours::ClosedUntil(at("2026-07-05T20:00:00Z"))
        );
        assert_eq!(Replacement::default().hours_at(at("2026-01-05T12:00:00Z")), Hours::Open);
    }

    #[test]
    fn hours_that_cannot_be_read_are_refused_by_name_and_never_open() {
        for bad in ["", "9-17", "9:00-17:00", "25:00-06:00", "06:00-06:00", "22:00", "22:00–06:00"] {
            let replacement = hours(bad, "UTC");
            assert_eq!(replacement.check().unwrap_err().field, "replacement.hours", "{bad}");
            assert_eq!(replacement.hours_at(Timestamp::UNIX_EPOCH), Hours::Unreadable, "{bad}");
        }
        let nowhere = hours("22:00-06:00", "Mars/Base");
        assert_eq!(nowhere.check().unwrap_err().field, "replacement.timeZone");
        assert_eq!(nowhere.hours_at(Timestamp::UNIX_EPOCH), Hours::Unreadable);
        assert!(hours("22:00-06:00", "Europe/Berlin").check().is_ok());
    }
}
