//! A class in the yard: its pool and the indexes of its machines and requests.

pub(crate) mod beats;
mod boots;
pub(crate) mod decay;
pub(crate) mod demand;
pub(crate) mod idle;
pub(crate) mod in_flight;
pub(crate) mod kinds;
pub(crate) mod mix;
pub(crate) mod offerings;
mod refusals;
pub(crate) mod scheduled;
pub(crate) mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;

use crate::model::drift;
use crate::model::{
    ClassName, Counts, Instance, InstanceArn, InstanceId, LaunchId, Pool, PoolSpec, RecordId, RequestKey,
    UsageClass,
};

use super::now::Now;
use super::tracked::Asked;
use super::visits::visited;
use crate::yard::class::beats::{Beats, believable};
use crate::yard::class::boots::Boots;
use crate::yard::class::demand::{Free, MachineGroup, WaitingRequests};
use crate::yard::class::idle::Idle;
use crate::yard::class::in_flight::InFlight;
use crate::yard::class::kinds::{Kinds, MachineKind};
use crate::yard::class::mix::Mix;
use crate::yard::class::offerings::{
    BackoffKind, FORGOTTEN, ON_DEMAND_BACKOFF_MOST, Offering, OfferingBackoff, SPOT_BACKOFF_MOST, SpotLosses,
};
use crate::yard::class::refusals::OfferingRefusal;
use crate::yard::class::scheduled::ScheduledNumber;
use crate::yard::class::shares::Shares;

/// The backoff of a class's launches after failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchBackoff {
    /// Failures in a row.
    pub failures: u32,
    /// Nothing is launched before this moment.
    pub until: Duration,
}

/// The pooled machines of a class that leave before their time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaving {
    /// Pooled machines that have expired whatever their age: used up, or expired by a person.
    pub(crate) expired: BTreeSet<InstanceArn>,
    /// Drifted pooled machines, the oldest first.
    pub(crate) drifted: BTreeSet<(Timestamp, InstanceArn)>,
    /// Pooled machines that EC2 expects to take back, the oldest first.
    pub(crate) at_risk: BTreeSet<(Timestamp, InstanceArn)>,
    /// Machines that were ended for drift and are not gone yet.
    pub(crate) departing: BTreeSet<InstanceArn>,
}

/// A class: its pool and its indexes.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// The pool record.
    pub pool: Option<Pool>,
    /// The number of idle machines that its schedules want.
    pub(crate) scheduled: ScheduledNumber,
    /// Machines that are not terminated, by state.
    pub counts: Counts,
    /// Its machines that are not gone, by what they cost and are used for.
    pub(crate) kinds: Kinds,
    /// Warm machines that still boot.
    pub warm_created: u32,
    /// Machines being cleaned.
    pub cleaning: u32,
    /// Its idle machines by trust domain.
    pub(crate) idle: Idle,
    /// The trust domains of its recent requests.
    pub(crate) mix: Mix,
    /// Machines that a person holds.
    pub held: u32,
    /// Machines whose records cannot be read and do not show that the machine ended.
    pub(crate) unreadable: u32,
    /// Pooled machines, the first to expire first.
    pub pooled: BTreeSet<(Timestamp, InstanceArn)>,
    /// Pooled machines, the oldest first.
    pub(crate) ages: BTreeSet<(Timestamp, InstanceArn)>,
    /// Machines that leave the pool before their time.
    pub(crate) leaving: Leaving,
    /// The pooled machines, grouped by the properties that requests choose by.
    pub(crate) free: BTreeMap<MachineGroup, Free>,
    /// Machines out of the pool whose record names a runner package, by its digest.
    pub(crate) packages: BTreeMap<String, BTreeSet<InstanceArn>>,
    /// Requests that lack machines.
    pub(crate) waiting: WaitingRequests,
    /// Its shares, where it has `sharing`.
    pub(crate) shares: Shares,
    /// Machines that its launches may still add.
    pub in_flight: InFlight,
    /// The backoff of its launches after failures to launch or boot machines.
    pub backoff: LaunchBackoff,
    /// Why its last launch was refused, until one is accepted.
    pub refusal: Option<String>,
    /// The console's last line of the machine that last ended before it was of use, with its id; until a machine is of
    /// use.
    pub(crate) last_console: Option<String>,
    /// How long its last first boots took.
    pub(crate) boots: Boots,
    /// Machines that boot, the oldest first.
    pub(crate) starting: BTreeSet<(Timestamp, InstanceArn)>,
    /// When its queue was last received from, on the monotonic clock.
    pub received: Option<Duration>,
    /// Machines that the queue announced as free.
    pub hints: Vec<InstanceId>,
    /// When its pool's status was last written, on the monotonic clock.
    pub reported: Option<Duration>,
    /// When the agents of its live machines last sent a heartbeat.
    pub(crate) beats: Beats,
    /// Live machines that the last list of machines did not show, the oldest first.
    pub(crate) missing: BTreeSet<(Timestamp, InstanceArn)>,
    /// The digest of the current launch configuration of its machines.
    pub(crate) digest: Option<String>,
    /// Offerings without capacity, or refused by EC2 as requests chose them, with their backoffs.
    pub(crate) offerings: BTreeMap<Offering, OfferingBackoff>,
    /// Its recent losses of spot machines.
    pub(crate) spot: SpotLosses,
    /// Requests for which a spot launch failed, with those launches.
    pub(crate) failed_spot: BTreeMap<RecordId, BTreeSet<LaunchId>>,
}

