//! The machines that a request holds, as far as the records prove it.

use jiff::Timestamp;

use crate::model::{InstanceId, Life, Reason, RecordId, Request, RequestKey};

use super::Yard;

/// A machine that a request's record lists but that it no longer holds.
#[derive(Clone, Copy, Debug)]
pub struct Lost<'a> {
    /// Its id.
    pub id: &'a InstanceId,
    /// Why it ended, if it did.
    pub reason: Option<Reason>,
    /// Whether it is still being cleaned after this request, so that it is not back yet.
    pub out: bool,
}

/// The machines that a request holds, as far as that can be proved.
#[derive(Debug, Default)]
pub struct Holding<'a> {
    /// Machines its record lists that it may still hold.
    pub held: Vec<&'a InstanceId>,
    /// How many of them run.
    pub running: u32,
    /// Machines its record lists that are proved not to be its machines any more.
    pub lost: Vec<Lost<'a>>,
    /// Machines its record lists that are neither pooled nor ended.
    pub out: u32,
    /// Machines it may hold, or that may be cleaned after it, whose records cannot be read, with the last deadline
    /// known of each.
    pub unread: Vec<(&'a InstanceId, Option<Timestamp>)>,
}

impl Yard {
    /// Determines the machines that a request holds, by its own list.
    ///
    /// # Guarantees
    /// - Each machine on the request's list is in `held` or in `lost`, never in both. So a request never takes a
    ///   machine in place of one that it may still have.
    /// - A machine is lost only where that is proved: its record is at least as new as the claim and shows it as
    ///   claimed by another, pooled, cleaned, held by a person or ended; or a complete list of the table that began
    ///   after the request last changed does not show it.
    /// - A machine whose record cannot be read counts as held, and is named in `unread`.
    /// - The work grows with the request's list alone.
    ///
    /// # Assumes
    /// - `request` is the image that the yard has under `key`, or one that was made from it.
    /// - Claim ids carry the version of the instance record that they wrote.
    ///
    /// # Errors
    /// None: where nothing is known, the machine is held.
    pub fn holding<'a>(&'a self, key: &RequestKey, request: &'a Request) -> Holding<'a> {
        let mut holding = Holding::default();
        for id in &request.status.instances {
            let claimed = request.status.claims.get(id);
            let version = claimed.map_or(0, crate::model::ClaimId::version);
            let Some(tracked) = self.by_id(id) else {
                match self.unread_machines.get(id) {
                    // Its state is unknown, so it counts as held; a release accounts for it separately.
                    Some(unread) => {
                        holding.held.push(id);
                        holding.unread.push((id, unread.deadline));
                    }
                    None if self.proved_missing(key) => {
                        holding.lost.push(Lost { id, reason: None, out: false });
                    }
                    None => {
                        holding.held.push(id);
                        holding.out += 1;
                    }
                }
                continue;
            };
            let instance = &tracked.instance;
            let claim = instance.claim.as_ref();
            let ours = claim.is_some_and(|claim| {
                claim.request.request() == Some(key) && claimed.is_none_or(|id| *id == claim.id)
            });
            if (ours && instance.run().is_some()) || instance.version < version {
                holding.held.push(id);
                holding.out += 1;
                holding.running += u32::from(ours && matches!(instance.life, Life::Running { .. }));
                continue;
            }
            let (reason, out) = match instance.life {
                Life::Terminated { reason, .. } => (Some(reason), false),
                Life::Idle { pooled_at } => (None, ours && pooled_at.is_none() && instance.held().is_none()),
                Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => (None, false),
            };
            holding.out += u32::from(out);
            holding.lost.push(Lost { id, reason, out });
        }
        if !self.unread_machines.is_empty() {
            let status = &request.status;
            let off = status.served.iter().filter(|id| !status.instances.contains(id));
            let unread = off.filter_map(|id| Some((id, self.unread_machines.get(id)?)));
            let ours =
                unread.filter(|(_, unread)| unread.held_by.as_ref().and_then(RecordId::request) == Some(key));
            holding.unread.extend(ours.map(|(id, unread)| (id, unread.deadline)));
        }
        holding
    }

    /// Counts the machines that a request held and no longer lists that are neither pooled, held by a person nor ended.
    pub(crate) fn leaving(&self, key: &RequestKey, request: &Request) -> u32 {
        let status = &request.status;
        let off = status.served.iter().filter(|id| !status.instances.contains(id));
        let out = off.filter_map(|id| self.by_id(id)).filter(|tracked| {
            let ours =
                tracked.instance.claim.as_ref().is_some_and(|claim| claim.request.request() == Some(key));
            ours && match tracked.instance.life {
                Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => true,
                Life::Idle { pooled_at } => pooled_at.is_none() && tracked.instance.held().is_none(),
                Life::Terminated { .. } => false,
            }
        });
        out.count() as u32
    }

    /// Returns whether a listed machine that was never seen is proved absent: a complete list of the table began after
    /// the request last changed.
    fn proved_missing(&self, request: &RequestKey) -> bool {
        match (self.listed, self.requests.get(request)) {
            (Some(listed), Some(asked)) => listed > asked.touched,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}
