//! How a class sizes itself: the promise in its spec, the number of idle machines that the operator set for it, and the
//! past demand that it remembers for that.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::record::field::FieldError;

/// Hours of a week.
pub const HOURS: u16 = 168;
/// The most idle machines that demand is remembered for; a greater need counts as this one.
pub const MOST_NEED: u32 = 1024;
/// How long remembered demand is used after its last hour.
pub const DEMAND_STALE: Duration = Duration::from_secs(24 * 3600);

/// The promise of a class, and its cost limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sizing {
    /// The time within which the machines of 95 of 100 requests are ready.
    #[serde(rename = "waitP95")]
    pub wait_p95: WaitTarget,
    /// The most that idle machines may cost per day, in the currency of the price table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_per_day: Option<Money>,
    /// The least number of idle machines.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min: u32,
    /// The greatest number; that of the pool when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A wait that is promised: 1 s to 1 h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WaitTarget(Duration);

impl WaitTarget {
    /// Returns the duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for WaitTarget {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let refused = || {
            let fix = "write whole seconds or minutes, from 1s to 1h, such as \"20s\"";
            FieldError::new("waitP95", text, "is not a time to wait", fix)
        };
        let signed: SignedDuration = text.parse().map_err(|_| refused())?;
        let wait = Duration::try_from(signed).map_err(|_| refused())?;
        let within = (1..=3600).contains(&wait.as_secs()) && wait <= Duration::from_secs(3600);
        if within && wait.subsec_nanos() == 0 { Ok(Self(wait)) } else { Err(refused()) }
    }
}

impl TryFrom<String> for WaitTarget {
    type Error = FieldError;

    fn try_from(text: String) -> Result<Self, FieldError> {
        text.parse()
    }
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds.is_multiple_of(60) { write!(f, "{}m", seconds / 60) } else { write!(f, "{seconds}s") }
    }
}

impl From<WaitTarget> for String {
    fn from(wait: WaitTarget) -> Self {
        wait.to_string()
    }
}

/// An amount of money, in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Money(u64);

impl Money {
    /// The greatest amount that is accepted.
    const MOST: f64 = 1e9;

    /// Returns the amount as a number.
    pub fn get(self) -> f64 {
        self.0 as f64 / 100.0
    }
}

impl TryFrom<f64> for Money {
    type Error = FieldError;

    fn try_from(amount: f64) -> Result<Self, FieldError> {
        let hundredths = (amount * 100.0).round();
        if amount.is_finite() && (0.01..=Self::MOST).contains(&amount) {
            return Ok(Self(hundredths as u64));
        }
        let fix = "write an amount from 0.01, such as 40 or 12.50";
        Err(FieldError::new("maxCostPerDay", amount.to_string(), "is not an amount to spend", fix))
    }
}

impl From<Money> for f64 {
    fn from(money: Money) -> Self {
        money.get()
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.get())
    }
}

/// The number of idle machines that the operator set for a class with `sizing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizedDesired {
    /// Idle machines kept.
    pub desired: u32,
    /// When it was set.
    pub at: Timestamp,
    /// The quarter of an hour for which it was last computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<Timestamp>,
    /// The reason for this number, for people.
    #[serde(default)]
    pub reason: String,
    /// The counts for the hours from the end of the demand on, as they were last learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<u32>,
}

/// The past demand that a class remembers: for each hour of the week, how many requests would have needed how many idle
/// machines to be served at once. Each week that passes reduces the weight of earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The beginning of the first hour that was learned.
    pub since: Timestamp,
    /// The end of the last hour that was learned.
    pub until: Timestamp,
    /// The needs.
    #[serde(default)]
    pub bins: Bins,
    /// The needs by level of demand, where a week was learned.
    #[serde(default, skip_serializing_if = "Pace::is_empty")]
    pub pace: Pace,
}

/// Needs by hour of the week, from 0 (Monday 00:00 in the zone of the class) to 167. The counts are hundredths of
/// requests. An hour that cannot be read is left out: it must not make the record unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Bins(pub BTreeMap<u16, BTreeMap<u32, u32>>);

impl Bins {
    /// Returns how many requests they count.
    pub fn requests(&self) -> f64 {
        let counts = self.0.values().flat_map(BTreeMap::values);
        counts.map(|count| u64::from(*count)).sum::<u64>() as f64 / 100.0
    }
}

impl From<String> for Bins {
    fn from(text: String) -> Self {
        let hour = |bin: &str| {
            let (hour, needs) = bin.split_once('=')?;
            let hour: u16 = hour.parse().ok().filter(|hour| *hour < HOURS)?;
            Some((hour, needs_of(needs).filter(|needs| !needs.is_empty())?))
        };
        Self(text.split(';').filter_map(hour).collect())
    }
}

impl From<Bins> for String {
    fn from(bins: Bins) -> Self {
        let filled = bins.0.iter().filter(|(_, of)| !of.is_empty());
        let all: Vec<String> = filled.map(|(hour, of)| format!("{hour}={}", told(of))).collect();
        all.join(";")
    }
}

