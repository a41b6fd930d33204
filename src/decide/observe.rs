//! How the yard learns: every observation updates the images and indexes and answers which units must be judged
//! again. Observations are hints with a version; an older image never replaces a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Agent, ClassName, Instance, InstanceArn, InstanceId, Item, Key, Kind, Launch, LaunchId, LaunchPhase,
    Life, News, Notice, Pool, Reading, Reason, Record, Request, State, Unreadable, UsageClass, launch_digest,
    read,
};
use crate::ports::{ComputeError, Launched, Machine, MachineState};

use super::context::Now;
use super::yard::{Asked, Beat, Brake, Class, Ordered, Tracked, TrackedLaunch, Unit, Yard, line_of};

/// Something this process saw.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A record as it is, or that it is gone.
    Record(Key, Option<Item>),
    /// A record that was just written here.
    Written(Box<Written>),
    /// A strong read of a record; also tells absence and silence.
    Looked(Key, Option<Item>),
    /// A complete list of the table, begun at this moment: every key it showed or that was seen otherwise since.
    Listed(Duration, BTreeSet<Key>),
    /// What a launch brought.
    Ordered(LaunchId, Result<Launched, ComputeError>),
    /// The maker was asked to end a machine.
    Ended(InstanceArn),
    /// Where the maker says a machine stands.
    Stands(InstanceArn, Option<MachineState>),
    /// A machine was announced.
    Announced(InstanceArn),
    /// What a class's queue says about who is free.
    Hints(ClassName, Vec<InstanceId>),
    /// A class's queue did not answer: it is done without for a while.
    QueueDown(ClassName),
    /// A machine's runner was looked for at GitHub after its end.
    Swept(InstanceArn),
    /// All machines that are ours, as their maker lists them.
    Inventory(Vec<Machine>),
    /// What EC2 says of a machine from outside.
    Notice(Notice),
    /// Whether GitHub answered.
    GitHub(bool),
    /// A pool's status was written.
    Reported(ClassName),
}

/// A record of a kind that is judged, as this process wrote it: nothing has to be read out of its stored form.
#[derive(Clone, Debug)]
pub enum Written {
    /// A machine.
    Instance(Instance),
    /// Its agent.
    Agent(Agent),
    /// A request.
    Request(Request),
    /// A launch.
    Launch(Launch),
    /// A pool.
    Pool(Pool),
}

impl Written {
    /// The record's key.
    pub fn key(&self) -> Key {
        match self {
            Self::Instance(record) => record.key(),
            Self::Agent(record) => record.key(),
            Self::Request(record) => record.key(),
            Self::Launch(record) => record.key(),
            Self::Pool(record) => record.key(),
        }
    }
}

/// Longest account of why a launch was refused, in characters.
const REFUSAL: usize = 300;
/// Longest time launches of a class are held back.
const BRAKE_MOST: Duration = Duration::from_secs(300);
/// How long a queue that did not answer is done without.
const QUEUE_DOWN: Duration = Duration::from_secs(15);
/// Failures to boot in a row before launches are held back.
const BOOT_FAILURES: u32 = 3;

impl Brake {
    fn fail(&mut self, now: Duration, free: u32) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > free {
            let steps = (self.failures - free - 1).min(8);
            self.until = now + (Duration::from_secs(2) * 2_u32.pow(steps)).min(BRAKE_MOST);
        }
    }
}

