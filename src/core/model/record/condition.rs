//! Conditions of requests and pools, as Kubernetes has them: type, status, reason, message and time.

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::state::words;

words! {
    /// What a condition is about.
    ConditionType {
        /// The request was checked and accepted.
        Accepted = "Accepted",
        /// It has what it asked for.
        Ready = "Ready",
        /// A machine was lost after it was ready.
        Degraded = "Degraded",
        /// Its intent was changed after it was accepted, and the change is ignored.
        IntentIgnored = "IntentIgnored",
        /// A pool lacks machines it should have.
        Warm = "Warm",
        /// A class cannot launch for now.
        Blocked = "Blocked",
        /// It has ended, and the records of some of its machines cannot be read.
        Unaccounted = "Unaccounted",
        /// Too many agents of a class fell silent at once to believe it.
        Doubtful = "Doubtful",
        /// An action keeps failing for the same reason.
        Stuck = "Stuck",
        /// A new version of the runner package failed, and is held back.
        RunnerHeldBack = "RunnerHeldBack",
        /// The maximum runtime of a ready request is over soon.
        RuntimeEnds = "RuntimeEnds",
        /// The messages of a scale set are read.
        Listening = "Listening",
        /// GitHub's support of the runner version that claims get ends soon.
        RunnerEnds = "RunnerEnds",
    }
}

/// A condition of a request or a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The subject of the condition.
    #[serde(rename = "type")]
    pub condition_type: ConditionType,
    /// Whether it holds.
    pub status: bool,
    /// One word, CamelCase, stable.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// When it began to hold.
    pub at: Timestamp,
}

impl Condition {
    /// Creates a condition as it is now. It keeps the time of the one in `before` that has the same type and status.
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

/// Parses the conditions of known types and skips the others, so that a newer program's condition does not make a
/// record unreadable.
pub(crate) fn known_conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Condition>, D::Error> {
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
