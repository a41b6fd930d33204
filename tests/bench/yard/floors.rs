//! Did a ratio or a count get worse than it may? `tests/bench/floors.toml` says how far each may go.

use std::collections::BTreeMap;

use figment::Figment;
use figment::providers::{Format as _, Toml};

/// Figures by name.
#[derive(Default)]
pub(crate) struct Figures(Vec<(String, f64)>);

impl Figures {
    pub(crate) fn add(&mut self, name: &str, figure: f64) {
        self.0.push((name.to_owned(), figure));
    }

    /// Prints each figure beside its limit; whether all keep to theirs.
    pub(crate) fn judge(&self) -> bool {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/floors.toml");
        let limits: BTreeMap<String, f64> =
            Figment::from(Toml::file(file)).extract_inner("at_most").expect("floors.toml can be read");
        let mut kept = true;
        println!();
        for (name, figure) in &self.0 {
            let limit = limits.get(name);
            let worse = limit.is_some_and(|limit| figure > limit);
            kept &= !worse;
            let limit = limit.map_or("-".to_owned(), ToString::to_string);
            println!("{name:<60}{figure:>9.2}  at most {limit}{}", if worse { "  WORSE" } else { "" });
        }
        kept
    }
}
