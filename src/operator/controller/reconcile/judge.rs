//! Judges one unit. A judgement that panics affects only its unit: its record counts as unreadable until another image
//! of it arrives, with the next full list at the latest.

use std::time::Duration;

use crate::decide::{Context, Plan};
use crate::process::panics;
use crate::yard::{Now, Observation, Unit};

use super::Loop;

/// How long a unit is skipped after a panic: the cause may be a record that it shares with others.
const LEFT_ALONE: Duration = Duration::from_secs(60);

impl Loop {
    pub(super) fn now(&self) -> Now {
        Now { wall: self.ports.clock.now(), mono: self.ports.clock.elapsed(), seen: self.reads.seen }
    }

    /// Returns the plan for a unit; `None` if it is skipped.
    pub(super) fn judge(&mut self, unit: &Unit) -> Option<Plan> {
        let now = self.now();
        if let Some(until) = self.postponed.panicked.get(unit).copied().filter(|until| *until > now.mono) {
            self.timers.set(unit, Some(until));
            return None;
        }
        let cx = Context { yard: &self.yard, policy: &self.policy, now, role: self.role };
        match panics::judge(&cx, unit) {
            Ok(plan) => {
                self.postponed.panicked.remove(unit);
                Some(plan)
            }
            Err(why) => {
                self.set_aside(unit, &why);
                None
            }
        }
    }

    /// Treats the record of a unit whose judgement panicked as unreadable.
    fn set_aside(&mut self, unit: &Unit, why: &str) {
        self.ports.metrics.decision_panicked();
        let (key, image) = self.yard.as_unreadable(unit);
        tracing::error!(%key, why, "a judgement panicked: the record counts as unreadable; please report this");
        if let Some(image) = image {
            self.observe(Observation::Record(key.clone(), Some(image)));
        }
        self.yard.unreadable.insert(key.clone(), format!("judging it panicked: {why}"));
        self.reported.unreadable.insert(key);
        let until = self.ports.clock.elapsed().saturating_add(LEFT_ALONE);
        self.postponed.panicked.insert(unit.clone(), until);
        self.timers.set(unit, Some(until));
        self.dirty.remove(unit);
    }
}
