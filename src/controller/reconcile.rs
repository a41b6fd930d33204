//! The loop itself. One task owns the yard; it takes in what is seen, judges what is dirty or due, starts what was
//! planned, and takes in what came of it. Records being written here are not planned for; a stand-by acts only on
//! what the leader left undone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Health;
use crate::decide::{
    Action, Breaker, Context, Now, Observation, Policy, Role, Unit, Yard, decide, effective,
};
use crate::metrics::{OTHER, QueueOutcome, Source};
use crate::model::{
    ClassName, Event, EventType, Instance, InstanceArn, InterruptionAction, Item, Key, LaunchId, Lease, Life,
    Phase, Pool, PoolSpec, Reading, Record, State, TableName, read,
};
use crate::ports::{Compute, ComputeError, Machine, StoreError, Told};
use crate::status::{self, History, Status};

use super::courier::Courier;
use super::events::{self, Events};
use super::execute::{Executor, Failure, Outcome, Receipts, Surroundings, Unsettled};
use super::follow::{Follower, Seen};
use super::timers::Timers;
use super::{OperatorError, Ports, Settings, ghosts, lease, measure, notices, runs, sweep};

/// How long a stand-by leaves a thing to the leader.
const STAND_BY: Duration = Duration::from_secs(2);
/// A watch that tells nothing for so many terms of the lease, which is renewed thrice in each, has stalled.
const SILENT_LEASES: u32 = 4;
/// First pause after a failed action of a unit.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause.
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// Longest stretch of successful reads that one look vouches for.
const LOOK_VOUCHES: Duration = Duration::from_secs(5);
/// How often the gauges are brought up to date.
const GAUGES: Duration = Duration::from_secs(1);

