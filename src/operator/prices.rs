//! The price table: the shipped one, overridden by a user's file. All problems of a file are reported at once.

use std::collections::BTreeMap;
use std::path::Path;

use figment::Figment;
use figment::providers::{Format as _, Toml};
use figment::value::Value;
use serde::Deserialize;

use crate::ledger::{Price, Prices, RegionPrices};
use crate::model::FieldError;

/// The shipped table.
const SHIPPED: &str = include_str!("../../config/prices.toml");

/// Maximum size of a machine's volumes, in GiB.
const MOST_GIB: u32 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    regions: BTreeMap<String, Region>,
    #[serde(default)]
    volumes: Volumes,
    #[serde(default)]
    github: GitHub,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Region {
    source: Option<String>,
    same_as: Option<String>,
    volume_gib_month: Option<Value>,
    #[serde(default)]
    on_demand: BTreeMap<String, Value>,
    #[serde(default)]
    spot: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Volumes {
    gib: Option<u32>,
    #[serde(default)]
    classes: BTreeMap<String, u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GitHub {
    fee_per_minute: Option<Value>,
    #[serde(default)]
    hosted: BTreeMap<String, BTreeMap<String, Value>>,
}

/// Returns the shipped prices.
pub fn shipped() -> Prices {
    let mut prices = Prices::default();
    lay(&mut prices, SHIPPED, "config/prices.toml").expect("a test reads what ships");
    prices
}

/// Returns the shipped prices, overridden by a user's file.
///
/// # Errors
/// All problems of the file, by its keys.
pub fn load(file: &Path) -> Result<Prices, Vec<FieldError>> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let fix = "name a file that you may read, of the form of config/prices.toml";
        vec![FieldError::new("prices", name.as_str(), format!("cannot be read: {error}"), fix)]
    })?;
    let mut prices = shipped();
    lay(&mut prices, &text, &name)?;
    Ok(prices)
}

/// Overrides prices with a file.
fn lay(prices: &mut Prices, text: &str, name: &str) -> Result<(), Vec<FieldError>> {
    let file: File = Figment::from(Toml::string(text)).extract().map_err(|errors| {
        let told = |error: figment::Error| {
            let path = error.path.join(".");
            let field = if path.is_empty() { "prices".to_owned() } else { path };
            let fix = "write the file in the form of config/prices.toml";
            FieldError::new(field, name, format!("cannot be used: {}", error.kind), fix)
        };
        errors.into_iter().map(told).collect::<Vec<_>>()
    })?;
    let mut laid = Laid { prices, problems: Vec::new(), name };
    laid.file(file);
    if laid.problems.is_empty() { Ok(()) } else { Err(laid.problems) }
}

struct Laid<'a> {
    prices: &'a mut Prices,
    problems: Vec<FieldError>,
    name: &'a str,
}