impl Class {
    /// Recounts its shares after its pool changed.
    pub(crate) fn share_anew(
        &mut self,
        name: &ClassName,
        spec: Option<&PoolSpec>,
        asked: &IndexMap<RequestKey, Box<Asked>>,
        now: &Now,
    ) {
        self.shares.configure(spec);
        let Some(spec) = spec.filter(|spec| spec.sharing.is_some()) else { return };
        let all = asked.values().map(|asked| &asked.request);
        for request in all.filter(|request| request.intent.resource_class == name.as_str()) {
            self.shares.hold(None, Some(request), now.mono);
        }
        let waiting = self.waiting.all().iter().filter_map(|(_, key)| asked.get(key));
        for request in waiting.map(|asked| &asked.request) {
            if request.status.accepted_at.is_some() {
                self.shares.insert(request, spec);
            }
        }
    }

    /// Counts its machines that are not gone, by what they cost and what they are used for.
    pub fn kinds(&self) -> impl Iterator<Item = (&MachineKind, u32)> {
        self.kinds.all()
    }

    /// Counts the machines of the class that are not terminated.
    pub fn live(&self) -> u32 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts the machines recorded before a moment that are missing from the last list of machines, when that is more
    /// than can be believed. No machine is ended because of such a list.
    pub(crate) fn unbelieved(&self, before: Timestamp) -> Option<u32> {
        let most = believable(self.live());
        if self.missing.len() as u32 <= most {
            return None;
        }
        let gone = self.missing.iter().take_while(|(created_at, _)| *created_at <= before).count() as u32;
        (gone > most).then_some(gone)
    }

    /// Adds a pooled machine to its group, or removes it.
    pub(crate) fn free_is(&mut self, instance: &Instance, place: &(Timestamp, InstanceArn), add: bool) {
        let group = MachineGroup::of(instance);
        if add {
            self.free.entry(group).or_default().insert(place.clone());
        } else if let Some(free) = self.free.get_mut(&group) {
            free.remove(place);
            if free.is_empty() {
                self.free.remove(&group);
            }
        }
    }

    /// Returns whether a machine has expired whatever its age.
    pub(crate) fn is_expired(&self, instance: &Instance) -> bool {
        instance.expired_by.is_some()
            || instance.hold.is_some()
            || self.pool.as_ref().is_some_and(|pool| pool.spec.used_up(instance))
    }

