//! The operator's metrics. One registry, cheap to share, whose series all exist at 0 before anything happens, so that a
//! rule on a rate never waits for a first event. Labels are bounded: no id is ever one, and an undeclared class is
//! counted as [`OTHER`].
//!
//! Over 400 lines: one method for each thing that is counted.

mod classes;
mod cleanups;
mod families;
mod machines;
#[cfg(test)]
mod port_tests;
pub mod ports;
mod sets;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus::{Registry, TextEncoder};

pub use classes::OTHER;
pub use machines::{Activity, Found, Part};
pub use ports::Metered;

use crate::decide::Unserved;
use crate::explain::{SetReport, ShareReport};
use crate::model::{
    ClassName, InterruptionAction, Phase, ReadySource, Reason, State, TRANSITIONS, UsageClass, words,
};
use crate::ports::github::EndOfLife;
use crate::ports::{Clock, QueueDepth};
use crate::yard::BackoffKind;
use classes::Classes;
use cleanups::CleanUps;
use families::Families;
use machines::LeaseSeen;
use sets::Sets;
use shares::Shares;

words! {
    /// The outcome of a pool queue's message.
    QueueOutcome {
        /// Sent for a free machine.
        Announced = "announced",
        /// The announced machine was claimed.
        Claimed = "claimed",
        /// The announced machine is still free; it is announced anew.
        Returned = "returned",
        /// The record contradicts the message.
        Stale = "stale",
        /// The message cannot be parsed; sent to the dead letters.
        Unreadable = "unreadable",
    }
}

/// The outcomes of messages from GitHub's webhook: heard, and about no job of a repository.
const RINGS: [&str; 2] = ["heard", "ignored"];

/// The value of the label `from` for a machine without a previous state.
const NOWHERE: &str = "none";

/// The operator's metrics; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    registry: Registry,
    families: Families,
    changing: Mutex<Changing>,
}

/// Values that are converted to numbers at each scrape.
struct Changing {
    classes: Classes,
    /// When the table was last listed completely, on the monotonic clock; at first the start.
    resynced: Duration,
    /// When the stream last responded, likewise.
    streamed: Duration,
    /// Since when the oldest waiting request of a class waits.
    waiting: BTreeMap<String, Timestamp>,
    lease: Option<LeaseSeen>,
    shares: Shares,
    sets: Sets,
    clean_ups: CleanUps,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates a registry with every series that has no class; those follow with [`Metrics::class`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let registry = Registry::new();
        let families = Families::register(&registry);
        for transition in TRANSITIONS {
            let to = transition.to.state().expect("every transition leads to a state");
            families.transitions.with_label_values(&[from_label(transition.from.state()), to.as_str()]);
        }
        for reason in Reason::ALL {
            families.terminations.with_label_values(&[reason.as_str()]);
        }
        for outcome in QueueOutcome::ALL {
            families.queue_messages.with_label_values(&[outcome.as_str()]);
        }
        for outcome in RINGS {
            families.job_rings.with_label_values(&[outcome]);
        }
        for reason in Unserved::REASONS {
            families.jobs_not_served.with_label_values(&[OTHER, reason]);
        }
        for action in InterruptionAction::ALL {
            families.interruptions.with_label_values(&[action.as_str()]);
        }
        for (service, operations, outcomes) in ports::SERIES {
            for operation in *operations {
                if *operation != ports::LOOK {
                    families.backend_seconds.with_label_values(&[service, operation]);
                }
                for outcome in *outcomes {
                    families.backend_requests.with_label_values(&[service, operation, outcome]);
                }
            }
        }
        let now = clock.elapsed();
        let (classes, waiting, shares) = (Classes::default(), BTreeMap::new(), Shares::register(&registry));
        let (sets, clean_ups) = (Sets::register(&registry), CleanUps::register(&registry));
        let changing =
            Changing { classes, resynced: now, streamed: now, waiting, lease: None, shares, sets, clean_ups };
        Self(Arc::new(Inner { clock, registry, families, changing: Mutex::new(changing) }))
    }

    fn families(&self) -> &Families {
        &self.0.families
    }

