//! Which machines need not be asked for now? What EC2 had none of rests for a while, longer each time; and a class whose
//! spot machines are taken back one after the other gives those who allow it on-demand machines.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::{Launch, UsageClass};

use super::context::Now;
use super::yard::{Class, Yard};

/// How long an offering rests after the first time there was none.
const REST: Duration = Duration::from_secs(180);
/// Longest such rest of spot machines.
const REST_SPOT_MOST: Duration = Duration::from_secs(1800);
/// Longest such rest of on-demand machines: nothing stands in for them, and a call that brings none costs nothing.
const REST_MOST: Duration = Duration::from_secs(240);
/// How long after its rest a lack still counts as the one before.
const FORGOTTEN: Duration = Duration::from_secs(3600);
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
    fn again(&mut self, now: Duration, most: Duration) {
        if now >= self.until {
            self.until = now + (REST * 2_u32.pow(self.times.min(8))).min(most);
            self.times = self.times.saturating_add(1);
        }
    }
}

/// What became of a class's spot machines lately.
#[derive(Clone, Debug, Default)]
pub(super) struct SpotLosses {
    /// When some were taken back.
    lost: VecDeque<Duration>,
    /// Spot is done without before this moment.
    until: Duration,
}

impl SpotLosses {
    /// A spot launch was refused: what refuses it may be about spot alone, as a missing permission on its requests is.
    pub(super) fn refused(&mut self, now: Duration) {
        self.until = self.until.max(now + SPOT_PAUSE);
    }

    /// One was taken back; so many are left.
    pub(super) fn add(&mut self, now: Duration, left: u32) {
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

impl Class {
    /// Until when an offering is left alone, if it is.
    pub(super) fn rests(&self, offering: &Offering, now: Duration) -> Option<Duration> {
        self.offerings.get(offering).map(|rest| rest.until).filter(|until| now < *until)
    }

    /// The offerings that are left alone now.
    pub fn resting(&self, now: Duration) -> impl Iterator<Item = (&Offering, &Rest)> {
        self.offerings.iter().filter(move |(_, rest)| now < rest.until)
    }

    /// What rested long ago is as good as new; requests name whatever types they like.
    pub(super) fn forget_rests(&mut self, now: Duration) {
        self.offerings.retain(|_, rest| rest.until.saturating_add(FORGOTTEN) > now);
    }

    pub(super) fn had(&mut self, offering: &Offering) {
        self.offerings.remove(offering);
    }

    pub(super) fn lacked(&mut self, offering: Offering, now: Duration) {
        let most = match offering.usage {
            UsageClass::Spot => REST_SPOT_MOST,
            UsageClass::OnDemand => REST_MOST,
        };
        self.offerings.entry(offering).or_default().again(now, most);
    }

    /// Whether something is done without now.
    pub fn broken(&self, breaker: Breaker, now: Duration) -> bool {
        match breaker {
            Breaker::Spot => {
                let scarce = |(offering, rest): (&Offering, &Rest)| {
                    offering.usage == UsageClass::Spot && offering.types.is_empty() && rest.times > 1
                };
                now < self.spot.until || self.resting(now).any(scarce)
            }
            Breaker::Boot => now < self.brake.until,
        }
    }
}

impl Yard {
    /// What a launch asks for.
    pub(super) fn offering_of(&self, launch: &Launch) -> Offering {
        let request = launch.request.as_ref().and_then(|id| self.request_named(id));
        let types = request.and_then(|request| request.intent.allowed_instance_types.clone());
        Offering { usage: launch.usage_class, types: types.unwrap_or_default().0 }
    }
}

/// Why nothing of an offering is launched now.
pub(super) fn account(offering: &Offering, until: Duration, now: &Now) -> String {
    let again = crate::model::after(now.wall, until.saturating_sub(now.mono));
    let types = if offering.types.is_empty() {
        "any type that will do".to_owned()
    } else {
        offering.types.join(", ")
    };
    format!("no capacity for {} machines ({types}), tried again at {again}", offering.usage)
}

#[cfg(test)]
mod tests;