impl Yard {
    /// Takes in what was seen; answers what must be judged again.
    pub fn observe(&mut self, seen: Observation, now: &Now) -> BTreeSet<Unit> {
        let mut dirty = BTreeSet::new();
        match seen {
            Observation::Record(key, item) => self.record(&key, item.as_ref(), now, &mut dirty),
            Observation::Written(record) => self.written(*record, now, &mut dirty),
            Observation::Looked(key, item) => self.looked(&key, item.as_ref(), now, &mut dirty),
            Observation::Listed(begun, keys) => self.listed(begun, &keys, now, &mut dirty),
            Observation::Ordered(id, answer) => self.ordered(&id, answer, now, &mut dirty),
            Observation::Inventory(machines) => self.inventory(machines, now, &mut dirty),
            Observation::Notice(notice) => self.noticed(notice, &mut dirty),
            Observation::GitHub(answered) => self.github_down = !answered,
            Observation::Hints(class, hints) => {
                let entry = self.classes.entry(class.clone()).or_default();
                entry.received = Some(now.mono);
                entry.hints = hints;
                dirty.insert(Unit::Class(class));
            }
            Observation::QueueDown(class) => {
                let entry = self.classes.entry(class.clone()).or_default();
                entry.received = Some(now.mono + QUEUE_DOWN);
                entry.hints.clear();
                dirty.insert(Unit::Class(class));
            }
            Observation::Reported(class) => {
                self.classes.entry(class).or_default().reported = Some(now.mono);
            }
            Observation::Ended(arn) => self.of(&arn, &mut dirty, |tracked| {
                tracked.ended =
                    Some((now.mono, tracked.ended.map_or(0, |(_, times)| times).saturating_add(1)));
            }),
            Observation::Stands(arn, state) => self.stands(&arn, state, now, &mut dirty),
            Observation::Announced(arn) => {
                self.of(&arn, &mut dirty, |tracked| tracked.announced = Some(now.mono))
            }
            Observation::Swept(arn) => self.of(&arn, &mut dirty, |tracked| tracked.swept = true),
        }
        dirty
    }

    fn stands(
        &mut self,
        arn: &InstanceArn,
        state: Option<MachineState>,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        self.of(arn, dirty, |tracked| {
            tracked.stands = Some(state);
            tracked.missing &= state.is_none();
            tracked.changed = false;
            let times = tracked.asked.map_or(0, |(_, times)| times);
            tracked.asked = Some((now.mono, times.saturating_add(1)));
        });
        if let (Some(_), Some(tracked)) = (state, self.instances.get(arn)) {
            let facts = &tracked.instance.facts;
            let place = (facts.created_at, arn.clone());
            self.classes.entry(facts.resource_class.clone()).or_default().missing.remove(&place);
        }
    }

    /// Notices of machines that are not ours, or have ended, say nothing.
    fn noticed(&mut self, notice: Notice, dirty: &mut BTreeSet<Unit>) {
        let Some(arn) = self.ids.get(&notice.instance).cloned() else { return };
        self.of(&arn, dirty, |tracked| match (tracked.instance.state().live(), notice.news) {
            (false, _) => {}
            (true, News::Changed) => tracked.changed = true,
            (true, News::Interruption(news)) => {
                let graver = match tracked.notice.take() {
                    None => news,
                    Some(old) => Tracked::graver(old, news),
                };
                tracked.notice = Some(graver);
            }
        });
        let request = self.instances.get(&arn).and_then(|tracked| tracked.instance.held_by());
        dirty.extend(request.cloned().map(Unit::Request));
    }

    fn of(&mut self, arn: &InstanceArn, dirty: &mut BTreeSet<Unit>, change: impl FnOnce(&mut Tracked)) {
        if let Some(tracked) = self.instances.get_mut(arn) {
            change(tracked);
            dirty.insert(Unit::Instance(arn.clone()));
        }
    }

    fn record(&mut self, key: &Key, item: Option<&Item>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(kind) = kind_of(key) else { return };
        if item.is_none() {
            self.there.remove(key);
        }
        match kind {
            Kind::Instance => {
                self.take(key, item, dirty, |yard, record, dirty| yard.instance_is(key, record, now, dirty))
            }
            Kind::Agent => {
                self.take(key, item, dirty, |yard, record, dirty| yard.agent_is(key, record, now, dirty))
            }
            Kind::Request => {
                self.take(key, item, dirty, |yard, record, dirty| yard.request_is(key, record, now, dirty))
            }
            Kind::Pool => self.take(key, item, dirty, |yard, record, dirty| yard.pool_is(key, record, dirty)),
            Kind::Launch => {
                self.take(key, item, dirty, |yard, record, dirty| yard.launch_is(key, record, now, dirty))
            }
            Kind::Lease | Kind::Event => return,
        }
        if item.is_some() {
            self.is_there(key, kind, now);
        }
    }

