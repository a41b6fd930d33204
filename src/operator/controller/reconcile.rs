//! The loop itself. One task owns the yard: it takes in observations, decides dirty and due units, starts the planned
//! actions and takes in their results. Nothing is planned for records that are being written here. A standby acts only
//! on work that the leader has left undone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::decide::{Effect, Planned, Policy, Role};
use crate::model::Lease;
use crate::ports::{Machine, StoreError};
use crate::status::Health;
use crate::yard::{Observation, Unit, Yard};

use super::execute::{Executor, Failure, Outcome, Receipts, Unsettled};
use super::timers::Timers;
use super::{OperatorError, Ports, Settings, ordered_watch};
use crate::controller::github::{runner_gc, runs, sets};
use crate::controller::records::events::Events;
use crate::controller::records::history::Backlog;

mod backoffs;
mod clock_skew;
mod concurrency;
mod hints;
mod history;
mod intake;
mod judge;
mod metrics;
#[cfg(test)]
mod resync_tests;
mod roles;
mod slices;
mod sources;
mod state;
mod stuck;
mod tasks;
mod units;

use concurrency::ConcurrencyLimits;
use slices::Slices;
use sources::{BackgroundTasks, Inputs};
use state::{Listing, Measures, Postponed, Reads, Reported};
use tasks::Tasks;
use units::unit_of;

/// How long a standby leaves an action to the leader.
const STAND_BY: Duration = Duration::from_secs(2);
/// Longest sleep of an idle loop.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// The interval at which gauges are updated.
const GAUGES: Duration = Duration::from_secs(1);

/// The result of a finished action.
struct Done {
    unit: Unit,
    action: Planned,
    outcome: Outcome,
    took: Duration,
}

struct Loop {
    ports: Ports,
    policy: Policy,
    executor: Executor,
    events: Events,
    backlog: Backlog,
    health: Arc<Health>,
    yard: Yard,
    /// Units to be judged now.
    dirty: BTreeSet<Unit>,
    /// Units to be judged in slices, after those.
    slices: Slices,
    timers: Timers,
    role: Role,
    lease: ordered_watch::Receiver<Option<u64>>,
    concurrency: ConcurrencyLimits,
    tasks: Tasks,
    postponed: Postponed,
    reads: Reads,
    listing: Listing,
    reported: Reported,
    measures: Measures,
}

