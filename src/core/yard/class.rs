//! A class as the yard knows it: its pool and the indexes of its machines and requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Counts, Instance, InstanceArn, InstanceId, LaunchId, Pool, PoolSpec, RecordId, RequestKey, UsageClass,
    drift,
};

use super::beats::{Beats, believable};
use super::boots::Boots;
use super::demand::{Free, Line, MachineGroup};
use super::offerings::{Breaker, FORGOTTEN, Offering, REST_MOST, REST_SPOT_MOST, Rest, SpotLosses};
use super::under_way::UnderWay;
use super::visits::visited;

/// What holds a class's launches back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brake {
    /// Failures in a row.
    pub failures: u32,
    /// Nothing is launched before this moment.
    pub until: Duration,
}

/// A class: its pool and its indexes.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// The pool record.
    pub pool: Option<Pool>,
    /// Machines that are not terminated, by state.
    pub counts: Counts,
    /// Warm machines that still boot.
    pub warm_created: u32,
    /// Machines being cleaned.
    pub cleaning: u32,
    /// Machines whose records cannot be read, and do not say that they ended.
    pub(crate) veiled: u32,
    /// Pooled machines, the first to expire first.
    pub pooled: BTreeSet<(Timestamp, InstanceArn)>,
    /// Pooled machines, the oldest first.
    pub(crate) ages: BTreeSet<(Timestamp, InstanceArn)>,
    /// Pooled machines whose time is over whatever their age: used up, or a person asked for their end.
    pub(crate) worn: BTreeSet<InstanceArn>,
    /// The pooled machines by what requests choose by.
    pub(crate) free: BTreeMap<MachineGroup, Free>,
    /// Requests that lack machines.
    pub(crate) line: Line,
    /// What its launches may still add to its machines.
    pub under_way: UnderWay,
    /// What holds launches back after failures to get or boot machines.
    pub brake: Brake,
    /// Why its last launch was refused, until one is not.
    pub refusal: Option<String>,
    /// The last line on the console of the machine that last ended young, and which machine that was; until one is of use.
    pub(crate) last_console: Option<String>,
    /// How long its last first boots took.
    pub(crate) boots: Boots,
    /// Machines that boot, the oldest first.
    pub(crate) starting: BTreeSet<(Timestamp, InstanceArn)>,
    /// When its queue was last asked, on the monotonic clock.
    pub received: Option<Duration>,
    /// Machines that the queue says are free.
    pub hints: Vec<InstanceId>,
    /// When its pool's status was last written, on the monotonic clock.
    pub reported: Option<Duration>,
    /// When the agents of its live machines last spoke.
    pub(crate) beats: Beats,
    /// Live machines that the last list of machines did not show, the oldest first.
    pub(crate) missing: BTreeSet<(Timestamp, InstanceArn)>,
    /// In which way its machines are launched now.
    pub(crate) digest: Option<String>,
    /// Pooled machines that were launched in another way, the oldest first.
    pub(crate) drifted: BTreeSet<(Timestamp, InstanceArn)>,
    /// Machines that end for that and are not gone yet.
    pub(crate) departing: BTreeSet<InstanceArn>,
    /// What there was none of lately.
    pub(crate) offerings: BTreeMap<Offering, Rest>,
    /// Live spot machines.
    pub(crate) spot_live: u32,
    /// What became of its spot machines lately.
    pub(crate) spot: SpotLosses,
    /// Requests for which spot machines could not be had, with the launches that say so.
    pub(crate) failed_spot: BTreeMap<RecordId, BTreeSet<LaunchId>>,
}

impl Class {
    /// Machines of the class that are not terminated.
    pub fn live(&self) -> u32 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many machines recorded before a moment the last list of machines did not show, when they are too many to
    /// believe it: such a list is itself in doubt, and nothing is ended because of it.
    pub(crate) fn unbelieved(&self, before: Timestamp) -> Option<u32> {
        let most = believable(self.live());
        if self.missing.len() as u32 <= most {
            return None;
        }
        let gone = self.missing.iter().take_while(|(created_at, _)| *created_at <= before).count() as u32;
        (gone > most).then_some(gone)
    }

    /// Puts a pooled machine into its group, or takes it out.
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

    /// Whether a machine's time is over whatever its age.
    pub(crate) fn worn_out(&self, instance: &Instance) -> bool {
        instance.expired_by.is_some() || self.pool.as_ref().is_some_and(|pool| pool.spec.used_up(instance))
    }

    /// Why a machine is not what its class wants now, if it was launched in another way.
    pub(crate) fn drift(&self, instance: &Instance) -> Option<&'static str> {
        let spec = &self.pool.as_ref()?.spec;
        let facts = &instance.facts;
        drift(facts.launch_digest.as_deref(), self.digest.as_deref()?, spec.fits(facts), &spec.launch)
    }

    /// Machines it has or may soon have: what `max` bounds.
    pub(crate) fn taken(&self) -> u32 {
        self.live().saturating_add(self.under_way.total()).saturating_add(self.veiled)
    }

    /// The pooled machines that are older than the class allows, or whose time is over otherwise.
    pub(crate) fn retiring(&self, spec: &PoolSpec, now: Timestamp) -> impl Iterator<Item = &InstanceArn> {
        let born = now.saturating_sub(Duration::from_secs(spec.max_age_seconds)).unwrap_or(Timestamp::MIN);
        let old =
            self.ages.iter().inspect(|_| visited()).take_while(move |(created_at, _)| *created_at <= born);
        old.map(|(_, arn)| arn).filter(|arn| !self.worn.contains(*arn)).chain(&self.worn)
    }

    /// Whether spot machines could not be had for a request.
    pub(crate) fn scarce(&self, request: &RequestKey) -> bool {
        self.failed_spot.contains_key(&request.into())
    }
}

impl Class {
    /// Until when an offering is left alone, if it is.
    pub(crate) fn rests(&self, offering: &Offering, now: Duration) -> Option<Duration> {
        self.offerings.get(offering).map(|rest| rest.until).filter(|until| now < *until)
    }

    /// The offerings that are left alone now.
    pub fn resting(&self, now: Duration) -> impl Iterator<Item = (&Offering, &Rest)> {
        self.offerings.iter().filter(move |(_, rest)| now < rest.until)
    }

    /// What rested long ago is as good as new; requests name whatever types they like.
    pub(crate) fn forget_rests(&mut self, now: Duration) {
        self.offerings.retain(|_, rest| rest.until.saturating_add(FORGOTTEN) > now);
    }

    pub(crate) fn had(&mut self, offering: &Offering) {
        self.offerings.remove(offering);
    }

    pub(crate) fn lacked(&mut self, offering: Offering, now: Duration) {
        let most = match offering.usage {
            UsageClass::Spot => REST_SPOT_MOST,
            UsageClass::OnDemand => REST_MOST,
        };
        self.offerings.entry(offering).or_default().again(now, most);
    }

    /// Whether something is done without now.
    pub fn broken(&self, breaker: Breaker, now: Duration) -> bool {
        match breaker {
            Breaker::Spot => {
                let scarce = |(offering, rest): (&Offering, &Rest)| {
                    offering.usage == UsageClass::Spot && offering.types.is_empty() && rest.times > 1
                };
                now < self.spot.until || self.resting(now).any(scarce)
            }
            Breaker::Boot => now < self.brake.until,
        }
    }
}
