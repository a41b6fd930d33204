//! Determines the order in which one pass serves the lanes of a class with `sharing`: a share that gets machines moves
//! back at once, and each step costs the logarithm of the number of shares.

use std::collections::btree_map::{self, BTreeMap};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use crate::yard::{LaneId, Late, Order, Queue, QueuePosition, Rank, ShareName, Shares, visited};

/// An iteration over one order of lanes.
struct Walk<'a> {
    ranked: btree_map::Iter<'a, Rank, Arc<LaneId>>,
    next: Option<(&'a Rank, &'a Arc<LaneId>)>,
    late: btree_map::Iter<'a, Late, Arc<LaneId>>,
    next_late: Option<(&'a Late, &'a Arc<LaneId>)>,
}

/// The order of one pass.
pub(super) struct Turns<'a> {
    shares: &'a Shares,
    now: Timestamp,
    walks: Vec<Walk<'a>>,
    /// The trust domains that are served; none when all are.
    domains: Option<BTreeSet<String>>,
    /// Shares served in this pass, and how many machines each got.
    served: BTreeMap<ShareName, u32>,
    /// Shares that are not served any more in this pass.
    closed: BTreeSet<ShareName>,
    /// Lanes that are not served any more.
    left: BTreeSet<Arc<LaneId>>,
    /// The requests of a lane that are not served yet, for lanes that were served in part.
    rest: BTreeMap<Arc<LaneId>, btree_map::Iter<'a, QueuePosition, Timestamp>>,
    /// The lanes of shares that were served, in their current order.
    again: BTreeMap<Rank, (Arc<LaneId>, Timestamp)>,
    again_late: BTreeMap<Late, Arc<LaneId>>,
}

/// The next lane and request to serve.
pub(super) struct Turn {
    /// The lane; its oldest request that is not served yet is next.
    pub(super) lane: Arc<LaneId>,
    /// That request.
    pub(super) head: QueuePosition,
}

impl<'a> Turns<'a> {
    pub(super) fn of(shares: &'a Shares, now: Timestamp) -> Self {
        let mut turns = Self {
            shares,
            now,
            walks: Vec::new(),
            domains: None,
            served: BTreeMap::new(),
            closed: BTreeSet::new(),
            left: BTreeSet::new(),
            rest: BTreeMap::new(),
            again: BTreeMap::new(),
            again_late: BTreeMap::new(),
        };
        turns.walk([shares.order()].into_iter());
        turns
    }

    /// Restricts the remaining turns to the lanes of these trust domains.
    pub(super) fn only(&mut self, domains: BTreeSet<String>) {
        if self.domains.as_ref().is_some_and(|known| *known == domains) {
            return;
        }
        self.again_late.retain(|_, lane| domains.contains(&lane.demand.trust_domain));
        self.again.retain(|_, (lane, _)| domains.contains(&lane.demand.trust_domain));
        let orders: Vec<&'a Order> =
            domains.iter().filter_map(|domain| self.shares.order_of(domain)).collect();
        self.domains = Some(domains);
        self.walk(orders.into_iter());
    }

    fn walk(&mut self, orders: impl Iterator<Item = &'a Order>) {
        self.walks.clear();
        for order in orders {
            // Requests that became overdue since the yard last looked, which are few.
            for ((since, head), lane) in order.due.iter().take_while(|((due, _), _)| *due <= self.now) {
                if !self.served.contains_key(&lane.share) {
                    let late = self.shares.late(lane, head, *since, 0);
                    self.again_late.insert(late, Arc::clone(lane));
                }
            }
            let (ranked, late) = (order.ranked.iter(), order.late.iter());
            self.walks.push(Walk { ranked, next: None, late, next_late: None });
        }
    }

    fn is_out(&self, lane: &Arc<LaneId>) -> bool {
        self.served.contains_key(&lane.share) || self.closed.contains(&lane.share) || self.left.contains(lane)
    }

