//! The life of one machine: which change of state its signals, its request, its deadline and its maker call for.
//! The order of the questions is the order of their weight: what ended stays ended, a deadline beats a signal, a
//! signal is believed for the claim it names.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Cause, Claim, ClaimId, Instance, InstanceArn, Interruption, Life, PoolSpec, Reason, Record, Request,
    Signal, Threshold, after, legal,
};
use crate::ports::MachineState;

use super::action::{Action, Note, Plan, Step, WaitReason};
use super::beats;
use super::capacity;
use super::context::Context;
use super::request::{gives_back, max_runtime};
use super::unread::{self, ClassRecord};
use super::yard::{Tracked, Yard};

mod ending;
mod github;
mod pooled;
mod silence;

/// How long before EC2 takes it a machine that serves or is cleaned is ended: of the two minutes that a warning gives,
/// its job has a little less than the first hundred seconds.
const BEFORE_POWER_GOES: Duration = Duration::from_secs(25);

/// What to do about one machine now.
pub(super) fn decide(cx: &Context<'_>, arn: &InstanceArn) -> Plan {
    let Some(tracked) = cx.yard.instance(arn) else { return ending::unrecorded(cx, arn) };
    let key = tracked.instance.key();
    let mut plan = Plan::default();
    if cx.yard.is_busy(&key) {
        plan.wait(&key, WaitReason::Busy, "its record is being written");
        return plan;
    }
    let machine = MachineView::of(cx, tracked);
    if let Life::Terminated { gone_at, .. } = tracked.instance.life {
        return ending::decide(cx, tracked, gone_at);
    }
    if let Some((reason, note)) = machine.must_end() {
        return machine.end(reason, note);
    }
    if let Some(plan) = machine.silence().or_else(|| machine.missed()) {
        return plan;
    }
    let step = match &tracked.instance.life {
        Life::Created { run: Some(_) } | Life::Claimed { .. } => machine.starting(),
        Life::Created { run: None } => machine.booting(),
        Life::Running { .. } => machine.running(),
        Life::Idle { pooled_at: None } => machine.cleaning(),
        Life::Idle { pooled_at: Some(_) } => pooled::decide(&machine),
        Life::Terminated { .. } => None,
    };
    let mut plan =
        step.or_else(|| machine.given_time()).or_else(|| machine.credentials()).unwrap_or_default();
    machine.wakes(&mut plan);
    plan
}

/// Whether a machine's maker must know it by now if it has it: a new machine may be unknown to it for a while.
fn settled(cx: &Context<'_>, instance: &Instance) -> bool {
    after(instance.facts.created_at, cx.policy.orphan) <= cx.now.wall
}

/// When a machine that EC2 takes is to be ended at the latest.
fn leaves_at(notice: &Interruption) -> Timestamp {
    notice.at.saturating_sub(BEFORE_POWER_GOES).unwrap_or(Timestamp::MIN)
}

/// Whether the agent's last word is young enough to rely on.
pub(super) fn fresh(cx: &Context<'_>, tracked: &Tracked) -> bool {
    tracked.beat.is_some_and(|beat| cx.now.seen.saturating_sub(beat.at) <= cx.policy.stale)
}

/// One machine with everything its decision looks at.
struct MachineView<'a> {
    cx: &'a Context<'a>,
    tracked: &'a Tracked,
    instance: &'a Instance,
    spec: Option<&'a PoolSpec>,
    request: Option<&'a Request>,
}

impl<'a> MachineView<'a> {
    fn of(cx: &'a Context<'a>, tracked: &'a Tracked) -> Self {
        let instance = &tracked.instance;
        let spec = cx.yard.pool(&instance.facts.resource_class).map(|pool| &pool.spec);
        let request = instance.claim.as_ref().and_then(|claim| cx.yard.request_named(&claim.request));
        Self { cx, tracked, instance, spec, request }
    }

    /// What the agent says for the claim the record names.
    fn says(&self) -> Option<Signal> {
        let claim = self.instance.claim.as_ref().map_or("", |claim| claim.id.as_str());
        self.tracked.agent.as_ref().and_then(|agent| agent.says(claim))
    }

    /// What the agent says of the machine itself, whatever its claim.
    fn says_of_boot(&self) -> Option<Signal> {
        self.tracked.agent.as_ref().and_then(|agent| agent.says(""))
    }

