//! The waiting requests of a class with `sharing`, by share. Each lane (one share, one priority, one demand, one time
//! until overdue) holds its requests by age, and lanes are ordered by the use of their shares, so that a change costs
//! the logarithm of their number whatever the length of the queue. Everything that determines the order is in records:
//! two operators compute the same order.
//!
//! Over 400 lines: the lanes, their order and the changes of both are one index, and are read together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{PoolSpec, Quota, Request, ShareBy, Sharing, Usage, after};

use super::demand::{Demand, QueuePosition};

/// The use that each machine held by a share counts for in addition, in milliseconds: a share is charged when it is
/// served, and not only once the use is written.
const ENTRY: u64 = 300_000;
/// The longest that a request waits until it is overdue.
const OVERDUE: Duration = Duration::from_secs(300);
/// The precision in which use is divided by weights.
const PRECISION: u64 = 1000;

/// The name of a share.
pub(crate) type ShareName = Arc<str>;

/// The requests of one share and priority that can use the same machines and are overdue after the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneId {
    /// The share.
    pub(crate) share: ShareName,
    /// The value of the priority; the highest first.
    pub(crate) priority: Reverse<i32>,
    /// The machines that the requests accept.
    pub(crate) demand: Demand,
    /// How long each request waits until it is overdue: so the oldest request of a lane is overdue before all others of
    /// it.
    pub(crate) patience: Duration,
}

/// The position of a lane in the order: the least is served first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether the share has its guaranteed machines.
    guaranteed: bool,
    priority: Reverse<i32>,
    /// The share's use and held machines, divided by its weight.
    used: u64,
    head: QueuePosition,
}

/// The position of a lane among those whose oldest request is overdue: the least is served first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Late {
    /// The share's held machines, divided by its weight.
    holds: u64,
    /// Since when the request is overdue.
    since: Timestamp,
    head: QueuePosition,
}

impl Rank {
    /// Returns the oldest request of the lane.
    pub(crate) const fn head(&self) -> &QueuePosition {
        &self.head
    }
}

impl Late {
    /// Returns the oldest request of the lane.
    pub(crate) const fn head(&self) -> &QueuePosition {
        &self.head
    }

    /// Returns whether it is served before a request that is not overdue, of a share with this number of held machines
    /// by weight.
    pub(crate) const fn goes_before(&self, holds: u64) -> bool {
        self.holds <= holds
    }
}

/// The position of a lane in the indexes.
#[derive(Clone, Debug)]
struct Place {
    rank: Rank,
    /// When its oldest request becomes or became overdue.
    due: Timestamp,
    /// Its position among the overdue; none while it is not known to be overdue.
    late: Option<Late>,
}

/// The requests of a lane, the oldest first, and when each is overdue.
pub(crate) type Queue = BTreeMap<QueuePosition, Timestamp>;

#[derive(Clone, Debug, Default)]
struct Lane {
    queue: Queue,
    place: Option<Place>,
}

/// Lanes in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// All lanes.
    pub(crate) ranked: BTreeMap<Rank, Arc<LaneId>>,
    /// The lanes known to be overdue.
    pub(crate) late: BTreeMap<Late, Arc<LaneId>>,
    /// The other lanes, by when they become overdue.
    pub(crate) due: BTreeMap<(Timestamp, QueuePosition), Arc<LaneId>>,
}

impl Order {
    fn insert(&mut self, place: &Place, lane: &Arc<LaneId>) {
        self.ranked.insert(place.rank.clone(), Arc::clone(lane));
        match &place.late {
            Some(late) => self.late.insert(late.clone(), Arc::clone(lane)),
            None => self.due.insert((place.due, place.rank.head.clone()), Arc::clone(lane)),
        };
    }

    fn remove(&mut self, place: &Place) {
        self.ranked.remove(&place.rank);
        match &place.late {
            Some(late) => self.late.remove(late),
            None => self.due.remove(&(place.due, place.rank.head.clone())),
        };
    }
}

