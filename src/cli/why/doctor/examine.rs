//! Finds contradictions among all records of one moment; a pure function. Records are read one after another, so a
//! finding may be out of date: every repair is conditional on the record that was read.

mod sets;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::change::expire::ending;
use crate::pools::sharing;
use runyard_core::model::kind_of;
use runyard_core::model::{
    Agent, ConditionType, Desired, Event, EventType, Guard, Instance, InstanceId, Item, Kind,
    LEAST_IDLE_SECONDS, Launch, LaunchPhase, Lease, Phase, Pool, Reading, Record, RecordId, Request,
    SetRecord, State, Write, read,
};

/// A contradiction or a fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// `Warning` if a person must act, `Normal` if it resolves by itself.
    pub(crate) severity: EventType,
    /// The reason: one stable word in CamelCase.
    pub(crate) reason: &'static str,
    /// The affected record.
    pub(crate) record: String,
    /// The problem.
    pub(crate) problem: String,
    /// The fix.
    pub(crate) fix: String,
    /// The writes of a repair, all or none, each conditional on the record that was read. Empty if our writes cannot
    /// repair it.
    pub(crate) mend: Vec<Write>,
}

/// The records of one moment, by kind.
#[derive(Default)]
struct Records {
    /// The keys of all our items, readable or not: an unreadable record is not missing.
    keys: BTreeSet<RecordId>,
    instances: BTreeMap<RecordId, Instance>,
    agents: BTreeMap<RecordId, Agent>,
    requests: BTreeMap<RecordId, Request>,
    launches: Vec<Launch>,
    classes: BTreeSet<String>,
    pools: Vec<Pool>,
    sets: Vec<SetRecord>,
    operator: Option<Lease>,
}

/// Returns all findings about these records; `patience` is how late something may be.
pub(crate) fn examine(items: &[Item], now: Timestamp, patience: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let records = sort(items, &mut findings);
    let late = |at: Timestamp| now.duration_since(at) > patience.try_into().unwrap_or_default();
    operator(&records, &late, &mut findings);
    for instance in records.instances.values() {
        one_instance(instance, &records, now, &late, &mut findings);
    }
    for (key, request) in &records.requests {
        one_request(key, request, &records, &late, &mut findings);
    }
    for (key, agent) in &records.agents {
        one_agent(key, agent, &records, &late, &mut findings);
    }
    for pool in &records.pools {
        one_pool(pool, &mut findings);
    }
    for launch in &records.launches {
        one_launch(launch, &late, &mut findings);
    }
    findings.extend(sets::look(&records.pools, &records.sets, &late));
    findings
}

fn sort(items: &[Item], findings: &mut Vec<Finding>) -> Records {
    let mut records = Records::default();
    findings.extend(foreign_rows(items));
    for item in items {
        // Items whose key is not ours are ignored.
        let (Some(key), Some(kind)) = (RecordId::of(item), kind_of(item)) else { continue };
        records.keys.insert(key);
        match kind {
            Kind::Instance => keep(item, findings, |key, r| drop(records.instances.insert(key, r))),
            Kind::Agent => keep(item, findings, |key, r| drop(records.agents.insert(key, r))),
            Kind::Request => keep(item, findings, |key, r| drop(records.requests.insert(key, r))),
            Kind::Launch => keep(item, findings, |_, r| records.launches.push(r)),
            Kind::Pool => keep(item, findings, |_, r: Pool| {
                records.classes.insert(r.spec.resource_class.to_string());
                records.pools.push(r);
            }),
            Kind::Lease => keep(item, findings, |_, r: Lease| {
                if r.name == Lease::OPERATOR {
                    records.operator = Some(r);
                }
            }),
            Kind::Queue => keep(item, findings, |_, r| records.sets.push(r)),
            Kind::Event => keep(item, findings, |_, _: Event| {}),
        }
    }
    records
}