    fn detail(&self) -> String {
        let detail =
            self.tracked.agent.as_ref().and_then(|agent| agent.signal_detail.as_deref()).unwrap_or_default();
        if detail.is_empty() {
            String::new()
        } else {
            format!(": {}", detail.chars().take(500).collect::<String>())
        }
    }

    fn fresh(&self) -> bool {
        fresh(self.cx, self.tracked)
    }

    /// Moves the machine along the table of transitions; the new state gets its deadline.
    fn go(&self, cause: Cause, note: Note, change: impl FnOnce(&mut Instance)) -> Plan {
        let now = self.cx.now.wall;
        let step = Step::of(self.instance, now, |next| {
            change(next);
            if next.public_key.is_none() {
                next.public_key = self.tracked.agent.as_ref().and_then(|agent| agent.public_key.clone());
            }
            if next.place() != self.instance.place() {
                next.state_since = now;
            }
            next.threshold = self.deadline(next);
        });
        debug_assert!(
            legal(step.before.place(), cause, step.after.place()),
            "{:?} -> {:?} for {cause:?} is not in the table",
            step.before.place(),
            step.after.place()
        );
        Plan::act(Action::Instance(Box::new(step), note))
    }

    /// The deadline of the state the machine is going to be in.
    fn deadline(&self, next: &Instance) -> Option<Threshold> {
        let (policy, now) = (self.cx.policy, self.cx.now.wall);
        let term = match next.life {
            Life::Created { .. } => policy.created,
            Life::Claimed { .. } => policy.claimed,
            Life::Running { .. } => max_runtime(self.request, self.spec),
            Life::Idle { pooled_at: None } => policy.cleanup,
            Life::Idle { pooled_at: Some(_) } => {
                ClassRecord::of(self.cx.yard, &next.facts.resource_class).idle_time()
            }
            Life::Terminated { .. } => return None,
        };
        Some(Threshold { at: after(now, term), set_at: now })
    }

    fn end(&self, reason: Reason, note: Note) -> Plan {
        self.go(Cause::Ended, note, |next| ending::tombstone(next, reason))
    }

    /// What ends a machine in any live state.
    fn must_end(&self) -> Option<(Reason, Note)> {
        let (now, tracked) = (self.cx.now, self.tracked);
        if tracked.stands == Some(None) && self.cx.policy.inventory && settled(self.cx, self.instance) {
            return Some((Reason::Vanished, Note::warning("Vanished", "EC2 does not know it any more")));
        }
        match tracked.stands.flatten() {
            Some(MachineState::Stopped | MachineState::ShuttingDown | MachineState::Terminated) => {
                return Some((Reason::Vanished, Note::warning("Vanished", "it stopped or ended by itself")));
            }
            Some(MachineState::Pending | MachineState::Running) | None => {}
        }
        let agent_key = tracked.agent.as_ref().and_then(|agent| agent.public_key.as_ref());
        let first = self.instance.public_key.as_ref().or(tracked.first_key.as_ref());
        if let (Some(first), Some(key)) = (first, agent_key)
            && first != key
        {
            return Some((
                Reason::Unhealthy,
                Note::warning("KeyChanged", "its agent shows another key than at first"),
            ));
        }
        if self.says_of_boot() == Some(Signal::Failed) {
            let message = format!("first boot failed{}", self.detail());
            return Some((Reason::BootFailed, Note::warning("BootFailed", message)));
        }
        if self.instance.claim.is_some() && self.says() == Some(Signal::RemoveRegFailed) {
            let message = format!("it could not be cleaned{}", self.detail());
            return Some((Reason::CleanupFailed, Note::warning("CleanupFailed", message)));
        }
        self.interrupted().or_else(|| self.passed(now.wall))
    }

