//! The yard as observed: the last image of every record, what this process learned beside the records, and the
//! indexes that keep the work of one change independent of how many records there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;

use crate::model::{
    Agent, ClassName, InstanceArn, InstanceFacts, InstanceId, Launch, LaunchId, LaunchPhase, Life, Pool,
    RecordId, Repository, Request, RequestKey, Slot,
};
use crate::ports::Machine;

mod beats;
mod class;
mod counts;
mod demand;
mod holding;
mod inventory;
mod need;
mod now;
mod observation;
mod observe;
mod offerings;
mod records;
mod tracked;
mod under_way;
mod unread;
mod visits;

pub(crate) use beats::{Doubt, believable};
pub use class::{Brake, Class};
pub(crate) use demand::{Demand, Free, MachineGroup, Rank, Refusal};
pub use holding::{Holding, Lost};
pub(crate) use need::{LAST_REPLACEMENT, gives_back, lacking, max_runtime, over_time, target};
pub use now::Now;
pub use observation::{Observation, Written};
pub use offerings::{Breaker, Offering, Rest};
pub(crate) use tracked::{Asked, Former, UnreadMachine};
pub use tracked::{Beat, Ordered, Tracked, TrackedLaunch};
pub use under_way::UnderWay;
pub(crate) use unread::{ClassRecord, agent_is_known, runtime_unknown};
#[cfg(test)]
pub(crate) use visits::take as visits;
pub(crate) use visits::visited;

/// What is judged at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// One machine.
    Instance(InstanceArn),
    /// One request.
    Request(RequestKey),
    /// One class: who gets which machine, and what is launched.
    Class(ClassName),
    /// One launch.
    Launch(LaunchId),
}

impl Unit {
    /// The request that a record names, if it names one.
    pub(crate) fn of_request(id: &RecordId) -> Option<Self> {
        id.request().cloned().map(Self::Request)
    }
}

/// Everything observed. What is looked up by name for every change is hashed and boxed: a lookup touches as little memory
/// among a million records as among a thousand, and what is decided never depends on the order in which these are walked.
#[derive(Clone, Debug, Default)]
pub struct Yard {
    pub(crate) instances: IndexMap<InstanceArn, Box<Tracked>>,
    pub(crate) ids: IndexMap<InstanceId, InstanceArn>,
    pub(crate) requests: IndexMap<RequestKey, Box<Asked>>,
    pub(crate) classes: BTreeMap<ClassName, Class>,
    pub(crate) launches: BTreeMap<LaunchId, TrackedLaunch>,
    /// Agent records whose instance record has not been seen.
    pub(crate) strays: BTreeMap<InstanceArn, Agent>,
    /// Records that a strong read did not find, and when.
    pub(crate) absent: BTreeMap<RecordId, Duration>,
    /// How many requests of a repository are taken on and not over, by its name in lower case.
    pub(crate) open: BTreeMap<String, u32>,
    /// What stood under keys before it was removed, or another record took its place.
    pub(crate) former: BTreeMap<RecordId, Former>,
    /// Requests of one run and name, by attempt.
    pub(crate) attempts: BTreeMap<(String, String), BTreeSet<(u32, RequestKey)>>,
    /// Requests by their owner and the label of their runners, both without regard to case.
    pub(crate) labels: BTreeMap<(String, String), BTreeSet<RequestKey>>,
    /// Machines of ours that have no record: since when they are known.
    pub(crate) unrecorded: BTreeMap<InstanceArn, (Machine, Duration)>,
    /// Records that cannot be read, and why.
    pub unreadable: BTreeMap<RecordId, String>,
    /// Machines whose records cannot be read.
    pub(crate) unread_machines: BTreeMap<InstanceId, UnreadMachine>,
    /// Records of a newer program.
    pub newer: BTreeMap<RecordId, u64>,
    /// What the actions under way here hold: nobody else here plans for it.
    pub busy: BTreeSet<Slot>,
    /// Records of which a claim or a request's write failed, and until when, on the monotonic clock, they are left alone.
    pub resting: BTreeMap<RecordId, Duration>,
    /// Actions that fail again and again for the same reason: by unit, kind and whom they are about the class that says
    /// so, and a sentence.
    pub stuck: BTreeMap<(Unit, &'static str, Unit), (ClassName, String)>,
    /// Whether GitHub did not answer when it was last asked.
    pub github_down: bool,
    /// When the last complete list of the table was begun, on the monotonic clock.
    pub listed: Option<Duration>,
    /// When each record that stands nowhere else here was last seen to be there, on the monotonic clock.
    pub(crate) there: BTreeMap<RecordId, Duration>,
}

impl Yard {
    /// A machine by its ARN.
    pub fn instance(&self, arn: &InstanceArn) -> Option<&Tracked> {
        visited();
        self.instances.get(arn).map(Box::as_ref)
    }

