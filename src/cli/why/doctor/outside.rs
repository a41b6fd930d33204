//! Queries EC2, the queues and GitHub for `doctor`. Each is queried separately: one that does not respond is a finding
//! of its own and does not stop the others. Pure functions compare the responses with the records.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::examine::Finding;
use crate::change::expire::ending;
use crate::look::history;
use crate::session::connect;
use crate::session::context::CliContext;
use runyard_core::model::{
    DOORBELL, EventType, Instance, Item, JOBS, Life, Pool, Reading, Record, Repository, Request, TableName,
    read, runner_name,
};
use runyard_core::ports::github::{EndOfLife, Runner, Scope};
use runyard_core::ports::{Compute, ComputeError, GitHub, GitHubError, Machine, QueueDepth, QueueError};
use runyard_operator::aws::queues::{QueueState, WantedQueue};

/// How many days before its end of life a version is reported.
const END_TOLD: i64 = 21;

/// The adapters to query beside the table.
#[derive(Default)]
pub(super) struct Outside {
    /// The compute adapter, if it keeps an inventory.
    pub(super) compute: Option<std::sync::Arc<dyn Compute>>,
    /// EC2, for the networks of classes.
    #[cfg(feature = "ec2")]
    pub(super) ec2: Option<runyard_operator::aws::Ec2Compute>,
    /// GitHub, and whether runners are registered for an organisation.
    pub(super) github: Option<(std::sync::Arc<dyn GitHub>, bool)>,
    /// The version of the runner package on machines, if the operator's file names one.
    pub(super) runner_version: Option<String>,
    /// How long queues keep announcements, if the operator's file says so.
    pub(super) announced: Option<Duration>,
}

/// Queries everything and returns all findings.
pub(super) async fn look(
    context: &CliContext,
    outside: &Outside,
    items: &[Item],
    patience: Duration,
) -> Vec<Finding> {
    let now = context.clock.now();
    let mut findings = Vec::new();
    let instances: Vec<Instance> = all(items);
    if let Some(compute) = outside.compute.as_ref().filter(|compute| compute.keeps_inventory()) {
        match compute.list().await {
            Ok(machines) => findings.extend(machines_and_records(&machines, &instances, now, patience)),
            Err(error) => findings.push(no_answer("EC2Unasked", "EC2", &error.to_string())),
        }
    }
    if let Some(compute) = &outside.compute {
        for pool in all::<Pool>(items) {
            match compute.check(&pool.spec).await {
                Ok(()) => {}
                Err(error) => findings.push(unlaunchable(&pool, &error)),
            }
        }
    }
    findings.extend(queues(context, outside.announced, items, &instances).await);
    if let Some((github, organization)) = &outside.github {
        let scopes = scopes(&all::<Request>(items), *organization);
        if let (Some(version), Some(scope)) = (&outside.runner_version, scopes.first()) {
            match github.end_of_life(scope, version).await {
                Ok(end) => findings.extend(runner_end(version, end, now)),
                // The server has no such dates, or the version is unknown to it.
                Err(GitHubError::NotFound(_)) => {}
                Err(error) => {
                    findings.push(no_answer("GitHubUnasked", "runner versions", &error.to_string()))
                }
            }
        }
        for scope in scopes {
            let name = github.runner_url(&scope);
            match github.runners(&scope).await {
                Ok(runners) => findings.extend(stale_runners(&name, &runners, &instances)),
                Err(error) => findings.push(no_answer("GitHubUnasked", &name, &error.to_string())),
            }
        }
    }
    findings
}

