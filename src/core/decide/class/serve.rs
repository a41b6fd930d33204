//! Runs one pass over the waiting requests of a class, the oldest first, or by share (`shared`). Its work does not grow
//! with the number of requests: it skips the rest of a demand as soon as one of its requests can get nothing, and it
//! limits the number of writes so that the table has capacity for other classes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{
    ClassName, InstanceArn, Pool, PoolSpec, Reason, Record, Repository, Request, RequestKey, Slot,
};

use super::claims::{CLAIM_LIMIT, claim};
use super::rebalance::rebalance_partial;
use crate::decide::capacity::{self, Launches};
use crate::decide::context::Context;
use crate::decide::instance::end;
use crate::decide::matching::{Matcher, Share};
use crate::decide::packages::Packages;
use crate::decide::request::{self, accept};
use crate::decide::{Note, Plan, Planned, WaitReason};
use crate::yard::{Class, Demand, ShareName, lacking};

/// Most requests of a class that are written at the same time: at 10 to 25 ms per write that is a thousand or more per
/// second, and where the table takes them one by one, another class's write waits for at most this many.
const WRITTEN_AT_ONCE: usize = 32;
/// Most requests that a pass skips because they are about to leave the queue by their own decision, or are not accepted
/// yet.
const STEPPED_OVER: usize = 256;
/// Most messages that are received at once (SQS).
const MESSAGES: u32 = 10;
/// How long the hints from a queue are used.
const HINTS_LAST: Duration = Duration::from_secs(2);

/// Serves waiting requests in their order, then launches the machines that are missing. Returns whether it served them:
/// where they can have pooled machines, it receives as many messages from the queue first.
pub(super) fn serve(
    cx: &Context<'_>,
    name: &ClassName,
    class: &Class,
    spec: &PoolSpec,
    plan: &mut Plan,
) -> bool {
    let waiting = &class.waiting;
    let mut pass = Pass {
        cx,
        class,
        spec,
        closed: closed(cx, class, spec),
        matcher: Matcher::new(cx, class, spec),
        launches: Launches::of(cx, name, class, spec),
        plan,
        claimed: 0,
        written: BTreeSet::new(),
        in_hand: 0,
        stepped_over: 0,
        seen: 0,
        accepting: BTreeMap::new(),
        oldest: None,
        taken: BTreeMap::new(),
        behind: Vec::new(),
        granted: 0,
        packages: class.pool.as_ref().map(|pool| Packages::of(cx, pool)).unwrap_or_default(),
    };
    match &spec.sharing {
        None => pass.by_age(),
        Some(_) => pass.by_share(),
    }
    pass.new_ones(waiting.new_ones());
    pass.those_behind();
    let Pass { mut launches, claimed, written, seen, oldest, .. } = pass;
    if claimed > 0 && asks_queue(cx, name, class) {
        // The pass is repeated with the hints.
        *plan = Plan::default();
        plan.actions.push(Planned::receive(name.clone(), claimed.min(MESSAGES)));
        plan.wake_at(cx.now.mono + Duration::from_secs(1));
        return false;
    }
    let made = make_room(cx, spec, launches.ends(), plan);
    if let Some((oldest, lack)) = oldest.filter(|(_, lack)| *lack > made) {
        rebalance_partial(cx, class, spec, (oldest, lack - made), &written, plan);
    }
    launches.plan(plan);
    let behind = waiting.all().len().saturating_sub(seen);
    if behind > 0 {
        let message = format!("{behind} younger requests wait behind those");
        plan.wait(Pool::key_of(name), WaitReason::Behind, message);
    }
    true
}

/// Ends idle machines that no waiting request can use, so that others can be launched; returns how many. A machine that
/// a request claims in this pass is kept.
fn make_room(cx: &Context<'_>, spec: &PoolSpec, ends: Vec<&InstanceArn>, plan: &mut Plan) -> u32 {
    let mut made = 0;
    for tracked in ends.into_iter().filter_map(|arn| cx.yard.instance(arn)) {
        if plan.actions.iter().all(|action| !action.holds(tracked.instance.key())) {
            let message =
                format!("its class is at its max of {}, and requests wait that cannot use it", spec.max);
            plan.actions
                .append(&mut end(cx, tracked, Reason::Surplus, Note::normal("Surplus", message)).actions);
            made += 1;
        }
    }
    made
}

/// Returns the reason why no machine of the class is lent now, if there is one. A standby has not queried GitHub for
/// support dates, so it uses the condition that the leader stored.
fn closed(cx: &Context<'_>, class: &Class, spec: &PoolSpec) -> Option<(WaitReason, String)> {
    if spec.paused {
        return Some((WaitReason::Paused, "its class is paused".to_owned()));
    }
    let told = || {
        let conditions = &class.pool.as_ref().filter(|_| cx.role.lease.is_none())?.status.conditions;
        let held_back = conditions.iter().find(|one| one.status && one.reason == capacity::DEPRECATED)?;
        Some(held_back.message.clone())
    };
    let why = capacity::unsupported(cx, spec).or_else(told)?;
    Some((WaitReason::Runner, why))
}

