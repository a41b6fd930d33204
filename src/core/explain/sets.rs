//! Explains the runner scale sets of classes: what GitHub counts, which slots there are, and what is lacking and why.

use std::fmt;

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::decide::Slots;
use crate::model::{
    Asked, ClassName, Condition, ConditionType, InstanceId, JobReport, PoolSpec, Request, SetCounts,
    SetPlace, SetRecord, SetState,
};
use crate::yard::{Tracked, Yard};

/// A scale set, as people and gauges see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetReport {
    /// Its class.
    pub resource_class: ClassName,
    /// The organisation or the repository that has it at GitHub.
    pub place: String,
    /// Its name at GitHub.
    pub set_name: String,
    /// How far the operator is with it; none before its record is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<SetState>,
    /// Whether its messages are read.
    pub listening: bool,
    /// Why its messages are not read, once that has lasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// GitHub's counts of jobs and runners.
    pub statistics: SetCounts,
    /// When GitHub counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics_at: Option<Timestamp>,
    /// Its slots that are not over.
    pub slots: SlotCounts,
    /// How many jobs GitHub was told that it may hold.
    pub announced: u32,
    /// What it lacks.
    pub lacks: Vec<SetLack>,
}

/// The slots of a set that are not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SlotCounts {
    /// All of them.
    pub open: u32,
    /// Those whose runner has a job.
    pub job: u32,
    /// Those that have no machine yet.
    pub waiting: u32,
}

/// What a scale set lacks, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetLack {
    /// The class cannot have the set; the problem of its spec.
    Unusable(String),
    /// A class before it in the alphabet has a set with this label.
    SharedLabel(ClassName, String),
    /// No operator has begun with it.
    NotBegun,
    /// It is looked up, made or changed at GitHub.
    NotThere,
    /// Another listener has its session.
    Held,
    /// Its messages are not read.
    Trouble(String),
    /// The class does not serve it any more.
    Ending,
    /// The class is paused.
    Paused,
    /// So many jobs wait beyond the most slots that the class gives it.
    AtMost(u32, u32),
    /// A slot failed, then.
    Failed(Timestamp),
    /// So many of its slots have no machine.
    Machines(u32),
}

impl SetLack {
    /// Returns its word.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(_) => "Unusable",
            Self::SharedLabel(..) => "SharedLabel",
            Self::NotBegun => "NotBegun",
            Self::NotThere => "NotThere",
            Self::Held => "Held",
            Self::Trouble(_) => "Trouble",
            Self::Ending => "Ending",
            Self::Paused => "Paused",
            Self::AtMost(..) => "AtMost",
            Self::Failed(_) => "Failed",
            Self::Machines(_) => "Machines",
        }
    }
}

impl fmt::Display for SetLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => write!(f, "its class cannot have it: {why}"),
            Self::SharedLabel(class, label) => {
                write!(f, "class {class} has a set with its label {label}, and is listened to instead")
            }
            Self::NotBegun => f.write_str("no operator has begun with it"),
            Self::NotThere => f.write_str("it is looked up or made at GitHub"),
            Self::Held => f.write_str("another listener has its session; it is asked for every 10 s"),
            Self::Trouble(why) => write!(f, "its messages are not read: {why}"),
            Self::Ending => {
                f.write_str("its class does not serve it any more: it is deleted after its slots")
            }
            Self::Paused => f.write_str("its class is paused: no slot is made"),
            Self::AtMost(jobs, most) => {
                write!(
                    f,
                    "{jobs} of its jobs wait: its class gives it at most {most} slots (queue.maxSlots, max)"
                )
            }
            Self::Failed(at) => write!(f, "a slot failed at {at}: for a minute after it none is made"),
            Self::Machines(1) => f.write_str("1 of its slots waits for a machine"),
            Self::Machines(slots) => write!(f, "{slots} of its slots wait for machines"),
        }
    }
}

impl Serialize for SetLack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut lack = serializer.serialize_struct("SetLack", 2)?;
        lack.serialize_field("reason", self.reason())?;
        lack.serialize_field("message", &self.to_string())?;
        lack.end()
    }
}

