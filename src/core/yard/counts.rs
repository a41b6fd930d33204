//! Counts machines in their class, turns failed boots into a backoff of launches, and returns what is counted over all
//! records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::sums::{SetKey, SlotsOfSet};
use super::{Class, LaunchBackoff, Now, Tracked, Unit, Yard, run_and_name_of};
use crate::model::{
    ClassName, Instance, InstanceArn, Life, Phase, Reason, Repository, Request, RequestKey, State, UsageClass,
};

/// Longest backoff of a class's launches.
const LAUNCH_BACKOFF_MOST: Duration = Duration::from_secs(300);
/// Failures to boot in a row before launches back off.
const BOOT_FAILURES: u32 = 3;

impl LaunchBackoff {
    pub(crate) fn fail(&mut self, now: Duration, free: u32) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > free {
            let steps = (self.failures - free - 1).min(8);
            self.until = now + (Duration::from_secs(2) * 2_u32.pow(steps)).min(LAUNCH_BACKOFF_MOST);
        }
    }
}

/// Counts failures to boot in a row, after which launches back off, and spot machines that EC2 took back.
pub(crate) fn boots(
    classes: &mut BTreeMap<ClassName, Class>,
    old: Option<&Instance>,
    new: &Instance,
    now: &Now,
) {
    let class = classes.entry(new.facts.resource_class.clone()).or_default();
    let was_live = old.is_some_and(|old| old.state().live());
    if let Life::Terminated { reason: Reason::Interrupted | Reason::Vanished, .. } = new.life
        && was_live
        && new.facts.usage_class == UsageClass::Spot
    {
        class.spot.add(now.mono, class.spot.live);
    }
    if let Some(line) = new.console.as_ref().filter(|_| old.is_some_and(|old| old.console.is_none())) {
        class.last_console = Some(format!("{}: {line}", new.facts.instance_id));
    }
    let was_created = old.is_some_and(|old| old.state() == State::Created);
    match new.life {
        Life::Terminated { reason, .. } if was_created => match reason {
            Reason::Threshold
            | Reason::BootFailed
            | Reason::RegistrationFailed
            | Reason::Unhealthy
            | Reason::Vanished => class.backoff.fail(now.mono, BOOT_FAILURES),
            Reason::CleanupFailed
            | Reason::Interrupted
            | Reason::Drifted
            | Reason::Surplus
            | Reason::MaxUses
            | Reason::MaxAge
            | Reason::Expired
            | Reason::Orphan => {}
        },
        Life::Running { .. } | Life::Idle { pooled_at: Some(_) } if was_created => {
            class.backoff = LaunchBackoff::default();
            class.last_console = None;
            let took = new.state_since.duration_since(new.facts.created_at);
            class.boots.took(Duration::try_from(took).unwrap_or_default());
        }
        Life::Created { .. }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Idle { .. }
        | Life::Terminated { .. } => {}
    }
}

/// Updates the index of when the agents of a class last beat.
pub(crate) fn spoke(
    classes: &mut BTreeMap<ClassName, Class>,
    class: &ClassName,
    before: Option<Duration>,
    after: Option<Duration>,
) {
    if before != after
        && let Some(class) = classes.get_mut(class)
    {
        class.beats.change(before, after);
    }
}

/// Adds a machine to its class's counts or removes it, and marks its class and its request dirty.
pub(crate) fn tally(
    classes: &mut BTreeMap<ClassName, Class>,
    arn: &InstanceArn,
    instance: &Instance,
    add: bool,
    dirty: &mut BTreeSet<Unit>,
) {
    let name = &instance.facts.resource_class;
    dirty.insert(Unit::Class(name.clone()));
    dirty.extend(instance.claim.iter().filter_map(|claim| Unit::of_request(&claim.request)));
    let class = classes.entry(name.clone()).or_default();
    let spec = class.pool.as_ref().map(|pool| &pool.spec);
    if add {
        class.idle.add(arn, instance, spec, false);
    } else {
        class.idle.remove(arn, instance, spec);
    }
    class.kinds.change(instance, add);
    let shift = |n: &mut u32| *n = if add { *n + 1 } else { n.saturating_sub(1) };
    if instance.state().live() {
        if instance.facts.usage_class == UsageClass::Spot {
            shift(&mut class.spot.live);
        }
        shift(class.counts.entry(instance.state()).or_default());
    }
    if let Some(package) = instance.runner.as_ref().filter(|_| instance.pooled_at().is_none()) {
        let machines = class.packages.entry(package.sha256.clone()).or_default();
        if add {
            machines.insert(arn.clone())
        } else {
            machines.remove(arn)
        };
        if machines.is_empty() {
            class.packages.remove(&package.sha256);
        }
    }
    if instance.state() == State::Created {
        let place = (instance.facts.created_at, arn.clone());
        if add {
            class.starting.insert(place)
        } else {
            class.starting.remove(&place)
        };
    }
    match &instance.life {
        Life::Created { run: None } => shift(&mut class.warm_created),
        // It is live, and counts towards `max`, but it does not return to the pool.
        Life::Idle { pooled_at: None } if instance.hold.is_some() => shift(&mut class.held),
        Life::Idle { pooled_at: None } => shift(&mut class.cleaning),
        Life::Idle { pooled_at: Some(_) } => tally_pooled(class, arn, instance, add),
        Life::Terminated { reason: Reason::Drifted, gone_at: None } if add => {
            class.leaving.departing.insert(arn.clone());
        }
        Life::Created { run: Some(_) }
        | Life::Claimed { .. }
        | Life::Running { .. }
        | Life::Terminated { .. } => drop(class.leaving.departing.remove(arn)),
    }
}

