//! What a workflow asked for (its intent) and what became of it (the operator's status), in one record. What a
//! request holds is counted here and nowhere else: the claim spends this record's version.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::field::FieldError;
use super::identity::{self, Kind, RecordId};
use super::ids::{ClaimId, InstanceId, LabelSuffix, Repository, RequestKey, RequestName, RunId, Uid};
use super::instance::Instance;
use super::record::{Record, Versioned};
use super::selector::InstanceTypes;
use super::state::{UsageClass, words};
use super::time::after;

mod intents;

pub use intents::{LONGEST_RUNTIME_MINUTES, LONGEST_TIMEOUT_SECONDS, MOST_MACHINES, NewIntent, release};

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

words! {
    /// Why the operator released a request that its workflow did not release.
    ReleasedBy {
        /// It was ready for its maximum runtime.
        MaxRuntime = "max-runtime",
        /// GitHub says that its run is over.
        RunEnded = "run-ended",
        /// A newer attempt of its run asks under the same name.
        Superseded = "superseded",
    }
}

/// What the workflow wrote. Numbers are as given; whether they make sense the operator judges when it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The repository as the workflow writes it; the key has it in lower case.
    pub repository: Repository,
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
    /// The secret part of its label, if it has one.
    pub label_suffix: Option<LabelSuffix>,
    /// What is wanted now.
    pub desired: Desired,
    /// Rises with each change of intent.
    pub generation: u64,
    /// When the workflow wrote it, by its clock.
    pub created_at: Option<Timestamp>,
    /// When a person asked that it fail (`runyard fail`).
    pub fail_requested_at: Option<Timestamp>,
    /// Whether a person tries the class (`runyard try`): there is no such run at GitHub, and GitHub is not asked for it.
    pub trial: bool,
}

/// The part of an intent that is served as it was when the request was taken on, whatever is written there later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    resource_class: String,
    count: u32,
    min_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage_class: Option<UsageClass>,
    on_demand_fallback: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_instance_types: Option<InstanceTypes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_runtime_minutes: Option<u64>,
    timeout_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label_suffix: Option<LabelSuffix>,
}

impl Accepted {
    fn of(intent: &Intent) -> Self {
        Self {
            resource_class: intent.resource_class.clone(),
            count: intent.count,
            min_count: intent.min_count,
            usage_class: intent.usage_class,
            on_demand_fallback: intent.on_demand_fallback,
            allowed_instance_types: intent.allowed_instance_types.clone(),
            max_runtime_minutes: intent.max_runtime_minutes,
            timeout_seconds: intent.timeout_seconds,
            label_suffix: intent.label_suffix.clone(),
        }
    }

    /// The intent that is served of what is written now.
    fn within(self, written: &Intent) -> Intent {
        Intent {
            resource_class: self.resource_class,
            count: self.count,
            min_count: self.min_count,
            usage_class: self.usage_class,
            on_demand_fallback: self.on_demand_fallback,
            allowed_instance_types: self.allowed_instance_types,
            max_runtime_minutes: self.max_runtime_minutes,
            timeout_seconds: self.timeout_seconds,
            label_suffix: self.label_suffix,
            repository: written.repository.clone(),
            desired: written.desired,
            generation: written.generation,
            created_at: written.created_at,
            fail_requested_at: written.fail_requested_at,
            trial: written.trial,
        }
    }
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
    /// Whether the record keeps what was taken on; those of operators before this one do not.
    pub accepted: bool,
    /// Why the operator released it, if it did.
    pub released_by: Option<ReleasedBy>,
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
    /// What is wanted and served: as it was taken on, and before that as it is written.
    pub intent: Intent,
    /// The intent as it is written now, where that is not what is served.
    pub written: Option<Box<Intent>>,
    /// What there is.
    pub status: Status,
    /// Which record this is; none in those written before there were any.
    pub uid: Option<Uid>,
    /// Counts the writes.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Option<Timestamp>,
}

/// How long an unanswered request waits, in seconds, unless it says otherwise.
pub const TIMEOUT_SECONDS: u64 = 600;

/// How long a machine may run for a request, in minutes, unless it or its class says otherwise.
pub const MAX_RUNTIME_MINUTES: u64 = 30;

impl Status {
    /// Sets a condition, keeping since when it is so.
    pub fn set_condition(
        &mut self,
        condition_type: ConditionType,
        is: bool,
        reason: &str,
        message: String,
        now: Timestamp,
    ) {
        let condition = Condition::since(&self.conditions, condition_type, is, reason, message, now);
        self.conditions.retain(|c| c.condition_type != condition_type);
        self.conditions.push(condition);
    }
}

