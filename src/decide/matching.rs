//! Which pooled machine goes to which request: the oldest request first, each taking what fits it; a younger one gets
//! only what no older one can use.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::{Instance, InstanceArn, PoolSpec, Record, Request};

use super::capacity;
use super::context::Context;
use super::instance::{fresh, listed_by_former};
use super::unread::agent_is_known;
use super::yard::{Class, Tracked};

/// A machine with less than this left of its threshold is not claimed.
const LEAST_LEFT: Duration = Duration::from_secs(30);

/// Why a pooled machine is not for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// Its record is being written.
    Busy,
    /// Its former request still lists it.
    Listed,
    /// Paid for in another way than the request wants.
    UsageClass,
    /// Of a type the request does not accept.
    InstanceType,
    /// It served another trust domain.
    TrustDomain,
    /// Its deadline is too near.
    Threshold,
    /// Its agent has not spoken lately.
    Heartbeat,
    /// Its time is over, or EC2 takes it back.
    Retiring,
}

impl Refusal {
    /// For a person.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "its record is being written",
            Self::Listed => "its former request still lists it",
            Self::UsageClass => "of another usage class",
            Self::InstanceType => "of a type the request does not accept",
            Self::TrustDomain => "used by another trust domain",
            Self::Threshold => "its deadline is too near",
            Self::Heartbeat => "its agent has not spoken lately",
            Self::Retiring => "its time is over",
        }
    }
}

/// What a request gets, and why other machines are not for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    /// The machines it gets.
    pub(super) machines: Vec<InstanceArn>,
    /// Why others are refused, one reason each.
    pub(super) refusals: BTreeSet<Refusal>,
    /// Machines that would do once their former request lets go.
    pub(super) listed: Vec<InstanceArn>,
}

/// Picks at most `lack` machines for a request among those nobody took.
pub(super) fn pick(
    cx: &Context<'_>,
    class: &Class,
    spec: &PoolSpec,
    request: &Request,
    lack: u32,
    taken: &mut BTreeSet<InstanceArn>,
) -> Share {
    let mut share = Share::default();
    // A hint about a machine that is no longer free says nothing.
    let free = |tracked: &&Tracked| tracked.instance.pooled_at().is_some();
    let hinted = class.hints.iter().filter_map(|id| cx.yard.by_id(id)).filter(free);
    let pooled = class.pooled.iter().rev().filter_map(|(_, arn)| cx.yard.instance(arn));
    for tracked in hinted.chain(pooled) {
        if share.machines.len() as u32 >= lack {
            break;
        }
        let arn = &tracked.instance.facts.instance_arn;
        if taken.contains(arn) {
            continue;
        }
        match refusal(cx, spec, request, tracked) {
            None => {
                taken.insert(arn.clone());
                share.machines.push(arn.clone());
            }
            Some(Refusal::Listed) => share.listed.push(arn.clone()),
            Some(refusal) => {
                share.refusals.insert(refusal);
            }
        }
    }
    share
}

/// Why a machine is not for a request, whatever its state; none when it is of the right kind.
pub(super) fn mismatch(spec: &PoolSpec, request: &Request, instance: &Instance) -> Option<Refusal> {
    let types = request.intent.allowed_instance_types.as_ref().unwrap_or(&spec.allowed_instance_types);
    let domain = spec.trust_domain(&request.id.repository);
    if request.intent.usage_class.is_some_and(|wanted| wanted != instance.facts.usage_class) {
        return Some(Refusal::UsageClass);
    }
    if !types.accept(&instance.facts.instance_type) {
        return Some(Refusal::InstanceType);
    }
    let other = !instance.trust_domain.is_empty() && instance.trust_domain != domain;
    other.then_some(Refusal::TrustDomain)
}

/// Why a pooled machine is not for a request; none when it is.
fn refusal(cx: &Context<'_>, spec: &PoolSpec, request: &Request, tracked: &Tracked) -> Option<Refusal> {
    let instance = &tracked.instance;
    let facts = &instance.facts;
    let left = instance.threshold.map(|threshold| threshold.at.duration_since(cx.now.wall));
    let least = jiff::SignedDuration::try_from(LEAST_LEFT).unwrap_or_default();
    if instance.pooled_at().is_none() || facts.resource_class != spec.resource_class {
        // A hint about a machine that is no longer free.
        return Some(Refusal::Busy);
    }
    if let Some(refusal) = mismatch(spec, request, instance) {
        return Some(refusal);
    }
    let interrupted = tracked.interruption().is_some();
    if interrupted || capacity::retiring(instance, spec, cx.now.wall) {
        return Some(Refusal::Retiring);
    }
    if left.is_none_or(|left| left < least) {
        return Some(Refusal::Threshold);
    }
    if !fresh(cx, tracked) || !agent_is_known(tracked) {
        return Some(Refusal::Heartbeat);
    }
    if cx.yard.is_busy(&instance.key()) {
        return Some(Refusal::Busy);
    }
    let former = instance.claim.as_ref().map(|claim| &claim.request);
    // One that lost the machine itself takes it off its list in the very write that puts it on again.
    (former != Some(&request.key()) && listed_by_former(cx.yard, instance)).then_some(Refusal::Listed)
}

#[cfg(test)]
mod tests;
