//! Decides about one launch: it is ordered with its token until the response is certain, then its machines are recorded
//! in one transaction. Machines that its request no longer wants start warm.

use crate::model::{
    Agent, Claim, ClaimId, Instance, InstanceFacts, Launch, LaunchId, LaunchPhase, Life, Pool, Reason,
    Record, RecordId, Request, RequestKey, Threshold, after,
};
use crate::ports::{ComputeError, LaunchOrder, Launched, Machine};

use crate::decide::context::Context;
use crate::decide::packages::Packages;
use crate::decide::plan::reason;
use crate::decide::{Note, Plan, Planned, Step, WaitReason, request};
use crate::yard::{Ordered, TrackedLaunch, Yard, gives_back, lacking, target};

/// How long the records of finished launches are kept, in seconds.
const KEPT: i64 = 24 * 3600;
/// Half the first pause before an order without a response is retried.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(500);
/// The longest such pause.
const ASK_AGAIN_MOST: std::time::Duration = std::time::Duration::from_secs(30);
/// How long the machines of an order without a certain response may be missing from lists.
const SEARCH: std::time::Duration = std::time::Duration::from_secs(60);

/// Plans the actions for a launch now.
pub(super) fn decide(cx: &Context<'_>, id: &LaunchId) -> Plan {
    let Some(tracked) = cx.yard.launch(id) else { return Plan::default() };
    let launch = &tracked.launch;
    let key = launch.key();
    let mut plan = Plan::default();
    if cx.yard.is_busy(&key) {
        plan.wait(&key, WaitReason::Busy, "its record is being written");
        return plan;
    }
    if !Yard::is_open(launch) {
        if let Some(expires_at) = launch.expires_at
            && let Ok(at) = jiff::Timestamp::from_second(expires_at)
        {
            if at <= cx.now.wall {
                plan.actions.push(Planned::expire(key, expires_at));
            } else {
                plan.wake_at(cx.now.when(at));
            }
        }
        return plan;
    }
    match &tracked.ordered {
        None => order(cx, tracked),
        Some(ordered) => answered(cx, tracked, ordered),
    }
}

/// Lists our machines with the launch's tag and without a record: those of an order whose response was lost.
fn tagged<'a>(cx: &'a Context<'_>, launch: &'a Launch) -> impl Iterator<Item = &'a Machine> {
    let machines = cx.yard.unrecorded.values().map(|(machine, _)| machine);
    machines.filter(|machine| {
        let ours = machine.launch.as_ref() == Some(&launch.launch_id) && machine.attempt == launch.attempt;
        ours && recordable(cx, machine)
    })
}

/// Returns whether a machine's two records can be written: neither exists, as far as is known.
fn recordable(cx: &Context<'_>, machine: &Machine) -> bool {
    let (instance, agent) = (Instance::key_of(&machine.arn), Agent::key_of(&machine.arn));
    let orphan_agent = cx.yard.orphan_agents.contains_key(&machine.arn);
    cx.yard.instance(&machine.arn).is_none()
        && !orphan_agent
        && !cx.yard.is_unreadable(&instance)
        && !cx.yard.is_unreadable(&agent)
}

fn order(cx: &Context<'_>, tracked: &TrackedLaunch) -> Plan {
    let launch = &tracked.launch;
    let Some(pool) = cx.yard.pool(&launch.resource_class) else { return without_class(cx, tracked) };
    // A retry with its token returns all its machines; a list may show only some of them.
    if cx.role.lease.is_some() {
        return Plan::act(Planned::order(order_of(cx, launch, pool)));
    }
    let mut plan = Plan::default();
    plan.wait(launch.key(), WaitReason::NotLeader, "the operator that holds the lease launches");
    plan
}

/// Builds the order for the provider: with the types that the request allows, else those of the class.
fn order_of(cx: &Context<'_>, launch: &Launch, pool: &Pool) -> LaunchOrder {
    let request = launch.request.as_ref().and_then(|id| cx.yard.request_named(id));
    let own = request.and_then(|request| request.intent.allowed_instance_types.as_ref());
    let types = own.unwrap_or(&pool.spec.allowed_instance_types).clone();
    let image = pool.pinned().map(|image| image.ami.clone());
    LaunchOrder { launch: launch.clone(), spec: pool.spec.clone(), types, image }
}

fn answered(cx: &Context<'_>, tracked: &TrackedLaunch, ordered: &Ordered) -> Plan {
    let launch = &tracked.launch;
    match &ordered.answer {
        Ok(launched) if launched.machines.is_empty() => {
            let why: Vec<_> =
                launched.shortfalls.iter().map(|s| format!("{}: {}", s.code, s.message)).collect();
            fail(cx, launch, &why.join("; "))
        }
        Ok(launched) => bind(cx, launch, launched),
        Err(ComputeError::NoCapacity(why) | ComputeError::Refused(why)) => fail(cx, launch, why),
        Err(ComputeError::TokenSpent(_) | ComputeError::Throttled | ComputeError::Unknown(_)) => {
            retry(cx, tracked, ordered)
        }
    }
}

