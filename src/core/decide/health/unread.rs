//! Decides where a record that others depend on cannot be read. A release waits for an unreadable machine until that
//! machine must have ended itself, and then reports it as unaccounted for.

use jiff::Timestamp;

use crate::decide::context::Context;
use crate::decide::health::runtime;
use crate::model::{ClassName, InstanceId, Pool, RecordId, Request, after};
use crate::yard::{ClassRecord, Holding, Yard};

/// The unreadable machines of a releasing request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account<'a> {
    /// Machines that may still run, and when the last of them must have ended itself.
    pub(crate) waits: Vec<(&'a InstanceId, Timestamp)>,
    /// Machines that must have ended themselves by now and are unaccounted for.
    pub(crate) unaccounted: Vec<&'a InstanceId>,
}

impl<'a> Account<'a> {
    /// Sorts the unreadable machines of a request. A release waits for each until its own deadline plus the grace after
    /// which its agent ends it. Where no deadline is known, it was set before the request's record was last written or,
    /// for a machine that waited for others, from the request's deadline on, for no longer than the request may hold a
    /// machine.
    pub(crate) fn of(cx: &Context<'_>, request: &Request, holding: &Holding<'a>) -> Self {
        let mut account = Self::default();
        if holding.unread.is_empty() {
            return account;
        }
        let spec = Yard::class_of(request).and_then(|class| cx.yard.pool(&class)).map(|pool| &pool.spec);
        let timing = &cx.policy.timing;
        let served = runtime::max_runtime(cx, Some(request), spec).saturating_add(timing.end);
        let longest = served.max(timing.cleanup).max(timing.created);
        for (id, deadline) in &holding.unread {
            // A record without a time of writing is about to be written.
            let written = request.updated_at.unwrap_or(cx.now.wall);
            let from = request.status.deadline.map_or(written, |deadline| deadline.max(written));
            let until = after(deadline.unwrap_or_else(|| after(from, longest)), timing.grace);
            if until > cx.now.wall {
                account.waits.push((id, until));
            } else {
                account.unaccounted.push(id);
            }
        }
        account
    }

    /// Counts the machines that the release waits for.
    pub(crate) fn waiting(&self) -> u32 {
        self.waits.len() as u32
    }

    /// Describes the unaccounted machines once all others are back; none when there is nothing to report.
    pub(crate) fn told(&self, request: &Request) -> Option<String> {
        if self.unaccounted.is_empty() {
            return None;
        }
        let ids: Vec<&str> = self.unaccounted.iter().map(|id| id.as_str()).collect();
        let of = request.status.served.len().max(ids.len());
        Some(format!(
            "{} of {of} unaccounted for: the records of {} cannot be read",
            ids.len(),
            ids.join(", ")
        ))
    }
}

/// Returns the key under which a class's record is read once more before the class counts as deleted.
pub(crate) fn class_to_look_at(yard: &Yard, class: &ClassName) -> Option<RecordId> {
    match ClassRecord::of(yard, class) {
        ClassRecord::Unseen => Some(Pool::key_of(class)),
        ClassRecord::Read(_) | ClassRecord::Unreadable | ClassRecord::Deleted => None,
    }
}

#[cfg(test)]
mod tests;
