//! Ends machines whose agent is silent or that the provider no longer lists.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Agent, Life, Reason};

use super::{MachineView, held, settled, terminating};
use crate::decide::{Note, Plan, Planned, Step};
use crate::yard::Doubt;

/// Shortest interval between two describe calls for a machine that is missing from the list.
const ASK_AGAIN: Duration = Duration::from_secs(30);

impl MachineView<'_> {
    /// Handles a silent agent: reads its record once more, then tombstones the machine on that heartbeat.
    pub(super) fn silence(&self) -> Option<Plan> {
        let beat = self.tracked.beat;
        let booting =
            matches!(self.instance.life, Life::Created { .. }) && beat.is_none_or(|beat| beat.seq == 0);
        if booting || self.fresh() {
            return None;
        }
        let key = Agent::key_of(&self.instance.facts.instance_arn);
        if self.cx.yard.is_unreadable(&key) {
            // The state of such an agent is unknown; the machine's deadline still holds.
            return None;
        }
        if self.cx.yard.absent.contains_key(&key) {
            // An agent writes only to its own record, so an agent without a record can never send a heartbeat again.
            let note = Note::warning("AgentRecordGone", "the record of its agent is gone");
            return Some(self.end(Reason::Unhealthy, note));
        }
        if self.put_off().is_some() {
            return None;
        }
        let Some(beat) = beat.filter(|beat| self.tracked.silent == Some(beat.seq)) else {
            return Some(Plan::act(Planned::look(key)));
        };
        let age = self.cx.now.seen.saturating_sub(beat.at);
        let note = Note::warning("Silent", format!("its agent has not spoken for {} s", age.as_secs()));
        let stays = self.outlives(Reason::Unhealthy);
        let mut step = Step::of(self.instance, self.cx.now.wall, |next| {
            next.state_since = self.cx.now.wall;
            if stays {
                held::keep_for_person(next);
                next.threshold = self.deadline(next);
            } else {
                terminating::tombstone(next, Reason::Unhealthy);
            }
        });
        self.keep_end_of_claim(&mut step);
        Some(Plan::act(Planned::silence(step, beat.seq, note)))
    }

    /// Returns until when the end of a silent machine is postponed, on the clock of reads, because too many agents of
    /// its class fell silent with it.
    pub(super) fn put_off(&self) -> Option<(Duration, Doubt)> {
        let beat = self.tracked.beat.filter(|_| !self.fresh())?;
        let until = beat.at.saturating_add(self.cx.policy.timing.stale.saturating_mul(2));
        let class = self.cx.yard.class(&self.instance.facts.resource_class)?;
        let doubt = class.beats.doubt(&self.cx.now, self.cx.policy.timing.stale)?;
        (self.cx.now.seen <= until).then_some((until, doubt))
    }

    /// Describes a machine that the last list lacks by its id, unless the list lacks too many to be believed.
    pub(super) fn missed(&self) -> Option<Plan> {
        let (cx, tracked) = (self.cx, self.tracked);
        if tracked.changed && cx.policy.inventory {
            return Some(Plan::act(Planned::describe_machine(self.instance.facts.instance_arn.clone())));
        }
        if !tracked.missing || !cx.policy.inventory || !settled(cx, self.instance) {
            return None;
        }
        if let Some((at, _)) = tracked.asked
            && cx.now.mono < at.saturating_add(ASK_AGAIN)
        {
            return None;
        }
        let before = cx.now.wall.saturating_sub(cx.policy.timing.orphan).unwrap_or(Timestamp::MIN);
        let class = cx.yard.class(&self.instance.facts.resource_class)?;
        if class.unbelieved(before).is_some() {
            // The status of its class reports that.
            return None;
        }
        Some(Plan::act(Planned::describe_machine(self.instance.facts.instance_arn.clone())))
    }
}
