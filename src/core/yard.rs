//! The yard as observed: the last image of every record, the facts that this process learned besides the records, and
//! the indexes that keep the work of one change independent of the number of records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;

use crate::model::{
    Agent, ClassName, InstanceArn, InstanceFacts, InstanceId, JobReport, Launch, LaunchId, LaunchPhase,
    Lease, Pool, RecordId, Repository, Request, RequestKey, RunnerPackage, SetPlace, SetRecord, Slot,
};
use crate::ports::Machine;
use crate::ports::github::{EndOfLife, RunnerSupport};

use self::ahead::RefusedLabels;

mod ahead;
mod brakes;
mod class;
mod counts;
mod holding;
mod inventory;
mod need;
mod now;
mod observation;
mod observe;
mod records;
mod sums;
mod tracked;
mod unread;
mod visits;

pub(crate) use crate::yard::class::beats::{Doubt, believable};
pub(crate) use crate::yard::class::decay::decayed;
pub(crate) use crate::yard::class::demand::{
    Demand, Free, MachineGroup, QueuePosition, Refusal, WaitingRequests,
};
pub(crate) use crate::yard::class::idle::Stock;
pub use crate::yard::class::in_flight::InFlight;
pub use crate::yard::class::kinds::MachineKind;
pub use crate::yard::class::offerings::{BackoffKind, Offering, OfferingBackoff};
pub(crate) use crate::yard::class::shares::{
    LaneId, Late, Order, Queue, Rank, ShareName, Shares, overdue_at, share_of,
};
pub(crate) use brakes::Brake;
pub use class::{Class, LaunchBackoff};
pub use holding::{Holding, Lost};
pub(crate) use need::{gives_back, lacking, target};
pub use now::Now;
pub use observation::{Observation, Written};
pub(crate) use sums::SlotsOfSet;
pub(crate) use tracked::{Archived, Asked, Former, UnreadMachine};
pub use tracked::{Beat, Ordered, Tracked, TrackedLaunch};
pub(crate) use unread::{ClassRecord, agent_is_known};
#[cfg(test)]
pub(crate) use visits::take as visits;
pub(crate) use visits::visited;

/// The subject of one decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// One machine.
    Instance(InstanceArn),
    /// One request.
    Request(RequestKey),
    /// One class: the assignment of its machines, and its launches.
    Class(ClassName),
    /// One launch.
    Launch(LaunchId),
}

impl Unit {
    /// Returns the unit of the request that a record names, if it names one.
    pub(crate) fn of_request(id: &RecordId) -> Option<Self> {
        id.request().cloned().map(Self::Request)
    }
}