    /// Where is noted when a record was last seen to be there, if it has a place of its own.
    fn place(&mut self, key: &Key, kind: Kind) -> Option<&mut Duration> {
        let (_, name) = key.pk.split_once('#')?;
        match kind {
            Kind::Instance => self.instances.get_mut(name).map(|tracked| &mut tracked.there.0),
            Kind::Agent => {
                let tracked = self.instances.get_mut(name).filter(|tracked| tracked.agent.is_some());
                tracked.map(|tracked| &mut tracked.there.1)
            }
            Kind::Request => self.requests.get_mut(key).map(|asked| &mut asked.there),
            Kind::Pool | Kind::Launch | Kind::Lease | Kind::Event => None,
        }
    }

    fn is_there(&mut self, key: &Key, kind: Kind, now: &Now) {
        if let Some(seen) = self.place(key, kind) {
            *seen = now.mono;
        } else if let Some(seen) = self.there.get_mut(key) {
            *seen = now.mono;
        } else {
            self.there.insert(key.clone(), now.mono);
        }
    }

    /// Whether a record was seen to be there since a moment.
    fn seen_since(&mut self, key: &Key, begun: Duration) -> bool {
        let kind = kind_of(key);
        let place = kind.and_then(|kind| self.place(key, kind)).is_some_and(|seen| *seen >= begun);
        place || self.there.get(key).is_some_and(|seen| *seen >= begun)
    }

    fn written(&mut self, record: Written, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let key = record.key();
        self.unreadable.remove(&key);
        self.newer.remove(&key);
        self.absent.remove(&key);
        match record {
            Written::Instance(record) => self.instance_is(&key, Some(record), now, dirty),
            Written::Agent(record) => self.agent_is(&key, Some(record), now, dirty),
            Written::Request(record) => self.request_is(&key, Some(record), now, dirty),
            Written::Launch(record) => self.launch_is(&key, Some(record), now, dirty),
            Written::Pool(record) => self.pool_is(&key, Some(record), dirty),
        }
        if let Some(kind) = kind_of(&key) {
            self.is_there(&key, kind, now);
        }
    }

    /// Reads an item as its kind; what cannot be read is remembered by name and otherwise left alone.
    fn take<T: Record>(
        &mut self,
        key: &Key,
        item: Option<&Item>,
        dirty: &mut BTreeSet<Unit>,
        apply: impl FnOnce(&mut Self, Option<T>, &mut BTreeSet<Unit>),
    ) {
        self.unreadable.remove(key);
        self.newer.remove(key);
        match item.map(read::<T>) {
            None => apply(self, None, dirty),
            Some(Reading::Record(record)) => {
                self.absent.remove(key);
                apply(self, Some(record), dirty);
            }
            Some(Reading::Newer { schema }) => {
                self.newer.insert(key.clone(), schema);
                apply(self, None, dirty);
            }
            Some(Reading::Unreadable(Unreadable { problem, .. })) => {
                self.unreadable.insert(key.clone(), problem);
                apply(self, None, dirty);
            }
        }
    }

    fn looked(&mut self, key: &Key, item: Option<&Item>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        match item {
            Some(_) => self.absent.remove(key),
            None => self.absent.insert(key.clone(), now.mono),
        };
        self.record(key, item, now, dirty);
        // What was waiting for this look is judged again, whether or not anything changed.
        match kind_of(key) {
            Some(Kind::Agent) => {
                let Some(arn) = arn_of(key, "agent#") else { return };
                if let Some(tracked) = self.instances.get_mut(&arn) {
                    tracked.silent = tracked.agent.as_ref().map(|agent| agent.heartbeat_seq).or(Some(0));
                }
                dirty.insert(Unit::Instance(arn));
            }
            Some(Kind::Instance) => dirty.extend(arn_of(key, "instance#").map(Unit::Instance)),
            Some(Kind::Pool) => {
                let class = key.pk.strip_prefix("pool#").unwrap_or_default().to_owned();
                let asking = self.requests().filter(|(_, request)| request.intent.resource_class == class);
                dirty.extend(asking.map(|(key, _)| Unit::Request(key.clone())));
            }
            Some(Kind::Request | Kind::Launch | Kind::Lease | Kind::Event) | None => {}
        }
    }