/// Returns a finding about rows that are not records, in partitions where workflows and machines may write. A client
/// with such a role can leave any number of them, and only a machine's are removed with it.
fn foreign_rows(items: &[Item]) -> Option<Finding> {
    let mut foreign = items.iter().filter_map(RecordId::of).filter(RecordId::is_unknown_row);
    let first = foreign.next()?;
    let problem = format!("it is no record, and {} more rows like it are none either", foreign.count());
    let fix = "delete them; CloudTrail's data events of the table name the role that wrote them";
    Some(warning("ForeignRows", &first, problem, fix, Vec::new()))
}

fn keep<T: Record>(item: &Item, findings: &mut Vec<Finding>, put: impl FnOnce(RecordId, T)) {
    match read::<T>(item) {
        Reading::Record(record) => put(record.key(), record),
        Reading::Newer { schema } => findings.push(Finding {
            severity: EventType::Warning,
            reason: "NewerRecord",
            record: RecordId::of(item).map(|key| key.to_string()).unwrap_or_default(),
            problem: format!("written by a newer runyard (schema {schema}); it is left alone"),
            fix: "update this runyard and the operator".into(),
            mend: Vec::new(),
        }),
        Reading::Unreadable(odd) => findings.push(unreadable(odd.key.to_string(), odd.problem)),
    }
}

fn unreadable(record: String, problem: String) -> Finding {
    Finding {
        severity: EventType::Warning,
        reason: "UnreadableRecord",
        record,
        problem,
        fix: "correct the attribute with any DynamoDB client and raise `version`; nothing else touches it"
            .into(),
        mend: Vec::new(),
    }
}

fn warning(reason: &'static str, key: &RecordId, problem: String, fix: &str, mend: Vec<Write>) -> Finding {
    let (severity, record) = (EventType::Warning, key.to_string());
    Finding { severity, reason, record, problem, fix: fix.into(), mend }
}

fn operator(records: &Records, late: &dyn Fn(Timestamp) -> bool, findings: &mut Vec<Finding>) {
    let key = Lease::key_of(Lease::OPERATOR);
    let problem = match &records.operator {
        None => "no operator ever held the lease".to_owned(),
        Some(lease) if lease.holder.is_empty() => "the last operator handed the lease back".to_owned(),
        Some(lease) if lease.updated_at.is_none_or(late) => {
            format!("{} has not renewed it since {}", lease.holder, lease.updated_at.unwrap_or_default())
        }
        Some(_) => return,
    };
    findings.push(warning("NoOperator", &key, problem, "start `runyard operator`", Vec::new()));
}

fn one_instance(
    instance: &Instance,
    records: &Records,
    now: Timestamp,
    late: &dyn Fn(Timestamp) -> bool,
    findings: &mut Vec<Finding>,
) {
    let (key, id) = (instance.key(), &instance.facts.instance_id);
    if let Some(threshold) = instance.threshold.filter(|threshold| late(threshold.at)) {
        let problem = format!("{} past its deadline {}", instance.state(), threshold.at);
        findings.push(warning(
            "PastDeadline",
            &key,
            problem,
            "check that an operator runs and what it logs",
            Vec::new(),
        ));
    }
    let agent = Agent::key_of(&instance.facts.instance_arn);
    if !records.keys.contains(&agent) && instance.state().live() && late(instance.facts.created_at) {
        let problem = format!("{id} is {} and has no agent record", instance.state());
        let fix = "expire the machine: its agent cannot speak";
        let mend = vec![ending(instance, now, "doctor"), Write::check(agent, Guard::Absent)];
        findings.push(warning("NoAgentRecord", &key, problem, fix, mend));
    }
    if !records.classes.contains(instance.facts.resource_class.as_str()) && instance.state().live() {
        let problem = format!("{id} is of class {}, which has no pool", instance.facts.resource_class);
        findings.push(warning(
            "NoPool",
            &key,
            problem,
            "apply the pool again, or expire its machines",
            Vec::new(),
        ));
    }
    if late(instance.state_since) {
        findings.extend(foreign_claim(instance, records, now));
    }
}

