//! Builds the snapshot from the loop's index. The reasons to wait come from the operator's own decisions: each open
//! request and each class with a queue is judged as the loop judges it, and no action is executed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::decide::{Context, effective_in};
use crate::explain::{self, Pace, Place, forecast, no_end};
use crate::ledger::Money;
use crate::model::{ClassName, Instance, Life, RecordId, Request, RequestKey, SetState, State};
use crate::process::panics;
use crate::yard::{Tracked, Unit, Yard};

use super::history::{History, PhaseSpan, Timeline, holder, since};
use super::{
    CostStatus, EventStatus, MOST_MACHINES, MOST_POOLS, MOST_REQUESTS, MOST_SETS, MOST_SHARES, MachineStatus,
    PoolStatus, RequestStatus, ShareStatus, Snapshot, cut, trend,
};
use crate::status::phase::{MachinePhase, phase};

/// How long an ended request remains in the snapshot.
const LATELY: SignedDuration = SignedDuration::from_mins(30);

/// The input of a snapshot.
#[derive(Clone, Copy)]
pub struct SnapshotInput<'a> {
    /// The yard and the time.
    pub cx: Context<'a>,
    /// The timelines of machines.
    pub history: &'a History,
    /// The table.
    pub table: &'a str,
}

/// Builds the snapshot of the yard for people.
pub fn snapshot(seen: &SnapshotInput<'_>) -> Snapshot {
    let yard = seen.cx.yard;
    let (machines, machines_left_out) = machines(seen);
    let (requests, requests_left_out) = requests(&seen.cx);
    let mut costs = costs(&seen.cx);
    let mut sets = sets(yard);
    let told = |name: &ClassName| PoolStatus {
        cost: costs.remove(name),
        sets: sets.remove(name).unwrap_or_default(),
        ..pool(&seen.cx, name)
    };
    let pools: Vec<PoolStatus> = yard.classes().map(|(name, _)| name).take(MOST_POOLS).map(told).collect();
    Snapshot {
        at: seen.cx.now.wall,
        version: env!("CARGO_PKG_VERSION"),
        table: seen.table.to_owned(),
        leader: seen.cx.role.lease.is_some(),
        leaderless: seen.cx.role.lease.is_none().then(|| yard.leaderless(&seen.cx.now)).flatten(),
        github_down: !yard.github_down.is_empty(),
        unreadable: yard.unreadable.len() + yard.newer.len(),
        remembers_since: seen.history.since(),
        pools_left_out: yard.classes().count() - pools.len(),
        pools,
        machines,
        machines_left_out,
        requests,
        requests_left_out,
        events: events(seen.history),
        trend: trend::trend(yard, seen.history.samples(), seen.cx.now.wall),
    }
}

fn events(history: &History) -> Vec<EventStatus> {
    let told = history.events().map(|(id, event)| EventStatus {
        id: id.to_owned(),
        at: event.at,
        event_type: event.event_type.as_str(),
        reason: cut(&event.reason),
        message: cut(&event.message),
        actor: cut(&event.actor),
        subject: event.subject.clone(),
    });
    told.collect()
}

