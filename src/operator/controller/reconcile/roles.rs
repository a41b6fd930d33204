//! The state that every class depends on: whether this operator leads, and how long GitHub supports the runner version.

use crate::ports::github::RunnerNews;
use crate::yard::Unit;

use super::Loop;

impl Loop {
    /// Takes in GitHub's information about runner packages, on which the claims and launches of every class depend.
    pub(super) fn runner_news(&mut self, news: RunnerNews) {
        let RunnerNews { pinned, latest, ends } = news;
        (self.yard.runner, self.yard.latest, self.yard.ends) = (pinned, latest, ends);
        self.dirty.extend(self.yard.classes().map(|(name, _)| Unit::Class(name.clone())));
    }

    pub(super) fn roles(&mut self) {
        let held = self.lease.see();
        self.ports.metrics.leader(held.is_some());
        match held {
            Some(token) if self.role.lease != Some(token) => {
                // Launches need a full list first.
                self.role.lease = None;
                self.listing.taken = Some((token, self.ports.clock.elapsed()));
                let _ = self.listing.triggers.resync.try_send(());
            }
            Some(_) => {}
            None => {
                self.role.lease = None;
                self.listing.taken = None;
            }
        }
        let units = self.yard.units();
        self.mark(units);
    }
}
