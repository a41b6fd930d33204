//! A machine whose runner GitHub does not release: GitHub reports the runner as busy for up to ten minutes after a job
//! that was killed. The clean-up waits for it, for a limited time.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Life, Threshold, after};

use super::MachineView;

/// How much longer than usual a clean-up may take for it in total (contract 2.3).
const BUSY_AT_MOST: Duration = Duration::from_secs(15 * 60);

impl MachineView<'_> {
    /// Returns until when the clean-up waits for GitHub to release the runner; none where it does not wait for that.
    pub(super) fn busy_until(&self) -> Option<Timestamp> {
        let cleaning = matches!(self.instance.life, Life::Idle { pooled_at: None });
        let claim = self.instance.claim.as_ref()?;
        let busy = self.tracked.busy_for.as_ref() == Some(&claim.id) && self.instance.expired_by.is_none();
        let at_most = self.cx.policy.timing.cleanup.saturating_add(BUSY_AT_MOST);
        (cleaning && busy).then(|| after(self.instance.state_since, at_most))
    }

    /// Computes the deadline while its runner is busy: extended like others, and never past the end of that limit.
    pub(super) fn busy_deadline(&self, next: Threshold) -> Option<Threshold> {
        let until = self.busy_until()?;
        Some(Threshold { at: next.at.min(until), ..next })
    }
}
