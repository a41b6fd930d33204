//! A runner that was registered ahead: registered and confirmed while its machine is pooled, labelled for the run once
//! a claim is written, and deleted where the claim goes the normal way instead.

use std::time::Duration;

use jiff::SignedDuration;

use crate::decide::ahead::ahead_place;
use crate::decide::context::Context;
use crate::decide::{AtGitHub, Credential, Note, Plan, Planned, RunnerConfig, Step};
use crate::model::{Ahead, AheadPlace, Cause, Instance, Life, PoolSpec, Repository};
use crate::yard::Tracked;

use super::MachineView;

/// How long a machine's record must be unchanged before its runner is replaced by one of another package.
const RESTED: SignedDuration = SignedDuration::from_secs(60);
/// After this time a runner that its agent reports and GitHub does not know is another's, or was deleted.
const UNKNOWN: Duration = Duration::from_secs(300);
/// After this many calls without a response, the claim goes the normal way.
const PATIENCE: u32 = 3;
/// The count of calls that stands for a label that GitHub refused for good.
const REFUSED: u32 = u32::MAX;

/// Returns whether the agent reports the runner that the record names, and its number if it listens.
fn reported(tracked: &Tracked, ahead: &Ahead) -> Option<Option<u64>> {
    let report = tracked.agent.as_ref()?.ahead.as_ref()?;
    (report.id == ahead.id.as_str()).then(|| report.runner_id.filter(|_| report.listening))
}

/// Returns the runner of a pooled machine that a request of this repository can use; none where it must register its
/// own. Both records must report that the runner listens, and it must be registered where a runner of this repository
/// would be.
pub(in crate::decide) fn lendable(
    cx: &Context<'_>,
    tracked: &Tracked,
    spec: &PoolSpec,
    repository: &Repository,
) -> Option<Ahead> {
    let ahead = tracked.instance.ahead.as_ref()?;
    let ready = ahead.runner_id.is_some() && reported(tracked, ahead).flatten() == ahead.runner_id;
    if !ready {
        return None;
    }
    let folded = repository.folded();
    let place = ahead_place(cx, spec, &tracked.instance.trust_domain)?;
    if place.trust_domain() != tracked.instance.trust_domain {
        return None;
    }
    let here = match place {
        AheadPlace::Repository(name) => name == folded.as_str(),
        AheadPlace::Owner(owner) => owner == folded.owner(),
    };
    here.then(|| ahead.clone())
}

