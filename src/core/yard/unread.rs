//! The known facts about unreadable or newer records that others depend on. One rule (contract, section 1): such a
//! record costs no request a machine and settles nothing. Machines of a class that cannot be read get the contract's
//! idle time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::{
    Agent, AttributeValue, ClassName, IDLE_SECONDS, Instance, InstanceArn, InstanceId, Item, Launch, Pool,
    Record, RecordId, State, text_of, time_of,
};

use super::{Tracked, Unit, UnreadMachine, Yard};

/// The state of a class's record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClassRecord<'a> {
    /// It can be read.
    Read(&'a Pool),
    /// It exists and cannot be read, or is of a newer schema.
    Unreadable,
    /// No record was seen, and no strong read has found that there is none.
    Unseen,
    /// A strong read did not find it: the class does not exist any more.
    Deleted,
}

impl<'a> ClassRecord<'a> {
    /// Returns the state of the record of this class.
    pub(crate) fn of(yard: &'a Yard, class: &ClassName) -> Self {
        if let Some(pool) = yard.pool(class) {
            return Self::Read(pool);
        }
        let key = Pool::key_of(class);
        if yard.is_unreadable(&key) {
            Self::Unreadable
        } else if yard.absent.contains_key(&key) {
            Self::Deleted
        } else {
            Self::Unseen
        }
    }

    /// Returns how long a machine that enters the pool of this class stays there.
    pub(crate) fn idle_time(self) -> Duration {
        match self {
            Self::Read(pool) => pool.idle_time(),
            Self::Unreadable | Self::Unseen => Duration::from_secs(IDLE_SECONDS),
            // No request can ask for the class, and no pool wants its machines.
            Self::Deleted => Duration::ZERO,
        }
    }
}

/// Returns whether the agent record of a machine can be read. A missing or unreadable record proves nothing about the
/// machine.
pub(crate) fn agent_is_known(tracked: &Tracked) -> bool {
    tracked.agent.is_some()
}

impl Yard {
    /// Stops counting a machine as idle while its agent's record cannot be read: no request gets it.
    pub(super) fn agent_read_or_not(&mut self, arn: &InstanceArn, dirty: &mut BTreeSet<Unit>) {
        let unread = self.is_unreadable(&Agent::key_of(arn));
        let Some(instance) = self.instances.get(arn).map(|tracked| &tracked.instance) else { return };
        let name = &instance.facts.resource_class;
        let Some(class) = self.classes.get_mut(name) else { return };
        if class.idle.unread_agents.contains(arn) != unread {
            let spec = class.pool.as_ref().map(|pool| &pool.spec);
            class.idle.remove(arn, instance, spec);
            class.idle.add(arn, instance, spec, unread);
            dirty.insert(Unit::Class(name.clone()));
        }
    }

    /// Returns a unit's record, and its newest image as an unreadable one: for a unit that this program fails to judge.
    /// Without an image nothing is known of the record.
    pub fn as_unreadable(&self, unit: &Unit) -> (RecordId, Option<Item>) {
        let (key, item) = match unit {
            Unit::Instance(arn) => {
                let known = self.instances.get(arn).map(|tracked| tracked.instance.to_item());
                (Instance::key_of(arn), known)
            }
            Unit::Request(id) => {
                (RecordId::from(id), self.requests.get(id).map(|asked| asked.request.to_item()))
            }
            Unit::Class(class) => (Pool::key_of(class), self.pool(class).map(Record::to_item)),
            Unit::Launch(id) => {
                (Launch::key_of(id), self.launches.get(id).map(|tracked| tracked.launch.to_item()))
            }
        };
        let spoilt = item.map(|mut item| {
            item.insert("version".into(), AttributeValue::Bool(false));
            item
        });
        (key, spoilt)
    }

    /// Records a machine whose record cannot be read. It may be running: it counts towards its class's `max` as long as
    /// the record names the class and does not show that the machine ended, and its request waits for it.
    pub(super) fn note_unread(
        &mut self,
        key: &RecordId,
        item: Option<&Item>,
        was: Option<UnreadMachine>,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(id) = key.instance().and_then(|arn| InstanceId::parse(arn.instance_id()).ok()) else {
            return;
        };
        let before = self.unread_machines.remove(&id);
        if let Some(before) = &before {
            dirty.extend(before.held_by.as_ref().and_then(Unit::of_request));
            if let Some(class) = &before.class {
                let entry = self.classes.entry(class.clone()).or_default();
                entry.unreadable = entry.unreadable.saturating_sub(1);
                dirty.insert(Unit::Class(class.clone()));
            }
        }
        let Some(item) = item.filter(|_| self.is_unreadable(key)) else { return };
        let was = was.or(before).unwrap_or_default();
        let ended = text_of(item, "state") == Some(State::Terminated.as_str());
        let class = text_of(item, "resourceClass").and_then(|class| ClassName::parse(class).ok());
        let unread = UnreadMachine {
            class: class.filter(|_| !ended),
            deadline: time_of(item, "threshold").or(was.deadline),
            held_by: was.held_by,
        };
        dirty.extend(unread.held_by.as_ref().and_then(Unit::of_request));
        if let Some(class) = &unread.class {
            self.classes.entry(class.clone()).or_default().unreadable += 1;
            dirty.insert(Unit::Class(class.clone()));
        }
        self.unread_machines.insert(id, unread);
    }
}
