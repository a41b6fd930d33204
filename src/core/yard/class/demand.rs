//! Groups pooled machines by the properties that requests choose by, and waiting requests by the properties that they
//! accept. Requests of one demand can use the same machines and launches, so if one of them cannot get any, no later
//! one can either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{Instance, InstanceArn, PoolSpec, Request, RequestKey, UsageClass};

use crate::yard::visits::visited;

/// How many demands are checked for one that can use machines without a trust domain.
const DEMANDS: usize = 256;

/// Why a request cannot have a pooled machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// Its record is being written.
    Busy,
    /// Its last claim failed and is not tried again yet.
    Failed,
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
    /// It has expired, or EC2 takes it back.
    Retiring,
}

impl Refusal {
    /// Returns the reason as a text for people.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "its record is being written",
            Self::Failed => "its last claim failed",
            Self::UsageClass => "of another usage class",
            Self::InstanceType => "of a type the request does not accept",
            Self::TrustDomain => "used by another trust domain",
            Self::Threshold => "its deadline is too near",
            Self::Heartbeat => "its agent has not spoken lately",
            Self::Retiring => "its time is over",
        }
    }
}

/// The position of a request among those that wait in its class: the oldest first.
pub(crate) type QueuePosition = (Timestamp, RequestKey);

/// Pooled machines that differ for requests only in their deadlines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MachineGroup {
    /// How they are paid for.
    pub(crate) usage_class: UsageClass,
    /// Their EC2 type.
    pub(crate) instance_type: String,
    /// The trust domain that they served, in lower case; empty for machines that served no request.
    pub(crate) trust_domain: String,
    /// Whether GitHub confirmed a runner that was registered ahead: such machines are claimed first.
    pub(crate) rests: bool,
}

impl MachineGroup {
    pub(crate) fn of(instance: &Instance) -> Self {
        Self {
            usage_class: instance.facts.usage_class,
            instance_type: instance.facts.instance_type.clone(),
            trust_domain: instance.trust_domain.to_lowercase(),
            rests: instance.ahead.as_ref().is_some_and(|ahead| ahead.runner_id.is_some()),
        }
    }
}

/// The machines that a request accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Demand {
    /// The trust domain of the machines it may use. It comes first, so that demands are in the order of their domains.
    pub(crate) trust_domain: String,
    /// The only usage class that it accepts, if it names one.
    pub(crate) usage_class: Option<UsageClass>,
    /// The types that it allows in place of its class's types.
    pub(crate) instance_types: Option<Vec<String>>,
    /// Whether it falls back to on-demand machines when spot has no capacity.
    pub(crate) on_demand_fallback: bool,
}

impl Demand {
    pub(crate) fn of(request: &Request, spec: &PoolSpec) -> Self {
        let intent = &request.intent;
        Self {
            trust_domain: spec.trust_domain(&request.id.repository),
            usage_class: intent.usage_class,
            instance_types: intent.allowed_instance_types.as_ref().map(|types| types.0.clone()),
            on_demand_fallback: intent.on_demand_fallback,
        }
    }

    /// Returns why it cannot use the machines of a group; none when it can.
    pub(crate) fn refuses(&self, spec: &PoolSpec, group: &MachineGroup) -> Option<Refusal> {
        if self.usage_class.is_some_and(|wanted| wanted != group.usage_class) {
            return Some(Refusal::UsageClass);
        }
        let accepted = match &self.instance_types {
            Some(types) => crate::model::InstanceTypes::accept_any(types, &group.instance_type),
            None => spec.allowed_instance_types.accept(&group.instance_type),
        };
        if !accepted {
            return Some(Refusal::InstanceType);
        }
        let domain = spec.reused_as(&group.trust_domain);
        let other = domain.is_none_or(|domain| !domain.is_empty() && domain != self.trust_domain);
        other.then_some(Refusal::TrustDomain)
    }
}

/// Demands by their oldest request, in the order of those.
pub(crate) type Heads = BTreeMap<QueuePosition, Arc<Demand>>;

/// The requests of a class that lack machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingRequests {
    /// All of them, the oldest first; those not accepted yet come last.
    all: BTreeSet<QueuePosition>,
    /// The accepted requests, by their demands.
    demands: BTreeMap<Arc<Demand>, BTreeSet<QueuePosition>>,
    /// The oldest request of each demand.
    heads: Heads,
    /// The same by trust domain, for when only machines of some domains are free.
    domains: BTreeMap<String, Heads>,
    /// The requests not accepted yet.
    new: BTreeSet<RequestKey>,
    /// The requests that ever held a machine.
    served: BTreeSet<QueuePosition>,
}

impl WaitingRequests {
    /// Returns all requests, the oldest first.
    pub(crate) const fn all(&self) -> &BTreeSet<QueuePosition> {
        &self.all
    }

