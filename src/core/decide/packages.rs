//! Which runner package does a claim get? Where a class follows GitHub's list: the package that the class adopted, else
//! the one that the operator's file pins. A new version is first tried by a few claims of one class; all claims get it
//! once those runners listened and their runs are over. A version whose runner cannot be registered is held back for a
//! day.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{
    Adoption, ClaimId, HeldBack, Instance, Life, Pool, Reason, Record, RunnerPackage, RunnerTrial, Signal,
    after,
};
use crate::ports::github::{EndOfLife, RunnerSupport};
use crate::yard::{Class, Tracked, Yard};

use super::context::{Context, Followed, Policy};
use super::{Note, Plan, Planned, Step};

/// How long a version that failed is not tried again.
const HELD_BACK: Duration = Duration::from_secs(24 * 3600);
/// After how long another class of the architecture may try the version too: where the trying class has no claims, and
/// where it has some.
const QUIET: Duration = Duration::from_secs(600);
const SLOW: Duration = Duration::from_secs(3600);
/// How long before its date the end of a version's support is reported.
const SOON: Duration = Duration::from_secs(21 * 24 * 3600);
/// A version whose support ends within this time is replaced at once, tried or not.
const URGENT: Duration = Duration::from_secs(24 * 3600);

/// The packages that the claims of a class get now, by its record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packages<'a> {
    /// The package of all claims; none where machines use the package that they were launched with.
    pub(crate) usual: Option<&'a RunnerPackage>,
    /// The package that one more claim may try.
    pub(crate) trial: Option<&'a RunnerPackage>,
}

impl<'a> Packages<'a> {
    /// Returns the packages of a class. A trial counts once it is recorded.
    pub(crate) fn of(cx: &Context<'a>, pool: &'a Pool) -> Self {
        let Some(followed) = cx.policy.following.of(&pool.spec.launch) else { return Self::default() };
        let usual = usual(pool, followed);
        let class = cx.yard.class(&pool.spec.resource_class);
        let trial = pool.status.runner.trial.as_ref().zip(class).filter(|(trial, class)| {
            let seen = Seen::of(cx, class, trial);
            let claims = trial.claims.len() + seen.listening.len() + seen.in_flight;
            seen.failed.is_none() && claims < RunnerTrial::CLAIMS && trial.package.newer_than(usual)
        });
        Self { usual: Some(usual), trial: trial.map(|(trial, _)| &trial.package) }
    }

    /// Returns the packages for the next request of the same pass: only one request of a pass tries a package.
    pub(crate) fn next(&mut self) -> Self {
        std::mem::replace(self, Self { trial: None, ..*self })
    }

    /// Returns the package for the claim of this index within its request: the first one tries.
    pub(crate) fn for_claim(&self, number: usize) -> Option<RunnerPackage> {
        let trial = self.trial.filter(|_| number == 0);
        trial.or(self.usual).cloned()
    }
}

/// Returns the package that a class's claims get: the adopted one, unless the operator's file pins a newer one.
fn usual<'a>(pool: &'a Pool, followed: &'a Followed) -> &'a RunnerPackage {
    let adopted = pool.status.runner.adopted.as_ref();
    adopted.filter(|adopted| !followed.pinned.newer_than(adopted)).unwrap_or(&followed.pinned)
}

/// Returns why machines of a class would be of no use; none where the class does not follow GitHub's list.
pub(crate) fn unsupported(cx: &Context<'_>, pool: &Pool) -> Option<Option<String>> {
    let usual = Packages::of(cx, pool).usual?;
    let ended = support(cx, usual).and_then(|support| support.ended(cx.now.wall));
    Some(ended.map(|ended| format!("{ended}, and GitHub's list has no newer one for this class yet")))
}

fn support(cx: &Context<'_>, package: &RunnerPackage) -> Option<RunnerSupport> {
    support_of(cx.yard, package)
}

/// Returns GitHub's support dates for a version.
fn support_of(yard: &Yard, package: &RunnerPackage) -> Option<RunnerSupport> {
    let own = yard.ends.get(&package.version);
    let end = own.copied().or_else(|| {
        let pinned = yard.runner.as_ref()?;
        (pinned.version == package.version).then_some(pinned.end)
    })?;
    Some(RunnerSupport { version: package.version.clone(), end })
}

