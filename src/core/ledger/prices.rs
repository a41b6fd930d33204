//! What does a second of a machine cost? Prices come from a table; a type without a price is reported, never free.

use std::collections::BTreeMap;

use super::entries::Entry;
use super::money::{Money, Price};
use crate::model::UsageClass;
use crate::model::history::Activity;

/// The prices that a ledger counts with, in US dollars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// By region.
    pub regions: BTreeMap<String, RegionPrices>,
    /// GiB of each machine's volumes, for classes that [`Self::volumes`] does not name; 0 counts none.
    pub volume_gib: u32,
    /// GiB of the volumes of each machine, by class.
    pub volumes: BTreeMap<String, u32>,
    /// What GitHub would charge for a minute of a self-hosted runner.
    pub github_fee: Price,
    /// The cost of a minute of GitHub's own Linux runners, by vCPUs, on x86-64 and on arm64.
    pub hosted: [BTreeMap<u32, Price>; 2],
    /// Spot prices from EC2, where EC2 was asked for them.
    pub spot: SpotPrices,
}

/// The prices of one region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionPrices {
    /// The source of the prices, and their date.
    pub source: String,
    /// On demand, by the hour: of a type (`m7i.2xlarge`), or of the size `large` of a family (`m7i`), whose other sizes
    /// cost in proportion.
    pub on_demand: BTreeMap<String, Price>,
    /// The same on spot, where a fixed price is good enough.
    pub spot: BTreeMap<String, Price>,
    /// A GiB of a volume per month.
    pub volume: Price,
}

/// A type of machine that no table has a price for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unpriced {
    /// The region.
    pub region: String,
    /// The type.
    pub instance_type: String,
}

/// The cost of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priced {
    /// The machine at its on-demand list price.
    pub list: Money,
    /// The machine at its price: spot prices where they are known.
    pub cost: Money,
    /// Its volumes, at list.
    pub volume: Money,
    /// What GitHub would charge for its running minutes.
    pub fee: Money,
    /// The cost of its running minutes on GitHub's own runners.
    pub hosted: Money,
    /// Whether it is a spot machine that is counted at the on-demand price.
    pub spot_at_list: bool,
}

/// One step of a spot price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpotPrice {
    /// The second from which it holds, since the epoch.
    pub from: i64,
    /// By the hour.
    pub price: Price,
}

/// Spot prices over time, by zone and type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpotPrices(BTreeMap<(String, String), BTreeMap<i64, Price>>);

impl SpotPrices {
    /// Adds one step of the price of a type in a zone.
    pub fn add(&mut self, zone: &str, instance_type: &str, step: SpotPrice) {
        let steps = self.0.entry((zone.to_owned(), instance_type.to_owned())).or_default();
        steps.insert(step.from, step.price);
    }

    /// Returns the cost of this many seconds from a given second on; none when nothing is known of the type in that
    /// zone. Before the first known step the price of that step counts.
    fn cost(&self, zone: &str, instance_type: &str, from: i64, seconds: u64) -> Option<Money> {
        let steps = self.0.get(&(zone.to_owned(), instance_type.to_owned()))?;
        let to = from.saturating_add_unsigned(seconds);
        let first = steps.range(..=from).next_back().or_else(|| steps.iter().next())?;
        let (mut at, mut price, mut all) = (from, *first.1, Money::ZERO);
        let part = |price, from: i64, to: i64| Money::hourly(price, to.abs_diff(from));
        for (step, next) in steps.range(from..to) {
            all += part(price, at, *step);
            (at, price) = (*step, *next);
        }
        Some(all + part(price, at, to))
    }
}

/// Returns the region of a zone such as `eu-west-1a`.
pub fn region_of(zone: &str) -> &str {
    zone.trim_end_matches(|c: char| c.is_ascii_lowercase())
}

/// Returns a size in sixteenths of `large`, as EC2 prices the sizes of a family.
fn sixteenths(size: &str) -> Option<u64> {
    match size {
        "nano" => Some(1),
        "micro" => Some(2),
        "small" => Some(4),
        "medium" => Some(8),
        "large" => Some(16),
        "xlarge" => Some(32),
        larger => {
            let times: u64 = larger.strip_suffix("xlarge")?.parse().ok()?;
            (times <= 1000).then_some(32 * times)
        }
    }
}

/// Returns the vCPUs of a type by its size, and whether it is arm64: `large` has two in every family with two threads a
/// core.
fn shape(instance_type: &str) -> Option<(u32, bool)> {
    let (family, size) = instance_type.split_once('.')?;
    let after = family.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let arm = family == "a1" || after.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('g');
    // Burstable machines have two vCPUs in every size up to large.
    let least = if family.starts_with('t') { 2 } else { 1 };
    let vcpus = u32::try_from(sixteenths(size)? / 8).ok()?;
    Some((vcpus.max(least), arm))
}

fn by_type(table: &BTreeMap<String, Price>, instance_type: &str) -> Option<Price> {
    let (family, size) = instance_type.split_once('.')?;
    let of_family = || Some(table.get(family)?.scaled(sixteenths(size)?, 16));
    table.get(instance_type).copied().or_else(of_family)
}

impl Prices {
    /// Returns the on-demand price of an hour of a type in a region.
    ///
    /// # Errors
    /// No table has it.
    pub fn on_demand(&self, region: &str, instance_type: &str) -> Result<Price, Unpriced> {
        let found = self.regions.get(region).and_then(|prices| by_type(&prices.on_demand, instance_type));
        found.ok_or_else(|| Unpriced { region: region.to_owned(), instance_type: instance_type.to_owned() })
    }

    /// Returns the GiB of the volumes of each machine of a class.
    pub fn gib(&self, class: &str) -> u32 {
        self.volumes.get(class).copied().unwrap_or(self.volume_gib)
    }

