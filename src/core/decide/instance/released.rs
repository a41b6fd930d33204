//! Does the request of a machine no longer want it? It was released, has ended, or removed the machine from its list.

use crate::decide::{Note, Plan};
use crate::model::{Cause, Claim, ClaimId, Instance, Life, Request, Signal};
use crate::yard::{Yard, gives_back};

use super::MachineView;

impl MachineView<'_> {
    /// Ends its claim, where its request no longer wants the machine or does not know it.
    pub(super) fn returned(&self) -> Option<Plan> {
        if let Some(note) = self.given_back() {
            return Some(self.give_back(note));
        }
        let request = self.request.filter(|request| self.is_unknown_to(request))?;
        let note = Note::warning("RequestMadeAnew", format!("{} never held it", request.id));
        let mut plan = self.give_back(note);
        plan.actions = plan.actions.into_iter().map(|action| action.disowned_by(request)).collect();
        Some(plan)
    }

    /// Returns whether its request never held it: the request was deleted and created again under its key. Its image
    /// counts only where it is newer than the machine's, and the write that follows is conditional on the image still
    /// being the newest.
    fn is_unknown_to(&self, request: &Request) -> bool {
        let (id, status) = (&self.instance.facts.instance_id, &request.status);
        let known =
            status.instances.contains(id) || status.served.contains(id) || status.claims.contains_key(id);
        let key = self.instance.claim.as_ref().and_then(|claim| claim.request.request());
        let newer = key.and_then(|key| self.cx.yard.request_seen(key));
        !known && newer.is_some_and(|seen| seen > self.tracked.there.0) && !self.cx.yard.is_busy(&request.id)
    }

    /// Returns a note if its request no longer wants the machine: released, over, or the machine removed from its list.
    fn given_back(&self) -> Option<Note> {
        let claim = self.instance.claim.as_ref()?;
        match self.request {
            Some(request) if gives_back(request) => {
                Some(Note::normal("Released", format!("{} gives it back", request.id)))
            }
            Some(request) if self.given_up(claim, request) => {
                Some(Note::normal("GivenUp", format!("{} holds it no more", request.id)))
            }
            // A strong read found no such request.
            None if self.cx.yard.absent.contains_key(&claim.request) => Some(Note::warning(
                "RequestGone",
                format!("the record of its request is gone ({})", claim.request),
            )),
            Some(_) | None => None,
        }
    }

    /// Returns whether a request gave the machine up: it knows this very claim and does not list the machine any more.
    /// A request that knows an older claim of the machine was read before this claim was made, and proves nothing about
    /// it.
    pub(super) fn given_up(&self, claim: &Claim, request: &Request) -> bool {
        let (id, status) = (&self.instance.facts.instance_id, &request.status);
        if status.instances.contains(id) || !status.served.contains(id) {
            return false;
        }
        let named_here = |id: &ClaimId| id.version() > 0;
        match status.claims.get(id) {
            Some(last) if named_here(last) && named_here(&claim.id) => *last == claim.id,
            // Claim ids that were not made from versions have no order.
            Some(_) | None => true,
        }
    }

    fn is_running(&self) -> bool {
        match self.instance.life {
            Life::Running { .. } => true,
            Life::Created { .. } | Life::Claimed { .. } | Life::Idle { .. } | Life::Terminated { .. } => {
                false
            }
        }
    }

    pub(super) fn give_back(&self, note: Note) -> Plan {
        if let Some((reason, _)) = self.served_its_job() {
            let message = format!("{}; its jobs could become root: it serves no other", note.message);
            return self.end(reason, Note { message, ..note });
        }
        if self.instance.hold.is_some() {
            return self.hold(note);
        }
        let (ran, failed) = (self.is_running(), self.says() == Some(Signal::RegFailed));
        self.go(Cause::GivenBack, note, |next| {
            next.life = Life::Idle { pooled_at: None };
            next.registration = None;
            match (ran, failed) {
                (true, false) => next.registration_failures = 0,
                (true, true) => next.registration_failures += 1,
                (false, _) => {}
            }
        })
    }
}

/// Returns whether the record of a machine's former request still lists it as held.
pub(in crate::decide) fn listed_by_former(yard: &Yard, instance: &Instance) -> bool {
    let id = &instance.facts.instance_id;
    let former = instance.claim.as_ref().and_then(|claim| yard.request_named(&claim.request));
    former.is_some_and(|request| request.status.instances.contains(id))
}