    fn changing(&self) -> MutexGuard<'_, Changing> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the label of a class, declared or not.
    fn label<'a>(&self, class: &'a str) -> &'a str {
        self.changing().classes.label(class)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.clock.elapsed()
    }

    /// Declares a class: its series exist from now on. To be called for every pool that is seen.
    pub fn class(&self, class: &ClassName) {
        self.changing().classes.declare(class.as_str(), self.families());
    }

    /// Drops the series of a class whose pool and machines are gone.
    pub fn forget(&self, class: &ClassName) {
        let mut changing = self.changing();
        changing.waiting.remove(class.as_str());
        changing.shares.set(class.as_str(), Vec::new());
        changing.sets.set(class.as_str(), &[]);
        changing.classes.forget(class.as_str(), self.families());
    }

    /// Sets how many machines of a class are in a state.
    pub fn instances(&self, class: &ClassName, state: State, n: usize) {
        let mut changing = self.changing();
        changing.classes.declare(class.as_str(), self.families());
        let gauge = &self.families().instances;
        changing.classes.instances.set(gauge, class.as_str(), state.as_str(), n);
    }

    /// Sets how many idle machines of a class are wanted now.
    pub fn pool_desired(&self, class: &ClassName, n: usize) {
        let mut changing = self.changing();
        changing.classes.declare(class.as_str(), self.families());
        changing.classes.desired.set(&self.families().pools.desired, class.as_str(), "", n);
    }

    /// Sets how many live machines a class may have, and whether it is paused.
    pub fn pool_bounds(&self, class: &ClassName, max: usize, paused: bool) {
        let mut changing = self.changing();
        changing.classes.declare(class.as_str(), self.families());
        changing.classes.max.set(&self.families().pools.max, class.as_str(), "", max);
        changing.classes.paused.set(&self.families().pools.paused, class.as_str(), "", usize::from(paused));
    }

    /// Sets how many requests for a class, by the name in the requests, are in a phase.
    pub fn requests(&self, class: &str, phase: Phase, n: usize) {
        let gauge = &self.families().requests;
        self.changing().classes.requests.set(gauge, class, phase.as_str(), n);
    }

    /// Sets whether a backoff of a class is open.
    pub fn backoff(&self, class: &ClassName, backoff: BackoffKind, open: bool) {
        let mut changing = self.changing();
        changing.classes.declare(class.as_str(), self.families());
        let gauge = &self.families().backoffs;
        changing.classes.backoffs.set(gauge, class.as_str(), backoff.as_str(), usize::from(open));
    }

    /// Records that a request became ready, this long after it was accepted.
    pub fn request_ready(&self, class: &str, source: ReadySource, after: Duration) {
        let labels = [self.label(class), source.as_str()];
        self.families().request_ready.with_label_values(&labels).observe(after.as_secs_f64());
    }

    /// Counts a failed request by the reason in its condition.
    pub fn request_failed(&self, class: &str, reason: &str) {
        let reason = classes::FAILURES.iter().find(|one| **one == reason).unwrap_or(&"Other");
        self.families().request_failures.with_label_values(&[self.label(class), reason]).inc();
    }

    /// Counts the parts of a scale set's message that this program does not know.
    pub fn scale_set_unknown(&self, parts: u32) {
        self.families().scale_set_unknown.inc_by(u64::from(parts));
    }

    /// Counts queued jobs whose label gets no machine, under the class that it names.
    pub fn jobs_not_served(&self, why: &Unserved, jobs: u32) {
        let class = why.class().map_or(OTHER, ClassName::as_str);
        let labels = [self.label(class), why.reason()];
        self.families().jobs_not_served.with_label_values(&labels).inc_by(u64::from(jobs));
    }

    /// Sets the shares of a class; empty if it has no `sharing`. The 20 with the highest use have series of their own.
    pub fn shares(&self, class: &ClassName, shares: Vec<ShareReport>) {
        let mut changing = self.changing();
        if changing.classes.label(class.as_str()) == class.as_str() {
            changing.shares.set(class.as_str(), shares);
        }
    }

    /// Sets the present scale sets of a class; empty if it has none. The first 20 places have series of their own.
    pub fn sets(&self, class: &ClassName, sets: &[SetReport]) {
        let mut changing = self.changing();
        if changing.classes.label(class.as_str()) == class.as_str() {
            changing.sets.set(class.as_str(), sets);
        }
    }

    /// Sets how many consecutive clean-ups failed after jobs of each repository. The 20 with the most have series of
    /// their own.
    pub fn failed_cleanups<'a>(&self, failed: impl Iterator<Item = (&'a str, usize)>) {
        self.changing().clean_ups.set(failed);
    }

    /// Sets since when the oldest request of a class waits; `None` if none does.
    pub fn oldest_waiting(&self, class: &str, since: Option<Timestamp>) {
        let waiting = &mut self.changing().waiting;
        match since {
            Some(since) => drop(waiting.insert(class.to_owned(), since)),
            None => drop(waiting.remove(class)),
        }
    }

    /// Counts a written change of a machine's state.
    pub fn transition(&self, from: Option<State>, to: State) {
        self.families().transitions.with_label_values(&[from_label(from), to.as_str()]).inc();
    }

    /// Counts a written end of a machine.
    pub fn termination(&self, reason: Reason) {
        self.families().terminations.with_label_values(&[reason.as_str()]).inc();
    }

    /// Records the duration of a pass.
    pub fn reconcile(&self, took: Duration) {
        self.families().reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Sets how many records are unreadable.
    pub fn unreadable(&self, n: usize) {
        self.families().unreadable.set(count(n));
    }

    /// Counts a judgement that panicked.
    pub fn decision_panicked(&self) {
        self.families().decision_panics.inc();
    }

    /// Sets how many records were written by a newer version.
    pub fn newer(&self, n: usize) {
        self.families().newer.set(count(n));
    }

    /// Sets how many machines outlived their threshold and grace; anything but 0 is an alarm.
    pub fn over_threshold(&self, n: usize) {
        self.families().over_threshold.set(count(n));
    }

    /// Sets whether this process holds the lease.
    pub fn leader(&self, leads: bool) {
        self.families().leader.set(i64::from(leads));
    }

    /// Sets how long GitHub still supports the runner version: negative if it no longer does, infinite if no date is
    /// known.
    pub fn runner_deadline(&self, end: EndOfLife, now: Timestamp) {
        for (kind, at) in [("registration", end.registration), ("runtime", end.runtime)] {
            let left = at.map_or(f64::INFINITY, |at| at.duration_since(now).as_secs_f64());
            self.families().runner_deadline.with_label_values(&[kind]).set(left);
        }
    }

    /// Sets how many classes hold a new runner version back.
    pub fn runner_held_back(&self, classes: usize) {
        self.families().runner_held_back.set(i64::try_from(classes).unwrap_or(i64::MAX));
    }

    /// Creates the series of GitHub's budgets and of the calls deferred for them.
    pub fn github_series(&self, resources: &[&'static str], priorities: impl Iterator<Item = &'static str>) {
        for resource in resources {
            self.families().github_rate_remaining.with_label_values(&[resource]);
            self.families().github_rate_limit.with_label_values(&[resource]);
        }
        priorities.for_each(|priority| drop(self.families().github_waits.with_label_values(&[priority])));
    }

    /// Sets the remainder of an hourly budget as reported by GitHub. With several accounts, the last response counts.
    pub fn github_rate(&self, resource: &'static str, limit: u64, remaining: u64) {
        let families = self.families();
        let n = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        families.github_rate_limit.with_label_values(&[resource]).set(n(limit));
        families.github_rate_remaining.with_label_values(&[resource]).set(n(remaining));
    }

    /// Counts a call that was deferred to stay within GitHub's limits.
    pub fn github_waits(&self, priority: &'static str) {
        self.families().github_waits.with_label_values(&[priority]).inc();
    }

    /// Counts events that were dropped instead of written.
    pub fn events_dropped(&self, n: usize) {
        self.families().events_dropped.inc_by(n as u64);
    }

    /// Counts the outcome of a pool queue's message.
    pub fn queue_message(&self, outcome: QueueOutcome) {
        self.families().queue_messages.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Counts a failed write to the history table.
    pub fn history_failed(&self) {
        self.families().history_failures.inc();
    }

    /// Sets how many lines are not in the history table yet.
    pub fn history_waiting(&self, n: usize) {
        self.families().history_waiting.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Counts a notice that EC2 reclaims a machine.
    pub fn interruption(&self, action: InterruptionAction) {
        self.families().interruptions.with_label_values(&[action.as_str()]).inc();
    }

    /// Counts what a wait for GitHub's webhook brought.
    pub fn job_rings(&self, heard: usize, ignored: usize) {
        for (outcome, messages) in RINGS.into_iter().zip([heard, ignored]) {
            self.families().job_rings.with_label_values(&[outcome]).inc_by(messages as u64);
        }
    }

    /// Adds the total time that machines of a class spent on an activity.
    pub fn machine_time(&self, class: &ClassName, usage: UsageClass, activity: Activity, time: Duration) {
        let labels = [self.label(class.as_str()), usage.as_str(), activity.as_str()];
        self.families().machines.seconds.with_label_values(&labels).inc_by(time.as_secs_f64());
    }

    /// Records that a machine became usable for the first time, this long after it was recorded.
    pub fn booted(&self, class: &ClassName, usage: UsageClass, after: Duration) {
        let labels = [self.label(class.as_str()), usage.as_str()];
        self.families().machines.boot.with_label_values(&labels).observe(after.as_secs_f64());
    }

    /// Records that the runner of a claimed machine listens, this long after the claim.
    pub fn claim_served(&self, class: &ClassName, after: Duration) {
        let labels = [self.label(class.as_str())];
        self.families().machines.claim.with_label_values(&labels).observe(after.as_secs_f64());
    }

    /// Records the number of claims of an ended machine.
    pub fn machine_used(&self, class: &ClassName, uses: u32) {
        let labels = [self.label(class.as_str())];
        self.families().machines.uses.with_label_values(&labels).observe(f64::from(uses));
    }

    /// Sets how many of our machines have no record.
    pub fn orphans(&self, n: usize) {
        self.families().machines.orphans.set(count(n));
    }

    /// Sets the approximate number of messages in a class's queues.
    pub fn queue_depth(&self, class: &ClassName, depth: QueueDepth) {
        let class = self.label(class.as_str());
        for (queue, n) in [("pool", depth.waiting), ("dead", depth.dead)] {
            let n = i64::try_from(n).unwrap_or(i64::MAX);
            self.families().machines.queue_depth.with_label_values(&[class, queue]).set(n);
        }
    }

    /// Takes in the lease, with its token and its number of renewals.
    pub fn lease_seen(&self, token: u64, renewals: u64) {
        let at = self.elapsed();
        let mut changing = self.changing();
        match changing.lease {
            Some(last) if (last.token, last.renewals) >= (token, renewals) => return,
            Some(last) if last.token != token => self.families().machines.lease_changes.inc(),
            Some(_) | None => {}
        }
        changing.lease = Some(LeaseSeen { token, renewals, at });
    }

    /// Records that the table was listed completely just now.
    pub fn resynced(&self) {
        self.changing().resynced = self.elapsed();
    }

    /// Records that the stream returned changes just now.
    pub fn stream_read(&self) {
        self.changing().streamed = self.elapsed();
    }

    /// Records the result and the duration of a port's call.
    pub fn backend(&self, service: &str, operation: &str, outcome: &str, took: Duration) {
        self.look(service, operation, outcome);
        self.families().backend_seconds.with_label_values(&[service, operation]).observe(took.as_secs_f64());
    }

    /// Counts a call whose duration is meaningless, because it waits for an event.
    fn look(&self, service: &str, operation: &str, outcome: &str) {
        self.families().backend_requests.with_label_values(&[service, operation, outcome]).inc();
    }

    /// Returns all metrics in Prometheus' text format. Ages are as of now, so a hanging loop is visible.
    pub fn render(&self) -> String {
        self.age(self.0.clock.now(), self.elapsed());
        let encoded = TextEncoder::new().encode_to_string(&self.0.registry.gather());
        encoded.expect("names and labels that were registered can be encoded")
    }

    fn age(&self, now: Timestamp, elapsed: Duration) {
        let changing = self.changing();
        self.families().resync_age.set(elapsed.saturating_sub(changing.resynced).as_secs_f64());
        let lease = changing.lease.map_or(Duration::ZERO, |lease| elapsed.saturating_sub(lease.at));
        self.families().machines.lease_age.set(lease.as_secs_f64());
        self.families().stream_lag.set(elapsed.saturating_sub(changing.streamed).as_secs_f64());
        let mut oldest: BTreeMap<&str, Timestamp> =
            changing.classes.declared().chain([OTHER]).map(|label| (label, now)).collect();
        for (class, since) in &changing.waiting {
            let first = oldest.entry(changing.classes.label(class)).or_insert(now);
            *first = (*first).min(*since);
        }
        for (label, since) in oldest {
            let waits = now.duration_since(since).as_secs_f64();
            self.families().oldest_waiting.with_label_values(&[label]).set(waits);
        }
    }
}

fn from_label(from: Option<State>) -> &'static str {
    from.map_or(NOWHERE, State::as_str)
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