/// Checks the queues of the classes, the doorbell, and the queue of queued jobs.
async fn queues(
    context: &CliContext,
    announced: Option<Duration>,
    items: &[Item],
    instances: &[Instance],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let queues = connect::queues(&context.environment).await;
    if let Some(queue) = &context.queue {
        for pool in all::<Pool>(items) {
            let class = &pool.spec.resource_class;
            findings.extend(reserved(&context.table, &pool));
            let pooled = instances.iter().filter(|one| one.facts.resource_class == *class);
            let pooled = pooled.filter(|one| one.pooled_at().is_some()).count();
            let name = format!("{}-{class}", context.table);
            match queue.depth(class).await {
                Ok(Some(depth)) => findings.extend(queue_depth(&name, depth, pooled)),
                Ok(None) => {}
                Err(error) => findings.push(no_answer("QueueUnasked", &name, &error.to_string())),
            }
            if let (Some(queues), Some(announced)) = (&queues, announced) {
                let [_, wanted] = WantedQueue::of_class(&context.table, class, announced);
                findings.extend(shape(&name, queues.examine(&wanted).await));
            }
        }
    }
    if let Some(doorbell) = &context.doorbell {
        findings.extend(bell(&format!("{}-{DOORBELL}", context.table), doorbell.find().await));
    }
    // The queue serves nobody else.
    if all::<Pool>(items).iter().any(|pool| pool.spec.serves_labels().is_some())
        && let Some(queues) = &queues
    {
        let found = queues.examine(&WantedQueue::of_jobs(&context.table)).await;
        findings.extend(job_bell(&format!("{}-{JOBS}", context.table), found));
    }
    findings
}

/// Checks the networks of the classes; returns their descriptions for people, and the findings.
#[cfg(feature = "ec2")]
pub(super) async fn networks(outside: &Outside, items: &[Item]) -> (Vec<String>, Vec<Finding>) {
    let (mut lines, mut findings) = (Vec::new(), Vec::new());
    let Some(ec2) = &outside.ec2 else { return (lines, findings) };
    for pool in all::<Pool>(items) {
        let class = pool.spec.resource_class.as_str();
        match ec2.network(&pool.spec).await {
            Ok(network) => {
                let told = crate::session::network::told(&pool.spec, &network);
                lines.extend(told.subnets.iter().map(|subnet| format!("network of {class}: {subnet}")));
                let record = pool.key().to_string();
                let finding = |(problem, fix)| warning("Network", &record, problem, fix);
                findings.extend(told.problems.into_iter().map(finding));
            }
            Err(error) => findings.push(no_answer("NetworkUnasked", class, &error.to_string())),
        }
    }
    (lines, findings)
}

/// Returns nothing: without EC2 there is no network to check.
#[cfg(not(feature = "ec2"))]
pub(super) async fn networks(_outside: &Outside, _items: &[Item]) -> (Vec<String>, Vec<Finding>) {
    (Vec::new(), Vec::new())
}

fn all<T: Record>(items: &[Item]) -> Vec<T> {
    let of_kind = items.iter().filter(|item| runyard_core::model::kind_of(item) == Some(T::KIND));
    let record = |item: &Item| match read::<T>(item) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    };
    of_kind.filter_map(record).collect()
}

fn warning(reason: &'static str, record: &str, problem: String, fix: &str) -> Finding {
    let (severity, record) = (EventType::Warning, record.to_owned());
    Finding { severity, reason, record, problem, fix: fix.into(), mend: Vec::new() }
}

fn no_answer(reason: &'static str, what: &str, why: &str) -> Finding {
    let fix = "check that it is there, and the credential and permissions of whoever runs doctor";
    warning(reason, what, format!("could not be asked: {why}"), fix)
}

/// Returns a finding if there is no history table. A yard works without one, so it is not a fault.
pub(super) async fn history(context: &CliContext) -> Option<Finding> {
    let name = format!("{}-history", context.table);
    let why = match history::missing(context).await {
        Ok(why) => why?,
        Err(failure) => failure.to_string(),
    };
    let problem =
        format!("no history is kept or can be read: {why}; `cost`, `simulate` and `events` know little");
    let fix = "make it with `runyard init`, and grant the operator its rights (config/iam/operator.json)";
    Some(Finding { severity: EventType::Normal, ..warning("HistoryMissing", &name, problem, fix) })
}

/// Returns a finding about a class whose launches would be refused, or that could not be checked.
fn unlaunchable(pool: &Pool, error: &ComputeError) -> Finding {
    let record = pool.key().to_string();
    match error {
        ComputeError::Refused(why) => {
            let problem = format!("no machine of the class can be launched, or be of use: {why}");
            warning("LaunchRefused", &record, problem, "mend what is said; the other classes go on meanwhile")
        }
        ComputeError::Throttled
        | ComputeError::NoCapacity(_)
        | ComputeError::Unknown(_)
        | ComputeError::TokenSpent(_) => no_answer("EC2Unasked", &record, &error.to_string()),
    }
}

