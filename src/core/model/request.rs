//! The request record: the workflow's intent and the operator's status. The machines that a request holds are counted
//! here and nowhere else, because a claim spends this record's version.
//!
//! Over 400 lines: each field of the record has its line and its meaning.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::record::Versioned;
use crate::model::machine::agent::JobReport;
use crate::model::machine::ahead::Ahead;
use crate::model::machine::instance::Instance;
use crate::model::pool::selector::InstanceTypes;
use crate::model::record::condition::{Condition, ConditionType};
use crate::model::record::field::FieldError;
use crate::model::record::identity;
use crate::model::record::identity::RecordId;
use crate::model::record::ids::{ClaimId, InstanceId, LabelSuffix, Repository, RequestKey, RequestName, Uid};
use crate::model::record::state::{UsageClass, words};
use crate::model::record::time::after;

mod intents;
pub(crate) mod job_ring;
mod row;

pub use intents::{LONGEST_RUNTIME_MINUTES, LONGEST_TIMEOUT_SECONDS, NewIntent, release};

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
    /// Returns whether the phase never changes again.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Released | Self::Failed => true,
            Self::Pending | Self::Fulfilling | Self::Ready | Self::Releasing => false,
        }
    }

    /// Returns whether the request may still take machines.
    pub const fn wants_machines(self) -> bool {
        match self {
            Self::Pending | Self::Fulfilling | Self::Ready => true,
            Self::Releasing | Self::Released | Self::Failed => false,
        }
    }
}

words! {
    /// The origin of the machines that made a request ready.
    ReadySource {
        /// All from the pool.
        Warm = "warm",
        /// All launched for the request.
        Cold = "cold",
        /// Some from the pool and some launched.
        Mixed = "mixed",
    }
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
        /// It was a slot of a scale set, and its runner ended or is not needed.
        RunnerEnded = "runner-ended",
    }
}

words! {
    /// Who made a request.
    Asked {
        /// A workflow's job, by a verb or an action.
        Verb = "verb",
        /// The operator, for jobs that GitHub lists as queued with its label.
        Job = "job",
        /// The operator, for jobs of a later attempt that were re-run.
        Rerun = "rerun",
        /// The operator, for jobs that GitHub assigned to a runner scale set.
        Set = "set",
    }
}

impl Asked {
    /// Describes who made the request, for people.
    #[must_use]
    pub const fn told(self) -> &'static str {
        match self {
            Self::Verb => "a job that asks",
            Self::Job => "a queued job",
            Self::Rerun => "a re-run job",
            Self::Set => "a job of a scale set",
        }
    }
}

/// The part that the workflow writes. Numbers are stored as given; the operator checks them when it accepts the
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The repository as the workflow writes it; the key has it in lower case.
    pub repository: Repository,
    /// The requested class, as given.
    pub resource_class: String,
    /// How many machines, 1 to 500.
    pub count: u32,
    /// How many are enough at the deadline.
    pub min_count: u32,
    /// Spot or on-demand; none when either will do.
    pub usage_class: Option<UsageClass>,
    /// Whether a launch may fall back from spot to on-demand.
    pub on_demand_fallback: bool,
    /// The allowed types, in place of the pool's list.
    pub allowed_instance_types: Option<InstanceTypes>,
    /// How long a machine may run for it, in minutes; none for the class's own limit.
    pub max_runtime_minutes: Option<u64>,
    /// How long it waits, in seconds.
    pub timeout_seconds: u64,
    /// The secret part of its label, if it has one.
    pub label_suffix: Option<LabelSuffix>,
    /// The name of its priority, as given; none for the usual one.
    pub priority: Option<String>,
    /// How many machines its jobs need now, where fewer than `count`; none for all of them.
    pub wanted: Option<u32>,
    /// The desired state.
    pub desired: Desired,
    /// Rises with each change of intent.
    pub generation: u64,
    /// When the workflow wrote it, by its clock.
    pub created_at: Option<Timestamp>,
    /// When a person failed it (`runyard fail`).
    pub fail_requested_at: Option<Timestamp>,
    /// The person who failed it, as they named themselves.
    pub fail_requested_by: Option<String>,
    /// Who made it.
    pub asked: Asked,
    /// Whether a person tries the class (`runyard try`): there is no such run at GitHub, and GitHub is not asked for
    /// it.
    pub trial: bool,
}

