//! Collects the messages about a failed record and its related records: a request with its machines, launches and
//! class; a machine with its agent and request; a class with its machines that ended badly.
//!
//! Over 400 lines: each kind of record has its arm in each question.

use jiff::{SignedDuration, Timestamp};

use crate::decide::effective;
use crate::model::{
    Agent, ClassName, ConditionType, Event, EventType, Instance, Item, Launch, LaunchPhase, Life, Phase,
    Pool, Reading, Reason, Record, RecordId, Request, Signal, State, read,
};
use crate::yard::{Now, Tracked, Yard};

use super::end;
use super::record::{is_settled, troubled};

/// Most machines of one record that are examined, the last first.
const MACHINES: usize = 20;

/// A message and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The source, for people.
    pub by: String,
    /// The message.
    pub words: String,
    /// Whether it explains a fault of the record in question.
    pub sign: bool,
}

/// Lists the records related to a record, itself first, without repetition.
pub fn related(items: &[Item], key: &RecordId) -> Vec<RecordId> {
    let mut keys = vec![key.clone()];
    match key {
        RecordId::Request(_) => {
            keys.extend(last(items, |one| one.claim.as_ref().is_some_and(|claim| claim.request == *key)));
            keys.extend(
                all::<Launch>(items).filter(|one| one.request.as_ref() == Some(key)).map(|one| one.key()),
            );
            let request = all::<Request>(items).find(|one| one.key() == *key);
            keys.extend(request.and_then(|one| Some(Pool::key_of(&one.intent.resource_class.parse().ok()?))));
        }
        RecordId::Instance(arn) => {
            let machine = all::<Instance>(items).find(|one| one.facts.instance_arn == *arn);
            keys.extend(machine.iter().filter_map(|one| Some(one.claim.as_ref()?.request.clone())));
            keys.extend(machine.map(|one| Pool::key_of(&one.facts.resource_class)));
        }
        RecordId::Pool(class) => {
            let ours = |one: &Instance| one.facts.resource_class == *class && failed(one).is_some();
            keys.extend(last(items, ours));
            let short = |one: &Launch| one.resource_class == *class && one.phase == LaunchPhase::Failed;
            let mut launches: Vec<Launch> = all::<Launch>(items).filter(short).collect();
            launches.sort_by_key(|one| std::cmp::Reverse(one.created_at));
            keys.extend(launches.iter().take(MACHINES).map(Record::key));
        }
        RecordId::Launch(_) => {
            let launch = all::<Launch>(items).find(|one| one.key() == *key);
            let Some(launch) = launch else { return keys };
            keys.extend(last(items, |one| one.facts.launch_id.as_ref() == Some(&launch.launch_id)));
            keys.extend(launch.request.clone());
            keys.push(Pool::key_of(&launch.resource_class));
        }
        RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => {}
    }
    let mut seen = Vec::new();
    keys.retain(|key| {
        !seen.contains(key) && {
            seen.push(key.clone());
            true
        }
    });
    keys
}