/// Returns the version that the claims of a class get and when its support ends, as far as GitHub reported it; none for
/// a class whose launch template brings its own.
pub fn runner_support(yard: &Yard, policy: &Policy, pool: &Pool) -> Option<RunnerSupport> {
    if pool.spec.launch.launch_template_id.is_some() {
        return None;
    }
    match policy.following.of(&pool.spec.launch) {
        Some(followed) => support_of(yard, usual(pool, followed)),
        None => yard.runner.clone(),
    }
}

/// Describes that GitHub's support for the version that a class's claims get ends soon, in words that hold until then.
pub(crate) fn ends_soon(cx: &Context<'_>, pool: &Pool) -> Option<String> {
    let support = runner_support(cx.yard, cx.policy, pool)?;
    let near = |at: &Timestamp| cx.now.wall < *at && *at <= after(cx.now.wall, SOON);
    let at = support.end.first().filter(near)?;
    Some(format!("GitHub's support of runner {} ends on {at}", support.version))
}

/// Returns the earliest ends of support of the versions that classes get; of the pinned version where there is no
/// class.
pub fn first_end(yard: &Yard, policy: &Policy) -> EndOfLife {
    let mut pools = yard.classes().filter_map(|(_, class)| class.pool.as_ref()).peekable();
    if pools.peek().is_none() {
        return yard.runner.as_ref().map(|support| support.end).unwrap_or_default();
    }
    let ends = pools.filter_map(|pool| runner_support(yard, policy, pool)).map(|support| support.end);
    ends.fold(EndOfLife::default(), |first, end| EndOfLife {
        registration: first.registration.into_iter().chain(end.registration).min(),
        runtime: first.runtime.into_iter().chain(end.runtime).min(),
    })
}

/// The state of the claims that try a package.
struct Seen {
    /// Claims whose runner listens and is not counted yet.
    listening: Vec<ClaimId>,
    /// How many are under way and do not listen yet.
    in_flight: usize,
    /// How many of the counted ones still run.
    running: usize,
    /// Why one failed.
    failed: Option<String>,
}

impl Seen {
    fn of(cx: &Context<'_>, class: &Class, trial: &RunnerTrial) -> Self {
        let mut seen = Self { listening: Vec::new(), in_flight: 0, running: 0, failed: None };
        let machines = class.packages.get(&trial.package.sha256).into_iter().flatten();
        for tracked in machines.filter_map(|arn| cx.yard.instance(arn)) {
            let Some(claim) = &tracked.instance.claim else { continue };
            let counted = trial.claims.contains(&claim.id);
            match tracked.instance.life {
                Life::Running { .. } if counted => seen.running += 1,
                Life::Running { .. } => seen.listening.push(claim.id.clone()),
                Life::Created { .. } | Life::Claimed { .. } => seen.in_flight += 1,
                Life::Idle { .. } | Life::Terminated { .. } => {}
            }
            // A machine that ended before belongs to an earlier trial.
            if seen.failed.is_none() && tracked.instance.state_since >= trial.since {
                seen.failed = failed(tracked, &claim.id, counted);
            }
        }
        seen.listening.truncate(RunnerTrial::CLAIMS.saturating_sub(trial.claims.len()));
        seen
    }
}

/// Describes how the runner of a claim failed, if it did. A machine that was launched for its claim may miss its
/// deadline for many other reasons.
fn failed(tracked: &Tracked, claim: &ClaimId, listened: bool) -> Option<String> {
    let Instance { life, facts, .. } = &tracked.instance;
    let id = &facts.instance_id;
    let agent = tracked.agent.as_ref();
    let says = agent.and_then(|agent| agent.says(claim.as_str()));
    let detail = agent.and_then(|agent| agent.signal_detail.as_deref()).unwrap_or("no reason is known");
    let refused = says == Some(Signal::RegFailed);
    match life {
        Life::Idle { .. } | Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => {
            refused.then(|| format!("the runner of {id} could not be registered: {detail}"))
        }
        Life::Terminated { reason: Reason::RegistrationFailed, .. } => {
            Some(format!("the runner of {id} could not be registered: {detail}"))
        }
        Life::Terminated { reason: Reason::Threshold, .. } => {
            let pooled = *claim != ClaimId::of(id, 1);
            (pooled && !listened).then(|| format!("the runner of {id} did not listen in time"))
        }
        Life::Terminated { .. } => None,
    }
}

