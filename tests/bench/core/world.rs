//! What is the core's work for one change, and for a day? The real yard and the real decisions; what is planned is
//! carried out at once, agents answer after fixed delays, and nothing but the core runs: no task, no store, no clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::{Context, Effect, Plan, Planned, Policy, Role, decide};
use runyard_core::model::{
    Agent, Desired, Instance, InstanceArn, InstanceId, Item, Launch, LaunchId, Life, Reading, Record,
    RecordId, Request, Signal, Timing, Versioned, read,
};
use runyard_core::ports::{Launched, Machine, MachineState};
use runyard_core::yard::{Now, Observation, Unit, Written, Yard};

/// The moment at which worlds begin.
pub(crate) fn start() -> Timestamp {
    "2026-01-05T00:00:00Z".parse().expect("a time")
}

/// Deadlines as configured by default, but for silence: heartbeats are left out, so nobody falls silent.
pub(crate) fn policy() -> Policy {
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
            reannounce: minutes(5),
            lease: Duration::from_secs(15),
            orphan: minutes(10),
            image: Duration::from_secs(3600),
        },
        requests_per_repository: u32::MAX,
        prices: Default::default(),
        sharing: Default::default(),
        following: Default::default(),
        github: false,
        organization: false,
        watches_runs: false,
        inventory: false,
        rebalance: runyard_core::model::Rebalance::Last,
        statements: false,
        ended_stays: Policy::ENDED_STAYS,
    }
}

/// How long the outside takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// From a launch until its machine's agent speaks; the longest there is: never.
    pub(crate) boot: Duration,
    /// From a claim until the runner listens.
    pub(crate) register: Duration,
    /// From a release until the machine is clean.
    pub(crate) clean: Duration,
}

/// What happens at a moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Somebody does something, by number.
    Services(u64),
    /// A request lets go.
    Release(RecordId),
    /// An agent finishes what it was told.
    Speak(InstanceArn),
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Units judged.
    pub(crate) decisions: u64,
    /// Actions carried out.
    pub(crate) actions: u64,
    /// Observations taken in.
    pub(crate) observations: u64,
    /// Claims written.
    pub(crate) claims: u64,
    /// Machines launched.
    pub(crate) launched: u64,
}

pub(crate) struct World {
    pub(crate) yard: Yard,
    pub(crate) policy: Policy,
    pub(crate) now: Now,
    pub(crate) delays: Delays,
    pub(crate) counts: Counts,
    /// Everything that was done, in its order, as one number.
    pub(crate) trace: u64,
    /// Whether allocations are counted.
    pub(crate) metered: bool,
    /// Those of the core since that was said.
    pub(crate) allocations: u64,
    dirty: BTreeSet<Unit>,
    at: BTreeMap<Unit, Duration>,
    order: BTreeSet<(Duration, Unit)>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    seq: u64,
    launches: u64,
}

impl World {
    pub(crate) fn empty(delays: Delays) -> Self {
        let mono = Duration::from_secs(100_000);
        Self {
            yard: Yard::default(),
            policy: policy(),
            now: Now { wall: start(), mono, seen: mono },
            delays,
            counts: Counts::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            metered: false,
            allocations: 0,
            dirty: BTreeSet::new(),
            at: BTreeMap::new(),
            order: BTreeSet::new(),
            events: BinaryHeap::new(),
            seq: 0,
            launches: 0,
        }
    }

    /// Adds to the trace.
    fn trace(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn see(&mut self, seen: Observation) {
        self.counts.observations += 1;
        let dirty = if self.metered {
            let (mut seen, mut dirty) = (Some(seen), BTreeSet::new());
            let (yard, now) = (&mut self.yard, &self.now);
            let info = allocation_counter::measure(|| {
                dirty = seen.take().map(|seen| yard.observe(seen, now)).unwrap_or_default();
            });
            self.allocations += info.count_total;
            dirty
        } else {
            self.yard.observe(seen, &self.now)
        };
        self.dirty.extend(dirty);
    }

    /// A record as it is now.
    pub(crate) fn store(&mut self, item: Item) {
        let key = RecordId::of(&item).expect("an item with a key");
        self.see(Observation::Record(key, Some(item)));
    }

    /// A record that the operator wrote.
    fn wrote(&mut self, record: Written) {
        self.see(Observation::Written(Box::new(record)));
    }

    pub(crate) fn list(&mut self, keys: BTreeSet<RecordId>) {
        self.see(Observation::Listed(self.now.mono, keys));
    }

    /// Something happens after a while.
    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.seq += 1;
        self.events.push(Reverse((self.now.mono + delay, self.seq, event)));
    }

