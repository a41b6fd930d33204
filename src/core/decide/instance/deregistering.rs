//! A machine whose runner GitHub does not let go: it takes the runner for busy, as it does for up to ten minutes after
//! a job that was killed. The clean-up waits for it, for a while.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Life, Threshold, after};

use super::MachineView;

/// How much longer than usual a clean-up may take for it in all (contract 2.3).
const BUSY_AT_MOST: Duration = Duration::from_secs(15 * 60);

impl MachineView<'_> {
    /// How long the clean-up waits for GitHub to let go of the runner; none where that is not what it waits for.
    pub(super) fn busy_until(&self) -> Option<Timestamp> {
        let cleaning = matches!(self.instance.life, Life::Idle { pooled_at: None });
        let claim = self.instance.claim.as_ref()?;
        let busy = self.tracked.busy_for.as_ref() == Some(&claim.id) && self.instance.expired_by.is_none();
        let at_most = self.cx.policy.timing.cleanup.saturating_add(BUSY_AT_MOST);
        (cleaning && busy).then(|| after(self.instance.state_since, at_most))
    }

    /// The deadline while its runner is busy: moved on as others are, and never past the end of that patience.
    pub(super) fn busy_deadline(&self, next: Threshold) -> Option<Threshold> {
        let until = self.busy_until()?;
        Some(Threshold { at: next.at.min(until), ..next })
    }
}
