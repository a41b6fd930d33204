//! What is, or is not, so about a request or a pool, why, and since when.

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::state::words;

words! {
    /// What a condition is about.
    ConditionType {
        /// The request was checked and taken on.
        Accepted = "Accepted",
        /// It has what it asked for.
        Ready = "Ready",
        /// A machine was lost after it was ready.
        Degraded = "Degraded",
        /// Its intent was changed after it was taken on, and the change is not served.
        IntentIgnored = "IntentIgnored",
        /// A pool lacks machines it should have.
        Warm = "Warm",
        /// A class cannot launch for now.
        Blocked = "Blocked",
        /// It is over, and what became of some of its machines nobody can read.
        Unaccounted = "Unaccounted",
        /// So many agents of a class fell silent at once that their silence itself is in doubt.
        Doubtful = "Doubtful",
        /// Something is tried again and again and fails for the same reason.
        Stuck = "Stuck",
    }
}

/// One thing that is, or is not, so, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub condition_type: ConditionType,
    /// Whether it is so.
    pub status: bool,
    /// One word, CamelCase, stable.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Since when.
    pub at: Timestamp,
}

impl Condition {
    /// A condition as it is now: where one of `before` says the same, since when it is so is kept.
    pub fn since(
        before: &[Self],
        condition_type: ConditionType,
        status: bool,
        reason: &str,
        message: String,
        now: Timestamp,
    ) -> Self {
        let before = before.iter().find(|c| c.condition_type == condition_type && c.status == status);
        let at = before.map_or(now, |c| c.at);
        Self { condition_type, status, reason: reason.into(), message, at }
    }
}

/// The conditions of a status that are known here: one of a newer program makes nothing unreadable.
pub(super) fn known_conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Condition>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Told {
        Known(Condition),
        Other(IgnoredAny),
    }
    let known = |told| match told {
        Told::Known(condition) => Some(condition),
        Told::Other(IgnoredAny) => None,
    };
    Ok(Vec::<Told>::deserialize(from)?.into_iter().filter_map(known).collect())
}