/// All observations. Maps that are read for every change are hashed and boxed, so that a lookup touches as little
/// memory among a million records as among a thousand. No decision depends on their order.
#[derive(Clone, Debug, Default)]
pub struct Yard {
    pub(crate) instances: IndexMap<InstanceArn, Box<Tracked>>,
    pub(crate) ids: IndexMap<InstanceId, InstanceArn>,
    pub(crate) requests: IndexMap<RequestKey, Box<Asked>>,
    pub(crate) classes: BTreeMap<ClassName, Class>,
    /// When a schedule of a class fires next, by the wall clock.
    pub(crate) fires_at: Option<jiff::Timestamp>,
    pub(crate) launches: BTreeMap<LaunchId, TrackedLaunch>,
    /// Agent records whose instance record has not been seen.
    pub(crate) orphan_agents: BTreeMap<InstanceArn, Agent>,
    /// Numbers over all records.
    pub(crate) sums: sums::Sums,
    /// Records that a strong read did not find, and when.
    pub(crate) absent: BTreeMap<RecordId, Duration>,
    /// Open requests (accepted and not ended) of each repository, by its name in lower case.
    pub(crate) open: BTreeMap<String, u32>,
    /// Records that were removed or replaced by another record under the same key.
    pub(crate) former: BTreeMap<RecordId, Former>,
    /// Requests of one run and name, by attempt.
    pub(crate) attempts: BTreeMap<(String, String), BTreeSet<(u32, RequestKey)>>,
    /// Requests by their owner and the label of their runners, both without regard to case.
    pub(crate) labels: BTreeMap<(String, String), BTreeSet<RequestKey>>,
    /// Our machines without a record, with the time at which each was first listed.
    pub(crate) unrecorded: BTreeMap<InstanceArn, (Machine, Duration)>,
    /// When the provider's machines were last listed, on the monotonic clock.
    pub(crate) inventoried: Option<Duration>,
    /// Records that cannot be read, and why.
    pub unreadable: BTreeMap<RecordId, String>,
    /// Machines whose records cannot be read.
    pub(crate) unread_machines: BTreeMap<InstanceId, UnreadMachine>,
    /// Records of a newer program.
    pub newer: BTreeMap<RecordId, u64>,
    /// Slots held by actions in progress: no other action is planned for them.
    pub busy: BTreeSet<Slot>,
    /// Records whose last claim or write failed, and until when they back off, on the monotonic clock.
    pub backoffs: BTreeMap<RecordId, Duration>,
    /// Actions that keep failing for the same reason. The key is the unit, the kind and the subject; the value is the
    /// class that reports it and a sentence.
    pub stuck: BTreeMap<(Unit, &'static str, Unit), (ClassName, String)>,
    /// The runner version of the operator's file, once GitHub reported when its support ends.
    pub runner: Option<RunnerSupport>,
    /// The leader's lease, as it was last seen.
    pub(crate) lease: Option<Lease>,
    /// The runner scale sets, as their records were last seen.
    pub(crate) sets: BTreeMap<(ClassName, SetPlace), SetRecord>,
    /// The history table contains everything that had ended at this time: records need not keep it.
    pub delivered: Option<jiff::Timestamp>,
    /// Whether the history table takes records: ended requests move to it.
    pub archives: bool,
    /// The newest runner package of each architecture, as GitHub's list last named them.
    pub latest: BTreeMap<String, RunnerPackage>,
    /// When GitHub's support ends for the versions of classes that follow its list, as far as GitHub reported it.
    pub ends: BTreeMap<String, EndOfLife>,
    /// The classes for which GitHub refuses the labels of claims whose runners were registered ahead.
    pub(crate) refused_labels: BTreeMap<ClassName, RefusedLabels>,
    /// How many orders in a row had no certain response, over all launches, as far as that lengthens a pause.
    pub(crate) unclear: u32,
    /// Repositories after whose jobs clean-ups failed.
    pub(crate) brakes: brakes::Brakes,
    /// The accounts for which GitHub did not respond at the last call, in lower case.
    pub github_down: BTreeSet<String>,
    /// When the last complete list of the table was begun, on the monotonic clock.
    pub listed: Option<Duration>,
    /// When each record that is stored nowhere else here was last seen, on the monotonic clock.
    pub(crate) there: BTreeMap<RecordId, Duration>,
}

impl Yard {
    /// Returns why no operator leads; none where one does. Nothing is launched without a leader. A leader whose
    /// renewals this process could not have seen counts as leading.
    pub fn leaderless(&self, now: &Now) -> Option<String> {
        let blind = now.mono.saturating_sub(now.seen);
        self.lease.as_ref()?.lapsed(now.wall, blind)
    }

    /// Returns a machine by its ARN.
    pub fn instance(&self, arn: &InstanceArn) -> Option<&Tracked> {
        visited();
        self.instances.get(arn).map(Box::as_ref)
    }

    /// Returns a machine by its id.
    pub fn by_id(&self, id: &InstanceId) -> Option<&Tracked> {
        visited();
        self.ids.get(id).and_then(|arn| self.instances.get(arn)).map(Box::as_ref)
    }

    /// Iterates over the jobs that the runners of a slot have or had, each with its machine, as far as their agents'
    /// records are there.
    pub fn jobs_of_slot<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Iterator<Item = (&'a InstanceId, &'a JobReport)> {
        let claims = request.status.claims.iter().filter(|_| request.is_slot());
        claims.filter_map(|(id, claim)| Some((id, self.by_id(id)?.agent.as_ref()?.job_of(claim)?)))
    }

    /// Iterates over all machines.
    pub fn instances(&self) -> impl Iterator<Item = &Tracked> {
        self.instances.values().map(Box::as_ref)
    }

    /// Returns what is known of a request that had the key of this one before and left the table.
    pub(crate) fn archived(&self, key: &RequestKey) -> Option<&Archived> {
        self.requests.get(key).map(|asked| &asked.archived)
    }

    /// Returns a request by its key.
    pub fn request(&self, key: &RequestKey) -> Option<&Request> {
        visited();
        self.requests.get(key).map(|asked| &asked.request)
    }

