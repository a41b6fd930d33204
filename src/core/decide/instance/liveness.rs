//! A machine of which nothing is heard: its agent has not beaten for too long, or its maker does not list it.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Agent, Life, Reason};

use super::{MachineView, settled, terminating};
use crate::decide::{Note, Plan, Planned, Step};
use crate::yard::Doubt;

/// How long a machine's maker is not asked again for a machine that it does not list.
const ASK_AGAIN: Duration = Duration::from_secs(30);

impl MachineView<'_> {
    /// An agent that fell silent: its record is read once more, then the machine is ended on that very heartbeat.
    pub(super) fn silence(&self) -> Option<Plan> {
        let beat = self.tracked.beat;
        let booting =
            matches!(self.instance.life, Life::Created { .. }) && beat.is_none_or(|beat| beat.seq == 0);
        if booting || self.fresh() {
            return None;
        }
        let key = Agent::key_of(&self.instance.facts.instance_arn);
        if self.cx.yard.hands_off(&key) {
            // Nothing can be said of such an agent; the machine's deadline still holds.
            return None;
        }
        if self.cx.yard.absent.contains_key(&key) {
            // An agent writes only to its record, so without one it is never heard again.
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
        let step = Step::of(self.instance, self.cx.now.wall, |next| {
            terminating::tombstone(next, Reason::Unhealthy);
            next.state_since = self.cx.now.wall;
            next.threshold = None;
        });
        Some(Plan::act(Planned::silence(step, beat.seq, note)))
    }

    /// Until when the first judgement of a silent agent is put off, on the clock of reads, because too many of its class
    /// fell silent with it.
    pub(super) fn put_off(&self) -> Option<(Duration, Doubt)> {
        let beat = self.tracked.beat.filter(|_| !self.fresh())?;
        let until = beat.at.saturating_add(self.cx.policy.stale.saturating_mul(2));
        let class = self.cx.yard.class(&self.instance.facts.resource_class)?;
        let doubt = class.beats.doubt(&self.cx.now, self.cx.policy.stale)?;
        (self.cx.now.seen <= until).then_some((until, doubt))
    }

    /// A machine that the last list of machines did not show: its maker is asked for it by name, unless the list lacks
    /// too much to be believed.
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
        let before = cx.now.wall.saturating_sub(cx.policy.orphan).unwrap_or(Timestamp::MIN);
        let class = cx.yard.class(&self.instance.facts.resource_class)?;
        if class.unbelieved(before).is_some() {
            // Its class says so.
            return None;
        }
        Some(Plan::act(Planned::describe_machine(self.instance.facts.instance_arn.clone())))
    }
}
