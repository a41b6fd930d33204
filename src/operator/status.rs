//! The status page's snapshot of the yard: pools, machines with their recent timelines, and requests with the reasons
//! why they wait. It is read from the loop's index, bounded in size, and holds no secret.

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

/// Most pools told at once.
pub const MOST_POOLS: usize = 100;
/// The most shares of a pool.
pub const MOST_SHARES: usize = 8;
/// Most machines told at once: about 500 B each, and more than a person looks at.
pub const MOST_MACHINES: usize = 500;
/// Most requests told at once.
pub const MOST_REQUESTS: usize = 300;
/// Most events told at once.
pub const MOST_EVENTS: usize = 50;
/// Longest sentence told, in characters.
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
    /// Whether this operator holds the lease; a stand-by sees the same yard.
    pub leader: bool,
    /// Why nobody leads, where no operator does: nothing is launched then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaderless: Option<String>,
    /// Whether GitHub did not answer when it was last asked for some account.
    pub github_down: bool,
    /// Records that cannot be read, those of a newer program included.
    pub unreadable: usize,
    /// Since when this operator remembers what machines were.
    pub remembers_since: Timestamp,
    /// The classes.
    pub pools: Vec<PoolStatus>,
    /// How many more there are.
    pub pools_left_out: usize,
    /// Machines: those that serve or start first, then the idle ones, then those that ended lately.
    pub machines: Vec<MachineStatus>,
    /// How many more there are.
    pub machines_left_out: usize,
    /// Requests that are not over, the oldest first, then those that ended lately.
    pub requests: Vec<RequestStatus>,
    /// How many more there are.
    pub requests_left_out: usize,
    /// The last events, the newest first.
    pub events: Vec<EventStatus>,
    /// The last hours.
    pub trend: Trend,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventStatus {
    /// Its key, which no other event has.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: &'static str,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Who did it.
    pub actor: String,
    /// The partition key of the record it is about.
    pub subject: String,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Its name.
    pub class: String,
    /// Idle machines wanted now; none without a pool record.
    pub desired: Option<u32>,
    /// The floor for schedules and people.
    pub min: Option<u32>,
    /// Most live machines.
    pub max: Option<u32>,
    /// Machines that are not ended, by where they are.
    pub have: BTreeMap<MachinePhase, u32>,
    /// All of them.
    pub live: u32,
    /// Machines that launches may still bring.
    pub in_flight: u32,
    /// Whether people paused it.
    pub paused: bool,
    /// Until when launches are held back after failures.
    pub held_back_seconds: Option<u64>,
    /// The status's sentence.
    pub message: String,
    /// What an hour of its live machines costs; none without machines, or where no price of theirs is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostStatus>,
    /// Its shares, those that used most first and at most [`MOST_SHARES`]; none without `sharing`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareStatus>,
    /// How many shares are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub shares_left_out: usize,
}

/// What an hour of a class's machines costs as they are now, by the tables of prices, in dollars with two decimals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CostStatus {
    /// All of them.
    pub hour: String,
    /// Of that, those that are idle in the pool.
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
    /// Its part of what all shares of the class used lately, in thousandths.
    pub used_permille: u32,
    /// Machines that its requests hold.
    pub machines: u32,
    /// Its requests that wait.
    pub waiting: u32,
    /// Most machines it may hold.
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
    /// The region, for a machine of EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// EC2's type.
    pub instance_type: String,
    /// How it is paid for.
    pub usage_class: &'static str,
    /// Where it is, or `gone`.
    pub is: MachinePhase,
    /// Since when.
    pub since: Timestamp,
    /// Until when it may stay there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The request that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What its agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<&'static str>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// How many claims it has run.
    pub uses: u32,
    /// What it was, the oldest first.
    pub spans: Vec<PhaseSpan>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// Repository, run, name and attempt.
    pub request: String,
    /// The class it asks for.
    pub class: String,
    /// How far it is.
    pub phase: &'static str,
    /// How many machines it wants.
    pub count: u32,
    /// How many it holds.
    pub held: usize,
    /// When it was taken on.
    pub accepted_at: Option<Timestamp>,
    /// When it fails unless it is ready.
    pub deadline: Option<Timestamp>,
    /// When it became ready.
    pub ready_at: Option<Timestamp>,
    /// The status's sentence.
    pub message: String,
    /// Why it waits.
    pub waits: Vec<String>,
    /// When it can be expected to be ready, where that can be said.
    pub expected_at: Option<Timestamp>,
    /// What that is drawn from, or why it cannot be said.
    pub expected: Option<String>,
}

/// A sentence, cut where it is long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
