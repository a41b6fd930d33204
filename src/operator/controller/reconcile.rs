//! The loop itself. One task owns the yard; it takes in what is seen, judges what is dirty or due, starts what was
//! planned, and takes in what came of it. Records being written here are not planned for; a stand-by acts only on
//! what the leader left undone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::admin::Health;
use crate::decide::{Context, Effect, Planned, Policy, Role, decide};
use crate::model::{ClassName, Lease, RecordId, Slot, TableName};
use crate::ports::{Delivery, Machine, StoreError};
use crate::status::History;
use crate::yard::{Breaker, Now, Observation, Unit, Yard};

use super::events::Events;
use super::execute::{Executor, Failure, Outcome, Receipts, Unsettled};
use super::timers::Timers;
use super::{OperatorError, Ports, Settings, runner_gc, runs};

mod background;
mod clock_skew;
mod concurrency;
mod hints;
mod intake;
mod metrics;
mod resting;
mod stuck;
mod tasks;

use background::Background;
use clock_skew::ClockSkew;
use concurrency::ConcurrencyLimits;
use resting::Resting;
use stuck::Failing;
use tasks::{BackgroundTasks, Inputs};

/// How long a stand-by leaves a thing to the leader.
const STAND_BY: Duration = Duration::from_secs(2);
/// Longest sleep of a loop to which nothing happens.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// How often the gauges are brought up to date.
const GAUGES: Duration = Duration::from_secs(1);

/// What a finished action reports.
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
    health: Arc<Health>,
    yard: Yard,
    dirty: BTreeSet<Unit>,
    timers: Timers,
    /// What failed last and is not tried again yet.
    resting: Resting,
    /// What failed again and again, and for which reason.
    failing: Failing,
    /// Since when a stand-by knows of something to do.
    due: BTreeMap<Unit, Duration>,
    tasks: JoinSet<Done>,
    background: Background,
    /// The removal of old events, which takes its time: one at once.
    removing: Option<AbortHandle>,
    concurrency: ConcurrencyLimits,
    /// Monotonic time during which the table could be read.
    seen: Duration,
    last_look: Duration,
    /// Longest stretch of successful reads that one look vouches for.
    vouches: Duration,
    /// The list under way: when it began, and the keys seen since.
    listing: Option<(Duration, BTreeSet<RecordId>)>,
    role: Role,
    lease: watch::Receiver<Option<u64>>,
    clock_skew: ClockSkew,
    /// When the lease was taken that no list has followed yet.
    taken: Option<(u64, Duration)>,
    /// Events that outlived their time in a table that does not delete by itself, with their `expiresAt`.
    late: Vec<(RecordId, i64)>,
    /// Notices that are not acknowledged yet, because something remains to be done.
    unacknowledged: Vec<Delivery>,
    /// What machines were, for people who look.
    history: History,
    table: TableName,
    /// When the time of machines was last counted, and when the queues were last asked how much they hold.
    measured: Duration,
    queues_measured: Option<Duration>,
    /// What classes do without now, as far as it was told.
    open: BTreeSet<(ClassName, Breaker)>,
    /// A resync that somebody asked for.
    resync_requested: Option<Duration>,
    /// When that was, by the clock of who asked.
    resync_requested_at: Option<Timestamp>,
    /// Records that were said to be unreadable, or of a newer program.
    reported_unreadable: BTreeSet<RecordId>,
    /// The requests whose runs are watched at GitHub.
    live: watch::Sender<runs::Live>,
    resync_trigger: mpsc::Sender<()>,
    sweep_trigger: mpsc::Sender<()>,
    /// Why the table cannot be listed at all.
    refused: Option<StoreError>,
}

