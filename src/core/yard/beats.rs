//! When the agents of a class last spoke, and whether too many of them are silent to be silent each by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Now;

/// When the agents of a class's live machines last spoke, on the clock of successful reads. Those that never did are
/// not among them, nor those whose record is gone or cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beats {
    /// How many spoke last at each moment: what one read told has one moment.
    pub(crate) at: BTreeMap<Duration, u32>,
    pub(crate) agents: u32,
}

/// How many agents are silent, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Silent for longer than `timing.stale`.
    pub(crate) silent: u32,
    /// All that have ever spoken.
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

    /// The silent ones, where they are too many to be silent each by itself: silent for longer than `stale`.
    pub(crate) fn doubt(&self, now: &Now, stale: Duration) -> Option<Doubt> {
        let since = now.seen.checked_sub(stale)?;
        let most = believable(self.agents);
        // As long as all is well there is nothing in this range.
        let silent = self.at.range(..since).fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        (silent > most).then_some(Doubt { silent, agents: self.agents })
    }

    /// The moment on the clock of reads at which too many will be silent unless some of them speak before it.
    pub(crate) fn doubtful_at(&self, stale: Duration) -> Option<Duration> {
        let (most, mut sum) = (believable(self.agents), 0_u32);
        let last = self.at.iter().find(|(_, count)| {
            sum = sum.saturating_add(**count);
            sum > most
        });
        last.map(|(at, _)| at.saturating_add(stale))
    }
}

/// Of so many live machines of a class, how many may be gone, or be nobody's, at once before what says so is itself in
/// doubt.
pub(crate) const fn believable(live: u32) -> u32 {
    let most = live.saturating_mul(3) / 10;
    if most > 3 { most } else { 3 }
}