/// Indexes a pooled machine that EC2 expects to take back, after its record or its notice changed.
pub(super) fn risks(classes: &mut BTreeMap<ClassName, Class>, tracked: &Tracked) {
    let facts = &tracked.instance.facts;
    let Some(class) = classes.get_mut(&facts.resource_class) else { return };
    let age = (facts.created_at, facts.instance_arn.clone());
    if tracked.is_at_risk() && tracked.instance.pooled_at().is_some() {
        class.leaving.at_risk.insert(age)
    } else {
        class.leaving.at_risk.remove(&age)
    };
}

/// Adds a pooled machine to the indexes of its class's pool, or removes it.
fn tally_pooled(class: &mut Class, arn: &InstanceArn, instance: &Instance, add: bool) {
    let place = (instance.threshold.map_or(Timestamp::MAX, |t| t.at), arn.clone());
    class.free_is(instance, &place, add);
    if add {
        class.pooled.insert(place)
    } else {
        class.pooled.remove(&place)
    };
    let age = (instance.facts.created_at, arn.clone());
    if add && class.drift(instance).is_some() {
        class.leaving.drifted.insert(age.clone());
    } else {
        class.leaving.drifted.remove(&age);
    }
    if !add {
        class.leaving.at_risk.remove(&age);
    }
    if add && class.is_expired(instance) {
        class.leaving.expired.insert(arn.clone());
    } else {
        class.leaving.expired.remove(arn);
    }
    if add {
        class.ages.insert(age)
    } else {
        class.ages.remove(&age)
    };
}

impl Yard {
    /// Lists the phases that requests of each class are in, and how many there are.
    pub fn phases(&self) -> impl Iterator<Item = (&str, Phase, usize)> {
        self.sums.phases.all()
    }

    /// Returns when the oldest request was accepted that waits for machines of a class.
    pub fn oldest_waiting(&self, class: &str) -> Option<Timestamp> {
        self.sums.phases.oldest(class)
    }

    /// Lists the slots of each runner scale set.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&SetKey, &SlotsOfSet)> {
        self.sums.slots.all()
    }

    /// Lists the repositories that have requests.
    pub fn repositories(&self) -> impl Iterator<Item = &Repository> {
        self.sums.repositories.keys()
    }

    /// Returns the requests that changed, came or went since the last call; none where all may have.
    pub fn take_changed(&mut self) -> Option<BTreeSet<RequestKey>> {
        self.sums.changed.replace(BTreeSet::new())
    }

    /// Counts the machines that are past their deadline for longer than a grace.
    pub fn over_deadline(&self, now: Timestamp, grace: SignedDuration) -> usize {
        let late = |pooled: &BTreeSet<(Timestamp, InstanceArn)>| {
            pooled.iter().take_while(|(at, _)| now.duration_since(*at) > grace).count()
        };
        let pooled: usize = self.classes.values().map(|class| late(&class.pooled)).sum();
        // To the second: a machine's gauge need not be closer.
        let before = now.as_second().saturating_sub(grace.as_secs());
        pooled + self.sums.deadlines.range(..before).map(|(_, machines)| machines).sum::<usize>()
    }

    /// Lists the spot machines that were taken back from a request.
    pub fn taken_back(&self) -> impl Iterator<Item = &Instance> {
        self.sums.lost.iter().filter_map(|arn| self.instances.get(arn)).map(|tracked| &tracked.instance)
    }

    /// Returns whether no run of the same repository with a greater number has requests. Runs whose ids are no numbers
    /// are not GitHub's.
    pub(crate) fn is_of_last_run(&self, key: &RequestKey) -> bool {
        let of_repository = format!("{}#", key.repository.folded());
        let is_number = |run: &str| run.starts_with(|first: char| first.is_ascii_digit());
        if !is_number(key.run_id.as_str()) {
            return false;
        }
        let (run, _) = run_and_name_of(key);
        // No name begins with the last character of ASCII, and `:` follows the digits.
        let (from, to) = ((run, "\u{7f}".to_owned()), (format!("{of_repository}:"), String::new()));
        self.attempts.range(from..to).next().is_none()
    }

    /// Lists the requests of a run.
    pub fn requests_of_run(&self, key: &RequestKey) -> impl Iterator<Item = (&RequestKey, &Request)> {
        let (run, _) = run_and_name_of(key);
        let names = self.attempts.range((run.clone(), String::new())..);
        let names = names.take_while(move |((of, _), _)| *of == run).flat_map(|(_, attempts)| attempts);
        names.filter_map(|(_, key)| Some((key, &self.requests.get(key)?.request)))
    }
}
