//! Events for people: one record per transition, under the key of its subject, kept for a week.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::identity::{Kind, RecordId};
use super::state::words;
use crate::model::record::Record;

words! {
    /// Whether a person should mind.
    EventType {
        /// As intended.
        Normal = "Normal",
        /// Something went wrong.
        Warning = "Warning",
    }
}

/// How long events are kept, in seconds.
const KEPT: i64 = 7 * 24 * 3600;

/// An event record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its position among the events of its subject: `<time>#<unique part>`. The time has a fixed length, so that
    /// events sort in their order.
    #[serde(skip)]
    pub place: String,
    /// Whether it needs a person's attention.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// One word, CamelCase, stable.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The actor: `operator`, `cli`, or a person's name.
    pub actor: String,
    /// The pk of the record it is about.
    pub subject: String,
    /// The state or phase before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The state or phase after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The time.
    pub at: Timestamp,
    /// When the record may be deleted, epoch seconds.
    pub expires_at: i64,
    /// When it was written.
    pub updated_at: Timestamp,
}

impl Event {
    /// Creates an event about a record.
    pub fn new(subject: &RecordId, id: String, at: Timestamp, actor: &str) -> Self {
        Self {
            place: format!("{at:.3}#{id}"),
            event_type: EventType::Normal,
            reason: String::new(),
            message: String::new(),
            actor: actor.to_owned(),
            subject: subject.pk(),
            from: None,
            to: None,
            at,
            expires_at: at.as_second() + KEPT,
            updated_at: at,
        }
    }
}

impl Record for Event {
    const KIND: Kind = Kind::Event;
    type Row = Self;

    fn key(&self) -> RecordId {
        RecordId::Event { subject: self.subject.as_str().into(), place: self.place.as_str().into() }
    }

    fn to_row(&self) -> Self {
        self.clone()
    }

    fn from_row(key: &RecordId, row: Self) -> Result<Self, FieldError> {
        Ok(Self { place: key.sk().strip_prefix("event#").unwrap_or_default().to_owned(), ..row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> RecordId {
        RecordId::new("pool#linux", "pool")
    }

    #[test]
    fn an_event_is_kept_for_a_week() {
        let at: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
        let event = Event::new(&pool(), "7".into(), at, "operator");
        assert_eq!(event.expires_at - at.as_second(), 604_800);
    }

    #[test]
    fn events_of_a_subject_stand_in_the_order_in_which_they_happened() {
        let sk = |at: &str| Event::new(&pool(), "7".into(), at.parse().unwrap(), "operator").key().sk();
        let times = ["2026-01-05T12:00:05Z", "2026-01-05T12:00:05.12Z", "2026-01-05T12:00:05.121Z"];
        let keys = times.map(sk);
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(keys[0], "event#2026-01-05T12:00:05.000Z#7");
    }

    #[test]
    fn an_event_of_somebody_elses_key_keeps_it() {
        let at = "2026-01-05T12:00:05.120Z".parse().unwrap();
        let event = Event::new(&pool(), "7".into(), at, "ada");
        for sk in ["event#2026-01-05T12:00:05Z#a-b", "event#2026-01-05T12:00:05.120Z#7", "event#now#x#y"] {
            let mut item = event.to_item();
            item.insert("sk".into(), crate::model::AttributeValue::S(sk.into()));
            match crate::model::read::<Event>(&item) {
                crate::model::Reading::Record(event) => assert_eq!(event.key().sk(), sk),
                other => panic!("{sk}: {other:?}"),
            }
        }
    }
}