    fn listed(&mut self, begun: Duration, keys: &BTreeSet<Key>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let known = self.instances.values().flat_map(|tracked| {
            let agent = tracked.agent.as_ref().map(Record::key);
            [Some(tracked.instance.key()), agent].into_iter().flatten()
        });
        let known = known
            .chain(self.requests.keys().cloned())
            .chain(self.launches.values().map(|tracked| tracked.launch.key()))
            .chain(self.classes.values().filter_map(|class| class.pool.as_ref()).map(Record::key))
            .chain(self.unreadable.keys().cloned())
            .chain(self.newer.keys().cloned());
        // What was seen since the list began may be younger than the page it would stand on.
        let mut missing: Vec<Key> = known.filter(|key| !keys.contains(key)).collect();
        missing.retain(|key| !self.seen_since(key, begun));
        for key in missing {
            self.record(&key, None, now, dirty);
        }
        self.listed = Some(begun);
        for class in self.classes.values_mut() {
            class.under_way.listed(begun);
        }
        // A machine without a record is proved lost only now: its request stands in line again.
        for request in self.requests.keys().cloned().collect::<Vec<_>>() {
            self.line_up(&request, now, dirty);
        }
        dirty.extend(self.units());
    }

    fn instance_is(&mut self, key: &Key, new: Option<Instance>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(arn) = arn_of(key, "instance#") else { return };
        let old = self.instances.get(&arn);
        if let (Some(old), Some(new)) = (old, &new)
            && new.version <= old.instance.version
        {
            return;
        }
        match new {
            Some(new) => {
                self.unrecorded.remove(&arn);
                dirty.insert(Unit::Instance(arn.clone()));
                match self.instances.get_mut(&arn) {
                    // In its place, so that no index is rebuilt around it.
                    Some(tracked) => {
                        let old = std::mem::replace(&mut tracked.instance, new);
                        // One text for all its images.
                        tracked.instance.facts.instance_arn = old.facts.instance_arn.clone();
                        if tracked.instance.pooled_at().is_none() {
                            tracked.announced = None;
                        }
                        let classes = &mut self.classes;
                        tally(classes, &arn, &old, false, dirty);
                        boots(classes, Some(&old), &tracked.instance, now);
                        tally(classes, &arn, &tracked.instance, true, dirty);
                    }
                    None => {
                        boots(&mut self.classes, None, &new, now);
                        tally(&mut self.classes, &arn, &new, true, dirty);
                        self.arrived(&new);
                        let arn = new.facts.instance_arn.clone();
                        self.ids.insert(new.facts.instance_id.clone(), arn.clone());
                        let agent = self.strays.remove(&arn);
                        let heard = agent.as_ref().and_then(|agent| self.there.remove(&agent.key()));
                        let there = (now.mono, heard.unwrap_or_default());
                        let beat =
                            agent.as_ref().map(|agent| Beat { seq: agent.heartbeat_seq, at: now.seen });
                        let tracked = Tracked { agent, beat, there, ..Tracked::new(new) };
                        self.instances.insert(arn, Box::new(tracked));
                    }
                }
            }
            None => {
                if let Some(old) = self.instances.swap_remove(&arn) {
                    tally(&mut self.classes, &arn, &old.instance, false, dirty);
                    self.ids.swap_remove(&old.instance.facts.instance_id);
                    old.agent.and_then(|agent| self.strays.insert(arn.clone(), agent));
                }
            }
        }
        let concerned: Vec<Key> = dirty
            .iter()
            .filter_map(|unit| match unit {
                Unit::Request(key) => Some(key.clone()),
                Unit::Instance(_) | Unit::Class(_) | Unit::Launch(_) => None,
            })
            .collect();
        for request in concerned {
            self.line_up(&request, now, dirty);
        }
    }

    /// A machine's record is there: its launch's share no longer stands for it.
    fn arrived(&mut self, instance: &Instance) {
        let Some(id) = &instance.facts.launch_id else { return };
        let class = self.launches.get(id).map(|tracked| &tracked.launch.resource_class);
        if let Some(class) = class.and_then(|class| self.classes.get_mut(class)) {
            class.under_way.seen(id, &instance.facts.instance_id);
        }
    }