fn pool(cx: &Context<'_>, name: &ClassName) -> PoolStatus {
    let class = cx.yard.class(name).expect("it is among the classes");
    let spec = class.pool.as_ref().map(|pool| &pool.spec);
    let count = |state| class.counts.get(&state).copied().unwrap_or(0);
    let have = BTreeMap::from([
        (MachinePhase::Created, count(State::Created)),
        (MachinePhase::Claimed, count(State::Claimed)),
        (MachinePhase::Running, count(State::Running)),
        (MachinePhase::Cleaning, class.cleaning),
        (MachinePhase::Held, class.held),
        (MachinePhase::Pooled, class.pooled.len() as u32),
    ]);
    let (shares, shares_left_out) = shares(cx, name);
    let held_back = class.backoff.until.checked_sub(cx.now.mono).filter(|left| !left.is_zero());
    PoolStatus {
        class: name.to_string(),
        desired: class.pool.as_ref().map(|pool| effective_in(class, pool, cx.now.wall).desired),
        min: spec.map(|spec| spec.min),
        max: spec.map(|spec| spec.max),
        live: class.live(),
        have,
        in_flight: class.in_flight.total(),
        paused: spec.is_some_and(|spec| spec.paused),
        held_back_seconds: held_back.map(|left| left.as_secs() + 1),
        message: class.pool.as_ref().map_or_else(String::new, |pool| {
            let ahead = crate::explain::hours_ahead(pool, cx.now.wall);
            let told = [Some(pool.status.message.clone()), ahead].into_iter().flatten();
            cut(&told.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "))
        }),
        sets: Vec::new(),
        cost: None,
        shares,
        shares_left_out,
    }
}

/// Describes the scale sets of each class in a line each: those in trouble first.
fn sets(yard: &Yard) -> BTreeMap<ClassName, Vec<String>> {
    let mut all = explain::sets(yard);
    all.sort_by_key(|set| (set.listening, set.place.clone()));
    let mut told: BTreeMap<ClassName, Vec<String>> = BTreeMap::new();
    for set in all {
        let lines = told.entry(set.resource_class.clone()).or_default();
        if lines.len() < MOST_SETS {
            let state = set.state.map_or("no record", SetState::as_str);
            let trouble = if set.listening { "" } else { ", not listened to" };
            let (jobs, slots) = (set.statistics.assigned, set.slots);
            lines.push(cut(&format!(
                "scale set {} at {}: {state}{trouble}; jobs: {jobs}; slots: {}, {} with a job",
                set.set_name, set.place, slots.open, slots.job
            )));
        }
    }
    told
}

/// Returns the hourly cost of the live machines of each class.
fn costs(cx: &Context<'_>) -> BTreeMap<ClassName, CostStatus> {
    let mut sums: BTreeMap<&ClassName, (Money, Money, usize, usize)> = BTreeMap::new();
    let live = cx.yard.instances().map(|tracked| &tracked.instance).filter(|known| known.state().live());
    for instance in live {
        let facts = &instance.facts;
        let (class, kind, zone) = (&facts.resource_class, &facts.instance_type, &facts.availability_zone);
        let (all, idle, priced, unpriced) = sums.entry(class).or_default();
        match cx.policy.prices.hour(class.as_str(), kind, zone, facts.usage_class) {
            Ok(price) => {
                *all += price;
                *idle += if instance.pooled_at().is_some() { price } else { Money::ZERO };
                *priced += 1;
            }
            Err(_) => *unpriced += 1,
        }
    }
    let known = sums.into_iter().filter(|(_, (.., priced, _))| *priced > 0);
    let told = known.map(|(class, (all, idle, _, unpriced))| {
        (class.clone(), CostStatus { hour: all.decimal(2), idle_hour: idle.decimal(2), unpriced })
    });
    told.collect()
}

/// Returns the shares of a class with the highest use, and the number of the others.
fn shares(cx: &Context<'_>, name: &ClassName) -> (Vec<ShareStatus>, usize) {
    let mut all = explain::shares(cx.yard, cx.now, name);
    all.sort_by_key(|one| (Reverse((one.part, one.held, one.waiting)), one.share.clone()));
    let left_out = all.len().saturating_sub(MOST_SHARES);
    let told = all.into_iter().take(MOST_SHARES).map(|one| ShareStatus {
        share: cut(&one.share),
        weight: one.weight,
        used_permille: one.part,
        machines: one.held,
        waiting: one.waiting,
        max_machines: one.quota.max_machines,
    });
    (told.collect(), left_out)
}

/// Returns the rank of a machine: machines that are used or awaited come first, then free ones, then ending ones.
const fn rank(phase: Option<MachinePhase>) -> u8 {
    match phase {
        Some(MachinePhase::Claimed) => 0,
        Some(MachinePhase::Created) => 1,
        Some(MachinePhase::Running) => 2,
        Some(MachinePhase::Cleaning) => 3,
        Some(MachinePhase::Pooled) => 4,
        Some(MachinePhase::Held) => 5,
        Some(MachinePhase::Ending) => 6,
        Some(MachinePhase::Gone) | None => 7,
    }
}

fn machines(seen: &SnapshotInput<'_>) -> (Vec<MachineStatus>, usize) {
    let yard = seen.cx.yard;
    let known = yard.instances().map(|tracked| (&tracked.instance, Some(tracked)));
    // Their records may be gone already.
    let former = seen.history.timelines().filter(|(arn, _)| yard.instance(arn).is_none());
    let gone = |instance: &Instance| phase(instance) == Some(MachinePhase::Gone);
    let all = known.chain(former.map(|(_, timeline)| (&timeline.last, None)));
    let mut all: Vec<(&Instance, Option<&Tracked>)> = all
        .filter(|(instance, _)| {
            !gone(instance) || seen.history.timeline(&instance.facts.instance_arn).is_some()
        })
        .collect();
    let left_out = all.len().saturating_sub(MOST_MACHINES);
    all.sort_by_cached_key(|(instance, _)| {
        let facts = &instance.facts;
        (rank(phase(instance)), Reverse(since(instance)), facts.instance_id.clone())
    });
    all.truncate(MOST_MACHINES);
    // Related machines are adjacent, and a machine keeps its position while it lives.
    all.sort_by_cached_key(|(instance, _)| {
        let facts = &instance.facts;
        let over = rank(phase(instance)) >= rank(Some(MachinePhase::Ending));
        (over, facts.resource_class.clone(), facts.created_at, facts.instance_id.clone())
    });
    let shown = all.into_iter().map(|(instance, tracked)| {
        machine(instance, tracked, seen.history.timeline(&instance.facts.instance_arn))
    });
    (shown.collect(), left_out)
}

fn machine(instance: &Instance, tracked: Option<&Tracked>, timeline: Option<&Timeline>) -> MachineStatus {
    let facts = &instance.facts;
    let is = phase(instance).unwrap_or(MachinePhase::Gone);
    let from = since(instance);
    let spans = match timeline {
        Some(timeline) => timeline.spans.iter().cloned().collect(),
        None => vec![PhaseSpan { phase: Some(is), from, request: holder(instance) }],
    };
    let agent = tracked.and_then(|tracked| tracked.agent.as_ref());
    let reason = match instance.life {
        Life::Terminated { reason, .. } => Some(reason.as_str()),
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => None,
    };
    MachineStatus {
        id: facts.instance_id.to_string(),
        class: facts.resource_class.to_string(),
        region: region(facts.instance_arn.as_str()),
        instance_type: cut(&facts.instance_type),
        usage_class: facts.usage_class.as_str(),
        is,
        since: from,
        until: instance.threshold.map(|threshold| threshold.at),
        request: holder(instance),
        signal: agent.and_then(|agent| agent.signal).map(|signal| signal.as_str()),
        reason,
        uses: instance.uses,
        spans,
    }
}

/// Returns the region in a machine's ARN; a local machine's ARN has none.
fn region(arn: &str) -> Option<String> {
    arn.split(':').nth(3).filter(|region| region.contains('-')).map(str::to_owned)
}

fn requests(cx: &Context<'_>) -> (Vec<RequestStatus>, usize) {
    let now = cx.now.wall;
    let ended = |request: &Request| request.updated_at.unwrap_or(Timestamp::MIN);
    let (over, mut open): (Vec<_>, Vec<_>) =
        cx.yard.requests().partition(|(_, request)| request.phase().is_final());
    let mut over: Vec<_> =
        over.into_iter().filter(|(_, request)| now.duration_since(ended(request)) < LATELY).collect();
    open.sort_by_cached_key(|(_, request)| request.queue_position());
    over.sort_by_key(|(_, request)| Reverse(ended(request)));
    let left_out = (open.len() + over.len()).saturating_sub(MOST_REQUESTS);
    open.truncate(MOST_REQUESTS);
    over.truncate(MOST_REQUESTS - open.len());
    let (mut waits, stuck) = reasons(cx, &open);
    let pace = Pace::of_classes(cx.yard);
    let before = explain::before(cx.yard, cx.now);
    let shown = open.into_iter().chain(over).map(|(key, request)| {
        let place = Place {
            pace: pace.get(&request.intent.resource_class),
            before: before.get(key).copied(),
            no_end: stuck.contains(&RecordId::from(key)),
        };
        let forecast = forecast(cx, key, place);
        RequestStatus {
            request: request.id.to_string(),
            class: cut(&request.intent.resource_class),
            phase: request.phase().as_str(),
            count: request.intent.count,
            held: request.status.instances.len(),
            accepted_at: request.status.accepted_at,
            deadline: request.status.deadline,
            ready_at: request.status.ready_at,
            message: cut(&request.status.message),
            waits: waits.remove(&key.into()).unwrap_or_default().into_iter().collect(),
            expected_at: forecast.as_ref().and_then(|forecast| forecast.ahead.and(forecast.at)),
            expected: forecast.map(|forecast| forecast.because),
        }
    });
    (shown.collect(), left_out)
}

/// Returns why each request waits, by the judgement of its own unit and of its class, and the requests whose wait has
/// no known end.
fn reasons(
    cx: &Context<'_>,
    open: &[(&RequestKey, &Request)],
) -> (BTreeMap<RecordId, BTreeSet<String>>, BTreeSet<RecordId>) {
    let of = |(key, request): &(&RequestKey, &Request)| {
        let class = Yard::class_of(request).map(Unit::Class);
        [Some(Unit::Request((*key).clone())), class].into_iter().flatten().collect::<Vec<_>>()
    };
    let units: BTreeSet<Unit> = open.iter().flat_map(of).collect();
    let mut shown: BTreeMap<RecordId, BTreeSet<String>> = BTreeMap::new();
    let mut stuck = BTreeSet::new();
    // A unit whose judgement fails has no reasons; the loop reports it.
    let plans = units.iter().filter_map(|unit| panics::judge(cx, unit).ok());
    for wait in plans.flat_map(|plan| plan.waits) {
        if no_end(wait.reason) {
            stuck.insert(wait.subject.clone());
        }
        shown.entry(wait.subject).or_default().insert(cut(&wait.message));
    }
    (shown, stuck)
}
