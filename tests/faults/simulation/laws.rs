//! Which promises must hold after every event? Judged on each write as it is applied, on each machine that is to end,
//! and on what really runs on a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use runyard_core::model::{
    Guard, Instance, InstanceArn, InstanceId, Item, Launch, LaunchPhase, MAX_HOLD_SECONDS, Operation, Phase,
    Place, Pool, Reading, Record, RecordId, Request, TRANSITIONS, Write, read,
};
use tokio::time::Instant;

/// How long a spec that was replaced may still be acted on: by then every operator has read the new one.
const LATELY: Duration = Duration::from_secs(120);

/// The shortest idle time of a class here, in seconds.
const LEAST_IDLE: i64 = 120;

/// By how much a deadline may be past what is exact: times are written in milliseconds.
const SLACK: SignedDuration = SignedDuration::from_secs(1);

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Laws {
    /// Which request holds each machine.
    held: BTreeMap<RecordId, RecordId>,
    claims: BTreeSet<String>,
    /// The machines that the writes at hand gave to a request.
    just_claimed: Vec<RecordId>,
    /// Class of each live machine.
    live: BTreeMap<RecordId, String>,
    /// Every record as it was last written, read once.
    instances: BTreeMap<RecordId, Instance>,
    requests: BTreeMap<RecordId, Request>,
    /// The requests whose records moved to the history.
    moved: BTreeSet<RecordId>,
    /// Which machines each request listed before.
    listed: BTreeMap<RecordId, Vec<InstanceId>>,
    launches: BTreeMap<RecordId, Launch>,
    pools: BTreeMap<RecordId, Pool>,
    /// Records that are gone or cannot be read, or could not until a while before this.
    unread: BTreeMap<RecordId, Option<Instant>>,
    /// Class and count of each launch in progress.
    open: BTreeMap<RecordId, (String, u32)>,
    /// Each class's `max`, and until when the one before it may count.
    max: BTreeMap<String, (u32, u32, Option<Instant>)>,
    pub(crate) claims_made: u64,
    pub(crate) reused: u64,
}

type Broken = Vec<String>;

impl Laws {
    /// A write that was applied, with the record before and after it.
    pub(crate) fn written(&mut self, write: &Write, old: Option<&Item>, new: Option<&Item>) -> Broken {
        let mut broken = Broken::new();
        if old == new {
            return broken;
        }
        let key = &write.key;
        guarded(write, &mut broken);
        // A machine's logs alone are made by the update that writes them.
        if old.is_none() && matches!(write.operation, Operation::Update { .. }) && key.sk() != "log" {
            broken.push(format!("S11 {key}: brought back by a change of what is gone"));
        }
        let pk = key.pk();
        let kind = pk.split('#').next().unwrap_or_default();
        if !matches!(kind, "agent" | "event") {
            version(key, old, new, &mut broken);
        }
        match kind {
            "agent" if key.sk() == "log" => {}
            "agent" => same_key(key, old, new, &mut broken),
            "instance" => self.instance(key, new, &mut broken),
            "request" => self.request(key, new, &mut broken),
            "launch" => self.launch(key, old, new, &mut broken),
            "pool" => self.pool(key, new),
            _ => {}
        }
        broken
    }

