//! When did the agents of a class last send a heartbeat, and are too many of them silent to be silent independently?

use std::collections::BTreeMap;
use std::time::Duration;

use crate::yard::Now;

/// When the agents of a class's live machines last sent a heartbeat, on the clock of successful reads. Excludes agents
/// that never sent one, and those whose record is gone or cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beats {
    /// The number of agents by the time of their last heartbeat: all heartbeats of one read have the same time.
    pub(crate) at: BTreeMap<Duration, u32>,
    pub(crate) agents: u32,
    /// The same for machines that ended for their silence: the same cause may silence others.
    ended: BTreeMap<Duration, u32>,
}

/// How many agents are silent, and out of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Silent for longer than half of `timing.stale`, or ended for that lately.
    pub(crate) silent: u32,
    /// All that have ever sent a heartbeat, including those that ended lately.
    pub(crate) agents: u32,
}

impl Beats {
    /// Moves an agent from its previous heartbeat to a new one; none: it is not counted.
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

    /// Counts a machine whose last heartbeat was at this moment and that ended for its silence. Drops the ended
    /// machines that no longer matter.
    pub(crate) fn ended_silent(&mut self, spoke: Duration, seen: Duration) {
        // As far before its last heartbeat as twice its silence: it ended one or two `stale` after that heartbeat.
        let longest = seen.saturating_sub(spoke).saturating_mul(3);
        self.ended = self.ended.split_off(&seen.saturating_sub(longest));
        *self.ended.entry(spoke).or_default() += 1;
    }

    /// Returns the silent agents, where one is silent for longer than `stale` and they are too many to be silent
    /// independently.
    ///
    /// Agents send heartbeats at different times, so the agents that one cut silences pass `stale` one by one, within a
    /// heartbeat. When the first does, the others are late by more than half of `stale`, and healthy agents are not: so
    /// all of these count. Machines that already ended for it count too, as long as another machine of the same cut can
    /// be left.
    pub(crate) fn doubt(&self, now: &Now, stale: Duration) -> Option<Doubt> {
        let before = now.seen.checked_sub(stale)?;
        // As long as all agents are well there is nothing in this range.
        self.at.range(..before).next()?;
        let late = self.at.range(..now.seen.saturating_sub(stale / 2));
        let ended = self.ended_since(now.seen, stale);
        let silent = late.fold(ended, |sum, (_, count)| sum.saturating_add(*count));
        let agents = self.agents.saturating_add(ended);
        (silent > believable(agents)).then_some(Doubt { silent, agents })
    }

    /// Returns the moment on the clock of reads at which too many will be silent unless some of them send a heartbeat
    /// before.
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

    /// Counts the machines ended for their silence whose last heartbeat may have been at the same time as that of the
    /// machines judged now: at most twice `stale` ago, and half of it apart.
    fn ended_since(&self, seen: Duration, stale: Duration) -> u32 {
        let since = seen.saturating_sub(stale.saturating_mul(5) / 2);
        self.ended.range(since..).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// Returns how many live machines of a class may be gone, or without an owner, at once before the source that reports
/// it is itself in doubt.
pub(crate) const fn believable(live: u32) -> u32 {
    let most = live.saturating_mul(3) / 10;
    if most > 3 { most } else { 3 }
}