/// Returns whether to receive from the queue before machines are claimed: at most once per [`HINTS_LAST`].
fn asks_queue(cx: &Context<'_>, name: &ClassName, class: &Class) -> bool {
    let busy = cx.yard.is_busy(Slot::Queue(name.clone()));
    !busy && class.received.is_none_or(|at| cx.now.mono >= at + HINTS_LAST)
}

/// Whether later requests of the same demand may get machines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    MayHave,
    HaveNothing,
    /// Other requests of its share may get none either.
    OverQuota,
}

/// The machines and requests of a share in one pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// Machines that it got.
    pub(super) machines: u32,
    /// New requests that were accepted.
    pub(super) accepted: u32,
    /// Requests that want more machines than the share may have now.
    pub(super) too_large: u32,
    /// Whether no other request of the share is served in this pass.
    pub(super) closed: bool,
}

/// The state of one pass.
pub(super) struct Pass<'a, 'p> {
    pub(super) cx: &'a Context<'a>,
    pub(super) class: &'a Class,
    pub(super) spec: &'a PoolSpec,
    /// The reason why no machine is lent, if there is one.
    pub(super) closed: Option<(WaitReason, String)>,
    pub(super) matcher: Matcher<'a>,
    pub(super) launches: Launches<'a>,
    pub(super) plan: &'p mut Plan,
    /// How many pooled machines are claimed in this pass.
    claimed: u32,
    /// Requests that this plan writes, each at most once.
    written: BTreeSet<RequestKey>,
    /// How many requests are being written, or will be by this plan.
    pub(super) in_hand: usize,
    stepped_over: usize,
    /// Requests visited.
    pub(super) seen: usize,
    /// How many requests of each repository are being accepted, or will be by this plan.
    accepting: BTreeMap<&'a Repository, u32>,
    /// The oldest request that lacks machines after this pass, and how many it lacks.
    oldest: Option<(&'a RequestKey, u32)>,
    /// The machines that are claimed or launched for each share in this pass.
    pub(super) taken: BTreeMap<ShareName, Taken>,
    /// Requests that are served after all others.
    behind: Vec<(&'a RequestKey, Demand)>,
    /// The machines that the last served request got.
    pub(super) granted: u32,
    /// The runner packages of the claims; one claim of a pass tries a new package.
    packages: Packages<'a>,
}

impl<'a> Pass<'a, '_> {
    /// Accepts new requests while their repositories may have more.
    fn new_ones(&mut self, new: &'a BTreeSet<RequestKey>) {
        // In a class with `sharing`, the first requests are ordered by priority and use.
        let mut first: Vec<&'a RequestKey> = Vec::new();
        if self.spec.sharing.is_some() {
            first.extend(new.iter().take(STEPPED_OVER));
            first.sort_by_cached_key(|key| self.newcomer(key));
        }
        let rest = new.iter().skip(first.len());
        for key in first.into_iter().chain(rest) {
            if self.is_full() {
                return;
            }
            let Some(request) = self.cx.yard.request(key) else { continue };
            if !self.cx.yard.is_busy(key)
                && (!self.may_be_accepted(key, request) || !self.may_wait(key, request))
            {
                continue;
            }
            *self.accepting.entry(&request.id.repository).or_default() += 1;
            self.one(key, &Demand::of(request, self.spec));
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.in_hand >= WRITTEN_AT_ONCE || self.stepped_over >= STEPPED_OVER
    }

    /// Returns whether a repository may have another open request. Requests that are being accepted count too, but a
    /// new request is refused only when written requests reach the limit.
    fn may_be_accepted(&mut self, key: &RequestKey, request: &'a Request) -> bool {
        let most = self.cx.policy.requests_per_repository;
        let open = self.cx.yard.open_requests(&request.id.repository);
        let coming = self.accepting.get(&request.id.repository).copied().unwrap_or(0);
        if open.saturating_add(coming) < most {
            return true;
        }
        let refusal = (open >= most).then(|| request::too_many(self.cx, request, most));
        self.refuse(key, refusal, "other requests of its repository are being taken on");
        false
    }

    /// Refuses a new request, or leaves it to a later pass if the refusal is not certain yet.
    pub(super) fn refuse(&mut self, key: &RequestKey, refusal: Option<Plan>, later: &str) {
        self.seen += 1;
        match refusal.filter(|_| self.cx.yard.backoff_until(key, self.cx.now.mono).is_none()) {
            Some(refusal) => {
                self.plan.actions.extend(refusal.actions);
                self.in_hand += 1;
            }
            None => {
                self.plan.wait(key, WaitReason::Busy, later);
                self.stepped_over += 1;
            }
        }
    }

    /// Serves one request in its turn, unless it waits behind others.
    pub(super) fn one(&mut self, key: &'a RequestKey, demand: &Demand) -> Others {
        self.granted = 0;
        if self.cx.yard.brake(&key.repository, self.cx.now.wall).is_none() {
            return self.serve_one(key, demand);
        }
        self.behind.push((key, demand.clone()));
        Others::MayHave
    }

    /// Serves the requests of repositories that cost the yard one machine after another.
    fn those_behind(&mut self) {
        for (key, demand) in std::mem::take(&mut self.behind) {
            if self.is_full() {
                return;
            }
            self.serve_one(key, &demand);
            if let Some(brake) = self.cx.yard.brake(&key.repository, self.cx.now.wall) {
                self.plan.wait(key, WaitReason::Behind, brake.told(key.repository.as_str()));
                self.plan.wake_at(self.cx.now.when(brake.until));
            }
        }
    }

    /// Claims the machines that fit a request and plans launches for those that it still lacks.
    fn serve_one(&mut self, key: &'a RequestKey, demand: &Demand) -> Others {
        let (cx, spec) = (self.cx, self.spec);
        self.granted = 0;
        let Some(request) = cx.yard.request(key) else { return Others::MayHave };
        self.seen += 1;
        if let Some(until) = cx.yard.backoff_until(key, cx.now.mono) {
            self.plan.wake_at(until);
            self.plan.wait(key, WaitReason::BackOff, "its last write failed, it is tried again in a moment");
            return Others::MayHave;
        }
        if request::leaves_queue(cx, request) {
            self.stepped_over += 1;
            return Others::MayHave;
        }
        let lack = lacking(cx.yard, key, request);
        if lack > 0
            && let Some(others) = self.is_over_quota(key, request)
        {
            if request.status.phase.is_none() && !cx.yard.is_busy(key) {
                self.write(key, accept(cx, request, spec));
            }
            return others;
        }
        let share = self.share(key, demand, lack);
        let got = share.machines.len() as u32;
        if cx.yard.is_busy(key) || self.written.contains(key) {
            // The number that it lacks is known again once that write is done.
            self.plan.wait(key, WaitReason::Busy, "its record is being written");
            self.in_hand += 1;
            self.matcher.keep(share);
            self.take(request, got.max(1).min(lack));
            return Others::MayHave;
        }
        let reserved = self.matcher.reserve_for_busy(demand, lack - got);
        if got == 0 && reserved > 0 {
            self.plan.wait(key, WaitReason::Busy, "an older request is being served");
            return Others::MayHave;
        }
        if got > 0 {
            self.claimed += got;
            let packages = self.packages.next();
            self.write(key, claim(cx, key, request, spec, &share.machines, packages));
        } else if request.status.phase.is_none() {
            self.write(key, accept(cx, request, spec));
        }
        self.explain(key, &share, lack - got);
        self.flush_returned(key);
        self.take(request, got);
        let left = lack.saturating_sub(got.min(CLAIM_LIMIT as u32) + reserved);
        if left == 0 || request.status.phase.is_none() {
            return Others::MayHave;
        }
        self.oldest.get_or_insert((key, left));
        let launched = self.launches.ask(key, request, left, self.plan);
        if launched {
            self.take(request, left.min(lack - got));
        }
        // A claim takes a limited number of machines; the next pass adds more.
        let free = lack == got + reserved;
        if launched || free { Others::MayHave } else { Others::HaveNothing }
    }

    fn share(&mut self, key: &'a RequestKey, demand: &Demand, lack: u32) -> Share {
        match self.closed {
            Some(_) => Share::default(),
            None => self.matcher.pick(key, demand, lack),
        }
    }

    fn write(&mut self, key: &RequestKey, action: Planned) {
        self.plan.actions.push(action);
        self.written.insert(key.clone());
        self.in_hand += 1;
    }

    fn explain(&mut self, key: &RequestKey, share: &Share, lack: u32) {
        if lack == 0 {
            return;
        }
        if let Some((reason, why)) = &self.closed {
            self.plan.wait(key, *reason, why.as_str());
        }
        if !share.refusals.is_empty() {
            let why: Vec<_> = share.refusals.iter().map(|refusal| refusal.as_str()).collect();
            let message = format!("free machines are not for it: {}", why.join("; "));
            self.plan.wait(key, WaitReason::Mismatch, message);
            // Fresh heartbeats and near deadlines change with time alone.
            self.plan.wake_at(self.cx.now.mono + Duration::from_secs(1));
        }
    }

    /// Removes machines that this request could use from the lists of their former requests.
    fn flush_returned(&mut self, key: &RequestKey) {
        for former in self.matcher.met() {
            let message = "a free machine is taken off the list of who had it before";
            self.plan.wait(key, WaitReason::Busy, message);
            if !self.cx.yard.is_busy(&former)
                && !self.written.contains(&former)
                && let Some(action) = request::flush_returned(self.cx, &former)
            {
                self.plan.actions.push(action);
                self.written.insert(former);
            }
        }
    }
}