/// Returns whether machines that the order brought would be listed: the list was read a while after the first such
/// response.
fn searched(cx: &Context<'_>, ordered: &Ordered) -> bool {
    cx.yard.inventoried.is_some_and(|listed| listed >= ordered.since.saturating_add(SEARCH))
}

/// Finishes a launch without another order: adopts the machines found by its tag if no more can be expected, or fails
/// the attempt when none was found within the grace.
fn adopt_or_expire(cx: &Context<'_>, tracked: &TrackedLaunch, complete: bool, why: &str) -> Option<Plan> {
    let launch = &tracked.launch;
    let found: Vec<Machine> = tagged(cx, launch).cloned().collect();
    let over = cx.now.mono >= tracked.since.saturating_add(cx.policy.timing.orphan);
    // Machines that are listed later would have no owner.
    if !found.is_empty() && (over || complete || found.len() >= launch.count as usize) {
        return Some(bind(cx, launch, &Launched { machines: found, shortfalls: Vec::new() }));
    }
    over.then(|| fail(cx, launch, &format!("{why}, and no machine of this launch was found")))
}

/// Handles a launch whose class record, which defines how to launch, is gone or unreadable. Left open, the launch would
/// keep its machines from being collected forever.
fn without_class(cx: &Context<'_>, tracked: &TrackedLaunch) -> Plan {
    if let Some(plan) = adopt_or_expire(cx, tracked, false, "the record of its class is not there") {
        return plan;
    }
    let mut plan = Plan::default();
    plan.wake_at(tracked.since.saturating_add(cx.policy.timing.orphan));
    let why = format!("there is no record of class {} to launch by", tracked.launch.resource_class);
    plan.wait(tracked.launch.key(), WaitReason::Mismatch, why);
    plan
}

/// Handles an order without a certain response: retries it with the same token. A spent token brings no more machines,
/// but EC2 may not list yet those that it brought: the attempt fails once that search is over.
fn retry(cx: &Context<'_>, tracked: &TrackedLaunch, ordered: &Ordered) -> Plan {
    let launch = &tracked.launch;
    let Some(pool) = cx.yard.pool(&launch.resource_class) else { return without_class(cx, tracked) };
    let spent = match &ordered.answer {
        Err(ComputeError::TokenSpent(why)) => Some(why.as_str()),
        Ok(_) | Err(_) => None,
    };
    let complete = searched(cx, ordered);
    if let Some(plan) = adopt_or_expire(cx, tracked, complete, spent.unwrap_or("no answer")) {
        return plan;
    }
    if let Some(why) = spent.filter(|_| complete) {
        return fail(cx, launch, why);
    }
    // A provider that does not respond to any launch is not called more often because there are many launches.
    let times = ordered.times.max(cx.yard.unclear).min(8);
    let pause = (ASK_AGAIN * 2_u32.pow(times)).min(ASK_AGAIN_MOST);
    if cx.now.mono >= ordered.at + pause && cx.role.lease.is_some() {
        return Plan::act(Planned::order(order_of(cx, launch, pool)));
    }
    let mut plan = Plan::default();
    plan.wake_at((ordered.at + pause).max(cx.now.mono + ASK_AGAIN));
    plan.wait(launch.key(), WaitReason::BackOff, "no certain answer yet, asked again with the same token");
    plan
}

fn fail(cx: &Context<'_>, launch: &Launch, why: &str) -> Plan {
    let why: String = why.chars().take(500).collect();
    let step = Step::of(launch, cx.now.wall, |next| {
        next.phase = LaunchPhase::Failed;
        next.message.clone_from(&why);
        next.expires_at = Some(cx.now.wall.as_second() + KEPT);
    });
    Plan::act(Planned::launch(step, Note::warning("LaunchFailed", why)))
}

