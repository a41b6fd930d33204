//! A table, machines and one operator without tasks: what is planned is carried out at once, in the order in which
//! units are judged, on the guard that production puts on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runyard_core::decide::{Context, Credential, Effect, Plan, Planned, Policy, Role, Step, decide};
use runyard_core::model::{
    Agent, AttributeValue, Instance, InstanceArn, InstanceId, Item, Launch, LaunchId, Life, Promotion,
    Reading, Record, RecordId, Registration, Request, State, Timing, Versioned, read,
};
use runyard_core::ports::{ComputeError, Launched, Machine, MachineState};
use runyard_core::yard::{Now, Observation, Unit, Yard};

pub(crate) struct World {
    pub(crate) yard: Yard,
    pub(crate) policy: Policy,
    pub(crate) now: Now,
    pub(crate) role: Role,
    pub(crate) table: BTreeMap<RecordId, Item>,
    pub(crate) machines: BTreeMap<InstanceId, Machine>,
    /// Whether launches bring anything.
    pub(crate) capacity: bool,
    pub(crate) launches: u32,
}

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
            stale: minutes(1),
            agent_poll: Duration::from_secs(1),
            resync: minutes(5),
            reannounce: minutes(5),
            lease: Duration::from_secs(15),
            orphan: minutes(10),
            image: Duration::from_secs(3600),
        },
        requests_per_repository: 2000,
        prices: Default::default(),
        sharing: Default::default(),
        following: Default::default(),
        github: false,
        organization: false,
        watches_runs: false,
        inventory: true,
        rebalance: runyard_core::model::Rebalance::Last,
        statements: false,
        ended_stays: Policy::ENDED_STAYS,
    }
}

pub(crate) fn start() -> Timestamp {
    "2026-01-05T12:00:00Z".parse().unwrap()
}

/// A record as it is stored: what has no value is left out.
pub(crate) fn item(mut fields: serde_json::Value) -> Item {
    fields.as_object_mut().expect("a record").retain(|_, value| !value.is_null());
    let item: serde_dynamo::Item = serde_dynamo::to_item(fields).expect("a record can be stored");
    item.into_inner().into_iter().collect()
}

impl World {
    pub(crate) fn empty(wall: Timestamp) -> Self {
        let mono = Duration::from_secs(100_000);
        Self {
            yard: Yard::default(),
            policy: policy(),
            now: Now { wall, mono, seen: mono },
            role: Role { lease: Some(1) },
            table: BTreeMap::new(),
            machines: BTreeMap::new(),
            capacity: true,
            launches: 0,
        }
    }

    pub(crate) fn see(&mut self, seen: Observation) {
        let now = self.now;
        self.yard.observe(seen, &now);
    }

    /// Writes an item and lets the operator see it.
    pub(crate) fn store(&mut self, item: Item) {
        let key = RecordId::of(&item).unwrap();
        self.table.insert(key.clone(), item.clone());
        self.see(Observation::Record(key, Some(item)));
    }

    pub(crate) fn put<T: Record>(&mut self, record: &T) {
        self.store(record.to_item());
    }

    pub(crate) fn get<T: Record>(&self, key: &RecordId) -> Option<T> {
        match read::<T>(self.table.get(key)?) {
            Reading::Record(record) => Some(record),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        }
    }

    pub(crate) fn all<T: Record>(&self) -> Vec<T> {
        let of_kind = self.table.values().filter_map(|item| match read::<T>(item) {
            Reading::Record(record) => Some(record),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        });
        of_kind.collect()
    }

    pub(crate) fn list(&mut self) {
        let keys: BTreeSet<RecordId> = self.table.keys().cloned().collect();
        self.see(Observation::Listed(self.now.mono, keys));
    }

    pub(crate) fn later(&mut self, seconds: u64) {
        let by = SignedDuration::from_secs(seconds as i64);
        self.now.wall = self.now.wall.saturating_add(by).unwrap();
        self.now.mono += Duration::from_secs(seconds);
        self.now.seen += Duration::from_secs(seconds);
    }

    pub(crate) fn judge(&self) -> BTreeMap<Unit, Plan> {
        let cx = Context { yard: &self.yard, policy: &self.policy, now: self.now, role: self.role };
        self.yard.units().into_iter().map(|unit| (unit.clone(), decide(&cx, &unit))).collect()
    }