impl Request {
    /// The key of a request.
    pub fn key_of(id: &RequestKey) -> RecordId {
        RecordId::Request(id.clone())
    }

    /// What a key names, if it is a request's.
    ///
    /// # Errors
    /// Names the part of the key that is wrong.
    pub fn id_of(key: &RecordId) -> Result<RequestKey, FieldError> {
        match key {
            RecordId::Request(id) => Ok(id.clone()),
            RecordId::Agent(_)
            | RecordId::Instance(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Pool(_)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => identity::request(&key.key()),
        }
    }

    /// The phase, a new request being `Pending` to whoever asks.
    pub fn phase(&self) -> Phase {
        self.status.phase.unwrap_or(Phase::Pending)
    }

    /// Gives a new request its place in the line and its deadline.
    pub fn accept(&mut self, now: Timestamp) {
        if self.status.accepted_at.is_none() {
            self.status.accepted_at = Some(now);
            self.status.deadline = Some(after(now, Duration::from_secs(self.intent.timeout_seconds)));
            self.keep_intent();
            self.status.set_condition(ConditionType::Accepted, true, "Accepted", String::new(), now);
        }
    }

    /// A phase and what to say about it; the status answers the intent as it is now.
    pub fn progress(&mut self, phase: Phase, message: String) {
        if self.status.phase != Some(Phase::Ready) || phase.is_final() || phase == Phase::Releasing {
            self.status.phase = Some(phase);
        }
        self.status.message = message;
        self.status.observed_generation = self.intent.generation;
    }

    /// Adds machines to its list.
    pub fn gain<'a>(&mut self, machines: impl Iterator<Item = &'a Instance>) {
        for instance in machines {
            let id = instance.facts.instance_id.clone();
            self.status.claims.extend(instance.claim.as_ref().map(|claim| (id.clone(), claim.id.clone())));
            if !self.status.served.contains(&id) {
                self.status.served.push(id.clone());
            }
            if !self.status.instances.contains(&id) {
                self.status.instances.push(id);
            }
        }
    }

    /// Takes a machine off its list. Under which claim it held the machine stays known: that is how the machine knows that
    /// this claim is over.
    pub fn lose(&mut self, machine: &InstanceId) {
        self.status.instances.retain(|held| held != machine);
    }

    /// Empties its list: it holds nothing any more, and nobody asks under which claims it did.
    pub fn let_all_go(&mut self) {
        self.status.instances.clear();
        self.status.claims.clear();
    }

    /// Whether nobody wants it any more: its workflow released it, or the operator did.
    pub fn is_released(&self) -> bool {
        match self.intent.desired {
            Desired::Released => true,
            Desired::Provisioned => self.status.released_by.is_some(),
        }
    }

    /// Takes the request on as it is written now: this is what is served from here on.
    pub fn keep_intent(&mut self) {
        self.status.accepted = true;
    }

    /// Takes on the number of machines that is written now, which is more than was asked for first. Who asked for all
    /// or nothing goes on to.
    pub fn raise_count(&mut self) {
        let Some(written) = self.written.as_deref() else { return };
        let all = self.intent.min_count == self.intent.count && written.min_count == written.count;
        self.intent.count = written.count;
        if all {
            self.intent.min_count = written.min_count;
        }
        self.status.settled_for = None;
        if *written == self.intent {
            self.written = None;
        }
    }

    /// The attributes of the intent that were changed after it was taken on.
    pub fn changed_attributes(&self) -> Vec<&'static str> {
        let Some(written) = self.written.as_deref() else { return Vec::new() };
        let (served, all) = (&self.intent, written.min_count == written.count);
        let min_follows = all && served.min_count == served.count;
        [
            ("resourceClass", served.resource_class != written.resource_class),
            ("count", served.count != written.count),
            ("minCount", served.min_count != written.min_count && !min_follows),
            ("usageClass", served.usage_class != written.usage_class),
            ("onDemandFallback", served.on_demand_fallback != written.on_demand_fallback),
            ("allowedInstanceTypes", served.allowed_instance_types != written.allowed_instance_types),
            ("maxRuntimeMinutes", served.max_runtime_minutes != written.max_runtime_minutes),
            ("timeoutSeconds", served.timeout_seconds != written.timeout_seconds),
            ("labelSuffix", served.label_suffix != written.label_suffix),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }

    /// The one label of the runners that serve it.
    pub fn label(&self) -> String {
        let own = label(&self.id);
        self.intent.label_suffix.as_ref().map_or_else(|| own.clone(), |suffix| format!("{own}-{suffix}"))
    }