    /// Forgets when to look at what again, so that only the core is left.
    pub(crate) fn forget_timers(&mut self) {
        self.at.clear();
        self.order.clear();
        self.dirty.clear();
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { yard: &self.yard, policy: &self.policy, now: self.now, role: Role { lease: Some(1) } }
    }

    /// Judges everything dirty and carries out what comes of it.
    pub(crate) fn settle(&mut self) {
        while let Some(unit) = self.dirty.pop_first() {
            self.counts.decisions += 1;
            let plan = if self.metered {
                let mut plan = Plan::default();
                let info = allocation_counter::measure(|| plan = decide(&self.context(), &unit));
                self.allocations += info.count_total;
                plan
            } else {
                decide(&self.context(), &unit)
            };
            let wake = plan.wake.map(|at| at.max(self.now.mono + Duration::from_millis(10)));
            self.set_timer(&unit, wake);
            let acted = !plan.actions.is_empty();
            for action in plan.actions {
                self.counts.actions += 1;
                self.carry_out(action);
            }
            if acted {
                self.dirty.insert(unit);
            }
        }
    }

    fn set_timer(&mut self, unit: &Unit, at: Option<Duration>) {
        if let Some(old) = self.at.remove(unit) {
            self.order.remove(&(old, unit.clone()));
        }
        if let Some(at) = at {
            self.at.insert(unit.clone(), at);
            self.order.insert((at, unit.clone()));
        }
    }

    /// The clocks stand at this moment. The clock of heartbeats stands still: they are left out.
    fn clock(&mut self, mono: Duration) {
        let by = SignedDuration::try_from(mono.saturating_sub(self.now.mono)).unwrap_or_default();
        self.now.wall = self.now.wall.saturating_add(by).expect("within the calendar");
        self.now.mono = self.now.mono.max(mono);
    }

