//! The GitHub credentials of a machine: to register its runner, to remove it, and an extended deadline while GitHub
//! does not respond.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{
    Instance, Life, Phase, Registration, RegistrationMode, RunnerTrouble, State, Threshold, TroubleKind,
    after,
};

use super::MachineView;
use crate::decide::{
    AtGitHub, Credential, KeepQuestion, Note, Plan, Planned, RunnerConfig, StaleRunners, Step,
};

/// How long before its expiry a credential is minted again. A newly sealed credential is valid for at least twice this
/// time.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// How much longer than usual a state may take in total because calls to GitHub are put off: GitHub renews its budgets
/// each hour.
const PUT_OFF_AT_MOST: Duration = Duration::from_secs(3600);
/// How much longer than usual a state may take in total because GitHub does not respond, or a runner cannot reach it.
const AWAY_AT_MOST: Duration = Duration::from_secs(6 * 3600);
/// For how long after a call may be made it still counts as put off: a failed action is retried after half a minute at
/// most.
const TRIED_AGAIN: Duration = Duration::from_secs(60);

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
        let away = self.github_is_away() || self.put_off_by_budget() || self.cut_off_until().is_some();
        self.cx.policy.github && away && waiting && self.instance.expired_by.is_none()
    }

    /// Returns whether GitHub does not respond for the account of its claim, and the machine has not been in its state
    /// for too long.
    fn github_is_away(&self) -> bool {
        self.cx.yard.github_is_away(self.tracked)
            && self.cx.now.wall < after(self.instance.state_since, AWAY_AT_MOST)
    }

    /// Returns until when no deadline ends a machine whose agent reports that its runner cannot reach GitHub; none
    /// where it reports nothing of the kind, or has reported it for too long. A machine launched in its place would
    /// have the same problem.
    fn cut_off_until(&self) -> Option<Timestamp> {
        let starts = match self.instance.life {
            Life::Created { run: Some(_) } | Life::Claimed { .. } => true,
            Life::Created { run: None }
            | Life::Running { .. }
            | Life::Idle { .. }
            | Life::Terminated { .. } => false,
        };
        self.trouble()
            .filter(|trouble| starts && self.fresh() && trouble.kind == TroubleKind::Unreachable)?;
        let most = after(self.instance.state_since, AWAY_AT_MOST);
        // A ready request does not end by its deadline.
        let waits = self.request.filter(|request| request.status.phase != Some(Phase::Ready));
        let until =
            waits.and_then(|request| request.status.deadline).map_or(most, |deadline| deadline.min(most));
        (self.cx.now.wall < until).then_some(until)
    }

    /// Returns the problem that keeps its claim's runner from listening, as its agent reports it.
    pub(super) fn trouble(&self) -> Option<&RunnerTrouble> {
        self.tracked.agent.as_ref()?.runner_trouble.as_ref()
    }

    /// Returns whether a call for its claim is put off to keep within GitHub's limits. That is no fault of the machine,
    /// and a machine launched in its place would wait for the same budget.
    fn put_off_by_budget(&self) -> bool {
        let (Some((of, until)), Some(claim)) = (&self.tracked.put_off, &self.instance.claim) else {
            return false;
        };
        let term = self.instance.threshold.map_or(SignedDuration::ZERO, |t| t.at.duration_since(t.set_at));
        let most = after(self.instance.state_since, PUT_OFF_AT_MOST).saturating_add(term);
        *of == claim.id
            && self.cx.now.mono < until.saturating_add(TRIED_AGAIN)
            && self.cx.now.wall < most.unwrap_or(Timestamp::MAX)
    }

    /// Extends the deadline of a machine that waits for GitHub: while GitHub does not respond, a call is put off, or
    /// GitHub reports the runner as busy. The deadline moves in the record, because the agent goes by the record too.
    pub(super) fn given_time(&self) -> Option<Plan> {
        let threshold = self.instance.threshold?;
        let term = threshold.at.duration_since(threshold.set_at);
        let left = threshold.at.duration_since(self.cx.now.wall);
        let next = self.deadline(self.instance)?;
        let (next, reason, why) = if self.waits_for_github() {
            match (self.github_is_away(), self.cut_off_until()) {
                (true, _) => (next, "GitHubAway", "GitHub does not answer"),
                (false, Some(until)) => {
                    let next = Threshold { at: next.at.min(until), ..next };
                    (next, "RunnerCutOff", "its runner cannot reach GitHub")
                }
                (false, None) => {
                    (next, "GitHubBudget", "its call to GitHub is put off to keep within the limits")
                }
            }
        } else {
            (self.busy_deadline(next)?, "RunnerBusy", "GitHub takes its runner for busy")
        };
        if left > term / 4 || next.at <= threshold.at {
            return None;
        }
        let step = Step::of(self.instance, self.cx.now.wall, |instance| instance.threshold = Some(next));
        let note = Note::warning(reason, format!("{why}: its deadline moves on"));
        Some(Plan::act(Planned::instance(step, note, AtGitHub::Nothing)))
    }

    /// Plans the credential that the machine lacks to register or deregister, once its key is known.
    pub(super) fn credentials(&self) -> Option<Plan> {
        if !self.cx.policy.github {
            return None;
        }
        if self.is_lent_ahead() {
            return self.lent_ahead();
        }
        let key = self.tracked.agent.as_ref().and_then(|agent| agent.public_key.as_ref());
        let key = self.instance.public_key.as_ref().or(key)?;
        let now = self.cx.now.wall;
        let stale = |boxed: &Option<Registration>| match boxed {
            None => true,
            Some(boxed) => self.renews_at(boxed).is_some_and(|at| at <= now),
        };
        // Labels and group are in the records of its request and its class: without both none can be made.
        let register = || Some(Credential::Registration(RunnerConfig::of(self.request?, self.spec?)));
        // The repository is in the machine's own record: neither request nor class need exist.
        let remove = || {
            let request = self.instance.claim.as_ref()?.request.request()?;
            Some(Credential::Removal(request.repository.clone()))
        };
        let credential = match self.instance.life {
            Life::Created { run: Some(_) } | Life::Claimed { .. } | Life::Running { .. }
                if self.box_used_up()
                    || (self.is_registered_anew() && stale(&self.instance.registration)) =>
            {
                self.anew()
            }
            Life::Created { run: Some(_) } | Life::Claimed { .. } if stale(&self.instance.registration) => {
                register()
            }
            Life::Idle { pooled_at: None }
                if self.instance.registration_seq > 0
                    && self.runner_number().is_none()
                    && stale(&self.instance.removal) =>
            {
                remove()
            }
            Life::Idle { pooled_at: None } => self.keep_question().map(Credential::Promotion),
            Life::Created { .. }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Idle { .. }
            | Life::Terminated { .. } => None,
        }?;
        // A key that only its agent has reported is stored in the record with the machine's next step.
        let mut read = self.instance.clone();
        read.public_key.get_or_insert_with(|| key.clone());
        Some(Plan::act(Planned::credential(Step::of(&read, now, |_| ()), credential)))
    }

    /// Returns the credential that registers its claim's runner again. A single-use runner that served is gone at
    /// GitHub.
    fn anew(&self) -> Option<Credential> {
        // A slot has one runner; it is released with it.
        let request = self.request.filter(|request| !request.is_slot() || !self.tracked.runner_ended())?;
        let runner = RunnerConfig::of(request, self.spec?);
        let dead = self.runner_number().and_then(|number| {
            let stale = StaleRunners::of(self.instance, None)?;
            Some(StaleRunners { number: Some(number), ..stale })
        });
        Some(match (runner.mode, dead) {
            (RegistrationMode::Job, None) => Credential::Registration(runner),
            (RegistrationMode::Job | RegistrationMode::Run, dead) => Credential::Anew { runner, dead },
        })
    }

    /// Returns the question about the kept directories of the claim that was given back; none where nothing is kept, or
    /// where the machine already has the answer.
    fn keep_question(&self) -> Option<KeepQuestion> {
        let (claim, keep) = (self.instance.claim.as_ref()?, &self.spec?.keep);
        let told = self.instance.promotion.as_ref().is_some_and(|told| told.claim_id == claim.id);
        let ran = self.instance.registration_seq > 0;
        let request = claim.request.request()?;
        let of_github = request.run_id.as_str().bytes().all(|b| b.is_ascii_digit());
        let asks = ran && !told && of_github && !keep.is_empty();
        asks.then(|| KeepQuestion { request: request.clone(), keep: keep.clone() })
    }

    /// Returns what is done about the machine's runner together with a write of its record.
    pub(super) fn at_github(&self, step: &Step<Instance>) -> AtGitHub {
        let (before, after) = (&step.before, &step.after);
        if !self.cx.policy.github {
            return AtGitHub::Nothing;
        }
        if before.run().is_some() && after.state() == State::Idle {
            let known = self.request.filter(|_| self.spec.is_some());
            let repository = known.map(|request| request.id.repository.clone());
            return repository.map_or(AtGitHub::Nothing, AtGitHub::AttachRemoval);
        }
        let pooled = before.pooled_at().is_none() && after.pooled_at().is_some();
        if !pooled || before.registration_seq == 0 {
            return AtGitHub::Nothing;
        }
        let mode = self.spec.map(|spec| spec.registration_mode);
        // Only its agent reports under which of its names the last runner is registered.
        let anew = self
            .tracked
            .agent
            .as_ref()
            .and_then(|agent| agent.registration_done)
            .is_some_and(|done| done > 0);
        let stale = StaleRunners::of(before, mode.filter(|mode| !anew || *mode == RegistrationMode::Job));
        let stale = stale.map(|stale| StaleRunners { number: self.runner_number(), ..stale });
        stale.map_or(AtGitHub::Nothing, AtGitHub::ConfirmRemoved)
    }

    /// Returns GitHub's number of the runner, as its agent reports it: then the operator removes the runner itself.
    pub(super) fn runner_number(&self) -> Option<u64> {
        self.tracked.agent.as_ref().and_then(|agent| agent.runner_id)
    }

    /// Returns when the credential in a box is minted again: some time before its expiry, but not immediately where
    /// credentials are valid for a shorter time than that.
    pub(super) fn renews_at(&self, boxed: &Registration) -> Option<Timestamp> {
        let before = |at: Timestamp| at.saturating_sub(RENEWED_BEFORE).unwrap_or(Timestamp::MIN);
        let written = after(self.instance.updated_at, RENEWED_BEFORE);
        boxed.expires_at.map(|at| before(at).max(written.min(at)))
    }

    /// Returns whether the runner of the last box served its job, or ended without being asked to, and the run still
    /// holds the machine.
    pub(super) fn box_used_up(&self) -> bool {
        self.tracked.box_used_up()
    }

    /// Returns whether its agent waits for a box that was sent already.
    fn is_registered_anew(&self) -> bool {
        let done = self.tracked.agent.as_ref().and_then(|agent| agent.registration_done);
        let waits = self.trouble().is_some_and(|trouble| trouble.kind == TroubleKind::Ended);
        waits && done.is_some_and(|done| done > 0 && done < self.instance.registration_seq)
    }
}
