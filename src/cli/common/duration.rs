//! Parses durations as people write them, such as `30m`: a number with a unit, never without one.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

use runyard_core::model::{FieldError, LONGEST_RUNTIME_MINUTES};

const FIX: &str = "write a number and its unit, such as 90s, 30m, 2h or 1h30m";

/// The longest wait for a request: GitHub itself gives up on a queued job after a day.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// The longest `scale`, and the longest period to look back.
pub(crate) const LONGEST_SCALE: Duration = Duration::from_hours(366 * 24);

/// Parses a positive duration of at most `longest`.
pub(crate) fn parse(text: &str, longest: Duration) -> Result<Duration, FieldError> {
    let refused = |message: &str| Err(FieldError::new("duration", text, message, FIX));
    let Ok(span) = text.trim().parse::<Span>() else {
        return refused("not a duration");
    };
    let Ok(length) = span.to_duration(SpanRelativeTo::days_are_24_hours()) else {
        return refused("months and years have no fixed length");
    };
    match Duration::try_from(length) {
        Err(_) => refused("must not be negative"),
        Ok(length) if length.is_zero() => refused("must be greater than 0"),
        Ok(length) if length > longest => refused(&format!("must be at most {}", show(longest))),
        Ok(length) => Ok(length),
    }
}

/// Parses how long a request waits: whole seconds, as in its record.
pub(crate) fn wait(text: &str) -> Result<Duration, FieldError> {
    let length = parse(text, LONGEST_WAIT)?;
    if length.subsec_nanos() != 0 {
        return Err(FieldError::new("duration", text, "must be whole seconds", FIX));
    }
    Ok(length)
}

/// Parses how long a machine may run: whole minutes, as in its record.
pub(crate) fn run(text: &str) -> Result<Duration, FieldError> {
    let length = parse(text, Duration::from_mins(LONGEST_RUNTIME_MINUTES))?;
    if !length.as_secs().is_multiple_of(60) || length.subsec_nanos() != 0 {
        let fix = "write whole minutes, such as 30m, 2h or 1h30m";
        return Err(FieldError::new("duration", text, "must be whole minutes", fix));
    }
    Ok(length)
}

/// Parses how long the command itself waits.
pub(crate) fn patience(text: &str) -> Result<Duration, FieldError> {
    parse(text, LONGEST_WAIT)
}

/// Parses how long a `scale` holds.
pub(crate) fn hold(text: &str) -> Result<Duration, FieldError> {
    parse(text, LONGEST_SCALE)
}

/// Parses how far to look back.
pub(crate) fn past(text: &str) -> Result<Duration, FieldError> {
    parse(text, LONGEST_SCALE)
}

/// Formats a duration for people: its two largest units.
pub(crate) fn show(length: Duration) -> String {
    let seconds = length.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, 0) => format!("{minutes}m"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, 0, _) => format!("{hours}h"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, 0, _, _) => format!("{days}d"),
        (days, hours, _, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_sensible_size() {
        for (good, seconds) in [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1d", 86_400), ("24h", 86_400)]
        {
            assert_eq!(wait(good).unwrap().as_secs(), seconds, "{good}");
        }
        for bad in ["", "30", "0", "0s", "-10m", "100y", "100 years", "25h", "abc", "1500ms", "1e9s", "９m"]
        {
            let refused = wait(bad).unwrap_err();
            assert_eq!(refused.value, bad);
            assert!(refused.fix.contains("90s"));
        }
        let refused = run("90s").unwrap_err();
        assert!(!refused.fix.contains("90s"), "what is refused is not recommended: {refused}");
        assert_eq!(patience("300ms").unwrap().as_millis(), 300);
    }

    #[test]
    fn lengths_are_shown_by_their_two_largest_units() {
        let shown = [0, 59, 60, 61, 3600, 3660, 86_400, 90_000].map(|s| show(Duration::from_secs(s)));
        assert_eq!(shown, ["0s", "59s", "1m", "1m1s", "1h", "1h1m", "1d", "1d1h"]);
    }
}