    /// Lives until a moment after its beginning; what somebody outside does is told by number.
    pub(crate) fn live(&mut self, until: Duration, mut services: impl FnMut(&mut Self, u64)) {
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let timer = self.order.first().map(|(at, _)| *at);
            let Some(next) = event.into_iter().chain(timer).min().filter(|at| *at <= until) else { return };
            self.clock(next);
            while let Some((at, _)) = self.order.first()
                && *at <= next
            {
                let (_, unit) = self.order.pop_first().expect("there is a first");
                self.at.remove(&unit);
                self.dirty.insert(unit);
            }
            while let Some(Reverse((at, ..))) = self.events.peek()
                && *at <= next
            {
                let Reverse((_, _, event)) = self.events.pop().expect("there is a first");
                match event {
                    Event::Services(number) => services(self, number),
                    Event::Release(key) => self.release(&key),
                    Event::Speak(arn) => self.speak(&arn),
                }
            }
            self.settle();
        }
    }

    /// A workflow lets go.
    pub(crate) fn release(&mut self, key: &RecordId) {
        let Some(request) = self.yard.request_named(key) else { return };
        let mut request = request.clone();
        request.intent.desired = Desired::Released;
        request.intent.generation += 1;
        request.advance(self.now.wall);
        self.store(request.to_item());
    }

    /// An agent says what its record calls for.
    pub(crate) fn speak(&mut self, arn: &InstanceArn) {
        let Some(tracked) = self.yard.instance(arn) else { return };
        let Some(mut agent) = tracked.agent.clone() else { return };
        let claim = tracked.instance.claim.as_ref().map_or(String::new(), |claim| claim.id.to_string());
        let (signal, about) = match tracked.instance.life {
            Life::Created { run: None } => (Signal::Ok, String::new()),
            Life::Created { run: Some(_) } | Life::Claimed { .. } => (Signal::RegOk, claim),
            Life::Idle { pooled_at: None } => (Signal::RemoveRegOk, claim),
            Life::Running { .. } | Life::Idle { pooled_at: Some(_) } | Life::Terminated { .. } => return,
        };
        agent.heartbeat_seq += 1;
        agent.signal = Some(signal);
        agent.signal_claim_id = Some(about);
        self.store(agent.to_item());
    }

    /// What a machine does when its record becomes this.
    fn answer(&mut self, instance: &Instance) {
        let delay = match instance.life {
            Life::Created { .. } => self.delays.boot,
            Life::Claimed { .. } => self.delays.register,
            Life::Idle { pooled_at: None } => self.delays.clean,
            Life::Running { .. } | Life::Idle { pooled_at: Some(_) } | Life::Terminated { .. } => return,
        };
        if delay < Duration::MAX {
            self.after(delay, Event::Speak(instance.facts.instance_arn.clone()));
        }
    }

    fn machine(&mut self, instance: &Instance) {
        self.trace(instance.facts.instance_id.as_str().as_bytes());
        self.trace(&instance.version.to_le_bytes());
        self.wrote(Written::Instance(instance.clone()));
        self.answer(instance);
    }

    fn request(&mut self, request: &Request) {
        self.trace(request.id.run_id.as_str().as_bytes());
        self.trace(&request.version.to_le_bytes());
        self.wrote(Written::Request(request.clone()));
    }

    fn carry_out(&mut self, planned: Planned) {
        self.trace(planned.kind.as_bytes());
        match planned.effect {
            Effect::Instance(step, _) | Effect::Silence(step, _) | Effect::Disown(step, _) => {
                self.machine(&step.after)
            }
            Effect::Bury(step) => {
                self.machine(&step.after);
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                self.see(Observation::Record(agent, None));
            }
            Effect::Request(step) => self.request(&step.after),
            Effect::Launch(step) => self.wrote(Written::Launch(step.after)),
            Effect::Pool(step) => {
                let class = step.after.spec.resource_class.clone();
                self.wrote(Written::Pool(step.after));
                self.see(Observation::Reported(class));
            }
            Effect::Claim { request, machines, .. } => {
                self.counts.claims += 1;
                machines.iter().for_each(|step| self.machine(&step.after));
                self.request(&request.after);
            }
            Effect::Intend(mut launch, _) => {
                self.launches += 1;
                launch.launch_id = LaunchId::parse(&format!("l-{}", self.launches)).expect("a launch id");
                self.wrote(Written::Launch(*launch));
            }
            Effect::Order(order) => self.order(&order.launch),
            Effect::Bind { launch, request, machines } => {
                self.counts.launched += machines.len() as u64;
                for (instance, agent) in &machines {
                    self.wrote(Written::Agent(agent.clone()));
                    self.machine(instance);
                }
                if let Some(request) = request {
                    self.request(&request.after);
                }
                self.wrote(Written::Launch(launch.after));
            }
            Effect::Orphan(instance) => self.wrote(Written::Instance(*instance)),
            Effect::Terminate(arn) => self.see(Observation::Ended(arn)),
            Effect::Describe(arn) => self.see(Observation::Stands(arn, Some(MachineState::Terminated))),
            Effect::Console(arn) => self.see(Observation::Console(arn, None)),
            Effect::Announce(arn, _) => self.see(Observation::Announced(arn)),
            Effect::Resolve(_) => unreachable!("no class names a parameter"),
            Effect::Receive(class, _) => self.see(Observation::Hints(class, Vec::new())),
            Effect::Credential(..) => unreachable!("there is no GitHub"),
            Effect::SweepRunner(arn, _) => self.see(Observation::Swept(arn)),
            Effect::Look(key) => self.see(Observation::Looked(self.now.mono, key, None)),
            Effect::Expire(key, _) => self.see(Observation::Record(key, None)),
            Effect::Archive(_) | Effect::Recall(_) => unreachable!("there is no history"),
        }
    }

    fn order(&mut self, launch: &Launch) {
        let machine = |n: u32| {
            let id = InstanceId::parse(&format!("i-{:011x}{n:06x}", self.launches)).expect("an id");
            Machine {
                arn: InstanceArn::local(&id),
                id,
                state: MachineState::Running,
                class: Some(launch.resource_class.clone()),
                launch: Some(launch.launch_id.clone()),
                attempt: launch.attempt,
                usage_class: launch.usage_class,
                instance_type: "m7i.large".into(),
                zone: "local-a".into(),
                cpu: 2,
                mmem: 4096,
                launched_at: self.now.wall,
            }
        };
        let machines = (0..launch.count).map(machine).collect();
        self.see(Observation::Ordered(
            launch.launch_id.clone(),
            Ok(Launched { machines, shortfalls: Vec::new() }),
        ));
    }
}

/// A record from an item that is one.
pub(crate) fn record<T: Record>(item: &Item) -> T {
    match read::<T>(item) {
        Reading::Record(record) => record,
        Reading::Unreadable(why) => panic!("{why}"),
        Reading::Newer { schema } => panic!("schema {schema}"),
    }
}
