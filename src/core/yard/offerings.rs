//! Which machines need not be asked for now? What EC2 had none of rests for a while, longer each time; and a class whose
//! spot machines are taken back one after the other gives those who allow it on-demand machines.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::UsageClass;

/// How long an offering rests after the first time there was none.
const REST: Duration = Duration::from_secs(180);
/// Longest such rest of spot machines.
pub(super) const REST_SPOT_MOST: Duration = Duration::from_secs(1800);
/// Longest such rest of on-demand machines: nothing stands in for them, and a call that brings none costs nothing.
pub(super) const REST_MOST: Duration = Duration::from_secs(240);
/// How long after its rest a lack still counts as the one before.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(3600);
/// Losses so old do not count.
const LOSSES_WITHIN: Duration = Duration::from_secs(900);
/// Fewer losses say nothing.
const LOSSES_LEAST: usize = 3;
/// How long a class does without spot machines after too many losses.
const SPOT_PAUSE: Duration = Duration::from_secs(600);

/// What a class does without for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breaker {
    /// Spot machines, where on-demand ones are allowed too.
    Spot,
    /// Launches, after failures to launch or boot.
    Boot,
}

impl Breaker {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Spot, Self::Boot];

    /// As metrics call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Boot => "boot",
        }
    }
}

/// What one launch asks for: every type and zone that will do is tried by EC2, so a lack is one of all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offering {
    /// How it is paid for.
    pub usage: UsageClass,
    /// The types its request allows; none: those of its class.
    pub types: Vec<String>,
}

/// How long an offering is left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// How often in a row there was none.
    pub times: u32,
    /// It is not asked for before this moment.
    pub until: Duration,
}

impl Rest {
    /// There was none. Launches that were under way together count once.
    pub(crate) fn again(&mut self, now: Duration, most: Duration) {
        if now >= self.until {
            self.until = now + (REST * 2_u32.pow(self.times.min(8))).min(most);
            self.times = self.times.saturating_add(1);
        }
    }
}

/// What became of a class's spot machines lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpotLosses {
    /// When some were taken back.
    lost: VecDeque<Duration>,
    /// Spot is done without before this moment.
    pub(crate) until: Duration,
}

impl SpotLosses {
    /// A spot launch was refused: what refuses it may be about spot alone, as a missing permission on its requests is.
    pub(crate) fn refused(&mut self, now: Duration) {
        self.until = self.until.max(now + SPOT_PAUSE);
    }

    /// One was taken back; so many are left.
    pub(crate) fn add(&mut self, now: Duration, left: u32) {
        self.lost.push_back(now);
        while self.lost.front().is_some_and(|at| *at + LOSSES_WITHIN < now) {
            self.lost.pop_front();
        }
        let lost = self.lost.len();
        // A quarter of those there were.
        if lost >= LOSSES_LEAST && lost * 3 >= left as usize {
            self.until = now + SPOT_PAUSE;
        }
    }
}

#[cfg(test)]
mod tests;
