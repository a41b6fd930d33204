//! One action of a plan: an effect, and the facts that the operator needs without looking into it. Each kind of effect
//! has its constructor here, which is the one place that defines what the effect holds, who may carry it out and which
//! events it leaves.
//!
//! Over 400 lines: one constructor for each kind of effect.

use crate::model::{
    Agent, ClassName, EventType, Instance, InstanceArn, Launch, Pool, PoolMessage, Record, RecordId, Request,
    RequestKey, Slot,
};
use crate::ports::LaunchOrder;

use super::effect::{Effect, Step};
use super::reason::machines;
use super::runner::{AtGitHub, Credential, RunnerConfig, StaleRunners};

/// The message for people about an action: the event that it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether the event needs a person's attention.
    pub event_type: EventType,
    /// The reason, in one word.
    pub reason: &'static str,
    /// The message, as a sentence.
    pub message: String,
}

impl Note {
    /// Creates a note about an intended step.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Normal, reason, message: message.into() }
    }

    /// Creates a note about a fault.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, reason, message: message.into() }
    }
}

/// An event that an action leaves once it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// The record that it is about.
    pub subject: RecordId,
    /// The message.
    pub note: Note,
    /// The state or phase before.
    pub from: Option<&'static str>,
    /// The state or phase after.
    pub to: Option<&'static str>,
}

impl PlannedEvent {
    fn of_instance(step: &Step<Instance>, note: Note) -> Self {
        let (from, to) = (step.before.state().as_str(), step.after.state().as_str());
        Self { subject: step.before.key(), note, from: Some(from), to: Some(to) }
    }

    fn of_request(step: &Step<Request>, note: Note) -> Self {
        let phase = |request: &Request| request.status.phase.map(crate::model::Phase::as_str);
        Self { subject: step.before.key(), note, from: phase(&step.before), to: phase(&step.after) }
    }

    fn of_launch(step: &Step<Launch>, note: Note) -> Self {
        let (from, to) = (step.before.phase.as_str(), step.after.phase.as_str());
        Self { subject: step.before.key(), note, from: Some(from), to: Some(to) }
    }
}

/// One action of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The effect.
    pub effect: Effect,
    /// The kind of action: kinds fail and back off independently, and have their own limits.
    pub kind: &'static str,
    /// The slots that it holds while it is in progress: no other action of this operator is planned for them meanwhile.
    pub slots: Vec<Slot>,
    /// Whether only the holder of the lease does it: it spends a budget, or would only be done twice.
    pub leader_only: bool,
    /// Whether a failure backs off each of the records that it holds, and not its unit: a class acts for many records.
    pub rests_records: bool,
    /// Whether it only looks, reports or repeats a hint, which is of no interest to people.
    pub upkeep: bool,
    /// The events that it leaves.
    pub events: Vec<PlannedEvent>,
}

impl Planned {
    fn new(kind: &'static str, effect: Effect, slots: impl IntoIterator<Item = Slot>) -> Self {
        Self {
            effect,
            kind,
            slots: slots.into_iter().collect(),
            leader_only: false,
            rests_records: false,
            upkeep: false,
            events: Vec::new(),
        }
    }

    fn of_record(kind: &'static str, effect: Effect, record: RecordId) -> Self {
        Self::new(kind, effect, [Slot::Record(record)])
    }

    fn telling(self, events: impl IntoIterator<Item = PlannedEvent>) -> Self {
        Self { events: events.into_iter().collect(), ..self }
    }

    fn upkeep(self) -> Self {
        Self { upkeep: true, ..self }
    }

    fn leaders(self) -> Self {
        Self { leader_only: true, ..self }
    }

    /// Plans [`Effect::Instance`].
    pub fn instance(step: Step<Instance>, note: Note, github: AtGitHub) -> Self {
        let event = PlannedEvent::of_instance(&step, note);
        let key = step.before.key();
        Self::of_record("instance", Effect::Instance(Box::new(step), github), key).telling([event])
    }

    /// Plans [`Effect::Instance`] for a machine that no job of its request needs. A failure of it holds up nothing else.
    pub fn retirement(step: Step<Instance>, note: Note, github: AtGitHub) -> Self {
        let event = PlannedEvent::of_instance(&step, note);
        let key = step.before.key();
        Self::of_record("retire", Effect::Instance(Box::new(step), github), key).telling([event])
    }