/// The state of a share.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Machines that its requests hold, according to their own records.
    pub(crate) held: u32,
    /// Its accepted requests that lack machines.
    pub(crate) waiting: u32,
    /// Its weight.
    pub(crate) weight: u32,
    /// Its bounds in the class.
    pub(crate) quota: Quota,
    /// Machine-milliseconds used from the beginning of this account until `since`.
    pending: u64,
    since: Duration,
    account: u64,
}

/// The shares of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    sharing: Option<Sharing>,
    shares: BTreeMap<ShareName, Share>,
    lanes: BTreeMap<Arc<LaneId>, Lane>,
    all: Order,
    /// The same by trust domain, for when only machines of some domains are free.
    domains: BTreeMap<String, Order>,
    /// Machines that all shares hold.
    held: u32,
    /// The use in the pool's status.
    usage: Option<Usage>,
    /// The number of the status of use, and when that status was first seen.
    account: u64,
    begun: Duration,
    /// How long no operator may have counted before that.
    gap: Duration,
    /// Whether any machine was held since.
    counted: bool,
}

/// Returns the share of a request: looked up from its repository; for a team, the one looked up when it was accepted.
pub(crate) fn share_of(sharing: &Sharing, request: &Request) -> ShareName {
    let (by, repository) = (sharing.by, &request.id.repository);
    match (by, &request.status.share) {
        (ShareBy::Team, Some(share)) => share.as_str().into(),
        (ShareBy::Team, None) | (ShareBy::Repository | ShareBy::Owner, _) => {
            sharing.share(repository, &BTreeMap::new()).into()
        }
    }
}

/// Returns how long a request waits until it is overdue: half of its time, and five minutes at most.
fn patience(request: &Request) -> Duration {
    (Duration::from_secs(request.intent.timeout_seconds) / 2).min(OVERDUE)
}

/// Returns when a request that waits is overdue.
pub(crate) fn overdue_at(request: &Request) -> Timestamp {
    after(request.status.accepted_at.unwrap_or(Timestamp::MAX), patience(request))
}

impl Share {
    /// Returns its use and held machines divided by its weight, with `more` machines added.
    fn rank(&self, usage: u64, more: u32) -> u64 {
        let entries = u64::from(self.held.saturating_add(more)).saturating_mul(ENTRY);
        usage.saturating_add(entries).saturating_mul(PRECISION) / u64::from(self.weight)
    }

    /// Returns its held machines divided by its weight, with `more` machines added.
    fn holds(&self, more: u32) -> u64 {
        self.rank(0, more)
    }

    fn pending(&self, account: u64, begun: Duration, now: Duration) -> u64 {
        let (pending, since) = if self.account == account { (self.pending, self.since) } else { (0, begun) };
        let time = u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX);
        pending.saturating_add(u64::from(self.held).saturating_mul(time))
    }
}

impl Shares {
    /// Returns the rules of the class; none while the oldest request is served first.
    pub(crate) const fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    /// Returns a share.
    pub(crate) fn share(&self, name: &str) -> Option<&Share> {
        self.shares.get(name)
    }

