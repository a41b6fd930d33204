//! Matches pooled machines to requests: the oldest request first; a younger one gets only machines that no older one
//! can use.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::iter::Rev;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Instance, InstanceArn, PoolSpec, QUICK_WHILE_FREE, Record, Request, RequestKey};

use crate::decide::capacity;
use crate::decide::context::Context;
use crate::decide::instance::{fresh, late, lendable, listed_by_former};
use crate::yard::{Class, Demand, Free, MachineGroup, Refusal, Tracked, agent_is_known, visited};

/// A machine whose deadline is closer than this is not claimed.
const LEAST_LEFT: Duration = Duration::from_secs(30);

/// The machines that a request gets, and why it cannot have others.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    /// The machines it gets.
    pub(super) machines: Vec<InstanceArn>,
    /// Why others are refused, one reason each.
    pub(super) refusals: BTreeSet<Refusal>,
    /// The groups of these machines.
    groups: Vec<usize>,
}

/// The free machines of one group that are not given to a request yet.
struct Cursor<'a> {
    group: &'a MachineGroup,
    rest: Rev<btree_set::Iter<'a, (Timestamp, InstanceArn)>>,
    /// The next machine that may be claimed.
    head: Option<&'a (Timestamp, InstanceArn)>,
    /// Why skipped machines are not free for any request.
    refusals: BTreeSet<Refusal>,
    /// How many were given to requests whose records are being written, which may not need them.
    kept: u32,
}

impl<'a> Cursor<'a> {
    /// Returns the position of its next machine in the order of claims, the greatest first.
    fn order(&self) -> (bool, Option<&'a (Timestamp, InstanceArn)>) {
        (self.head.is_some() && !self.group.trust_domain.is_empty(), self.head)
    }
}

/// The groups that a demand accepts, and why it refuses the others.
#[derive(Default)]
struct Fit {
    groups: Vec<usize>,
    refusals: BTreeSet<Refusal>,
}