/// Records the machines of a launch: its request takes those that it still lacks, the others start warm.
fn bind(cx: &Context<'_>, launch: &Launch, launched: &Launched) -> Plan {
    let mut plan = Plan::default();
    let now = cx.now.wall;
    let new: Vec<&Machine> = launched.machines.iter().filter(|machine| recordable(cx, machine)).collect();
    let asked = launch.request.as_ref().and_then(RecordId::request);
    let request = asked.and_then(|key| cx.yard.request(key).map(|request| (key, request)));
    // The class's record holds the trust domain: without it, the machine serves no request yet.
    let known = cx.yard.pool(&launch.resource_class).is_some();
    let wanting = request.filter(|(_, request)| known && !gives_back(request));
    if let Some((key, _)) = wanting
        && cx.yard.is_busy(key)
    {
        plan.wait(launch.key(), WaitReason::Busy, "the record of its request is being written");
        plan.wake_at(cx.now.mono + std::time::Duration::from_millis(20));
        return plan;
    }
    let wanted = wanting.map_or(0, |(key, request)| lacking(cx.yard, key, request) as usize);
    let (mut bound, mut refused) = (0, 0);
    let packages =
        cx.yard.pool(&launch.resource_class).map(|pool| Packages::of(cx, pool)).unwrap_or_default();
    let machines: Vec<(Instance, Agent)> = new
        .iter()
        .map(|machine| {
            let fits =
                wanting.is_none_or(|(_, request)| cx.yard.accepts_type(request, &machine.instance_type));
            let holder = wanting.filter(|_| fits && bound < wanted);
            bound += usize::from(holder.is_some());
            let number = bound.saturating_sub(1);
            let mut instance = recorded(cx, launch, machine, holder);
            instance.runner = holder.and_then(|_| packages.for_claim(number));
            if !fits && !cx.yard.class_accepts(&instance.facts) {
                // No request may use it: it is recorded as ended, so that its end has a recorded reason.
                instance.life = Life::Terminated { reason: Reason::Surplus, gone_at: None };
                instance.threshold = None;
                refused += 1;
            }
            (instance, Agent::born(&machine.arn, now))
        })
        .collect();
    let gained = machines.iter().map(|(instance, _)| instance).filter(|instance| instance.run().is_some());
    let request = wanting.filter(|_| bound > 0).map(|(key, request)| {
        Step::of(request, now, |next| {
            request::drop_lost(cx, key, request, next);
            next.gain(gained);
            let held = next.status.instances.len() as u32;
            let bound = format!("{held} of {} bound", reason::machines(next.intent.count));
            let message = reason::kept(next, target(next).saturating_sub(held), bound);
            next.progress(crate::model::Phase::Fulfilling, message);
        })
    });
    let step = bound_launch(cx, launch, launched, refused);
    plan.actions.push(Planned::bind(step, request, machines));
    plan
}

/// Returns the launch's record with its machines; `refused` of them are ended because no request asked for their type.
fn bound_launch(cx: &Context<'_>, launch: &Launch, launched: &Launched, refused: u32) -> Step<Launch> {
    Step::of(launch, cx.now.wall, |next| {
        next.phase = LaunchPhase::Bound;
        next.instances = launched.machines.iter().map(|machine| machine.id.clone()).collect();
        next.message = told(launch, launched, refused);
        next.expires_at = Some(cx.now.wall.as_second() + KEPT);
    })
}

/// Describes the machines that a launch brought and lacked, for people.
fn told(launch: &Launch, launched: &Launched, refused: u32) -> String {
    let machines = reason::named(&launched.machines);
    let mut message = format!("{} of {}: {machines}", launched.machines.len(), launch.count);
    if refused > 0 {
        message.push_str(&format!("; {refused} of a type that nobody asked for, ended"));
    }
    for shortfall in &launched.shortfalls {
        message.push_str(&format!("; {}: {}", shortfall.code, shortfall.message));
    }
    message.truncate(message.floor_char_boundary(1000));
    message
}

/// Builds the instance record of a new machine, bound to a request or warm.
fn recorded(
    cx: &Context<'_>,
    launch: &Launch,
    machine: &Machine,
    holder: Option<(&RequestKey, &Request)>,
) -> Instance {
    let now = cx.now.wall;
    let spec = cx.yard.pool(&launch.resource_class).map(|pool| &pool.spec);
    let or_spec =
        |own: u32, of: fn(&crate::model::PoolSpec) -> u32| if own > 0 { own } else { spec.map_or(0, of) };
    let facts = InstanceFacts {
        instance_id: machine.id.clone(),
        instance_arn: machine.arn.clone(),
        resource_class: launch.resource_class.clone(),
        instance_type: machine.instance_type.clone(),
        usage_class: machine.usage_class,
        cpu: or_spec(machine.cpu, |spec| spec.cpu),
        mmem: or_spec(machine.mmem, |spec| spec.mmem),
        availability_zone: machine.zone.clone(),
        launch_id: Some(launch.launch_id.clone()),
        launch_digest: launch.launch_digest.clone(),
        created_at: now,
    };
    Instance {
        claim: holder.map(|(key, _)| Claim { id: ClaimId::of(&machine.id, 1), request: key.into() }),
        jobs: holder.and(spec).map(|spec| spec.granted_jobs()).unwrap_or_default(),
        threshold: Some(Threshold { at: after(now, cx.policy.timing.created), set_at: now }),
        trust_domain: holder
            .zip(spec)
            .map(|((_, request), spec)| spec.trust_domain(&request.id.repository))
            .unwrap_or_default(),
        ..Instance::born(facts, Life::Created { run: holder.map(|(_, request)| request.id.run_id.clone()) })
    }
}

#[cfg(test)]
mod tests;
