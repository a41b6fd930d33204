//! Did too many agents of a class fall silent together? What silences more than three and more than 30 % of them at once
//! is more likely between them and the table than on each machine: the first judgement is put off by one more
//! `timing.stale`, then the rule applies to each machine by itself (contract, section 2.2).

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Context;
use super::yard::{Class, believable};

/// How often a class that is in doubt is looked at again.
const DOUBT_LOOKS: Duration = Duration::from_secs(1);

/// When the agents of a class's live machines last spoke, on the clock of successful reads. Those that never did are not
/// among them, nor those whose record is gone or cannot be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Beats {
    /// How many spoke last at each moment: what one read told has one moment.
    at: BTreeMap<Duration, u32>,
    agents: u32,
}

/// How many agents are silent, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Silent for longer than `timing.stale`.
    pub(super) silent: u32,
    /// All that have ever spoken.
    pub(super) agents: u32,
}

impl Beats {
    /// An agent that spoke last at one moment spoke at another; none: it is not counted.
    pub(super) fn change(&mut self, before: Option<Duration>, after: Option<Duration>) {
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

    /// The silent ones, where they are too many to be silent each by itself.
    pub(super) fn doubt(&self, cx: &Context<'_>) -> Option<Doubt> {
        let since = cx.now.seen.checked_sub(cx.policy.stale)?;
        let most = believable(self.agents);
        // As long as all is well there is nothing in this range.
        let silent = self.at.range(..since).fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        (silent > most).then_some(Doubt { silent, agents: self.agents })
    }

    /// The moment on the clock of reads at which too many will be silent unless some of them speak before it.
    fn doubtful_at(&self, stale: Duration) -> Option<Duration> {
        let (most, mut sum) = (believable(self.agents), 0_u32);
        let last = self.at.iter().find(|(_, count)| {
            sum = sum.saturating_add(**count);
            sum > most
        });
        last.map(|(at, _)| at.saturating_add(stale))
    }
}

/// When a class is looked at for doubt again, on the monotonic clock.
pub(super) fn look_again(cx: &Context<'_>, class: &Class) -> Option<Duration> {
    if class.beats.doubt(cx).is_some() {
        return Some(cx.now.mono + DOUBT_LOOKS);
    }
    let left = class.beats.doubtful_at(cx.policy.stale)?.saturating_sub(cx.now.seen);
    Some(cx.now.mono + left + Duration::from_millis(1))
}

/// What a class in doubt says of itself.
pub(super) fn told(doubt: Doubt) -> String {
    let Doubt { silent, agents } = doubt;
    format!("{silent} of {agents} agents fell silent together: none is ended for that yet")
}

#[cfg(test)]
mod tests;
