//! A machine between two requests: once it is verified clean it goes to the pool, unless its time is over.

use crate::decide::capacity;
use crate::decide::{Note, Plan};
use crate::model::{Cause, Reason, Signal};

use super::MachineView;

impl MachineView<'_> {
    /// Handles `idle`, not pooled: once the machine is verified clean it goes to the pool, unless its time is over.
    pub(super) fn cleaning(&self) -> Option<Plan> {
        if let Some((reason, note)) = self.served_its_job().or_else(|| self.braked()) {
            return Some(self.end(reason, note));
        }
        match self.says() {
            Some(Signal::RemoveRegOk) if self.fresh() => {}
            Some(
                Signal::Ok
                | Signal::Failed
                | Signal::RegOk
                | Signal::RegFailed
                | Signal::RemoveRegOk
                | Signal::RemoveRegFailed,
            )
            | None => return None,
        }
        if let Some((reason, note)) = self.retired() {
            return Some(self.end(reason, note));
        }
        // The write that pools it may have to wait for GitHub, so its deadline is extended first.
        if let Some(plan) = self.given_time() {
            return Some(plan);
        }
        Some(self.pool(Cause::Cleaned, Note::normal("Cleaned", "deregistered and clean, back in the pool")))
    }

    /// Returns whether a job on the machine could become root: then nothing proves that it is clean, and it serves no
    /// other request, whatever its class allows by now.
    pub(super) fn served_its_job(&self) -> Option<(Reason, Note)> {
        let single_use = self.instance.claim.is_some() && self.instance.jobs.single_use();
        let message = "its jobs could become root: it serves no other";
        single_use.then(|| (Reason::MaxUses, Note::normal("MaxUses", message)))
    }

    /// Returns whether clean-ups after jobs of its claim's repository failed repeatedly: then no other is tried, and
    /// the machine serves no other request.
    fn braked(&self) -> Option<(Reason, Note)> {
        let request = self.instance.claim.as_ref()?.request.request()?;
        let brake = self.cx.yard.brake(&request.repository, self.cx.now.wall)?;
        Some((Reason::MaxUses, Note::warning("CleanupBrake", brake.told(request.repository.as_str()))))
    }

    /// Returns whether the machine has served its time, so that it is not pooled again.
    pub(super) fn retired(&self) -> Option<(Reason, Note)> {
        if let Some(by) = &self.instance.expired_by {
            return Some((Reason::Expired, Note::normal("Expired", format!("{by} asked for its end"))));
        }
        if let Some(ended) = self.served_its_job() {
            return Some(ended);
        }
        let spec = self.spec?;
        if spec.used_up(self.instance) {
            let message =
                format!("it was claimed as often as its class allows ({} served)", self.instance.uses);
            return Some((Reason::MaxUses, Note::normal("MaxUses", message)));
        }
        if capacity::too_old(self.instance, spec, self.cx.now.wall) {
            let message = format!("it is older than its class allows ({} s)", spec.max_age_seconds);
            return Some((Reason::MaxAge, Note::normal("MaxAge", message)));
        }
        self.cx.policy.ends_free(self.tracked).map(|notice| {
            (
                Reason::Interrupted,
                Note::warning("Interrupted", format!("EC2 takes it back ({})", notice.action)),
            )
        })
    }
}
