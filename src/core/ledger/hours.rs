//! Closed hours: the activity of a class's machines in one hour, by repository, in one bounded line that is written
//! once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::Sum;
use super::entries::{Entry, Period};
use super::prices::Prices;
use crate::model::ClassName;
use crate::model::history::Activity;

/// How many repositories a line names; the others are one part.
pub const MOST_REPOSITORIES: usize = 200;
/// The name of that part, which no repository has.
pub const OTHER: &str = "(other)";

/// The activity of the machines of one class in one hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HourLine {
    /// The beginning of the hour.
    pub hour: Timestamp,
    /// The class.
    pub resource_class: ClassName,
    /// 0 for the line itself; a correction has a number from 1, and its figures are added.
    #[serde(default)]
    pub correction: u32,
    /// The repositories with most seconds, all others together, and the pool's own time; in the order of their names,
    /// the pool first.
    pub parts: Vec<HourPart>,
}

/// The activity for one repository, or for the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HourPart {
    /// The repository in lower case, [`OTHER`], or none for the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Seconds by activity.
    pub seconds: BTreeMap<Activity, i64>,
    /// Seconds that are billed in addition.
    #[serde(default)]
    pub minimum_seconds: i64,
    /// Seconds of types without a price.
    #[serde(default)]
    pub unpriced_seconds: i64,
    /// Its cost including volumes at the prices of the day it was closed, in nano-dollars.
    pub cost_nanos: i64,
    /// The same at on-demand list prices.
    pub list_nanos: i64,
}

/// Builds the lines of the hour that begins at a moment, one per class. An hour in which a class had no machine has no
/// line.
pub fn close(entries: &[Entry], hour: Timestamp, prices: &Prices) -> Vec<HourLine> {
    let from = hour.as_second();
    let period = Period { from, to: from + 3600 };
    let mut classes: BTreeMap<ClassName, BTreeMap<Option<String>, Sum>> = BTreeMap::new();
    for entry in entries.iter().filter_map(|entry| entry.within(period)) {
        let repository = entry.request.is_some().then(|| {
            entry.repository().map_or_else(|| OTHER.to_owned(), |repository| repository.folded().to_string())
        });
        let parts = classes.entry(entry.machine.class.clone()).or_default();
        parts.entry(repository).or_default().add(&entry, prices);
    }
    let line =
        |(resource_class, parts)| HourLine { hour, resource_class, correction: 0, parts: bounded(parts) };
    classes.into_iter().map(line).collect()
}

fn bounded(mut parts: BTreeMap<Option<String>, Sum>) -> Vec<HourPart> {
    let mut order: Vec<(u64, String)> =
        parts.iter().filter_map(|(name, sum)| Some((sum.lived() + sum.minimum, name.clone()?))).collect();
    order.sort_by(|(a, left), (b, right)| (b, left).cmp(&(a, right)));
    for (_, name) in order.into_iter().filter(|(_, name)| name != OTHER).skip(MOST_REPOSITORIES) {
        if let Some(sum) = parts.remove(&Some(name)) {
            *parts.entry(Some(OTHER.to_owned())).or_default() += &sum;
        }
    }
    parts.into_iter().map(|(repository, sum)| HourPart::of(repository, &sum)).collect()
}

/// Returns the line to add to the written lines of an hour and class so that their sum is the figures known now; none
/// when it already is.
pub fn correction(written: &[HourLine], now: &HourLine) -> Option<HourLine> {
    let mut parts: BTreeMap<Option<String>, HourPart> = BTreeMap::new();
    let mut add = |line: &HourLine, sign: i64| {
        for part in &line.parts {
            let sum = parts.entry(part.repository.clone()).or_default();
            sum.repository.clone_from(&part.repository);
            sum.add(part, sign);
        }
    };
    add(now, 1);
    written.iter().for_each(|line| add(line, -1));
    let parts: Vec<HourPart> = parts.into_values().filter(|part| !part.is_nothing()).collect();
    let last = written.iter().map(|line| line.correction).max()?;
    (!parts.is_empty()).then(|| HourLine { correction: last + 1, parts, ..now.clone() })
}

impl HourPart {
    fn of(repository: Option<String>, sum: &Sum) -> Self {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let nanos = |n: i128| i64::try_from(n).unwrap_or(i64::MAX);
        Self {
            repository,
            seconds: sum.seconds.iter().map(|(activity, n)| (*activity, number(*n))).collect(),
            minimum_seconds: number(sum.minimum),
            unpriced_seconds: number(sum.unpriced),
            cost_nanos: nanos(sum.cost().nanos()),
            list_nanos: nanos((sum.money.list + sum.money.volume).nanos()),
        }
    }

    fn add(&mut self, other: &Self, sign: i64) {
        for (activity, seconds) in &other.seconds {
            *self.seconds.entry(*activity).or_default() += sign * seconds;
        }
        self.seconds.retain(|_, seconds| *seconds != 0);
        self.minimum_seconds += sign * other.minimum_seconds;
        self.unpriced_seconds += sign * other.unpriced_seconds;
        self.cost_nanos += sign * other.cost_nanos;
        self.list_nanos += sign * other.list_nanos;
    }

    fn is_nothing(&self) -> bool {
        self.seconds.is_empty()
            && self.minimum_seconds == 0
            && self.unpriced_seconds == 0
            && self.cost_nanos == 0
            && self.list_nanos == 0
    }

    /// Returns all its seconds.
    pub fn lived(&self) -> i64 {
        self.seconds.values().sum()
    }
}