/// Reports our machines without a record, records without a machine, and ended machines that are still alive. An
/// inventory that lacks more than three and three tenths of the recorded machines is itself doubtful: nothing is
/// repaired from it.
pub(super) fn machines_and_records(
    machines: &[Machine],
    instances: &[Instance],
    now: Timestamp,
    patience: Duration,
) -> Vec<Finding> {
    let late = |at: Timestamp| now.duration_since(at) > patience.try_into().unwrap_or_default();
    let known: BTreeSet<&str> = instances.iter().map(|one| one.facts.instance_arn.as_str()).collect();
    let alive: BTreeSet<&str> =
        machines.iter().filter(|one| one.state.alive()).map(|one| one.arn.as_str()).collect();
    let mut findings = Vec::new();
    for machine in machines.iter().filter(|one| one.state.alive() && late(one.launched_at)) {
        if !known.contains(machine.arn.as_str()) {
            let problem = format!("carries our tag since {} and has no record", machine.launched_at);
            let fix = "the operator ends it after timing.orphan: check that one runs and what it logs";
            findings.push(warning("Unrecorded", machine.id.as_str(), problem, fix));
        }
    }
    let live: Vec<&Instance> = instances.iter().filter(|one| one.state().live()).collect();
    let missing: Vec<&&Instance> = live
        .iter()
        .filter(|one| late(one.facts.created_at) && !alive.contains(one.facts.instance_arn.as_str()))
        .collect();
    if missing.len() > (live.len() * 3 / 10).max(3) {
        let problem = format!("EC2's list lacks {} of {} recorded machines", missing.len(), live.len());
        let fix = "check region, account and tags before anything else: nothing is ended because of it";
        findings.push(warning("ListInDoubt", "EC2", problem, fix));
    } else {
        for one in missing {
            let problem = format!("{} is {} and EC2 has no such machine", one.facts.instance_id, one.state());
            let fix = "expire the machine, or let the operator's next sweep find out";
            let finding = warning("NoMachine", &one.key().to_string(), problem, fix);
            findings.push(Finding { mend: vec![ending(one, now, "doctor")], ..finding });
        }
    }
    for one in instances.iter().filter(|one| late(one.state_since)) {
        let ended = matches!(one.life, Life::Terminated { .. });
        if ended && alive.contains(one.facts.instance_arn.as_str()) {
            let problem = format!("{} was ended at {} and lives", one.facts.instance_id, one.state_since);
            let fix = "check that the operator may call ec2:TerminateInstances, and what it logs";
            findings.push(warning("StillAlive", &one.key().to_string(), problem, fix));
        }
    }
    findings
}

/// Reports dead letters, and more messages than the free machines explain. Counts of SQS are approximate.
pub(super) fn queue_depth(name: &str, depth: QueueDepth, pooled: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    if depth.dead > 0 {
        let problem = format!("about {} dead letters wait", depth.dead);
        let fix = "read them: somebody sent what is no message of a pool; then purge the queue";
        findings.push(warning("DeadLetters", &format!("{name}-dead"), problem, fix));
    }
    // There is one message of each machine, and for a while a second one after an operator began anew.
    if depth.waiting > 100 + 2 * pooled as u64 {
        let problem = format!("about {} messages for {pooled} free machines", depth.waiting);
        let fix = "have it keep messages for twice timing.reannounce (runyard init --config FILE)";
        findings.push(warning("StaleMessages", name, problem, fix));
    }
    findings
}

/// Reports attributes of a class's queue that `init` would set otherwise. What cannot be asked is reported elsewhere.
pub(super) fn shape(name: &str, found: Result<QueueState, QueueError>) -> Option<Finding> {
    let Ok(QueueState::Present(differences)) = found else { return None };
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    let fix = "set it in the stack that made the queue, or run `runyard init --config FILE`";
    (!told.is_empty()).then(|| warning("QueueDiffers", name, told.join("; "), fix))
}