impl SetReport {
    /// Formats it in one sentence, and what it lacks in further ones.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let named = format!("scale set {} at {}", self.set_name, self.place);
        let SlotCounts { open, job, waiting } = self.slots;
        let state = self.state.map_or("no record", SetState::as_str);
        let since =
            self.condition.as_ref().map_or(String::new(), |one| format!(" (trouble since {})", one.at));
        let SetCounts { assigned, running, .. } = self.statistics;
        let counted = self.statistics_at.map_or_else(
            || "GitHub has not counted its jobs".to_owned(),
            |at| format!("GitHub counted {assigned} jobs, {running} of them running, at {at}"),
        );
        let announced = self.announced;
        let first = format!(
            "{named}: {state}{since}; {counted}; slots: {open}, {job} with a job, {waiting} without a machine; GitHub may \
             give it {announced} jobs"
        );
        let lacks = self.lacks.iter().map(|lack| format!("waits: {named}: {lack}"));
        std::iter::once(first).chain(lacks).collect()
    }
}

/// Reports the scale sets of all classes, by class and place; those that are gone are left out.
#[must_use]
pub fn sets(yard: &Yard) -> Vec<SetReport> {
    let pools = yard.classes().filter_map(|(_, class)| class.pool.as_ref());
    let serving: Vec<&PoolSpec> =
        pools.map(|pool| &pool.spec).filter(|spec| spec.serves_sets().is_some()).collect();
    let served = serving
        .iter()
        .flat_map(|spec| spec.set_places().into_iter().map(|place| (spec.resource_class.clone(), place)));
    let left = yard.sets().filter(|set| set.state != SetState::Gone).filter_map(|set| set.key.clone());
    let mut keys: Vec<(ClassName, SetPlace)> = served.chain(left).collect();
    keys.sort();
    keys.dedup();
    if keys.is_empty() {
        return Vec::new();
    }
    let slots = Slots::all(yard);
    let report = |(class, place): (ClassName, SetPlace)| {
        let spec = serving.iter().find(|spec| spec.resource_class == class);
        let spec = spec.filter(|spec| spec.set_places().contains(&place)).copied();
        let key = Some((class, place));
        let record = yard.sets().find(|set| set.key == key);
        let (class, place) = key?;
        let id = record.and_then(|record| record.scale_set_id);
        let slots = id.and_then(|id| slots.get(&(place.clone(), id)));
        Some(one(class, &place, spec, record, slots, &serving))
    };
    keys.into_iter().filter_map(report).collect()
}

fn one(
    class: ClassName,
    place: &SetPlace,
    spec: Option<&PoolSpec>,
    record: Option<&SetRecord>,
    slots: Option<&Slots>,
    serving: &[&PoolSpec],
) -> SetReport {
    let count = |which: fn(&crate::decide::SetSlot) -> bool| {
        let open = slots.into_iter().flat_map(|slots| &slots.open);
        u32::try_from(open.filter(|slot| which(slot)).count()).unwrap_or(u32::MAX)
    };
    let counts = SlotCounts {
        open: count(|_| true),
        job: count(|slot| slot.has_job),
        waiting: count(|slot| slot.waits),
    };
    let condition = record.and_then(not_listening);
    let first_label = spec.and_then(PoolSpec::serves_sets).and_then(|queue| queue.labels.first());
    let set_name = record.map(|record| &record.set_name).filter(|name| !name.is_empty()).or(first_label);
    let mut report = SetReport {
        place: place.to_string(),
        set_name: set_name.cloned().unwrap_or_default(),
        state: record.map(|record| record.state),
        listening: condition.is_none() && record.is_some_and(|record| reads_messages(record.state)),
        condition: condition.cloned(),
        statistics: record.map(|record| record.statistics).unwrap_or_default(),
        statistics_at: record.and_then(|record| record.statistics_at),
        slots: counts,
        announced: record.map_or(0, |record| record.announced),
        lacks: Vec::new(),
        resource_class: class,
    };
    report.lacks = lacks(&report, spec, slots.and_then(|slots| slots.failed_at), serving);
    report
}

/// Returns why the messages of a set are not read, if its record says so.
fn not_listening(record: &SetRecord) -> Option<&Condition> {
    let mut conditions = record.conditions.iter();
    conditions.find(|one| one.condition_type == ConditionType::Listening && !one.status)
}

