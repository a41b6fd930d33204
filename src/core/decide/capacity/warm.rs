//! Computes how many idle machines a class lacks so that its next requests find one. A machine that served a trust
//! domain is of use to that domain alone, so it counts by the chance that the next requests come from there; a machine
//! that served no request counts fully.

use std::collections::BTreeSet;

use crate::model::{InstanceArn, Pool, PoolSpec};

use crate::decide::context::Context;
use crate::decide::schedule::effective_in;
use crate::yard::{Class, Stock};

/// Up to this number of requests the probabilities are computed exactly; above it, the means are close enough.
const ONE_BY_ONE: u32 = 64;
/// The probability of each number of requests, up to [`ONE_BY_ONE`].
type Chances = [f64; ONE_BY_ONE as usize + 1];
/// The share of the next requests that may find no machine, and how many requests that is.
const LATE: (f64, f64) = (0.05, 0.5);
/// The probability from which a trust domain counts as certain.
const CERTAIN: f64 = 1.0 - LATE.0;

/// Counts the machines without a trust domain that a class lacks for its next `desired` requests: those in its pool
/// and, where they count, those on their way, less those that leave.
pub(in crate::decide) fn short<'a>(
    cx: &Context<'_>,
    class: &Class,
    desired: u32,
    coming: Option<u32>,
    leaving: impl Iterator<Item = &'a InstanceArn>,
) -> u32 {
    let (spec, idle) = (class.pool.as_ref().map(|pool| &pool.spec), &class.idle);
    let mut less = Stock::default();
    for tracked in
        leaving.filter(|arn| !idle.unread_agents.contains(*arn)).filter_map(|arn| cx.yard.instance(arn))
    {
        less.note(&tracked.instance, spec, true);
    }
    lack(class, desired, coming, &less)
}

/// Returns whether a class has the idle machines that it wants in its pool, not counting those that have expired or are
/// replaced.
pub(in crate::decide) fn enough(
    cx: &Context<'_>,
    class: &Class,
    pool: &Pool,
    giving_way: &BTreeSet<&InstanceArn>,
) -> bool {
    let desired = effective_in(class, pool, cx.now.wall).desired;
    short(cx, class, desired, None, leaving(cx, class, &pool.spec, giving_way)) == 0
}

/// Lists the pooled machines that have expired or are replaced, which are few.
pub(super) fn leaving<'a>(
    cx: &Context<'_>,
    class: &'a Class,
    spec: &PoolSpec,
    giving_way: &'a BTreeSet<&'a InstanceArn>,
) -> impl Iterator<Item = &'a InstanceArn> {
    let retiring = class.retiring(spec, cx.now.wall).filter(move |arn| !giving_way.contains(arn));
    retiring.chain(giving_way.iter().copied())
}

/// Counts the machines without a trust domain that a class lacks; machines on their way and in flight count, and no
/// idle machine is left out.
pub(crate) fn idle_lack(class: &Class, desired: u32) -> u32 {
    lack(class, desired, Some(0), &Stock::default())
}

/// `coming` is none where machines on their way do not count, else the number of further machines without a trust
/// domain that are on their way.
fn lack(class: &Class, desired: u32, coming: Option<u32>, less: &Stock) -> u32 {
    let (pooled, on_the_way) = (&class.idle.pooled, &class.idle.coming);
    let count = |of: &dyn Fn(&Stock) -> u32| {
        let more = coming.map_or(0, |_| of(on_the_way));
        of(pooled).saturating_sub(of(less)).saturating_add(more)
    };
    let anybody = count(&|stock: &Stock| stock.anybody).saturating_add(coming.unwrap_or(0));
    let assigned = count(&|stock: &Stock| stock.assigned);
    // The lower and the upper bound: each machine of a trust domain is of use, or none of them is.
    let most = desired.saturating_sub(anybody);
    let least = most.saturating_sub(assigned);
    if most == 0 || assigned == 0 || class.mix.is_empty() {
        return least;
    }
    let domains: Vec<(f64, u32)> = class
        .mix
        .chances()
        .map(|(domain, chance)| (chance, count(&|stock: &Stock| stock.of(domain))))
        .collect();
    let found = if desired <= ONE_BY_ONE {
        exact(desired, anybody, &domains)
    } else {
        by_means(desired, anybody, &domains)
    };
    found.clamp(least, most)
}

