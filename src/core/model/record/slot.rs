//! A slot that an action holds while it is in progress.

use std::fmt;

use super::identity::RecordId;
use super::ids::{ClassName, InstanceArn, RequestKey};

/// A resource that only one action of an operator holds at a time: a record that is being written, or something of a
/// class or a machine that has no record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// A record that is being written.
    Record(RecordId),
    /// The queue of a class, which is called once at a time.
    Queue(ClassName),
    /// The launches of a class that have no name yet: one intent of a class is written at a time.
    Launches(ClassName),
    /// The announcement of a pooled machine. It writes no record: the machine can be claimed while its queue hangs.
    Announcement(InstanceArn),
    /// The console of a machine, which is read independently of everything else that is done about the machine.
    Console(InstanceArn),
}

impl Slot {
    /// Returns the record, if it is one.
    pub const fn record(&self) -> Option<&RecordId> {
        match self {
            Self::Record(id) => Some(id),
            Self::Queue(_) | Self::Launches(_) | Self::Announcement(_) | Self::Console(_) => None,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(id) => fmt::Display::fmt(id, f),
            Self::Queue(class) => write!(f, "queue#{class} / queue"),
            Self::Launches(class) => write!(f, "launches#{class} / launches"),
            Self::Announcement(arn) => write!(f, "announcement#{arn} / announcement"),
            Self::Console(arn) => write!(f, "console#{arn} / console"),
        }
    }
}

impl From<RecordId> for Slot {
    fn from(id: RecordId) -> Self {
        Self::Record(id)
    }
}

impl From<&RecordId> for Slot {
    fn from(id: &RecordId) -> Self {
        Self::Record(id.clone())
    }
}

impl From<RequestKey> for Slot {
    fn from(id: RequestKey) -> Self {
        Self::Record(id.into())
    }
}

impl From<&RequestKey> for Slot {
    fn from(id: &RequestKey) -> Self {
        Self::Record(id.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_no_record_is_not_taken_for_one() {
        let class = ClassName::parse("linux").unwrap();
        let pool = RecordId::Pool(class.clone());
        assert_eq!(Slot::from(&pool).record(), Some(&pool));
        let arn = InstanceArn::parse("arn:aws:ec2:eu-central-1:1:instance/i-1").unwrap();
        for slot in [
            Slot::Queue(class.clone()),
            Slot::Launches(class),
            Slot::Announcement(arn.clone()),
            Slot::Console(arn),
        ] {
            assert_eq!(slot.record(), None);
        }
    }
}
