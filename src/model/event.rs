//! What happened, for people: one record per transition, under the key of its subject, kept for a week.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::record::{Kind, Record};
use super::state::words;
use super::stored::Key;

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
    /// Unique among events of one moment.
    #[serde(skip)]
    pub id: String,
    /// Whether a person should mind.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// One word, CamelCase, stable.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Who did it: `operator`, `cli`, a person's name.
    pub actor: String,
    /// The pk of the record it is about.
    pub subject: String,
    /// The state or phase before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The state or phase after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// When.
    pub at: Timestamp,
    /// When the record may be deleted, epoch seconds.
    pub expires_at: i64,
    /// When it was written.
    pub updated_at: Timestamp,
}

impl Event {
    /// An event about the record under `subject` (a pk).
    pub fn new(subject: &str, id: String, at: Timestamp, actor: &str) -> Self {
        Self {
            id,
            event_type: EventType::Normal,
            reason: String::new(),
            message: String::new(),
            actor: actor.to_owned(),
            subject: subject.to_owned(),
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

    fn key(&self) -> Key {
        Key::new(&self.subject, format!("event#{}#{}", self.at, self.id))
    }

    fn to_row(&self) -> Self {
        self.clone()
    }

    fn from_row(key: &Key, row: Self) -> Result<Self, FieldError> {
        let id = key.sk.rsplit_once('#').map(|(_, id)| id.to_owned()).unwrap_or_default();
        Ok(Self { id, ..row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_kept_for_a_week() {
        let at: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
        let event = Event::new("pool#linux", "7".into(), at, "operator");
        assert_eq!(event.expires_at - at.as_second(), 604_800);
    }
}
