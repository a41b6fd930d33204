//! The activities of a machine, as its record stores them. The record has the completed spans; the current one follows
//! from its state. A span ends where the next one begins, so there are no gaps to store.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::agent::claim_proof::ClaimEnd;
use super::transition::Place;
use crate::model::record::identity::RecordId;
use crate::model::record::state::words;

words! {
    /// What a machine does.
    Activity {
        /// It boots, for a request or for the pool.
        Starting = "starting",
        /// It is in the pool.
        Idle = "idle",
        /// A request has it, and its runner is not registered yet.
        Claimed = "claimed",
        /// Its runner is registered.
        Running = "running",
        /// It is cleaned after a request.
        Cleaning = "cleaning",
        /// A person keeps it to look at it.
        Held = "held",
        /// Its end is decided, and EC2 has not confirmed it.
        Ending = "ending",
    }
}

impl Activity {
    fn of(place: Place) -> Option<Self> {
        match place {
            Place::Nowhere => None,
            Place::CreatedBound | Place::CreatedWarm => Some(Self::Starting),
            Place::Claimed => Some(Self::Claimed),
            Place::Running => Some(Self::Running),
            Place::IdleCleaning => Some(Self::Cleaning),
            Place::IdleHeld => Some(Self::Held),
            Place::IdlePooled => Some(Self::Idle),
            Place::Terminated => Some(Self::Ending),
        }
    }

    /// Returns whether its seconds may belong to a request.
    pub const fn serves(self) -> bool {
        match self {
            Self::Starting | Self::Claimed | Self::Running | Self::Cleaning => true,
            Self::Held | Self::Idle | Self::Ending => false,
        }
    }
}

/// A completed span, as the instance record stores it: it ends where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastSpan {
    /// The machine's activity.
    pub activity: Activity,
    /// The beginning.
    pub from: Timestamp,
    /// The request that it served; absent where it is that of the span before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordId>,
    /// The trust domain that the machine was of, in a span that a claim ended; absent where no statement is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// The end of the claim whose last span this is; absent where no statement is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Box<ClaimEnd>>,
}

impl PastSpan {
    /// Creates a span with nothing for a statement.
    pub const fn new(activity: Activity, from: Timestamp, request: Option<RecordId>) -> Self {
        Self { activity, from, request, trust_domain: None, claim: None }
    }
}

/// Most spans that a record keeps while the history table does not take them, 16 claims; the oldest stretch is dropped
/// first.
pub const MOST_PAST_SPANS: usize = 64;

/// Returns the request of a machine that serves it, or is cleaned after it.
fn served(place: Place, request: Option<&RecordId>) -> Option<&RecordId> {
    match place {
        Place::CreatedBound | Place::Claimed | Place::Running | Place::IdleCleaning => request,
        Place::Nowhere | Place::CreatedWarm | Place::IdleHeld | Place::IdlePooled | Place::Terminated => None,
    }
}

/// Returns the request of the last of some spans.
fn last_served(spans: &[PastSpan]) -> Option<&RecordId> {
    let mut serving = spans.iter().rev().take_while(|span| span.activity.serves());
    serving.find_map(|span| span.request.as_ref())
}

/// Returns the span that a machine is in since a given time, with the request that it is or was lent to, after others.
pub(crate) fn present(
    place: Place,
    from: Timestamp,
    request: Option<&RecordId>,
    past: &[PastSpan],
) -> Option<PastSpan> {
    let activity = Activity::of(place)?;
    let request = served(place, request).filter(|request| Some(*request) != last_served(past));
    Some(PastSpan::new(activity, from, request.cloned()))
}

/// Stores a completed span.
pub(crate) fn keep(past: &mut Vec<PastSpan>, over: Option<PastSpan>) {
    past.extend(over);
    while past.len() > MOST_PAST_SPANS {
        drop_first(past);
    }
}

/// Drops the first stretch.
pub(crate) fn drop_first(spans: &mut Vec<PastSpan>) {
    let next = spans.iter().skip(1).position(begins);
    spans.drain(..next.map_or(spans.len(), |at| at + 1));
}

/// Returns whether a stretch begins with this span.
pub(crate) fn begins(span: &PastSpan) -> bool {
    span.activity == Activity::Idle
}