    /// Returns the next lane in the order of use.
    fn ranked(&mut self) -> Option<(Rank, Arc<LaneId>)> {
        for at in 0..self.walks.len() {
            while self.walks[at].next.is_none_or(|(_, lane)| self.is_out(lane)) {
                self.walks[at].next = self.walks[at].ranked.next();
                visited();
                if self.walks[at].next.is_none() {
                    break;
                }
            }
        }
        let walked = self.walks.iter().filter_map(|walk| walk.next).min_by_key(|(rank, _)| *rank);
        let again = self.again.first_key_value().map(|(rank, (lane, _))| (rank, lane));
        let first = [walked, again].into_iter().flatten().min_by_key(|(rank, _)| *rank)?;
        Some((first.0.clone(), Arc::clone(first.1)))
    }

    /// Returns the next overdue lane.
    fn late(&mut self) -> Option<(Late, Arc<LaneId>)> {
        for at in 0..self.walks.len() {
            while self.walks[at].next_late.is_none_or(|(_, lane)| self.is_out(lane)) {
                self.walks[at].next_late = self.walks[at].late.next();
                visited();
                if self.walks[at].next_late.is_none() {
                    break;
                }
            }
        }
        let walked = self.walks.iter().filter_map(|walk| walk.next_late).min_by_key(|(late, _)| *late);
        let again = self.again_late.first_key_value();
        let first = [walked, again].into_iter().flatten().min_by_key(|(late, _)| *late)?;
        Some((first.0.clone(), Arc::clone(first.1)))
    }

    /// Returns the next turn; none when there is none left.
    pub(super) fn next(&mut self) -> Option<Turn> {
        let (rank, lane) = self.ranked()?;
        let more = |share: &ShareName| self.served.get(share).copied().unwrap_or(0);
        let holds = self.shares.holds(&lane.share, more(&lane.share));
        match self.late() {
            Some((late, overdue)) if late.goes_before(holds) => {
                Some(Turn { head: late.head().clone(), lane: overdue })
            }
            Some(_) | None => Some(Turn { head: rank.head().clone(), lane }),
        }
    }

    /// Records that the head of a lane was visited and got this many machines; `others` is whether the next request of
    /// its lane may get some too.
    pub(super) fn done(&mut self, turn: &Turn, got: u32, others: bool) {
        if !others {
            self.left.insert(Arc::clone(&turn.lane));
            self.again.retain(|_, (lane, _)| *lane != turn.lane);
            self.again_late.retain(|_, lane| *lane != turn.lane);
        } else if let Some(queue) = self.shares.queue(&turn.lane) {
            let rest = self.rest.entry(Arc::clone(&turn.lane)).or_insert_with(|| queue.iter());
            while let Some((head, _)) = rest.clone().next()
                && *head <= turn.head
            {
                rest.next();
            }
        }
        if got == 0 && !others && !self.served.contains_key(&turn.lane.share) {
            return;
        }
        *self.served.entry(Arc::clone(&turn.lane.share)).or_default() += got;
        self.rank_again(&turn.lane.share);
    }

    /// Stops serving a share.
    pub(super) fn close(&mut self, share: &ShareName) {
        self.closed.insert(Arc::clone(share));
        self.again.retain(|_, (lane, _)| lane.share != *share);
        self.again_late.retain(|_, lane| lane.share != *share);
    }

    /// Returns how many machines a share got in this pass.
    pub(super) fn got(&self, share: &ShareName) -> u32 {
        self.served.get(share).copied().unwrap_or(0)
    }

    /// Moves the lanes of a share to their current positions.
    fn rank_again(&mut self, share: &ShareName) {
        let shares = self.shares;
        self.again.retain(|_, (lane, _)| lane.share != *share);
        self.again_late.retain(|_, lane| lane.share != *share);
        let more = self.got(share);
        let lanes: VecDeque<(&Arc<LaneId>, &Queue)> = shares.lanes_of(share).collect();
        for (lane, queue) in lanes {
            let fits = self.domains.as_ref().is_none_or(|some| some.contains(&lane.demand.trust_domain));
            if self.left.contains(lane) || !fits {
                continue;
            }
            let head = match self.rest.get(lane) {
                Some(rest) => rest.clone().next(),
                None => queue.iter().next(),
            };
            let Some((head, due)) = head else { continue };
            visited();
            self.again.insert(shares.rank(lane, head, more), (Arc::clone(lane), *due));
            if *due <= self.now {
                self.again_late.insert(shares.late(lane, head, *due, more), Arc::clone(lane));
            }
        }
    }
}
