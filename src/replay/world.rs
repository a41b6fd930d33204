//! The world in which the decisions are replayed: plans are carried out at once, agents respond after the times that
//! are drawn for them, and nothing but the core runs. Heartbeats are left out, so no agent falls silent.
//!
//! Over 400 lines: what the world is, its clock, its queue of events and its sums, which all touch the same fields.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::{Context, Following, Policy, Role, decide};
use runyard_core::model::{
    ClassName, Demand, InstanceArn, InstanceId, LaunchTemplate, Life, Pool, PoolSpec, PoolStatus, Rebalance,
    RecordId, RequestKey, Timing, YardSharing,
};
use runyard_core::yard::{Now, Observation, Unit, Written, Yard};

use crate::chance::Chance;
use crate::outcome::{CallCounts, Hours, Outcome, Served, Verdict};
use crate::trace::{Times, Trace};

mod effects;
mod machines;
mod people;

const USUAL_CLAIM: Duration = Duration::from_secs(3);
const USUAL_CLEAN: Duration = Duration::from_secs(5);
const USUAL_END: Duration = Duration::from_secs(30);
const USUAL_HOLD: Duration = Duration::from_secs(600);
/// How long pools have to warm up before the first request.
const BEFORE: Duration = Duration::from_secs(3600);
/// How long ended records are kept: as long as `sizing` looks back.
const KEPT: Duration = Duration::from_secs(3 * 3600);
/// How long requests that are open at the end may continue.
const AFTER: Duration = Duration::from_secs(6 * 3600);
/// How long after a recorded failure a launch like it fails.
const FAILS_FOR: Duration = Duration::from_secs(60);

// The kinds of random numbers.
const BOOT: u64 = 1;
const WARM_BOOT: u64 = 2;
const CLAIM: u64 = 3;
const CLEAN: u64 = 4;
const END: u64 = 5;
const HOLD: u64 = 6;
const TELL: u64 = 7;

/// The configuration of the yard.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its pools.
    pub pools: Vec<PoolSpec>,
    /// Teams, priorities and quotas.
    pub sharing: YardSharing,
    /// The demand that pools with `sizing` remember at the beginning.
    pub demand: BTreeMap<ClassName, Demand>,
    /// Counts by the hour of the week that replace a pool's schedules, each from a boot before its hour on.
    pub by_hour: BTreeMap<ClassName, (TimeZone, Vec<u32>)>,
    /// The seed of drawn times.
    pub seed: u64,
}

/// An event at a given time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request arrives, by its number.
    Comes(usize),
    /// A workflow releases its machines, or gives up.
    LetsGo(usize),
    /// A workflow gives up if it still waits.
    GivesUp(usize),
    /// An agent finishes the task of this version of its record.
    Speaks(usize, u64),
    /// An ended record is forgotten.
    Forget(RecordId),
    /// An hour ends.
    Hour,
    /// The count of the hour may change.
    Counts,
}

/// The facts about a machine besides its record.
struct Body {
    class: usize,
    activity: Activity,
    since: Duration,
    gone_at: Duration,
    claims: u64,
    /// When the runner listened in the recorded claim or boot whose time was drawn for this machine.
    listened: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Activity {
    Starting,
    Idle,
    Claimed,
    Running,
    Cleaning,
    Ending,
    Gone,
}

impl Activity {
    const fn of(life: &Life) -> Self {
        match life {
            Life::Created { .. } => Self::Starting,
            Life::Claimed { .. } => Self::Claimed,
            Life::Running { .. } => Self::Running,
            Life::Idle { pooled_at: None } => Self::Cleaning,
            Life::Idle { pooled_at: Some(_) } => Self::Idle,
            Life::Terminated { gone_at: None, .. } => Self::Ending,
            Life::Terminated { gone_at: Some(_), .. } => Self::Gone,
        }
    }