impl MachineView<'_> {
    /// Returns the action for the runner of a pooled machine, if any.
    pub(super) fn at_rest(&self) -> Option<Planned> {
        if !self.cx.policy.github || self.cx.yard.github_is_away(self.tracked) || !self.fresh() {
            return None;
        }
        let (spec, instance) = (self.spec?, self.instance);
        let place = ahead_place(self.cx, spec, &instance.trust_domain).filter(|_| !spec.paused);
        match (&instance.ahead, place) {
            (None, Some(place)) => {
                let due = self.tracked.rest.is_first() || self.asks_again();
                due.then(|| self.register_ahead(spec, place)).flatten()
            }
            (Some(_), Some(place)) if place.trust_domain() != instance.trust_domain => {
                Some(self.forget_ahead(None, "Unregistered", "its class lets more repositories use it again"))
            }
            // The package that its agent has prepared since then is of no use to a claim that takes this runner.
            (Some(_), Some(_)) if self.rested() && instance.runner != self.next_package() => {
                Some(self.forget_ahead(None, "Unregistered", "its class runs another runner package by now"))
            }
            (Some(ahead), Some(place)) => match (reported(self.tracked, ahead), ahead.runner_id) {
                // GitHub or its agent gave it up: the version was refused, it was deleted, or its process ended.
                (None, _) => self.asks_again().then(|| self.register_ahead(spec, place)).flatten(),
                (Some(Some(_)), None) if self.unknown_for_long() => self.register_ahead(spec, place),
                (Some(Some(number)), None) => Some(self.confirm_ahead(ahead, place, number)),
                (Some(None), None) | (Some(_), Some(_)) => None,
            },
            // Its class no longer registers runners ahead.
            (Some(_), None) => {
                Some(self.forget_ahead(None, "Unregistered", "its class registers no runner ahead"))
            }
            (None, None) => None,
        }
    }

    fn rested(&self) -> bool {
        self.cx.now.wall.duration_since(self.instance.updated_at) >= RESTED
    }

    /// Returns whether the machine may be given another runner: each time after a longer pause.
    fn asks_again(&self) -> bool {
        self.cx.now.mono >= self.tracked.rest.again_at()
    }

    /// Returns whether GitHub does not know the runner that its agent reports, although it was registered long ago.
    fn unknown_for_long(&self) -> bool {
        let rest = self.tracked.rest;
        self.cx.now.mono >= rest.again_at().max(rest.at().saturating_add(UNKNOWN))
    }

    fn register_ahead(&self, spec: &PoolSpec, place: AheadPlace) -> Option<Planned> {
        let shown = self.tracked.agent.as_ref().and_then(|agent| agent.public_key.as_ref());
        let key = self.instance.public_key.as_ref().or(shown)?;
        let mut read = self.instance.clone();
        read.public_key.get_or_insert_with(|| key.clone());
        // The runner is registered for this place alone, so the machine serves no other trust domain from now on.
        let step = Step::of(&read, self.cx.now.wall, |next| next.trust_domain = place.trust_domain());
        let former = self.instance.ahead.as_ref().and_then(|ahead| ahead.runner_id);
        let group = spec.runner_group.clone();
        Some(Planned::registered_ahead(step, Credential::Ahead { place, group, former }))
    }

    fn confirm_ahead(&self, ahead: &Ahead, place: AheadPlace, number: u64) -> Planned {
        let step = Step::of(self.instance, self.cx.now.wall, |next| {
            next.ahead = Some(Ahead { id: ahead.id.clone(), runner_id: Some(number) });
            next.registration = None;
        });
        let name = Ahead::name_of(&ahead.id);
        Planned::ahead(step, None, AtGitHub::Confirm { place, number, name })
    }

    /// Plans the step of a claimed machine whose runner was registered ahead and lacks only the label of its run.
    pub(super) fn lent_ahead(&self) -> Option<Plan> {
        let Life::Claimed { run } = &self.instance.life else { return None };
        let (ahead, claim) = (self.instance.ahead.as_ref()?, self.instance.claim.as_ref()?);
        let runner = RunnerConfig::of(self.request?, self.spec?);
        let failures = self.tracked.unlabelled.as_ref().filter(|(of, _)| *of == claim.id);
        let failures = failures.map_or(0, |(_, times)| *times);
        let number = ahead.runner_id.filter(|_| reported(self.tracked, ahead).is_some());
        let Some(number) = number.filter(|_| failures < PATIENCE) else {
            let why = match (number, failures) {
                (None, _) => "its agent has that runner no more",
                (Some(_), REFUSED) => "GitHub refuses the label",
                (Some(_), _) => "GitHub did not answer for the label",
            };
            return Some(Plan::act(self.forget_ahead(Some(runner), "AheadGivenUp", why)));
        };
        if !self.fresh() {
            return None;
        }
        let run = run.clone();
        let note =
            Note::normal("Registered", format!("its runner, registered ahead, has the label of run {run}"));
        let step = self.step(Cause::Registered, |next| {
            next.life = Life::Running { run };
            next.uses += 1;
            next.registration = None;
        });
        Some(Plan::act(Planned::ahead(step, Some(note), AtGitHub::Label { runner, number })))
    }

    /// Plans the deletion of the runner, which comes first: as long as it exists, no other runner may have the label of
    /// the run.
    fn forget_ahead(&self, runner: Option<RunnerConfig>, reason: &'static str, why: &str) -> Planned {
        let number = self.instance.ahead.as_ref().and_then(|ahead| ahead.runner_id);
        let place = match &runner {
            Some(runner) => Some(AheadPlace::Repository(runner.request.repository.to_string())),
            None => AheadPlace::of(&self.instance.trust_domain),
        };
        let step = Step::of(self.instance, self.cx.now.wall, |next: &mut Instance| {
            next.ahead = None;
            next.registration = None;
            if next.run().is_none() {
                next.runner = self.next_package();
            }
        });
        let note = Note::normal(reason, format!("{why}: that runner is removed"));
        let number = place.zip(number);
        Planned::ahead(step, Some(note), AtGitHub::Forget { number, runner })
    }
}