    /// The label as it may stand where others can read it: a secret part is left out.
    pub fn public_label(&self) -> String {
        let own = label(&self.id);
        if self.intent.label_suffix.is_some() { format!("{own}-********") } else { own }
    }

    /// Every label of the runners that serve it: its own, and its class's extra ones bound to that. A run id has no dot,
    /// so that `<label>.<extra>` is no other request's label; `<label>-<extra>` stands beside it for one more release.
    pub fn labels(&self, extras: &[String]) -> Vec<String> {
        let own = self.label();
        let bound = extras.iter().flat_map(|extra| [format!("{own}.{extra}"), format!("{own}-{extra}")]);
        std::iter::once(own.clone()).chain(bound).collect()
    }

    /// Its place in its class's line: oldest first, then by key. A request nobody accepted yet comes last.
    pub fn rank(&self) -> (Timestamp, RequestKey) {
        (self.status.accepted_at.unwrap_or(Timestamp::MAX), self.id.clone())
    }
}

/// What the label of a request is or begins with: the run's id, with the request's name unless that is `default`.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label_suffix: Option<LabelSuffix>,
    desired: Desired,
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_requested_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<bool>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted: Option<Accepted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released_by: Option<ReleasedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

impl Record for Request {
    const KIND: Kind = Kind::Request;
    type Row = RequestRow;

    fn key(&self) -> RecordId {
        Self::key_of(&self.id)
    }

    fn to_row(&self) -> RequestRow {
        let (id, status) = (&self.id, &self.status);
        let (served, intent) = (&self.intent, self.written.as_deref().unwrap_or(&self.intent));
        let seen = status.phase.is_some();
        RequestRow {
            run_id: id.run_id.clone(),
            attempt: id.attempt,
            repository: intent.repository.clone(),
            name: id.name.clone(),
            resource_class: intent.resource_class.clone(),
            count: intent.count,
            min_count: (intent.min_count != intent.count).then_some(intent.min_count),
            usage_class: intent.usage_class,
            on_demand_fallback: intent.on_demand_fallback.then_some(true),
            allowed_instance_types: intent.allowed_instance_types.clone(),
            max_runtime_minutes: intent.max_runtime_minutes,
            timeout_seconds: (intent.timeout_seconds != TIMEOUT_SECONDS).then_some(intent.timeout_seconds),
            label_suffix: intent.label_suffix.clone(),
            desired: served.desired,
            generation: served.generation,
            created_at: served.created_at,
            fail_requested_at: served.fail_requested_at,
            trial: served.trial.then_some(true),
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
            accepted: status.accepted.then(|| Accepted::of(served)),
            released_by: status.released_by,
            uid: self.uid.clone(),
            version: self.version,
            updated_at: self.updated_at,
        }
    }

    fn from_row(key: &RecordId, row: RequestRow) -> Result<Self, FieldError> {
        let named = Self::id_of(key)?.repository;
        let id = RequestKey {
            repository: if named.is(&row.repository) { named } else { row.repository.clone() },
            run_id: row.run_id,
            name: row.name,
            attempt: row.attempt,
        };
        let written = Intent {
            repository: row.repository,
            resource_class: row.resource_class,
            count: row.count,
            min_count: row.min_count.unwrap_or(row.count),
            usage_class: row.usage_class,
            on_demand_fallback: row.on_demand_fallback.unwrap_or(false),
            allowed_instance_types: row.allowed_instance_types,
            max_runtime_minutes: row.max_runtime_minutes,
            timeout_seconds: row.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
            label_suffix: row.label_suffix,
            desired: row.desired,
            generation: row.generation,
            created_at: row.created_at,
            fail_requested_at: row.fail_requested_at,
            trial: row.trial.unwrap_or(false),
        };
        let accepted = row.accepted.is_some();
        let served = row.accepted.map(|accepted| accepted.within(&written));
        let (intent, written) = match served {
            Some(served) if served != written => (served, Some(Box::new(written))),
            Some(_) | None => (written, None),
        };
        Ok(Self {
            id,
            intent,
            written,
            status: Status {
                phase: row.phase,
                instances: row.instances.unwrap_or_default(),
                claims: row.claims,
                served: row.served,
                message: row.message.unwrap_or_default(),
                conditions: row.conditions,
                accepted_at: row.accepted_at,
                accepted,
                released_by: row.released_by,
                deadline: row.deadline,
                ready_at: row.ready_at,
                settled_for: row.settled_for,
                observed_generation: row.observed_generation.unwrap_or(0),
                expires_at: row.expires_at,
            },
            uid: row.uid,
            version: row.version,
            updated_at: row.updated_at,
        })
    }
}

impl Versioned for Request {
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
mod tests;