/// Returns a finding about the doorbell. Without it, or the permission to look it up, everything works, only later.
pub(super) fn bell(name: &str, found: Result<(), QueueError>) -> Option<Finding> {
    let problem = "is not there: intents wait for the operator's next look at the stream".to_owned();
    let fix = "make it: runyard init, or the stack of config/cloudformation.yaml or config/terraform";
    beside(name, found, warning("DoorbellMissing", name, problem, fix))
}

/// Returns a finding about the queue of queued jobs. A yard works without one, so it is not a fault.
pub(super) fn job_bell(name: &str, found: Result<QueueState, QueueError>) -> Option<Finding> {
    let problem =
        "is not there: jobs that name a class by their label wait for the next look at GitHub".to_owned();
    let fix = "make it with `runyard init`, and have GitHub's webhook lead there (docs/how-to/install.md)";
    let missing = Finding { severity: EventType::Normal, ..warning("JobsQueueMissing", name, problem, fix) };
    let found = found.and_then(|state| match state {
        QueueState::Present(_) => Ok(()),
        QueueState::Missing(_) => Err(QueueError::Missing),
    });
    beside(name, found, missing)
}

/// Returns a finding about a queue beside those of the classes: `missing`, or that it cannot be looked up.
fn beside(name: &str, found: Result<(), QueueError>, missing: Finding) -> Option<Finding> {
    match found {
        Ok(()) | Err(QueueError::NoService(_)) => None,
        Err(QueueError::Missing) => Some(missing),
        Err(
            error @ (QueueError::Throttled
            | QueueError::Unreachable(_)
            | QueueError::Denied(_)
            | QueueError::Invalid(_)),
        ) => Some(no_answer("QueueUnasked", name, &error.to_string())),
    }
}

/// Returns a finding about a class that got its name before the name was reserved.
pub(super) fn reserved(table: &TableName, pool: &Pool) -> Option<Finding> {
    let class = &pool.spec.resource_class;
    if !class.is_reserved() {
        return None;
    }
    let problem = format!(
        "shares the queue {table}-{class} with messages of another kind, so its announcements of free machines are lost"
    );
    let fix =
        "nothing but time is lost; make a class of another name, and delete this one (runyard delete pool)";
    Some(warning("ReservedClass", &pool.key().to_string(), problem, fix))
}

/// Returns the scopes in which the runners of these requests are registered.
fn scopes(requests: &[Request], organization: bool) -> BTreeSet<Scope> {
    let scope = |repository: &Repository| {
        let owner = repository.owner().to_owned();
        if organization {
            Scope::Organization { owner }
        } else {
            Scope::Repository { owner, name: repository.name().to_owned() }
        }
    };
    requests.iter().map(|request| scope(&request.id.repository)).collect()
}

/// Returns a finding if GitHub's support of the runner version in use ends soon, or has ended.
pub(super) fn runner_end(version: &str, end: EndOfLife, now: Timestamp) -> Option<Finding> {
    let at = end.first()?;
    let days = at.duration_since(now).as_hours().div_euclid(24);
    let what = if end.registration == Some(at) { "registers no" } else { "gives no job to" };
    let problem = match days {
        ..0 => format!("since {at} GitHub {what} runner {version}"),
        0..END_TOLD => format!("from {at} on, in {days} days, GitHub {what} runner {version}"),
        END_TOLD.. => return None,
    };
    let fix = "pin a newer package: agent.runner_url, agent.runner_sha256, agent.runner_version";
    Some(warning("RunnerEndOfLife", "agent.runner_version", problem, fix))
}

/// Reports runners with our names whose machine is gone or serves another claim. Names of unknown machines may belong
/// to another yard, so only runners of our own records are reported.
pub(super) fn stale_runners(scope: &str, runners: &[Runner], instances: &[Instance]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in instances.iter().filter(|one| !one.state().live()) {
        let Some(claim) = &one.claim else { continue };
        let (name, more) = (runner_name(&claim.id, 1), format!("{}-", runner_name(&claim.id, 1)));
        for runner in runners.iter().filter(|one| one.name == name || one.name.starts_with(&more)) {
            let problem = format!("runner {} is registered and its machine is terminated", runner.name);
            let fix = "the operator removes it once the machine is gone, GitHub by itself within a day";
            findings.push(warning("StaleRunner", scope, problem, fix));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