    /// A notice from EC2. Free machines go at once, and so do those whose runner does not listen yet when their end is
    /// certain: their request takes another. The others go shortly before EC2 takes them; a mere risk lets them finish.
    fn interrupted(&self) -> Option<(Reason, Note)> {
        let notice = self.tracked.interruption()?;
        let (doomed, soon) = (self.tracked.doomed(), leaves_at(notice) <= self.cx.now.wall);
        let due = match self.instance.life {
            Life::Created { run: None } | Life::Idle { pooled_at: Some(_) } => true,
            Life::Created { run: Some(_) } | Life::Claimed { .. } => {
                doomed && (soon || self.says() != Some(Signal::RegOk))
            }
            Life::Running { .. } | Life::Idle { pooled_at: None } => doomed && soon,
            Life::Terminated { .. } => false,
        };
        due.then(|| {
            let message = format!("EC2 takes it back ({} at {})", notice.action, notice.at);
            (Reason::Interrupted, Note::warning("Interrupted", message))
        })
    }

    /// The deadline of the state. While GitHub does not answer, what waits for it is given more time.
    fn passed(&self, now: Timestamp) -> Option<(Reason, Note)> {
        let threshold = self.instance.threshold?;
        if threshold.at > now || self.waits_for_github() || pooled::kept(self) {
            return None;
        }
        if let Some(by) = &self.instance.expired_by {
            return Some((Reason::Expired, Note::normal("Expired", format!("{by} asked for its end"))));
        }
        let state = self.instance.state();
        let message = format!("its deadline in {state} passed at {}", threshold.at);
        let pooled = self.instance.pooled_at().is_some();
        let note =
            if pooled { Note::normal("IdleTooLong", message) } else { Note::warning("Deadline", message) };
        Some((Reason::Threshold, note))
    }

    /// Whether its request wants it no more: released, over, or it took the machine off its list.
    fn given_back(&self) -> Option<Note> {
        let claim = self.instance.claim.as_ref()?;
        match self.request {
            Some(request) if gives_back(request) => {
                Some(Note::normal("Released", format!("{} gives it back", request.id)))
            }
            Some(request) if self.given_up(claim, request) => {
                Some(Note::normal("GivenUp", format!("{} holds it no more", request.id)))
            }
            // A request that a strong read did not find.
            None if self.cx.yard.absent.contains_key(&claim.request) => Some(Note::warning(
                "RequestGone",
                format!("the record of its request is gone ({})", claim.request),
            )),
            Some(_) | None => None,
        }
    }

    /// A request that knows this very claim and does not list the machine any more gave it up. One that knows an older
    /// claim of the machine was read before this claim was made, and says nothing about it.
    fn given_up(&self, claim: &Claim, request: &Request) -> bool {
        let (id, status) = (&self.instance.facts.instance_id, &request.status);
        if status.instances.contains(id) || !status.served.contains(id) {
            return false;
        }
        let named_here = |id: &ClaimId| id.version() > 0;
        match status.claims.get(id) {
            Some(last) if named_here(last) && named_here(&claim.id) => *last == claim.id,
            // Somebody else named the claims: they have no order.
            Some(_) | None => true,
        }
    }

    fn give_back(&self, note: Note) -> Plan {
        self.go(Cause::GivenBack, note, |next| {
            next.life = Life::Idle { pooled_at: None };
            next.registration = None;
        })
    }

    /// `created` for a request, or `claimed`: until its runner listens.
    fn starting(&self) -> Option<Plan> {
        if let Some(note) = self.given_back() {
            return Some(self.give_back(note));
        }
        match self.says() {
            Some(Signal::RegOk) if self.fresh() => {
                let run = self.instance.run()?.clone();
                let note = Note::normal("Registered", format!("its runner listens for run {run}"));
                Some(self.go(Cause::Registered, note, |next| {
                    next.life = Life::Running { run };
                    next.uses += 1;
                    next.registration = None;
                    next.registration_failures = 0;
                }))
            }
            Some(Signal::RegFailed) => Some(self.registration_failed()),
            Some(Signal::RemoveRegOk) => {
                Some(self.give_back(Note::warning("Deregistered", "its agent gave up the claim by itself")))
            }
            Some(Signal::RegOk | Signal::Ok | Signal::Failed | Signal::RemoveRegFailed) | None => None,
        }
    }