/// Computes the lack from the means: the machines of each domain are expected to serve the mean number of its requests.
fn by_means(desired: u32, anybody: u32, domains: &[(f64, u32)]) -> u32 {
    let wanted = f64::from(desired);
    let served: f64 =
        domains.iter().map(|(chance, machines)| f64::from(*machines).min(wanted * chance)).sum();
    (wanted - f64::from(anybody) - served - 1e-6).ceil().max(0.0) as u32
}

/// Computes the fewest machines without a trust domain with which hardly one of the next requests finds none. Domains
/// are assumed to be independent of each other, which gives rather too many machines than too few.
fn exact(desired: u32, anybody: u32, domains: &[(f64, u32)]) -> u32 {
    let covered = domains.iter().filter(|(_, machines)| *machines > 0);
    let elsewhere = 1.0 - covered.clone().map(|(chance, _)| chance).sum::<f64>();
    // The probability that this number of requests finds no machine of their own domain.
    let mut left_over: Chances = [0.0; ONE_BY_ONE as usize + 1];
    left_over[0] = 1.0;
    for (chance, machines) in covered.copied().chain([(elsewhere, 0)]) {
        left_over = beside(&left_over, &binomial(desired, chance), machines, desired);
    }
    let most_late = (LATE.0 * f64::from(desired)).min(LATE.1);
    let late = |served: u32| {
        let beyond = left_over.iter().zip(0_u32..).skip(served as usize);
        beyond.map(|(chance, requests)| chance * f64::from(requests - served)).sum::<f64>()
    };
    (0..desired).find(|more| late(anybody.saturating_add(*more)) <= most_late).unwrap_or(desired)
}

/// Adds the distribution of a domain's requests that exceed its machines to the distribution of the requests left over
/// before; `all` bounds the number of requests.
fn beside(before: &Chances, requests: &Chances, machines: u32, all: u32) -> Chances {
    let (machines, all) = (machines as usize, all as usize);
    let mut sums = [0.0; ONE_BY_ONE as usize + 1];
    for (had, first) in before[..=all].iter().enumerate().filter(|(_, first)| **first > 0.0) {
        for (came, second) in requests[..=all].iter().enumerate() {
            sums[(had + came.saturating_sub(machines)).min(all)] += first * second;
        }
    }
    sums
}

/// Returns the probability of each number of requests, out of `all`, from a domain with this chance.
fn binomial(all: u32, chance: f64) -> Chances {
    let (yes, no) = (chance.clamp(0.0, 1.0), 1.0 - chance.clamp(0.0, 1.0));
    // Starts from the more probable end, to avoid underflow.
    let turned = yes > no;
    let (rare, usual) = if turned { (no, yes) } else { (yes, no) };
    let mut next = usual.powi(i32::try_from(all).unwrap_or(i32::MAX));
    let mut chances = [0.0; ONE_BY_ONE as usize + 1];
    for (came, chance) in (0..=all).zip(&mut chances) {
        *chance = next;
        next *= rare / usual * f64::from(all - came) / f64::from(came + 1);
    }
    if turned {
        chances[..=all as usize].reverse();
    }
    chances
}

/// Returns whether an idle machine of this trust domain counts fully for a class: its requests come from there, or
/// nothing is known about them.
pub(in crate::decide) fn counts_whole(class: &Class, domain: &str) -> bool {
    domain.is_empty()
        || class.mix.is_empty()
        || class.mix.chances().any(|(name, chance)| name == domain && chance >= CERTAIN)
}

#[cfg(test)]
mod tests;
