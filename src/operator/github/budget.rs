//! May this call be made now? GitHub limits calls per hour and per minute, and asks for a pause when there are too
//! many; the remaining budget is reserved by priority: registrations first, then removals of runners, then audits.
//! Pure: the time is an argument, and nothing here waits.
//! <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::errors::Call;

/// The purpose of a call, by priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// A machine needs it to serve a request.
    Register,
    /// It removes a runner.
    Deregister,
    /// Nothing waits for it.
    Audit,
}

impl Priority {
    /// All priorities, highest first.
    pub(super) const ALL: [Self; 3] = [Self::Register, Self::Deregister, Self::Audit];

    /// Returns the label for metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Deregister => "deregister",
            Self::Audit => "audit",
        }
    }

    /// Returns the part of a budget, in percent, that is reserved for higher priorities.
    const fn leaves(self) -> u64 {
        match self {
            Self::Register => 0,
            Self::Deregister => 5,
            Self::Audit => 20,
        }
    }
}

/// Points per minute (GitHub's secondary limit); a read costs 1, a change 5.
const POINTS: u32 = 900;
/// Calls per minute that create something (GitHub's secondary limit).
const CREATIONS: u32 = 80;
/// The longest time for which a budget counts as spent: GitHub renews them each hour.
const LONGEST: Duration = Duration::from_secs(3600);
/// The shortest pause.
const SHORTEST: Duration = Duration::from_secs(1);

/// A bucket that refills within a minute.
#[derive(Clone, Debug)]
struct Bucket {
    size: f64,
    level: f64,
    at: Timestamp,
}

impl Bucket {
    fn full(size: u32, at: Timestamp) -> Self {
        Self { size: f64::from(size), level: f64::from(size), at }
    }

    fn fill(&mut self, now: Timestamp) {
        // A clock that was set back refills nothing.
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.level = (self.level + passed * self.size / 60.0).min(self.size);
        self.at = now;
    }

    /// Returns the wait until this much may be taken while `leaves` percent remain.
    fn wait(&self, cost: u32, leaves: u64) -> Option<Duration> {
        let floor = self.size * leaves as f64 / 100.0;
        let lacks = floor + f64::from(cost) - self.level;
        (lacks > 0.0).then(|| Duration::from_secs_f64(lacks * 60.0 / self.size))
    }
}

/// An hourly budget, as last reported by GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    reset: Timestamp,
}

/// The budgets of one account.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    points: Bucket,
    creations: Bucket,
    primary: BTreeMap<&'static str, Primary>,
    /// The budget that a kind of call was last counted against.
    counted: BTreeMap<Call, &'static str>,
    silent_until: Option<Timestamp>,
}