/// What a finished action reports.
struct Done {
    unit: Unit,
    keys: Vec<Key>,
    action: Action,
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
    /// What failed last, by unit and kind: how often in a row, and until when it rests. Other kinds go on.
    resting: BTreeMap<(Unit, &'static str), (u32, Duration)>,
    /// Since when a stand-by knows of something to do.
    due: BTreeMap<Unit, Duration>,
    tasks: JoinSet<Done>,
    /// Monotonic time during which the table could be read.
    seen: Duration,
    last_look: Duration,
    /// The list under way: when it began, and the keys seen since.
    listing: Option<(Duration, BTreeSet<Key>)>,
    role: Role,
    lease: watch::Receiver<Option<u64>>,
    /// When the lease was taken that no list has followed yet.
    taken: Option<(u64, Duration)>,
    /// Events that outlived their time in a table that does not delete by itself, with their `expiresAt`.
    late: Vec<(Key, i64)>,
    /// Notices that are not acknowledged yet, because something remains to be done.
    told: Vec<Told>,
    /// What machines were, for people who look.
    history: History,
    table: TableName,
    /// When the time of machines was last counted, and when the queues were last asked how much they hold.
    measured: Duration,
    deep: Option<Duration>,
    /// What classes do without now, as far as it was told.
    open: BTreeSet<(ClassName, Breaker)>,
    /// A resync that somebody asked for.
    asked: Option<Duration>,
    /// The requests whose runs are watched at GitHub.
    live: watch::Sender<runs::Live>,
    kick_list: mpsc::Sender<()>,
    kick_sweep: mpsc::Sender<()>,
}

/// Runs the loop until told to stop.
pub(super) async fn run(
    ports: Ports,
    settings: Settings,
    health: Arc<Health>,
    shutdown: CancellationToken,
) -> Result<(), OperatorError> {
    // A table that is not there is said at once; one that does not answer is waited for.
    if let Err(error @ (StoreError::NoTable(_) | StoreError::Denied(_))) = ports.store.list(None).await {
        return Err(error.into());
    }
    let (tell_lease, lease) = watch::channel(None);
    let mut candidate = lease::Candidate::new(
        ports.store.clone(),
        ports.clock.clone(),
        settings.identity.clone(),
        settings.lease,
    );
    if let Ok(token) = candidate.attempt().await {
        tell_lease.send_replace(token);
    }
    // Dropped with this future, so that nothing of an operator outlives it.
    let mut company = JoinSet::new();
    company.spawn(candidate.keep(tell_lease, shutdown.child_token()));
    let (tell_seen, mut seen) = mpsc::channel(256);
    let (kick_list, list_kicks) = mpsc::channel(1);
    let follower = Follower {
        store: ports.store.clone(),
        clock: ports.clock.clone(),
        resync: settings.resync,
        silence: settings.lease * SILENT_LEASES,
        tell: tell_seen,
        kicks: list_kicks,
        shutdown: shutdown.child_token(),
    };
    company.spawn(follower.run());
    let (kick_sweep, sweep_kicks) = mpsc::channel(1);
    let (tell_machines, mut machines) = mpsc::channel(4);
    company.spawn(sweep::run(
        ports.compute.clone(),
        settings.sweep,
        lease.clone(),
        sweep_kicks,
        tell_machines,
        shutdown.child_token(),
    ));
    let (tell_notices, mut told) = mpsc::channel(4);
    if let Some(port) = ports.notices.clone() {
        let (metrics, lease, stop) = (ports.metrics.clone(), lease.clone(), shutdown.child_token());
        company.spawn(notices::run(port, metrics, lease, tell_notices, stop));
    }
    let (events, writing) = Events::start(ports.store.clone(), ports.metrics.clone());
    company.spawn(writing);
    let courier = ports.github.clone().map(|github| {
        let courier = Courier::new(github, ports.clock.clone(), ports.entropy.clone(), settings.organization);
        Arc::new(courier)
    });
    let policy = settings.policy(courier.is_some(), ports.compute.keeps_inventory());
    let (live, live_runs) = watch::channel(runs::Live::new());
    if let Some(github) = ports.github.clone()
        && let Some(every) = settings.github.run_poll
    {
        let watcher = runs::Watcher {
            github,
            store: ports.store.clone(),
            clock: ports.clock.clone(),
            entropy: ports.entropy.clone(),
            events: events.clone(),
            every,
            lease: lease.clone(),
            live: live_runs,
        };
        company.spawn(watcher.run(shutdown.child_token()));
    }
    if let Some(courier) = courier.clone()
        && let Some(every) = settings.github.sweep
    {
        let (store, lease, strangers) = (ports.store.clone(), lease.clone(), BTreeSet::new());
        let sweeper = ghosts::Sweeper { courier, store, every, lease, strangers };
        company.spawn(sweeper.run(shutdown.child_token()));
    }
    let executor = Executor {
        ports: ports.clone(),
        courier,
        verify_removed: settings.github.verify_removed,
        receipts: Receipts::default(),
        unsettled: Unsettled::default(),
    };
    let asks = health.window().answer();
    let (history, started) = (History::new(ports.clock.now()), ports.clock.elapsed());
    let mut state = Loop {
        last_look: ports.clock.elapsed(),
        ports,
        policy,
        executor,
        events,
        health,
        yard: Yard::default(),
        dirty: BTreeSet::new(),
        timers: Timers::default(),
        resting: BTreeMap::new(),
        due: BTreeMap::new(),
        tasks: JoinSet::new(),
        seen: Duration::ZERO,
        listing: None,
        role: Role { lease: None },
        lease,
        taken: None,
        late: Vec::new(),
        told: Vec::new(),
        history,
        table: settings.table.clone(),
        measured: started,
        deep: None,
        open: BTreeSet::new(),
        asked: None,
        live,
        kick_list,
        kick_sweep,
    };
    state.roles();
    state.turn(&mut seen, &mut machines, &mut told, asks, &shutdown).await;
    // The actions in hand are finished; nothing new is begun.
    state.ports.compute.stop();
    while let Some(done) = state.tasks.join_next().await {
        if let Ok(done) = done {
            state.finish(done);
        }
    }
    drop(state);
    while company.join_next().await.is_some() {}
    Ok(())
}

impl Loop {
    async fn turn(
        &mut self,
        seen: &mut mpsc::Receiver<Seen>,
        machines: &mut mpsc::Receiver<Vec<Machine>>,
        told: &mut mpsc::Receiver<Vec<Told>>,
        mut asks: Option<mpsc::Receiver<oneshot::Sender<Status>>>,
        shutdown: &CancellationToken,
    ) {
        let mut gauges = tokio::time::interval(GAUGES);
        loop {
            self.settle();
            let now = self.ports.clock.elapsed();
            let wait = self.timers.next().map(|at| at.saturating_sub(now));
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.finish(done),
                    Err(error) => tracing::error!(%error, "an action died"),
                },
                Ok(()) = self.lease.changed() => self.roles(),
                Some(news) = seen.recv() => {
                    let classes = self.yard.classes().count();
                    self.take_in(news);
                    while let Ok(news) = seen.try_recv() {
                        self.take_in(news);
                    }
                    if self.yard.classes().count() > classes {
                        // A new class is measured under its name from its first machine on.
                        gauges.reset_immediately();
                    }
                }
                Some(machines) = machines.recv() => self.observe(Observation::Inventory(machines)),
                Some(told) = told.recv() => self.hear(told),
                Some(ask) = asked(&mut asks) => drop(ask.send(self.look())),
                _ = gauges.tick() => {
                    self.gauge();
                    self.measure();
                    self.history.forget(self.ports.clock.now());
                    self.breakers();
                    self.acknowledge();
                }
                () = tokio::time::sleep(wait.unwrap_or(PAUSE_MOST)) => {
                    let due = self.timers.due(self.ports.clock.elapsed());
                    self.dirty.extend(due);
                }
            }
        }
    }

    fn now(&self) -> Now {
        Now { wall: self.ports.clock.now(), mono: self.ports.clock.elapsed(), seen: self.seen }
    }

    fn observe(&mut self, seen: Observation) {
        let now = self.now();
        match (&mut self.listing, &seen) {
            (Some((_, keys)), Observation::Record(key, Some(_))) => drop(keys.insert(key.clone())),
            (Some((_, keys)), Observation::Written(record)) => drop(keys.insert(record.key())),
            _ => {}
        }
        let concerned = self.concerned(&seen);
        let before = concerned.as_ref().and_then(|arn| self.interruption(arn));
        let machine = recorded(&seen);
        let class =
            class_seen(&seen).filter(|class| self.yard.class(class).is_none_or(|class| class.pool.is_none()));
        let dirty = self.yard.observe(seen, &now);
        self.dirty.extend(dirty);
        if let Some(pool) = class.and_then(|class| self.yard.pool(&class)) {
            tokio::spawn(refusal_told(self.ports.compute.clone(), pool.spec.clone()));
        }
        if let Some(tracked) = machine.and_then(|arn| self.yard.instance(&arn)) {
            self.history.note(&tracked.instance);
        }
        let after = concerned.as_ref().and_then(|arn| self.interruption(arn));
        if let Some(action) = after.filter(|_| after != before) {
            self.ports.metrics.interruption(action);
        }
    }

    /// What a person sees who looks now.
    fn look(&self) -> Status {
        let (now, role) = (self.now(), self.role);
        let cx = Context { yard: &self.yard, policy: &self.policy, now, role };
        status::look(&status::Seen { cx, history: &self.history, table: self.table.as_str() })
    }

    /// The machine that something seen may say is taken back.
    fn concerned(&self, seen: &Observation) -> Option<InstanceArn> {
        match seen {
            Observation::Notice(notice) => {
                self.yard.by_id(&notice.instance).map(|tracked| tracked.instance.facts.instance_arn.clone())
            }
            Observation::Record(key, Some(_)) => {
                key.pk.strip_prefix("agent#").and_then(|arn| InstanceArn::parse(arn).ok())
            }
            _ => None,
        }
    }

    fn interruption(&self, arn: &InstanceArn) -> Option<InterruptionAction> {
        self.yard.instance(arn).and_then(|tracked| tracked.interruption()).map(|notice| notice.action)
    }

    /// Takes in notices. Before everything was listed nobody knows whose they are: they come again.
    fn hear(&mut self, told: Vec<Told>) {
        if self.yard.listed.is_none() {
            return;
        }
        for told in told {
            for notice in &told.notices {
                self.observe(Observation::Notice(notice.clone()));
            }
            self.told.push(told);
        }
        self.settle();
        self.acknowledge();
    }

    /// Acknowledges the notices about which nothing remains to be done.
    fn acknowledge(&mut self) {
        if self.told.is_empty() {
            return;
        }
        let yard = &self.yard;
        let settled = |told: &Told| told.notices.iter().all(|notice| yard.settled_notice(&notice.instance));
        let (done, left): (Vec<Told>, Vec<Told>) =
            std::mem::take(&mut self.told).into_iter().partition(settled);
        self.told = left;
        let receipts: Vec<String> = done.into_iter().map(|told| told.receipt).collect();
        if let Some(port) = self.ports.notices.clone().filter(|_| !receipts.is_empty()) {
            tokio::spawn(async move {
                if let Err(error) = port.acknowledge(&receipts).await {
                    tracing::debug!(%error, "notices were not acknowledged, they come again");
                }
            });
        }
    }

    /// A successful read vouches for the time since the one before.
    fn looked(&mut self) {
        let now = self.ports.clock.elapsed();
        self.seen += now.saturating_sub(self.last_look).min(LOOK_VOUCHES);
        self.last_look = now;
        self.health.table_answered(now);
    }

    fn roles(&mut self) {
        let held = *self.lease.borrow_and_update();
        self.ports.metrics.leader(held.is_some());
        match held {
            Some(token) if self.role.lease != Some(token) => {
                // Budgets only after everything was read once more.
                self.role.lease = None;
                self.taken = Some((token, self.ports.clock.elapsed()));
                let _ = self.kick_list.try_send(());
            }
            Some(_) => {}
            None => {
                self.role.lease = None;
                self.taken = None;
            }
        }
        self.dirty.extend(self.yard.units());
    }

    fn take_in(&mut self, news: Seen) {
        match news {
            Seen::ListBegins(at) => self.listing = Some((at, BTreeSet::new())),
            Seen::Page(items) => {
                self.looked();
                let now = self.ports.clock.now().as_second();
                for item in items {
                    self.late.extend(events::left_over(&item, now));
                    self.record(item);
                }
            }
            Seen::ListEnds(keys) => self.listed(keys),
            Seen::ListFails(error) => {
                self.listing = None;
                tracing::warn!(%error, "the table could not be listed");
            }
            Seen::Changes(changes) => {
                self.looked();
                for change in changes {
                    match change.item {
                        Some(item) => self.record(item),
                        None => self.observe(Observation::Record(change.key, None)),
                    }
                }
            }
            Seen::Blind(error) => tracing::warn!(%error, "the table cannot be watched"),
        }
    }

    fn record(&mut self, item: Item) {
        let Some(key) = Key::of(&item) else { return };
        if key == Lease::key_of(Lease::OPERATOR)
            && let Reading::Record(lease) = read::<Lease>(&item)
        {
            self.ports.metrics.lease_seen(lease.token, lease.renewals);
        }
        if let Some(asked) = lease::resync(&item) {
            let open = asked.requested_at > asked.completed_at;
            if open && self.asked.is_none() {
                self.asked = Some(self.ports.clock.elapsed());
                let _ = self.kick_list.try_send(());
                let _ = self.kick_sweep.try_send(());
            }
        }
        if self.role.lease.is_none() {
            self.leader_claims(&key, &item);
        }
        self.observe(Observation::Record(key, Some(item)));
    }

    /// A claim that is news to a stand-by is the leader's: its class is in hand, however long its line is. Without this
    /// a stand-by would race for every claim of a class that is never without waiting requests.
    fn leader_claims(&mut self, key: &Key, item: &Item) {
        let Some(Unit::Instance(arn)) = unit_of(key) else { return };
        let Reading::Record(instance) = read::<Instance>(item) else { return };
        let known = self.yard.instance(&arn).map_or(0, |tracked| tracked.instance.version);
        if instance.state() == State::Claimed && instance.version > known {
            self.due.remove(&Unit::Class(instance.facts.resource_class));
        }
    }

    fn listed(&mut self, mut keys: BTreeSet<Key>) {
        let Some((begun, also)) = self.listing.take() else { return };
        keys.extend(also);
        if self.yard.listed.is_none() {
            tracing::info!("the table is listed, working");
        }
        self.observe(Observation::Listed(begun, keys));
        self.health.listed();
        self.ports.metrics.resynced();
        if let Some((token, since)) = self.taken
            && begun >= since
        {
            self.role.lease = Some(token);
            self.taken = None;
        }
        let late = std::mem::take(&mut self.late);
        if self.role.lease.is_some() && !late.is_empty() {
            tokio::spawn(events::remove(self.ports.store.clone(), late));
        }
        if let Some(asked) = self.asked
            && begun >= asked
        {
            self.asked = None;
            if self.role.lease.is_some() {
                let ports = self.ports.clone();
                tokio::spawn(async move {
                    if let Err(error) = lease::answer(ports.store.as_ref(), ports.clock.as_ref()).await {
                        tracing::warn!(%error, "a resync was done and could not be reported");
                    }
                });
            }
        }
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
        while let Some(unit) = self.dirty.pop_first() {
            let now = self.now();
            let cx = Context { yard: &self.yard, policy: &self.policy, now, role: self.role };
            let plan = decide(&cx, &unit);
            let mut wake = plan.wake;
            let leader = self.role.lease.is_some();
            let mut actions = plan.actions;
            actions.retain(|action| leader || !action.leader_only());
            actions.retain(|action| match self.resting.get(&(unit.clone(), action.kind())) {
                Some((_, until)) if now.mono < *until => {
                    wake = Some(wake.map_or(*until, |wake| wake.min(*until)));
                    false
                }
                Some(_) | None => true,
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

    /// Starts an action unless a record it writes is being written already; then its unit is judged again after that.
    fn start(&mut self, unit: &Unit, action: Action) {
        let keys = action.writes();
        if keys.iter().any(|key| self.yard.busy.contains(key)) {
            return;
        }
        self.yard.busy.extend(keys.iter().cloned());
        let around = self.around(&action);
        let executor = self.executor.clone();
        let unit = unit.clone();
        let clock = self.ports.clock.clone();
        self.tasks.spawn(async move {
            let begun = clock.elapsed();
            let outcome = executor.execute(action.clone(), around).await;
            Done { unit, keys, action, outcome, took: clock.elapsed().saturating_sub(begun) }
        });
    }

    /// The records an action refers to beside those it carries.
    fn around(&self, action: &Action) -> Surroundings {
        match action {
            Action::Instance(step, _) => self.around_machine(&step.before.facts.instance_arn),
            Action::Announce(arn) | Action::Credential(arn, _) | Action::SweepRunner(arn) => {
                self.around_machine(arn)
            }
            Action::Claim { machines, .. } => Surroundings {
                pool: machines
                    .first()
                    .and_then(|step| self.yard.pool(&step.before.facts.resource_class))
                    .cloned(),
                ..Surroundings::default()
            },
            Action::Order(id) => self.around_launch(id),
            Action::Silence(..)
            | Action::Request(..)
            | Action::Launch(..)
            | Action::Pool(_)
            | Action::Intend(..)
            | Action::Bind { .. }
            | Action::Orphan(..)
            | Action::Terminate(_)
            | Action::Describe(_)
            | Action::Bury(_)
            | Action::Receive(_)
            | Action::Look(_)
            | Action::Expire(..) => Surroundings::default(),
        }
    }

    fn around_machine(&self, arn: &InstanceArn) -> Surroundings {
        let Some(tracked) = self.yard.instance(arn) else { return Surroundings::default() };
        let instance = tracked.instance.clone();
        let request = instance.claim.as_ref().and_then(|claim| self.yard.request(&claim.request)).cloned();
        let pool = self.yard.pool(&instance.facts.resource_class).cloned();
        // The key goes into the record with the first write that needs it.
        let mut instance = instance;
        if instance.public_key.is_none() {
            instance.public_key = tracked.agent.as_ref().and_then(|agent| agent.public_key.clone());
        }
        Surroundings { instance: Some(instance), request, pool, launch: None }
    }

    fn around_launch(&self, id: &LaunchId) -> Surroundings {
        let Some(tracked) = self.yard.launch(id) else { return Surroundings::default() };
        let launch = tracked.launch.clone();
        let request = launch.request.as_ref().and_then(|key| self.yard.request(key)).cloned();
        let pool = self.yard.pool(&launch.resource_class).cloned();
        Surroundings { instance: None, request, pool, launch: Some(launch) }
    }

    /// Takes in what came of an action.
    fn finish(&mut self, done: Done) {
        for key in &done.keys {
            self.yard.busy.remove(key);
            self.dirty.extend(unit_of(key));
            if let Some(class) = self.class_of(key) {
                self.dirty.insert(Unit::Class(class));
            }
        }
        self.dirty.insert(done.unit.clone());
        self.ports.metrics.reconcile(done.took);
        match &done.outcome.failure {
            None => {
                self.resting.remove(&(done.unit.clone(), done.action.kind()));
                self.count(&done.action);
                for event in &done.outcome.events {
                    let (subject, reason, message) = (&event.subject, &event.reason, &event.message);
                    tracing::info!(%subject, %reason, from = event.from, to = event.to, %message, "transition");
                    self.events.tell(event);
                }
            }
            Some(failure) => {
                // Told once: it fails the same way until somebody mends it.
                if !self.resting.contains_key(&(done.unit.clone(), done.action.kind())) {
                    done.outcome.events.iter().for_each(|event| self.events.tell(event));
                }
                self.rest(&done.unit, &done.action, failure);
            }
        }
        let receive = match &done.action {
            Action::Receive(class) => Some(class.clone()),
            _ => None,
        };
        for seen in done.outcome.seen {
            self.observe(seen);
        }
        if let Some(class) = receive {
            self.settle_hints(&class);
        }
    }

    /// A failed unit rests, longer each time; one that only lost a race is judged again at once, twice.
    fn rest(&mut self, unit: &Unit, action: &Action, failure: &Failure) {
        let now = self.ports.clock.elapsed();
        let (times, until) = self.resting.entry((unit.clone(), action.kind())).or_insert((0, now));
        *times = times.saturating_add(1);
        let free = match failure {
            Failure::Lost => 2,
            Failure::Store(StoreError::Contended) => 1,
            Failure::Store(_) | Failure::Compute(_) | Failure::Courier(_) | Failure::Gone => 0,
        };
        if *times > free {
            let pause = (PAUSE * 2_u32.saturating_pow((*times - free - 1).min(10))).min(PAUSE_MOST);
            // Spread by the low digits of the clock, so that units that failed together do not come back together.
            *until = now + pause + pause.mul_f64(f64::from(now.subsec_nanos() % 1000) / 4000.0);
            tracing::warn!(what = %action.describe(), error = %failure, pause_ms = pause.as_millis() as u64, "not done");
        } else {
            tracing::debug!(what = %action.describe(), error = %failure, "not done");
        }
    }

    /// Counts what an action changed.
    fn count(&self, action: &Action) {
        let metrics = &self.ports.metrics;
        let moved = |before: Option<State>, after: &crate::model::Instance| {
            if before != Some(after.state()) {
                metrics.transition(before, after.state());
                if let crate::model::Life::Terminated { reason, .. } = after.life {
                    metrics.termination(reason);
                }
            }
        };
        match action {
            Action::Instance(step, _) | Action::Silence(step, ..) => {
                moved(Some(step.before.state()), &step.after);
                measure::moved(metrics, &step.before, &step.after);
            }
            Action::Claim { machines, .. } => {
                machines.iter().for_each(|step| moved(Some(step.before.state()), &step.after));
            }
            Action::Bind { machines, .. } => machines.iter().for_each(|(instance, _)| moved(None, instance)),
            Action::Orphan(instance, _) => moved(None, instance),
            Action::Request(step, _) => {
                let became = step.before.phase() != Phase::Ready && step.after.phase() == Phase::Ready;
                let status = &step.after.status;
                if let (true, Some(accepted), Some(ready)) = (became, status.accepted_at, status.ready_at) {
                    let waited = Duration::try_from(ready.duration_since(accepted)).unwrap_or_default();
                    let machines = status.instances.iter().filter_map(|id| self.yard.by_id(id));
                    let cold: Vec<bool> = machines.map(|m| m.instance.facts.created_at >= accepted).collect();
                    let source = match (cold.iter().any(|cold| *cold), cold.iter().all(|cold| *cold)) {
                        (true, true) => Source::Cold,
                        (true, false) => Source::Mixed,
                        (false, _) => Source::Warm,
                    };
                    metrics.request_ready(&step.after.intent.resource_class, source, waited);
                }
            }
            Action::Launch(..)
            | Action::Pool(_)
            | Action::Intend(..)
            | Action::Order(_)
            | Action::Terminate(_)
            | Action::Describe(_)
            | Action::Bury(_)
            | Action::Announce(_)
            | Action::Receive(_)
            | Action::Credential(..)
            | Action::SweepRunner(_)
            | Action::Look(_)
            | Action::Expire(..) => {}
        }
    }

    /// After a class was served with what its queue said: stale messages are removed, the others shown again.
    fn settle_hints(&mut self, class: &ClassName) {
        // The class is judged now, so that what it claims is known before the rest is given back.
        self.settle();
        let busy = &self.yard.busy;
        let state = |id: &crate::model::InstanceId| {
            let tracked = self.yard.by_id(id)?;
            if busy.contains(&tracked.instance.key()) {
                return None;
            }
            Some(tracked.instance.pooled_at().is_some() && tracked.instance.facts.resource_class == *class)
        };
        let back = self.executor.take_receipts(class, |id| state(id) == Some(true));
        let unknown =
            |id: &crate::model::InstanceId| self.yard.by_id(id).is_none() || state(id) == Some(false);
        let stale = self.executor.take_receipts(class, unknown);
        if back.is_empty() && stale.is_empty() {
            return;
        }
        let (queue, metrics, class) = (self.ports.queue.clone(), self.ports.metrics.clone(), class.clone());
        tokio::spawn(async move {
            for receipts in stale.chunks(10) {
                receipts.iter().for_each(|_| metrics.queue_message(QueueOutcome::Stale));
                if let Err(error) = queue.delete(&class, receipts).await {
                    tracing::debug!(%class, %error, "stale messages were not removed");
                }
            }
            for receipts in back.chunks(10) {
                receipts.iter().for_each(|_| metrics.queue_message(QueueOutcome::Returned));
                if let Err(error) = queue.give_back(&class, receipts).await {
                    tracing::debug!(%class, %error, "messages were not given back, they come again by themselves");
                }
            }
        });
    }

    fn class_of(&self, key: &Key) -> Option<ClassName> {
        if let Some(class) = class_key(key) {
            return ClassName::parse(class).ok();
        }
        if let Some(request) = self.yard.request(key) {
            return ClassName::parse(&request.intent.resource_class).ok();
        }
        let arn = key.pk.strip_prefix("instance#").and_then(|arn| InstanceArn::parse(arn).ok())?;
        self.yard.instance(&arn).map(|tracked| tracked.instance.facts.resource_class.clone())
    }

    /// Counts the time of machines, and asks the queues now and then; whoever leads does it for all.
    fn measure(&mut self) {
        let now = self.ports.clock.elapsed();
        let spent = now.saturating_sub(std::mem::replace(&mut self.measured, now));
        if self.role.lease.is_none() {
            return;
        }
        measure::time(&self.yard, &self.ports.metrics, spent);
        if self.deep.is_none_or(|at| now >= at + measure::DEPTHS) {
            self.deep = Some(now);
            let classes =
                self.yard.classes().filter(|(_, class)| class.pool.is_some()).map(|(name, _)| name.clone());
            let (queue, metrics) = (self.ports.queue.clone(), self.ports.metrics.clone());
            tokio::spawn(measure::depths(queue, metrics, classes.collect()));
        }
    }

    /// Tells what classes begin to do without, and what they take up again.
    fn breakers(&mut self) {
        let now = self.ports.clock.elapsed();
        let mut open = BTreeSet::new();
        for (name, class) in self.yard.classes().filter(|(_, class)| class.pool.is_some()) {
            for breaker in Breaker::ALL {
                let broken = class.broken(breaker, now);
                self.ports.metrics.breaker(name, breaker, broken);
                if broken {
                    open.insert((name.clone(), breaker));
                }
            }
        }
        let before = std::mem::replace(&mut self.open, open);
        // Stand-bys launch nothing and would only say the same again.
        if self.role.lease.is_none() {
            return;
        }
        for (class, breaker) in before.symmetric_difference(&self.open) {
            let opened = self.open.contains(&(class.clone(), *breaker));
            let (id, at) = (self.ports.entropy.hex(), self.ports.clock.now());
            let mut event = Event::new(&Pool::key_of(class).pk, id, at, "operator");
            let (reason, message) = match (breaker, opened) {
                (Breaker::Spot, true) => (
                    "SpotAvoided",
                    "spot machines are taken back or not to be had: requests that allow it get on-demand ones",
                ),
                (Breaker::Spot, false) => ("SpotTried", "spot machines are asked for again"),
                (Breaker::Boot, true) => ("LaunchesHeldBack", "launches are held back after failures"),
                (Breaker::Boot, false) => ("LaunchesTried", "launches are tried again"),
            };
            event.event_type = if opened { EventType::Warning } else { EventType::Normal };
            (event.reason, event.message) = (reason.into(), message.into());
            tracing::info!(%class, %reason, %message, "breaker");
            self.events.tell(&event);
        }
    }

    /// Brings the gauges up to date.
    fn gauge(&self) {
        let metrics = &self.ports.metrics;
        let now = self.ports.clock.now();
        let mut requests: BTreeMap<(&str, Phase), usize> = BTreeMap::new();
        let mut oldest: BTreeMap<&str, Timestamp> = BTreeMap::new();
        let mut live = runs::Live::new();
        for (_, request) in self.yard.requests() {
            if self.policy.github && runs::watched(request) {
                live.insert(request.id.clone());
            }
            let class = request.intent.resource_class.as_str();
            *requests.entry((class, request.phase())).or_default() += 1;
            let waiting = matches!(request.phase(), Phase::Pending | Phase::Fulfilling);
            if let Some(since) = request.status.accepted_at.filter(|_| waiting) {
                let first = oldest.entry(class).or_insert(since);
                *first = since.min(*first);
            }
        }
        self.live.send_replace(live);
        let mut ending: BTreeMap<&ClassName, usize> = BTreeMap::new();
        let mut late = 0;
        let grace = jiff::SignedDuration::try_from(self.policy.grace).unwrap_or(jiff::SignedDuration::MAX);
        for tracked in self.yard.instances() {
            let instance = &tracked.instance;
            late += usize::from(instance.threshold.is_some_and(|t| now.duration_since(t.at) > grace));
            if matches!(instance.life, Life::Terminated { gone_at: None, .. }) {
                *ending.entry(&instance.facts.resource_class).or_default() += 1;
            }
        }
        metrics.over_threshold(late);
        for (name, class) in self.yard.classes() {
            if class.pool.is_none() && class.live() == 0 {
                metrics.forget(name);
                continue;
            }
            metrics.class(name);
            for state in State::ALL.iter().filter(|state| state.live()) {
                metrics.instances(name, *state, class.counts.get(state).copied().unwrap_or(0) as usize);
            }
            metrics.instances(name, State::Terminated, ending.get(name).copied().unwrap_or(0));
            let desired = class.pool.as_ref().map_or(0, |pool| effective(pool, now).desired);
            metrics.pool_desired(name, desired as usize);
            for phase in Phase::ALL {
                let n = requests.remove(&(name.as_str(), *phase)).unwrap_or(0);
                metrics.requests(name.as_str(), *phase, n);
            }
            metrics.oldest_waiting(name.as_str(), oldest.get(name.as_str()).copied());
        }
        // What is asked of classes that are not there.
        for phase in Phase::ALL {
            let n = requests.iter().filter(|((_, of), _)| of == phase).map(|(_, n)| n).sum();
            metrics.requests(OTHER, *phase, n);
        }
    }
}

/// Says as soon as a class is seen that nothing can be launched of it, and why; its launches are refused one by one.
async fn refusal_told(compute: Arc<dyn Compute>, spec: PoolSpec) {
    if let Err(ComputeError::Refused(why)) = compute.check(&spec).await {
        tracing::error!(class = %spec.resource_class, why, "no machine of this class can be launched");
    }
}

/// The next who looks; never, where another loop answers.
async fn asked(
    asks: &mut Option<mpsc::Receiver<oneshot::Sender<Status>>>,
) -> Option<oneshot::Sender<Status>> {
    match asks {
        Some(asks) => asks.recv().await,
        None => None,
    }
}

/// The machine whose record was seen.
fn recorded(seen: &Observation) -> Option<InstanceArn> {
    match seen {
        Observation::Record(key, Some(_)) | Observation::Looked(key, Some(_)) => {
            key.pk.strip_prefix("instance#").and_then(|arn| InstanceArn::parse(arn).ok())
        }
        _ => None,
    }
}

/// The class whose record was seen.
fn class_seen(seen: &Observation) -> Option<ClassName> {
    match seen {
        Observation::Record(key, Some(_)) => {
            key.pk.strip_prefix("pool#").and_then(|class| ClassName::parse(class).ok())
        }
        _ => None,
    }
}

/// The class whose record a key is, or whose queue or launches it stands for.
fn class_key(key: &Key) -> Option<&str> {
    ["pool#", "queue#", "launches#"].iter().find_map(|prefix| key.pk.strip_prefix(prefix))
}

/// The unit that judges a record.
fn unit_of(key: &Key) -> Option<Unit> {
    if let Some(arn) = key.pk.strip_prefix("instance#") {
        return InstanceArn::parse(arn).ok().map(Unit::Instance);
    }
    if let Some(id) = key.pk.strip_prefix("launch#") {
        return LaunchId::parse(id).ok().map(Unit::Launch);
    }
    if let Some(class) = class_key(key) {
        return ClassName::parse(class).ok().map(Unit::Class);
    }
    key.pk.starts_with("request#").then(|| Unit::Request(key.clone()))
}
