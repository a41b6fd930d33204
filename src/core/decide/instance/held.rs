//! A machine that a person holds: it leaves its request, the pool or a failure without ending, serves no other request,
//! and ends when its hold is over.

use crate::model::{Cause, Hold, Instance, Life, MAX_HOLD_SECONDS, Place, Reason, Record, Threshold};

use super::MachineView;
use super::interruption::leaves_at;
use crate::decide::{Note, Plan, Planned, WaitReason};

impl MachineView<'_> {
    /// Plans the actions for a machine with a hold that no run has; none where its state continues as without a hold.
    pub(super) fn held(&self) -> Option<Plan> {
        let hold = self.instance.hold.as_ref()?;
        match self.instance.place() {
            Place::IdleHeld => Some(self.holding(hold)),
            Place::IdlePooled => Some(self.hold(Note::normal("Held", "it leaves the pool"))),
            Place::Nowhere
            | Place::CreatedBound
            | Place::CreatedWarm
            | Place::Claimed
            | Place::Running
            | Place::IdleCleaning
            | Place::Terminated => None,
        }
    }

    /// Plans the end of a held machine, or its deadline as the person has set it by now. Its runner is removed at
    /// GitHub once.
    fn holding(&self, hold: &Hold) -> Plan {
        let now = self.cx.now.wall;
        if self.tracked.held_while_cleaned {
            let note = Note::normal("Held", format!("held for {} instead of being cleaned", hold.by));
            return self.go(Cause::Renewed, note, |next| next.held_from(now));
        }
        let ends = hold.ends(self.instance.state_since, self.longest_hold());
        if let Some(by) = &self.instance.expired_by {
            return self.end(Reason::Expired, Note::normal("Expired", format!("{by} asked for its end")));
        }
        if ends <= now {
            let message = format!("{} held it until {ends}; it serves nobody again", hold.by);
            return self.end(Reason::Expired, Note::normal("HoldOver", message));
        }
        if self.instance.threshold.is_none_or(|threshold| threshold.at != ends) {
            let note = Note::normal("Held", format!("held for {} until {ends}, then it ends", hold.by));
            return self.go(Cause::Renewed, note, |_| ());
        }
        if let Some(plan) = self.missed() {
            return plan;
        }
        let mut plan = Plan::default();
        if self.cx.policy.github && !self.tracked.swept && self.instance.registration_seq > 0 {
            plan.actions.push(Planned::sweep_runner(self.instance));
        }
        let why = format!("held for {} until {ends}", hold.by);
        plan.wait(self.instance.key(), WaitReason::Deadline, why);
        plan.wake_at(self.cx.now.when(ends));
        if let Some(notice) = self.tracked.interruption().filter(|_| self.tracked.is_interrupted()) {
            plan.wake_at(self.cx.now.when(leaves_at(notice)));
        }
        plan
    }

    /// Holds the machine for the person, instead of the step that would follow.
    pub(super) fn hold(&self, note: Note) -> Plan {
        let by = self.instance.hold.as_ref().map_or("", |hold| hold.by.as_str());
        let message = format!("{}; held for {by}", note.message);
        self.go(Cause::Held, Note { message, ..note }, keep_for_person)
    }

    /// Returns whether a held machine is kept although it would end for this reason: it still exists, and may be of use
    /// to the person.
    pub(super) fn outlives(&self, reason: Reason) -> bool {
        let instance = self.instance;
        let wanted = instance.hold.as_ref().is_some_and(|hold| hold.until > self.cx.now.wall);
        let open = wanted && instance.held().is_none() && instance.expired_by.is_none();
        open && match reason {
            Reason::Threshold
            | Reason::BootFailed
            | Reason::RegistrationFailed
            | Reason::CleanupFailed
            | Reason::Unhealthy
            | Reason::Drifted
            | Reason::Surplus
            | Reason::MaxUses
            | Reason::MaxAge => true,
            Reason::Interrupted | Reason::Expired | Reason::Orphan | Reason::Vanished => false,
        }
    }

    /// Computes the deadline of a machine that is held, counted from its last change of state.
    pub(super) fn hold_deadline(&self, next: &Instance, hold: &Hold) -> Threshold {
        Threshold { at: hold.ends(next.state_since, self.longest_hold()), set_at: self.cx.now.wall }
    }

    /// Returns the longest hold of its class, in seconds.
    fn longest_hold(&self) -> u64 {
        self.spec.map_or(MAX_HOLD_SECONDS, |spec| spec.max_hold_seconds)
    }
}

/// Takes a machine out of its previous state and clears the fields that another claim would need.
pub(super) fn keep_for_person(next: &mut Instance) {
    next.life = Life::Idle { pooled_at: None };
    next.registration = None;
    next.removal = None;
    next.promotion = None;
}