    /// A machine by its id.
    pub fn by_id(&self, id: &InstanceId) -> Option<&Tracked> {
        visited();
        self.ids.get(id).and_then(|arn| self.instances.get(arn)).map(Box::as_ref)
    }

    /// Every machine.
    pub fn instances(&self) -> impl Iterator<Item = &Tracked> {
        self.instances.values().map(Box::as_ref)
    }

    /// A request by its key.
    pub fn request(&self, key: &RequestKey) -> Option<&Request> {
        visited();
        self.requests.get(key).map(|asked| &asked.request)
    }

    /// The request that another record names.
    pub fn request_named(&self, id: &RecordId) -> Option<&Request> {
        self.request(id.request()?)
    }

    /// Every request.
    pub fn requests(&self) -> impl Iterator<Item = (&RequestKey, &Request)> {
        self.requests.iter().map(|(key, asked)| (key, &asked.request))
    }

    /// A class.
    pub fn class(&self, name: &ClassName) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Every class that has a pool or a machine.
    pub fn classes(&self) -> impl Iterator<Item = (&ClassName, &Class)> {
        self.classes.iter()
    }

    /// A class's pool.
    pub fn pool(&self, name: &ClassName) -> Option<&Pool> {
        self.classes.get(name).and_then(|class| class.pool.as_ref())
    }

    /// How many machines of a class stand in no record, nor the launch that brought them, when they are too many to
    /// believe it: a table that is empty or was set back to an earlier day is no reason to end what runs.
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

    /// A launch.
    pub fn launch(&self, id: &LaunchId) -> Option<&TrackedLaunch> {
        visited();
        self.launches.get(id)
    }

    /// How many machines are ours and have no record, as they were last listed.
    pub fn orphans(&self) -> usize {
        self.unrecorded.len()
    }

    /// The class of a machine, with a record or without.
    pub fn class_of_machine(&self, arn: &InstanceArn) -> Option<&ClassName> {
        let recorded = self.instances.get(arn).map(|tracked| &tracked.instance.facts.resource_class);
        recorded.or_else(|| self.unrecorded.get(arn).and_then(|(machine, _)| machine.class.as_ref()))
    }

    /// What is stuck in a class: how many actions, and a sentence about the first.
    pub(crate) fn stuck_in(&self, class: &ClassName) -> Option<(usize, &str)> {
        let mut stuck = self.stuck.values().filter(|(of, _)| of == class);
        let (_, first) = stuck.next()?;
        Some((1 + stuck.count(), first))
    }

    /// Whether an action under way here holds a record, or something else of which there is one.
    pub fn is_busy(&self, slot: impl Into<Slot>) -> bool {
        self.busy.contains(&slot.into())
    }

    /// Until when a record is left alone after a failed write, if it is.
    pub(crate) fn rests(&self, record: impl Into<RecordId>, now: Duration) -> Option<Duration> {
        self.resting.get(&record.into()).copied().filter(|until| now < *until)
    }