    fn agent_is(&mut self, key: &Key, new: Option<Agent>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(arn) = arn_of(key, "agent#") else { return };
        let Some(tracked) = self.instances.get_mut(&arn) else {
            match new {
                Some(agent) => self.strays.insert(arn, agent),
                None => self.strays.remove(&arn),
            };
            return;
        };
        match (&tracked.agent, new) {
            (Some(old), Some(new)) if new.heartbeat_seq < old.heartbeat_seq => return,
            (_, Some(new)) => {
                if tracked.beat.is_none_or(|beat| beat.seq != new.heartbeat_seq) {
                    tracked.beat = Some(Beat { seq: new.heartbeat_seq, at: now.seen });
                    tracked.silent = None;
                }
                if tracked.agent.as_ref().is_none_or(|old| old.interruption != new.interruption) {
                    dirty.extend(tracked.instance.held_by().cloned().map(Unit::Request));
                }
                tracked.agent = Some(Agent { arn: Some(tracked.instance.facts.instance_arn.clone()), ..new });
            }
            (_, None) => tracked.agent = None,
        }
        dirty.insert(Unit::Instance(arn));
    }

    fn request_is(&mut self, key: &Key, new: Option<Request>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let old = self.requests.get(key).map(|asked| &asked.request);
        if let (Some(old), Some(new)) = (old, &new)
            && new.version <= old.version
        {
            return;
        }
        if let Some(old) = self.requests.get(key).map(|asked| &asked.request)
            && let Some(class) = Self::class_of(old).and_then(|class| self.classes.get_mut(&class))
        {
            class.waiting.remove(&old.rank());
        }
        let (new, old) = match new {
            Some(new) => {
                let id = new.id.clone();
                let old = match self.requests.get_mut(key) {
                    Some(known) => {
                        known.touched = now.mono;
                        Some(std::mem::replace(&mut known.request, new))
                    }
                    None => {
                        let asked = Asked { request: new, touched: now.mono, there: now.mono };
                        self.requests.insert(key.clone(), Box::new(asked));
                        None
                    }
                };
                (Some(id), old)
            }
            None => (None, self.requests.swap_remove(key).map(|asked| asked.request)),
        };
        // The machines on its list, before and after, are judged again: they may be released or given up.
        let now_there = self.requests.get(key).map(|asked| &asked.request);
        let listed = old.iter().chain(now_there).flat_map(|request| &request.status.instances);
        dirty.extend(listed.filter_map(|id| self.ids.get(id)).cloned().map(Unit::Instance));
        if let Some(class) = old.as_ref().or(now_there).and_then(Self::class_of) {
            dirty.insert(Unit::Class(class));
        }
        match new {
            Some(id) => {
                if old.is_none() {
                    let attempts = self.attempts.entry(line_of(&id)).or_default();
                    attempts.insert(id.attempt);
                    let older = attempts.range(..id.attempt).map(|attempt| {
                        let id = crate::model::RequestKey { attempt: *attempt, ..id.clone() };
                        Unit::Request(Request::key_of(&id))
                    });
                    dirty.extend(older);
                }
                dirty.insert(Unit::Request(key.clone()));
                self.line_up(key, now, dirty);
            }
            None => {
                if let Some(old) = &old
                    && let Some(attempts) = self.attempts.get_mut(&line_of(&old.id))
                {
                    attempts.remove(&old.id.attempt);
                    if attempts.is_empty() {
                        self.attempts.remove(&line_of(&old.id));
                    }
                }
            }
        }
    }

    /// Puts a request into its class's line if it lacks machines, takes it out if it does not.
    fn line_up(&mut self, key: &Key, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(request) = self.requests.get(key).map(|asked| &asked.request) else { return };
        let Some(class) = Self::class_of(request) else { return };
        let lacks =
            super::request::lacking(self, key, request, now.wall) > 0 || request.status.phase.is_none();
        let rank = request.rank();
        let class_entry = self.classes.entry(class.clone()).or_default();
        let stood = class_entry.waiting.contains_key(&rank);
        let stands = lacks && !super::request::gives_back(request);
        if stands {
            class_entry.waiting.insert(rank, key.clone());
        } else {
            class_entry.waiting.remove(&rank);
        }
        if stood != stands {
            dirty.insert(Unit::Class(class));
        }
    }