    /// Lists every share that holds or waits for machines.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&ShareName, &Share)> {
        self.shares.iter()
    }

    /// Counts the machines that all shares hold.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Returns the order of all lanes.
    pub(crate) const fn order(&self) -> &Order {
        &self.all
    }

    /// Returns the order of the lanes of a trust domain.
    pub(crate) fn order_of(&self, domain: &str) -> Option<&Order> {
        self.domains.get(domain)
    }

    /// Lists the lanes of a share.
    pub(crate) fn lanes_of<'a>(
        &'a self,
        share: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<LaneId>, &'a Queue)> {
        let lowest = LaneId {
            share: share.into(),
            priority: Reverse(i32::MAX),
            demand: Demand {
                trust_domain: String::new(),
                usage_class: None,
                instance_types: None,
                on_demand_fallback: false,
            },
            patience: Duration::ZERO,
        };
        let lanes = self.lanes.range(Arc::new(lowest)..);
        lanes.take_while(move |(lane, _)| &*lane.share == share).map(|(lane, of)| (lane, &of.queue))
    }

    /// Returns the requests of a lane.
    pub(crate) fn queue(&self, lane: &LaneId) -> Option<&Queue> {
        self.lanes.get(lane).map(|lane| &lane.queue)
    }

    /// Returns the use of a share in the pool's status.
    pub(crate) fn used(&self, share: &str) -> u64 {
        self.usage.as_ref().and_then(|usage| usage.sums.get(share)).copied().unwrap_or(0)
    }

    /// Returns the rank of a lane whose first request is `head`, with `more` machines added.
    pub(crate) fn rank(&self, lane: &LaneId, head: &QueuePosition, more: u32) -> Rank {
        let share = self.shares.get(&lane.share);
        let guaranteed = share.and_then(|share| share.quota.guaranteed).unwrap_or(0);
        let held = share.map_or(0, |share| share.held).saturating_add(more);
        Rank {
            guaranteed: held >= guaranteed,
            priority: lane.priority,
            used: share.map_or(0, |share| share.rank(self.used(&lane.share), more)),
            head: head.clone(),
        }
    }

    /// Returns the position of a lane among the overdue, with `more` machines added.
    pub(crate) fn late(&self, lane: &LaneId, head: &QueuePosition, since: Timestamp, more: u32) -> Late {
        Late { holds: self.holds(&lane.share, more), since, head: head.clone() }
    }

    /// Returns a share's use and held machines divided by its weight.
    pub(crate) fn used_for_weight(&self, share: &str) -> u64 {
        let weight = self.sharing.as_ref().map_or(1, |sharing| sharing.weight(share));
        let used = self.used(share);
        self.shares
            .get(share)
            .map_or_else(|| used.saturating_mul(PRECISION) / u64::from(weight), |share| share.rank(used, 0))
    }

    /// Returns a share's held machines divided by its weight, with `more` machines added.
    pub(crate) fn holds(&self, share: &str, more: u32) -> u64 {
        self.shares.get(share).map_or(0, |share| share.holds(more))
    }
}

impl Shares {
    /// Starts again with the rules of a changed spec.
    pub(crate) fn configure(&mut self, spec: Option<&PoolSpec>) {
        let sharing = spec.and_then(|spec| spec.sharing.clone());
        let usage = self.usage.take();
        let (account, begun, gap) = (self.account, self.begun, self.gap);
        let counted = self.counted && sharing.is_some();
        *self = Self { sharing, usage, account, begun, gap, counted, ..Self::default() };
    }

    fn entry(&mut self, name: &ShareName) -> &mut Share {
        let sharing = self.sharing.as_ref();
        let (account, begun) = (self.account, self.begun);
        self.shares.entry(Arc::clone(name)).or_insert_with(|| Share {
            held: 0,
            waiting: 0,
            weight: sharing.map_or(1, |sharing| sharing.weight(name)),
            quota: sharing.map_or_else(Quota::default, |sharing| sharing.quota(name)),
            pending: 0,
            since: begun,
            account,
        })
    }

    /// Processes a change of the number of machines that a request holds.
    pub(crate) fn hold(&mut self, old: Option<&Request>, new: Option<&Request>, now: Duration) {
        let Some(sharing) = self.sharing.clone() else { return };
        let count = |request: &Request| (share_of(&sharing, request), request.status.instances.len() as u32);
        let (old, new) = (old.map(count), new.map(count));
        if old == new {
            return;
        }
        for (holding, counted) in [(false, old), (true, new)] {
            let Some((name, count)) = counted.filter(|(_, count)| *count > 0) else { continue };
            let (account, begun) = (self.account, self.begun);
            let share = self.entry(&name);
            share.pending = share.pending(account, begun, now);
            (share.since, share.account) = (now, account);
            self.counted = true;
            let share = self.entry(&name);
            if holding {
                share.held = share.held.saturating_add(count);
                self.held = self.held.saturating_add(count);
            } else {
                share.held = share.held.saturating_sub(count);
                self.held = self.held.saturating_sub(count);
            }
            self.rank_again(&name);
        }
    }

