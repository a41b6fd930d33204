//! Decides about one machine from its signals, its request, its deadline and the provider. The order of the checks is
//! their priority: an ended machine stays ended, a deadline outranks a signal, and a signal counts only for the claim
//! that it names.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Cause, Instance, InstanceArn, Life, PoolSpec, Reason, Record, Request, RunnerPackage, Signal, after,
    legal,
};
use crate::ports::MachineState;

use crate::decide::context::Context;
use crate::decide::health::{beats, unread};
use crate::decide::packages::Packages;
use crate::decide::statement;
use crate::decide::{Note, Plan, Planned, Step, WaitReason};
use crate::yard::Tracked;

mod ahead;
mod cleaning;
mod console;
mod credentials;
mod deadline;
mod deregistering;
mod held;
mod interruption;
mod liveness;
mod pooled;
mod released;
mod running;
mod starting;
mod terminating;
mod unrecorded;

pub(super) use ahead::lendable;
use interruption::leaves_at;
pub(super) use released::listed_by_former;

/// Plans the actions for one machine now.
pub(super) fn decide(cx: &Context<'_>, arn: &InstanceArn) -> Plan {
    let Some(tracked) = cx.yard.instance(arn) else { return unrecorded::decide(cx, arn) };
    let key = tracked.instance.key();
    let mut plan = Plan::default();
    if cx.yard.is_busy(&key) {
        plan.wait(&key, WaitReason::Busy, "its record is being written");
        return plan;
    }
    let machine = MachineView::of(cx, tracked);
    if let Life::Terminated { gone_at, .. } = tracked.instance.life {
        return terminating::decide(cx, tracked, gone_at);
    }
    if let Some((reason, note)) = machine.lost() {
        return machine.end(reason, note);
    }
    if let Some(plan) = machine.held() {
        return plan;
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

/// Ends a machine for a reason of its class.
pub(super) fn end(cx: &Context<'_>, tracked: &Tracked, reason: Reason, note: Note) -> Plan {
    MachineView::of(cx, tracked).end(reason, note)
}

/// Returns whether the provider must know the machine by now: a new machine may be unknown to it for a while.
fn settled(cx: &Context<'_>, instance: &Instance) -> bool {
    after(instance.facts.created_at, cx.policy.timing.orphan) <= cx.now.wall
}

/// Returns whether the agent's last heartbeat is fresh.
pub(super) fn fresh(cx: &Context<'_>, tracked: &Tracked) -> bool {
    tracked.beat.is_some_and(|beat| cx.now.seen.saturating_sub(beat.at) <= cx.policy.timing.stale)
}

/// Returns whether half of the time has passed after which the last heartbeat is no longer fresh.
pub(super) fn late(cx: &Context<'_>, tracked: &Tracked) -> bool {
    let half = cx.policy.timing.stale / 2;
    tracked.beat.is_none_or(|beat| cx.now.seen.saturating_sub(beat.at) > half)
}

/// One machine with everything that its decision reads.
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

    /// Returns the agent's signal for the claim that the record names.
    fn says(&self) -> Option<Signal> {
        let claim = self.instance.claim.as_ref().map_or("", |claim| claim.id.as_str());
        self.tracked.agent.as_ref().and_then(|agent| agent.says(claim))
    }

    /// Returns the agent's signal about the machine itself, whatever its claim.
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

    /// Moves the machine to its next state by the table of transitions, with the deadline of that state.
    fn go(&self, cause: Cause, note: Note, change: impl FnOnce(&mut Instance)) -> Plan {
        let step = self.step(cause, change);
        let github = self.at_github(&step);
        Plan::act(Planned::instance(step, note, github))
    }

    /// Keeps in the record what the statement about a claim says, where the step ends one.
    fn keep_end_of_claim(&self, step: &mut Step<Instance>) {
        if self.cx.policy.statements {
            statement::keep_end(step, self.tracked.agent.as_ref());
        }
    }

    fn step(&self, cause: Cause, change: impl FnOnce(&mut Instance)) -> Step<Instance> {
        let now = self.cx.now.wall;
        let mut step = Step::of(self.instance, now, |next| {
            if let Some(delivered) = self.cx.yard.delivered {
                next.forget(delivered);
            }
            change(next);
            if next.public_key.is_none() {
                next.public_key = self.tracked.agent.as_ref().and_then(|agent| agent.public_key.clone());
            }
            if next.place() != self.instance.place() {
                next.state_since = now;
            }
            next.threshold = self.deadline(next);
        });
        self.keep_end_of_claim(&mut step);
        debug_assert!(
            legal(step.before.place(), cause, step.after.place()),
            "{:?} -> {:?} for {cause:?} is not in the table",
            step.before.place(),
            step.after.place()
        );
        step
    }

    fn end(&self, reason: Reason, note: Note) -> Plan {
        if self.outlives(reason) {
            return self.hold(note);
        }
        self.go(Cause::Ended, note, |next| terminating::tombstone(next, reason))
    }

    /// Returns the reason that ends a machine in any live state, even one that a person holds: EC2 no longer has it or
    /// takes it back, or its agent belongs to another machine.
    fn lost(&self) -> Option<(Reason, Note)> {
        let tracked = self.tracked;
        if tracked.stands == Some(None) && self.cx.policy.inventory && settled(self.cx, self.instance) {
            return Some((Reason::Vanished, Note::warning("Vanished", "EC2 does not know it any more")));
        }
        match tracked.stands.flatten() {
            Some(MachineState::Stopped | MachineState::ShuttingDown | MachineState::Terminated) => {
                let why = tracked.why_ended.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("it stopped or ended by itself{why}");
                return Some((Reason::Vanished, Note::warning("Vanished", message)));
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
        self.instance.held().and_then(|_| self.interrupted())
    }

    /// Returns the reason that ends a machine in any live state.
    fn must_end(&self) -> Option<(Reason, Note)> {
        if self.says_of_boot() == Some(Signal::Failed) {
            let message = format!("first boot failed{}", self.detail());
            return Some((Reason::BootFailed, Note::warning("BootFailed", message)));
        }
        if self.instance.claim.is_some() && self.says() == Some(Signal::RemoveRegFailed) {
            let of = self.instance.claim.as_ref().and_then(|claim| claim.request.request());
            let of = of.map(|request| format!(" after jobs of {}", request.repository)).unwrap_or_default();
            let message = format!("it could not be cleaned{of}{}", self.detail());
            return Some((Reason::CleanupFailed, Note::warning("CleanupFailed", message)));
        }
        self.interrupted().or_else(|| self.passed(self.cx.now.wall))
    }

    /// Moves the machine to the pool. How long it stays depends on its class, so the class's record is read first if it
    /// is unknown.
    fn pool(&self, cause: Cause, note: Note) -> Plan {
        let now = self.cx.now.wall;
        if self.instance.hold.is_some() {
            return self.hold(note);
        }
        if let Some(key) = unread::class_to_look_at(self.cx.yard, &self.instance.facts.resource_class) {
            return Plan::act(Planned::look(key));
        }
        self.go(cause, note, |next| {
            next.life = Life::Idle { pooled_at: Some(now) };
            next.removal = None;
            next.retire_asked = None;
            next.runner = self.next_package();
            next.ahead = None;
        })
    }

    /// Returns the runner package that its next claim most likely gets, so that its agent can prepare it.
    fn next_package(&self) -> Option<RunnerPackage> {
        let pool = self.cx.yard.pool(&self.instance.facts.resource_class)?;
        Packages::of(self.cx, pool).usual.cloned()
    }

    /// Adds the times at which to look again although nothing changed.
    fn wakes(&self, plan: &mut Plan) {
        let now = self.cx.now;
        if let Some(threshold) = self.instance.threshold {
            let again = now.mono + Duration::from_secs(1);
            plan.wake_at(now.when(threshold.at).max(if threshold.at <= now.wall { again } else { now.mono }));
            if self.waits_for_github() || self.busy_until().is_some() {
                let quarter = threshold.at.duration_since(threshold.set_at) / 4;
                let near = threshold.at.saturating_sub(quarter).unwrap_or(Timestamp::MIN);
                plan.wake_at(now.when(near).max(now.mono + Duration::from_millis(100)));
            }
            plan.wait(
                self.instance.key(),
                WaitReason::Deadline,
                format!("in {} until {} at the latest", self.instance.state(), threshold.at),
            );
        }
        if let Some((until, doubt)) = self.put_off() {
            plan.wake_at(now.mono + until.saturating_sub(now.seen) + Duration::from_millis(1));
            plan.wait(self.instance.key(), WaitReason::Doubt, beats::told(doubt));
        } else if let Some(beat) = self.tracked.beat.filter(|beat| beat.seq > 0 && self.fresh()) {
            let left = (beat.at + self.cx.policy.timing.stale).saturating_sub(now.seen);
            plan.wake_at(now.mono + left + Duration::from_millis(1));
        }
        if let Some(at) = self.asked_until() {
            plan.wake_at(now.when(at));
        }
        // A deadline that has passed was handled already.
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
            && !self.cx.yard.is_unreadable(&claim.request)
            && plan.actions.is_empty()
        {
            plan.actions.push(Planned::look(claim.request.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
