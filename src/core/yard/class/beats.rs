//! When the agents of a class last spoke, and whether too many of them are silent to be silent each by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::yard::Now;

/// When the agents of a class's live machines last spoke, on the clock of successful reads. Those that never did are
/// not among them, nor those whose record is gone or cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beats {
    /// How many spoke last at each moment: what one read told has one moment.
    pub(crate) at: BTreeMap<Duration, u32>,
    pub(crate) agents: u32,
    /// The same of machines that ended for their silence: the cause that ended them may be that of others.
    ended: BTreeMap<Duration, u32>,
}

/// How many agents are silent, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Silent for longer than half of `timing.stale`, or ended for that lately.
    pub(crate) silent: u32,
    /// All that have ever spoken, with those that ended lately.
    pub(crate) agents: u32,
}

impl Beats {
    /// An agent that spoke last at one moment spoke at another; none: it is not counted.
    pub(crate) fn change(&mut self, before: Option<Duration>, after: Option<Duration>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.agents = self.agents.saturating_sub(1);
            if let Some(count) = self.at.get_mut(&before) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.at.remove(&before);
                }
            }
        }
        if let Some(after) = after {
            self.agents = self.agents.saturating_add(1);
            *self.at.entry(after).or_default() += 1;
        }
    }

    /// A machine whose agent spoke last at this moment ended for its silence. Those that are of no account any more are
    /// forgotten.
    pub(crate) fn ended_silent(&mut self, spoke: Duration, seen: Duration) {
        // As long before the last as it was silent, twice: its end came one or two `stale` after it spoke.
        let longest = seen.saturating_sub(spoke).saturating_mul(3);
        self.ended = self.ended.split_off(&seen.saturating_sub(longest));
        *self.ended.entry(spoke).or_default() += 1;
    }

    /// The silent ones, where one is silent for longer than `stale` and they are too many to be silent each by itself.
    ///
    /// Agents speak at moments of their own, so those that one cut silences pass `stale` one by one, within a
    /// heartbeat. When the first does, the others are late by more than half of `stale`, and whoever is well is not:
    /// so all of these count. So do machines that ended for it already, as long as another of the same cut can be left.
    pub(crate) fn doubt(&self, now: &Now, stale: Duration) -> Option<Doubt> {
        let before = now.seen.checked_sub(stale)?;
        // As long as all is well there is nothing in this range.
        self.at.range(..before).next()?;
        let late = self.at.range(..now.seen.saturating_sub(stale / 2));
        let ended = self.ended_since(now.seen, stale);
        let silent = late.fold(ended, |sum, (_, count)| sum.saturating_add(*count));
        let agents = self.agents.saturating_add(ended);
        (silent > believable(agents)).then_some(Doubt { silent, agents })
    }

    /// The moment on the clock of reads at which too many will be silent unless some of them speak before it.
    pub(crate) fn doubtful_at(&self, seen: Duration, stale: Duration) -> Option<Duration> {
        let (first, _) = self.at.first_key_value()?;
        let mut sum = self.ended_since(seen, stale);
        let most = believable(self.agents.saturating_add(sum));
        let last = self.at.iter().find(|(_, count)| {
            sum = sum.saturating_add(**count);
            sum > most
        });
        last.map(|(at, _)| first.saturating_add(stale).max(at.saturating_add(stale / 2)))
    }

    /// How many ended for their silence that may have spoken last when those did that are judged now: at most twice
    /// `stale` ago, and half of it apart.
    fn ended_since(&self, seen: Duration, stale: Duration) -> u32 {
        let since = seen.saturating_sub(stale.saturating_mul(5) / 2);
        self.ended.range(since..).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// Of so many live machines of a class, how many may be gone, or be nobody's, at once before what says so is itself in
/// doubt.
pub(crate) const fn believable(live: u32) -> u32 {
    let most = live.saturating_mul(3) / 10;
    if most > 3 { most } else { 3 }
}
