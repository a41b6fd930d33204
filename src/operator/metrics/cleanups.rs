//! Failed clean-ups by repository: those with the most have series of their own, the others share one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use prometheus::{IntGaugeVec, Opts, Registry};

use super::OTHER;

/// Number of repositories with series of their own.
const LIMIT: usize = 20;

/// The family of failed clean-ups.
pub(super) struct CleanUps(IntGaugeVec);

impl CleanUps {
    pub(super) fn register(registry: &Registry) -> Self {
        let help = "Clean-ups in a row that failed after jobs of a repository within the last hour, up to 3.";
        let gauge = IntGaugeVec::new(Opts::new("runyard_repository_failed_cleanups", help), &["repository"]);
        let gauge = gauge.expect("the name and the label are valid");
        registry.register(Box::new(gauge.clone())).expect("each name is registered once");
        Self(gauge)
    }

    /// Sets the present values of the repositories.
    pub(super) fn set<'a>(&self, failed: impl Iterator<Item = (&'a str, usize)>) {
        let mut failed: Vec<_> = failed.map(|(repository, count)| (Reverse(count), repository)).collect();
        failed.sort_unstable();
        let mut numbers: BTreeMap<&str, i64> = BTreeMap::new();
        for (place, (Reverse(count), repository)) in failed.into_iter().enumerate() {
            let series = if place < LIMIT { repository } else { OTHER };
            *numbers.entry(series).or_default() += i64::try_from(count).unwrap_or(i64::MAX);
        }
        self.0.reset();
        for (repository, count) in numbers {
            self.0.with_label_values(&[repository]).set(count);
        }
    }
}
