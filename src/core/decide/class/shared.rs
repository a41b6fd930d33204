//! Serves a class with `sharing`: requests that hold part of their machines get the rest first, then the share that
//! used least is next, within the quotas of each share.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::model::{Request, RequestKey};

use super::oldest::Servable;
use super::serve::{Others, Pass, Taken};
use super::turns::{Turn, Turns};
use crate::decide::WaitReason;
use crate::decide::request;
use crate::yard::{Class, Demand, ShareName, overdue_at, share_of, target};

/// Why a share may not have the machines that a request wants.
struct Over {
    /// The reason, for people.
    why: String,
    /// How many machines it may still have.
    left: u32,
}

/// How many requests of a share that want more than it may have are skipped by one pass in search of a smaller one.
const TOO_LARGE: u32 = 32;

/// Returns the first requests that wait in a class with `sharing`, in the order in which they would be served if each
/// got the machines that it lacks.
pub(crate) fn places(class: &Class, now: Timestamp, most: usize) -> Vec<RequestKey> {
    let mut turns = Turns::of(&class.shares, now);
    let served = class.waiting.served();
    let mut order: Vec<RequestKey> = served.iter().map(|(_, key)| key.clone()).collect();
    order.truncate(most);
    while let Some(turn) = turns.next().filter(|_| order.len() < most) {
        if !served.contains(&turn.head) {
            order.push(turn.head.1.clone());
        }
        turns.done(&turn, 1, true);
    }
    order
}

