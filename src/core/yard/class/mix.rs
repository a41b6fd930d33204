//! Which trust domains asked for the machines of a class lately? One sum per domain, halved each half-life, computed
//! from the stored requests. Bounded, and the same for two operators that see the same records.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::decay::decayed;
use crate::model::{PoolSpec, Request};

/// How many trust domains are counted separately; the others are one.
const TOLD_APART: usize = 64;
/// The time after which half of a request is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(4 * 3600);
/// The shortest interval between two updates of the sums to the present.
const STEP: Duration = Duration::from_secs(60);
/// The count of one machine that is requested now.
const MACHINE: u64 = 1 << 20;

/// The trust domains of the recent requests of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    /// The time for which the sums hold; only their ratios matter.
    at: Timestamp,
    sums: BTreeMap<String, u64>,
    /// The sum of the domains that are not counted separately.
    others: u64,
}

impl Mix {
    /// Counts a request when it is accepted, or when it is first seen; a refused request does not count.
    pub(crate) fn count(&mut self, old: Option<&Request>, new: &Request, spec: &PoolSpec, now: Timestamp) {
        let accepted = |request: &Request| {
            request.status.accepted_at.filter(|at| request.status.deadline.is_none_or(|end| end > *at))
        };
        let Some(at) = accepted(new).filter(|_| old.and_then(accepted).is_none()) else { return };
        self.asked(&spec.trust_domain(&new.id.repository), new.intent.count, at.min(now));
    }

    fn asked(&mut self, domain: &str, machines: u32, at: Timestamp) {
        let later = Duration::try_from(at.duration_since(self.at)).unwrap_or_default();
        if later > STEP {
            let left = u128::from(decayed(1 << 32, later, HALF_LIFE));
            let decay =
                |sum: &mut u64| *sum = u64::try_from((u128::from(*sum) * left) >> 32).unwrap_or(u64::MAX);
            self.sums.values_mut().for_each(decay);
            decay(&mut self.others);
            self.sums.retain(|_, sum| *sum > 0);
            self.at = at;
        }
        let earlier = Duration::try_from(self.at.duration_since(at)).unwrap_or_default();
        let weight = decayed(u64::from(machines).saturating_mul(MACHINE), earlier, HALF_LIFE);
        if weight == 0 {
            return;
        }
        let sum = self.sums.entry(domain.to_owned()).or_default();
        *sum = sum.saturating_add(weight);
        if self.sums.len() > TOLD_APART
            && let Some(least) =
                self.sums.iter().min_by_key(|(_, sum)| **sum).map(|(domain, _)| domain.clone())
        {
            self.others = self.others.saturating_add(self.sums.remove(&least).unwrap_or(0));
        }
    }

    /// Returns the chance that the next machine is requested from each separately counted domain; empty where nothing
    /// is known.
    pub(crate) fn chances(&self) -> impl Iterator<Item = (&str, f64)> {
        let all = self.sums.values().fold(u128::from(self.others), |all, sum| all + u128::from(*sum));
        self.sums.iter().map(move |(domain, sum)| (domain.as_str(), *sum as f64 / all as f64))
    }

    /// Returns whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn chance(mix: &Mix, domain: &str) -> f64 {
        mix.chances().find(|(name, _)| *name == domain).map_or(0.0, |(_, chance)| chance)
    }

    #[test]
    fn the_last_hours_count_most_and_the_order_of_records_does_not() {
        let hour = 3600;
        let asks = [("a", 4, 0), ("b", 1, 8 * hour), ("a", 1, 8 * hour + 30), ("c", 2, 12 * hour)];
        let mix = |order: &[usize]| {
            let mut mix = Mix::default();
            order
                .iter()
                .map(|n| asks[*n])
                .for_each(|(domain, count, seconds)| mix.asked(domain, count, at(seconds)));
            mix
        };
        let (told, listed) = (mix(&[0, 1, 2, 3]), mix(&[3, 1, 0, 2]));
        // 4 machines 12 hours ago count as half a machine, one machine 4 hours ago as half.
        for (domain, expected) in [("a", 1.0 / 3.5), ("b", 0.5 / 3.5), ("c", 2.0 / 3.5)] {
            for mix in [&told, &listed] {
                assert!((chance(mix, domain) - expected).abs() < 0.005, "{domain}: {mix:?}");
            }
        }
    }

    #[test]
    fn a_single_domain_is_certain_however_long_it_was_silent() {
        let mut mix = Mix::default();
        assert!(mix.is_empty() && mix.chances().next().is_none());
        for day in 0..9 {
            mix.asked("a", 1, at(day * 86_400));
        }
        assert_eq!(mix.chances().collect::<Vec<_>>(), [("a", 1.0)]);
    }

    #[test]
    fn of_a_thousand_domains_the_most_frequent_are_told_apart() {
        let mut mix = Mix::default();
        for n in 0..1000 {
            mix.asked(&format!("{n:03}"), 1, at(n));
            mix.asked("often", 1, at(n));
        }
        assert_eq!(mix.sums.len(), TOLD_APART);
        assert!((chance(&mix, "often") - 0.5).abs() < 0.01);
        let told: f64 = mix.chances().map(|(_, chance)| chance).sum();
        assert!(told < 0.6, "{told}: the others are of none that is known");
    }
}
