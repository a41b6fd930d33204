//! Which units depend on the slots of an action?

use crate::model::{ClassName, RecordId, Slot};
use crate::yard::{Unit, Yard};

use super::Loop;

impl Loop {
    /// Returns the class whose decisions depend on a slot.
    pub(super) fn class_of(&self, slot: &Slot) -> Option<ClassName> {
        let id = match slot {
            Slot::Queue(class) | Slot::Launches(class) => return Some(class.clone()),
            Slot::Announcement(_) | Slot::Console(_) => return None,
            Slot::Record(id) => id,
        };
        match id {
            RecordId::Pool(class) => Some(class.clone()),
            RecordId::Request(id) => self.yard.request(id).and_then(Yard::class_of),
            RecordId::Instance(arn) => {
                self.yard.instance(arn).map(|tracked| tracked.instance.facts.resource_class.clone())
            }
            RecordId::Agent(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => None,
        }
    }
}

/// Returns the unit that a slot belongs to.
pub(super) fn unit_of(slot: &Slot) -> Option<Unit> {
    match slot {
        Slot::Queue(class) | Slot::Launches(class) => Some(Unit::Class(class.clone())),
        Slot::Announcement(_) | Slot::Console(_) => None,
        Slot::Record(RecordId::Instance(arn)) => Some(Unit::Instance(arn.clone())),
        Slot::Record(RecordId::Launch(id)) => Some(Unit::Launch(id.clone())),
        Slot::Record(RecordId::Pool(class)) => Some(Unit::Class(class.clone())),
        Slot::Record(RecordId::Request(id)) => Some(Unit::Request(id.clone())),
        Slot::Record(
            RecordId::Agent(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_),
        ) => None,
    }
}