    /// Returns the request that another record names.
    pub fn request_named(&self, id: &RecordId) -> Option<&Request> {
        self.request(id.request()?)
    }

    /// Returns when a request was last seen, on the monotonic clock.
    pub(crate) fn request_seen(&self, key: &RequestKey) -> Option<Duration> {
        self.requests.get(key).map(|asked| asked.there)
    }

    /// Iterates over the records of runner scale sets.
    pub fn sets(&self) -> impl Iterator<Item = &SetRecord> {
        self.sets.values()
    }

    /// Iterates over all requests.
    pub fn requests(&self) -> impl Iterator<Item = (&RequestKey, &Request)> {
        self.requests.iter().map(|(key, asked)| (key, &asked.request))
    }

    /// Returns a class.
    pub fn class(&self, name: &ClassName) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Iterates over all classes that have a pool or a machine.
    pub fn classes(&self) -> impl Iterator<Item = (&ClassName, &Class)> {
        self.classes.iter()
    }

    /// Returns a class's pool.
    pub fn pool(&self, name: &ClassName) -> Option<&Pool> {
        self.classes.get(name).and_then(|class| class.pool.as_ref())
    }

    /// Counts the machines of a class that have neither a record nor a known launch, when that is more than can be
    /// believed. An empty or restored table is no reason to end running machines.
    pub(crate) fn unbelieved_unrecorded(&self, class: &ClassName) -> Option<usize> {
        let live = self.classes.get(class).map_or(0, Class::live);
        let most = believable(live) as usize;
        let strange = |machine: &Machine| {
            let known = machine.launch.as_ref().is_some_and(|id| self.launches.contains_key(id));
            machine.class.as_ref() == Some(class) && !known
        };
        let unrecorded =
            self.unrecorded.values().filter(|(machine, _)| strange(machine)).take(most + 1).count();
        (unrecorded > most).then_some(unrecorded)
    }

    /// Returns a launch.
    pub fn launch(&self, id: &LaunchId) -> Option<&TrackedLaunch> {
        visited();
        self.launches.get(id)
    }

    /// Counts our machines without a record, as they were last listed.
    pub fn orphans(&self) -> usize {
        self.unrecorded.len()
    }

    /// Returns the class of a machine, with or without a record.
    pub fn class_of_machine(&self, arn: &InstanceArn) -> Option<&ClassName> {
        let recorded = self.instances.get(arn).map(|tracked| &tracked.instance.facts.resource_class);
        recorded.or_else(|| self.unrecorded.get(arn).and_then(|(machine, _)| machine.class.as_ref()))
    }

    /// Returns the number of stuck actions of a class, and a sentence about the first.
    pub(crate) fn stuck_in(&self, class: &ClassName) -> Option<(usize, &str)> {
        let mut stuck = self.stuck.values().filter(|(of, _)| of == class);
        let (_, first) = stuck.next()?;
        Some((1 + stuck.count(), first))
    }

    /// Returns whether an action in progress holds this slot.
    pub fn is_busy(&self, slot: impl Into<Slot>) -> bool {
        self.busy.contains(&slot.into())
    }

    /// Returns until when a record backs off after a failed write; none when it does not.
    pub(crate) fn backoff_until(&self, record: impl Into<RecordId>, now: Duration) -> Option<Duration> {
        self.backoffs.get(&record.into()).copied().filter(|until| now < *until)
    }

    /// Counts the open requests (accepted and not ended) of a repository.
    pub(crate) fn open_requests(&self, repository: &Repository) -> u32 {
        self.open.get(&repository.as_str().to_ascii_lowercase()).copied().unwrap_or(0)
    }

    /// Returns why the machines of a repository's claims serve no other request now, and until when; none where they
    /// do.
    pub(crate) fn brake(&self, repository: &Repository, now: jiff::Timestamp) -> Option<Brake> {
        self.brakes.of_repository(repository, now)
    }

    /// Counts the clean-ups that failed in a row after jobs of each repository within the last hour.
    pub fn failed_clean_ups(&self, now: jiff::Timestamp) -> impl Iterator<Item = (&str, usize)> {
        self.brakes.failed(now)
    }

