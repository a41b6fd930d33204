//! What can be planned. Each action is one call of one port; each write carries the record it replaces and the record
//! it makes, so carrying it out leaves nothing to choose.

use std::time::Duration;

use crate::model::{
    Agent, ClassName, EventType, Instance, InstanceArn, InstanceId, Launch, LaunchId, Pool, Record, RecordId,
    Request, Slot, Versioned, words,
};
use crate::ports::Machine;

/// A record before and after a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<T> {
    /// As it was read.
    pub before: T,
    /// As it will be.
    pub after: T,
}

impl<T: Versioned> Step<T> {
    /// The next version of a record, changed by `change`.
    pub fn of(before: &T, now: jiff::Timestamp, change: impl FnOnce(&mut T)) -> Self {
        let mut after = before.clone();
        after.advance(now);
        change(&mut after);
        Self { before: before.clone(), after }
    }
}

/// What is said about an action to people: the event it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether a person should mind.
    pub event_type: EventType,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Note {
    /// As intended.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Normal, reason, message: message.into() }
    }

    /// Something went wrong.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, reason, message: message.into() }
    }
}

/// Which credential a machine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// To register its runner.
    Registration,
    /// To deregister it.
    Removal,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write an instance record. Fenced by its version.
    Instance(Box<Step<Instance>>, Note),
    /// Tombstone a machine for silence: its version, and the heartbeat that was judged.
    Silence(Box<Step<Instance>>, u64, Note),
    /// Write a request record. Fenced by its version.
    Request(Box<Step<Request>>, Note),
    /// Write a launch record. Fenced by its version.
    Launch(Box<Step<Launch>>, Note),
    /// Write a pool's status. Fenced by its version.
    Pool(Box<Step<Pool>>),
    /// Assign pooled machines to a request: one transaction over all their versions and the request's.
    Claim {
        /// The request, gaining the machines.
        request: Box<Step<Request>>,
        /// The machines, at most 40.
        machines: Vec<Step<Instance>>,
    },
    /// Record an intent to launch: the record must be new and the lease still ours.
    Intend(Box<Launch>, u64),
    /// Ask the maker for an intent's machines, by its token.
    Order(LaunchId),
    /// Record what a launch brought: every machine new, the intent open, the request at the version that was read.
    Bind {
        /// The intent, becoming `Bound`.
        launch: Box<Step<Launch>>,
        /// The request, gaining what it lacks.
        request: Option<Box<Step<Request>>>,
        /// The new machines with their agents.
        machines: Vec<(Instance, Agent)>,
    },
    /// Record a machine nobody knows as decided to end: it must still be without a record.
    Orphan(Box<Instance>, Note),
    /// End a machine whose record says so.
    Terminate(InstanceArn),
    /// Ask the maker where a machine stands.
    Describe(InstanceArn),
    /// Record that a machine is gone and remove its agent record, in one transaction.
    Bury(Box<Step<Instance>>),
    /// Say on the class's queue that a pooled machine is free.
    Announce(InstanceArn),
    /// See who the queue says is free.
    Receive(ClassName),
    /// Mint, seal and write what a machine lacks.
    Credential(InstanceArn, Credential),
    /// Remove the runner that an ended machine may have left at GitHub.
    SweepRunner(InstanceArn),
    /// Read a record strongly before deciding on its absence or silence.
    Look(RecordId),
    /// Remove a record whose time is over. Fenced by its `expiresAt`.
    Expire(RecordId, i64),
}