    /// Returns the accepted requests, by their demands.
    pub(crate) const fn demands(&self) -> &BTreeMap<Arc<Demand>, BTreeSet<QueuePosition>> {
        &self.demands
    }

    /// Returns the oldest accepted request of each demand, the oldest first.
    pub(crate) const fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Returns the oldest accepted request of each demand of a trust domain.
    pub(crate) fn heads_of(&self, domain: &str) -> Option<&Heads> {
        self.domains.get(domain)
    }

    /// Returns whether one of the accepted requests can use the machines of a group. For machines that served no
    /// request, at most [`DEMANDS`] are checked, and any further demand counts as one that can.
    pub(crate) fn can_use(&self, spec: &PoolSpec, group: &MachineGroup) -> bool {
        let Some(domain) = spec.reused_as(&group.trust_domain) else { return false };
        let uses = |demand: &Demand| {
            visited();
            demand.refuses(spec, group).is_none()
        };
        if domain.is_empty() {
            let mut demands = self.demands.keys();
            return demands.by_ref().take(DEMANDS).any(|demand| uses(demand)) || demands.next().is_some();
        }
        let first = Demand {
            trust_domain: domain.clone().into_owned(),
            usage_class: None,
            instance_types: None,
            on_demand_fallback: false,
        };
        let alike = self.demands.range(Arc::new(first)..).map(|(demand, _)| demand);
        alike.take_while(|demand| domain == demand.trust_domain).any(|demand| uses(demand))
    }

    /// Returns the requests not accepted yet.
    pub(crate) const fn new_ones(&self) -> &BTreeSet<RequestKey> {
        &self.new
    }

    /// Returns the requests that held a machine before and lack one now.
    pub(crate) const fn served(&self) -> &BTreeSet<QueuePosition> {
        &self.served
    }

    /// Adds a request in its current state. Its former image must have been removed.
    pub(crate) fn insert(&mut self, request: &Request, spec: Option<&PoolSpec>) {
        let rank = request.queue_position();
        if !request.status.served.is_empty() {
            self.served.insert(rank.clone());
        }
        if request.status.accepted_at.is_none() {
            self.new.insert(request.id.clone());
        } else if let Some(spec) = spec {
            let id = Arc::new(Demand::of(request, spec));
            let (id, before) = match self.demands.get_key_value(&id) {
                Some((known, alike)) => (Arc::clone(known), alike.first().cloned()),
                None => (id, None),
            };
            self.demands.entry(Arc::clone(&id)).or_default().insert(rank.clone());
            self.head_changes(&id, before.as_ref());
        }
        self.all.insert(rank);
    }

    /// Removes a request; `request` is the image with which it was added.
    pub(crate) fn remove(&mut self, request: &Request, spec: Option<&PoolSpec>) {
        let rank = request.queue_position();
        if !self.all.remove(&rank) {
            return;
        }
        self.served.remove(&rank);
        self.new.remove(&request.id);
        let Some(spec) = spec.filter(|_| request.status.accepted_at.is_some()) else { return };
        let id = Arc::new(Demand::of(request, spec));
        let Some(alike) = self.demands.get_mut(&id) else { return };
        let before = alike.first().cloned();
        alike.remove(&rank);
        if alike.is_empty() {
            self.demands.remove(&id);
        }
        self.head_changes(&id, before.as_ref());
    }

    /// Moves a demand to its position by its oldest request, which was `before`.
    fn head_changes(&mut self, id: &Arc<Demand>, before: Option<&QueuePosition>) {
        let alike = self.demands.get_key_value(id);
        let head = alike.and_then(|(id, alike)| Some((alike.first()?.clone(), Arc::clone(id))));
        if head.as_ref().map(|(head, _)| head) == before {
            return;
        }
        let of_domain = self.domains.entry(id.trust_domain.clone()).or_default();
        for heads in [&mut self.heads, of_domain] {
            before.and_then(|before| heads.remove(before));
            heads.extend(head.clone());
        }
        if self.domains.get(&id.trust_domain).is_some_and(Heads::is_empty) {
            self.domains.remove(&id.trust_domain);
        }
    }

    /// Regroups the requests after their class's pool changed.
    pub(crate) fn sort<'a>(
        &mut self,
        spec: Option<&PoolSpec>,
        request: impl Fn(&RequestKey) -> Option<&'a Request>,
    ) {
        let all = std::mem::take(self).all;
        for (_, key) in &all {
            if let Some(request) = request(key) {
                self.insert(request, spec);
            }
        }
    }
}

/// The pooled machines of one group, the first to expire first.
pub(crate) type Free = BTreeSet<(Timestamp, InstanceArn)>;