/// The part that the operator writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its phase; none while no operator has seen it.
    pub phase: Option<Phase>,
    /// The machines that it holds now.
    pub instances: Vec<InstanceId>,
    /// The claim under which it holds, or last held, each machine: a machine's record older than its claim proves
    /// nothing about it.
    pub claims: BTreeMap<InstanceId, ClaimId>,
    /// The machines that it ever held.
    pub served: Vec<InstanceId>,
    /// The message for people.
    pub message: String,
    /// Its conditions, with their reasons.
    pub conditions: Vec<Condition>,
    /// When it was accepted, which decides its position among the waiting requests.
    pub accepted_at: Option<Timestamp>,
    /// Whether the record keeps the accepted intent; records of older operators do not.
    pub accepted: bool,
    /// Why the operator released it, if it did.
    pub released_by: Option<ReleasedBy>,
    /// The attempt whose request this one repeats, where the operator wrote it for jobs that were re-run.
    pub derived_from: Option<u32>,
    /// When the operator decided to ask GitHub to re-run the run's failed jobs, because a spot machine was taken back.
    pub rerun_requested_at: Option<Timestamp>,
    /// The share in which it was accepted, where its class has `sharing`.
    pub share: Option<String>,
    /// The value of its priority when it was accepted.
    pub priority_value: i32,
    /// The workflow file of its run as GitHub names it (`.github/workflows/build.yml`), once it was asked.
    pub workflow: Option<String>,
    /// The hourly cost of its machines when it became ready, in nano-dollars; none where a machine has no price.
    pub hourly_cost_nanos: Option<u64>,
    /// Where the machines came from that made it ready; none in records of older operators.
    pub ready_source: Option<ReadySource>,
    /// When it fails unless it is ready.
    pub deadline: Option<Timestamp>,
    /// When it became ready.
    pub ready_at: Option<Timestamp>,
    /// Since when it has machines again, after a time without any that its jobs did not need; none before such a time.
    pub lent_since: Option<Timestamp>,
    /// When an operator saw, or decided, that it is released.
    pub released_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The last job that began on the machine of a slot, as its agent told it.
    pub job: Option<JobReport>,
    /// How many machines it was content with at its deadline, when they were fewer than it asked for.
    pub settled_for: Option<u32>,
    /// The generation that this status is for.
    pub observed_generation: u64,
    /// When the record may be deleted, epoch seconds.
    pub expires_at: Option<i64>,
}

/// The request record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its run, name and attempt.
    pub id: RequestKey,
    /// The intent that is served: the accepted one, or the written one before that.
    pub intent: Intent,
    /// The intent as it is written now, where that differs from the served one.
    pub written: Option<Box<Intent>>,
    /// The part that the operator writes.
    pub status: Status,
    /// The record's identity; none in records written before uids.
    pub uid: Option<Uid>,
    /// The number of writes.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Option<Timestamp>,
}

/// How long a request waits for its machines, in seconds, unless it sets another time.
pub const TIMEOUT_SECONDS: u64 = 600;

/// How long a machine may run for a request, in minutes, unless the request or its class sets another limit, where
/// GitHub is asked whether its run is over. GitHub's own limit for a job is the same.
pub const WATCHED_RUNTIME_MINUTES: u64 = 360;

/// The same where no source reports that its run is over.
pub const UNWATCHED_RUNTIME_MINUTES: u64 = 30;

impl Status {
    /// Sets a condition, keeping the time since when it holds.
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
    /// Returns the key of a request.
    pub fn key_of(id: &RequestKey) -> RecordId {
        RecordId::Request(id.clone())
    }