impl<'a> Pass<'a, '_> {
    /// Serves the accepted requests by share.
    pub(super) fn by_share(&mut self) {
        let mut turns = Turns::of(&self.class.shares, self.cx.now.wall);
        // Partially served requests get the rest first, the oldest before all others, so that no two gather the same
        // machines.
        for (_, key) in self.class.waiting.served() {
            let Some(request) = self.cx.yard.request(key).filter(|_| !self.is_full()) else { continue };
            self.one(key, &Demand::of(request, self.spec));
        }
        while !self.is_full() {
            if self.seen > 0 && !self.narrow(&mut turns) {
                return;
            }
            let Some(turn) = turns.next() else { return };
            self.serve_turn(&turn, &mut turns);
        }
    }

    fn serve_turn(&mut self, turn: &Turn, turns: &mut Turns<'a>) {
        let found = self.cx.yard.requests.get_key_value(&turn.head.1).map(|(key, _)| key);
        let served = self.class.waiting.served().contains(&turn.head);
        let Some(key) = found.filter(|_| !served) else {
            turns.done(turn, 0, true);
            return;
        };
        match self.one(key, &turn.lane.demand) {
            Others::MayHave => turns.done(turn, self.granted, true),
            Others::HaveNothing => turns.done(turn, self.granted, false),
            Others::OverQuota => turns.close(&turn.lane.share),
        }
    }

    /// Returns the position of a new request among the new ones: by its priority, then by the use of its share.
    pub(super) fn newcomer(&self, key: &'a RequestKey) -> (Reverse<i32>, u64, &'a RequestKey) {
        let (yard, sharing) = (&self.cx.policy.sharing, self.spec.sharing.as_ref());
        let priority = self.cx.yard.request(key).and_then(|request| request.intent.priority.as_deref());
        let value = yard.priority(priority, &key.repository).unwrap_or(0);
        let share = sharing.map(|sharing| sharing.share(&key.repository, &yard.teams)).unwrap_or_default();
        (Reverse(value), self.class.shares.used_for_weight(&share), key)
    }

    /// Excludes requests that none of the remaining machines can serve; returns whether any are left.
    fn narrow(&mut self, turns: &mut Turns<'a>) -> bool {
        match self.servable() {
            Servable::Nothing => return false,
            Servable::Domains(domains) => turns.only(domains),
            Servable::All => {}
        }
        true
    }

    /// Counts the machines that a request got, or that are launched for it.
    pub(super) fn take(&mut self, request: &Request, machines: u32) {
        self.granted += machines;
        if let Some(sharing) = &self.spec.sharing {
            self.taken.entry(share_of(sharing, request)).or_default().machines += machines;
        }
    }

    fn taken_by(&self, share: &ShareName) -> Taken {
        self.taken.get(share).copied().unwrap_or_default()
    }

    /// Returns whether a request wants more than its share may have now, and then adds the reason to the plan. Smaller
    /// requests of its share may use the remaining quota until this request is overdue; from then on that quota is
    /// reserved for it.
    pub(super) fn is_over_quota(&mut self, key: &RequestKey, request: &Request) -> Option<Others> {
        let share = share_of(self.spec.sharing.as_ref()?, request);
        let Some(over) = self.over_quota(request) else {
            let closed = self.taken_by(&share).closed;
            let why = "older requests of its share come first to what its quota leaves";
            return closed.then(|| {
                self.plan.wait(key, WaitReason::Quota, why);
                Others::OverQuota
            });
        };
        self.plan.wait(key, WaitReason::Quota, over.why);
        // The machines that free the quota may be of another class.
        self.plan.wake_at(self.cx.now.mono + super::LOOK_AGAIN);
        let taken = self.taken.entry(share).or_default();
        taken.too_large += 1;
        let small = over.left > 0 && taken.too_large < TOO_LARGE && overdue_at(request) > self.cx.now.wall;
        taken.closed |= !small;
        Some(if small { Others::MayHave } else { Others::OverQuota })
    }

    fn over_quota(&self, request: &Request) -> Option<Over> {
        let sharing = self.spec.sharing.as_ref()?;
        let name = share_of(sharing, request);
        let (own, wants) = (request.status.instances.len() as u32, target(request));
        let taken = self.taken_by(&name).machines;
        let held = self.class.shares.share(&name).map_or(0, |share| share.held);
        let others = held.saturating_sub(own).saturating_add(taken);
        let class = &self.spec.resource_class;
        let over = |others: u32, most: Option<u32>, of: &str| {
            let most = most.filter(|most| others.saturating_add(wants) > *most)?;
            let why = format!(
                "share {name} has {others} of at most {most} machines {of}, and it wants {wants}: it gets them when others of its share give theirs back"
            );
            Some(Over { why, left: most.saturating_sub(others) })
        };
        let of_class = || over(others, sharing.quota(&name).max_machines, &format!("in class {class}"));
        let of_yard = || {
            let most = self.cx.policy.sharing.quota(&name).max_machines?;
            let all = self.cx.yard.classes().filter_map(|(_, class)| class.shares.share(&name));
            let all = all.fold(0_u32, |sum, share| sum.saturating_add(share.held));
            over(all.saturating_sub(own).saturating_add(taken), Some(most), "in the yard")
        };
        let reserved = || {
            let kept = u64::from(self.spec.max) * u64::from(sharing.reserve.min(100)) / 100;
            let open = u64::from(self.spec.max) - kept;
            let lent = self
                .taken
                .values()
                .fold(self.class.shares.held(), |sum, taken| sum.saturating_add(taken.machines));
            let lent = u64::from(lent.saturating_sub(own));
            let left = u32::try_from(open.saturating_sub(lent)).unwrap_or(u32::MAX);
            (kept > 0 && others > 0 && left < wants).then(|| {
                let why = format!("the last {kept} machines of class {class} are kept for shares that have none (sharing.reserve)");
                Over { why, left }
            })
        };
        of_class().or_else(of_yard).or_else(reserved)
    }

    /// Returns whether another request of a share may wait. Requests that are being accepted count too, but a new
    /// request is refused only when written requests reach the limit.
    pub(super) fn may_wait(&mut self, key: &RequestKey, request: &'a Request) -> bool {
        let Some(sharing) = &self.spec.sharing else { return true };
        let name: ShareName = sharing.share(&request.id.repository, &self.cx.policy.sharing.teams).into();
        let coming = self.taken_by(&name).accepted;
        let here = self.class.shares.share(&name).map_or(0, |share| share.waiting);
        let all = || {
            let all = self.cx.yard.classes().filter_map(|(_, class)| class.shares.share(&name));
            all.fold(0_u32, |sum, share| sum.saturating_add(share.waiting))
        };
        let of_class = sharing.quota(&name).max_waiting.map(|most| (here, most));
        let of_yard = self.cx.policy.sharing.quota(&name).max_waiting.map(|most| (all(), most));
        let bounds = of_class.into_iter().chain(of_yard);
        let Some((waiting, most)) =
            bounds.into_iter().find(|(waiting, most)| waiting.saturating_add(coming) >= *most)
        else {
            self.taken.entry(name).or_default().accepted += 1;
            return true;
        };
        let refusal = (waiting >= most).then(|| request::waits_over_quota(self.cx, request, &name, most));
        self.refuse(key, refusal, "other requests of its share are being accepted");
        false
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod yardlet;