    /// What was written in one breath must fit together: who is claimed is listed, who is newly listed is held, what is
    /// bound is recorded, and an intent to launch is written under the lease alone.
    pub(crate) fn together(&mut self, writes: &[Write]) -> Broken {
        let mut broken = Broken::new();
        for key in std::mem::take(&mut self.just_claimed) {
            let Some(instance) = self.instances.get(&key) else { continue };
            let (id, holder) = (&instance.facts.instance_id, instance.held_by());
            let request = holder.and_then(|holder| self.requests.get(holder));
            if !request.is_some_and(|request| request.status.instances.contains(id)) {
                broken.push(format!("S1 {key}: claimed for {holder:?}, which does not list it"));
            }
        }
        for Write { key, operation } in writes {
            if let Some(request) = self.requests.get(key) {
                let before =
                    self.listed.insert(key.clone(), request.status.instances.clone()).unwrap_or_default();
                for id in request.status.instances.iter().filter(|id| !before.contains(id)) {
                    let machine = self.instances.get(&Instance::key_of(&InstanceArn::local(id)));
                    if machine.and_then(Instance::held_by) != Some(key) {
                        broken.push(format!("S1 {key}: lists {id}, which it does not hold"));
                    }
                }
            }
            if let Some(launch) = self.launches.get(key) {
                let recorded = |id| self.instances.contains_key(&Instance::key_of(&InstanceArn::local(id)));
                if launch.phase == LaunchPhase::Bound && !launch.instances.iter().all(recorded) {
                    broken.push(format!("S8 {key}: bound while not all its machines are recorded"));
                }
                let fenced = writes.iter().any(|w| matches!(w.operation, Operation::Check(Guard::Lease(_))));
                if matches!(operation, Operation::Create(_)) && !fenced {
                    broken.push(format!("S7 {key}: written without the fence of the lease"));
                }
            }
        }
        broken
    }

    fn instance(&mut self, key: &RecordId, new: Option<&Item>, broken: &mut Broken) {
        let Some(after) = record::<Instance>(new) else {
            self.instances.remove(key);
            broken.push(format!("S11 {key}: it is gone or cannot be read"));
            return;
        };
        let before = self.instances.insert(key.clone(), after.clone());
        let (from, to) = (before.as_ref().map_or(Place::Nowhere, Instance::place), after.place());
        if from == Place::Terminated && to != from {
            broken.push(format!("S10 {key}: {to:?} after it was terminated"));
        } else if from != to && !TRANSITIONS.iter().any(|row| (row.from, row.to) == (from, to)) {
            broken.push(format!("S11 {key}: {from:?} became {to:?}"));
        }
        if from != to && matches!(to, Place::CreatedBound | Place::Claimed) {
            self.claims_made += 1;
            self.just_claimed.push(key.clone());
            self.reused += u64::from(to == Place::Claimed);
            let claim = after.claim.as_ref().map(|claim| claim.id.to_string()).unwrap_or_default();
            if !self.claims.insert(claim.clone()) {
                broken.push(format!("S8 {key}: claim {claim} was made before"));
            }
        }
        if from != to
            && to == Place::IdlePooled
            && let Some(stays) = after.threshold
            && stays.at.duration_since(stays.set_at).as_secs() < LEAST_IDLE
        {
            broken.push(format!("S16 {key}: enters the pool until {}, set at {}", stays.at, stays.set_at));
        }
        if to == Place::IdlePooled && after.claim.is_some() && after.jobs.single_use() {
            broken.push(format!("S23 {key}: in the pool after a job that could become root"));
        }
        if let Some(before) = before.as_ref().filter(|before| before.claim.is_some())
            && before.claim == after.claim
            && before.runner != after.runner
            && !matches!(to, Place::IdlePooled)
        {
            broken
                .push(format!("S24 {key}: its claim runs {:?} instead of {:?}", after.runner, before.runner));
        }
        self.hold(key, before.as_ref(), &after, broken);
        let holder = after.held_by().cloned();
        if let (Some(was), Some(is)) = (self.held.get(key), &holder)
            && was != is
        {
            broken.push(format!("S1 {key}: went from {was} to {is} without being given back"));
        }
        match holder {
            Some(holder) => drop(self.held.insert(key.clone(), holder)),
            None => drop(self.held.remove(key)),
        }
        match after.state().live() {
            true => drop(self.live.insert(key.clone(), after.facts.resource_class.to_string())),
            false => drop(self.live.remove(key)),
        }
    }

