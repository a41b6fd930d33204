//! What a machine needs of GitHub: what registers its runner and what removes it, and time while GitHub does not answer.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Life, Registration, RegistrationMode, after};

use super::MachineView;
use crate::decide::action::{Action, Credential, Note, Plan, Step};

/// How long before a credential runs out it is minted again. What is sealed has twice that left at least.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);

impl MachineView<'_> {
    pub(super) fn waits_for_github(&self) -> bool {
        let waiting = match self.instance.life {
            Life::Created { run: Some(_) } => self.fresh(),
            Life::Claimed { .. } | Life::Idle { pooled_at: None } => true,
            Life::Created { run: None }
            | Life::Running { .. }
            | Life::Idle { .. }
            | Life::Terminated { .. } => false,
        };
        self.cx.policy.github && self.cx.yard.github_down && waiting && self.instance.expired_by.is_none()
    }

    /// While GitHub does not answer, or takes the runner for busy, the deadline of what waits for it moves on in the record,
    /// because the agent counts by the record too.
    pub(super) fn given_time(&self) -> Option<Plan> {
        let threshold = self.instance.threshold?;
        let term = threshold.at.duration_since(threshold.set_at);
        let left = threshold.at.duration_since(self.cx.now.wall);
        let next = self.deadline(self.instance)?;
        let (next, reason, why) = if self.waits_for_github() {
            (next, "GitHubAway", "GitHub does not answer")
        } else {
            (self.busy_deadline(next)?, "RunnerBusy", "GitHub takes its runner for busy")
        };
        if left > term / 4 || next.at <= threshold.at {
            return None;
        }
        let step = Step::of(self.instance, self.cx.now.wall, |instance| instance.threshold = Some(next));
        let note = Note::warning(reason, format!("{why}: its deadline moves on"));
        Some(Plan::act(Action::Instance(Box::new(step), note)))
    }

    /// What the machine lacks to register or deregister, once its key is known.
    pub(super) fn credentials(&self) -> Option<Plan> {
        if !self.cx.policy.github {
            return None;
        }
        let key = self.tracked.agent.as_ref().and_then(|agent| agent.public_key.as_ref());
        self.instance.public_key.as_ref().or(key)?;
        let arn = || self.instance.facts.instance_arn.clone();
        let now = self.cx.now.wall;
        let stale = |boxed: &Option<Registration>| match boxed {
            None => true,
            Some(boxed) => self.renews_at(boxed).is_some_and(|at| at <= now),
        };
        // Labels and group stand in the records of its request and its class: without both none can be made.
        let known = self.request.is_some() && self.spec.is_some();
        match self.instance.life {
            Life::Created { run: Some(_) } | Life::Claimed { .. } => (known
                && stale(&self.instance.registration))
            .then(|| Plan::act(Action::Credential(arn(), Credential::Registration))),
            Life::Running { .. } => (known && self.box_used_up())
                .then(|| Plan::act(Action::Credential(arn(), Credential::Registration))),
            Life::Idle { pooled_at: None } => (self.instance.registration_seq > 0
                && !self.operator_removes()
                && stale(&self.instance.removal))
            .then(|| Plan::act(Action::Credential(arn(), Credential::Removal))),
            Life::Created { run: None } | Life::Idle { pooled_at: Some(_) } | Life::Terminated { .. } => None,
        }
    }

    /// Whether the operator can remove the runner itself: its agent has told GitHub's number of it.
    fn operator_removes(&self) -> bool {
        self.tracked.agent.as_ref().is_some_and(|agent| agent.runner_id.is_some())
    }

    /// When the credential in a box is minted again: some time before it runs out, but not at once again where they are
    /// given for a shorter time than that.
    pub(super) fn renews_at(&self, boxed: &Registration) -> Option<Timestamp> {
        let before = |at: Timestamp| at.saturating_sub(RENEWED_BEFORE).unwrap_or(Timestamp::MIN);
        let written = after(self.instance.updated_at, RENEWED_BEFORE);
        boxed.expires_at.map(|at| before(at).max(written.min(at)))
    }

    /// Mode `job`: the runner served its job and the run still holds the machine.
    pub(super) fn box_used_up(&self) -> bool {
        let done = self.tracked.agent.as_ref().and_then(|agent| agent.registration_done);
        self.spec.is_some_and(|spec| spec.registration_mode == RegistrationMode::Job)
            && done == Some(self.instance.registration_seq)
    }
}
