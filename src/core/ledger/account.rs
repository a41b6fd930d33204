//! Sums up entries by name, with the pools' idle time shared by a rule.

use std::collections::{BTreeMap, BTreeSet};

use super::entries::Entry;
use super::money::Money;
use super::prices::{Priced, Prices, Unpriced};
use crate::model::history::Activity;
use crate::model::{ClassName, RecordId, words};

words! {
    /// How what a pool's idle machines cost is shared among those who used it.
    IdleShare {
        /// Not at all: it stays the pool's.
        None = "none",
        /// By the seconds in which machines were claimed and running.
        BusySeconds = "busy-seconds",
        /// By the machines that came out of the pool. A cold start costs no idle time, so it bears none.
        WarmClaims = "warm-claims",
    }
}

/// The sum of some entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Seconds by activity.
    pub seconds: BTreeMap<Activity, u64>,
    /// Seconds that are billed in addition.
    pub minimum: u64,
    /// Claims of machines from the pool.
    pub warm_claims: u64,
    /// Their cost, as far as prices are known.
    pub money: Priced,
    /// Seconds of types without a price.
    pub unpriced: u64,
    /// Seconds of spot machines that are counted at on-demand prices.
    pub spot_at_list: u64,
}

impl Sum {
    /// Adds an entry; returns its type if that type has no price.
    pub fn add(&mut self, entry: &Entry, prices: &Prices) -> Option<Unpriced> {
        *self.seconds.entry(entry.activity).or_default() += entry.seconds();
        self.minimum += entry.minimum;
        self.warm_claims += u64::from(entry.begins && entry.activity == Activity::Claimed);
        match prices.of(entry) {
            Ok(priced) => {
                self.money += priced;
                self.spot_at_list += if priced.spot_at_list { entry.billed() } else { 0 };
                None
            }
            Err(unpriced) => {
                self.unpriced += entry.billed();
                Some(unpriced)
            }
        }
    }

    /// Returns all seconds of machines' lives.
    pub fn lived(&self) -> u64 {
        self.seconds.values().sum()
    }

    /// Returns the seconds in which machines were claimed or running.
    pub fn busy(&self) -> u64 {
        let of = |activity| self.seconds.get(&activity).copied().unwrap_or_default();
        of(Activity::Claimed) + of(Activity::Running)
    }

    /// Returns the cost of machines and volumes.
    pub fn cost(&self) -> Money {
        self.money.cost + self.money.volume
    }
}

impl std::ops::AddAssign for Priced {
    fn add_assign(&mut self, other: Self) {
        self.list += other.list;
        self.cost += other.cost;
        self.volume += other.volume;
        self.fee += other.fee;
        self.hosted += other.hosted;
        self.spot_at_list |= other.spot_at_list;
    }
}

impl std::ops::AddAssign<&Self> for Sum {
    fn add_assign(&mut self, other: &Self) {
        for (activity, seconds) in &other.seconds {
            *self.seconds.entry(*activity).or_default() += seconds;
        }
        self.minimum += other.minimum;
        self.warm_claims += other.warm_claims;
        self.money += other.money;
        self.unpriced += other.unpriced;
        self.spot_at_list += other.spot_at_list;
    }
}

/// The cost of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The sum of its requests.
    pub own: Sum,
    /// Its part of the cost of idle machines, as far as prices are known.
    pub idle: Money,
    /// Whether a price of those machines is not known.
    pub idle_unpriced: bool,
    /// How many requests there were.
    pub requests: usize,
}

/// The sums of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// By name.
    pub rows: BTreeMap<String, Row>,
    /// The idle time of the pools, by class.
    pub pools: BTreeMap<ClassName, Sum>,
    /// The cost of idle time that is shared with no name, by class.
    pub unshared: BTreeMap<ClassName, Money>,
    /// The classes with an unshared part for which a price is not known.
    pub unshared_unpriced: BTreeSet<ClassName>,
    /// The sum of everything.
    pub all: Sum,
    /// Types without a price.
    pub unpriced: BTreeSet<Unpriced>,
}

/// Sums up entries by the name of their owner, and shares the pools' idle time among the names by a rule.
pub fn account(
    entries: &[Entry],
    prices: &Prices,
    rule: IdleShare,
    name: impl Fn(&Entry) -> String,
) -> Account {
    let mut made = Account::default();
    // The seconds and claims of each name in each class, by which that class's idle time is shared.
    let mut used: BTreeMap<ClassName, BTreeMap<String, Sum>> = BTreeMap::new();
    let mut requests: BTreeMap<String, BTreeSet<&RecordId>> = BTreeMap::new();
    for entry in entries {
        let class = &entry.machine.class;
        made.unpriced.extend(made.all.add(entry, prices));
        if entry.is_pools() {
            made.pools.entry(class.clone()).or_default().add(entry, prices);
            continue;
        }
        let name = name(entry);
        requests.entry(name.clone()).or_default().extend(&entry.request);
        used.entry(class.clone()).or_default().entry(name).or_default().add(entry, prices);
    }
    for sums in used.values() {
        for (name, sum) in sums {
            made.rows.entry(name.clone()).or_default().own += sum;
        }
    }
    for (name, requests) in requests {
        made.rows.entry(name).or_default().requests = requests.len();
    }
    made.share(rule, &used);
    made
}

impl Account {
    fn share(&mut self, rule: IdleShare, used: &BTreeMap<ClassName, BTreeMap<String, Sum>>) {
        let none = BTreeMap::new();
        for (class, idle) in &self.pools {
            let users = used.get(class).unwrap_or(&none);
            let weight = |sum: &Sum| match rule {
                IdleShare::None => 0,
                IdleShare::BusySeconds => sum.busy(),
                IdleShare::WarmClaims => sum.warm_claims,
            };
            let weights: Vec<u64> = users.values().map(weight).collect();
            let (mut left, unknown) = (idle.cost(), idle.unpriced > 0);
            for ((name, weight), part) in users.keys().zip(&weights).zip(idle.cost().divide(&weights)) {
                left = left - part;
                let row = self.rows.entry(name.clone()).or_default();
                row.idle += part;
                row.idle_unpriced |= unknown && *weight > 0;
            }
            if unknown && weights.iter().all(|weight| *weight == 0) {
                self.unshared_unpriced.insert(class.clone());
            }
            self.unshared.insert(class.clone(), left);
        }
    }
}