/// Returns a finding about a machine that is held for a request that will never return it.
fn foreign_claim(instance: &Instance, records: &Records, now: Timestamp) -> Option<Finding> {
    let (holder, id) = (instance.held_by()?, &instance.facts.instance_id);
    let (problem, seen) = match records.requests.get(holder) {
        None if records.keys.contains(holder) => return None,
        None => {
            let problem = format!("{id} is {} for {holder}, which does not exist", instance.state());
            (problem, Guard::Absent)
        }
        Some(request) if !request.status.instances.contains(id) => {
            let problem = format!("{id} is {} for {}, which does not list it", instance.state(), request.id);
            (problem, Guard::Version(request.version))
        }
        Some(request) if request.phase().is_final() => {
            let (state, phase) = (instance.state(), request.phase());
            let problem = format!("{id} is {state} for {}, which is {phase}", request.id);
            (problem, Guard::Version(request.version))
        }
        Some(_) => return None,
    };
    let mend = vec![ending(instance, now, "doctor"), Write::check(holder.clone(), seen)];
    let fix = "expire the machine: nobody would give it back";
    Some(warning("ForeignClaim", &instance.key(), problem, fix, mend))
}

fn one_request(
    key: &RecordId,
    request: &Request,
    records: &Records,
    late: &dyn Fn(Timestamp) -> bool,
    findings: &mut Vec<Finding>,
) {
    let status = &request.status;
    if request.updated_at.is_none_or(late) {
        let lost = status.instances.iter().filter_map(|id| lost_machine(key, id, records));
        let fix = "the operator mends it: run `runyard refresh`";
        findings.extend(lost.map(|problem| warning("LostMachine", key, problem, fix, Vec::new())));
    }
    if request.phase().wants_machines() && status.ready_at.is_none() && status.deadline.is_some_and(late) {
        let problem = format!("{} past its deadline", request.phase());
        let fix = "see `runyard explain request`, or `runyard fail` it";
        findings.push(warning("PastDeadline", key, problem, fix, Vec::new()));
    }
    let unaccounted = status
        .conditions
        .iter()
        .find(|condition| condition.condition_type == ConditionType::Unaccounted && condition.status);
    if let Some(told) = unaccounted {
        let fix =
            "mend or delete the machines' records; see at EC2 and GitHub whether machine and runner are gone";
        findings.push(warning("Unaccounted", key, told.message.clone(), fix, Vec::new()));
    }
    findings.extend(degraded(key, request, late));
    findings.extend(unanswered(key, request, late));
}

/// Returns the problem of a machine that a request lists, if there is one.
fn lost_machine(key: &RecordId, id: &InstanceId, records: &Records) -> Option<String> {
    match records.instances.values().find(|one| one.facts.instance_id == *id) {
        None if records.keys.iter().any(|key| key.machine() == Some(id.as_str())) => None,
        None => Some(format!("lists {id}, which has no record")),
        Some(one) if one.state() == State::Terminated => Some(format!("lists {id}, which is terminated")),
        Some(one) if one.claim.as_ref().is_none_or(|claim| claim.request != *key) => {
            Some(format!("lists {id}, which is claimed by another"))
        }
        Some(_) => None,
    }
}

/// Returns a finding about a ready request that has lacked machines for a long time.
fn degraded(key: &RecordId, request: &Request, late: &dyn Fn(Timestamp) -> bool) -> Option<Finding> {
    let status = &request.status;
    let degraded = status
        .conditions
        .iter()
        .find(|one| one.condition_type == ConditionType::Degraded && one.status && late(one.at))
        .filter(|_| request.phase() == Phase::Ready && !request.is_released())?;
    let (held, count) = (status.instances.len(), request.intent.count);
    let problem = format!("has {held} of {count} since {}: {}", degraded.at, degraded.message);
    let fix = "see `runyard explain request` for what its replacement waits for";
    Some(warning("Degraded", key, problem, fix, Vec::new()))
}

