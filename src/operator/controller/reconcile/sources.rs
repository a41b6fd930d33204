//! Background tasks (lease, table watch, EC2, GitHub and notice pollers) and their channels to the loop.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::controller::github::credential_issuer::CredentialIssuer;
use crate::controller::github::{runner_gc, runs, sets, version_clock};
use crate::controller::records::events::Events;
use crate::controller::records::history;
use crate::controller::records::history::Backlog;
use crate::controller::sources::follow::{Follower, Seen};
use crate::controller::sources::{doorbell, job_bell, notices, sweep};
use crate::controller::{GitHubWatch, Ports, Settings, lease, ordered_watch};
use crate::ports::github::RunnerNews;
use crate::ports::{Delivery, Machine};
use crate::status::Snapshot;

use super::state::Triggers;
use super::tasks::Tasks;

/// A watch that returns no change for this many lease terms has stalled: each term has three renewals, which are
/// changes.
const SILENT_LEASES: u32 = 4;

/// The receiving ends of the loop's channels.
pub(super) struct Inputs {
    pub(super) seen: mpsc::Receiver<Seen>,
    pub(super) machines: mpsc::Receiver<Vec<Machine>>,
    pub(super) notices: mpsc::Receiver<Vec<Delivery>>,
    /// Questions of the garbage collection of runners.
    pub(super) sweeps: mpsc::Receiver<runner_gc::Ask>,
    /// Questions of the watch of runs.
    pub(super) runs: mpsc::Receiver<runs::Ask>,
    /// Questions of the listeners to scale sets.
    pub(super) sets: mpsc::Receiver<sets::Ask>,
    /// GitHub's information about runner packages.
    pub(super) runner: watch::Receiver<RunnerNews>,
    /// Requests for a snapshot of the yard; `None` if another loop serves them.
    pub(super) snapshot_requests: Option<mpsc::Receiver<oneshot::Sender<Snapshot>>>,
}

impl Inputs {
    /// Waits for the next request for a snapshot; forever if another loop serves them.
    pub(super) async fn next_request(
        requests: &mut Option<mpsc::Receiver<oneshot::Sender<Snapshot>>>,
    ) -> Option<oneshot::Sender<Snapshot>> {
        match requests {
            Some(requests) => requests.recv().await,
            None => None,
        }
    }
}

/// The background tasks, and the loop's ends of their channels.
pub(super) struct BackgroundTasks {
    pub(super) tasks: Tasks,
    /// Follows the table. It runs once the loop's role is known, so that the first list begins after the lease was
    /// taken and no second one is needed.
    pub(super) follower: BoxFuture<'static, ()>,
    pub(super) inputs: Inputs,
    pub(super) lease: ordered_watch::Receiver<Option<u64>>,
    pub(super) triggers: Triggers,
    pub(super) events: Events,
    pub(super) backlog: Backlog,
    pub(super) issuer: Option<Arc<CredentialIssuer>>,
}

impl BackgroundTasks {
    /// Tries to take the lease once, so that a lone operator leads from its first moment; then starts all tasks.
    pub(super) async fn start(
        ports: &Ports,
        settings: &Settings,
        snapshot_requests: Option<mpsc::Receiver<oneshot::Sender<Snapshot>>>,
        shutdown: &CancellationToken,
    ) -> Self {
        let mut tasks = Tasks::new(shutdown.clone());
        let backlog = Backlog::new(ports.history.as_ref());
        let lease = spawn_lease(ports, settings, &backlog, &mut tasks, shutdown).await;
        let (seen_sender, seen) = mpsc::channel(256);
        let (resync_trigger, resync_triggered) = mpsc::channel(1);
        let follower = Follower {
            store: ports.store.clone(),
            clock: ports.clock.clone(),
            resync: settings.timing.resync,
            silence: settings.timing.lease * SILENT_LEASES,
            sender: seen_sender.clone(),
            shutdown: shutdown.child_token(),
        };
        let follower = Box::pin(follower.run(resync_triggered));
        let (sweep_trigger, sweep_triggered) = mpsc::channel(1);
        let (machines_sender, machines) = mpsc::channel(4);
        tasks.spawn_lasting(sweep::run(
            ports.compute.clone(),
            settings.sweep,
            lease.clone(),
            sweep_triggered,
            machines_sender,
            shutdown.child_token(),
        ));
        let (notices_sender, notices_received) = mpsc::channel(4);
        if let Some(port) = ports.notices.clone() {
            let (metrics, stop) = (ports.metrics.clone(), shutdown.child_token());
            tasks.spawn_lasting(notices::run(port, metrics, lease.clone(), notices_sender, stop));
        }
        if let Some(bell) = ports.doorbell.clone() {
            let (store, clock) = (ports.store.clone(), ports.clock.clone());
            let reader = doorbell::Reader { store, clock, sender: seen_sender };
            tasks.spawn_lasting(doorbell::run(bell, reader, lease.clone(), shutdown.child_token()));
        }
        let events = spawn_history(ports, &backlog, &mut tasks, shutdown);
        let (ask, sweeps) = mpsc::channel(1);
        let (news, runner) = watch::channel(RunnerNews::default());
        let issuer = spawn_runner_gc(ports, settings, &lease, ask.clone(), &mut tasks, shutdown);
        let runs = spawn_run_watch(ports, settings, &events, issuer.clone(), &lease, &mut tasks, shutdown);
        let sets = spawn_sets(ports, settings, &events, &lease, &mut tasks, shutdown);
        if let (Some(issuer), Some(version)) = (issuer.clone(), settings.runner_version.clone()) {
            let clock = ports.clock.clone();
            let (lease, following) = (lease.clone(), settings.following.clone());
            let of = version_clock::VersionClock { issuer, version, following, clock, lease, ask, news };
            tasks.spawn_lasting(of.run(shutdown.child_token()));
        }
        let inputs = Inputs {
            seen,
            machines,
            notices: notices_received,
            sweeps,
            runs,
            sets,
            runner,
            snapshot_requests,
        };
        let triggers = Triggers { resync: resync_trigger, sweep: sweep_trigger };
        Self { tasks, follower, inputs, lease, triggers, events, backlog, issuer }
    }
}