    /// Returns why a machine has drifted from its class, if it has.
    pub(crate) fn drift(&self, instance: &Instance) -> Option<&'static str> {
        let spec = &self.pool.as_ref()?.spec;
        let facts = &instance.facts;
        if let Some(why) = spec.unshared(&instance.trust_domain) {
            return Some(why);
        }
        drift(facts.launch_digest.as_deref(), self.digest.as_deref()?, spec.fits(facts), &spec.launch)
    }

    /// Counts the machines that it has or may soon have: the number that `max` bounds.
    pub(crate) fn taken(&self) -> u32 {
        self.live().saturating_add(self.in_flight.total()).saturating_add(self.unreadable)
    }

    /// Lists the pooled machines that are older than the class allows, or have expired otherwise.
    pub(crate) fn retiring(&self, spec: &PoolSpec, now: Timestamp) -> impl Iterator<Item = &InstanceArn> {
        let born = now.saturating_sub(Duration::from_secs(spec.max_age_seconds)).unwrap_or(Timestamp::MIN);
        let old =
            self.ages.iter().inspect(|_| visited()).take_while(move |(created_at, _)| *created_at <= born);
        old.map(|(_, arn)| arn)
            .filter(|arn| !self.leaving.expired.contains(*arn))
            .chain(&self.leaving.expired)
    }

    /// Returns whether a spot launch failed for a request.
    pub(crate) fn scarce(&self, request: &RequestKey) -> bool {
        self.failed_spot.contains_key(&request.into())
    }
}

impl Class {
    /// Returns until when an offering backs off, for lack of capacity or after a refusal; none when it does not.
    pub(crate) fn backoff_until(&self, offering: &Offering, now: Duration) -> Option<Duration> {
        self.offerings.get(offering).map(OfferingBackoff::until).filter(|until| now < *until)
    }

    /// Lists the offerings that back off now.
    pub fn backing_off(&self, now: Duration) -> impl Iterator<Item = (&Offering, &OfferingBackoff)> {
        self.offerings.iter().filter(move |(_, backoff)| now < backoff.until)
    }

    /// Forgets backoffs that ended long ago; requests may name any types, so there is no bound otherwise.
    pub(crate) fn forget_backoffs(&mut self, now: Duration) {
        self.offerings.retain(|_, backoff| backoff.until().saturating_add(FORGOTTEN) > now);
    }

    pub(crate) fn capacity_found(&mut self, offering: &Offering) {
        self.offerings.remove(offering);
    }

    pub(crate) fn capacity_missing(&mut self, offering: Offering, now: Duration) {
        let most = match offering.usage {
            UsageClass::Spot => SPOT_BACKOFF_MOST,
            UsageClass::OnDemand => ON_DEMAND_BACKOFF_MOST,
        };
        self.offerings.entry(offering).or_default().again(now, most);
    }

    /// Returns whether an offering is a request's own choice, and not the one of the class's spec.
    pub(super) fn is_chosen(&self, offering: &Offering) -> bool {
        let usage = |of: UsageClass| self.pool.as_ref().is_some_and(|pool| pool.spec.usage_class != of);
        !offering.types.is_empty() || usage(offering.usage)
    }

    /// Records that EC2 refused an order of an offering that a request chose. Returns the requests that want the
    /// offering.
    pub(super) fn refuse(&mut self, offering: &Offering, why: String, now: &Now) -> Vec<RequestKey> {
        let backoff = self.offerings.entry(offering.clone()).or_default();
        backoff.refused.get_or_insert_with(|| OfferingRefusal::new(now)).again(why, now);
        let alike = self.waiting.demands().iter().filter(|(demand, _)| {
            demand.instance_types.as_deref().unwrap_or_default() == offering.types.as_slice()
        });
        alike.flat_map(|(_, places)| places.iter().map(|(_, key)| key.clone())).collect()
    }

    /// Returns EC2's refusal of an offering that a request chose, if there is one.
    pub(crate) fn refusal_of(&self, offering: &Offering) -> Option<&OfferingRefusal> {
        self.offerings.get(offering)?.refused.as_ref()
    }

    /// Returns whether a backoff of this kind is active.
    pub fn backs_off(&self, kind: BackoffKind, now: Duration) -> bool {
        match kind {
            BackoffKind::Spot => {
                let scarce = |(offering, backoff): (&Offering, &OfferingBackoff)| {
                    offering.usage == UsageClass::Spot && offering.types.is_empty() && backoff.times > 1
                };
                now < self.spot.until || self.backing_off(now).any(scarce)
            }
            BackoffKind::Boot => now < self.backoff.until,
        }
    }
}