/// Runs the loop until told to stop.
pub(super) async fn run(
    ports: Ports,
    settings: Settings,
    health: Arc<Health>,
    shutdown: CancellationToken,
) -> Result<(), OperatorError> {
    // A table that is not there is said at once; one that does not answer is waited for.
    match ports.store.get(&Lease::key_of(Lease::OPERATOR)).await {
        Err(error) if hopeless(&error) => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
    let shutdown = shutdown.child_token();
    let asks = health.snapshots().answer();
    let started = BackgroundTasks::start(&ports, &settings, asks, &shutdown).await;
    let BackgroundTasks {
        mut tasks,
        follower,
        mut inputs,
        lease,
        resync_trigger,
        sweep_trigger,
        live,
        events,
        issuer,
    } = started;
    let policy = settings.policy(issuer.is_some(), ports.compute.keeps_inventory());
    let executor = Executor {
        ports: ports.clone(),
        issuer,
        verify_removed: settings.github.verify_removed,
        receipts: Receipts::default(),
        unsettled: Unsettled::default(),
    };
    let (history, started) = (History::new(ports.clock.now()), ports.clock.elapsed());
    let mut state = Loop {
        last_look: ports.clock.elapsed(),
        vouches: intake::vouches(settings.heartbeat, settings.stale),
        ports,
        policy,
        executor,
        events,
        health,
        yard: Yard::default(),
        dirty: BTreeSet::new(),
        timers: Timers::default(),
        resting: Resting::default(),
        failing: Failing::default(),
        due: BTreeMap::new(),
        tasks: JoinSet::new(),
        background: Background::new(shutdown.clone()),
        removing: None,
        concurrency: ConcurrencyLimits::default(),
        seen: Duration::ZERO,
        listing: None,
        role: Role { lease: None },
        lease,
        clock_skew: ClockSkew::default(),
        taken: None,
        late: Vec::new(),
        unacknowledged: Vec::new(),
        history,
        table: settings.table.clone(),
        measured: started,
        queues_measured: None,
        open: BTreeSet::new(),
        resync_requested: None,
        resync_requested_at: None,
        reported_unreadable: BTreeSet::new(),
        live,
        resync_trigger,
        sweep_trigger,
        refused: None,
    };
    state.roles();
    tasks.spawn(follower);
    state.turn(&mut inputs, &shutdown).await;
    let refused = state.refused.take();
    shutdown.cancel();
    // The actions in hand are finished; nothing new is begun.
    state.ports.compute.stop();
    while let Some(done) = state.tasks.join_next().await {
        if let Ok(done) = done {
            state.finish(done);
        }
    }
    state.background.finish().await;
    drop(state);
    while tasks.join_next().await.is_some() {}
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// What waiting does not mend.
const fn hopeless(error: &StoreError) -> bool {
    matches!(error, StoreError::NoTable(_) | StoreError::Denied(_))
}

impl Loop {
    /// Turn by turn: judges what is dirty, waits until something happens, takes in all that happened. Whatever came first
    /// wakes the loop; nothing that comes often is taken in alone, so nothing waits behind it.
    async fn turn(&mut self, inputs: &mut Inputs, shutdown: &CancellationToken) {
        let mut gauges = tokio::time::interval(GAUGES);
        loop {
            self.settle();
            let now = self.ports.clock.elapsed();
            self.health.turned(now);
            let wait = self.timers.next().map(|at| at.saturating_sub(now));
            let classes = self.yard.classes().count();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Ok(()) = self.lease.changed() => self.roles(),
                _ = gauges.tick() => {
                    self.gauge();
                    self.measure();
                    self.history.forget(self.ports.clock.now());
                    self.report_breakers();
                    self.acknowledge();
                }
                Some(ask) = Inputs::next_request(&mut inputs.snapshot_requests) => drop(ask.send(self.look())),
                Some(machines) = inputs.machines.recv() => self.listed_at_maker(machines),
                Some(deliveries) = inputs.notices.recv() => self.receive_notices(deliveries),
                Some(ask) = inputs.sweeps.recv() => drop(ask.send(runner_gc::Known::of(&self.yard))),
                Some(done) = self.tasks.join_next() => self.finished(done),
                Some(news) = inputs.seen.recv() => self.take_in(news),
                () = tokio::time::sleep(wait.unwrap_or(LONGEST_SLEEP)) => {}
            }
            self.catch_up(inputs);
            if self.refused.is_some() {
                return;
            }
            if self.yard.classes().count() > classes {
                // A new class is measured under its name from its first machine on.
                gauges.reset_immediately();
            }
        }
    }

    /// Takes in the actions that are finished, the news that are there and the moments that are due, so that a class is
    /// judged once for all of them.
    fn catch_up(&mut self, inputs: &mut Inputs) {
        while let Some(done) = self.tasks.try_join_next() {
            self.finished(done);
        }
        // No more than there were when this began: whoever tells them goes on meanwhile.
        for _ in 0..inputs.seen.len() {
            let Ok(news) = inputs.seen.try_recv() else { break };
            self.take_in(news);
        }
        let due = self.timers.due(self.ports.clock.elapsed());
        self.dirty.extend(due);
    }

    fn finished(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(done) => self.finish(done),
            Err(error) => tracing::error!(%error, "an action died"),
        }
    }

    fn now(&self) -> Now {
        Now { wall: self.ports.clock.now(), mono: self.ports.clock.elapsed(), seen: self.seen }
    }

    /// Why machines ended goes before where they stand, so that their end is told with it.
    fn listed_at_maker(&mut self, machines: Vec<Machine>) {
        for machine in machines.iter().filter(|machine| !machine.state.alive()) {
            if let Some(reason) = self.ports.compute.why_ended(&machine.id) {
                self.observe(Observation::WhyEnded(machine.arn.clone(), reason));
            }
        }
        self.observe(Observation::Inventory(machines));
    }

    fn roles(&mut self) {
        let held = *self.lease.borrow_and_update();
        self.ports.metrics.leader(held.is_some());
        match held {
            Some(token) if self.role.lease != Some(token) => {
                // Budgets only after everything was read once more.
                self.role.lease = None;
                self.taken = Some((token, self.ports.clock.elapsed()));
                let _ = self.resync_trigger.try_send(());
            }
            Some(_) => {}
            None => {
                self.role.lease = None;
                self.taken = None;
            }
        }
        self.dirty.extend(self.yard.units());
    }

    /// Judges everything dirty.
    fn settle(&mut self) {
        // A newer program's records are as unreadable to this one as broken ones.
        let newer = self.yard.newer.len();
        self.ports.metrics.unreadable(self.yard.unreadable.len() + newer);
        self.ports.metrics.newer(newer);
        if self.yard.listed.is_none() {
            return;
        }
        // Who waited for a place comes first, or a class that is always dirty would take every place that is given back.
        while let Some(unit) = self.concurrency.next().or_else(|| self.dirty.pop_first()) {
            self.dirty.remove(&unit);
            let now = self.now();
            let cx = Context { yard: &self.yard, policy: &self.policy, now, role: self.role };
            let plan = decide(&cx, &unit);
            self.planned(&unit, &plan);
            let mut wake = plan.wake;
            let leader = self.role.lease.is_some();
            let mut actions = plan.actions;
            actions.retain(|action| leader || !action.leader_only);
            actions.retain(|action| match self.resting.until(&unit, action, now.mono) {
                Some(until) => {
                    wake = Some(wake.map_or(until, |wake| wake.min(until)));
                    false
                }
                None => true,
            });
            // Never at once again, whoever we are: a moment that has passed stays passed.
            if wake.is_some_and(|at| at <= now.mono) {
                wake = Some(now.mono + Duration::from_millis(10));
            }
            if actions.is_empty() {
                self.due.remove(&unit);
            } else if !leader {
                let since = *self.due.entry(unit.clone()).or_insert(now.mono);
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

    /// Starts an action unless a record it writes is being written already, or too many of its kind are under way; then
    /// its unit is judged again after that.
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
        self.tasks.spawn(async move {
            let begun = clock.elapsed();
            let outcome = executor.execute(action.clone()).await;
            Done { unit, action, outcome, took: clock.elapsed().saturating_sub(begun) }
        });
    }

    /// Takes in what came of an action.
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
                self.resting.succeeded(&done.unit, &done.action, &mut self.yard);
                self.succeeded(&done.unit, &done.action);
                self.count(&done.action);
                for event in &done.outcome.events {
                    let (subject, reason, message) = (&event.subject, &event.reason, &event.message);
                    tracing::info!(%subject, %reason, from = event.from, to = event.to, %message, "transition");
                    self.events.send(event);
                }
            }
            Some(failure) => {
                // Told once: it fails the same way until somebody mends it.
                if !self.resting.failed_before(&done.unit, &done.action) {
                    done.outcome.events.iter().for_each(|event| self.events.send(event));
                }
                self.rest(&done.unit, &done.action, failure);
            }
        }
        for seen in done.outcome.seen {
            self.observe(seen);
        }
        if let Effect::Receive(class) = &done.action.effect {
            self.settle_hints(class);
        }
    }

    /// What failed rests, longer each time; what only lost a race is judged again at once, twice.
    fn rest(&mut self, unit: &Unit, action: &Planned, failure: &Failure) {
        self.failed(unit, action, failure);
        let now = self.ports.clock.elapsed();
        let free = match failure {
            Failure::Lost(_) => 2,
            Failure::Store(StoreError::Contended) => 1,
            Failure::Store(_) | Failure::Compute(_) | Failure::Credential(_) => 0,
        };
        match self.resting.failed(unit, action, free, now, &mut self.yard) {
            Some(pause) => {
                tracing::warn!(what = %action.describe(), error = %failure, pause_ms = pause.as_millis() as u64, "not done");
            }
            None => tracing::debug!(what = %action.describe(), error = %failure, "not done"),
        }
    }

    /// The class whose decisions depend on what an action held.
    fn class_of(&self, slot: &Slot) -> Option<ClassName> {
        let id = match slot {
            Slot::Queue(class) | Slot::Launches(class) => return Some(class.clone()),
            Slot::Announcement(_) => return None,
            Slot::Record(id) => id,
        };
        match id {
            RecordId::Pool(class) => Some(class.clone()),
            RecordId::Request(id) => self.yard.request(id).and_then(Yard::class_of),
            RecordId::Instance(arn) => {
                self.yard.instance(arn).map(|tracked| tracked.instance.facts.resource_class.clone())
            }
            RecordId::Agent(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_) => None,
        }
    }
}

/// The unit that judges what an action held.
pub(super) fn unit_of(slot: &Slot) -> Option<Unit> {
    match slot {
        Slot::Queue(class) | Slot::Launches(class) => Some(Unit::Class(class.clone())),
        Slot::Announcement(_) => None,
        Slot::Record(RecordId::Instance(arn)) => Some(Unit::Instance(arn.clone())),
        Slot::Record(RecordId::Launch(id)) => Some(Unit::Launch(id.clone())),
        Slot::Record(RecordId::Pool(class)) => Some(Unit::Class(class.clone())),
        Slot::Record(RecordId::Request(id)) => Some(Unit::Request(id.clone())),
        Slot::Record(
            RecordId::Agent(_)
            | RecordId::Lease(_)
            | RecordId::Event { .. }
            | RecordId::Unnamed(..)
            | RecordId::Foreign(_),
        ) => None,
    }
}