    /// Returns whether a notice from EC2 needs no action now: the machine is not ours, has ended, or is only at risk,
    /// which its agent reports too.
    pub fn settled_notice(&self, id: &InstanceId) -> bool {
        let Some(tracked) = self.by_id(id) else { return true };
        !tracked.instance.state().live() || !(tracked.changed || tracked.is_interrupted())
    }

    /// Lists all units.
    pub fn units(&self) -> BTreeSet<Unit> {
        let instances = self.instances.keys().cloned().map(Unit::Instance);
        let unrecorded = self.unrecorded.keys().cloned().map(Unit::Instance);
        let requests = self.requests.keys().cloned().map(Unit::Request);
        let classes = self.classes.keys().cloned().map(Unit::Class);
        let launches = self.launches.keys().cloned().map(Unit::Launch);
        instances.chain(unrecorded).chain(requests).chain(classes).chain(launches).collect()
    }

    /// Drops the classes that no record refers to any more: those of deleted pools, and unknown classes that requests
    /// named.
    pub(super) fn forget_classes(&mut self) {
        let machines = self.instances.values().map(|tracked| tracked.instance.facts.resource_class.clone());
        let launches = self.launches.values().map(|tracked| tracked.launch.resource_class.clone());
        let open = self.requests.values().filter(|asked| !asked.request.phase().is_final());
        let asked = open.filter_map(|asked| Self::class_of(&asked.request));
        let named: BTreeSet<ClassName> = machines.chain(launches).chain(asked).collect();
        let unread = &self.unreadable;
        self.classes.retain(|name, class| {
            class.pool.is_some()
                || class.unreadable > 0
                || named.contains(name)
                || unread.contains_key(&RecordId::Pool(name.clone()))
        });
    }

    /// Returns the class that a request asks for, if its name can be one.
    pub fn class_of(request: &Request) -> Option<ClassName> {
        ClassName::parse(&request.intent.resource_class).ok()
    }

    /// Returns whether a request accepts a machine of this EC2 type.
    pub(crate) fn accepts_type(&self, request: &Request, instance_type: &str) -> bool {
        let of_class = || Self::class_of(request).and_then(|class| self.pool(&class));
        match &request.intent.allowed_instance_types {
            Some(types) => types.accept(instance_type),
            None => of_class().is_none_or(|pool| pool.spec.allowed_instance_types.accept(instance_type)),
        }
    }

    /// Returns whether a machine has a type and size that its class allows.
    pub(crate) fn class_accepts(&self, facts: &InstanceFacts) -> bool {
        self.pool(&facts.resource_class).is_none_or(|pool| pool.spec.fits(facts))
    }

    /// Returns whether the record exists and this program cannot read it, because it is broken or of a newer schema.
    pub(crate) fn is_unreadable(&self, key: &RecordId) -> bool {
        self.newer.contains_key(key) || self.unreadable.contains_key(key)
    }

    /// Returns the newest attempt of the same run and name, if it is newer than this one.
    pub(crate) fn superseded(&self, id: &RequestKey) -> Option<u32> {
        let (newest, _) = self.attempts.get(&run_and_name_of(id))?.last()?;
        (*newest > id.attempt).then_some(*newest)
    }

    /// Lists other requests whose runners would have the same label: those of another run or name, and those of the
    /// same attempt under a key that spells the repository differently.
    pub(crate) fn same_label(&self, request: &Request) -> impl Iterator<Item = &Request> {
        let line = run_and_name_of(&request.id);
        let same = self.labels.get(&label_of(request)).into_iter().flatten();
        let others = same.filter_map(|key| self.request(key)).filter(|other| other.id != request.id);
        others
            .filter(move |other| other.id.attempt == request.id.attempt || run_and_name_of(&other.id) != line)
    }

    /// Returns whether a launch is still open.
    pub(crate) const fn is_open(launch: &Launch) -> bool {
        match launch.phase {
            LaunchPhase::Intent => true,
            LaunchPhase::Bound | LaunchPhase::Failed => false,
        }
    }
}

/// Returns the key that all attempts of one run and name share.
pub(crate) fn run_and_name_of(id: &RequestKey) -> (String, String) {
    (format!("{}#{}", id.repository.folded(), id.run_id), id.name.to_string())
}

/// Returns the key that requests share when GitHub cannot tell their runners apart.
pub(crate) fn label_of(request: &Request) -> (String, String) {
    (request.id.repository.owner().to_ascii_lowercase(), request.label().to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
