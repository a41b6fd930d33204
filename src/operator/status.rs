//! The status page's snapshot of the yard: pools, machines with their recent timelines, and requests with the reasons
//! why they wait. It is read from the loop's index, bounded in size, and contains no secret.

mod changes;
mod channel;
mod health;
mod history;
mod phase;
mod snapshot;
#[cfg(test)]
mod tests;
mod trend;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

pub use channel::{ANSWER_TIMEOUT, Closed, SnapshotChannel};
pub use health::{Health, SILENCE, Unready};
pub use history::{History, PhaseSpan};
pub use phase::MachinePhase;
pub use snapshot::{SnapshotInput, snapshot};
pub use trend::Trend;

/// Maximum number of pools in a snapshot.
pub const MOST_POOLS: usize = 100;
/// Maximum number of shares of a pool.
pub const MOST_SHARES: usize = 8;
/// Maximum number of scale sets of a pool.
pub const MOST_SETS: usize = 8;
/// Maximum number of machines in a snapshot: about 500 B each, and more than a person looks at.
pub const MOST_MACHINES: usize = 500;
/// Maximum number of requests in a snapshot.
pub const MOST_REQUESTS: usize = 300;
/// Maximum number of events in a snapshot.
pub const MOST_EVENTS: usize = 50;
/// Maximum length of a sentence, in characters.
const LONGEST: usize = 300;

/// The yard at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The operator's wall clock.
    pub at: Timestamp,
    /// The program's version.
    pub version: &'static str,
    /// The table.
    pub table: String,
    /// Whether this operator holds the lease; a standby sees the same yard.
    pub leader: bool,
    /// Why there is no leader, if there is none: nothing is launched then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaderless: Option<String>,
    /// Whether the last call to GitHub failed for some account.
    pub github_down: bool,
    /// Number of unreadable records, those of a newer program included.
    pub unreadable: usize,
    /// Since when this operator has recorded the timelines of machines.
    pub remembers_since: Timestamp,
    /// The classes.
    pub pools: Vec<PoolStatus>,
    /// Number of omitted classes.
    pub pools_left_out: usize,
    /// Machines: busy or starting ones first, then idle ones, then recently ended ones.
    pub machines: Vec<MachineStatus>,
    /// Number of omitted machines.
    pub machines_left_out: usize,
    /// Open requests, oldest first, then recently ended ones.
    pub requests: Vec<RequestStatus>,
    /// Number of omitted requests.
    pub requests_left_out: usize,
    /// The last events, newest first.
    pub events: Vec<EventStatus>,
    /// The trend of the last hours.
    pub trend: Trend,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventStatus {
    /// Its key, which is unique.
    pub id: String,
    /// When it happened.
    pub at: Timestamp,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: &'static str,
    /// The reason in one word.
    pub reason: String,
    /// The message: a sentence.
    pub message: String,
    /// The actor.
    pub actor: String,
    /// The partition key of its record.
    pub subject: String,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Its name.
    pub class: String,
    /// Idle machines wanted now; `None` without a pool record.
    pub desired: Option<u32>,
    /// The minimum for schedules and people.
    pub min: Option<u32>,
    /// The maximum number of live machines.
    pub max: Option<u32>,
    /// Machines that have not ended, by phase.
    pub have: BTreeMap<MachinePhase, u32>,
    /// Their total number.
    pub live: u32,
    /// Machines that launches may still start.
    pub in_flight: u32,
    /// Whether people paused it.
    pub paused: bool,
    /// How long launches are held back after failures.
    pub held_back_seconds: Option<u64>,
    /// The status's sentence.
    pub message: String,
    /// Its scale sets, at most [`MOST_SETS`] lines; empty without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// The hourly cost of its live machines; `None` without machines, or if none of their prices is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostStatus>,
    /// Its shares, highest use first and at most [`MOST_SHARES`]; empty without `sharing`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareStatus>,
    /// Number of omitted shares.
    #[serde(skip_serializing_if = "is_zero")]
    pub shares_left_out: usize,
}

/// The present hourly cost of a class's machines by the price tables, in dollars with two decimals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CostStatus {
    /// The cost of all machines.
    pub hour: String,
    /// The part of machines that are idle in the pool.
    pub idle_hour: String,
    /// Machines of types without a price, which are in neither.
    #[serde(skip_serializing_if = "is_zero")]
    pub unpriced: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A share of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareStatus {
    /// Its name.
    pub share: String,
    /// Its weight.
    pub weight: u32,
    /// Its part of the recent use of all shares of the class, in thousandths.
    pub used_permille: u32,
    /// Machines that its requests hold.
    pub machines: u32,
    /// Its waiting requests.
    pub waiting: u32,
    /// Maximum number of machines that it may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_machines: Option<u32>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Its id.
    pub id: String,
    /// Its class.
    pub class: String,
    /// The region, for a machine on EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// EC2's type.
    pub instance_type: String,
    /// Its usage class.
    pub usage_class: &'static str,
    /// Its phase, or `gone`.
    pub is: MachinePhase,
    /// When the phase began.
    pub since: Timestamp,
    /// Its deadline in this phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The request that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The signal of its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<&'static str>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Number of claims that it has run.
    pub uses: u32,
    /// Its phases, oldest first.
    pub spans: Vec<PhaseSpan>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// Repository, run, name and attempt.
    pub request: String,
    /// The requested class.
    pub class: String,
    /// Its phase.
    pub phase: &'static str,
    /// Number of requested machines.
    pub count: u32,
    /// Number of machines that it holds.
    pub held: usize,
    /// When it was accepted.
    pub accepted_at: Option<Timestamp>,
    /// When it fails unless it is ready.
    pub deadline: Option<Timestamp>,
    /// When it became ready.
    pub ready_at: Option<Timestamp>,
    /// The status's sentence.
    pub message: String,
    /// The reasons why it waits.
    pub waits: Vec<String>,
    /// When it can be expected to be ready, if that is known.
    pub expected_at: Option<Timestamp>,
    /// The basis of that estimate, or why there is none.
    pub expected: Option<String>,
}

/// Cuts a long sentence.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