impl Action {
    /// What it holds while it is under way: nobody else here plans for it meanwhile.
    pub fn slots(&self) -> Vec<Slot> {
        let record = |id: RecordId| vec![Slot::Record(id)];
        match self {
            Self::Instance(step, _) | Self::Silence(step, ..) | Self::Bury(step) => record(step.before.key()),
            Self::Request(step, _) => record(step.before.key()),
            Self::Launch(step, _) => record(step.before.key()),
            Self::Pool(step) => record(step.before.key()),
            Self::Claim { request, machines } => {
                let machines = machines.iter().map(|step| step.before.key());
                machines.chain([request.before.key()]).map(Slot::Record).collect()
            }
            // It has no name yet, and other classes are not held up.
            Self::Intend(launch, _) => vec![Slot::Launches(launch.resource_class.clone())],
            Self::Order(id) => record(Launch::key_of(id)),
            Self::Bind { launch, request, machines } => {
                let machines = machines.iter().map(|(instance, _)| instance.key());
                let others =
                    [launch.before.key()].into_iter().chain(request.iter().map(|step| step.before.key()));
                machines.chain(others).map(Slot::Record).collect()
            }
            Self::Orphan(instance, _) => record(instance.key()),
            Self::Terminate(arn)
            | Self::Describe(arn)
            | Self::Credential(arn, _)
            | Self::SweepRunner(arn) => record(Instance::key_of(arn)),
            Self::Receive(class) => vec![Slot::Queue(class.clone())],
            Self::Announce(arn) => vec![Slot::Announcement(arn.clone())],
            Self::Look(id) | Self::Expire(id, _) => record(id.clone()),
        }
    }

    /// The records among what it holds: what can be read when nobody knows whether it was written.
    pub fn records(&self) -> Vec<RecordId> {
        self.slots().iter().filter_map(Slot::record).cloned().collect()
    }

    /// Whether it writes a record, or does something that only its owner does.
    pub fn holds(&self, record: impl Into<RecordId>) -> bool {
        self.slots().contains(&Slot::Record(record.into()))
    }

    /// What kind of thing it is: kinds fail and rest apart from each other.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Instance(..) => "instance",
            Self::Silence(..) => "silence",
            Self::Request(..) => "request",
            Self::Launch(..) => "launch",
            Self::Pool(_) => "pool",
            Self::Claim { .. } => "claim",
            Self::Intend(..) => "intend",
            Self::Order(_) => "order",
            Self::Bind { .. } => "bind",
            Self::Orphan(..) => "orphan",
            Self::Terminate(_) => "terminate",
            Self::Describe(_) => "describe",
            Self::Bury(_) => "bury",
            Self::Announce(_) => "announce",
            Self::Receive(_) => "receive",
            Self::Credential(..) => "credential",
            Self::SweepRunner(_) => "sweep-runner",
            Self::Look(_) => "look",
            Self::Expire(..) => "expire",
        }
    }

    /// Whether only the holder of the lease does it: it spends a budget, or would only be done twice.
    pub const fn leader_only(&self) -> bool {
        match self {
            Self::Intend(..) | Self::Order(_) | Self::Pool(_) | Self::Orphan(..) => true,
            Self::Instance(..)
            | Self::Silence(..)
            | Self::Request(..)
            | Self::Launch(..)
            | Self::Claim { .. }
            | Self::Bind { .. }
            | Self::Terminate(_)
            | Self::Describe(_)
            | Self::Bury(_)
            | Self::Announce(_)
            | Self::Receive(_)
            | Self::Credential(..)
            | Self::SweepRunner(_)
            | Self::Look(_)
            | Self::Expire(..) => false,
        }
    }

    /// A line for a person: what would be done.
    pub fn describe(&self) -> String {
        match self {
            Self::Instance(step, note) | Self::Silence(step, _, note) => {
                let (id, from, to) =
                    (&step.before.facts.instance_id, step.before.state(), step.after.state());
                format!("instance {id}: {from} -> {to}: {}", note.message)
            }
            Self::Request(step, note) => {
                format!(
                    "request {}: {} -> {}: {}",
                    step.before.id,
                    step.before.phase(),
                    step.after.phase(),
                    note.message
                )
            }
            Self::Launch(step, note) => format!("launch {}: {}", step.before.launch_id, note.message),
            Self::Pool(step) => format!("pool {}: update its status", step.before.spec.resource_class),
            Self::Claim { request, machines } => {
                let ids: Vec<_> =
                    machines.iter().map(|step| step.before.facts.instance_id.to_string()).collect();
                format!("request {}: claim {}", request.before.id, ids.join(", "))
            }
            Self::Intend(launch, _) => format!("launch {} of class {}", launch.count, launch.resource_class),
            Self::Order(id) => format!("launch {id}: ask for its machines"),
            Self::Bind { launch, machines, .. } => {
                format!(
                    "launch {}: record {}",
                    launch.before.launch_id,
                    super::reason::machines(machines.len() as u32)
                )
            }
            Self::Orphan(instance, _) => {
                format!("instance {}: ours without a record, end it", instance.facts.instance_id)
            }
            Self::Terminate(arn) => format!("instance {}: terminate", arn.instance_id()),
            Self::Describe(arn) => format!("instance {}: see where it stands", arn.instance_id()),
            Self::Bury(step) => {
                format!("instance {}: it is gone, record that", step.before.facts.instance_id)
            }
            Self::Announce(arn) => format!("instance {}: announce as free", arn.instance_id()),
            Self::Receive(class) => format!("class {class}: ask its queue who is free"),
            Self::Credential(arn, Credential::Registration) => {
                format!("instance {}: send what it needs to register", arn.instance_id())
            }
            Self::Credential(arn, Credential::Removal) => {
                format!("instance {}: send what it needs to deregister", arn.instance_id())
            }
            Self::SweepRunner(arn) => {
                format!("instance {}: remove the runner it may have left", arn.instance_id())
            }
            Self::Look(key) => format!("record {key}: read it again"),
            Self::Expire(key, _) => format!("record {key}: remove, its time is over"),
        }
    }
}