    /// S33: a machine that a person wants to look at serves nobody again, and ends when its class allows no more.
    fn hold(&self, key: &RecordId, before: Option<&Instance>, after: &Instance, broken: &mut Broken) {
        let Some(was) = before.filter(|before| before.hold.is_some()) else { return };
        let moved = was.place() != after.place();
        match after.place() {
            Place::CreatedBound | Place::Claimed | Place::IdlePooled if moved => {
                broken.push(format!("S33 {key}: {:?} after a person held it", after.place()));
            }
            Place::IdleHeld => {
                let longest = self.longest_hold(after).saturating_add(SLACK);
                let set = was.threshold != after.threshold;
                if set
                    && after.threshold.is_none_or(|ends| ends.at.duration_since(after.state_since) > longest)
                {
                    broken.push(format!(
                        "S33 {key}: held from {} until {:?}",
                        after.state_since, after.threshold
                    ));
                }
            }
            Place::Nowhere
            | Place::CreatedBound
            | Place::CreatedWarm
            | Place::Claimed
            | Place::Running
            | Place::IdleCleaning
            | Place::IdlePooled
            | Place::Terminated => {}
        }
        if after.hold.is_none() {
            broken.push(format!("S33 {key}: nobody takes a hold away"));
        }
    }

    /// How long the class of a machine lets it be held; as long as any class by default, while its record cannot be
    /// read.
    fn longest_hold(&self, machine: &Instance) -> SignedDuration {
        let key = Pool::key_of(&machine.facts.resource_class);
        let unread = self.unread.get(&key).is_some_and(|until| until.is_none_or(|at| Instant::now() < at));
        let pool = self.pools.get(&key).filter(|_| !unread);
        let seconds = pool.map_or(MAX_HOLD_SECONDS, |pool| pool.spec.max_hold_seconds);
        SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    }

    fn launch(&mut self, key: &RecordId, old: Option<&Item>, new: Option<&Item>, broken: &mut Broken) {
        let Some(after) = record::<Launch>(new) else { return };
        self.launches.insert(key.clone(), after.clone());
        if after.phase != LaunchPhase::Intent {
            self.open.remove(key);
            return;
        }
        let class = after.resource_class.to_string();
        self.open.insert(key.clone(), (class.clone(), after.count));
        if old.is_some() {
            return;
        }
        let live = self.live.values().filter(|of| **of == class).count() as u32;
        let open: u32 = self.open.values().filter(|(of, _)| *of == class).map(|(_, count)| count).sum();
        let (max, before, until) = self.max.get(&class).copied().unwrap_or_default();
        let max = if until.is_some_and(|until| Instant::now() < until) { max.max(before) } else { max };
        if live + open > max {
            broken
                .push(format!("S7 {key}: {live} live machines and {open} to come of {class}, max is {max}"));
        }
        if after.count > 40 {
            broken.push(format!("S7 {key}: {} machines in one launch", after.count));
        }
    }

    /// From now on nobody can read a record.
    pub(crate) fn cannot_be_read(&mut self, key: &RecordId) {
        self.unread.insert(key.clone(), None);
    }

    /// A record can be read, perhaps again.
    pub(crate) fn can_be_read(&mut self, key: &RecordId) {
        if let Some(until) = self.unread.get_mut(key) {
            until.get_or_insert_with(|| Instant::now() + LATELY);
        }
    }

    fn pool(&mut self, key: &RecordId, new: Option<&Item>) {
        let Some(pool) = record::<Pool>(new) else {
            self.cannot_be_read(key);
            return;
        };
        self.can_be_read(key);
        self.pools.insert(key.clone(), pool.clone());
        let class = pool.spec.resource_class.to_string();
        let before = self.max.get(&class).map_or(pool.spec.max, |(max, ..)| *max);
        if !self.max.contains_key(&class) || before != pool.spec.max {
            self.max.insert(class, (pool.spec.max, before, Some(Instant::now() + LATELY)));
        }
    }

    fn request(&mut self, key: &RecordId, new: Option<&Item>, broken: &mut Broken) {
        let Some(after) = record::<Request>(new) else {
            // The record of one that is over may move to the history (S45): it is what it was.
            if new.is_none() && self.requests.get(key).is_some_and(|before| before.phase().is_final()) {
                self.moved.insert(key.clone());
                return;
            }
            self.requests.remove(key);
            broken.push(format!("S13 {key}: it is gone or cannot be read"));
            return;
        };
        let held = &after.status.instances;
        if held.len() > after.intent.count as usize
            || held.iter().collect::<BTreeSet<_>>().len() != held.len()
        {
            broken.push(format!("S2 {key}: asked for {} and holds {held:?}", after.intent.count));
        }
        let phase = after.phase();
        if phase == Phase::Released && !after.status.message.contains("unaccounted for") {
            self.given_back(key, broken);
        }
        let before = self.requests.insert(key.clone(), after).map(|before| before.phase());
        // Another one under the key of one that moved.
        let before = before.filter(|_| !self.moved.remove(key));
        if let Some(before) = before.filter(|before| before.is_final() && *before != phase) {
            broken.push(format!("S10 {key}: {before} became {phase}"));
        }
    }