    /// Parses the request that a key names, if the key is a request's.
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
            | RecordId::Queue(..)
            | RecordId::Pool(_)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => identity::request(&key.key()),
        }
    }

    /// Returns the phase; `Pending` for a new request.
    pub fn phase(&self) -> Phase {
        self.status.phase.unwrap_or(Phase::Pending)
    }

    /// Accepts a new request: sets its position among the waiting requests and its deadline, which it has already where
    /// it waited for its class's record to be readable.
    pub fn accept(&mut self, now: Timestamp) {
        if self.status.accepted_at.is_none() {
            self.status.accepted_at = Some(now);
            self.status.deadline = Some(after(now, Duration::from_secs(self.intent.timeout_seconds)));
            self.keep_intent();
        }
        if self.status.phase.is_none() {
            self.status.set_condition(ConditionType::Accepted, true, "Accepted", String::new(), now);
        }
    }

    /// Returns whether it was refused: such a request has the time of its refusal as `acceptedAt` and as `deadline`,
    /// which are at least a second apart in any other request.
    pub fn was_refused(&self) -> bool {
        self.status.phase == Some(Phase::Failed) && self.status.accepted_at == self.status.deadline
    }

    /// Sets the phase and the message; the status then applies to the current generation of the intent.
    pub fn progress(&mut self, phase: Phase, message: String) {
        if self.status.phase != Some(Phase::Ready) || phase.is_final() || phase == Phase::Releasing {
            self.status.phase = Some(phase);
        }
        self.status.message = message;
        self.status.observed_generation = self.intent.generation;
    }

    /// Returns whether it still has the claim that a runner of this name serves; none if it is no runner of ours. A
    /// machine may have come back to it in another claim. The name of a runner that was registered ahead tells the
    /// machine alone.
    pub fn has_runner(&self, name: &str) -> Option<bool> {
        let machine = machine_of_runner(name)?;
        let version = claim_of_runner(name).map(|(_, version)| version);
        let claim = self.status.claims.get(&machine).map(ClaimId::version);
        let same = version.zip(claim).is_none_or(|(version, claim)| version == claim);
        Some(same && self.status.instances.contains(&machine))
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

    /// Removes a machine from its list. The claim id stays, because the machine is released by it.
    pub fn lose(&mut self, machine: &InstanceId) {
        self.status.instances.retain(|held| held != machine);
    }

    /// Empties its list and forgets the claim ids.
    pub fn release_all(&mut self) {
        self.status.instances.clear();
        self.status.claims.clear();
    }

    /// Returns whether GitHub may know its run: GitHub's run ids are numbers, and there is no run where a person tries
    /// a class.
    pub fn has_run_at_github(&self) -> bool {
        !self.intent.trial && self.id.run_id.as_str().parse::<u64>().is_ok()
    }

    /// Returns whether it is a slot of a runner scale set: its runner serves any one job of the set.
    pub fn is_slot(&self) -> bool {
        self.intent.asked == Asked::Set && self.id.set().is_some()
    }

    /// Returns whether it was released, by its workflow or by the operator.
    pub fn is_released(&self) -> bool {
        match self.intent.desired {
            Desired::Released => true,
            Desired::Provisioned => self.status.released_by.is_some(),
        }
    }

    /// Accepts the intent as it is written now: it is served from here on.
    pub fn keep_intent(&mut self) {
        self.status.accepted = true;
    }

    /// Accepts a raised `count`. A request that wanted all or nothing still does.
    pub fn raise_count(&mut self) {
        let Some(written) = self.written.as_deref() else { return };
        let all = self.intent.min_count == self.intent.count && written.min_count == written.count;
        self.intent.count = written.count;
        if all {
            self.intent.min_count = written.min_count;
        }
        self.status.settled_for = None;
        self.settle_written();
    }

    /// Returns how many of the machines that it asks for its jobs need now.
    pub fn wanted(&self) -> u32 {
        let count = self.intent.count;
        self.intent.wanted.map_or(count, |wanted| wanted.min(count))
    }

    /// Returns whether its jobs need no machine for now, and it has none.
    pub fn rests(&self) -> bool {
        self.wanted() == 0 && self.status.instances.is_empty()
    }

    /// Accepts a raised maximum runtime.
    pub fn raise_runtime(&mut self) {
        let Some(written) = self.written.as_deref() else { return };
        self.intent.max_runtime_minutes = written.max_runtime_minutes;
        self.settle_written();
    }

    /// Drops the written intent where it equals the served one.
    fn settle_written(&mut self) {
        self.written.take_if(|written| **written == self.intent);
    }

    /// Returns the attributes of the intent that were changed after it was accepted.
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
            ("priority", served.priority != written.priority),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }

    /// Returns the one label of the runners that serve it.
    pub fn label(&self) -> String {
        let own = label(&self.id);
        self.intent.label_suffix.as_ref().map_or_else(|| own.clone(), |suffix| format!("{own}-{suffix}"))
    }

    /// Returns the label without its secret part, for texts that other people can read.
    pub fn public_label(&self) -> String {
        let own = label(&self.id);
        if self.intent.label_suffix.is_some() { format!("{own}-********") } else { own }
    }

    /// Returns every label of the runners that serve it: its own, and its class's extra labels bound to that. A run id
    /// has no dot, so that `<label>.<extra>` is no other request's label; `<label>-<extra>` is added for one more
    /// release.
    pub fn labels(&self, extras: &[String]) -> Vec<String> {
        let own = self.label();
        let bound = extras.iter().flat_map(|extra| [format!("{own}.{extra}"), format!("{own}-{extra}")]);
        std::iter::once(own.clone()).chain(bound).collect()
    }

    /// Returns its position among the waiting requests of its class: the oldest first, then by key. A request that is
    /// not accepted yet comes last.
    pub fn queue_position(&self) -> (Timestamp, RequestKey) {
        (self.status.accepted_at.unwrap_or(Timestamp::MAX), self.id.clone())
    }
}