    /// How many requests of a repository are taken on and not over.
    pub(crate) fn open_requests(&self, repository: &Repository) -> u32 {
        self.open.get(&repository.as_str().to_ascii_lowercase()).copied().unwrap_or(0)
    }

    /// Whether nothing remains to be done at once about what EC2 said of a machine: it is not ours, has ended, or serves
    /// a run that a mere risk does not disturb.
    pub fn settled_notice(&self, id: &InstanceId) -> bool {
        let Some(tracked) = self.by_id(id) else { return true };
        let waits = tracked.changed || tracked.doomed();
        match tracked.instance.life {
            Life::Terminated { .. } => true,
            Life::Created { run: None } | Life::Idle { pooled_at: Some(_) } => {
                !waits && tracked.interruption().is_none()
            }
            Life::Created { run: Some(_) }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Idle { pooled_at: None } => !waits,
        }
    }

    /// Every unit there is.
    pub fn units(&self) -> BTreeSet<Unit> {
        let instances = self.instances.keys().cloned().map(Unit::Instance);
        let unrecorded = self.unrecorded.keys().cloned().map(Unit::Instance);
        let requests = self.requests.keys().cloned().map(Unit::Request);
        let classes = self.classes.keys().cloned().map(Unit::Class);
        let launches = self.launches.keys().cloned().map(Unit::Launch);
        instances.chain(unrecorded).chain(requests).chain(classes).chain(launches).collect()
    }

    /// The class a request asks for, if its name can be one.
    pub fn class_of(request: &Request) -> Option<ClassName> {
        ClassName::parse(&request.intent.resource_class).ok()
    }

    /// Whether a request takes a machine of this EC2 type.
    pub(crate) fn accepts_type(&self, request: &Request, instance_type: &str) -> bool {
        let of_class = || Self::class_of(request).and_then(|class| self.pool(&class));
        match &request.intent.allowed_instance_types {
            Some(types) => types.accept(instance_type),
            None => of_class().is_none_or(|pool| pool.spec.allowed_instance_types.accept(instance_type)),
        }
    }

    /// Whether a machine is of a kind that its class keeps.
    pub(crate) fn class_accepts(&self, facts: &InstanceFacts) -> bool {
        self.pool(&facts.resource_class).is_none_or(|pool| pool.spec.fits(facts))
    }

    /// Whether a record is there that this program must leave alone.
    pub(crate) fn hands_off(&self, key: &RecordId) -> bool {
        self.newer.contains_key(key) || self.unreadable.contains_key(key)
    }

    /// Whether a newer attempt of the same run asks under the same name.
    pub(crate) fn superseded(&self, id: &RequestKey) -> Option<u32> {
        let (newest, _) = self.attempts.get(&line_of(id))?.last()?;
        (*newest > id.attempt).then_some(*newest)
    }

    /// The requests whose runners would have a request's label and that are no attempts of the same: of another run or
    /// name, or of the same under a key that spells the repository in another way.
    pub(crate) fn same_label(&self, request: &Request) -> impl Iterator<Item = &Request> {
        let line = line_of(&request.id);
        let same = self.labels.get(&label_of(request)).into_iter().flatten();
        let others = same.filter_map(|key| self.request(key)).filter(|other| other.id != request.id);
        others.filter(move |other| other.id.attempt == request.id.attempt || line_of(&other.id) != line)
    }

    /// Whether a launch is over.
    pub(crate) const fn is_open(launch: &Launch) -> bool {
        match launch.phase {
            LaunchPhase::Intent => true,
            LaunchPhase::Bound | LaunchPhase::Failed => false,
        }
    }
}

/// What requests of one run and name have in common.
pub(crate) fn line_of(id: &RequestKey) -> (String, String) {
    (format!("{}#{}", id.repository.folded(), id.run_id), id.name.to_string())
}

/// What requests have in common whose runners GitHub cannot tell apart.
pub(crate) fn label_of(request: &Request) -> (String, String) {
    (request.id.repository.owner().to_ascii_lowercase(), request.label().to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
