//! The newest image of each record and what follows from it for the indexes: an older one never replaces a newer one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::counts::{boots, spoke, tally};
use super::observe::Source;
use super::tracked::Asked;
use super::{Beat, Class, Tracked, TrackedLaunch, Unit, Yard, label_of, line_of};
use super::{Now, gives_back, lacking};
use crate::model::{
    Agent, Instance, Launch, LaunchPhase, Phase, Pool, Record, RecordId, Request, RequestKey, UsageClass,
    launch_digest,
};

/// Whether a pooled machine's deadline was brought nearer: an operator sets it for the idle time of the class, which may
/// be less far from now where the former one's clock was ahead, but is no shorter for that.
fn shortened(old: &Instance, new: &Instance) -> bool {
    let (Some(_), Some(_), Some(was), Some(is)) =
        (old.pooled_at(), new.pooled_at(), old.threshold, new.threshold)
    else {
        return false;
    };
    is.at < was.at && is.at.duration_since(is.set_at) < was.at.duration_since(was.set_at)
}

/// Counts the requests of a repository that are taken on and not over, after one of them changed.
fn count_open(open: &mut BTreeMap<String, u32>, old: Option<&Request>, new: Option<&Request>) {
    let is_open = |request: &&Request| request.status.phase.is_some_and(Phase::wants_machines);
    let repository = |request: &Request| request.id.repository.as_str().to_ascii_lowercase();
    match (old.filter(is_open), new.filter(is_open)) {
        (None, Some(new)) => {
            let count = open.entry(repository(new)).or_default();
            *count = count.saturating_add(1);
        }
        (Some(old), None) => {
            if let Entry::Occupied(mut count) = open.entry(repository(old)) {
                *count.get_mut() = count.get().saturating_sub(1);
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
}

impl Yard {
    pub(crate) fn instance_is(
        &mut self,
        key: &RecordId,
        new: Option<Instance>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(arn) = key.instance().cloned() else { return };
        if let (Some(old), Some(new)) = (self.instances.get(&arn), &new)
            && !self.replaces(key, &old.instance, new, source)
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
                        let spoke_at = tracked.spoke_at();
                        let old = std::mem::replace(&mut tracked.instance, new);
                        // One text for all its images.
                        tracked.instance.facts.instance_arn = old.facts.instance_arn.clone();
                        if tracked.instance.threshold != old.threshold {
                            let ahead = tracked.instance.threshold.is_some_and(|set| set.set_at > now.wall);
                            tracked.set_ahead = ahead.then_some(now.mono);
                            tracked.shortened = shortened(&old, &tracked.instance);
                        }
                        if tracked.instance.pooled_at().is_none() {
                            tracked.announced = None;
                        }
                        let classes = &mut self.classes;
                        tally(classes, &arn, &old, false, dirty);
                        boots(classes, Some(&old), &tracked.instance, now);
                        tally(classes, &arn, &tracked.instance, true, dirty);
                        spoke(classes, &old.facts.resource_class, spoke_at, None);
                        spoke(classes, &tracked.instance.facts.resource_class, None, tracked.spoke_at());
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
                        let first_key = agent.as_ref().and_then(|agent| agent.public_key.clone());
                        let tracked = Tracked { agent, first_key, beat, there, ..Tracked::new(new) };
                        let class = &tracked.instance.facts.resource_class;
                        spoke(&mut self.classes, class, None, tracked.spoke_at());
                        self.instances.insert(arn, Box::new(tracked));
                    }
                }
            }
            None => {
                if let Some(old) = self.instances.swap_remove(&arn) {
                    tally(&mut self.classes, &arn, &old.instance, false, dirty);
                    spoke(&mut self.classes, &old.instance.facts.resource_class, old.spoke_at(), None);
                    self.ids.swap_remove(&old.instance.facts.instance_id);
                    old.agent.and_then(|agent| self.strays.insert(arn.clone(), agent));
                }
            }
        }
        let concerned: Vec<RequestKey> = dirty
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
    pub(crate) fn arrived(&mut self, instance: &Instance) {
        let Some(id) = &instance.facts.launch_id else { return };
        let class = self.launches.get(id).map(|tracked| &tracked.launch.resource_class);
        if let Some(class) = class.and_then(|class| self.classes.get_mut(class)) {
            class.under_way.seen(id, &instance.facts.instance_id);
        }
    }

    pub(crate) fn agent_is(
        &mut self,
        key: &RecordId,
        new: Option<Agent>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(arn) = key.agent().cloned() else { return };
        // A read that began after it was last seen shows what there is now.
        let newest = match source {
            Source::Told => false,
            Source::Read(begun) => !self.seen_since(key, begun),
        };
        let Some(tracked) = self.instances.get_mut(&arn) else {
            match new {
                Some(agent) => self.strays.insert(arn, agent),
                None => self.strays.remove(&arn),
            };
            return;
        };
        let spoke_at = tracked.spoke_at();
        match (&tracked.agent, new) {
            (Some(old), Some(new)) if new.heartbeat_seq < old.heartbeat_seq && !newest => return,
            (_, Some(new)) => {
                if tracked.beat.is_none_or(|beat| beat.seq != new.heartbeat_seq) {
                    tracked.beat = Some(Beat { seq: new.heartbeat_seq, at: now.seen });
                    tracked.silent = None;
                }
                if tracked.agent.as_ref().is_none_or(|old| old.interruption != new.interruption) {
                    dirty.extend(tracked.instance.held_by().and_then(Unit::of_request));
                }
                if tracked.instance.public_key.is_none() && tracked.first_key.is_none() {
                    tracked.first_key.clone_from(&new.public_key);
                }
                tracked.agent = Some(Agent { arn: Some(tracked.instance.facts.instance_arn.clone()), ..new });
            }
            (_, None) => tracked.agent = None,
        }
        spoke(&mut self.classes, &tracked.instance.facts.resource_class, spoke_at, tracked.spoke_at());
        dirty.insert(Unit::Instance(arn));
    }

    pub(crate) fn request_is(
        &mut self,
        key: &RecordId,
        new: Option<Request>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let RecordId::Request(id) = key else { return };
        if let (Some(old), Some(new)) = (self.requests.get(id).map(|asked| &asked.request), &new) {
            if !self.replaces(key, old, new, source) {
                return;
            }
            let before = old.uid.clone();
            self.succeeds(key, before.as_ref(), new, now);
        }
        let key = id;
        if let Some(old) = self.requests.get(key).map(|asked| &asked.request)
            && let Some(class) = Self::class_of(old).and_then(|class| self.classes.get_mut(&class))
        {
            class.line.leave(old, class.pool.as_ref().map(|pool| &pool.spec));
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
                        let asked = Asked { request: new, touched: now.mono, there: now.mono, refused: None };
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
        count_open(&mut self.open, old.as_ref(), now_there);
        let listed = old.iter().chain(now_there).flat_map(|request| &request.status.instances);
        dirty.extend(listed.filter_map(|id| self.ids.get(id)).cloned().map(Unit::Instance));
        if let Some(class) = old.as_ref().or(now_there).and_then(Self::class_of) {
            dirty.insert(Unit::Class(class));
        }
        match new {
            Some(id) => {
                if old.is_none() {
                    let attempts = self.attempts.entry(line_of(&id)).or_default();
                    attempts.insert((id.attempt, key.clone()));
                    let older = attempts.range(..(id.attempt, key.clone()));
                    dirty.extend(older.map(|(_, key)| Unit::Request(key.clone())));
                }
                let before = old.as_ref().map(label_of);
                let label = self.request(key).map(label_of);
                if before != label {
                    // Its label is its intent's until it is taken on.
                    before.iter().for_each(|before| self.unlabel(before, key, dirty));
                    self.labels.entry(label.clone().unwrap_or_default()).or_default().insert(key.clone());
                }
                label.iter().for_each(|label| self.label_changes(label, dirty));
                dirty.insert(Unit::Request(key.clone()));
                self.line_up(key, now, dirty);
            }
            None => {
                let Some(old) = old else { return };
                if let Some(attempts) = self.attempts.get_mut(&line_of(&old.id)) {
                    attempts.remove(&(old.id.attempt, key.clone()));
                    if attempts.is_empty() {
                        self.attempts.remove(&line_of(&old.id));
                    }
                }
                self.unlabel(&label_of(&old), key, dirty);
            }
        }
    }

    /// A request has a label no more.
    fn unlabel(&mut self, label: &(String, String), key: &RequestKey, dirty: &mut BTreeSet<Unit>) {
        self.label_changes(label, dirty);
        if let Some(same) = self.labels.get_mut(label) {
            same.remove(key);
            if same.is_empty() {
                self.labels.remove(label);
            }
        }
    }

    /// A request changed: the others with its label may be taken on now, or not any more.
    fn label_changes(&self, label: &(String, String), dirty: &mut BTreeSet<Unit>) {
        let Some(same) = self.labels.get(label).filter(|same| same.len() > 1) else { return };
        for (key, other) in same.iter().filter_map(|key| Some((key, self.request(key)?))) {
            if other.status.phase.is_none() {
                dirty.insert(Unit::Request(key.clone()));
                dirty.extend(Self::class_of(other).map(Unit::Class));
            }
        }
    }

    /// Puts a request into its class's line if it lacks machines, takes it out if it does not.
    pub(crate) fn line_up(&mut self, key: &RequestKey, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(request) = self.requests.get(key).map(|asked| &asked.request) else { return };
        let Some(class) = Self::class_of(request) else { return };
        let lacks = lacking(self, key, request, now.wall) > 0 || request.status.phase.is_none();
        let stands = lacks && !gives_back(request);
        let entry = self.classes.entry(class.clone()).or_default();
        let stood = entry.line.all().contains_key(&request.rank());
        let spec = entry.pool.as_ref().map(|pool| &pool.spec);
        match (stood, stands) {
            (false, true) => entry.line.enter(request, key, spec),
            (true, false) => entry.line.leave(request, spec),
            (true, true) | (false, false) => {}
        }
        if stood != stands {
            dirty.insert(Unit::Class(class));
        }
    }

    pub(crate) fn pool_is(
        &mut self,
        key: &RecordId,
        new: Option<Pool>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let RecordId::Pool(name) = key else { return };
        if let (Some(old), Some(new)) = (self.pool(name), &new) {
            if !self.replaces(key, old, new, source) {
                return;
            }
            let before = old.uid.clone();
            self.succeeds(key, before.as_ref(), new, now);
        }
        let class = self.classes.entry(name.clone()).or_default();
        let wanted = |pool: &Option<Pool>| pool.as_ref().map(|pool| (pool.spec.clone(), pool.scale.clone()));
        let changed = wanted(&class.pool) != wanted(&new);
        class.digest = new.as_ref().map(|pool| launch_digest(&pool.spec));
        if changed {
            let asked = &self.requests;
            let spec = new.as_ref().map(|pool| &pool.spec);
            class.line.sort(spec, |key| asked.get(key).map(|asked| &asked.request));
        }
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
                self.instances.iter().filter(|(_, tracked)| tracked.instance.facts.resource_class == *name);
            dirty.extend(machines.map(|(arn, _)| Unit::Instance(arn.clone())));
            let requests = self.requests().filter(|(_, r)| r.intent.resource_class == name.as_str());
            dirty.extend(requests.map(|(key, _)| Unit::Request(key.clone())));
        }
    }

    pub(crate) fn launch_is(
        &mut self,
        key: &RecordId,
        new: Option<Launch>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let RecordId::Launch(id) = key else { return };
        if let (Some(old), Some(new)) = (self.launches.get(id), &new) {
            if !self.replaces(key, &old.launch, new, source) {
                return;
            }
            let before = old.launch.uid.clone();
            self.succeeds(key, before.as_ref(), new, now);
        }
        let old = self.launches.remove(id);
        let class =
            old.as_ref().map(|old| &old.launch).or(new.as_ref()).map(|launch| launch.resource_class.clone());
        if let Some(name) = class {
            let ids = &self.ids;
            let class: &mut Class = self.classes.entry(name.clone()).or_default();
            let spot = |launch: &&Launch| launch.usage_class == UsageClass::Spot;
            let before = old.as_ref().map(|old| &old.launch).filter(spot);
            if let Some(request) = before.and_then(|launch| launch.request.as_ref())
                && let Some(failed) = class.failed_spot.get_mut(request)
            {
                failed.remove(id);
                if failed.is_empty() {
                    class.failed_spot.remove(request);
                }
            }
            let failed = new.as_ref().filter(|launch| launch.phase == LaunchPhase::Failed).filter(spot);
            if let Some(request) = failed.and_then(|launch| launch.request.clone()) {
                class.failed_spot.entry(request).or_default().insert(id.clone());
            }
            match &new {
                Some(new) => class.under_way.is(new, |machine| ids.contains_key(machine), now.mono),
                None => class.under_way.forget(id),
            }
            dirty.insert(Unit::Class(name));
        }
        if let Some(launch) = new {
            // What another launch of this name brought says nothing of this one.
            let same = old.filter(|old| old.launch.uid == launch.uid);
            let (ordered, since) = same.map_or((None, now.mono), |old| (old.ordered, old.since));
            self.launches.insert(id.clone(), TrackedLaunch { launch, ordered, since });
            dirty.insert(Unit::Launch(id.clone()));
        }
    }
}