impl Budget {
    /// Creates budgets without information from GitHub.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            points: Bucket::full(POINTS, now),
            creations: Bucket::full(CREATIONS, now),
            primary: BTreeMap::new(),
            counted: BTreeMap::new(),
            silent_until: None,
        }
    }

    /// Returns the used part of the hourly budget of reads, from 0 to 1; 0 where GitHub has not reported it, and once it
    /// was renewed.
    pub(super) fn used(&self, now: Timestamp) -> f64 {
        let budget = self.counted.get(&Call::Read).and_then(|name| self.primary.get(name));
        let current = budget.filter(|budget| between(now, budget.reset).is_some() && budget.limit > 0);
        current.map_or(0.0, |budget| {
            let left = budget.remaining.min(budget.limit) as f64;
            1.0 - left / budget.limit as f64
        })
    }

    /// Takes the cost of a call, or returns how long to wait.
    pub(super) fn admit(&mut self, call: Call, priority: Priority, now: Timestamp) -> Result<(), Duration> {
        self.points.fill(now);
        self.creations.fill(now);
        let (points, creations) = (call.points(), u32::from(call.creates()));
        let silent = self.silent_until.and_then(|until| between(now, until));
        let hourly = self.counted.get(&call).and_then(|name| self.primary.get(name));
        let hourly = hourly.and_then(|budget| spent(*budget, priority, now));
        let leaves = priority.leaves();
        let minute = self.points.wait(points, leaves);
        let made = (creations > 0).then(|| self.creations.wait(creations, leaves)).flatten();
        if let Some(wait) = [silent, hourly, minute, made].into_iter().flatten().max() {
            return Err(wait.clamp(SHORTEST, LONGEST));
        }
        self.points.level -= f64::from(points);
        self.creations.level -= f64::from(creations);
        Ok(())
    }

    /// Updates the budgets from a response, and returns the one that it reports.
    pub(super) fn observe(
        &mut self,
        call: Call,
        headers: &HeaderMap,
        throttled: Option<Duration>,
        now: Timestamp,
    ) -> Option<(&'static str, Primary)> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let reset = number("x-ratelimit-reset").and_then(|at| i64::try_from(at).ok());
        let primary = (|| {
            let (limit, remaining) = (number("x-ratelimit-limit")?, number("x-ratelimit-remaining")?);
            // A reset more than an hour ahead is invalid, whatever its source.
            let latest = now.saturating_add(LONGEST).unwrap_or(Timestamp::MAX);
            Some(Primary { limit, remaining, reset: Timestamp::from_second(reset?).ok()?.min(latest) })
        })();
        if let Some(pause) = throttled {
            // A spent hourly budget affects only its own calls; every other throttle pauses all calls.
            let hourly = primary.is_some_and(|primary| primary.remaining == 0);
            if !hourly || headers.contains_key(RETRY_AFTER) {
                let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
                self.silent_until = Some(self.silent_until.map_or(until, |before| before.max(until)));
            }
        }
        let primary = primary?;
        let name = resource(headers.get("x-ratelimit-resource").and_then(|v| v.to_str().ok()));
        self.primary.insert(name, primary);
        self.counted.insert(call, name);
        Some((name, primary))
    }
}

/// Returns how long a budget is spent for calls of this priority.
fn spent(budget: Primary, priority: Priority, now: Timestamp) -> Option<Duration> {
    let enough = match priority.leaves() {
        0 => budget.remaining > 0,
        leaves => budget.remaining.saturating_mul(100) >= budget.limit.saturating_mul(leaves),
    };
    if enough { None } else { between(now, budget.reset) }
}

/// Returns the time until `then`; `None` if it is over, or so far ahead that our clock must have been set back since.
fn between(now: Timestamp, then: Timestamp) -> Option<Duration> {
    let wait = Duration::try_from(then.duration_since(now)).ok()?;
    (!wait.is_zero() && wait <= LONGEST).then_some(wait)
}

/// The budgets of our calls, by GitHub's names; limited to a few, since it is a label.
pub(super) const RESOURCES: [&str; 3] = ["core", "actions_runner_registration", "other"];