/// The recent requests, and the needs at each level of demand. Every second level doubles the demand; level 0 is one
/// request an hour. Entries that cannot be read are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Pace {
    /// Thousandths of requests made until the end of the demand, each counting for half after 15 minutes, 2 hours, 6
    /// hours and a day.
    pub recent: [u64; 4],
    /// By level.
    pub levels: BTreeMap<i16, Level>,
}

/// The needs at one level of demand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// How long demand was at this level: hundredths of quarters of an hour.
    pub quarters: u32,
    /// Hundredths of requests by need.
    pub needs: BTreeMap<u32, u32>,
}

/// The lowest and the highest level.
pub const PACE_LEVELS: (i16, i16) = (-10, 30);

impl Pace {
    /// Returns whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how many requests its levels count.
    pub fn requests(&self) -> f64 {
        let counts = self.levels.values().flat_map(|level| level.needs.values());
        counts.map(|count| u64::from(*count)).sum::<u64>() as f64 / 100.0
    }
}

fn needs_of(text: &str) -> Option<BTreeMap<u32, u32>> {
    let one = |need: &str| {
        let (need, count) = need.split_once(':')?;
        let need: u32 = need.parse().ok().filter(|need| *need <= MOST_NEED)?;
        Some((need, count.parse().ok()?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(one).collect()
}

fn told(needs: &BTreeMap<u32, u32>) -> String {
    let each: Vec<String> = needs.iter().map(|(need, count)| format!("{need}:{count}")).collect();
    each.join(",")
}

impl From<String> for Pace {
    fn from(text: String) -> Self {
        let (recent, levels) = text.split_once('/').unwrap_or((&text, ""));
        let mut pace = Self::default();
        for (slot, number) in pace.recent.iter_mut().zip(recent.split(',')) {
            *slot = number.parse().unwrap_or(0);
        }
        let level = |text: &str| {
            let (level, rest) = text.split_once('=')?;
            let level: i16 = level.parse().ok()?;
            let (quarters, needs) = rest.split_once('|')?;
            let known = (PACE_LEVELS.0..=PACE_LEVELS.1).contains(&level);
            Some((level, Level { quarters: quarters.parse().ok()?, needs: needs_of(needs)? }))
                .filter(|_| known)
        };
        pace.levels = levels.split(';').filter_map(level).collect();
        pace
    }
}

impl From<Pace> for String {
    fn from(pace: Pace) -> Self {
        let recent = pace.recent.map(|number| number.to_string()).join(",");
        let level = |(at, level): (&i16, &Level)| format!("{at}={}|{}", level.quarters, told(&level.needs));
        let levels: Vec<String> = pace.levels.iter().map(level).collect();
        format!("{recent}/{}", levels.join(";"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_written_as_one_line_and_read_again() {
        let text = "1500,0,20,3000/-3=400|;5=1200|0:100,4:250".to_owned();
        let pace = Pace::from(text.clone());
        assert_eq!((pace.recent, pace.levels[&5].quarters), ([1500, 0, 20, 3000], 1200));
        assert_eq!(pace.levels[&5].needs, BTreeMap::from([(0, 100), (4, 250)]));
        assert_eq!(String::from(pace), text);
        assert!(Pace::from(String::new()).is_empty());
        for bad in ["31=1|1:1", "x=1|1:1", "1=1", "1=x|1:1", "1=1|1025:1"] {
            assert_eq!(
                String::from(Pace::from(format!("0,0,0,0/{bad};2=1|1:1"))),
                "0,0,0,0/2=1|1:1",
                "{bad}"
            );
        }
    }

    #[test]
    fn a_promised_wait_is_whole_seconds_from_one_to_an_hour() {
        for (text, told) in [("20s", "20s"), ("60s", "1m"), ("90s", "90s"), ("1h", "60m"), ("1s", "1s")] {
            assert_eq!(text.parse::<WaitTarget>().unwrap().to_string(), told);
        }
        for bad in ["", "20", "0s", "61m", "1500ms", "-5s", "soon"] {
            assert_eq!(bad.parse::<WaitTarget>().unwrap_err().field, "waitP95", "{bad}");
        }
    }

    #[test]
    fn an_amount_of_money_keeps_its_hundredths() {
        for amount in [0.01, 40.0, 12.5, 19.99, 1e9] {
            assert!((Money::try_from(amount).unwrap().get() - amount).abs() < 1e-9, "{amount}");
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
            assert!(Money::try_from(bad).is_err(), "{bad}");
        }
        let sizing: Sizing = serde_json::from_str(r#"{"waitP95": "20s", "maxCostPerDay": 40}"#).unwrap();
        assert_eq!(serde_json::to_string(&sizing).unwrap(), r#"{"waitP95":"20s","maxCostPerDay":40.0}"#);
    }

    #[test]
    fn bins_are_written_as_one_line_and_read_again() {
        let text = "9=0:100,2:250;167=1:100".to_owned();
        let bins = Bins::from(text.clone());
        assert_eq!(bins.0[&9], BTreeMap::from([(0, 100), (2, 250)]));
        assert_eq!(String::from(bins), text);
        assert_eq!(Bins::from(String::new()), Bins::default());
        for bad in ["168=1:1", "1=", "1=2", "x=1:1", "1=1025:1", "1"] {
            assert_eq!(String::from(Bins::from(format!("{bad};2=1:1"))), "2=1:1", "{bad} is left out");
        }
    }
}