    /// Judges every unit once and carries out what comes of it; what was done.
    pub(crate) fn round(&mut self) -> Vec<String> {
        let mut did = Vec::new();
        for unit in self.yard.units() {
            let cx = Context { yard: &self.yard, policy: &self.policy, now: self.now, role: self.role };
            for action in decide(&cx, &unit).actions {
                if self.role.lease.is_none() && action.leader_only {
                    continue;
                }
                did.push(action.describe());
                self.carry_out(action);
            }
        }
        did
    }

    /// Judges until there is nothing left to do now.
    pub(crate) fn settle(&mut self) {
        for n in 0.. {
            let did = self.round();
            if did.is_empty() {
                return;
            }
            assert!(n < 60, "still at it: {did:#?}");
        }
    }

    fn version(&self, key: &RecordId) -> Option<u64> {
        match self.table.get(key)?.get("version") {
            Some(AttributeValue::N(n)) => n.parse().ok(),
            Some(_) | None => None,
        }
    }

    /// A strong read that began after all that was seen until now.
    fn look(&mut self, key: RecordId, item: Option<Item>) {
        let begun = self.now.mono + Duration::from_nanos(1);
        self.see(Observation::Looked(begun, key, item));
    }

    /// Writes on the versions that were read; a refused writer reads again.
    fn write(&mut self, steps: &[(u64, Item)], new: &[Item]) -> bool {
        let keys = |item: &Item| RecordId::of(item).unwrap();
        let holds = steps.iter().all(|(version, after)| self.version(&keys(after)) == Some(*version))
            && new.iter().all(|item| !self.table.contains_key(&keys(item)));
        let items = steps.iter().map(|(_, item)| item).chain(new);
        for item in items.cloned().collect::<Vec<_>>() {
            if holds {
                self.store(item);
            } else {
                let key = keys(&item);
                let stands = self.table.get(&key).cloned();
                self.look(key, stands);
            }
        }
        holds
    }

    fn step<T: Versioned>(&mut self, before: &T, after: &T) -> bool {
        assert_eq!(after.version(), before.version() + 1);
        self.write(&[(before.version(), after.to_item())], &[])
    }

    fn carry_out(&mut self, planned: Planned) {
        match planned.effect {
            Effect::Instance(step, _) => drop(self.step(&step.before, &step.after)),
            Effect::Silence(step, seq) => {
                let arn = &step.before.facts.instance_arn;
                let beat = self.get::<Agent>(&Agent::key_of(arn)).map(|agent| agent.heartbeat_seq);
                assert_eq!(beat, Some(seq), "nobody else writes here");
                self.step(&step.before, &step.after);
            }
            Effect::Disown(step, request) => {
                let there = self.get::<Request>(&request.key()).map(|request| request.version);
                assert_eq!(there, Some(request.version), "nobody else writes here");
                self.step(&step.before, &step.after);
            }
            Effect::Request(step) => drop(self.step(&step.before, &step.after)),
            Effect::Launch(step) => drop(self.step(&step.before, &step.after)),
            Effect::Pool(step) => {
                self.step(&step.before, &step.after);
                self.see(Observation::Reported(step.after.spec.resource_class.clone()));
            }
            Effect::Claim { request, machines, .. } => {
                let mut steps: Vec<(u64, Item)> =
                    machines.iter().map(|step| (step.before.version, step.after.to_item())).collect();
                steps.push((request.before.version, request.after.to_item()));
                self.write(&steps, &[]);
            }
            Effect::Intend(mut launch, _) => {
                self.launches += 1;
                launch.launch_id = LaunchId::parse(&format!("sim-{}", self.launches)).unwrap();
                self.write(&[], &[launch.to_item()]);
            }
            Effect::Order(order) => self.order(&order.launch.launch_id),
            Effect::Bind { launch, request, machines } => {
                let mut steps = vec![(launch.before.version, launch.after.to_item())];
                steps.extend(request.iter().map(|step| (step.before.version, step.after.to_item())));
                let new: Vec<Item> = machines
                    .iter()
                    .flat_map(|(instance, agent)| [instance.to_item(), agent.to_item()])
                    .collect();
                self.write(&steps, &new);
            }
            Effect::Orphan(instance) => drop(self.write(&[], &[instance.to_item()])),
            Effect::Bury(step) => {
                let agent = Agent::key_of(&step.before.facts.instance_arn);
                if self.step(&step.before, &step.after) {
                    self.table.remove(&agent);
                    self.see(Observation::Record(agent, None));
                }
            }
            Effect::Credential(step, credential) => self.credential(*step, &credential),
            Effect::Terminate(arn) => {
                let stored = self.get::<Instance>(&Instance::key_of(&arn)).map(|instance| instance.state());
                assert_eq!(stored, Some(State::Terminated), "decided before it is asked for");
                if let Some(machine) = self.machines.values_mut().find(|machine| machine.arn == arn) {
                    machine.state = MachineState::Terminated;
                }
                self.see(Observation::Ended(arn));
            }
            Effect::Describe(arn) => {
                let state =
                    self.machines.values().find(|machine| machine.arn == arn).map(|machine| machine.state);
                self.see(Observation::Stands(arn, state));
            }
            Effect::Console(arn) => self.see(Observation::Console(arn, None)),
            Effect::Announce(arn, _) => self.see(Observation::Announced(arn)),
            Effect::Resolve(_) => unreachable!("no class names a parameter"),
            Effect::Receive(class, _) => self.see(Observation::Hints(class, Vec::new())),
            Effect::SweepRunner(arn, _) => self.see(Observation::Swept(arn)),
            Effect::Look(key) => {
                let item = self.table.get(&key).cloned();
                self.look(key, item);
            }
            Effect::Expire(key, _) => {
                self.table.remove(&key);
                self.see(Observation::Record(key, None));
            }
            Effect::Archive(_) | Effect::Recall(_) => unreachable!("there is no history"),
        }
    }