    /// Plans [`Effect::Silence`], at this heartbeat.
    pub fn silence(step: Step<Instance>, seq: u64, note: Note) -> Self {
        let event = PlannedEvent::of_instance(&step, note);
        let key = step.before.key();
        Self::of_record("silence", Effect::Silence(Box::new(step), seq), key).telling([event])
    }

    /// Turns the planned write of a machine into [`Effect::Disown`]; other actions stay as they are.
    pub fn disowned_by(mut self, request: &Request) -> Self {
        if let Effect::Instance(step, _) = &self.effect {
            self.slots = [step.before.key(), request.key()].map(Slot::Record).into();
            self.effect = Effect::Disown(step.clone(), Box::new(request.clone()));
        }
        self
    }

    /// Plans [`Effect::Request`].
    pub fn request(step: Step<Request>, note: Note) -> Self {
        let event = PlannedEvent::of_request(&step, note);
        let key = step.before.key();
        let planned = Self::of_record("request", Effect::Request(Box::new(step)), key);
        Self { rests_records: true, ..planned }.telling([event])
    }

    /// Plans [`Effect::Launch`].
    pub fn launch(step: Step<Launch>, note: Note) -> Self {
        let event = PlannedEvent::of_launch(&step, note);
        let key = step.before.key();
        Self::of_record("launch", Effect::Launch(Box::new(step)), key).telling([event])
    }

    /// Plans [`Effect::Pool`].
    pub fn pool(step: Step<Pool>) -> Self {
        let key = step.before.key();
        Self::of_record("pool", Effect::Pool(Box::new(step)), key).leaders().upkeep()
    }

    /// Plans [`Effect::Pool`], with events.
    pub fn adoption(step: Step<Pool>, notes: Vec<Note>) -> Self {
        let subject = step.before.key();
        let told = |note| PlannedEvent { subject: subject.clone(), note, from: None, to: None };
        let events: Vec<_> = notes.into_iter().map(told).collect();
        let key = step.before.key();
        Self::of_record("adopt", Effect::Pool(Box::new(step)), key).leaders().upkeep().telling(events)
    }

    /// Plans [`Effect::Resolve`].
    pub fn resolve(pool: &Pool) -> Self {
        Self::of_record("resolve", Effect::Resolve(Box::new(pool.clone())), pool.key()).leaders().upkeep()
    }

    /// Plans [`Effect::Claim`].
    pub fn claim(
        request: Step<Request>,
        machines: Vec<Step<Instance>>,
        runner: Option<RunnerConfig>,
    ) -> Self {
        let slots: Vec<Slot> = machines
            .iter()
            .map(|step| step.before.key())
            .chain([request.before.key()])
            .map(Slot::Record)
            .collect();
        let note = Note::normal("Claimed", format!("claimed for {}", request.before.id));
        let claimed = machines.iter().map(|step| PlannedEvent::of_instance(step, note.clone()));
        let got = Note::normal("Claimed", format!("claimed {}", ids(&machines)));
        let events: Vec<_> = claimed.chain([PlannedEvent::of_request(&request, got)]).collect();
        let request = Box::new(request);
        let effect = Effect::Claim { request, machines, runner: runner.map(Box::new) };
        Self { rests_records: true, ..Self::new("claim", effect, slots) }.telling(events)
    }

    /// Plans [`Effect::Intend`], under this token of the lease.
    pub fn intend(launch: Launch, token: u64) -> Self {
        // It has no name yet, and launches of other classes are not held up.
        let slot = Slot::Launches(launch.resource_class.clone());
        Self::new("intend", Effect::Intend(Box::new(launch), token), [slot]).leaders()
    }

    /// Plans [`Effect::Order`].
    pub fn order(order: LaunchOrder) -> Self {
        let key = order.launch.key();
        Self::of_record("order", Effect::Order(Box::new(order)), key).leaders()
    }

    /// Plans [`Effect::Bind`].
    pub fn bind(
        launch: Step<Launch>,
        request: Option<Step<Request>>,
        machines: Vec<(Instance, Agent)>,
    ) -> Self {
        let slots: Vec<Slot> = machines
            .iter()
            .map(|(instance, _)| instance.key())
            .chain([launch.before.key()])
            .chain(request.iter().map(|step| step.before.key()))
            .map(Slot::Record)
            .collect();
        let note = Note::normal("Bound", launch.after.message.clone());
        let born = |instance: &Instance| {
            let whom = instance.run().map_or_else(|| "warm".to_owned(), |run| format!("for run {run}"));
            let message = format!("launched {whom} by {}", launch.before.launch_id);
            let note = Note::normal("Launched", message);
            PlannedEvent { subject: instance.key(), note, from: None, to: Some("created") }
        };
        let events: Vec<_> = std::iter::once(PlannedEvent::of_launch(&launch, note.clone()))
            .chain(machines.iter().map(|(instance, _)| born(instance)))
            .chain(request.iter().map(|step| PlannedEvent::of_request(step, note.clone())))
            .collect();
        let (launch, request) = (Box::new(launch), request.map(Box::new));
        Self::new("bind", Effect::Bind { launch, request, machines }, slots).telling(events)
    }