    /// S13: a request that says it gave everything back has nothing at work.
    fn given_back(&self, key: &RecordId, broken: &mut Broken) {
        let before = self.requests.get(key).filter(|before| before.phase() != Phase::Released);
        for id in before.into_iter().flat_map(|before| &before.status.instances) {
            let machine = self.instances.get(&Instance::key_of(&InstanceArn::local(id)));
            let ours =
                |machine: &&Instance| machine.claim.as_ref().is_some_and(|claim| claim.request == *key);
            if let Some(machine) = machine
                .filter(ours)
                .filter(|machine| machine.state().live())
                .filter(|machine| !matches!(machine.place(), Place::IdlePooled | Place::IdleHeld))
            {
                broken.push(format!("S13 {key}: released while {id} is {:?} for it", machine.place()));
            }
        }
    }

    /// Whether one of these writes is of a machine that a request holds which failed.
    pub(crate) fn of_failed(&self, writes: &[Write]) -> bool {
        let holder = |write: &Write| self.instances.get(&write.key).and_then(Instance::held_by);
        let mut holders = writes.iter().filter_map(holder).filter_map(|key| self.requests.get(key));
        holders.any(|request| request.phase() == Phase::Failed)
    }

    /// How many live machines there are by the records.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn instance_of(&self, key: &RecordId) -> Option<&Instance> {
        self.instances.get(key)
    }

    pub(crate) fn request_of(&self, key: &RecordId) -> Option<&Request> {
        self.requests.get(key)
    }

    pub(crate) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.values()
    }

    pub(crate) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.launches.values()
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.values()
    }
}

/// A machine shows one public key for as long as it lives, however often its agent is started.
fn same_key(key: &RecordId, old: Option<&Item>, new: Option<&Item>, broken: &mut Broken) {
    let shown = |item: Option<&Item>| item.and_then(|item| item.get("publicKey")).cloned();
    if let Some(before) = shown(old)
        && shown(new).is_some_and(|after| after != before)
    {
        broken.push(format!("S12 {key}: its agent shows another key than at first"));
    }
}

/// S6: nothing is written that does not say what it replaces.
fn guarded(write: &Write, broken: &mut Broken) {
    let guard = match &write.operation {
        Operation::Update { guard, .. } | Operation::Delete(guard) => guard,
        Operation::Create(_) | Operation::Check(_) => return,
    };
    let fits = match guard {
        Guard::Exists => write.key.pk().starts_with("agent#"),
        Guard::Anything => write.key.pk().starts_with("agent#"),
        Guard::StillProvisioned => write.key.pk().starts_with("request#"),
        Guard::Absent
        | Guard::Version(_)
        | Guard::Image(..)
        | Guard::Beat(_)
        | Guard::Lease(_)
        | Guard::ExpiresAt(_) => true,
    };
    if !fits {
        broken.push(format!("S6 {}: written on {guard:?}", write.key));
    }
}

fn version(key: &RecordId, old: Option<&Item>, new: Option<&Item>, broken: &mut Broken) {
    let number = |item: &Item| match item.get("version") {
        Some(runyard_core::model::AttributeValue::N(number)) => number.parse::<u64>().ok(),
        Some(_) | None => None,
    };
    let (before, after) = (old.map_or(Some(0), number), new.and_then(number));
    if new.is_some() && before.zip(after).is_none_or(|(before, after)| after != before + 1) {
        broken.push(format!("S11 {key}: version {before:?} became {after:?}"));
    }
}

/// The record an item is, if it is one.
pub(crate) fn record<T: Record>(item: Option<&Item>) -> Option<T> {
    match read::<T>(item?) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    }
}