/// Advances a class to new versions, in a separate write where something changes.
pub(crate) fn adopt(cx: &Context<'_>, class: &Class, pool: &Pool, plan: &mut Plan) {
    let Some(followed) = cx.policy.following.of(&pool.spec.launch) else { return };
    let taken = plan.actions.iter().any(|planned| planned.holds(pool.key()));
    if cx.role.lease.is_none() || taken || cx.yard.is_busy(pool.key()) {
        return;
    }
    let (next, notes) = judged(cx, class, pool, followed);
    wake(cx, pool, followed, plan);
    if next != pool.status.runner {
        let step = Step::of(pool, cx.now.wall, |pool| pool.status.runner = next);
        plan.actions.push(Planned::adoption(step, notes));
    }
}

/// Adds the times at which the judgement changes by itself.
fn wake(cx: &Context<'_>, pool: &Pool, followed: &Followed, plan: &mut Plan) {
    let held_back = pool.status.runner.held_back.as_ref().map(|held| after(held.at, HELD_BACK));
    let usual = usual(pool, followed);
    let end = support(cx, usual).and_then(|support| support.end.first());
    let urgent =
        end.and_then(|end| end.checked_sub(jiff::SignedDuration::from_secs(URGENT.as_secs() as i64)).ok());
    let offered = cx.yard.latest.get(&followed.architecture).is_some_and(|offer| offer.newer_than(usual));
    let quiet = offered.then(|| quiet_until(cx, followed)).flatten();
    for at in [held_back, end, urgent, quiet].into_iter().flatten().filter(|at| *at > cx.now.wall) {
        plan.wake_at(cx.now.when(at));
    }
}

/// Computes the adoption state of a class from its trial, and the notes for people.
fn judged(cx: &Context<'_>, class: &Class, pool: &Pool, followed: &Followed) -> (Adoption, Vec<Note>) {
    let (mut next, mut notes, now) = (pool.status.runner.clone(), Vec::new(), cx.now.wall);
    let before = usual(pool, followed);
    if let Some(trial) = next.trial.take() {
        let seen = Seen::of(cx, class, &trial);
        match seen.failed {
            Some(message) => {
                let version = &trial.package.version;
                let told =
                    format!("runner {version} is held back for a day, {} goes on: {message}", before.version);
                notes.push(Note::warning("RunnerHeldBack", told));
                next.held_back = Some(HeldBack { package: trial.package, at: now, message });
            }
            None => {
                let mut trial = trial;
                let running = seen.running + seen.listening.len();
                trial.claims.extend(seen.listening);
                if trial.claims.len() >= RunnerTrial::CLAIMS && running == 0 {
                    notes.push(adopted(&trial.package, "its first claims ran with it"));
                    next.adopted = Some(trial.package);
                } else {
                    next.trial = Some(trial);
                }
            }
        }
    }
    let old = |held: &HeldBack| after(held.at, HELD_BACK) <= now;
    next.held_back = next.held_back.filter(|held| !old(held));
    let current = next.adopted.clone().filter(|adopted| !followed.pinned.newer_than(adopted));
    let current = current.unwrap_or_else(|| followed.pinned.clone());
    let Some(offer) = cx.yard.latest.get(&followed.architecture) else { return (next, notes) };
    if !offer.newer_than(&current) {
        // A version that GitHub no longer lists is not tried any further.
        next.trial = None;
    } else if let Some(why) = at_once(cx, pool, followed, &current, offer) {
        notes.push(adopted(offer, why));
        next.adopted = Some(offer.clone());
        next.trial = None;
    } else if is_held_back(cx, pool, followed, offer, &next) {
        next.trial = None;
    } else if next.trial.as_ref().is_none_or(|trial| trial.package != *offer)
        && is_first(cx, pool, followed, offer)
    {
        let message = format!("the next {} claims try runner {}", RunnerTrial::CLAIMS, offer.version);
        notes.push(Note::normal("RunnerTried", message));
        next.trial = Some(RunnerTrial { package: offer.clone(), claims: Vec::new(), since: now });
    }
    (next, notes)
}

