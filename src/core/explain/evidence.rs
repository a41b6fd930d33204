//! What was said about a record that failed, and about those that belong to it: a request with its machines, launches
//! and class; a machine with its agent and request; a class with its machines that ended badly.

use crate::model::{
    Agent, Condition, Event, EventType, Instance, Item, Launch, Life, Pool, Reading, Reason, Record,
    RecordId, Request, State, read,
};

/// Most machines of one record that are looked at, the last first.
const MACHINES: usize = 20;

/// Something that was said, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The source, for people.
    pub by: String,
    /// The words.
    pub words: String,
}

/// The records that belong to a record, itself first, without repetition.
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

/// What was said about these records: by machines first, then by EC2 and GitHub through events, then by the operator
/// about requests and classes. Of each source the last words come first.
pub fn evidence(items: &[Item], keys: &[RecordId], events: &[Event]) -> Vec<Said> {
    let mut said = Vec::new();
    let mut add = |by: String, words: &str| {
        if !words.is_empty() {
            said.push(Said { by, words: words.to_owned() });
        }
    };
    for arn in keys.iter().filter_map(RecordId::instance) {
        let id = arn.instance_id();
        let agent = all::<Agent>(items).find(|one| one.arn.as_ref() == Some(arn));
        let machine = all::<Instance>(items).find(|one| one.facts.instance_arn == *arn);
        let detail = agent.as_ref().and_then(|agent| agent.signal_detail.as_deref());
        add(format!("the agent of {id}"), detail.unwrap_or_default());
        let Some(machine) = machine else { continue };
        add(format!("the console of {id}"), machine.console.as_deref().unwrap_or_default());
        let silent = agent.is_some_and(|agent| agent.heartbeat_seq == 0);
        if machine.state() == State::Created && silent {
            add(format!("the record of {id}"), "it is created, and its agent never reported yet");
        }
    }
    let warnings = |event: &&Event| event.event_type == EventType::Warning;
    for event in events.iter().rev().filter(warnings) {
        add(format!("an event of {}", event.at), &format!("{}: {}", event.reason, event.message));
    }
    for key in keys {
        let request = all::<Request>(items).find(|one| one.key() == *key);
        if let Some(request) = request {
            add(format!("request {}", request.id), &request.status.message);
            conditions(&request.status.conditions, &request.id.to_string(), &mut add);
        }
        let pool = all::<Pool>(items).find(|one| one.key() == *key);
        if let Some(pool) = pool {
            let name = pool.spec.resource_class.to_string();
            add(format!("pool {name}"), &pool.status.message);
            conditions(&pool.status.conditions, &name, &mut add);
        }
        if let Some(launch) = all::<Launch>(items).find(|one| one.key() == *key) {
            add(format!("launch {}", launch.launch_id), &launch.message);
        }
    }
    for machine in all::<Instance>(items).filter(|one| keys.contains(&one.key())) {
        let id = &machine.facts.instance_id;
        match failed(&machine) {
            // It never was of use: its agent has shown no key and run nothing.
            Some(Reason::Threshold | Reason::BootFailed)
                if machine.uses == 0 && machine.public_key.is_none() =>
            {
                add(
                    format!("the record of {id}"),
                    "it was ended before it was of use, and its agent never reported",
                );
            }
            Some(reason) => add(format!("the record of {id}"), &format!("reason {reason}")),
            None => {}
        }
    }
    said
}

fn conditions(all: &[Condition], of: &str, add: &mut impl FnMut(String, &str)) {
    for one in all.iter().filter(|one| !one.message.is_empty()) {
        add(format!("condition {} of {of}", one.condition_type), &format!("{}: {}", one.reason, one.message));
    }
}

/// Why a machine ended, if something went wrong.
fn failed(machine: &Instance) -> Option<Reason> {
    let Life::Terminated { reason, .. } = machine.life else { return None };
    Some(reason).filter(|reason| reason.is_failure())
}

/// The machines that are meant, those whose state changed last first.
fn last(items: &[Item], meant: impl Fn(&Instance) -> bool) -> Vec<RecordId> {
    let mut machines: Vec<Instance> = all::<Instance>(items).filter(meant).collect();
    machines
        .sort_by(|a, b| (b.state_since, &b.facts.instance_id).cmp(&(a.state_since, &a.facts.instance_id)));
    machines.truncate(MACHINES);
    machines.iter().map(Instance::key).collect()
}

/// All records of a kind that can be read.
fn all<T: Record>(items: &[Item]) -> impl Iterator<Item = T> {
    let of_kind = |item: &&Item| RecordId::of(item).is_some_and(|key| key.kind() == Some(T::KIND));
    items.iter().filter(of_kind).filter_map(|item| match read::<T>(item) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    })
}

#[cfg(test)]
mod tests;
