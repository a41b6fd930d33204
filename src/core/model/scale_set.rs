//! The record of a runner scale set: the queue of jobs that GitHub keeps for a class, as the operator last saw it. Only
//! the lease's holder writes it. What it says of jobs is a hint; a slot is a request, and lives by its own record.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::condition::{Condition, known_conditions};
use super::record::field::FieldError;
use super::record::identity::{Kind, RecordId};
use super::record::ids::{ClassName, RequestKey, RequestName, RunId, Uid};
use super::record::set_place::SetPlace;
use super::record::state::words;
use super::record::{Record, Versioned};

words! {
    /// How far the operator is with a scale set.
    SetState {
        /// The set is looked up, made or changed at GitHub.
        Ensuring = "Ensuring",
        /// The set is there, and another listener has its session.
        Waiting = "Waiting",
        /// Messages are read.
        Listening = "Listening",
        /// The class does not serve the set any more: its slots end, then the set is deleted.
        Draining = "Draining",
        /// The set was deleted.
        Gone = "Gone",
    }
}

/// How many jobs and runners a set has, as GitHub last counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u32>")]
pub struct SetCounts {
    /// Jobs that wait for a runner of the set or run on one.
    pub assigned: u32,
    /// Jobs that run.
    pub running: u32,
    /// Runners that are registered.
    pub registered: u32,
    /// Runners with a job.
    pub busy: u32,
    /// Runners without one.
    pub idle: u32,
}

impl From<BTreeMap<String, u32>> for SetCounts {
    /// A count that is absent is 0, and others than these are ignored.
    fn from(counts: BTreeMap<String, u32>) -> Self {
        let of = |name: &str| counts.get(name).copied().unwrap_or_default();
        let [assigned, running, registered, busy, idle] =
            ["assigned", "running", "registered", "busy", "idle"].map(of);
        Self { assigned, running, registered, busy, idle }
    }
}

/// The record of a scale set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetRecord {
    /// The class and the place, from the key.
    #[serde(skip)]
    pub key: Option<(ClassName, SetPlace)>,
    /// GitHub's number of the set; none before it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_set_id: Option<u64>,
    /// Its name at GitHub: the first of its labels.
    pub set_name: String,
    /// Its labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// GitHub's number of its runner group.
    #[serde(default)]
    pub runner_group_id: u64,
    /// The number of the last message whose jobs have their slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message_id: Option<u64>,
    /// How many jobs it was announced to hold at most.
    #[serde(default)]
    pub announced: u32,
    /// GitHub's counts.
    #[serde(default)]
    pub statistics: SetCounts,
    /// When GitHub counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics_at: Option<Timestamp>,
    /// The number of the next slot; numbers are never used again.
    #[serde(default)]
    pub next_slot: u64,
    /// How far the operator is with it.
    pub state: SetState,
    /// Its conditions.
    #[serde(default, deserialize_with = "known_conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The record's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The number of writes.
    pub version: u64,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

impl SetRecord {
    /// Builds the record of a set that nothing is known of yet.
    #[must_use]
    pub fn born(class: ClassName, place: SetPlace, labels: Vec<String>, uid: Uid) -> Self {
        Self {
            key: Some((class, place)),
            scale_set_id: None,
            set_name: labels.first().cloned().unwrap_or_default(),
            labels,
            runner_group_id: 0,
            last_message_id: None,
            announced: 0,
            statistics: SetCounts::default(),
            statistics_at: None,
            next_slot: 1,
            state: SetState::Ensuring,
            conditions: Vec::new(),
            uid: Some(uid),
            version: 0,
            updated_at: None,
        }
    }

    /// Returns the key of a set's record.
    #[must_use]
    pub const fn key_of(class: ClassName, place: SetPlace) -> RecordId {
        RecordId::Queue(class, place)
    }

    /// Returns the key of the slot of a number; none before the set is there.
    #[must_use]
    pub fn slot(&self, number: u64) -> Option<RequestKey> {
        let (_, place) = self.key.as_ref()?;
        Some(RequestKey {
            repository: place.of_slots().clone(),
            run_id: RunId::parse(&format!("set-{}", self.scale_set_id?)).ok()?,
            name: RequestName::parse(&format!("s{number}")).ok()?,
            attempt: 1,
        })
    }
}

/// Returns the number of a slot among those of its set.
#[must_use]
pub fn slot_number(slot: &RequestKey) -> Option<u64> {
    slot.set().and_then(|_| slot.name.as_str().strip_prefix('s')?.parse().ok())
}

impl Record for SetRecord {
    const KIND: Kind = Kind::Queue;
    type Row = Self;

    fn key(&self) -> RecordId {
        let (class, place) = self.key.clone().expect("a record of a set is made from its key");
        Self::key_of(class, place)
    }

    fn to_row(&self) -> Self {
        self.clone()
    }

    fn from_row(key: &RecordId, row: Self) -> Result<Self, FieldError> {
        let RecordId::Queue(class, place) = key else {
            return Err(FieldError::new(
                "pk",
                key.to_string(),
                "not the key of a queue",
                "see contract, section 1",
            ));
        };
        Ok(Self { key: Some((class.clone(), place.clone())), ..row })
    }
}

impl Versioned for SetRecord {
    fn version(&self) -> u64 {
        self.version
    }

    fn uid(&self) -> Option<&Uid> {
        self.uid.as_ref()
    }

    fn advance(&mut self, now: Timestamp) {
        self.version += 1;
        self.updated_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Reading, read};

    #[test]
    fn a_set_is_kept_under_its_class_and_its_place() {
        for (place, slots) in [("acme", "acme/~"), ("Acme/Web", "acme/web")] {
            let place = SetPlace::parse(place).unwrap();
            assert_eq!(place.of_slots().as_str(), slots);
            let labels = vec!["runyard-small".to_owned()];
            let uid = Uid::parse("u-1").unwrap();
            let mut set = SetRecord::born(ClassName::parse("small").unwrap(), place.clone(), labels, uid);
            assert_eq!(set.slot(1), None, "it has no number yet");
            set.scale_set_id = Some(7);
            let slot = set.slot(12).unwrap();
            let key = RecordId::from(&slot);
            assert_eq!((key.pk(), key.sk()), (format!("request#{slots}#set-7"), "request#s12#1".to_owned()));
            assert_eq!((slot.set(), slot_number(&slot)), (Some(7), Some(12)));
            let key = set.key();
            assert_eq!((key.pk(), key.sk()), ("queue#small".to_owned(), format!("queue#{place}")));
            assert_eq!(RecordId::new(key.pk(), key.sk()), key);
            assert_eq!(read::<SetRecord>(&set.to_item()), Reading::Record(set));
        }
        for bad in ["", "a b", "acme/~", "acme/", "~"] {
            assert!(SetPlace::parse(bad).is_err(), "{bad}");
        }
    }
}