    const fn live(self) -> bool {
        match self {
            Self::Starting | Self::Idle | Self::Claimed | Self::Running | Self::Cleaning => true,
            Self::Ending | Self::Gone => false,
        }
    }
}

/// A class of the scenario.
struct Class {
    spec: PoolSpec,
    times: Times,
    hours: Hours,
    live: u32,
    idle: u32,
    waiting: u32,
    peak: u32,
}

struct World<'a> {
    trace: &'a Trace,
    chance: Chance,
    policy: Policy,
    yard: Yard,
    now: Now,
    begin: Duration,
    end: Duration,
    classes: Vec<Class>,
    names: BTreeMap<ClassName, usize>,
    numbers: BTreeMap<RequestKey, usize>,
    served: Vec<Served>,
    /// For each request, `Body::listened` of the machine that listened last.
    listened: Vec<Option<Timestamp>>,
    bodies: Vec<Body>,
    failures: BTreeMap<(ClassName, &'static str), Vec<(Duration, String)>>,
    calls: CallCounts,
    minute: (u64, u64, u64),
    by_hour: BTreeMap<ClassName, (TimeZone, Vec<u32>)>,
    live: Vec<(u32, u32)>,
    digest: u64,
    launches: u64,
    dirty: BTreeSet<Unit>,
    timers: BTreeMap<Unit, Duration>,
    order: BTreeSet<(Duration, Unit)>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    seq: u64,
}

/// Replays a trace under a scenario. Requests of classes without a pool fail as they would in production.
pub fn play(trace: &Trace, scenario: &Scenario) -> Outcome {
    let mut world = World::new(trace, scenario);
    world.live_on();
    world.outcome()
}

fn policy(sharing: YardSharing) -> Policy {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    Policy {
        timing: Timing {
            created: minutes(15),
            claimed: minutes(5),
            cleanup: minutes(5),
            end: minutes(3),
            grace: minutes(5),
            heartbeat: Duration::from_secs(10),
            stale: Duration::from_secs(1 << 32),
            agent_poll: Duration::from_secs(1),
            resync: minutes(5),
            reannounce: Duration::from_secs(1 << 32),
            lease: Duration::from_secs(15),
            orphan: minutes(10),
            image: Duration::from_secs(1 << 32),
        },
        requests_per_repository: u32::MAX,
        prices: Default::default(),
        sharing,
        following: Following::default(),
        github: false,
        organization: false,
        // Recorded runs were watched, or would be now.
        watches_runs: true,
        inventory: false,
        rebalance: Rebalance::Last,
        statements: false,
        ended_stays: Policy::ENDED_STAYS,
    }
}

fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace, scenario: &Scenario) -> Self {
        let start = trace.begin.saturating_sub(BEFORE).unwrap_or(trace.begin);
        let mono = Duration::from_secs(1_000_000);
        let begin = mono + BEFORE;
        let class = |spec: &PoolSpec| Class {
            spec: spec.clone(),
            times: trace.times.get(&spec.resource_class).cloned().unwrap_or_default(),
            hours: Hours::default(),
            live: 0,
            idle: 0,
            waiting: 0,
            peak: 0,
        };
        let open = Served {
            verdict: Verdict::Open,
            wait: Duration::ZERO,
            warm: true,
            launched: 0,
            idle: 0,
            waiting: 0,
        };
        let names = scenario.pools.iter().enumerate();
        let mut world = Self {
            trace,
            chance: Chance::new(scenario.seed),
            policy: policy(scenario.sharing.clone()),
            yard: Yard::default(),
            now: Now { wall: start, mono, seen: mono },
            begin,
            end: begin + span(trace.begin, trace.end),
            classes: scenario.pools.iter().map(class).collect(),
            names: names.map(|(number, spec)| (spec.resource_class.clone(), number)).collect(),
            numbers: trace.arrivals.iter().enumerate().map(|(n, arrival)| (arrival.key.clone(), n)).collect(),
            served: vec![open; trace.arrivals.len()],
            listened: vec![None; trace.arrivals.len()],
            bodies: Vec::new(),
            failures: BTreeMap::new(),
            calls: CallCounts::default(),
            minute: (0, 0, 0),
            by_hour: scenario.by_hour.clone(),
            live: Vec::new(),
            digest: 0xcbf2_9ce4_8422_2325,
            launches: 0,
            dirty: BTreeSet::new(),
            timers: BTreeMap::new(),
            order: BTreeSet::new(),
            events: BinaryHeap::new(),
            seq: 0,
        };
        world.set_up(trace, scenario);
        world.see(Observation::Listed(mono, BTreeSet::new()));
        world.settle();
        if !world.by_hour.is_empty() {
            world.counts();
        }
        world.at(begin + Duration::from_secs(3600), Event::Hour);
        world.comes_next(0);
        world
    }

    /// Sets up the failures that are repeated, and the pools.
    fn set_up(&mut self, trace: &Trace, scenario: &Scenario) {
        for failure in &trace.failures {
            let at = self.begin + span(trace.begin, failure.at);
            let of = (failure.class.clone(), failure.usage.as_str());
            self.failures.entry(of).or_default().push((at, failure.code.clone()));
        }
        for spec in &scenario.pools {
            let demand = scenario.demand.get(&spec.resource_class).cloned();
            let status = PoolStatus { demand, ..PoolStatus::default() };
            let (scale, uid, updated_at) = (None, None, Some(self.now.wall));
            // The origin of machines makes no difference here, and an image named by a parameter would be waited for.
            let spec = PoolSpec { launch: LaunchTemplate::default(), ..spec.clone() };
            let pool = Pool { spec, scale, status, uid, version: 1, updated_at };
            self.see(Observation::Written(Box::new(Written::Pool(pool))));
        }
    }

    /// Schedules the arrival of the next request.
    fn comes_next(&mut self, number: usize) {
        if let Some(arrival) = self.trace.arrivals.get(number) {
            let at = self.begin + span(self.trace.begin, arrival.at) + arrival.notice;
            self.at(at.max(self.now.mono), Event::Comes(number));
        }
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.seq += 1;
        self.events.push(Reverse((at, self.seq, event)));
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now.mono + delay, event);
    }

    fn see(&mut self, seen: Observation) {
        let dirty = self.yard.observe(seen, &self.now);
        self.dirty.extend(dirty);
    }

    fn wrote(&mut self, record: Written) {
        self.see(Observation::Written(Box::new(record)));
    }

    /// Adds an action to the digest.
    fn done(&mut self, what: &str, number: u64) {
        for byte in what.bytes().chain(number.to_le_bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn live_on(&mut self) {
        let last = self.end + AFTER;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let timer = self.order.first().map(|(at, _)| *at);
            let Some(next) = event.into_iter().chain(timer).min().filter(|at| *at <= last) else { return };
            if next > self.end && self.served.iter().all(|served| served.verdict != Verdict::Open) {
                return;
            }
            self.clock(next);
            while let Some((at, _)) = self.order.first()
                && *at <= next
                && let Some((_, unit)) = self.order.pop_first()
            {
                self.timers.remove(&unit);
                self.dirty.insert(unit);
            }
            while let Some(Reverse((at, ..))) = self.events.peek()
                && *at <= next
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                self.happen(event);
            }
            self.settle();
        }
    }

    fn clock(&mut self, mono: Duration) {
        let by = SignedDuration::try_from(mono.saturating_sub(self.now.mono)).unwrap_or_default();
        self.now.wall = self.now.wall.saturating_add(by).unwrap_or(self.now.wall);
        self.now.mono = self.now.mono.max(mono);
    }

    fn settle(&mut self) {
        while let Some(unit) = self.dirty.pop_first() {
            let role = Role { lease: Some(1) };
            let cx = Context { yard: &self.yard, policy: &self.policy, now: self.now, role };
            let plan = decide(&cx, &unit);
            let wake = plan.wake.map(|at| at.max(self.now.mono + Duration::from_millis(10)));
            if let Some(old) = self.timers.remove(&unit) {
                self.order.remove(&(old, unit.clone()));
            }
            if let Some(at) = wake {
                self.timers.insert(unit.clone(), at);
                self.order.insert((at, unit.clone()));
            }
            let acted = !plan.actions.is_empty();
            for action in plan.actions {
                self.carry_out(action);
            }
            if acted {
                self.dirty.insert(unit);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Comes(number) => self.comes(number),
            Event::LetsGo(number) => self.release(number),
            Event::GivesUp(number) => {
                if self.served[number].verdict == Verdict::Open {
                    self.ends(number, Verdict::GaveUp);
                    self.release(number);
                }
            }
            Event::Speaks(body, version) => self.speaks(body, version),
            Event::Forget(key) => self.see(Observation::Record(key, None)),
            Event::Counts => self.counts(),
            Event::Hour => {
                let (idle, live) =
                    self.classes.iter().fold((0, 0), |(i, l), class| (i + class.idle, l + class.live));
                self.live.push((idle, live - idle));
                if self.now.mono + Duration::from_secs(3600) <= self.end {
                    self.after(Duration::from_secs(3600), Event::Hour);
                }
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        let end = self.now.mono;
        let open: Vec<(usize, Activity, Duration)> =
            self.bodies.iter().map(|body| (body.class, body.activity, body.since)).collect();
        self.now.mono = end.max(self.end);
        open.into_iter().for_each(|(class, activity, since)| self.spent(class, activity, since));
        for (served, arrival) in self.served.iter_mut().zip(&self.trace.arrivals) {
            if served.verdict == Verdict::Open {
                served.wait = span(arrival.at, self.now.wall);
            }
        }
        let name = |class: &Class| class.spec.resource_class.clone();
        Outcome {
            hours: self.classes.iter().map(|class| (name(class), class.hours)).collect(),
            peak: self.classes.iter().map(|class| (name(class), class.peak)).collect(),
            served: self.served,
            live: self.live,
            calls: self.calls,
            digest: self.digest,
        }
    }
}

fn id(number: usize) -> InstanceId {
    InstanceId::parse(&format!("i-{number:017x}")).expect("hexadecimal digits are an id")
}

fn arn(number: usize) -> InstanceArn {
    InstanceArn::local(&id(number))
}

fn number_of(id: &InstanceId) -> Option<usize> {
    usize::from_str_radix(id.as_str().strip_prefix("i-")?, 16).ok()
}

fn arn_number(arn: &InstanceArn) -> Option<usize> {
    usize::from_str_radix(arn.as_str().rsplit_once("i-")?.1, 16).ok()
}
