//! What a workflow asked for (its intent) and what became of it (the operator's status), in one record. What a
//! request holds is counted here and nowhere else: the claim spends this record's version.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::field::FieldError;
use super::ids::{ClaimId, InstanceId, Repository, RequestKey, RequestName, RunId};
use super::record::{Kind, Record, Versioned};
use super::selector::InstanceTypes;
use super::state::{UsageClass, words};
use super::stored::Key;

words! {
    /// What the workflow wants now.
    Desired {
        /// Machines.
        Provisioned = "provisioned",
        /// To give them back.
        Released = "released",
    }
}

words! {
    /// How far the operator is with a request.
    Phase {
        /// Nothing bound or launched yet.
        Pending = "Pending",
        /// Something is.
        Fulfilling = "Fulfilling",
        /// Its machines run.
        Ready = "Ready",
        /// Being given back.
        Releasing = "Releasing",
        /// All given back.
        Released = "Released",
        /// Refused, or not served in time.
        Failed = "Failed",
    }
}

impl Phase {
    /// Whether nothing changes any more.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Released | Self::Failed => true,
            Self::Pending | Self::Fulfilling | Self::Ready | Self::Releasing => false,
        }
    }

    /// Whether the request may still take machines.
    pub const fn wants_machines(self) -> bool {
        match self {
            Self::Pending | Self::Fulfilling | Self::Ready => true,
            Self::Releasing | Self::Released | Self::Failed => false,
        }
    }
}

words! {
    /// What a condition is about.
    ConditionType {
        /// The request was checked and taken on.
        Accepted = "Accepted",
        /// It has what it asked for.
        Ready = "Ready",
        /// A machine was lost after it was ready.
        Degraded = "Degraded",
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

/// What the workflow wrote. Numbers are as given; whether they make sense the operator judges when it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The class asked for, as given.
    pub resource_class: String,
    /// How many machines, 1 to 500.
    pub count: u32,
    /// How many are enough at the deadline.
    pub min_count: u32,
    /// How they must be paid for; none when it does not matter.
    pub usage_class: Option<UsageClass>,
    /// Whether a launch may fall back from spot to on-demand.
    pub on_demand_fallback: bool,
    /// Which types will do; replaces the pool's list.
    pub allowed_instance_types: Option<InstanceTypes>,
    /// How long a machine may run for it, in minutes; none for the class's own limit.
    pub max_runtime_minutes: Option<u64>,
    /// How long it waits, in seconds.
    pub timeout_seconds: u64,
    /// What is wanted now.
    pub desired: Desired,
    /// Rises with each change of intent.
    pub generation: u64,
    /// When the workflow wrote it, by its clock.
    pub created_at: Option<Timestamp>,
    /// When a person asked that it fail (`runyard fail`).
    pub fail_requested_at: Option<Timestamp>,
}

/// What the operator wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How far it is; none when no operator has seen it.
    pub phase: Option<Phase>,
    /// What it holds now.
    pub instances: Vec<InstanceId>,
    /// Under which claim it holds, or last held, each: a machine's record older than its claim says nothing about it.
    pub claims: BTreeMap<InstanceId, ClaimId>,
    /// What it ever held.
    pub served: Vec<InstanceId>,
    /// For a person.
    pub message: String,
    /// What is so, and why.
    pub conditions: Vec<Condition>,
    /// When it was taken on: its place in the line.
    pub accepted_at: Option<Timestamp>,
    /// When it fails unless it is ready.
    pub deadline: Option<Timestamp>,
    /// When it became ready.
    pub ready_at: Option<Timestamp>,
    /// How many machines it was content with at its deadline, when they were fewer than it asked for.
    pub settled_for: Option<u32>,
    /// The generation this status answers.
    pub observed_generation: u64,
    /// When the record may be deleted, epoch seconds.
    pub expires_at: Option<i64>,
}

/// The request record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which run, name and attempt.
    pub id: RequestKey,
    /// What is wanted.
    pub intent: Intent,
    /// What there is.
    pub status: Status,
    /// Counts the writes.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Option<Timestamp>,
}

/// How long an unanswered request waits, in seconds, unless it says otherwise.
pub const TIMEOUT_SECONDS: u64 = 600;

/// How long a machine may run for a request, in minutes, unless it or its class says otherwise.
pub const MAX_RUNTIME_MINUTES: u64 = 30;

impl Request {
    /// The key of a request.
    pub fn key_of(id: &RequestKey) -> Key {
        Key::new(
            format!("request#{}#{}", id.repository, id.run_id),
            format!("request#{}#{}", id.name, id.attempt),
        )
    }

    /// What a key names, if it is a request's.
    ///
    /// # Errors
    /// Names the part of the key that is wrong.
    pub fn id_of(key: &Key) -> Result<RequestKey, FieldError> {
        let wrong =
            || FieldError::new("pk", key.to_string(), "not the key of a request", "see contract, section 1");
        let (repository, run_id) =
            key.pk.strip_prefix("request#").and_then(|rest| rest.split_once('#')).ok_or_else(wrong)?;
        let (name, attempt) =
            key.sk.strip_prefix("request#").and_then(|rest| rest.split_once('#')).ok_or_else(wrong)?;
        let id = RequestKey {
            repository: Repository::parse(repository)?,
            run_id: RunId::parse(run_id)?,
            name: RequestName::parse(name)?,
            attempt: attempt.parse().map_err(|_| wrong())?,
        };
        // One request, one key: `#01` would be another record under the same name.
        if Self::key_of(&id) == *key { Ok(id) } else { Err(wrong()) }
    }