/// Runs the loop until stopped.
pub(super) async fn run(
    ports: Ports,
    settings: Settings,
    health: Arc<Health>,
    shutdown: CancellationToken,
) -> Result<(), OperatorError> {
    // A missing table is an error at once; a table that does not respond is retried.
    match ports.store.get(&Lease::key_of(Lease::OPERATOR)).await {
        Err(error) if hopeless(&error) => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
    let shutdown = shutdown.child_token();
    let asks = health.snapshots().answer();
    let started = BackgroundTasks::start(&ports, &settings, asks, &shutdown).await;
    let (mut state, mut inputs, follower) = Loop::new(ports, &settings, health, started);
    state.roles();
    state.tasks.spawn_lasting(follower);
    state.turn(&mut inputs, &shutdown).await;
    let refused = state.listing.refused.take();
    shutdown.cancel();
    // Actions in progress are finished; no new ones start.
    state.ports.compute.stop();
    while let Some(done) = state.tasks.actions.join_next().await {
        if let Ok(done) = done {
            state.finish(done);
        }
    }
    state.tasks.finish_calls().await;
    state.into_tasks().finish_lasting().await;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns whether waiting does not fix the error.
const fn hopeless(error: &StoreError) -> bool {
    matches!(error, StoreError::NoTable(_) | StoreError::Denied(_))
}

impl Loop {
    /// Creates a loop without observations, the receiving ends of its channels, and the follower of the table.
    fn new(
        ports: Ports,
        settings: &Settings,
        health: Arc<Health>,
        started: BackgroundTasks,
    ) -> (Self, Inputs, BoxFuture<'static, ()>) {
        let BackgroundTasks { tasks, follower, inputs, lease, events, backlog, issuer, triggers } = started;
        let signs = ports.history.as_ref().is_some_and(|table| table.signer.is_some());
        let policy = settings.policy(issuer.is_some(), ports.compute.keeps_inventory());
        let policy = Policy { statements: signs, ..policy };
        let executor = Executor {
            ports: ports.clone(),
            issuer,
            verify_removed: settings.github.verify_removed,
            receipts: Receipts::default(),
            unsettled: Unsettled::default(),
        };
        let (wall, mono) = (ports.clock.now(), ports.clock.elapsed());
        let state = Self {
            ports,
            policy,
            executor,
            events,
            backlog,
            health,
            yard: Yard::default(),
            dirty: BTreeSet::new(),
            slices: Slices::default(),
            timers: Timers::default(),
            role: Role { lease: None },
            lease,
            concurrency: ConcurrencyLimits::default(),
            tasks,
            postponed: Postponed::default(),
            reads: Reads::new(&settings.timing, mono),
            listing: Listing::new(triggers),
            reported: Reported::default(),
            measures: Measures::new(settings.table.clone(), settings.prices.clone(), wall, mono),
        };
        (state, inputs, follower)
    }

    /// Drops everything but the tasks: the last of them end once the loop's ends of their channels are dropped.
    fn into_tasks(self) -> Tasks {
        self.tasks
    }

    /// Runs the turns of the loop. Each turn decides the dirty units and one slice of the others, waits for an event
    /// unless there are more slices, and takes in all events that are ready. No source is drained alone, so a busy one
    /// does not starve the others.
    async fn turn(&mut self, inputs: &mut Inputs, shutdown: &CancellationToken) {
        let mut gauges = tokio::time::interval(GAUGES);
        loop {
            self.settle_with_slice();
            let now = self.ports.clock.elapsed();
            self.health.turned(now);
            let wait = self.wait(now);
            let classes = self.yard.classes().count();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Ok(()) = self.lease.changed() => self.roles(),
                _ = gauges.tick() => {
                    self.gauge();
                    self.measure();
                    self.measures.history.forget(self.ports.clock.now());
                    self.keep_history();
                    self.report_backoffs();
                    self.acknowledge();
                }
                Some(ask) = Inputs::next_request(&mut inputs.snapshot_requests) => drop(ask.send(self.look())),
                Some(machines) = inputs.machines.recv() => self.listed_at_provider(machines),
                Some(deliveries) = inputs.notices.recv() => self.receive_notices(deliveries),
                Some(ask) = inputs.sweeps.recv() => drop(ask.send(runner_gc::Known::of(&self.yard))),
                Ok(()) = inputs.runner.changed() => {
                    let news = inputs.runner.borrow_and_update().clone();
                    self.runner_news(news);
                }
                Some(ask) = inputs.runs.recv() => drop(ask.send(runs::News::of(&mut self.yard))),
                Some(ask) = inputs.sets.recv() => drop(ask.send(sets::Known::of(&self.yard))),
                Some(done) = self.tasks.actions.join_next() => self.finished(done),
                Some(news) = inputs.seen.recv() => self.take_in(news),
                () = slices::sleep(wait) => {}
            }
            self.catch_up(inputs);
            if self.listing.refused.is_some() {
                return;
            }
            if self.yard.classes().count() > classes {
                // A new class has its own metrics from its first machine on.
                gauges.reset_immediately();
            }
        }
    }

    /// Takes in the finished actions, the received changes and the due timers, so that a class is decided once for all
    /// of them.
    fn catch_up(&mut self, inputs: &mut Inputs) {
        while let Some(done) = self.tasks.actions.try_join_next() {
            self.finished(done);
        }
        // No more than there were at the start, because their senders continue meanwhile.
        for _ in 0..inputs.seen.len() {
            let Ok(news) = inputs.seen.try_recv() else { break };
            self.take_in(news);
        }
        let due = self.timers.due(self.ports.clock.elapsed());
        self.slices.extend(due);
    }

    fn finished(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(done) => self.finish(done),
            Err(error) => tracing::error!(%error, "action task panicked"),
        }
    }

    /// Takes in the machines listed by the provider. The reasons of ended machines come before their states, so that an
    /// end is recorded with its reason.
    fn listed_at_provider(&mut self, machines: Vec<Machine>) {
        for machine in machines.iter().filter(|machine| !machine.state.alive()) {
            if let Some(reason) = self.ports.compute.why_ended(&machine.id) {
                self.observe(Observation::WhyEnded(machine.arn.clone(), reason));
            }
        }
        self.observe(Observation::Inventory(machines));
    }

    /// Judges all dirty units and starts the planned actions.
    ///
    /// # Guarantees
    /// - Nothing is judged before the table was listed completely once.
    /// - A standby starts no action of the leader's, and any other only when it was due for [`STAND_BY`].
    /// - A recently failed action is not started again before its pause is over.
    /// - A judgement that panics affects only its unit.
    /// - A unit with remaining work is dirty, in a later slice, has a timer, or is queued for a slot.
    ///
    /// # Assumes
    /// Every change of the yard marks the affected units.
    fn settle(&mut self) {
        // Records of a newer program are as unreadable to this one as broken ones.
        let newer = self.yard.newer.len();
        self.ports.metrics.unreadable(self.yard.unreadable.len() + newer);
        self.ports.metrics.newer(newer);
        if self.yard.listed.is_none() {
            return;
        }
        // Units that waited for a slot come first; otherwise a class that is always dirty would take every freed slot.
        while let Some(unit) = self.concurrency.next().or_else(|| self.dirty.pop_first()) {
            self.dirty.remove(&unit);
            self.slices.remove(&unit);
            let now = self.now();
            let Some(plan) = self.judge(&unit) else { continue };
            self.planned(&unit, &plan);
            let mut wake = plan.wake;
            let leader = self.role.lease.is_some();
            let mut actions = plan.actions;
            actions.retain(|action| leader || !action.leader_only);
            actions.retain(|action| match self.postponed.backoffs.until(&unit, action, now.mono) {
                Some(until) => {
                    wake = Some(wake.map_or(until, |wake| wake.min(until)));
                    false
                }
                None => true,
            });
            // Not at once: a time that has passed would wake it again and again.
            if wake.is_some_and(|at| at <= now.mono) {
                wake = Some(now.mono + Duration::from_millis(10));
            }
            if actions.is_empty() {
                self.postponed.due.remove(&unit);
            } else if !leader {
                let since = *self.postponed.due.entry(unit.clone()).or_insert(now.mono);
                if now.mono < since + STAND_BY {
                    self.timers.set(&unit, Some(wake.unwrap_or(Duration::MAX).min(since + STAND_BY)));
                    continue;
                }
            }
            for action in actions {
                self.start(&unit, action);
            }
            self.timers.set(&unit, wake);
        }
    }

    /// Starts an action, unless one of its slots is held already or too many actions of its kind are in progress.
    ///
    /// # Guarantees
    /// - The action's slots are busy until [`Self::finish`]: nothing is planned for them meanwhile.
    /// - An action that is not started is dropped; its unit is judged again when the obstacle is gone.
    fn start(&mut self, unit: &Unit, action: Planned) {
        let slots = &action.slots;
        if slots.iter().any(|slot| self.yard.busy.contains(slot)) || !self.concurrency.acquire(unit, &action)
        {
            return;
        }
        self.yard.busy.extend(slots.iter().cloned());
        let executor = self.executor.clone();
        let unit = unit.clone();
        let clock = self.ports.clock.clone();
        self.tasks.actions.spawn(async move {
            let begun = clock.elapsed();
            let outcome = executor.execute(action.clone()).await;
            Done { unit, action, outcome, took: clock.elapsed().saturating_sub(begun) }
        });
    }

    /// Takes in the result of an action.
    ///
    /// # Guarantees
    /// - All slots of the action are free again, and all units that depend on them are dirty.
    /// - The record as written, or the conflicting record, is in the yard before anything is judged again.
    /// - An event is written only for a success, or for the first of consecutive failures.
    ///
    /// # Assumes
    /// It is called once for each action that [`Self::start`] started, unless that action panicked.
    fn finish(&mut self, done: Done) {
        self.concurrency.release(&done.action);
        for slot in &done.action.slots {
            self.yard.busy.remove(slot);
            self.dirty.extend(unit_of(slot));
            if let Some(class) = self.class_of(slot) {
                self.dirty.insert(Unit::Class(class));
            }
        }
        self.dirty.insert(done.unit.clone());
        self.ports.metrics.reconcile(done.took);
        match &done.outcome.failure {
            None => {
                self.postponed.backoffs.succeeded(&done.unit, &done.action, &mut self.yard);
                self.succeeded(&done.unit, &done.action);
                self.count(&done.action);
                for event in &done.outcome.events {
                    let (subject, reason, message) = (&event.subject, &event.reason, &event.message);
                    tracing::info!(%subject, %reason, from = event.from, to = event.to, %message, "transition");
                    self.leave(event);
                }
            }
            Some(failure) => {
                // Logged once: it keeps failing for the same reason until a person fixes it.
                if !self.postponed.backoffs.failed_before(&done.unit, &done.action) {
                    done.outcome.events.iter().for_each(|event| self.leave(event));
                }
                self.back_off(&done.unit, &done.action, failure);
            }
        }
        for seen in done.outcome.seen {
            self.observe(seen);
        }
        if let Effect::Receive(class, _) = &done.action.effect {
            self.settle_hints(class);
        }
    }

    /// Backs off a failed action, longer each time; one that only lost a race is decided again at once, twice.
    fn back_off(&mut self, unit: &Unit, action: &Planned, failure: &Failure) {
        self.failed(unit, action, failure);
        let now = self.ports.clock.elapsed();
        let free = match failure {
            Failure::Lost(_) => 2,
            Failure::Store(StoreError::Contended) => 1,
            Failure::Store(_) | Failure::Compute(_) | Failure::Credential(_) => 0,
        };
        let counts = (free, failure.github_away());
        match self.postponed.backoffs.failed(unit, action, counts, now, &mut self.yard) {
            Some(pause) => {
                tracing::warn!(what = %action.describe(), error = %failure, pause_ms = pause.as_millis() as u64, "not done");
            }
            None => tracing::debug!(what = %action.describe(), error = %failure, "not done"),
        }
    }
}