    /// Plans [`Effect::Orphan`].
    pub fn orphan(instance: Instance, note: Note) -> Self {
        let key = instance.key();
        let event = PlannedEvent { subject: key.clone(), note, from: None, to: Some("terminated") };
        Self::of_record("orphan", Effect::Orphan(Box::new(instance)), key).leaders().telling([event])
    }

    /// Plans [`Effect::Terminate`].
    pub fn terminate(arn: InstanceArn) -> Self {
        let key = Instance::key_of(&arn);
        Self::of_record("terminate", Effect::Terminate(arn), key)
    }

    /// Plans [`Effect::Describe`].
    pub fn describe_machine(arn: InstanceArn) -> Self {
        let key = Instance::key_of(&arn);
        Self::of_record("describe", Effect::Describe(arn), key).upkeep()
    }

    /// Plans [`Effect::Console`].
    pub fn console(arn: InstanceArn) -> Self {
        let slot = Slot::Console(arn.clone());
        Self::new("console", Effect::Console(arn), [slot]).leaders().upkeep()
    }

    /// Plans [`Effect::Bury`].
    pub fn bury(step: Step<Instance>) -> Self {
        let key = step.before.key();
        let note = Note::normal("Gone", "its end is confirmed");
        let event = PlannedEvent { subject: key.clone(), note, from: None, to: None };
        Self::of_record("bury", Effect::Bury(Box::new(step)), key).telling([event])
    }

    /// Plans [`Effect::Announce`].
    pub fn announce(instance: &Instance) -> Self {
        let arn = instance.facts.instance_arn.clone();
        let slot = Slot::Announcement(arn.clone());
        let message = Box::new(PoolMessage::announcing(instance));
        Self::new("announce", Effect::Announce(arn, message), [slot]).leaders().upkeep()
    }

    /// Plans [`Effect::Receive`].
    pub fn receive(class: ClassName, most: u32) -> Self {
        Self::new("receive", Effect::Receive(class.clone(), most), [Slot::Queue(class)]).upkeep()
    }

    /// Plans [`Effect::Credential`].
    pub fn credential(step: Step<Instance>, credential: Credential) -> Self {
        let key = step.before.key();
        Self::of_record(credential.kind(), Effect::Credential(Box::new(step), Box::new(credential)), key)
    }

    /// Plans [`Effect::Credential`], before any claim.
    pub fn registered_ahead(step: Step<Instance>, credential: Credential) -> Self {
        let key = step.before.key();
        let effect = Effect::Credential(Box::new(step), Box::new(credential));
        Self::of_record("ahead", effect, key).leaders().upkeep()
    }

    /// Plans [`Effect::Instance`] for a machine whose runner was registered ahead.
    pub fn ahead(step: Step<Instance>, note: Option<Note>, github: AtGitHub) -> Self {
        let event = note.map(|note| PlannedEvent::of_instance(&step, note));
        let key = step.before.key();
        let kind = match &github {
            AtGitHub::Label { .. } => "label",
            AtGitHub::Nothing
            | AtGitHub::AttachRemoval(_)
            | AtGitHub::ConfirmRemoved(_)
            | AtGitHub::Confirm { .. }
            | AtGitHub::Forget { .. } => "ahead",
        };
        // For a claim, the first operator that sees it does it, as with its other writes.
        let at_rest = step.before.run().is_none();
        let upkeep = event.is_none();
        let planned = Self::of_record(kind, Effect::Instance(Box::new(step), github), key).telling(event);
        Self { leader_only: at_rest, upkeep, ..planned }
    }

    /// Plans [`Effect::SweepRunner`].
    pub fn sweep_runner(instance: &Instance) -> Self {
        let (arn, stale) = (instance.facts.instance_arn.clone(), StaleRunners::of(instance, None));
        Self::of_record("sweep-runner", Effect::SweepRunner(arn, stale), instance.key()).leaders().upkeep()
    }

    /// Plans [`Effect::Look`].
    pub fn look(id: RecordId) -> Self {
        Self::of_record("look", Effect::Look(id.clone()), id).upkeep()
    }

