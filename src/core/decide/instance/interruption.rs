//! Handles interruptions: machines that EC2 takes back.

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::Note;
use crate::model::{Interruption, Life, Reason, Signal};

use super::MachineView;

/// How long before EC2 takes it a machine that serves or is cleaned is ended: of the two minutes of a warning, its job
/// gets a little less than the first hundred seconds.
const BEFORE_POWER_GOES: Duration = Duration::from_secs(25);

/// Returns when a machine that EC2 takes back is ended at the latest.
pub(super) fn leaves_at(notice: &Interruption) -> Timestamp {
    notice.at.saturating_sub(BEFORE_POWER_GOES).unwrap_or(Timestamp::MIN)
}

impl MachineView<'_> {
    /// Returns the reason of the end for a machine with a notice from EC2. Free machines end at once when the
    /// interruption is certain, and so do machines whose runner does not listen yet: their request takes another
    /// machine. The others end shortly before EC2 takes them. A mere risk lets them finish, and ends free machines at
    /// once only where the operator's configuration asks for it.
    pub(super) fn interrupted(&self) -> Option<(Reason, Note)> {
        let notice = self.tracked.interruption()?;
        let (interrupted, soon) = (self.tracked.is_interrupted(), leaves_at(notice) <= self.cx.now.wall);
        let due = match self.instance.life {
            Life::Created { run: None } | Life::Idle { pooled_at: Some(_) } => {
                self.cx.policy.ends_free(self.tracked).is_some()
            }
            Life::Created { run: Some(_) } | Life::Claimed { .. } => {
                interrupted && (soon || self.says() != Some(Signal::RegOk))
            }
            Life::Running { .. } | Life::Idle { pooled_at: None } => interrupted && soon,
            Life::Terminated { .. } => false,
        };
        due.then(|| {
            let message = format!("EC2 takes it back ({} at {})", notice.action, notice.at);
            (Reason::Interrupted, Note::warning("Interrupted", message))
        })
    }
}