/// One pass over the free machines of a class, which visits each machine once for any number of requests.
pub(super) struct Matcher<'a> {
    cx: &'a Context<'a>,
    spec: &'a PoolSpec,
    cursors: Vec<Cursor<'a>>,
    fits: BTreeMap<Demand, Fit>,
    /// Machines that the queue announced and that became free lately, with their groups: they are used first.
    named: Vec<(usize, &'a InstanceArn)>,
    /// All of these, also those that were given: cursors skip them.
    passed: BTreeSet<&'a InstanceArn>,
    /// Machines that their former requests still list, by former request.
    listed: BTreeMap<RequestKey, Vec<(usize, &'a InstanceArn)>>,
    /// Machines that keep something of a repository, by repository; none where the class keeps nothing.
    warm: BTreeMap<&'a str, Vec<(usize, &'a InstanceArn)>>,
    /// Machines that are used last, with their groups: those that EC2 expects to take back, then those whose agents
    /// have not sent a heartbeat for a while, by the time of their last heartbeat.
    last: BTreeSet<(Duration, usize, &'a InstanceArn)>,
    /// Machines that were given to a request.
    given: BTreeSet<InstanceArn>,
    /// Former requests that [`Matcher::met`] has not returned yet.
    met: Vec<RequestKey>,
}

impl<'a> Matcher<'a> {
    /// Prepares a pass, before the first request is served.
    pub(super) fn new(cx: &'a Context<'a>, class: &'a Class, spec: &'a PoolSpec) -> Self {
        let cursor = |(group, free): (&'a MachineGroup, &'a Free)| Cursor {
            group,
            rest: free.iter().rev(),
            head: None,
            refusals: BTreeSet::new(),
            kept: 0,
        };
        let cursors: Vec<Cursor<'_>> = class.free.iter().map(cursor).collect();
        let (fits, listed, warm) = (BTreeMap::new(), BTreeMap::new(), warm(cx, class, spec));
        let (named, passed, given, met) = (Vec::new(), BTreeSet::new(), BTreeSet::new(), Vec::new());
        let last = BTreeSet::new();
        let mut matcher = Self { cx, spec, cursors, fits, named, passed, listed, warm, last, given, met };
        // Hints for instances that are no longer pooled, or are of another class, are ignored; and those for machines
        // that have been free for long, because their agents see a claim later than others.
        let lately = cx.now.wall.saturating_sub(QUICK_WHILE_FREE).unwrap_or(Timestamp::MIN);
        for tracked in class.hints.iter().filter_map(|id| cx.yard.by_id(id)) {
            let instance = &tracked.instance;
            let here = instance.pooled_at().is_some_and(|at| at > lately)
                && instance.facts.resource_class == spec.resource_class;
            let arn = &instance.facts.instance_arn;
            if here && matcher.passed.insert(arn) {
                let group = MachineGroup::of(instance);
                let at = matcher.cursors.iter().position(|cursor| *cursor.group == group);
                if let Some(at) = at.filter(|at| matcher.free(*at, arn, tracked)) {
                    matcher.named.push((at, arn));
                }
            }
        }
        matcher
    }

    /// Returns whether a machine may be claimed at once; if not, notes the reason, or that the machine is used last.
    fn free(&mut self, at: usize, arn: &'a InstanceArn, tracked: &Tracked) -> bool {
        if let Some(refusal) = unfit(self.cx, self.spec, tracked) {
            self.cursors[at].refusals.insert(refusal);
            return false;
        }
        let Some(former) = former_that_lists(self.cx, &tracked.instance) else {
            let last = comes_last(self.cx, tracked);
            self.last.extend(last.map(|order| (order, at, arn)));
            return last.is_none();
        };
        self.met.push(former.clone());
        self.listed.entry(former.clone()).or_default().push((at, arn));
        false
    }

    /// Advances the cursor of a group to its next machine that may be claimed.
    fn advance(&mut self, at: usize) {
        while self.cursors[at].head.is_none() {
            let Some(place) = self.cursors[at].rest.next() else { return };
            visited();
            let Some(tracked) = self.cx.yard.instance(&place.1) else { continue };
            if !self.passed.contains(&place.1) && self.free(at, &place.1, tracked) {
                self.cursors[at].head = Some(place);
            }
        }
    }

    /// Returns the groups that a demand accepts, computed once.
    fn fit(&mut self, demand: &Demand) -> Vec<usize> {
        if let Some(fit) = self.fits.get(demand) {
            return fit.groups.clone();
        }
        let mut fit = Fit::default();
        for (at, cursor) in self.cursors.iter().enumerate() {
            visited();
            match demand.refuses(self.spec, cursor.group) {
                None => fit.groups.push(at),
                Some(refusal) => drop(fit.refusals.insert(refusal)),
            }
        }
        let groups = fit.groups.clone();
        self.fits.insert(demand.clone(), fit);
        groups
    }

    /// Picks at most `lack` machines for a request among those that no request was given: first those that the queue
    /// named and that became free lately, then those that the request itself still lists, then those that served its
    /// trust domain, then those that expire last, and at the end those that are used last.
    pub(super) fn pick(&mut self, key: &RequestKey, demand: &Demand, lack: u32) -> Share {
        let mut share = Share::default();
        let groups = self.fit(demand);
        while (share.machines.len() as u32) < lack {
            let Some((at, arn)) = self.next(key, &groups) else { break };
            self.given.insert(arn.clone());
            share.machines.push(arn.clone());
            share.groups.push(at);
        }
        if (share.machines.len() as u32) < lack {
            share.refusals.extend(self.fits.get(demand).iter().flat_map(|fit| &fit.refusals));
            share.refusals.extend(groups.iter().flat_map(|at| &self.cursors[*at].refusals));
        }
        share
    }

    /// Counts the machines that were given to requests.
    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    fn next(&mut self, key: &RequestKey, groups: &[usize]) -> Option<(usize, &'a InstanceArn)> {
        if let Some(first) = self.next_warm(key, groups).or_else(|| self.next_ahead(key, groups)) {
            return Some(first);
        }
        if let Some(at) = self.named.iter().position(|(at, _)| groups.contains(at)) {
            return Some(self.named.remove(at));
        }
        groups.iter().for_each(|at| self.advance(*at));
        if let Some(listed) = self.listed.get_mut(key)
            && let Some(at) = listed.iter().position(|(at, _)| groups.contains(at))
        {
            self.met.retain(|former| former != key);
            return Some(listed.remove(at));
        }
        // Machines of its own trust domain first: no other request can use them.
        let last = groups.iter().copied().max_by_key(|at| self.cursors[*at].order());
        let last = last.and_then(|at| self.cursors[at].head.take().map(|(_, arn)| (at, arn)));
        last.or_else(|| self.next_last(groups))
    }

    /// Returns the next of the machines that are used last.
    fn next_last(&mut self, groups: &[usize]) -> Option<(usize, &'a InstanceArn)> {
        let last = *self.last.iter().rev().find(|(_, at, _)| groups.contains(at))?;
        self.last.remove(&last);
        Some((last.1, last.2))
    }

    /// Returns a free machine that keeps something of the request's repository.
    fn next_warm(&mut self, key: &RequestKey, groups: &[usize]) -> Option<(usize, &'a InstanceArn)> {
        let repository = key.repository.folded();
        let known = self.warm.get(repository.as_str())?;
        let first = *known.iter().find(|(at, arn)| groups.contains(at) && self.is_free(arn).is_some())?;
        Some(self.take(first))
    }

    /// Returns a free machine whose runner already listens and can serve the request's repository. Looks only at the
    /// next machine of each group: if its agent lost its runner, the machines behind it lose their turn, and no walk is
    /// needed.
    fn next_ahead(&mut self, key: &RequestKey, groups: &[usize]) -> Option<(usize, &'a InstanceArn)> {
        let (cx, spec) = (self.cx, self.spec);
        let ready = |arn: &InstanceArn| {
            let tracked = cx.yard.instance(arn);
            tracked.is_some_and(|tracked| lendable(cx, tracked, spec, &key.repository).is_some())
        };
        let rests = |at: &usize| groups.contains(at) && self.cursors[*at].group.rests;
        if let Some(at) = self.named.iter().position(|(at, arn)| rests(at) && ready(arn)) {
            return Some(self.named.remove(at));
        }
        for at in groups.iter().copied() {
            if !self.cursors[at].group.rests {
                continue;
            }
            self.advance(at);
            if let Some((_, arn)) = self.cursors[at].head.filter(|(_, arn)| ready(arn)) {
                self.cursors[at].head = None;
                return Some((at, arn));
            }
        }
        None
    }

    /// Returns the machine if no request was given it, a request can claim it now, and it is not one of those that are
    /// used last.
    fn is_free(&self, arn: &InstanceArn) -> Option<&'a Tracked> {
        let tracked = self.cx.yard.instance(arn).filter(|_| !self.given.contains(arn))?;
        let free = unfit(self.cx, self.spec, tracked).is_none()
            && comes_last(self.cx, tracked).is_none()
            && former_that_lists(self.cx, &tracked.instance).is_none();
        free.then_some(tracked)
    }

    /// Removes a machine from the order in which machines are given.
    fn take(&mut self, (at, arn): (usize, &'a InstanceArn)) -> (usize, &'a InstanceArn) {
        self.named.retain(|(_, other)| *other != arn);
        self.passed.insert(arn);
        let head = &mut self.cursors[at].head;
        *head = head.filter(|(_, other)| other != arn);
        (at, arn)
    }

    /// Lists the trust domains of the machines that no request was given yet; the empty one stands for machines that
    /// served no request.
    pub(super) fn domains(&mut self) -> BTreeSet<String> {
        (0..self.cursors.len()).for_each(|at| self.advance(at));
        let heads = (0..self.cursors.len()).filter(|at| self.cursors[*at].head.is_some());
        let named = self.named.iter().chain(self.listed.values().flatten()).map(|(at, _)| *at);
        let last = self.last.iter().map(|(_, at, _)| *at);
        let stored = heads.chain(named).chain(last).map(|at| &self.cursors[at].group.trust_domain);
        stored.filter_map(|domain| self.spec.reused_as(domain)).map(Cow::into_owned).collect()
    }

    /// Records machines that were given to a request whose record is being written: it may not need them.
    pub(super) fn keep(&mut self, share: Share) {
        share.groups.into_iter().for_each(|at| self.cursors[at].kept += 1);
    }

    /// Counts the machines reserved for busy requests that this request could use. No machine is launched in their
    /// place before it is known whether those requests still need them.
    pub(super) fn reserve_for_busy(&mut self, demand: &Demand, lack: u32) -> u32 {
        if lack == 0 {
            return 0;
        }
        let mut left = lack;
        for at in self.fit(demand) {
            let reserved = self.cursors[at].kept.min(left);
            self.cursors[at].kept -= reserved;
            left -= reserved;
        }
        lack - left
    }

    /// Returns the former requests whose lists must be flushed before their machines can be claimed; each is returned
    /// once.
    pub(super) fn met(&mut self) -> Vec<RequestKey> {
        std::mem::take(&mut self.met)
    }
}

/// Maps the free machines of a class by the repositories that their agents report to keep: a hint that affects the
/// order only and refuses nothing.
fn warm<'a>(
    cx: &'a Context<'a>,
    class: &'a Class,
    spec: &PoolSpec,
) -> BTreeMap<&'a str, Vec<(usize, &'a InstanceArn)>> {
    let mut warm: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    if spec.keep.is_empty() {
        return warm;
    }
    for (at, free) in class.free.values().enumerate() {
        for (_, arn) in free.iter().rev() {
            visited();
            let agent = cx.yard.instance(arn).and_then(|tracked| tracked.agent.as_ref());
            let kept = agent.into_iter().flat_map(|agent| agent.kept.values());
            let repositories: BTreeSet<&str> = kept.map(|kept| kept.repository.as_str()).collect();
            for repository in repositories {
                warm.entry(repository).or_default().push((at, arn));
            }
        }
    }
    warm
}