    fn pool_is(&mut self, key: &Key, new: Option<Pool>, dirty: &mut BTreeSet<Unit>) {
        let Ok(name) = ClassName::parse(key.pk.strip_prefix("pool#").unwrap_or_default()) else { return };
        let class = self.classes.entry(name.clone()).or_default();
        if let (Some(old), Some(new)) = (&class.pool, &new)
            && new.version <= old.version
        {
            return;
        }
        let wanted = |pool: &Option<Pool>| pool.as_ref().map(|pool| (pool.spec.clone(), pool.scale.clone()));
        let changed = wanted(&class.pool) != wanted(&new);
        class.digest = new.as_ref().map(|pool| launch_digest(&pool.spec));
        class.pool = new;
        dirty.insert(Unit::Class(name.clone()));
        if changed {
            let pooled = class.pooled.iter().filter_map(|(_, arn)| self.instances.get(arn));
            let drifted = pooled.filter(|tracked| class.drift(&tracked.instance).is_some());
            let place = |tracked: &Tracked| {
                (tracked.instance.facts.created_at, tracked.instance.facts.instance_arn.clone())
            };
            class.drifted = drifted.map(|tracked| place(tracked)).collect();
            let pooled = class.pooled.iter().filter_map(|(_, arn)| self.instances.get(arn));
            let worn = pooled.map(|tracked| &tracked.instance).filter(|instance| class.worn_out(instance));
            class.worn = worn.map(|instance| instance.facts.instance_arn.clone()).collect();
            // Rare: a person changed the class, so all of it is judged again.
            let machines =
                self.instances.iter().filter(|(_, tracked)| tracked.instance.facts.resource_class == name);
            dirty.extend(machines.map(|(arn, _)| Unit::Instance(arn.clone())));
            let requests = self.requests().filter(|(_, r)| r.intent.resource_class == name.as_str());
            dirty.extend(requests.map(|(key, _)| Unit::Request(key.clone())));
        }
    }

    fn launch_is(&mut self, key: &Key, new: Option<Launch>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Ok(id) = LaunchId::parse(key.pk.strip_prefix("launch#").unwrap_or_default()) else { return };
        let old = self.launches.get(&id);
        if let (Some(old), Some(new)) = (old, &new)
            && new.version <= old.launch.version
        {
            return;
        }
        let old = self.launches.remove(&id);
        let class =
            old.as_ref().map(|old| &old.launch).or(new.as_ref()).map(|launch| launch.resource_class.clone());
        if let Some(name) = class {
            let ids = &self.ids;
            let class: &mut Class = self.classes.entry(name.clone()).or_default();
            let spot = |launch: &&Launch| launch.usage_class == UsageClass::Spot;
            if let Some(old) = old.as_ref().map(|old| &old.launch) {
                if let Some(request) = Some(old).filter(spot).and_then(|launch| launch.request.as_ref())
                    && let Some(failed) = class.failed_spot.get_mut(request)
                {
                    failed.remove(&id);
                    if failed.is_empty() {
                        class.failed_spot.remove(request);
                    }
                }
            }
            let failed = new.as_ref().filter(|launch| launch.phase == LaunchPhase::Failed).filter(spot);
            if let Some(request) = failed.and_then(|launch| launch.request.clone()) {
                class.failed_spot.entry(request).or_default().insert(id.clone());
            }
            match &new {
                Some(new) => class.under_way.is(new, |machine| ids.contains_key(machine), now.mono),
                None => class.under_way.forget(&id),
            }
            dirty.insert(Unit::Class(name));
        }
        if let Some(launch) = new {
            let (ordered, since) = old.map_or((None, now.mono), |old| (old.ordered, old.since));
            self.launches.insert(id.clone(), TrackedLaunch { launch, ordered, since });
            dirty.insert(Unit::Launch(id));
        }
    }