    fn credential(&mut self, step: Step<Instance>, credential: &Credential) {
        let mut after = step.after;
        let sealed = Some(Registration { sealed: "box".into(), expires_at: None });
        match credential {
            Credential::Registration(_) | Credential::Anew { .. } => {
                after.registration = sealed;
                after.registration_seq += 1;
            }
            Credential::Ahead { .. } => after.registration = sealed,
            Credential::Removal(_) => after.removal = sealed,
            Credential::Promotion(_) => {
                let claim_id = after.claim.as_ref().expect("it is cleaned after a claim").id.clone();
                after.promotion = Some(Promotion { claim_id, names: Vec::new(), reason: "dropped".into() });
            }
        }
        self.step(&step.before, &after);
    }

    fn order(&mut self, id: &LaunchId) {
        let Some(launch) = self.get::<Launch>(&Launch::key_of(id)) else { return };
        let wanted = if self.capacity { launch.count.min(40) } else { 0 };
        let machines: Vec<Machine> = (0..wanted).map(|n| self.machine(&launch, n)).collect();
        let answer = if machines.is_empty() {
            Err(ComputeError::NoCapacity("none left".into()))
        } else {
            Ok(Launched { machines, shortfalls: Vec::new() })
        };
        self.see(Observation::Ordered(id.clone(), answer));
    }

    fn machine(&mut self, launch: &Launch, n: u32) -> Machine {
        let id = InstanceId::parse(&format!("i-{}-{n}", launch.launch_id)).unwrap();
        let machine = Machine {
            arn: InstanceArn::local(&id),
            id: id.clone(),
            class: Some(launch.resource_class.clone()),
            launch: Some(launch.launch_id.clone()),
            attempt: launch.attempt,
            instance_type: "m7i.large".into(),
            usage_class: launch.usage_class,
            cpu: 2,
            mmem: 4096,
            zone: String::new(),
            state: MachineState::Running,
            launched_at: self.now.wall,
        };
        self.machines.entry(id).or_insert(machine).clone()
    }

    /// S1 and S2 on the records as they stand.
    pub(crate) fn check(&self) {
        let mut holders: BTreeMap<InstanceId, String> = BTreeMap::new();
        for request in self.all::<Request>() {
            if !request.phase().wants_machines() {
                continue;
            }
            let status = &request.status;
            assert!(status.instances.len() <= request.intent.count as usize, "{}: {status:?}", request.id);
            for id in &status.instances {
                let other = holders.insert(id.clone(), request.id.to_string());
                assert_eq!(other, None, "{id} is also held by {}", request.id);
            }
        }
        for instance in self.all::<Instance>() {
            if let (Life::Running { .. } | Life::Claimed { .. }, Some(claim)) =
                (&instance.life, &instance.claim)
            {
                assert!(self.table.contains_key(&claim.request));
            }
        }
    }
}
