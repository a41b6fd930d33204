//! For which accounts does GitHub not respond?

use std::collections::BTreeSet;

use super::super::{Tracked, Yard};
use crate::model::InstanceArn;

impl Yard {
    /// Records whether GitHub responded to a call about a machine. Each installation has a token and a budget of its
    /// own, so the result for one account is independent of the others.
    pub(super) fn github_said(&mut self, arn: &InstanceArn, answered: bool) {
        let Some(account) = self.instances.get(arn).and_then(|tracked| tracked.account()) else { return };
        if answered {
            self.github_down.remove(&account);
        } else {
            self.github_down.insert(account);
        }
    }

    /// Drops the accounts that no live machine belongs to any more.
    pub(super) fn forget_accounts(&mut self) {
        if self.github_down.is_empty() {
            return;
        }
        let live = self.instances.values().filter(|tracked| tracked.instance.state().live());
        let known: BTreeSet<String> = live.filter_map(|tracked| tracked.account()).collect();
        self.github_down.retain(|account| known.contains(account));
    }

    /// Returns whether GitHub did not respond to the last call for the account of a machine's claim.
    pub(crate) fn github_is_away(&self, tracked: &Tracked) -> bool {
        !self.github_down.is_empty()
            && tracked.account().is_some_and(|account| self.github_down.contains(&account))
    }
}
