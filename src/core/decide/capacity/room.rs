//! Makes room in a class that is at its `max`: ends an idle machine that no waiting request can use, so that another
//! one can be launched for a request that waits.

use std::collections::{BTreeMap, BTreeSet, btree_set};

use jiff::Timestamp;

use crate::model::{AheadPlace, Instance, InstanceArn, PoolSpec, Quota, ShareBy, Sharing, matches};

use crate::decide::context::Context;
use crate::decide::plan::reason::{are, machines};
use crate::yard::{Class, Free, MachineGroup, visited};

/// Most machines that end in one pass; the rest follows in later passes.
const ENDED_AT_ONCE: usize = 64;

/// Lists the pooled machines of a class that no waiting request of it can use, by their groups.
fn unused<'a>(class: &'a Class, spec: &'a PoolSpec) -> impl Iterator<Item = (&'a MachineGroup, &'a Free)> {
    let unusable = move |(group, _): &(&MachineGroup, &Free)| {
        visited();
        !class.waiting.can_use(spec, group)
    };
    class.free.iter().filter(unusable)
}

/// Describes the requests for which a class keeps idle machines that none of its waiting requests can use; none where
/// it keeps no such machines.
pub(in crate::decide) fn kept_for(class: &Class, spec: &PoolSpec) -> Option<String> {
    let mut domains: BTreeSet<String> = BTreeSet::new();
    for (group, _) in unused(class, spec) {
        domains.insert(match group.trust_domain.as_str() {
            "" => "requests of other types or another usage class".to_owned(),
            domain => PoolSpec::domain_in_words(domain),
        });
    }
    let more = domains.len().saturating_sub(2);
    let named: Vec<String> = domains.into_iter().take(2).collect();
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{others}", named.join(" and ")))
}

/// A position in the order of expiry: a machine and the index of its group.
type Place<'a> = (&'a (Timestamp, InstanceArn), usize);

/// The idle machines that may end to make room, the first to expire first.
pub(super) struct Room<'a> {
    cx: &'a Context<'a>,
    /// For each group its trust domain and the machines that are not visited yet.
    groups: Vec<(&'a str, btree_set::Iter<'a, (Timestamp, InstanceArn)>)>,
    /// The next machine of each group.
    heads: BTreeSet<Place<'a>>,
    /// How many machines of each trust domain may end.
    left: BTreeMap<&'a str, usize>,
    /// The machines that end.
    ends: Vec<&'a InstanceArn>,
    /// How many of these machines there are, and for which requests they are kept, in words.
    kept: Option<(u32, String)>,
}

impl<'a> Room<'a> {
    /// Collects the candidates of a class, without ending any.
    pub(super) fn of(cx: &'a Context<'a>, class: &'a Class, spec: &'a PoolSpec) -> Self {
        let (mut groups, mut heads) = (Vec::new(), BTreeSet::new());
        let (mut left, mut idle) = (BTreeMap::<&str, usize>::new(), 0);
        for (group, free) in unused(class, spec) {
            let mut rest = free.iter();
            heads.extend(rest.next().map(|place| (place, groups.len())));
            groups.push((group.trust_domain.as_str(), rest));
            *left.entry(&group.trust_domain).or_default() += free.len();
            idle += free.len();
        }
        if let Some(sharing) = class.shares.sharing() {
            for (domain, left) in &mut left {
                *left = left.saturating_sub(guaranteed(cx, class, sharing, domain) as usize);
            }
        }
        let kept = kept_for(class, spec).map(|whom| (u32::try_from(idle).unwrap_or(u32::MAX), whom));
        Self { cx, groups, heads, left, ends: Vec::new(), kept }
    }

    /// Returns whether another machine may end.
    pub(super) fn is_left(&mut self) -> bool {
        let next = self.next();
        self.heads.extend(next);
        next.is_some() && self.ends.len() < ENDED_AT_ONCE
    }

    /// Returns the next machine that may end.
    fn next(&mut self) -> Option<Place<'a>> {
        while let Some(place) = self.heads.pop_first() {
            let (domain, _) = &self.groups[place.1];
            if self.left.get(domain).is_some_and(|left| *left > 0) {
                return Some(place);
            }
        }
        None
    }

    /// Selects up to `lack` machines that end; returns how many. A machine whose record is being written counts as
    /// well: it is about to end, or its state is known better in a moment.
    pub(super) fn make(&mut self, lack: u32) -> u32 {
        let mut made = 0;
        while made < lack && self.ends.len() < ENDED_AT_ONCE {
            let Some((place, at)) = self.next() else { break };
            visited();
            let (domain, rest) = &mut self.groups[at];
            self.heads.extend(rest.next().map(|place| (place, at)));
            if let Some(left) = self.left.get_mut(domain) {
                *left -= 1;
            }
            made += 1;
            if !self.cx.yard.is_busy(Instance::key_of(&place.1)) {
                self.ends.push(&place.1);
            }
        }
        made
    }

    /// Describes for which requests the class keeps its idle machines, and how many of them end for a request; empty
    /// where it keeps none.
    pub(super) fn told(&self, made: u32) -> String {
        let Some((idle, whom)) = &self.kept else { return String::new() };
        let ends = match made {
            0 => String::new(),
            1 => ", one ends for it now".to_owned(),
            more => format!(", {more} end for it now"),
        };
        format!("; {} {} kept for {whom}{ends}", machines(*idle).replacen(' ', " idle ", 1), are(*idle))
    }

    /// Returns the machines that end.
    pub(super) fn ends(self) -> Vec<&'a InstanceArn> {
        self.ends
    }
}

/// Counts the idle machines of a trust domain that are guaranteed to its shares in addition to the machines that they
/// hold.
fn guaranteed(cx: &Context<'_>, class: &Class, sharing: &Sharing, domain: &str) -> u32 {
    let lacks = |share: &str, quota: &Quota| {
        let held = class.shares.share(share).map_or(0, |share| share.held);
        quota.guaranteed.unwrap_or(0).saturating_sub(held)
    };
    let one = |share: &str| lacks(share, &sharing.quota(share));
    let (owner, repository) = match AheadPlace::of(domain) {
        Some(AheadPlace::Repository(name)) => {
            (name.split_once('/').map(|(owner, _)| owner.to_owned()), Some(name))
        }
        Some(AheadPlace::Owner(owner)) => (Some(owner), None),
        None => (None, None),
    };
    match (sharing.by, owner, repository) {
        (ShareBy::Owner, Some(owner), _) => one(&owner),
        (ShareBy::Repository, _, Some(name)) => one(&name),
        (ShareBy::Team, _, Some(name)) => match name.parse() {
            Ok(repository) => one(&sharing.share(&repository, &cx.policy.sharing.teams)),
            Err(_) => 0,
        },
        // Several shares may use its machines: sums up each share that a quota names and that may belong to the owner.
        (by, owner, _) => {
            let of_owner = |glob: &str| match (by, &owner, glob.split_once('/')) {
                (ShareBy::Repository, Some(owner), Some((of, _))) => matches(&of.to_ascii_lowercase(), owner),
                (ShareBy::Repository | ShareBy::Owner | ShareBy::Team, _, _) => true,
            };
            let quotas = sharing.quotas.iter().filter(|(glob, _)| of_owner(glob));
            quotas.fold(0, |sum: u32, (glob, quota)| {
                sum.saturating_add(lacks(&glob.to_ascii_lowercase(), quota))
            })
        }
    }
}

#[cfg(test)]
mod tests;
