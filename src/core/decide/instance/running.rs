//! A machine whose runner serves a request, until the request releases it or the runner is lost.

use crate::decide::{Note, Plan};
use crate::model::Signal;

use super::MachineView;

impl MachineView<'_> {
    /// `running`: until its request releases it, or its runner is lost.
    pub(super) fn running(&self) -> Option<Plan> {
        if let Some(note) = self.given_back() {
            return Some(self.give_back(note));
        }
        if self.box_used_up()
            && let Some((reason, note)) = self.served_its_job()
        {
            return Some(self.end(reason, note));
        }
        match self.says() {
            Some(Signal::RegFailed | Signal::RemoveRegOk) => {
                let message = format!("its runner is gone before its request is{}", self.detail());
                Some(self.give_back(Note::warning("RunnerLost", message)))
            }
            Some(Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RemoveRegFailed) | None => None,
        }
    }
}