impl Laid<'_> {
    fn file(&mut self, file: File) {
        let mut same = Vec::new();
        for (name, region) in file.regions {
            if let Some(other) = region.same_as.clone() {
                same.push((name.clone(), other));
            }
            self.region(&name, region);
        }
        for (name, other) in same {
            self.same(&name, &other);
        }
        if let Some(gib) = file.volumes.gib.and_then(|gib| self.gib("volumes.gib", gib)) {
            self.prices.volume_gib = gib;
        }
        for (class, gib) in file.volumes.classes {
            if let Some(gib) = self.gib(&format!("volumes.classes.{class}"), gib) {
                self.prices.volumes.insert(class, gib);
            }
        }
        if let Some(fee) =
            file.github.fee_per_minute.and_then(|fee| self.price("github.fee_per_minute", &fee))
        {
            self.prices.github_fee = fee;
        }
        for (architecture, minutes) in file.github.hosted {
            self.hosted(&architecture, minutes);
        }
    }

    fn region(&mut self, name: &str, region: Region) {
        let path = format!("regions.{name}");
        let on_demand = self.table(&format!("{path}.on_demand"), region.on_demand);
        let spot = self.table(&format!("{path}.spot"), region.spot);
        let month =
            region.volume_gib_month.and_then(|value| self.price(&format!("{path}.volume_gib_month"), &value));
        let laid = self.prices.regions.entry(name.to_owned()).or_default();
        laid.source = region.source.unwrap_or_else(|| match laid.source.as_str() {
            "" => self.name.to_owned(),
            before if before.ends_with(self.name) => before.to_owned(),
            before => format!("{before}; {}", self.name),
        });
        laid.on_demand.extend(on_demand);
        laid.spot.extend(spot);
        laid.volume = month.unwrap_or(laid.volume);
    }

    /// Completes a region with the prices of another one.
    fn same(&mut self, name: &str, other: &str) {
        let Some(from) = self.prices.regions.get(other).cloned() else {
            let fix = "name a region that has prices";
            let path = format!("regions.{name}.same_as");
            self.problems.push(FieldError::new(path, other, "has no prices", fix));
            return;
        };
        let own = self.prices.regions.remove(name).unwrap_or_default();
        let mut both =
            RegionPrices { source: format!("assumed to be as in {other}: {}", from.source), ..from };
        both.on_demand.extend(own.on_demand);
        both.spot.extend(own.spot);
        both.volume = if own.volume == Price::ZERO { both.volume } else { own.volume };
        self.prices.regions.insert(name.to_owned(), both);
    }

    fn hosted(&mut self, architecture: &str, minutes: BTreeMap<String, Value>) {
        let path = format!("github.hosted.{architecture}");
        let at = match architecture {
            "x64" => 0,
            "arm64" => 1,
            _ => {
                let problem = FieldError::new(path, architecture, "is no architecture", "use x64 or arm64");
                self.problems.push(problem);
                return;
            }
        };
        for (vcpus, minute) in minutes {
            let path = format!("{path}.{vcpus}");
            let Ok(number) = vcpus.parse::<u32>() else {
                let fix = "write vCPUs and dollars, such as 4 = 0.012";
                self.problems.push(FieldError::new(path, vcpus, "is no number of vCPUs", fix));
                continue;
            };
            if let Some(price) = self.price(&path, &minute) {
                self.prices.hosted[at].insert(number, price);
            }
        }
    }

    fn table(&mut self, path: &str, table: BTreeMap<String, Value>) -> BTreeMap<String, Price> {
        let mut read = BTreeMap::new();
        for (name, value) in table {
            let path = format!("{path}.{name}");
            match self.price(&path, &value) {
                Some(Price::ZERO) => {
                    let fix =
                        "write what an hour costs, or leave the type out: it is reported as unpriced then";
                    self.problems.push(FieldError::new(path, "0", "is free, which no machine is", fix));
                }
                Some(price) => {
                    read.insert(name, price);
                }
                None => {}
            }
        }
        read
    }

    fn price(&mut self, path: &str, value: &Value) -> Option<Price> {
        let text = match (value.as_str(), value.to_f64(), value.to_i128()) {
            (Some(text), _, _) => text.to_owned(),
            (None, _, Some(whole)) => whole.to_string(),
            // The shortest decimal of the number, which is the one in the file.
            (None, Some(number), None) => number.to_string(),
            (None, None, None) => "…".to_owned(),
        };
        Price::parse(&text).map_err(|problem| self.problems.push(problem.named(path))).ok()
    }

    fn gib(&mut self, path: &str, gib: u32) -> Option<u32> {
        if gib > MOST_GIB {
            let fix = "write GiB";
            self.problems.push(FieldError::new(path, gib.to_string(), "is over 1000000 GiB", fix));
            return None;
        }
        Some(gib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Money;

    fn laid(text: &str) -> Result<Prices, Vec<FieldError>> {
        let mut prices = shipped();
        lay(&mut prices, text, "my.toml").map(|()| prices)
    }

    fn hour(prices: &Prices, region: &str, kind: &str) -> Option<String> {
        let price = prices.on_demand(region, kind).ok()?;
        Some(Money::of_nanos(price.nanos().into()).to_string())
    }

    #[test]
    fn what_ships_prices_the_common_families_and_says_where_from() {
        let prices = shipped();
        for (kind, expected) in [
            ("m7i.4xlarge", "$0.81"),
            ("c7g.xlarge", "$0.15"),
            ("r6i.24xlarge", "$6.05"),
            ("t3.medium", "$0.0416"),
        ] {
            assert_eq!(hour(&prices, "us-east-1", kind).as_deref(), Some(expected), "{kind}");
            assert_eq!(hour(&prices, "us-west-2", kind).as_deref(), Some(expected), "{kind} in Oregon");
        }
        assert!(prices.regions["us-east-1"].source.contains("2026-07-20"));
        assert_eq!(hour(&prices, "eu-west-1", "m7i.large"), None, "no guess about other regions");
        assert_eq!(prices.hosted_minute("m7i.xlarge").map(|p| p.nanos()), Some(12_000_000));
        assert_eq!(prices.hosted_minute("m7g.xlarge").map(|p| p.nanos()), Some(8_000_000));
    }

    #[test]
    fn a_users_file_is_laid_over_what_ships() {
        let prices = laid(
            "[regions.eu-west-1]\nsource = \"our contract\"\nvolume_gib_month = 0.088\n\
             [regions.eu-west-1.on_demand]\n\"m7i.large\" = \"0.1123\"\n\
             [regions.us-east-1.on_demand]\nm7i = 0.09\n[volumes.classes]\nsmall = 60\n",
        )
        .unwrap();
        assert_eq!(hour(&prices, "eu-west-1", "m7i.large").as_deref(), Some("$0.11"));
        assert_eq!(hour(&prices, "us-east-1", "m7i.xlarge").as_deref(), Some("$0.18"));
        assert_eq!(hour(&prices, "us-east-1", "c7i.large").as_deref(), Some("$0.0893"), "the rest stays");
        assert_eq!(prices.regions["eu-west-1"].source, "our contract");
        assert_eq!((prices.gib("small"), prices.gib("other")), (60, 0));
    }

    #[test]
    fn each_wrong_key_of_a_file_is_named_with_its_value_and_a_fix() {
        let refused = laid(
            "[regions.x.on_demand]\nm7i = -1\n\"m7i.large\" = \"ten\"\nc7g = 0\n[regions.y]\nsame_as = \"z\"\n\
             [github.hosted.riscv]\n2 = 1\n[github.hosted.x64]\nmany = 1\n[volumes]\ngib = 2000000\n",
        )
        .unwrap_err();
        let named: Vec<&str> = refused.iter().map(|problem| problem.field.as_str()).collect();
        let all = [
            "regions.x.on_demand.c7g",
            "regions.x.on_demand.m7i",
            "regions.x.on_demand.m7i.large",
            "regions.y.same_as",
            "volumes.gib",
            "github.hosted.riscv",
            "github.hosted.x64.many",
        ];
        assert_eq!(named, all);
        assert!(refused.iter().all(|problem| !problem.fix.is_empty()));
        assert_eq!(laid("[regoins]\n").unwrap_err().len(), 1, "an unknown key");
        assert_eq!(laid("[regions\n").unwrap_err().len(), 1, "no TOML at all");
    }
}