    /// Returns the price of a minute of GitHub's smallest runner with the vCPUs of a type; none when no runner is that
    /// large.
    pub fn hosted_minute(&self, instance_type: &str) -> Option<Price> {
        let (vcpus, arm) = shape(instance_type)?;
        self.hosted[usize::from(arm)].range(vcpus..).next().map(|(_, price)| *price)
    }

    /// Returns the hourly cost of a machine and its volumes by the tables alone: a spot machine at its fixed price,
    /// else at the on-demand price.
    ///
    /// # Errors
    /// No table has the price of its type in its region.
    pub fn hour(
        &self,
        class: &str,
        instance_type: &str,
        zone: &str,
        usage_class: UsageClass,
    ) -> Result<Money, Unpriced> {
        let region = region_of(zone);
        let list = self.on_demand(region, instance_type)?;
        let price = match usage_class {
            UsageClass::OnDemand => list,
            UsageClass::Spot => self.fixed_spot(region, instance_type).unwrap_or(list),
        };
        Ok(Money::hourly(price, 3600) + Money::monthly(self.volume_month(region, class), 3600))
    }

    fn fixed_spot(&self, region: &str, instance_type: &str) -> Option<Price> {
        by_type(&self.regions.get(region)?.spot, instance_type)
    }

    /// Returns the monthly cost of the volumes of a machine of a class.
    fn volume_month(&self, region: &str, class: &str) -> Price {
        let month = self.regions.get(region).map_or(Price::ZERO, |prices| prices.volume);
        Price::of_nanos(month.nanos() * u64::from(self.gib(class)))
    }

    /// Computes the cost of an entry.
    ///
    /// # Errors
    /// No table has the price of its type in its region.
    pub fn of(&self, entry: &Entry) -> Result<Priced, Unpriced> {
        let (machine, billed) = (&entry.machine, entry.billed());
        let region = region_of(&machine.zone);
        let list = Money::hourly(self.on_demand(region, &machine.instance_type)?, billed);
        let spot = || {
            let asked = self.spot.cost(&machine.zone, &machine.instance_type, entry.from, billed);
            asked.or_else(|| Some(Money::hourly(self.fixed_spot(region, &machine.instance_type)?, billed)))
        };
        let (cost, spot_at_list) = match machine.usage_class {
            UsageClass::OnDemand => (list, false),
            UsageClass::Spot => spot().map_or((list, true), |cost| (cost, false)),
        };
        let volume = self.volume_month(region, machine.class.as_str());
        let running = if entry.activity == Activity::Running { entry.seconds() } else { 0 };
        // A price per minute is sixty times the price per hour of the same number of seconds.
        let minutes = |price: Price| Money::hourly(Price::of_nanos(price.nanos() * 60), running);
        Ok(Priced {
            list,
            cost,
            volume: Money::monthly(volume, billed),
            fee: minutes(self.github_fee),
            hosted: self.hosted_minute(&machine.instance_type).map_or(Money::ZERO, minutes),
            spot_at_list,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Price {
        Price::parse(text).unwrap()
    }

    #[test]
    fn a_family_prices_its_sizes_in_proportion_and_a_type_wins_over_it() {
        let on_demand = BTreeMap::from([
            ("m7i".to_owned(), price("0.1008")),
            ("c7g".to_owned(), price("0.0725")),
            ("c7g.medium".to_owned(), price("0.0363")),
        ]);
        let region = RegionPrices { on_demand, ..RegionPrices::default() };
        let prices =
            Prices { regions: BTreeMap::from([("us-east-1".to_owned(), region)]), ..Prices::default() };
        let of = |kind: &str| {
            prices.on_demand("us-east-1", kind).map(|price| Money::of_nanos(price.nanos().into()).decimal(4))
        };
        assert_eq!(of("m7i.24xlarge").as_deref(), Ok("4.8384"));
        assert_eq!(of("c7g.medium").as_deref(), Ok("0.0363"));
        for unknown in ["m7i.metal-24xl", "x9.large", "m7i", "", "m7i.xl"] {
            let named = Unpriced { region: "us-east-1".into(), instance_type: unknown.into() };
            assert_eq!(of(unknown), Err(named));
        }
        assert!(prices.on_demand("eu-west-1", "m7i.large").is_err(), "another region has other prices");
    }

    #[test]
    fn a_spot_price_counts_from_its_step_on() {
        let mut spot = SpotPrices::default();
        spot.add("us-east-1a", "m7i.large", SpotPrice { from: 100, price: price("0.036") });
        spot.add("us-east-1a", "m7i.large", SpotPrice { from: 200, price: price("0.072") });
        let of = |from, seconds| spot.cost("us-east-1a", "m7i.large", from, seconds);
        // A second costs ten micro-dollars, later twenty.
        assert_eq!(of(150, 100), Some(Money::of_nanos(50 * 10_000 + 50 * 20_000)));
        assert_eq!(of(0, 10), Some(Money::of_nanos(10 * 10_000)), "before the first step its price counts");
        assert_eq!(of(200, 1), Some(Money::of_nanos(20_000)));
        assert_eq!(spot.cost("us-east-1b", "m7i.large", 0, 1), None);
    }

    #[test]
    fn types_are_compared_with_runners_of_as_many_vcpus_and_their_architecture() {
        for (kind, expected) in [
            ("m7i.xlarge", (4, false)),
            ("c8gd.2xlarge", (8, true)),
            ("t4g.small", (2, true)),
            ("m6a.large", (2, false)),
            ("g5.xlarge", (4, false)),
            ("a1.medium", (1, true)),
        ] {
            assert_eq!(shape(kind), Some(expected), "{kind}");
        }
        assert_eq!(region_of("eu-west-1a"), "eu-west-1");
    }
}
