//! The use of a class's shares: counted between two writes of the pool's status, and continued from there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{ShareName, Shares};
use crate::model::{Pool, SHARES_NAMED, Usage, millis};
use crate::yard::class::decay::decayed;

/// The longest time without an operator that is charged to the shares that hold machines after it.
const LONGEST_GAP: Duration = Duration::from_secs(3600);

impl Shares {
    /// Processes the use in the pool's status.
    pub(crate) fn used_is(&mut self, pool: Option<&Pool>, wall: Timestamp, now: Duration) {
        let usage = pool.and_then(|pool| pool.status.usage.clone());
        let at = |usage: &Option<Usage>| usage.as_ref().map(|usage| usage.at);
        let first = self.account == 0;
        if !first && at(&usage) == at(&self.usage) {
            return;
        }
        let before = std::mem::replace(&mut self.usage, usage);
        let since = at(&self.usage).filter(|_| first).map(|at| wall.duration_since(at));
        self.gap =
            since.and_then(|since| Duration::try_from(since).ok()).unwrap_or_default().min(LONGEST_GAP);
        (self.account, self.begun, self.counted) = (self.account + 1, now, self.held > 0);
        let named = before.iter().chain(&self.usage).flat_map(|usage| usage.sums.keys());
        let named: BTreeSet<ShareName> = named.map(|name| name.as_str().into()).collect();
        named.iter().for_each(|share| self.rank_again(share));
        // The use of a share that holds and waits for nothing is in the status now, if it is large enough to be listed.
        self.shares.retain(|_, share| share.held > 0 || share.waiting > 0);
    }

    /// Returns since when there is use that the pool's status does not contain; none where there is none.
    pub(crate) const fn unwritten(&self) -> Option<Duration> {
        if self.counted && self.sharing.is_some() { Some(self.begun) } else { None }
    }

    /// Returns the use to be written now.
    pub(crate) fn usage(&self, wall: Timestamp, now: Duration) -> Option<Usage> {
        let half_life = self.sharing.as_ref()?.half_life.get();
        let known = self.usage.as_ref();
        let time = known.map_or(SignedDuration::ZERO, |usage| wall.duration_since(usage.at));
        let time = Duration::try_from(time).unwrap_or_default();
        let mut sums: BTreeMap<String, u64> = known.map(|usage| usage.sums.clone()).unwrap_or_default();
        sums.values_mut().for_each(|sum| *sum = decayed(*sum, time, half_life));
        let mut other = decayed(known.map_or(0, |usage| usage.other), time, half_life);
        let gap = u64::try_from(self.gap.as_millis()).unwrap_or(u64::MAX);
        for (name, share) in &self.shares {
            let missed = u64::from(share.held).saturating_mul(gap);
            let more = share.pending(self.account, self.begun, now).saturating_add(missed);
            if more > 0 {
                let sum = sums.entry(name.to_string()).or_default();
                *sum = sum.saturating_add(more);
            }
        }
        sums.retain(|_, sum| *sum > 0);
        let mut greatest: Vec<(Reverse<u64>, String)> =
            sums.into_iter().map(|(name, sum)| (Reverse(sum), name)).collect();
        greatest.sort_unstable();
        let rest = greatest.split_off(greatest.len().min(SHARES_NAMED));
        other = rest.iter().fold(other, |other, (Reverse(sum), _)| other.saturating_add(*sum));
        let sums = greatest.into_iter().map(|(Reverse(sum), name)| (name, sum)).collect();
        Some(Usage { at: millis(wall), sums, other })
    }
}