words! {
    /// Why something that could be expected is not done now.
    WaitReason {
        /// Its record is being written.
        Busy = "Busy",
        /// For machines that are on their way.
        Starting = "Starting",
        /// For machines that are given back or cleaned.
        Cleaning = "Cleaning",
        /// An older request comes first.
        Behind = "Behind",
        /// The class has as many machines as `max` allows.
        AtMax = "AtMax",
        /// Launches of the class are held back after failures.
        BackOff = "BackOff",
        /// What it asks for was not to be had, and is left alone for a while.
        NoCapacity = "NoCapacity",
        /// The class is paused.
        Paused = "Paused",
        /// Somebody else holds the lease.
        NotLeader = "NotLeader",
        /// For an agent to speak.
        Agent = "Agent",
        /// For a deadline.
        Deadline = "Deadline",
        /// Free machines exist and do not fit.
        Mismatch = "Mismatch",
        /// GitHub cannot be reached.
        GitHub = "GitHub",
        /// What is seen lacks too much to be believed.
        Doubt = "Doubt",
    }
}

/// Something not done, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The record that waits.
    pub subject: RecordId,
    /// Why.
    pub reason: WaitReason,
    /// A sentence.
    pub message: String,
}

/// What to do about one unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Now; at most one action per record.
    pub actions: Vec<Action>,
    /// When to look again although nothing changed, on the monotonic clock.
    pub wake: Option<Duration>,
    /// What is not done, and why.
    pub waits: Vec<Wait>,
}

impl Plan {
    /// Look again at this moment, or sooner.
    pub(super) fn wake_at(&mut self, at: Duration) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Only this.
    pub(super) fn act(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    /// Add the reason for not doing something.
    pub(super) fn wait(
        &mut self,
        subject: impl Into<RecordId>,
        reason: WaitReason,
        message: impl Into<String>,
    ) {
        self.waits.push(Wait { subject: subject.into(), reason, message: message.into() });
    }
}

/// Machines and the ids of machines, for messages.
pub(super) fn named(machines: &[Machine]) -> String {
    let ids: Vec<&InstanceId> = machines.iter().map(|machine| &machine.id).collect();
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