    /// The phase, a new request being `Pending` to whoever asks.
    pub fn phase(&self) -> Phase {
        self.status.phase.unwrap_or(Phase::Pending)
    }

    /// Its place in its class's line: oldest first, then by key. A request nobody accepted yet comes last.
    pub fn rank(&self) -> (Timestamp, RequestKey) {
        (self.status.accepted_at.unwrap_or(Timestamp::MAX), self.id.clone())
    }
}

/// The one label of the runners that serve a request: the run's id, with the request's name unless that is `default`.
pub fn label(id: &RequestKey) -> String {
    if id.name == RequestName::default_name() {
        id.run_id.to_string()
    } else {
        format!("{}-{}", id.run_id, id.name)
    }
}

/// The name of the runner that serves a claim; `seq` tells the boxes of one claim apart (mode `job`).
pub fn runner_name(claim: &ClaimId, seq: u64) -> String {
    if seq <= 1 { format!("runyard-{claim}") } else { format!("runyard-{claim}-{seq}") }
}

/// The flat stored form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRow {
    run_id: RunId,
    attempt: u32,
    repository: Repository,
    name: RequestName,
    resource_class: String,
    count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage_class: Option<UsageClass>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_demand_fallback: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_instance_types: Option<InstanceTypes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_runtime_minutes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
    desired: Desired,
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instances: Option<Vec<InstanceId>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    claims: BTreeMap<InstanceId, ClaimId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    served: Vec<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, deserialize_with = "known_conditions", skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled_for: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observed_generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

impl Record for Request {
    const KIND: Kind = Kind::Request;
    type Row = RequestRow;

    fn key(&self) -> Key {
        Self::key_of(&self.id)
    }

    fn to_row(&self) -> RequestRow {
        let (id, intent, status) = (&self.id, &self.intent, &self.status);
        let seen = status.phase.is_some();
        RequestRow {
            run_id: id.run_id.clone(),
            attempt: id.attempt,
            repository: id.repository.clone(),
            name: id.name.clone(),
            resource_class: intent.resource_class.clone(),
            count: intent.count,
            min_count: (intent.min_count != intent.count).then_some(intent.min_count),
            usage_class: intent.usage_class,
            on_demand_fallback: intent.on_demand_fallback.then_some(true),
            allowed_instance_types: intent.allowed_instance_types.clone(),
            max_runtime_minutes: intent.max_runtime_minutes,
            timeout_seconds: (intent.timeout_seconds != TIMEOUT_SECONDS).then_some(intent.timeout_seconds),
            desired: intent.desired,
            generation: intent.generation,
            created_at: intent.created_at,
            fail_requested_at: intent.fail_requested_at,
            phase: status.phase,
            instances: seen.then(|| status.instances.clone()),
            claims: status.claims.clone(),
            served: status.served.clone(),
            message: seen.then(|| status.message.clone()),
            conditions: status.conditions.clone(),
            accepted_at: status.accepted_at,
            deadline: status.deadline,
            ready_at: status.ready_at,
            settled_for: status.settled_for,
            observed_generation: seen.then_some(status.observed_generation),
            expires_at: status.expires_at,
            version: self.version,
            updated_at: self.updated_at,
        }
    }

    fn from_row(key: &Key, row: RequestRow) -> Result<Self, FieldError> {
        let id = RequestKey {
            repository: row.repository,
            run_id: row.run_id,
            name: row.name,
            attempt: row.attempt,
        };
        Self::id_of(key)?;
        Ok(Self {
            id,
            intent: Intent {
                resource_class: row.resource_class,
                count: row.count,
                min_count: row.min_count.unwrap_or(row.count),
                usage_class: row.usage_class,
                on_demand_fallback: row.on_demand_fallback.unwrap_or(false),
                allowed_instance_types: row.allowed_instance_types,
                max_runtime_minutes: row.max_runtime_minutes,
                timeout_seconds: row.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
                desired: row.desired,
                generation: row.generation,
                created_at: row.created_at,
                fail_requested_at: row.fail_requested_at,
            },
            status: Status {
                phase: row.phase,
                instances: row.instances.unwrap_or_default(),
                claims: row.claims,
                served: row.served,
                message: row.message.unwrap_or_default(),
                conditions: row.conditions,
                accepted_at: row.accepted_at,
                deadline: row.deadline,
                ready_at: row.ready_at,
                settled_for: row.settled_for,
                observed_generation: row.observed_generation.unwrap_or(0),
                expires_at: row.expires_at,
            },
            version: row.version,
            updated_at: row.updated_at,
        })
    }
}

impl Versioned for Request {
    fn version(&self) -> u64 {
        self.version
    }

    fn advance(&mut self, now: Timestamp) {
        self.version += 1;
        self.updated_at = Some(now);
    }
}

#[cfg(test)]
mod tests;
