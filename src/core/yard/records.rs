//! Keeps the newest image of each record and updates the indexes from it. An older image never replaces a newer one.

use std::collections::BTreeSet;

use super::counts::{risks, spoke};
use super::observe::Source;
use super::{Beat, Class, Now, Tracked, TrackedLaunch, Unit, Yard};
use crate::model::{
    Agent, ClassName, Launch, LaunchPhase, Pool, RecordId, Request, UsageClass, pool_launch_digest,
};
use crate::yard::class::mix::Mix;
use crate::yard::class::scheduled::ScheduledNumber;

mod instance;
mod request;

impl Yard {
    pub(crate) fn agent_is(
        &mut self,
        key: &RecordId,
        new: Option<Agent>,
        source: Source,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let Some(arn) = key.agent().cloned() else { return };
        // A read that began after the record was last seen is the newest.
        let newest = match source {
            Source::Told => false,
            Source::Read(begun) => !self.seen_since(key, begun),
        };
        let Some(tracked) = self.instances.get_mut(&arn) else {
            match new {
                Some(agent) => self.orphan_agents.insert(arn, agent),
                None => self.orphan_agents.remove(&arn),
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
                let told = |agent: &Agent| {
                    let (done, job) = (agent.registration_done, agent.job.clone());
                    (agent.interruption.clone(), agent.runner_trouble.clone(), done, job)
                };
                if tracked.agent.as_ref().is_none_or(|old| told(old) != told(&new)) {
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
        risks(&mut self.classes, tracked);
        self.agent_read_or_not(&arn, dirty);
        dirty.insert(Unit::Instance(arn));
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
        let wanted = |pool: &Option<Pool>| {
            let image = |pool: &Pool| pool.pinned().map(|image| image.ami.clone());
            pool.as_ref().map(|pool| (pool.spec.clone(), pool.scale.clone(), image(pool)))
        };
        let changed = wanted(&class.pool) != wanted(&new);
        class.digest = new.as_ref().and_then(pool_launch_digest);
        let adoption = |pool: &Option<Pool>| pool.as_ref().map(|pool| pool.status.runner.clone());
        let adopts = adoption(&class.pool) != adoption(&new);
        if changed {
            let asked = &self.requests;
            let spec = new.as_ref().map(|pool| &pool.spec);
            class.waiting.sort(spec, |key| asked.get(key).map(|asked| &asked.request));
            class.share_anew(name, spec, asked, now);
            class.scheduled = spec.map(|spec| ScheduledNumber::of(spec, now.wall)).unwrap_or_default();
            self.fires_at = self.fires_at.into_iter().chain(class.scheduled.next()).min();
            class.mix = Mix::default();
            if let Some(spec) = spec {
                let of_class = |request: &&Request| request.intent.resource_class == name.as_str();
                let requests = asked.values().map(|asked| &asked.request).filter(of_class);
                requests.for_each(|request| class.mix.count(None, request, spec, now.wall));
            }
        }
        class.shares.used_is(new.as_ref(), now.wall, now.mono);
        class.shares.mature(now.wall);
        class.pool = new;
        dirty.insert(Unit::Class(name.clone()));
        if adopts {
            // The result of one class's trial of a runner package applies to the others.
            dirty.extend(self.classes.keys().cloned().map(Unit::Class));
        }
        if changed {
            self.class_changed(name, dirty);
        }
    }

    /// Looks at the schedules that fired since it last looked.
    pub(super) fn fire(&mut self, now: &Now) {
        if self.fires_at.is_none_or(|at| now.wall < at) {
            return;
        }
        let mut next = None;
        for class in self.classes.values_mut() {
            class.scheduled.look(now.wall);
            next = next.into_iter().chain(class.scheduled.next()).min();
        }
        self.fires_at = next;
    }

    /// Rebuilds the indexes of a class that a person changed, which is rare, and marks all of its units to be judged
    /// again.
    fn class_changed(&mut self, name: &ClassName, dirty: &mut BTreeSet<Unit>) {
        let Some(class) = self.classes.get_mut(name) else { return };
        let pooled = class.pooled.iter().filter_map(|(_, arn)| self.instances.get(arn));
        let drifted = pooled.filter(|tracked| class.drift(&tracked.instance).is_some());
        let place = |tracked: &Tracked| {
            (tracked.instance.facts.created_at, tracked.instance.facts.instance_arn.clone())
        };
        class.leaving.drifted = drifted.map(|tracked| place(tracked)).collect();
        let pooled = class.pooled.iter().filter_map(|(_, arn)| self.instances.get(arn));
        let expired = pooled.map(|tracked| &tracked.instance).filter(|instance| class.is_expired(instance));
        class.leaving.expired = expired.map(|instance| instance.facts.instance_arn.clone()).collect();
        let (unread_agents, spec) =
            (std::mem::take(&mut class.idle).unread_agents, class.pool.as_ref().map(|pool| &pool.spec));
        let machines =
            self.instances.iter().filter(|(_, tracked)| tracked.instance.facts.resource_class == *name);
        for (arn, tracked) in machines {
            class.idle.add(arn, &tracked.instance, spec, unread_agents.contains(arn));
            dirty.insert(Unit::Instance(arn.clone()));
        }
        let requests = self.requests().filter(|(_, r)| r.intent.resource_class == name.as_str());
        dirty.extend(requests.map(|(key, _)| Unit::Request(key.clone())));
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
                Some(new) => class.in_flight.is(new, |machine| ids.contains_key(machine), now.mono),
                None => class.in_flight.forget(id),
            }
            dirty.insert(Unit::Class(name));
        }
        if let Some(launch) = new {
            // The response to another launch of the same name is of no use for this one.
            let same = old.filter(|old| old.launch.uid == launch.uid);
            let (ordered, since) = same.map_or((None, now.mono), |old| (old.ordered, old.since));
            self.launches.insert(id.clone(), TrackedLaunch { launch, ordered, since });
            dirty.insert(Unit::Launch(id.clone()));
        }
    }
}
