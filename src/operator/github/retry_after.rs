//! How long a pause does GitHub request? Its headers have three forms, and none is trustworthy.
//! <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The pause in GitHub's documentation if no header gives a time.
const UNSTATED: Duration = Duration::from_secs(60);
/// Even a reset in the past costs one pause.
const SHORTEST: Duration = Duration::from_secs(1);
/// Primary limits reset each hour; a longer time in a header is a mistake somewhere on the way.
const LONGEST: Duration = Duration::from_secs(3600);

/// Returns whether the headers mark the refusal as a rate limit rather than a missing permission.
pub(super) fn is_rate_limit(headers: &HeaderMap) -> bool {
    headers.contains_key(RETRY_AFTER) || text(headers, "x-ratelimit-remaining") == Some("0")
}

/// Returns the pause that these headers request, between one second and one hour.
pub(super) fn pause(headers: &HeaderMap, now: Timestamp) -> Duration {
    let asked = match text(headers, RETRY_AFTER.as_str()) {
        Some(value) => delay(value, now),
        None => text(headers, "x-ratelimit-reset").and_then(|value| until_epoch_second(value, now)),
    };
    asked.unwrap_or(UNSTATED).clamp(SHORTEST, LONGEST)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Parses seconds or an HTTP date (RFC 9110, 10.2.3).
fn delay(value: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?;
    Some(between(now, date.timestamp()))
}

fn until_epoch_second(value: &str, now: Timestamp) -> Option<Duration> {
    let reset = Timestamp::from_second(value.parse().ok()?).ok()?;
    Some(between(now, reset))
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn every_form_of_the_headers_gives_a_pause_between_a_second_and_an_hour() {
        let cases: [(&[(&str, &str)], u64); 11] = [
            (&[("retry-after", "30")], 30),
            (&[("retry-after", "0")], 1),
            (&[("retry-after", "86400")], 3600),
            (&[("retry-after", "99999999999999999999999")], 60),
            (&[("retry-after", "Sun, 01 Mar 2026 12:02:00 GMT")], 120),
            (&[("retry-after", "Sun, 01 Mar 2026 11:00:00 GMT")], 1),
            (&[("retry-after", "soon")], 60),
            (&[("x-ratelimit-reset", "1772366490")], 90),
            (&[("x-ratelimit-reset", "1")], 1),
            (&[("x-ratelimit-reset", "-7x")], 60),
            (&[], 60),
        ];
        for (given, seconds) in cases {
            let given: Vec<_> = given.iter().map(|(k, v)| (*k, *v)).collect();
            assert_eq!(pause(&headers(&given), now()), Duration::from_secs(seconds), "{given:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_header_can_silence_us_for_long_or_make_us_storm(value in "[ -~]{0,40}", reset in "-?[0-9]{0,25}") {
            for given in [headers(&[("retry-after", &value)]), headers(&[("x-ratelimit-reset", &reset)])] {
                let pause = pause(&given, now());
                proptest::prop_assert!((SHORTEST..=LONGEST).contains(&pause), "{pause:?}");
            }
        }
    }

    #[test]
    fn only_an_exhausted_budget_or_a_stated_pause_is_a_rate_limit() {
        assert!(is_rate_limit(&headers(&[("retry-after", "x")])));
        assert!(is_rate_limit(&headers(&[("x-ratelimit-remaining", "0")])));
        assert!(!is_rate_limit(&headers(&[("x-ratelimit-remaining", "10")])));
        assert!(!is_rate_limit(&headers(&[])));
    }
}
