//! A running machine whose request needs fewer machines for now: its agent is asked whether the runner has a job. An agent
//! without one keeps the runner suspended for a while, so that none begins; meanwhile the runner is removed at GitHub, and
//! the machine is given back. What GitHub calls busy is up to a minute late, so the agent's answer comes first.

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::instance::{MachineView, fresh};
use crate::decide::{AtGitHub, Note, Plan, Planned, StaleRunners, Step};
use crate::model::{Cause, Instance, InstanceId, Life, Phase, Request, RetireReport, after, millis};

/// How long after the question the removal of the runner at GitHub may begin. Its agent keeps it suspended for 30 s from
/// its answer on, which comes later than the question; the rest is for the two calls, of 10 s at most each.
const REMOVED_WITHIN: Duration = Duration::from_secs(8);
/// How long the answer is waited for, before another machine of the request is asked.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// When a machine is asked again whose runner had a job, or could not be removed in time.
const AGAIN: Duration = Duration::from_secs(60);
/// When a machine is asked again whose agent did not answer: agents of earlier versions do not.
const AGAIN_IF_SILENT: Duration = Duration::from_secs(600);

/// What is known of the question that was put to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// None was put, or the last one was long ago.
    Due,
    /// The answer is awaited until this time.
    Put(Timestamp),
    /// The runner has no job, and none begins for now.
    Free,
    /// There is nothing to do before this time.
    Rests(Timestamp),
}

impl Question {
    fn of(instance: &Instance, answer: Option<&RetireReport>, now: Timestamp) -> Self {
        let Some(at) = instance.retire_asked else { return Self::Due };
        let passed = |wait: Duration| after(at, wait) <= now;
        let busy = answer.filter(|answer| answer.at == at).map(|answer| answer.busy);
        match busy {
            // A time in the future is of another operator's clock.
            Some(false) if at <= now && !passed(REMOVED_WITHIN) => Self::Free,
            Some(_) if !passed(AGAIN) => Self::Rests(after(at, AGAIN)),
            None if !passed(ANSWERED_WITHIN) => Self::Put(after(at, ANSWERED_WITHIN)),
            None if !passed(AGAIN_IF_SILENT) => Self::Rests(after(at, AGAIN_IF_SILENT)),
            Some(_) | None => Self::Due,
        }
    }
}

impl MachineView<'_> {
    /// Plans the next step towards giving back a machine that no job of its ready request needs.
    pub(super) fn unused(&self) -> Option<Plan> {
        let request = self.request_with_too_many()?;
        match self.question() {
            Question::Free if self.is_chosen(request, Question::Free) => self.retire(),
            Question::Due if self.is_chosen(request, Question::Due) => {
                let now = millis(self.cx.now.wall);
                let step = Step::of(self.instance, now, |next| next.retire_asked = Some(now));
                let note = Note::normal("RetireAsked", "asks its agent whether its runner has a job");
                Some(Plan::act(Planned::retirement(step, note, AtGitHub::Nothing)))
            }
            Question::Due | Question::Free | Question::Put(_) | Question::Rests(_) => None,
        }
    }

    /// Returns when to look again at a machine that is to be given back.
    pub(in crate::decide::instance) fn asked_until(&self) -> Option<Timestamp> {
        self.request_with_too_many()?;
        match self.question() {
            Question::Put(until) | Question::Rests(until) => Some(until),
            Question::Due | Question::Free => None,
        }
    }

    fn question(&self) -> Question {
        let answer = self.tracked.agent.as_ref().and_then(|agent| agent.retire.as_ref());
        Question::of(self.instance, answer, self.cx.now.wall)
    }

    /// Returns the request of this running machine, if it is ready and has more machines than its jobs need.
    fn request_with_too_many(&self) -> Option<&Request> {
        let request = self.request?;
        let (wanted, has) = (request.intent.wanted?, request.status.instances.len());
        let runs = matches!(self.instance.life, Life::Running { .. });
        let kept = self.instance.hold.is_some() || self.instance.jobs.single_use();
        let ready = request.status.phase == Some(Phase::Ready);
        let known = self.cx.policy.github && self.runner_number().is_some() && self.fresh();
        (runs && ready && known && !kept && (wanted as usize) < has).then_some(request)
    }

    /// Returns whether this machine, of which `question` holds, is among those that are too many. Machines that are being
    /// asked already come first, so that as many are asked as are too many; and where several answered that they have no
    /// job while more machines came to be wanted, only so many are given back.
    fn is_chosen(&self, request: &Request, question: Question) -> bool {
        let (cx, now) = (self.cx, self.cx.now.wall);
        let holding = cx.yard.holding(&request.id, request);
        let mut too_many = (holding.held.len() as u32).saturating_sub(request.wanted());
        let mut chosen: Vec<&InstanceId> = Vec::new();
        for id in holding.held {
            let Some(tracked) = cx.yard.by_id(id) else { continue };
            let answer = tracked.agent.as_ref().and_then(|agent| agent.retire.as_ref());
            let runs = matches!(tracked.instance.life, Life::Running { .. }) && fresh(cx, tracked);
            let of = Question::of(&tracked.instance, answer, now);
            let asked = matches!(of, Question::Put(_) | Question::Free);
            if of == question && runs && tracked.instance.hold.is_none() {
                chosen.push(id);
            } else if asked && question == Question::Due {
                too_many = too_many.saturating_sub(1);
            }
        }
        chosen.sort();
        chosen.iter().take(too_many as usize).any(|id| **id == self.instance.facts.instance_id)
    }

    /// Gives the machine back, once GitHub has removed its runner.
    fn retire(&self) -> Option<Plan> {
        let mode = self.spec.map(|spec| spec.registration_mode);
        let stale = StaleRunners::of(self.instance, mode)?;
        let stale = StaleRunners { number: self.runner_number(), ..stale };
        let step = self.step(Cause::GivenBack, |next| {
            next.life = Life::Idle { pooled_at: None };
            next.registration = None;
            next.registration_failures = 0;
        });
        let note = Note::normal("Retired", "no job of its run needs it for now");
        Some(Plan::act(Planned::retirement(step, note, AtGitHub::ConfirmRemoved(stale))))
    }
}
