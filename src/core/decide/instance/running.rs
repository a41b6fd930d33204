//! A machine whose runner serves a request, until the request releases it or the runner is lost.

use std::time::Duration;

use crate::decide::health::runtime;
use crate::decide::{AtGitHub, Note, Plan, Planned, Step};
use crate::model::{Reason, Signal, Threshold, after};

use super::MachineView;

mod retire;

/// How much later than its current value the deadline of a machine may stay, where its request was ready long before it
/// had to be: the deadline matters only where no operator releases the request.
const LATE_AT_MOST: Duration = Duration::from_secs(3600);

impl MachineView<'_> {
    /// Handles `running`: until its request releases it, or its runner is lost.
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
                // It listened in between, and still served no job.
                let again = signal == Signal::RegFailed && self.instance.registration_failures > 0;
                Some(if again { self.end(Reason::RegistrationFailed, note) } else { self.give_back(note) })
            }
            Some(Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RemoveRegFailed) | None => {
                self.end_moved().or_else(|| self.unused())
            }
        }
    }

    /// Sets its deadline again, where its ready request ends at another time than was known when it began to serve: the
    /// request was ready early, its maximum runtime was raised, or its class could not be read.
    fn end_moved(&self) -> Option<Plan> {
        let (cx, now) = (self.cx, self.cx.now.wall);
        let set =
            self.instance.threshold.filter(|_| self.spec.is_some() && self.instance.expired_by.is_none())?;
        let end = runtime::ends_at(cx, self.request?).filter(|end| *end > now)?;
        let next = Threshold { at: after(end, cx.policy.timing.end), set_at: now };
        let early = after(set.at, cx.policy.timing.end / 2) < next.at;
        let late = after(next.at, LATE_AT_MOST) < set.at;
        if !early && !late {
            return None;
        }
        let step = Step::of(self.instance, now, |instance| instance.threshold = Some(next));
        let note = Note::normal("EndMoved", format!("its request has it until {end}"));
        Some(Plan::act(Planned::instance(step, note, AtGitHub::Nothing)))
    }
}
