//! Whether the request of a machine no longer wants it: it was released, has ended, or removed the machine from its
//! list.

use crate::decide::{Note, Plan};
use crate::model::{Cause, Claim, ClaimId, Instance, Life, Request};
use crate::yard::{Yard, gives_back};

use super::MachineView;

impl MachineView<'_> {
    /// Whether its request wants it no more: released, over, or it took the machine off its list.
    pub(super) fn given_back(&self) -> Option<Note> {
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

    /// A request that knows this very claim and does not list the machine any more gave it up. One that knows an older
    /// claim of the machine was read before this claim was made, and says nothing about it.
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

    pub(super) fn give_back(&self, note: Note) -> Plan {
        if let Some((reason, _)) = self.served_its_job() {
            let message = format!("{}; its jobs could become root: it serves no other", note.message);
            return self.end(reason, Note { message, ..note });
        }
        if self.instance.hold.is_some() {
            return self.hold(note);
        }
        self.go(Cause::GivenBack, note, |next| {
            next.life = Life::Idle { pooled_at: None };
            next.registration = None;
        })
    }
}

/// Whether the record of a machine's former request still lists it as held.
pub(in crate::decide) fn listed_by_former(yard: &Yard, instance: &Instance) -> bool {
    let id = &instance.facts.instance_id;
    let former = instance.claim.as_ref().and_then(|claim| yard.request_named(&claim.request));
    former.is_some_and(|request| request.status.instances.contains(id))
}