/// Returns a finding about a change of intent that no operator has processed for a long time.
fn unanswered(key: &RecordId, request: &Request, late: &dyn Fn(Timestamp) -> bool) -> Option<Finding> {
    let unseen = request.status.observed_generation < request.intent.generation;
    let changed_at = request.updated_at.or(request.intent.created_at);
    if !unseen || request.phase().is_final() || !changed_at.is_some_and(late) {
        return None;
    }
    let what = match request.intent.desired {
        Desired::Provisioned => "asked for",
        Desired::Released => "released",
    };
    let problem = format!("was {what} and no operator has answered");
    let fix = "check that an operator runs and what it logs";
    Some(warning("Unanswered", key, problem, fix, Vec::new()))
}

fn one_agent(
    key: &RecordId,
    agent: &Agent,
    records: &Records,
    late: &dyn Fn(Timestamp) -> bool,
    findings: &mut Vec<Finding>,
) {
    let Some(arn) = &agent.arn else { return };
    let machine = Instance::key_of(arn);
    if !records.keys.contains(&machine) && agent.updated_at.is_none_or(late) {
        let problem = "its instance has no record".to_owned();
        let mend =
            vec![Write::delete(key.clone(), Guard::Anything), Write::check(machine.clone(), Guard::Absent)];
        findings.push(warning("OrphanAgent", key, problem, "delete it", mend));
    }
    let instance = records.instances.get(&machine);
    let Some(instance) = instance.filter(|instance| instance.state().live()) else { return };
    if agent.heartbeat_seq > 0 && agent.updated_at.is_some_and(late) {
        let last = agent.updated_at.unwrap_or_default();
        let problem = format!("silent since {last} while its machine is {}", instance.state());
        findings.push(warning(
            "SilentAgent",
            key,
            problem,
            "check that an operator runs; it ends silent machines",
            Vec::new(),
        ));
    }
}

/// Adds findings from the operator's conditions of a class, and from fields of its spec that have no effect.
fn one_pool(pool: &Pool, findings: &mut Vec<Finding>) {
    for (kind, fix) in [
        (ConditionType::Stuck, "do what it says; the operator goes on trying, and says so until it succeeds"),
        (
            ConditionType::RunnerHeldBack,
            "see the machine's events; the version is tried again after a day, or pin another one",
        ),
    ] {
        let mut told = pool.status.conditions.iter().filter(|condition| condition.status);
        if let Some(one) = told.find(|condition| condition.condition_type == kind) {
            findings.push(warning(kind.as_str(), &pool.key(), one.message.clone(), fix, Vec::new()));
        }
    }
    let idle = pool.spec.idle_seconds;
    if pool.keeps_machines() && idle < LEAST_IDLE_SECONDS {
        let problem = format!(
            "idleSeconds: {idle} is too short for a class that keeps machines: read as {LEAST_IDLE_SECONDS}"
        );
        let fix = "apply the class with idleSeconds 60 or more, or with nothing kept";
        findings.push(warning("IdleTooShort", &pool.key(), problem, fix, Vec::new()));
    }
    let spec = &pool.spec;
    if let Err(refused) = spec.jobs.check(spec.reuse_within, spec.registration_mode) {
        let problem = format!("{}: {} {}: neither is granted", refused.field, refused.value, refused.message);
        findings.push(warning("JobsNotGranted", &pool.key(), problem, &refused.fix, Vec::new()));
    }
    for error in pool.spec.schedules.iter().filter_map(|schedule| schedule.check().err()) {
        let problem = format!("{}: {:?} {}: it is left out", error.field, error.value, error.message);
        findings.push(warning("UnusableSchedule", &pool.key(), problem, &error.fix, Vec::new()));
    }
    for error in sharing::problems_of(&pool.spec) {
        let problem = format!("{}: {} {}", error.field, error.value, error.message);
        findings.push(warning("UnusableShare", &pool.key(), problem, &error.fix, Vec::new()));
    }
}

fn one_launch(launch: &Launch, late: &dyn Fn(Timestamp) -> bool, findings: &mut Vec<Finding>) {
    if launch.phase == LaunchPhase::Intent && late(launch.created_at) {
        let problem = format!("still an intent since {}", launch.created_at);
        let fix = "the operator finishes it: check that it runs and what it logs";
        findings.push(warning("StuckLaunch", &launch.key(), problem, fix, Vec::new()));
    }
}

#[cfg(test)]
mod tests;