/// Starts the writers of events and of the history.
fn spawn_history(
    ports: &Ports,
    backlog: &Backlog,
    tasks: &mut Tasks,
    shutdown: &CancellationToken,
) -> Events {
    if let Some(table) = ports.history.clone() {
        let (clock, metrics) = (ports.clock.clone(), ports.metrics.clone());
        tasks.spawn_lasting(history::run(table, backlog.clone(), clock, metrics, shutdown.child_token()));
    }
    let history = ports.history.clone().map(|table| (table, backlog.clone()));
    let (events, writing) = Events::start(ports.store.clone(), history, ports.metrics.clone());
    tasks.spawn_lasting(writing);
    events
}

async fn spawn_lease(
    ports: &Ports,
    settings: &Settings,
    backlog: &Backlog,
    tasks: &mut Tasks,
    shutdown: &CancellationToken,
) -> ordered_watch::Receiver<Option<u64>> {
    let (sender, lease) = ordered_watch::channel(None);
    let (store, clock) = (ports.store.clone(), ports.clock.clone());
    let (identity, term) = (settings.identity.clone(), settings.timing.lease);
    let mut candidate = lease::Candidate::new(store, clock, identity, term, backlog.clone());
    if let Ok(token) = candidate.attempt().await {
        sender.set(token);
    }
    tasks.spawn_lasting(candidate.keep(sender, shutdown.child_token()));
    lease
}

/// Starts the watch of workflow runs.
fn spawn_run_watch(
    ports: &Ports,
    settings: &Settings,
    events: &Events,
    issuer: Option<Arc<CredentialIssuer>>,
    lease: &ordered_watch::Receiver<Option<u64>>,
    tasks: &mut Tasks,
    shutdown: &CancellationToken,
) -> mpsc::Receiver<runs::Ask> {
    let (ask, requests) = mpsc::channel(1);
    let GitHubWatch { run_poll, reruns, rerun_lost, .. } = settings.github;
    if let (Some(github), Some(every)) = (ports.github.clone(), run_poll) {
        let rings = ports.job_bell.clone().map(|bell| {
            let (rings, rung) = mpsc::channel(64);
            let (metrics, stop) = (ports.metrics.clone(), shutdown.child_token());
            tasks.spawn_lasting(job_bell::run(bell, metrics, lease.clone(), rings, stop));
            rung
        });
        let watch = runs::RunWatch {
            github,
            store: ports.store.clone(),
            history: ports.history.as_ref().map(|table| table.store.clone()),
            clock: ports.clock.clone(),
            entropy: ports.entropy.clone(),
            events: events.clone(),
            duties: runs::Duties { every, reruns, rerun_lost },
            lease: lease.clone(),
            ask,
            rings,
            issuer,
            memory: runs::Memory::default(),
        };
        tasks.spawn_lasting(watch.run(shutdown.child_token()));
    }
    requests
}

/// Starts the listeners to scale sets.
fn spawn_sets(
    ports: &Ports,
    settings: &Settings,
    events: &Events,
    lease: &ordered_watch::Receiver<Option<u64>>,
    tasks: &mut Tasks,
    shutdown: &CancellationToken,
) -> mpsc::Receiver<sets::Ask> {
    let (ask, questions) = mpsc::channel(1);
    if let Some(sets) = ports.scale_sets.clone() {
        let shared = sets::Shared {
            sets,
            store: ports.store.clone(),
            clock: ports.clock.clone(),
            entropy: ports.entropy.clone(),
            events: events.clone(),
            identity: settings.identity.clone(),
            ask,
        };
        let watch = sets::SetWatch { shared, lease: lease.clone() };
        tasks.spawn_lasting(watch.run(shutdown.child_token()));
    }
    questions
}

/// Starts the issuer of credentials, and the garbage collection of runners whose machines are gone.
fn spawn_runner_gc(
    ports: &Ports,
    settings: &Settings,
    lease: &ordered_watch::Receiver<Option<u64>>,
    ask: mpsc::Sender<runner_gc::Ask>,
    tasks: &mut Tasks,
    shutdown: &CancellationToken,
) -> Option<Arc<CredentialIssuer>> {
    let github = ports.github.clone()?;
    let (clock, entropy) = (ports.clock.clone(), ports.entropy.clone());
    let issuer = Arc::new(CredentialIssuer::new(
        github,
        clock,
        entropy,
        settings.organization,
        settings.github.verify_run,
        ports.scale_sets.clone(),
    ));
    if let Some(every) = settings.github.sweep {
        let (store, lease, unknown) = (ports.store.clone(), lease.clone(), BTreeSet::new());
        let gc = runner_gc::RunnerGc { issuer: issuer.clone(), store, every, lease, ask, unknown };
        tasks.spawn_lasting(gc.run(shutdown.child_token()));
    }
    Some(issuer)
}
