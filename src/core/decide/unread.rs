//! What is decided where a record that others depend on cannot be read, or is of a newer form? One rule (contract,
//! section 1): it costs nobody a machine, and nobody is told that it is settled. A class that cannot be read gives its
//! machines the contract's idle time; a release waits for a machine that cannot be read until that machine must have
//! ended itself, and then says that it is unaccounted for.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    ClassName, IDLE_SECONDS, InstanceId, Intent, Life, Pool, RecordId, Request, Threshold, after,
};

use super::context::Context;
use super::request::max_runtime;
use super::yard::{Holding, Tracked, Yard};

/// What is known of a class's record.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClassRecord<'a> {
    /// It can be read.
    Read(&'a Pool),
    /// It is there and cannot be read, or is of a newer form.
    Unreadable,
    /// No record was seen, and no strong read has said that there is none.
    Unseen,
    /// A strong read did not find it: the class does not exist any more.
    Deleted,
}

impl<'a> ClassRecord<'a> {
    /// What is known of the record of this class.
    pub(super) fn of(yard: &'a Yard, class: &ClassName) -> Self {
        if let Some(pool) = yard.pool(class) {
            return Self::Read(pool);
        }
        let key = Pool::key_of(class);
        if yard.hands_off(&key) {
            Self::Unreadable
        } else if yard.absent.contains_key(&key) {
            Self::Deleted
        } else {
            Self::Unseen
        }
    }

    /// How long a machine that enters the pool of this class stays there.
    pub(super) fn idle_time(self) -> Duration {
        match self {
            Self::Read(pool) => pool.idle_time(),
            Self::Unreadable | Self::Unseen => Duration::from_secs(IDLE_SECONDS),
            // Nobody can ask for it, and nobody wants it kept.
            Self::Deleted => Duration::ZERO,
        }
    }
}

/// Whether nobody can say how long a request may hold its machines: it leaves that to a class that cannot be read.
pub(super) fn runtime_unknown(yard: &Yard, intent: &Intent) -> bool {
    let class = ClassName::parse(&intent.resource_class).ok();
    intent.max_runtime_minutes.is_none()
        && class.is_some_and(|class| match ClassRecord::of(yard, &class) {
            ClassRecord::Unreadable => true,
            ClassRecord::Read(_) | ClassRecord::Unseen | ClassRecord::Deleted => false,
        })
}

/// A machine whose record cannot be read, as it was known last.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadMachine {
    /// The class in which it counts as live: the record names it and does not say that the machine ended.
    pub(super) class: Option<ClassName>,
    /// Its deadline: as the record still says, else as it said when it could be read.
    pub(super) deadline: Option<Timestamp>,
    /// The request that held it, or had it cleaned, when the record could be read.
    pub(super) held_by: Option<RecordId>,
}

impl UnreadMachine {
    /// What a record that could be read says of the time after it.
    pub(super) fn after(tracked: &Tracked) -> Self {
        let instance = &tracked.instance;
        let holds = match instance.life {
            Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => true,
            Life::Idle { pooled_at } => pooled_at.is_none(),
            Life::Terminated { .. } => false,
        };
        Self {
            class: None,
            deadline: instance.threshold.map(|Threshold { at, .. }| at),
            held_by: instance.claim.as_ref().filter(|_| holds).map(|claim| claim.request.clone()),
        }
    }
}

/// What a request that gives back knows of machines whose records cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account<'a> {
    /// Those that may still be at work, with the moment from which on none is.
    pub(super) waits: Vec<(&'a InstanceId, Timestamp)>,
    /// Those that must have ended themselves by now. Nobody knows what became of them.
    pub(super) unaccounted: Vec<&'a InstanceId>,
}

impl<'a> Account<'a> {
    /// Each is waited for until its own deadline and the grace after which its agent ends it. Where no deadline is known
    /// it was set before the request's record was last written, for no longer than the request may hold a machine.
    pub(super) fn of(cx: &Context<'_>, request: &Request, holding: &Holding<'a>) -> Self {
        let mut account = Self::default();
        if holding.unread.is_empty() {
            return account;
        }
        let spec = Yard::class_of(request).and_then(|class| cx.yard.pool(&class)).map(|pool| &pool.spec);
        let longest = max_runtime(Some(request), spec).max(cx.policy.cleanup).max(cx.policy.created);
        for (id, deadline) in &holding.unread {
            // One whose record nobody ever wrote is about to be.
            let written = request.updated_at.unwrap_or(cx.now.wall);
            let until = after(deadline.unwrap_or_else(|| after(written, longest)), cx.policy.grace);
            if until > cx.now.wall {
                account.waits.push((id, until));
            } else {
                account.unaccounted.push(id);
            }
        }
        account
    }

    /// How many are waited for.
    pub(super) fn waiting(&self) -> u32 {
        self.waits.len() as u32
    }

    /// What a request says of them when everything else is back; none when it has nothing to say.
    pub(super) fn told(&self, request: &Request) -> Option<String> {
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

/// Whether the record of a machine's agent can be read. One that cannot, or that is gone, says nothing of the machine.
pub(super) fn agent_is_known(tracked: &Tracked) -> bool {
    tracked.agent.is_some()
}

/// The key under which a class's record is looked for once more before it counts as deleted.
pub(super) fn class_to_look_at(yard: &Yard, class: &ClassName) -> Option<RecordId> {
    match ClassRecord::of(yard, class) {
        ClassRecord::Unseen => Some(Pool::key_of(class)),
        ClassRecord::Read(_) | ClassRecord::Unreadable | ClassRecord::Deleted => None,
    }
}

#[cfg(test)]
mod tests;
