//! The waiting requests of a class with `sharing`, by share. Each lane (one share, one priority, one demand, one
//! time until overdue) has its requests by age, and lanes are ordered by what their shares used, so that a change costs the logarithm of their
//! number whatever the length of the line. All that orders is in records: two operators order alike.
//!
//! Over 400 lines: the lanes, their order and the changes of both are one index, and are read together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{PoolSpec, Quota, Request, ShareBy, Sharing, Usage, after};

use super::demand::{Demand, QueuePosition};

/// What each machine that a share holds counts for beside its use, in milliseconds: a share pays when it is served, and
/// not only once the use is written.
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
    /// What the priority is worth; the highest first.
    pub(crate) priority: Reverse<i32>,
    /// What the requests accept.
    pub(crate) demand: Demand,
    /// How long each waits until it is overdue: so the oldest of a lane is overdue before all others of it.
    pub(crate) patience: Duration,
}

/// A lane in order: the least is served first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether the share has what it is guaranteed.
    guaranteed: bool,
    priority: Reverse<i32>,
    /// What the share used and holds, for its weight.
    used: u64,
    head: QueuePosition,
}

/// A lane among those whose oldest request is overdue: the least is served first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Late {
    /// What the share holds, for its weight.
    holds: u64,
    /// Since when the request is overdue.
    since: Timestamp,
    head: QueuePosition,
}

impl Rank {
    /// The oldest request of the lane.
    pub(crate) const fn head(&self) -> &QueuePosition {
        &self.head
    }
}

impl Late {
    /// The oldest request of the lane.
    pub(crate) const fn head(&self) -> &QueuePosition {
        &self.head
    }

    /// Whether it is served before a request that is not overdue, of a share that holds so much for its weight.
    pub(crate) const fn goes_before(&self, holds: u64) -> bool {
        self.holds <= holds
    }
}

/// Where a lane stands, as the indexes have it.
#[derive(Clone, Debug)]
struct Place {
    rank: Rank,
    /// When its oldest request becomes overdue, or became.
    due: Timestamp,
    /// Its place among the overdue; none while it is not known to be.
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
    /// All of them.
    pub(crate) ranked: BTreeMap<Rank, Arc<LaneId>>,
    /// Those known to be overdue.
    pub(crate) late: BTreeMap<Late, Arc<LaneId>>,
    /// The others, by when they become overdue.
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

/// What is known of a share.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Machines that its requests hold, by their own records.
    pub(crate) held: u32,
    /// Its accepted requests that lack machines.
    pub(crate) waiting: u32,
    /// Its weight.
    pub(crate) weight: u32,
    /// Its bounds in the class.
    pub(crate) quota: Quota,
    /// Milliseconds of machines since `since` was the present, in this account.
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
    /// The same by trust domain, for when only machines of some are free.
    domains: BTreeMap<String, Order>,
    /// Machines that all shares hold.
    held: u32,
    /// The use that the pool's status has.
    usage: Option<Usage>,
    /// Counts the statuses of use, and when this one was seen first.
    account: u64,
    begun: Duration,
    /// How long nobody may have counted before that.
    gap: Duration,
    /// Whether anything was held since.
    counted: bool,
}

/// The share of a request: looked up from its repository, for a team what was looked up when it was accepted.
pub(crate) fn share_of(sharing: &Sharing, request: &Request) -> ShareName {
    let (by, repository) = (sharing.by, &request.id.repository);
    match (by, &request.status.share) {
        (ShareBy::Team, Some(share)) => share.as_str().into(),
        (ShareBy::Team, None) | (ShareBy::Repository | ShareBy::Owner, _) => {
            sharing.share(repository, &BTreeMap::new()).into()
        }
    }
}

/// How long a request waits until it is overdue: half of its time, and five minutes at most.
fn patience(request: &Request) -> Duration {
    (Duration::from_secs(request.intent.timeout_seconds) / 2).min(OVERDUE)
}

/// When a request that waits is overdue.
pub(crate) fn overdue_at(request: &Request) -> Timestamp {
    after(request.status.accepted_at.unwrap_or(Timestamp::MAX), patience(request))
}

impl Share {
    /// What it used and holds for its weight, with so many machines more.
    fn rank(&self, usage: u64, more: u32) -> u64 {
        let entries = u64::from(self.held.saturating_add(more)).saturating_mul(ENTRY);
        usage.saturating_add(entries).saturating_mul(PRECISION) / u64::from(self.weight)
    }

    /// What it holds for its weight, with so many machines more.
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
    /// The rules of the class; none while the oldest request is the first.
    pub(crate) const fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    /// A share.
    pub(crate) fn share(&self, name: &str) -> Option<&Share> {
        self.shares.get(name)
    }

    /// Every share that holds or waits for something.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&ShareName, &Share)> {
        self.shares.iter()
    }

    /// Machines that all shares hold.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// The order of all lanes.
    pub(crate) const fn order(&self) -> &Order {
        &self.all
    }

    /// The order of the lanes of a trust domain.
    pub(crate) fn order_of(&self, domain: &str) -> Option<&Order> {
        self.domains.get(domain)
    }

    /// The lanes of a share.
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

    /// The requests of a lane.
    pub(crate) fn queue(&self, lane: &LaneId) -> Option<&Queue> {
        self.lanes.get(lane).map(|lane| &lane.queue)
    }

    /// What a share used, as the pool's status has it.
    pub(crate) fn used(&self, share: &str) -> u64 {
        self.usage.as_ref().and_then(|usage| usage.sums.get(share)).copied().unwrap_or(0)
    }

    /// The rank of a lane whose first request is `head`, with so many machines more.
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

    /// The place of a lane among the overdue, with so many machines more.
    pub(crate) fn late(&self, lane: &LaneId, head: &QueuePosition, since: Timestamp, more: u32) -> Late {
        Late { holds: self.holds(&lane.share, more), since, head: head.clone() }
    }

    /// What a share used and holds for its weight.
    pub(crate) fn used_for_weight(&self, share: &str) -> u64 {
        let weight = self.sharing.as_ref().map_or(1, |sharing| sharing.weight(share));
        let used = self.used(share);
        self.shares
            .get(share)
            .map_or_else(|| used.saturating_mul(PRECISION) / u64::from(weight), |share| share.rank(used, 0))
    }

    /// What a share holds for its weight, with so many machines more.
    pub(crate) fn holds(&self, share: &str, more: u32) -> u64 {
        self.shares.get(share).map_or(0, |share| share.holds(more))
    }
}

impl Shares {
    /// Begins anew with the rules of a changed spec.
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

    /// A request holds another number of machines than before.
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

    /// Puts a lane where it belongs, or away where nobody waits in it.
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

    /// Notes which lanes have become overdue.
    pub(crate) fn mature(&mut self, now: Timestamp) {
        while let Some((key, id)) = self.all.due.first_key_value().filter(|((due, _), _)| *due <= now) {
            let (due, head) = key.clone();
            let id = Arc::clone(id);
            let late = self.late(&id, &head, due, 0);
            let Some(place) = self.lanes.get_mut(&id).and_then(|lane| lane.place.as_mut()) else {
                // An index names only lanes there are.
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