/// Returns the label of a request, or its prefix: the run's id, with the request's name unless that is `default`.
pub fn label(id: &RequestKey) -> String {
    if id.name == RequestName::default_name() {
        id.run_id.to_string()
    } else {
        format!("{}-{}", id.run_id, id.name)
    }
}

/// Returns the name of the runner that serves a claim; `seq` numbers the credentials of one claim (mode `job`).
pub fn runner_name(claim: &ClaimId, seq: u64) -> String {
    if seq <= 1 { format!("runyard-{claim}") } else { format!("runyard-{claim}-{seq}") }
}

/// Parses the machine and the version of the claim from the name of a runner that was registered for a claim; none for
/// another name, such as that of one that was registered ahead of its claim.
pub fn claim_of_runner(name: &str) -> Option<(InstanceId, u64)> {
    if Ahead::named(name).is_some() {
        return None;
    }
    let claim = name.strip_prefix("runyard-")?;
    let (machine, version) = claim.rsplit_once('.')?;
    let version = version.split_once('-').map_or(version, |(version, _)| version);
    Some((InstanceId::parse(machine).ok()?, version.parse().ok()?))
}

/// Returns the machine that a runner of this name is on; none if it is no runner of ours.
pub fn machine_of_runner(name: &str) -> Option<InstanceId> {
    let ahead = Ahead::named(name).map(|(machine, _)| machine);
    ahead.or_else(|| claim_of_runner(name).map(|(machine, _)| machine))
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

    fn settle(&mut self, before: &Self) {
        let (was, is) = (before.phase(), self.phase());
        if was == is || was.is_final() {
            return;
        }
        if matches!(is, Phase::Releasing | Phase::Released) && self.status.released_at.is_none() {
            self.status.released_at = self.updated_at;
        }
        if is.is_final() {
            self.status.ended_at = self.updated_at;
        }
    }
}

#[cfg(test)]
mod tests;