    /// Adds an accepted request that lacks machines.
    pub(crate) fn insert(&mut self, request: &Request, spec: &PoolSpec) {
        let Some(lane) = self.lane_of(request, spec) else { return };
        let due = overdue_at(request);
        let queue = &mut self.lanes.entry(Arc::clone(&lane)).or_default().queue;
        if queue.insert(request.queue_position(), due).is_none() {
            self.entry(&lane.share).waiting += 1;
        }
        self.place(&lane);
    }

    /// Removes it; `request` is the image with which it was added.
    pub(crate) fn remove(&mut self, request: &Request, spec: &PoolSpec) {
        let Some(id) = self.lane_of(request, spec) else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.queue.remove(&request.queue_position()).is_none() {
            return;
        }
        let share = self.entry(&id.share);
        share.waiting = share.waiting.saturating_sub(1);
        self.place(&id);
    }

    fn lane_of(&self, request: &Request, spec: &PoolSpec) -> Option<Arc<LaneId>> {
        let sharing = self.sharing.as_ref()?;
        let id = LaneId {
            share: share_of(sharing, request),
            priority: Reverse(request.status.priority_value),
            demand: Demand::of(request, spec),
            patience: patience(request),
        };
        Some(self.lanes.get_key_value(&id).map_or_else(|| Arc::new(id), |(known, _)| Arc::clone(known)))
    }

    /// Moves a lane to its position, or removes it where no request waits in it.
    fn place(&mut self, id: &Arc<LaneId>) {
        let Some(lane) = self.lanes.get(id) else { return };
        let domain = &id.demand.trust_domain;
        let before = lane.place.clone();
        let next = lane.queue.first_key_value().map(|(head, due)| {
            let was = before.as_ref().and_then(|place| place.late.as_ref());
            let late = was.filter(|late| late.head == *head).map(|_| self.late(id, head, *due, 0));
            Place { rank: self.rank(id, head, 0), due: *due, late }
        });
        if let Some(before) = &before {
            self.all.remove(before);
            if let Some(order) = self.domains.get_mut(domain) {
                order.remove(before);
            }
        }
        match next {
            Some(next) => {
                self.all.insert(&next, id);
                self.domains.entry(domain.clone()).or_default().insert(&next, id);
                if let Some(lane) = self.lanes.get_mut(id) {
                    lane.place = Some(next);
                }
            }
            None => {
                if self.domains.get(domain).is_some_and(|order| order.ranked.is_empty()) {
                    self.domains.remove(domain);
                }
                self.lanes.remove(id);
            }
        }
    }

    fn rank_again(&mut self, share: &ShareName) {
        let lanes: Vec<Arc<LaneId>> = self.lanes_of(share).map(|(lane, _)| Arc::clone(lane)).collect();
        lanes.iter().for_each(|lane| self.place(lane));
    }

    /// Marks the lanes that have become overdue.
    pub(crate) fn mature(&mut self, now: Timestamp) {
        while let Some((key, id)) = self.all.due.first_key_value().filter(|((due, _), _)| *due <= now) {
            let (due, head) = key.clone();
            let id = Arc::clone(id);
            let late = self.late(&id, &head, due, 0);
            let Some(place) = self.lanes.get_mut(&id).and_then(|lane| lane.place.as_mut()) else {
                // An index names only existing lanes.
                self.all.due.pop_first();
                continue;
            };
            let before = place.clone();
            place.late = Some(late);
            let after = place.clone();
            for order in [&mut self.all].into_iter().chain(self.domains.get_mut(&id.demand.trust_domain)) {
                order.remove(&before);
                order.insert(&after, &id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
mod usage;