/// Returns whether messages are read in this state.
const fn reads_messages(state: SetState) -> bool {
    match state {
        SetState::Listening | SetState::Draining => true,
        SetState::Ensuring | SetState::Waiting | SetState::Gone => false,
    }
}

fn lacks(
    report: &SetReport,
    spec: Option<&PoolSpec>,
    failed_at: Option<Timestamp>,
    serving: &[&PoolSpec],
) -> Vec<SetLack> {
    let trouble = report.condition.as_ref().map(|one| SetLack::Trouble(one.message.clone()));
    let Some(spec) = spec else { return std::iter::once(SetLack::Ending).chain(trouble).collect() };
    if let Err(error) = spec.check_queue() {
        return vec![SetLack::Unusable(error.to_string())];
    }
    if let Some((class, label)) = spec.loses_its_set_to(serving.iter().copied()) {
        return vec![SetLack::SharedLabel(class.clone(), label.to_owned())];
    }
    let state = match report.state {
        None | Some(SetState::Gone) => Some(SetLack::NotBegun),
        Some(SetState::Ensuring) => Some(SetLack::NotThere),
        Some(SetState::Waiting) => Some(SetLack::Held),
        Some(SetState::Listening | SetState::Draining) => None,
    };
    let queue = spec.serves_sets();
    let most = queue.map_or(0, |queue| queue.max_slots.min(spec.max));
    let beyond = report.statistics.assigned.saturating_sub(most);
    let target = report.statistics.assigned.saturating_add(queue.map_or(0, |queue| queue.standing)).min(most);
    let short = report.slots.open < target;
    let waiting = report.slots.waiting;
    let found = [
        // What its condition says is more than that its session is held.
        trouble.or(state),
        spec.paused.then_some(SetLack::Paused),
        (beyond > 0).then_some(SetLack::AtMost(beyond, most)),
        failed_at.filter(|_| short && !spec.paused).map(SetLack::Failed),
        (waiting > 0).then_some(SetLack::Machines(waiting)),
    ];
    found.into_iter().flatten().collect()
}

/// Returns the jobs that the runners of a slot have or had, each with its machine: as the agents tell them, and as the
/// request keeps the last one after that.
pub fn jobs_of_slot<'a>(yard: &'a Yard, request: &'a Request) -> Vec<(&'a InstanceId, &'a JobReport)> {
    let told: Vec<_> = yard.jobs_of_slot(request).collect();
    let kept = request.status.served.last().zip(request.status.job.as_ref());
    if told.is_empty() { kept.into_iter().collect() } else { told }
}

/// Names a job of a slot's runner.
pub(super) fn named(job: &JobReport) -> String {
    let JobReport { repository, run_id, attempt, name, at } = job;
    format!("job {name} of {repository} run {run_id}/{attempt}, begun {at}")
}

/// Names the job that a machine's runner has or had in its claim, if a slot holds the machine.
pub(super) fn job_on(tracked: &Tracked) -> Option<String> {
    let claim = tracked.instance.claim.as_ref()?;
    tracked.agent.as_ref()?.job_of(&claim.id).map(named)
}

/// Describes a slot: its set, and the job that its runner has.
pub(super) fn slot(yard: &Yard, request: &Request) -> Vec<String> {
    match request.intent.asked {
        Asked::Set => {}
        Asked::Verb | Asked::Job | Asked::Rerun => return Vec::new(),
    }
    let (class, place) = (&request.intent.resource_class, SetPlace::repository(&request.id.repository));
    let mut sets = yard.sets().filter(|set| set.scale_set_id == request.id.set());
    let set = sets.find(|set| set.key.as_ref().is_some_and(|(_, at)| *at == place));
    let name = set.map_or(String::new(), |set| format!(" {}", set.set_name));
    let first = format!(
        "the operator wrote it as a slot of scale set{name} of class {class} at {place}: its runner gets one job, which \
         GitHub decides"
    );
    let jobs = jobs_of_slot(yard, request)
        .into_iter()
        .map(|(id, job)| format!("machine {id} has or had {}", named(job)));
    std::iter::once(first).chain(jobs).collect()
}

#[cfg(test)]
mod tests;
