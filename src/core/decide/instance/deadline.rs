//! The deadline of each live state, and the end of a machine that passes it: one that never boots, never registers,
//! serves for too long or is never clean.

use jiff::Timestamp;

use crate::decide::Note;
use crate::decide::health::runtime;
use crate::model::{Instance, Life, Reason, Threshold, after};
use crate::yard::ClassRecord;

use super::{MachineView, pooled};

impl MachineView<'_> {
    /// Returns the reason of the end if the deadline of the state has passed. While GitHub does not respond, a machine
    /// that waits for it gets more time.
    pub(super) fn passed(&self, now: Timestamp) -> Option<(Reason, Note)> {
        let threshold = self.instance.threshold?;
        let busy = self.busy_until().is_some_and(|until| now < until);
        if threshold.at > now || self.waits_for_github() || busy || pooled::kept(self) {
            return None;
        }
        if let Some(by) = &self.instance.expired_by {
            return Some((Reason::Expired, Note::normal("Expired", format!("{by} asked for its end"))));
        }
        let state = self.instance.state();
        let message = format!("its deadline in {state} passed at {}", threshold.at);
        let pooled = self.instance.pooled_at().is_some();
        let note =
            if pooled { Note::normal("IdleTooLong", message) } else { Note::warning("Deadline", message) };
        Some((Reason::Threshold, note))
    }

    /// Computes the deadline of the state that the machine is going to be in.
    pub(super) fn deadline(&self, next: &Instance) -> Option<Threshold> {
        let (policy, now) = (self.cx.policy, self.cx.now.wall);
        let term = match next.life {
            Life::Created { .. } => policy.timing.created,
            Life::Claimed { .. } => policy.timing.claimed,
            Life::Running { .. } => {
                let at = runtime::deadline(self.cx, self.request, self.spec);
                return Some(Threshold { at, set_at: now });
            }
            Life::Idle { pooled_at: None } => match &next.hold {
                Some(hold) => return Some(self.hold_deadline(next, hold)),
                None => policy.timing.cleanup,
            },
            Life::Idle { pooled_at: Some(_) } => {
                ClassRecord::of(self.cx.yard, &next.facts.resource_class).idle_time()
            }
            Life::Terminated { .. } => return None,
        };
        Some(Threshold { at: after(now, term), set_at: now })
    }
}