/// Collects the messages about the first of these records and its related records. Only a message that explains a
/// current fault of the first one is a sign of its cause ([`Said::sign`]); where the record has no fault, no message
/// is. A machine is judged by its own messages, its agent's and its own events. A request is judged by its own messages
/// first, then by its machines. The last messages of each source come first.
pub fn evidence(yard: &Yard, now: &Now, items: &[Item], keys: &[RecordId], events: &[Event]) -> Vec<Said> {
    let Some(key) = keys.first() else { return Vec::new() };
    let wrong = wrong(yard, now, key);
    let mut told = Told { said: Vec::new(), wrong };
    if !is_over(yard, key)
        && let Some(why) = yard.leaderless(now)
    {
        told.sign("the lease".into(), &format!("no operator leads: {why}"));
    }
    for key in keys {
        if let Some(problem) = yard.unreadable.get(key) {
            told.sign(format!("the record {key}"), &format!("it cannot be read: {problem}"));
        }
    }
    match key {
        RecordId::Request(_) => {
            keys[..1].iter().for_each(|key| of_request(&mut told, items, key, true));
            of_machines(&mut told, yard, now, items, keys, events);
        }
        RecordId::Pool(class) => {
            of_pool(&mut told, yard, now, class, true);
            of_machines(&mut told, yard, now, items, keys, events);
        }
        RecordId::Instance(_)
        | RecordId::Launch(_)
        | RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => of_machines(&mut told, yard, now, items, keys, events),
    }
    of_launches_and_events(&mut told, items, keys, events);
    for other in &keys[1..] {
        match other {
            RecordId::Request(_) => of_request(&mut told, items, other, false),
            // A machine that still waits may do so for the reason that its class reports.
            RecordId::Pool(class) => of_pool(&mut told, yard, now, class, !is_over(yard, key)),
            RecordId::Instance(_)
            | RecordId::Agent(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => {}
        }
    }
    told.said
}

/// Adds the messages of launches, and the warnings about the other records. They explain nothing about a machine's own
/// end.
fn of_launches_and_events(told: &mut Told, items: &[Item], keys: &[RecordId], events: &[Event]) {
    let Some(key) = keys.first() else { return };
    let alone = key.instance().is_some();
    for launch in keys.iter().filter_map(|key| all::<Launch>(items).find(|one| one.key() == *key)) {
        let lacks = launch.phase == LaunchPhase::Failed || (launch.instances.len() as u32) < launch.count;
        told.add(format!("launch {}", launch.launch_id), &launch.message, lacks && !alone);
    }
    let since = well_since(key, events);
    let warnings = events.iter().rev().filter(|event| event.event_type == EventType::Warning);
    for event in warnings.filter(|event| !is_of_machine(keys, event)) {
        let counts = since.is_none_or(|since| event.at > since) && (!alone || event.subject == key.pk());
        told.add(
            format!("an event of {}", event.at),
            &format!("{}: {}", event.reason, event.message),
            counts,
        );
    }
}

/// The collected messages, each once.
struct Told {
    said: Vec<Said>,
    wrong: bool,
}

impl Told {
    fn add(&mut self, by: String, words: &str, sign: bool) {
        let sign = sign && self.wrong;
        match self.said.iter_mut().find(|one| one.words == words) {
            Some(known) => known.sign |= sign,
            None if words.is_empty() => {}
            None => self.said.push(Said { by, words: words.to_owned(), sign }),
        }
    }

    fn sign(&mut self, by: String, words: &str) {
        self.add(by, words, true);
    }
}

/// Returns whether a record has a fault now, or had one when it ended.
pub fn wrong(yard: &Yard, now: &Now, key: &RecordId) -> bool {
    if yard.is_unreadable(key) {
        return true;
    }
    match key {
        RecordId::Request(id) => yard.request(id).is_none_or(|request| {
            let held = |kind| request.status.conditions.iter().any(|c| c.condition_type == kind && c.status);
            match request.phase() {
                Phase::Pending | Phase::Fulfilling | Phase::Releasing | Phase::Failed => true,
                Phase::Ready => held(ConditionType::Degraded) || held(ConditionType::IntentIgnored),
                Phase::Released => held(ConditionType::Unaccounted) || left_bad(yard, key),
            }
        }),
        RecordId::Instance(arn) => {
            yard.instance(arn).is_some_and(|tracked| trouble(yard, now, tracked).is_some())
        }
        RecordId::Pool(class) => {
            !is_settled(yard, *now, class) || yard.leaderless(now).is_some() || ends_badly(yard, class)
        }
        RecordId::Launch(id) => yard.launch(id).is_some_and(|tracked| {
            let launch = &tracked.launch;
            let short = (launch.instances.len() as u32) < launch.count;
            short && (launch.phase != LaunchPhase::Intent || !launch.message.is_empty())
        }),
        RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => false,
    }
}

/// Returns whether a machine that last served a request ended badly after serving it, and not while serving it.
fn left_bad(yard: &Yard, key: &RecordId) -> bool {
    let served = |one: &Instance| one.claim.as_ref().is_some_and(|claim| claim.request == *key);
    let after = |one: &Instance| failed(one).is_some() && end::lost_by(one).is_none();
    yard.instances().any(|one| served(&one.instance) && after(&one.instance))
}

/// Returns whether the last machine of a class that ended badly did so after any other machine of the class became of
/// use.
fn ends_badly(yard: &Yard, class: &ClassName) -> bool {
    let ours = || yard.instances().map(|one| &one.instance).filter(|one| one.facts.resource_class == *class);
    let bad = ours().filter(|one| failed(one).is_some()).map(|one| one.state_since).max();
    let good = ours().filter(|one| one.state() == State::Running || one.pooled_at().is_some());
    bad.is_some_and(|bad| good.map(|one| one.state_since).max().is_none_or(|good| good < bad))
}

/// Returns whether nothing more happens to a record.
fn is_over(yard: &Yard, key: &RecordId) -> bool {
    match key {
        RecordId::Request(id) => yard.request(id).is_some_and(|request| request.phase().is_final()),
        RecordId::Instance(arn) => yard.instance(arn).is_none_or(|one| !one.instance.state().live()),
        RecordId::Launch(id) => yard.launch(id).is_none_or(|one| one.launch.phase != LaunchPhase::Intent),
        RecordId::Pool(_) => false,
        RecordId::Agent(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => true,
    }
}

/// Describes the fault of a machine, by its record and its agent; none where there is none.
fn trouble(yard: &Yard, now: &Now, tracked: &Tracked) -> Option<String> {
    let instance = &tracked.instance;
    if let Life::Terminated { reason, .. } = instance.life {
        // Its agent has reported no key, and no job ran.
        let unused =
            matches!(reason, Reason::Threshold) && instance.uses == 0 && instance.public_key.is_none();
        let never =
            if unused { "it was ended before it was of use, and its agent never reported" } else { "" };
        let expired = reason == Reason::Expired || end::lost_by(instance).is_some();
        return match (never, reason.is_failure() || expired) {
            ("", true) => Some(format!("it ended with reason {reason}: {}", end::ended(instance)?)),
            ("", false) => None,
            (never, _) => Some(never.to_owned()),
        };
    }
    let agent = tracked.agent.as_ref();
    if let Some(notice) = tracked.interruption().filter(|_| tracked.is_interrupted()) {
        return Some(format!("spot interruption: EC2 takes it back ({})", notice.action));
    }
    let signal = agent.and_then(|agent| agent.signal);
    if let Some(signal) = signal.filter(|signal| is_bad(*signal)) {
        return Some(format!("its agent says {signal}"));
    }
    let threshold = instance.threshold?;
    let (all, left) = (threshold.at.duration_since(threshold.set_at), threshold.at.duration_since(now.wall));
    let silent = agent.is_none_or(|agent| agent.heartbeat_seq == 0);
    let waits = match instance.state() {
        State::Created => silent && left < all / 2,
        State::Claimed | State::Running | State::Idle | State::Terminated => false,
    };
    if waits {
        return Some("it is created for long, and its agent never reported yet".into());
    }
    if left < SignedDuration::ZERO {
        return Some(format!("it is past its deadline in {}: no operator ended it", instance.state()));
    }
    let claimed = matches!(instance.state(), State::Created | State::Claimed) && instance.run().is_some();
    let pool = yard.pool(&instance.facts.resource_class).filter(|_| claimed)?;
    let stuck =
        pool.status.conditions.iter().find(|c| c.condition_type == ConditionType::Stuck && c.status)?;
    Some(stuck.message.clone())
}

/// Returns whether an agent's signal reports a failure.
const fn is_bad(signal: Signal) -> bool {
    match signal {
        Signal::Failed | Signal::RegFailed | Signal::RemoveRegFailed => true,
        Signal::Ok | Signal::RegOk | Signal::RemoveRegOk => false,
    }
}

/// Adds the messages of the machines among some records: for each, its agent's first, then the consequences.
fn of_machines(told: &mut Told, yard: &Yard, now: &Now, items: &[Item], keys: &[RecordId], events: &[Event]) {
    for arn in keys.iter().filter_map(RecordId::instance) {
        let (id, key) = (arn.instance_id(), Instance::key_of(arn));
        let bad = yard.instance(arn).and_then(|tracked| trouble(yard, now, tracked));
        let agent = all::<Agent>(items).find(|one| one.arn.as_ref() == Some(arn));
        let detail = agent.as_ref().and_then(|agent| agent.signal_detail.as_deref());
        told.add(format!("the agent of {id}"), detail.unwrap_or_default(), bad.is_some());
        let unheard = agent.as_ref().and_then(|agent| agent.runner_trouble.as_ref());
        told.add(format!("the runner of {id}"), unheard.map_or("", |one| one.words.as_str()), true);
        let machine = yard.instance(arn).map(|tracked| &tracked.instance);
        let console = machine.and_then(|machine| machine.console.as_deref());
        told.add(format!("the console of {id}"), console.unwrap_or_default(), bad.is_some());
        let warnings = events.iter().rev().filter(|event| event.event_type == EventType::Warning);
        for event in warnings.filter(|event| event.subject == key.pk()) {
            let words = format!("{}: {}", event.reason, event.message);
            told.add(format!("an event of {}", event.at), &words, bad.is_some());
        }
        told.sign(format!("the record of {id}"), &bad.unwrap_or_default());
    }
}

/// Returns whether an event is one of a machine's own, which are added with the machine.
fn is_of_machine(keys: &[RecordId], event: &Event) -> bool {
    keys.iter().any(|key| key.instance().is_some() && event.subject == key.pk())
}

/// Returns since when a request was last well: earlier warnings no longer apply.
fn well_since(key: &RecordId, events: &[Event]) -> Option<Timestamp> {
    key.request()?;
    let well = |event: &&Event| {
        event.subject == key.pk()
            && event.event_type == EventType::Normal
            && ["Ready", "Recovered"].contains(&event.reason.as_str())
    };
    events.iter().rfind(well).map(|event| event.at)
}

/// Adds the messages of a request's own record.
fn of_request(told: &mut Told, items: &[Item], key: &RecordId, sign: bool) {
    let Some(request) = all::<Request>(items).find(|one| one.key() == *key) else { return };
    told.add(format!("request {}", request.id), &request.status.message, sign);
    for one in request.status.conditions.iter().filter(|one| !one.message.is_empty()) {
        let counts = match one.condition_type {
            ConditionType::Ready => !one.status,
            ConditionType::Degraded | ConditionType::IntentIgnored | ConditionType::Unaccounted => one.status,
            ConditionType::Accepted
            | ConditionType::Warm
            | ConditionType::Blocked
            | ConditionType::Doubtful
            | ConditionType::Stuck
            | ConditionType::Listening
            | ConditionType::RuntimeEnds
            | ConditionType::RunnerHeldBack
            | ConditionType::RunnerEnds => false,
        };
        let by = format!("condition {} of {}", one.condition_type, request.id);
        told.add(by, &format!("{}: {}", one.reason, one.message), sign && counts);
    }
}

/// Adds the messages of a class, with those that apply now as signs.
fn of_pool(told: &mut Told, yard: &Yard, now: &Now, name: &ClassName, sign: bool) {
    let Some((class, pool)) = yard.class(name).and_then(|class| Some((class, class.pool.as_ref()?))) else {
        return;
    };
    let mut troubles = false;
    for one in pool.status.conditions.iter().filter(|one| !one.message.is_empty()) {
        let bad = troubled(one);
        troubles |= bad;
        told.add(
            format!("condition {} of {name}", one.condition_type),
            &format!("{}: {}", one.reason, one.message),
            sign && bad,
        );
    }
    if pool.spec.paused {
        told.add(format!("pool {name}"), &format!("class {name} is paused"), sign);
    }
    let (waiting, max) = (!class.waiting.all().is_empty(), pool.spec.max);
    if class.taken() >= max && (waiting || effective(pool, now.wall).desired > class.pooled.len() as u32) {
        told.add(
            format!("pool {name}"),
            &format!("class {name} has as many machines as max allows ({max})"),
            sign,
        );
    }
    told.add(format!("pool {name}"), &pool.status.message, sign && troubles);
}

/// Returns why a machine ended, if it failed.
fn failed(machine: &Instance) -> Option<Reason> {
    let Life::Terminated { reason, .. } = machine.life else { return None };
    Some(reason).filter(|reason| reason.is_failure())
}

/// Lists the matching machines, those whose state changed last first.
fn last(items: &[Item], meant: impl Fn(&Instance) -> bool) -> Vec<RecordId> {
    let mut machines: Vec<Instance> = all::<Instance>(items).filter(meant).collect();
    machines
        .sort_by(|a, b| (b.state_since, &b.facts.instance_id).cmp(&(a.state_since, &a.facts.instance_id)));
    machines.truncate(MACHINES);
    machines.iter().map(Instance::key).collect()
}

/// Lists all readable records of a kind.
fn all<T: Record>(items: &[Item]) -> impl Iterator<Item = T> {
    let of_kind = |item: &&Item| RecordId::of(item).is_some_and(|key| key.kind() == Some(T::KIND));
    items.iter().filter(of_kind).filter_map(|item| match read::<T>(item) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    })
}

#[cfg(test)]
mod tests;