    fn ordered(
        &mut self,
        id: &LaunchId,
        answer: Result<Launched, ComputeError>,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(tracked) = self.launches.get_mut(id) else { return };
        let class = tracked.launch.resource_class.clone();
        let launch = tracked.launch.clone();
        let came = Came::of(&answer);
        let refusal = match &answer {
            Err(ComputeError::Refused(why)) => Some(why.chars().take(REFUSAL).collect()),
            Ok(_)
            | Err(
                ComputeError::Throttled
                | ComputeError::NoCapacity(_)
                | ComputeError::Unknown(_)
                | ComputeError::TokenSpent(_),
            ) => None,
        };
        let times = tracked.ordered.as_ref().map_or(0, |ordered| ordered.times).saturating_add(1);
        tracked.ordered = Some(Ordered { answer, at: now.mono, times });
        let offering = self.offering_of(&launch);
        let class = self.classes.entry(class).or_default();
        class.refusal = refusal;
        match came {
            Came::Machines => class.had(&offering),
            Came::NoneToHave => class.lacked(offering, now.mono),
            Came::Failure => class.brake.fail(now.mono, 0),
        }
        dirty.insert(Unit::Launch(id.clone()));
    }

    fn inventory(&mut self, machines: Vec<Machine>, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let listed: BTreeSet<InstanceArn> = machines.iter().map(|machine| machine.arn.clone()).collect();
        self.unrecorded.retain(|arn, _| listed.contains(arn));
        for machine in machines {
            let arn = machine.arn.clone();
            match self.instances.get_mut(&arn) {
                Some(tracked) => {
                    tracked.missing = false;
                    if tracked.stands != Some(Some(machine.state)) {
                        tracked.stands = Some(Some(machine.state));
                        dirty.insert(Unit::Instance(arn));
                    }
                }
                None if machine.state.alive() => {
                    let since = self.unrecorded.get(&arn).map_or(now.mono, |(_, since)| *since);
                    dirty.extend(machine.launch.clone().map(Unit::Launch));
                    self.unrecorded.insert(arn.clone(), (machine, since));
                    dirty.insert(Unit::Instance(arn));
                }
                None => {
                    self.unrecorded.remove(&arn);
                }
            }
        }
        self.miss(&listed, dirty);
    }

    /// Marks the live machines that a list of machines does not show. Whether that is believed is judged later.
    fn miss(&mut self, listed: &BTreeSet<InstanceArn>, dirty: &mut BTreeSet<Unit>) {
        let mut missing: BTreeMap<ClassName, BTreeSet<(Timestamp, InstanceArn)>> = BTreeMap::new();
        for (arn, tracked) in &mut self.instances {
            tracked.missing = tracked.instance.state().live() && !listed.contains(arn);
            if tracked.missing {
                let facts = &tracked.instance.facts;
                missing
                    .entry(facts.resource_class.clone())
                    .or_default()
                    .insert((facts.created_at, arn.clone()));
                dirty.insert(Unit::Instance(arn.clone()));
            }
        }
        for (name, class) in &mut self.classes {
            let missing = missing.remove(name).unwrap_or_default();
            if class.missing != missing {
                class.missing = missing;
                dirty.insert(Unit::Class(name.clone()));
            }
        }
    }
}

/// Counts failures to boot in a row: they hold launches back. And spot machines that were taken back.
fn boots(classes: &mut BTreeMap<ClassName, Class>, old: Option<&Instance>, new: &Instance, now: &Now) {
    let class = classes.entry(new.facts.resource_class.clone()).or_default();
    let was_live = old.is_some_and(|old| old.state().live());
    if let Life::Terminated { reason: Reason::Interrupted | Reason::Vanished, .. } = new.life
        && was_live
        && new.facts.usage_class == UsageClass::Spot
    {
        class.spot.add(now.mono, class.spot_live);
    }
    let was_created = old.is_some_and(|old| old.state() == State::Created);
    match new.life {
        Life::Terminated { reason, .. } if was_created => match reason {
            Reason::Threshold
            | Reason::BootFailed
            | Reason::RegistrationFailed
            | Reason::Unhealthy
            | Reason::Vanished => class.brake.fail(now.mono, BOOT_FAILURES),
            Reason::CleanupFailed
            | Reason::Interrupted
            | Reason::Drifted
            | Reason::Surplus
            | Reason::MaxUses
            | Reason::MaxAge
            | Reason::Expired
            | Reason::Orphan => {}
        },
        Life::Running { .. } | Life::Idle { pooled_at: Some(_) } if was_created => {
            class.brake = Brake::default()
        }
        Life::Created { .. }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Idle { .. }
        | Life::Terminated { .. } => {}
    }
}

