//! Metrics of the shares of each class with `sharing`: the largest have series of their own, the others share one, so
//! that unlimited numbers of repositories or forks cannot flood the scraper.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::{IntGaugeVec, Opts, Registry};

use super::OTHER;
use crate::explain::ShareReport;

/// Number of shares of a class with series of their own.
const LIMIT: usize = 20;

/// The families of shares, with their existing series.
pub(super) struct Shares {
    machines: IntGaugeVec,
    waiting: IntGaugeVec,
    used: IntGaugeVec,
    /// The series by class.
    series: BTreeMap<String, BTreeSet<String>>,
}

impl Shares {
    pub(super) fn register(registry: &Registry) -> Self {
        let made = |name: &str, help: &str| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), &["resource_class", "share"]);
            let gauge = gauge.expect("the name and the labels are valid");
            registry.register(Box::new(gauge.clone())).expect("each name is registered once");
            gauge
        };
        Self {
            machines: made("runyard_share_machines", "Machines that the requests of a share hold."),
            waiting: made("runyard_share_waiting_requests", "Requests of a share that wait for machines."),
            used: made(
                "runyard_share_used_seconds",
                "Machine time that a share used, half of it forgotten each half-life.",
            ),
            series: BTreeMap::new(),
        }
    }

    /// Sets the present shares of a class; empty if it has no `sharing`.
    pub(super) fn set(&mut self, class: &str, mut shares: Vec<ShareReport>) {
        shares.sort_by_key(|share| {
            let busy = u64::from(share.held) + u64::from(share.waiting);
            (std::cmp::Reverse((share.used, busy)), share.share.clone())
        });
        let mut numbers: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        for (place, share) in shares.into_iter().enumerate() {
            let of_its_own = place < LIMIT;
            let sum = numbers.entry(if of_its_own { share.share } else { OTHER.to_owned() }).or_default();
            let more = [u64::from(share.held), u64::from(share.waiting), share.used];
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
        let families = [&self.machines, &self.waiting, &self.used];
        let gone = self.series.remove(class).unwrap_or_default();
        for share in gone.iter().filter(|share| !numbers.contains_key(*share)) {
            // A missing series is equivalent to a removed one.
            families.iter().for_each(|family| drop(family.remove_label_values(&[class, share])));
        }
        for (share, values) in &numbers {
            for (family, value) in families.iter().zip(values) {
                family.with_label_values(&[class, share]).set(i64::try_from(*value).unwrap_or(i64::MAX));
            }
        }
        if !numbers.is_empty() {
            self.series.insert(class.to_owned(), numbers.into_keys().collect());
        }
    }
}
