//! The newest image of a machine's record, and the indexes that follow it.

use std::collections::BTreeSet;

use crate::model::{Instance, InstanceArn, Life, Place, Reason, Record, RecordId, RequestKey};
use crate::yard::ahead::RestOf;
use crate::yard::counts::{boots, risks, spoke, tally};
use crate::yard::observe::Source;
use crate::yard::{Beat, Now, Tracked, Unit, Yard};

/// Returns whether a pooled machine's deadline was shortened. An operator's own renewal may also end earlier, where the
/// former operator's clock was ahead, but its length is the same.
fn shortened(old: &Instance, new: &Instance) -> bool {
    let (Some(_), Some(_), Some(was), Some(is)) =
        (old.pooled_at(), new.pooled_at(), old.threshold, new.threshold)
    else {
        return false;
    };
    is.at < was.at && is.at.duration_since(is.set_at) < was.at.duration_since(was.set_at)
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
                if self.instances.contains_key(&arn) {
                    self.instance_changes(&arn, new, now, dirty);
                } else {
                    self.instance_appears(&arn, new, now, dirty);
                }
                self.agent_read_or_not(&arn, dirty);
            }
            None => self.instance_disappears(&arn, dirty),
        }
        let concerned: Vec<RequestKey> = dirty
            .iter()
            .filter_map(|unit| match unit {
                Unit::Request(key) => Some(key.clone()),
                Unit::Instance(_) | Unit::Class(_) | Unit::Launch(_) => None,
            })
            .collect();
        for request in concerned {
            self.enqueue(&request, now, dirty);
        }
    }

    /// Replaces the image of a known machine, in its place, so that no index is rebuilt around it.
    fn instance_changes(&mut self, arn: &InstanceArn, new: Instance, now: &Now, dirty: &mut BTreeSet<Unit>) {
        let Some(tracked) = self.instances.get_mut(arn) else { return };
        let spoke_at = tracked.spoke_at();
        let old = std::mem::replace(&mut tracked.instance, new);
        // All images share one ARN string.
        tracked.instance.facts.instance_arn = old.facts.instance_arn.clone();
        if tracked.instance.threshold != old.threshold {
            let ahead = tracked.instance.threshold.is_some_and(|set| set.set_at > now.wall);
            tracked.set_ahead = ahead.then_some(now.mono);
            tracked.shortened = shortened(&old, &tracked.instance);
        }
        if tracked.instance.place() != Place::IdleHeld || tracked.instance.state_since != old.state_since {
            tracked.held_while_cleaned = false;
        } else if old.place() == Place::IdleCleaning {
            tracked.held_while_cleaned = true;
        }
        tracked.rested(&old, now.mono);
        let classes = &mut self.classes;
        tally(classes, arn, &old, false, dirty);
        boots(classes, Some(&old), &tracked.instance, now);
        self.brakes.sees(Some(&old), &tracked.instance, now.wall);
        self.sums.machine(Some(&old), Some(&tracked.instance));
        tally(classes, arn, &tracked.instance, true, dirty);
        risks(classes, tracked);
        spoke(classes, &old.facts.resource_class, spoke_at, None);
        spoke(classes, &tracked.instance.facts.resource_class, None, tracked.spoke_at());
        if let (Some(spoke_at), Life::Terminated { reason: Reason::Unhealthy, .. }) =
            (spoke_at, &tracked.instance.life)
            && let Some(class) = classes.get_mut(&old.facts.resource_class)
        {
            class.beats.ended_silent(spoke_at, now.seen);
        }
    }

    /// Adds a machine that was not known, together with its agent's record if that was seen before.
    fn instance_appears(&mut self, arn: &InstanceArn, new: Instance, now: &Now, dirty: &mut BTreeSet<Unit>) {
        boots(&mut self.classes, None, &new, now);
        self.brakes.sees(None, &new, now.wall);
        self.sums.machine(None, Some(&new));
        tally(&mut self.classes, arn, &new, true, dirty);
        self.arrived(&new);
        let arn = new.facts.instance_arn.clone();
        self.ids.insert(new.facts.instance_id.clone(), arn.clone());
        let agent = self.orphan_agents.remove(&arn);
        let heard = agent.as_ref().and_then(|agent| self.there.remove(&agent.key()));
        let there = (now.mono, heard.unwrap_or_default());
        let beat = agent.as_ref().map(|agent| Beat { seq: agent.heartbeat_seq, at: now.seen });
        let first_key = agent.as_ref().and_then(|agent| agent.public_key.clone());
        let rest = RestOf::seen(now.mono);
        let tracked = Tracked { agent, first_key, beat, there, rest, ..Tracked::new(new) };
        let class = &tracked.instance.facts.resource_class;
        spoke(&mut self.classes, class, None, tracked.spoke_at());
        risks(&mut self.classes, &tracked);
        self.instances.insert(arn, Box::new(tracked));
    }

    /// Removes a machine whose record is gone; its agent's record may remain.
    fn instance_disappears(&mut self, arn: &InstanceArn, dirty: &mut BTreeSet<Unit>) {
        let Some(old) = self.instances.swap_remove(arn) else { return };
        self.sums.machine(Some(&old.instance), None);
        tally(&mut self.classes, arn, &old.instance, false, dirty);
        spoke(&mut self.classes, &old.instance.facts.resource_class, old.spoke_at(), None);
        self.ids.swap_remove(&old.instance.facts.instance_id);
        old.agent.and_then(|agent| self.orphan_agents.insert(arn.clone(), agent));
    }

    /// Stops counting a recorded machine as in flight for its launch.
    fn arrived(&mut self, instance: &Instance) {
        let Some(id) = &instance.facts.launch_id else { return };
        let class = self.launches.get(id).map(|tracked| &tracked.launch.resource_class);
        if let Some(class) = class.and_then(|class| self.classes.get_mut(class)) {
            class.in_flight.seen(id, &instance.facts.instance_id);
        }
    }
}