fn resource(name: Option<&str>) -> &'static str {
    match name {
        None => RESOURCES[0],
        Some(name) => RESOURCES.iter().find(|known| **known == name).copied().unwrap_or(RESOURCES[2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn later(seconds: i64) -> Timestamp {
        now() + jiff::SignedDuration::from_secs(seconds)
    }

    fn told(limit: u64, remaining: u64, reset: Timestamp) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-limit", limit.into());
        headers.insert("x-ratelimit-remaining", remaining.into());
        headers.insert("x-ratelimit-reset", reset.as_second().into());
        headers
    }

    #[test]
    fn what_is_left_of_the_hour_is_kept_for_what_weighs_more() {
        let cases = [(5000, [true, true, true]), (999, [true, true, false]), (1000, [true, true, true])];
        let low = [(250, [true, true, false]), (249, [true, false, false]), (0, [false, false, false])];
        for (remaining, admitted) in cases.into_iter().chain(low) {
            for (priority, admitted) in Priority::ALL.into_iter().zip(admitted) {
                let mut budget = Budget::new(now());
                budget.observe(Call::Read, &told(5000, remaining, later(600)), None, now());
                let asked = budget.admit(Call::Read, priority, now());
                let wanted = if admitted { Ok(()) } else { Err(Duration::from_secs(600)) };
                assert_eq!(asked, wanted, "{remaining} {priority:?}");
                assert_eq!(budget.admit(Call::Read, priority, later(601)), Ok(()), "the hour is over");
            }
        }
    }

    #[test]
    fn the_used_part_of_the_hour_is_told_until_it_is_renewed() {
        let mut budget = Budget::new(now());
        assert_eq!(budget.used(now()), 0.0, "GitHub has reported nothing");
        for (remaining, used) in [(5000, 0.0), (1250, 0.75), (0, 1.0), (6000, 0.0)] {
            budget.observe(Call::Read, &told(5000, remaining, later(600)), None, now());
            assert_eq!((budget.used(now()), budget.used(later(601))), (used, 0.0), "{remaining}");
        }
    }

    #[test]
    fn a_minute_holds_nine_hundred_points_of_which_looks_leave_a_fifth() {
        let mut budget = Budget::new(now());
        let looks = (0..1000).filter(|_| budget.admit(Call::Read, Priority::Audit, now()).is_ok()).count();
        assert_eq!(looks, 720);
        let removals =
            (0..100).filter(|_| budget.admit(Call::RemoveRunner, Priority::Deregister, now()).is_ok());
        assert_eq!(removals.count(), 27, "135 points of 5 each down to 5 %");
        let tokens = (0..100).filter(|_| budget.admit(Call::MintToken, Priority::Register, now()).is_ok());
        assert_eq!(tokens.count(), 9, "the last 45 points");
        assert_eq!(budget.admit(Call::MintToken, Priority::Register, later(1)), Ok(()), "it fills up again");
    }

    #[test]
    fn a_minute_holds_a_hundred_and_seventy_one_removals_which_create_nothing() {
        let mut budget = Budget::new(now());
        let removed =
            (0..1000).filter(|_| budget.admit(Call::RemoveRunner, Priority::Deregister, now()).is_ok());
        assert_eq!(removed.count(), 171, "900 points of 5 each down to 5 %");
    }

    #[test]
    fn no_more_than_eighty_things_a_minute_are_created() {
        let mut budget = Budget::new(now());
        let made = |budget: &mut Budget, at| {
            (0..200).filter(|_| budget.admit(Call::CreateRunner, Priority::Register, at).is_ok()).count()
        };
        assert_eq!(made(&mut budget, now()), 80);
        assert_eq!(made(&mut budget, later(60)), 80);
        assert_eq!(made(&mut budget, later(30)), 0, "a clock that is set back gives nothing");
    }

    #[test]
    fn a_secondary_limit_silences_every_call_until_it_is_over() {
        let mut budget = Budget::new(now());
        let pause = Duration::from_secs(17);
        budget.observe(Call::MintToken, &HeaderMap::new(), Some(pause), now());
        for priority in Priority::ALL {
            assert_eq!(budget.admit(Call::Read, priority, now()), Err(pause));
            assert_eq!(budget.admit(Call::Read, priority, later(17)), Ok(()));
        }
    }

    #[test]
    fn a_spent_hour_of_one_budget_does_not_silence_another() {
        let mut budget = Budget::new(now());
        let mut headers = told(10_000, 0, later(100));
        headers.insert("x-ratelimit-resource", "actions_runner_registration".parse().unwrap());
        budget.observe(Call::MintToken, &headers, Some(Duration::from_secs(100)), now());
        assert!(budget.admit(Call::MintToken, Priority::Register, now()).is_err());
        assert_eq!(budget.admit(Call::Read, Priority::Audit, now()), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_can_silence_us_for_more_than_an_hour(limit in 0_u64.., remaining in 0_u64.., reset in 0_u64..) {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-limit", limit.into());
            headers.insert("x-ratelimit-remaining", remaining.into());
            headers.insert("x-ratelimit-reset", reset.into());
            let mut budget = Budget::new(now());
            budget.observe(Call::Read, &headers, None, now());
            let asked = budget.admit(Call::Read, Priority::Audit, now());
            proptest::prop_assert!(asked.is_ok() || asked.is_err_and(|wait| wait <= LONGEST));
            for at in [later(3600), later(-3600)] {
                let asked = budget.clone().admit(Call::Read, Priority::Audit, at);
                proptest::prop_assert_eq!(asked, Ok(()), "an hour later, and by a clock that was set back");
            }
        }
    }
}
