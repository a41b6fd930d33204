//! The idle machines of a class by trust domain: those that any request may use, and those of each trust domain.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Instance, InstanceArn, Life, PoolSpec};

/// Numbers of machines by trust domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stock {
    /// Machines that served no request.
    pub(crate) anybody: u32,
    /// Machines of each trust domain, as the class reads it now; domains with 0 are absent.
    pub(crate) domains: BTreeMap<String, u32>,
    /// Machines of all trust domains, including those that no request can get any more.
    pub(crate) assigned: u32,
}

impl Stock {
    fn change(&mut self, domain: Option<&str>, add: bool) {
        let shift = |n: &mut u32| *n = if add { *n + 1 } else { n.saturating_sub(1) };
        if domain == Some("") {
            return shift(&mut self.anybody);
        }
        shift(&mut self.assigned);
        let Some(domain) = domain else { return };
        if add {
            shift(self.domains.entry(domain.to_owned()).or_default());
        } else if let Some(count) = self.domains.get_mut(domain) {
            shift(count);
            if *count == 0 {
                self.domains.remove(domain);
            }
        }
    }

    /// Counts the machines of a trust domain.
    pub(crate) fn of(&self, domain: &str) -> u32 {
        self.domains.get(domain).copied().unwrap_or(0)
    }

    /// Counts all machines.
    pub(crate) const fn all(&self) -> u32 {
        self.anybody.saturating_add(self.assigned)
    }
}

/// The idle machines of a class: in its pool, and on their way there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idle {
    /// Pooled machines.
    pub(crate) pooled: Stock,
    /// Warm machines that boot, and machines that are being cleaned.
    pub(crate) coming: Stock,
    /// Both kinds with an agent's record that cannot be read: no request gets them, so they count nowhere else.
    pub(crate) unread_agents: BTreeSet<InstanceArn>,
}

impl Idle {
    fn stock(&mut self, instance: &Instance) -> Option<&mut Stock> {
        match &instance.life {
            Life::Created { run: None } => Some(&mut self.coming),
            Life::Idle { pooled_at: None } => instance.hold.is_none().then_some(&mut self.coming),
            Life::Idle { pooled_at: Some(_) } => Some(&mut self.pooled),
            Life::Created { run: Some(_) }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Terminated { .. } => None,
        }
    }

    /// Adds an idle machine, whose agent's record can be read or not.
    pub(crate) fn add(
        &mut self,
        arn: &InstanceArn,
        instance: &Instance,
        spec: Option<&PoolSpec>,
        unread_agent: bool,
    ) {
        let Some(stock) = self.stock(instance) else { return };
        if unread_agent {
            self.unread_agents.insert(arn.clone());
        } else {
            stock.note(instance, spec, true);
        }
    }

    /// Removes a machine that was added in this state.
    pub(crate) fn remove(&mut self, arn: &InstanceArn, instance: &Instance, spec: Option<&PoolSpec>) {
        if !self.unread_agents.remove(arn)
            && let Some(stock) = self.stock(instance)
        {
            stock.note(instance, spec, false);
        }
    }
}

impl Stock {
    /// Counts a machine, or stops counting it.
    pub(crate) fn note(&mut self, instance: &Instance, spec: Option<&PoolSpec>, add: bool) {
        let stored = instance.trust_domain.to_lowercase();
        match spec {
            Some(spec) => self.change(spec.reused_as(&stored).as_deref(), add),
            None => self.change(Some(&stored), add),
        }
    }
}
