//! A machine that was launched or claimed, until its runner listens or its first boot is done. A machine that never
//! registers passes the deadline of its state (`deadline.rs`).

use crate::decide::{Note, Plan};
use crate::model::{Cause, Life, Reason, Signal};

use super::MachineView;

impl MachineView<'_> {
    /// Handles `created` for a request, and `claimed`: until its runner listens.
    pub(super) fn starting(&self) -> Option<Plan> {
        if let Some(plan) = self.returned() {
            return Some(plan);
        }
        match self.says() {
            // For a runner that was registered ahead, GitHub's response about the label counts.
            Some(Signal::RegOk) if self.fresh() && !self.is_lent_ahead() => {
                let run = self.instance.run()?.clone();
                let note = Note::normal("Registered", format!("its runner listens for run {run}"));
                Some(self.go(Cause::Registered, note, |next| {
                    next.life = Life::Running { run };
                    next.uses += 1;
                    next.registration = None;
                }))
            }
            Some(Signal::RegFailed) => Some(self.registration_failed()),
            Some(Signal::RemoveRegOk) => {
                Some(self.give_back(Note::warning("Deregistered", "its agent gave up the claim by itself")))
            }
            Some(Signal::RegOk | Signal::Ok | Signal::Failed | Signal::RemoveRegFailed) | None => None,
        }
    }

    /// Returns whether it is claimed with the runner that it registered ahead, which does not have the label of the run
    /// yet.
    pub(super) fn is_lent_ahead(&self) -> bool {
        match self.instance.life {
            Life::Claimed { .. } => self.instance.ahead.is_some(),
            Life::Created { .. } | Life::Running { .. } | Life::Idle { .. } | Life::Terminated { .. } => {
                false
            }
        }
    }

    pub(super) fn registration_failed(&self) -> Plan {
        let message = format!("its runner could not be registered{}", self.detail());
        let first = self.instance.registration_failures == 0 && self.instance.hold.is_none();
        match self.instance.life {
            Life::Claimed { .. } if first => {
                self.go(Cause::RegistrationFailedOnce, Note::warning("RegistrationFailed", message), |next| {
                    next.life = Life::Idle { pooled_at: None };
                    next.registration = None;
                    next.registration_failures += 1;
                })
            }
            Life::Created { .. }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Idle { .. }
            | Life::Terminated { .. } => {
                self.end(Reason::RegistrationFailed, Note::warning("RegistrationFailed", message))
            }
        }
    }

    /// Handles `created`, warm: until its first boot is done.
    pub(super) fn booting(&self) -> Option<Plan> {
        let booted = match self.says_of_boot() {
            Some(Signal::Ok) => self.fresh(),
            Some(
                Signal::Failed
                | Signal::RegOk
                | Signal::RegFailed
                | Signal::RemoveRegOk
                | Signal::RemoveRegFailed,
            )
            | None => false,
        };
        booted.then(|| self.pool(Cause::Booted, Note::normal("Booted", "ready for its first claim")))
    }
}