fn adopted(package: &RunnerPackage, why: &str) -> Note {
    Note::normal("RunnerAdopted", format!("claims get runner {} from now on: {why}", package.version))
}

/// Returns why an offer is adopted without a trial in this class.
fn at_once(
    cx: &Context<'_>,
    pool: &Pool,
    followed: &Followed,
    current: &RunnerPackage,
    offer: &RunnerPackage,
) -> Option<&'static str> {
    let end = support(cx, current).and_then(|support| support.end.first());
    if end.is_some_and(|end| end <= after(cx.now.wall, URGENT)) {
        return Some("GitHub's support of the former one ends");
    }
    let elsewhere = peers(cx, pool, followed).any(|peer| peer.status.runner.adopted.as_ref() == Some(offer));
    elsewhere.then_some("another class ran with it")
}

/// Returns whether an offer failed in a class of the architecture less than a day ago.
fn is_held_back(
    cx: &Context<'_>,
    pool: &Pool,
    followed: &Followed,
    offer: &RunnerPackage,
    own: &Adoption,
) -> bool {
    let fails = |adoption: &Adoption| {
        adoption.held_back.as_ref().is_some_and(|held| {
            held.package.sha256 == offer.sha256 && after(held.at, HELD_BACK) > cx.now.wall
        })
    };
    fails(own) || peers(cx, pool, followed).any(|peer| fails(&peer.status.runner))
}

/// Returns whether this class is the one that tries an offer: no other does, and it is the first that has work, else
/// the first.
fn is_first(cx: &Context<'_>, pool: &Pool, followed: &Followed, offer: &RunnerPackage) -> bool {
    let tries = |peer: &Pool| {
        let trial = peer.status.runner.trial.as_ref().filter(|trial| trial.package == *offer);
        trial.is_some_and(|trial| alone_until(trial) > cx.now.wall)
    };
    if peers(cx, pool, followed).any(tries) {
        return false;
    }
    let place = |pool: &Pool| {
        let idle =
            cx.yard.class(&pool.spec.resource_class).is_none_or(|class| class.waiting.all().is_empty());
        let quiet = pool.status.runner.trial.as_ref().is_some_and(|trial| trial.package == *offer);
        (pool.spec.paused, quiet, idle, pool.spec.resource_class.clone())
    };
    let own = place(pool);
    peers(cx, pool, followed).all(|peer| place(peer) > own)
}

/// Returns until when no other class tries the version.
fn alone_until(trial: &RunnerTrial) -> Timestamp {
    after(trial.since, if trial.claims.is_empty() { QUIET } else { SLOW })
}

/// Returns when another class may try an offer besides the class that does.
fn quiet_until(cx: &Context<'_>, followed: &Followed) -> Option<Timestamp> {
    let trials = followers(cx, followed).filter_map(|pool| pool.status.runner.trial.as_ref());
    trials.map(alone_until).max()
}

fn followers<'a>(cx: &Context<'a>, followed: &'a Followed) -> impl Iterator<Item = &'a Pool> {
    let policy = cx.policy;
    let pools = cx.yard.classes().filter_map(|(_, class)| class.pool.as_ref());
    pools.filter(move |pool| {
        let other = policy.following.of(&pool.spec.launch);
        other.is_some_and(|other| other.architecture == followed.architecture)
    })
}

fn peers<'a>(cx: &Context<'a>, pool: &'a Pool, followed: &'a Followed) -> impl Iterator<Item = &'a Pool> {
    let name = &pool.spec.resource_class;
    followers(cx, followed).filter(move |peer| peer.spec.resource_class != *name)
}

#[cfg(test)]
mod tests;