/// Returns why a machine does not fit a request, whatever its state; none when it fits.
pub(super) fn mismatch(spec: &PoolSpec, request: &Request, instance: &Instance) -> Option<Refusal> {
    Demand::of(request, spec).refuses(spec, &MachineGroup::of(instance))
}

/// Returns the position of a machine among those that are used last, the greatest first; none for other machines.
fn comes_last(cx: &Context<'_>, tracked: &Tracked) -> Option<Duration> {
    let late = tracked.beat.filter(|_| late(cx, tracked)).map(|beat| beat.at);
    late.or_else(|| cx.policy.spares(tracked).then_some(Duration::MAX))
}

/// Returns why no request can claim a pooled machine now; none when one can.
fn unfit(cx: &Context<'_>, spec: &PoolSpec, tracked: &Tracked) -> Option<Refusal> {
    let instance = &tracked.instance;
    let left = instance.threshold.map(|threshold| threshold.at.duration_since(cx.now.wall));
    let least = jiff::SignedDuration::try_from(LEAST_LEFT).unwrap_or_default();
    if cx.policy.ends_free(tracked).is_some() || capacity::retiring(instance, spec, cx.now.wall) {
        return Some(Refusal::Retiring);
    }
    if left.is_none_or(|left| left < least) {
        return Some(Refusal::Threshold);
    }
    if !fresh(cx, tracked) || !agent_is_known(tracked) {
        return Some(Refusal::Heartbeat);
    }
    if cx.yard.is_busy(instance.key()) {
        return Some(Refusal::Busy);
    }
    cx.yard.backoff_until(instance.key(), cx.now.mono).map(|_| Refusal::Failed)
}

/// Returns the former request of a pooled machine, if it still lists the machine. A request that lost the machine
/// itself removes it from its list in the very write that adds it again.
fn former_that_lists<'a>(cx: &Context<'_>, instance: &'a Instance) -> Option<&'a RequestKey> {
    let former = instance.claim.as_ref().and_then(|claim| claim.request.request())?;
    listed_by_former(cx.yard, instance).then_some(former)
}

#[cfg(test)]
mod tests;
