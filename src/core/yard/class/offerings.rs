//! Backs off offerings without capacity, longer each time, and spot machines of a class that keeps losing them:
//! requests that allow it get on-demand machines meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::UsageClass;

use super::refusals::OfferingRefusal;

/// First backoff of an offering without capacity.
const BACKOFF: Duration = Duration::from_secs(180);
/// Longest such backoff of spot machines.
pub(crate) const SPOT_BACKOFF_MOST: Duration = Duration::from_secs(1800);
/// Longest such backoff of on-demand machines: nothing replaces them, and a call without result costs nothing.
pub(crate) const ON_DEMAND_BACKOFF_MOST: Duration = Duration::from_secs(240);
/// How long after a backoff another failure still lengthens it.
pub(crate) const FORGOTTEN: Duration = Duration::from_secs(3600);
/// Older losses do not count.
const LOSSES_WITHIN: Duration = Duration::from_secs(900);
/// Fewer losses than this do not matter.
const LOSSES_LEAST: usize = 3;
/// How long a class does not use spot machines after too many losses.
const SPOT_PAUSE: Duration = Duration::from_secs(600);

/// The kinds of backoff in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackoffKind {
    /// Spot machines, where on-demand ones are allowed too.
    Spot,
    /// Launches, after failures to launch or boot.
    Boot,
}

impl BackoffKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Spot, Self::Boot];

    /// Returns the name that metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Boot => "boot",
        }
    }
}

/// The machines that one launch asks for. EC2 tries every zone and every allowed type that its price protection leaves,
/// so a lack of capacity applies to all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offering {
    /// Spot or on-demand.
    pub usage: UsageClass,
    /// The types that its request allows; none: those of its class.
    pub types: Vec<String>,
}

/// The backoff of an offering without capacity, or of one that EC2 refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferingBackoff {
    /// How often in a row there was no capacity.
    pub times: u32,
    /// No such machine is launched before this moment, for lack of capacity.
    pub until: Duration,
    /// EC2's refusals since the last response with machines or without capacity.
    pub(crate) refused: Option<OfferingRefusal>,
}

impl OfferingBackoff {
    /// Returns until when no such machine is launched, whatever the reason.
    pub(crate) fn until(&self) -> Duration {
        self.until.max(self.refused.as_ref().map_or(Duration::ZERO, OfferingRefusal::until))
    }

    /// Records a lack of capacity. Launches that were in flight together count once.
    pub(crate) fn again(&mut self, now: Duration, most: Duration) {
        self.refused = None;
        if now >= self.until {
            self.until = now + (BACKOFF * 2_u32.pow(self.times.min(8))).min(most);
            self.times = self.times.saturating_add(1);
        }
    }
}

/// Recent losses of a class's spot machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpotLosses {
    /// Live spot machines.
    pub(crate) live: u32,
    /// When machines were taken back.
    lost: VecDeque<Duration>,
    /// No spot machine is launched before this moment.
    pub(crate) until: Duration,
}

impl SpotLosses {
    /// Records that a spot launch was refused. The reason may concern spot alone, such as a missing permission on spot
    /// requests.
    pub(crate) fn refused(&mut self, now: Duration) {
        self.until = self.until.max(now + SPOT_PAUSE);
    }

    /// Records that a machine was taken back, and `left` remain.
    pub(crate) fn add(&mut self, now: Duration, left: u32) {
        self.lost.push_back(now);
        while self.lost.front().is_some_and(|at| *at + LOSSES_WITHIN < now) {
            self.lost.pop_front();
        }
        let lost = self.lost.len();
        // At least a quarter of the machines.
        if lost >= LOSSES_LEAST && lost * 3 >= left as usize {
            self.until = now + SPOT_PAUSE;
        }
    }
}

#[cfg(test)]
mod tests;
