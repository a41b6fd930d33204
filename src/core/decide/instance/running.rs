//! A machine whose runner serves a request, until the request releases it or the runner is lost.

use crate::decide::{Note, Plan};
use crate::model::{Reason, Signal};

use super::MachineView;

impl MachineView<'_> {
    /// `running`: until its request releases it, or its runner is lost.
    pub(super) fn running(&self) -> Option<Plan> {
        if let Some(plan) = self.returned() {
            return Some(plan);
        }
        if self.box_used_up()
            && let Some((reason, note)) = self.served_its_job()
        {
            return Some(self.end(reason, note));
        }
        match self.says() {
            Some(signal @ (Signal::RegFailed | Signal::RemoveRegOk)) => {
                let message = format!("its runner is gone before its request is{}", self.detail());
                let note = Note::warning("RunnerLost", message);
                // It listened in between, and served nobody all the same.
                let again = signal == Signal::RegFailed && self.instance.registration_failures > 0;
                Some(if again { self.end(Reason::RegistrationFailed, note) } else { self.give_back(note) })
            }
            Some(Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RemoveRegFailed) | None => None,
        }
    }
}