/// Adds a machine to its class's counts, or takes it out; its class and its request are judged again.
fn tally(
    classes: &mut BTreeMap<ClassName, Class>,
    arn: &InstanceArn,
    instance: &Instance,
    add: bool,
    dirty: &mut BTreeSet<Unit>,
) {
    let name = &instance.facts.resource_class;
    dirty.insert(Unit::Class(name.clone()));
    dirty.extend(instance.claim.iter().map(|claim| Unit::Request(claim.request.clone())));
    let class = classes.entry(name.clone()).or_default();
    let shift = |n: &mut u32| *n = if add { *n + 1 } else { n.saturating_sub(1) };
    if instance.state().live() {
        if instance.facts.usage_class == UsageClass::Spot {
            shift(&mut class.spot_live);
        }
        shift(class.counts.entry(instance.state()).or_default());
    }
    match &instance.life {
        Life::Created { run: None } => shift(&mut class.warm_created),
        Life::Idle { pooled_at: None } => shift(&mut class.cleaning),
        Life::Idle { pooled_at: Some(_) } => {
            let place = (instance.threshold.map_or(Timestamp::MAX, |t| t.at), arn.clone());
            if add {
                class.pooled.insert(place)
            } else {
                class.pooled.remove(&place)
            };
            let age = (instance.facts.created_at, arn.clone());
            if add && class.drift(instance).is_some() {
                class.drifted.insert(age.clone());
            } else {
                class.drifted.remove(&age);
            }
            if add && class.worn_out(instance) {
                class.worn.insert(arn.clone());
            } else {
                class.worn.remove(arn);
            }
            if add {
                class.ages.insert(age)
            } else {
                class.ages.remove(&age)
            };
        }
        Life::Terminated { reason: Reason::Drifted, gone_at: None } if add => {
            class.departing.insert(arn.clone());
        }
        Life::Created { run: Some(_) }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Terminated { .. } => drop(class.departing.remove(arn)),
    }
}

/// What an answer to a launch means for launches to come.
enum Came {
    Machines,
    NoneToHave,
    Failure,
}

impl Came {
    fn of(answer: &Result<Launched, ComputeError>) -> Self {
        match answer {
            Ok(launched) if !launched.machines.is_empty() => Self::Machines,
            Ok(_) | Err(ComputeError::NoCapacity(_)) => Self::NoneToHave,
            Err(
                ComputeError::Throttled
                | ComputeError::Unknown(_)
                | ComputeError::Refused(_)
                | ComputeError::TokenSpent(_),
            ) => Self::Failure,
        }
    }
}

fn arn_of(key: &Key, prefix: &str) -> Option<InstanceArn> {
    key.pk.strip_prefix(prefix).and_then(|arn| InstanceArn::parse(arn).ok())
}

/// The kind that a key says its record is of; none for keys that are not ours.
fn kind_of(key: &Key) -> Option<Kind> {
    if key.sk.starts_with("event#") {
        return Some(Kind::Event);
    }
    let (prefix, _) = key.pk.split_once('#')?;
    // A newer program may keep records of its own beside ours: they are none of our business.
    Kind::ALL.iter().copied().filter(|kind| kind.as_str() == prefix).find(|kind| match kind {
        Kind::Instance | Kind::Agent | Kind::Pool | Kind::Launch | Kind::Lease => key.sk == kind.as_str(),
        Kind::Request => key.sk.starts_with("request#"),
        Kind::Event => false,
    })
}

#[cfg(test)]
mod tests;
