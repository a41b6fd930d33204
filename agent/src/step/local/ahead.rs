//! The local state of the runner that is registered ahead of a claim.

use std::time::Duration;

use super::Local;
use crate::task::{Task, TaskOutcome};

impl Local {
    /// Returns whether this is a task of the runner that is registered ahead.
    fn is_of_ahead(&self, task: &Task) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| task.claim() == Some(&ahead.id))
    }

    /// Applies `change` to the runner that is registered ahead, as if it were the current claim.
    fn of_ahead(mut self, change: impl FnOnce(Self) -> Self) -> Self {
        std::mem::swap(&mut self.claim, &mut self.ahead);
        let mut changed = change(self);
        std::mem::swap(&mut changed.claim, &mut changed.ahead);
        changed
    }

    /// Returns the state after this task ended, for the current claim or for the runner that is registered ahead.
    /// `number` is GitHub's id of the runner, if the task may have registered one.
    #[must_use]
    pub fn after_task(
        self,
        task: Option<&Task>,
        outcome: TaskOutcome,
        now: Duration,
        chance: f64,
        number: Option<Option<u64>>,
    ) -> Self {
        let ahead = task.is_some_and(|task| self.is_of_ahead(task));
        let after = |local: Self| {
            let mut local = local.after(outcome, now, chance);
            if let Some(number) = number {
                local.registered_as(number);
            }
            local
        };
        if ahead { self.of_ahead(after) } else { after(self) }
    }

    /// Returns the time at which a failed operation is tried again.
    pub fn retry_at(&self) -> Option<Duration> {
        self.claim.iter().chain(&self.ahead).filter_map(|served| served.retry_at).min()
    }
}