    /// Plans [`Effect::Expire`], conditional on this `expiresAt`.
    pub fn expire(id: RecordId, expires_at: i64) -> Self {
        Self::of_record("expire", Effect::Expire(id.clone(), expires_at), id)
    }

    /// Plans [`Effect::Archive`].
    pub fn archive(id: RequestKey) -> Self {
        let record = RecordId::Request(id.clone());
        Self::of_record("archive", Effect::Archive(id), record).leaders().upkeep()
    }

    /// Plans [`Effect::Recall`].
    pub fn recall(id: RequestKey) -> Self {
        let record = RecordId::Request(id.clone());
        Self::of_record("recall", Effect::Recall(id), record).upkeep()
    }

    /// Lists the records among its slots: those to read when it is not known whether they were written.
    pub fn records(&self) -> impl Iterator<Item = &RecordId> {
        self.slots.iter().filter_map(Slot::record)
    }

    /// Returns whether it writes a record, or does something that only the record's owner does.
    pub fn holds(&self, record: impl Into<RecordId>) -> bool {
        self.slots.contains(&Slot::Record(record.into()))
    }

    /// Returns the note of its first event.
    pub fn note(&self) -> Option<&Note> {
        self.events.first().map(|event| &event.note)
    }

    /// Describes the action in one line, for people.
    pub fn describe(&self) -> String {
        let why = self.note().map_or("", |note| note.message.as_str());
        match &self.effect {
            Effect::Instance(step, _) | Effect::Silence(step, _) | Effect::Disown(step, _) => {
                let (id, from, to) =
                    (&step.before.facts.instance_id, step.before.state(), step.after.state());
                format!("instance {id}: {from} -> {to}: {why}")
            }
            Effect::Request(step) => {
                let (id, from, to) = (&step.before.id, step.before.phase(), step.after.phase());
                format!("request {id}: {from} -> {to}: {why}")
            }
            Effect::Launch(step) => format!("launch {}: {why}", step.before.launch_id),
            Effect::Pool(step) => format!("pool {}: update its status", step.before.spec.resource_class),
            Effect::Resolve(pool) => {
                format!("pool {}: see which image its parameter names", pool.spec.resource_class)
            }
            Effect::Claim { request, machines, .. } => {
                format!("request {}: claim {}", request.before.id, ids(machines))
            }
            Effect::Intend(launch, _) => {
                format!("launch {} of class {}", launch.count, launch.resource_class)
            }
            Effect::Order(order) => format!("launch {}: ask for its machines", order.launch.launch_id),
            Effect::Bind { launch, machines: new, .. } => {
                format!("launch {}: record {}", launch.before.launch_id, machines(new.len() as u32))
            }
            Effect::Orphan(instance) => {
                format!("instance {}: ours without a record, end it", instance.facts.instance_id)
            }
            Effect::Terminate(arn) => format!("instance {}: terminate", arn.instance_id()),
            Effect::Describe(arn) => format!("instance {}: see where it stands", arn.instance_id()),
            Effect::Console(arn) => format!("instance {}: read its console", arn.instance_id()),
            Effect::Bury(step) => {
                format!("instance {}: it is gone, record that", step.before.facts.instance_id)
            }
            Effect::Announce(arn, _) => format!("instance {}: announce as free", arn.instance_id()),
            Effect::Receive(class, _) => format!("class {class}: ask its queue who is free"),
            Effect::Credential(step, credential) => {
                let what = match **credential {
                    Credential::Registration(_) => "register",
                    Credential::Anew { .. } => "register anew",
                    Credential::Removal(_) => "deregister",
                    Credential::Ahead { .. } => "register ahead",
                    Credential::Promotion(_) => "keep what its claim wrote",
                };
                format!("instance {}: send what it needs to {what}", step.before.facts.instance_id)
            }
            Effect::SweepRunner(arn, _) => {
                format!("instance {}: remove the runner it may have left", arn.instance_id())
            }
            Effect::Look(key) => format!("record {key}: read it again"),
            Effect::Expire(key, _) => format!("record {key}: remove, its time is over"),
            Effect::Archive(id) => format!("request {id}: move its record to the history"),
            Effect::Recall(id) => format!("request {id}: see whether the history has one of its key"),
        }
    }
}

fn ids(machines: &[Step<Instance>]) -> String {
    let ids: Vec<&str> = machines.iter().map(|step| step.before.facts.instance_id.as_str()).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests;