    fn registration_failed(&self) -> Plan {
        let message = format!("its runner could not be registered{}", self.detail());
        let first = self.instance.registration_failures == 0;
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

    /// `created`, warm: until its first boot is done.
    fn booting(&self) -> Option<Plan> {
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

    /// Into the pool. Whether its class still exists decides how long it stays, so that is made sure of first.
    fn pool(&self, cause: Cause, note: Note) -> Plan {
        let now = self.cx.now.wall;
        if let Some(key) = unread::class_to_look_at(self.cx.yard, &self.instance.facts.resource_class) {
            return Plan::act(Action::Look(key));
        }
        self.go(cause, note, |next| {
            next.life = Life::Idle { pooled_at: Some(now) };
            next.removal = None;
        })
    }

    /// `running`: until its request lets go, or its runner is lost.
    fn running(&self) -> Option<Plan> {
        if let Some(note) = self.given_back() {
            return Some(self.give_back(note));
        }
        match self.says() {
            Some(Signal::RegFailed | Signal::RemoveRegOk) => {
                let message = format!("its runner is gone before its request is{}", self.detail());
                Some(self.give_back(Note::warning("RunnerLost", message)))
            }
            Some(Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RemoveRegFailed) | None => None,
        }
    }

    /// `idle`, not pooled: until it is proved clean; then it goes to the pool, unless its time is over.
    fn cleaning(&self) -> Option<Plan> {
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
        // The write that pools it may have to wait for GitHub, so its deadline moves on first.
        if let Some(plan) = self.given_time() {
            return Some(plan);
        }
        Some(self.pool(Cause::Cleaned, Note::normal("Cleaned", "deregistered and clean, back in the pool")))
    }

    /// Whether the machine has served its time: it is not put into the pool again.
    fn retired(&self) -> Option<(Reason, Note)> {
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
        self.tracked.interruption().map(|notice| {
            (
                Reason::Interrupted,
                Note::warning("Interrupted", format!("EC2 takes it back ({})", notice.action)),
            )
        })
    }

    /// When to look again although nothing changed.
    fn wakes(&self, plan: &mut Plan) {
        let now = self.cx.now;
        if let Some(threshold) = self.instance.threshold {
            let again = now.mono + Duration::from_secs(1);
            plan.wake_at(now.when(threshold.at).max(if threshold.at <= now.wall { again } else { now.mono }));
            if self.waits_for_github() {
                let quarter = threshold.at.duration_since(threshold.set_at) / 4;
                let near = threshold.at.saturating_sub(quarter).unwrap_or(Timestamp::MIN);
                plan.wake_at(now.when(near).max(now.mono + Duration::from_millis(100)));
            }
            plan.wait(
                &self.instance.key(),
                WaitReason::Deadline,
                format!("in {} until {} at the latest", self.instance.state(), threshold.at),
            );
        }
        if let Some((until, doubt)) = self.put_off() {
            plan.wake_at(now.mono + until.saturating_sub(now.seen) + Duration::from_millis(1));
            plan.wait(&self.instance.key(), WaitReason::Doubt, beats::told(doubt));
        } else if let Some(beat) = self.tracked.beat.filter(|beat| beat.seq > 0 && self.fresh()) {
            let left = (beat.at + self.cx.policy.stale).saturating_sub(now.seen);
            plan.wake_at(now.mono + left + Duration::from_millis(1));
        }
        // One that has passed has done what it does.
        if let Some(at) = self.tracked.interruption().map(leaves_at).filter(|at| *at > now.wall) {
            plan.wake_at(now.when(at));
        }
        let boxed = self.instance.registration.iter().chain(&self.instance.removal);
        for at in boxed.filter_map(|boxed| self.renews_at(boxed)).filter(|at| *at > now.wall) {
            plan.wake_at(now.when(at));
        }
        if let Some(claim) = self.instance.claim.as_ref().filter(|_| self.instance.run().is_some())
            && self.request.is_none()
            && self.cx.yard.listed.is_some()
            && !self.cx.yard.absent.contains_key(&claim.request)
            && !self.cx.yard.hands_off(&claim.request)
            && plan.actions.is_empty()
        {
            plan.actions.push(Action::Look(claim.request.clone()));
        }
    }
}

/// Whether the record of a machine's former request still lists it as held.
pub(super) fn listed_by_former(yard: &Yard, instance: &Instance) -> bool {
    let id = &instance.facts.instance_id;
    let former = instance.claim.as_ref().and_then(|claim| yard.request_named(&claim.request));
    former.is_some_and(|request| request.status.instances.contains(id))
}

#[cfg(test)]
mod tests;
