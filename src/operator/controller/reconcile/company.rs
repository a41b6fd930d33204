//! What runs beside the loop: the candidate for the lease, who follows the table, and those who ask EC2 and GitHub now
//! and then. What they learn comes to the loop by channels.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::controller::courier::Courier;
use crate::controller::events::Events;
use crate::controller::follow::{Follower, Seen};
use crate::controller::{Ports, Settings, ghosts, lease, notices, runs, sweep};
use crate::ports::{Machine, Told};
use crate::status::Snapshot;

/// A watch that tells nothing for so many terms of the lease, which is renewed thrice in each, has stalled.
const SILENT_LEASES: u32 = 4;

/// What comes to the loop from others.
pub(super) struct Inbox {
    pub(super) seen: mpsc::Receiver<Seen>,
    pub(super) machines: mpsc::Receiver<Vec<Machine>>,
    pub(super) told: mpsc::Receiver<Vec<Told>>,
    /// Who sweeps runners at GitHub, and asks which are whose.
    pub(super) sweeps: mpsc::Receiver<ghosts::Ask>,
    /// Those who look at the yard; none, where another loop answers.
    pub(super) asks: Option<mpsc::Receiver<oneshot::Sender<Snapshot>>>,
}

impl Inbox {
    /// The next who looks; never, where another loop answers.
    pub(super) async fn asked(
        asks: &mut Option<mpsc::Receiver<oneshot::Sender<Snapshot>>>,
    ) -> Option<oneshot::Sender<Snapshot>> {
        match asks {
            Some(asks) => asks.recv().await,
            None => None,
        }
    }
}

/// Everybody who runs beside the loop, and the loop's ends of the channels.
pub(super) struct Company {
    /// Dropped with the loop, so that nothing of an operator outlives it.
    pub(super) tasks: JoinSet<()>,
    /// Follows the table. Runs once the loop knows its role, so that the first list begins after the lease was taken and
    /// no second one is needed.
    pub(super) follower: BoxFuture<'static, ()>,
    pub(super) inbox: Inbox,
    pub(super) lease: watch::Receiver<Option<u64>>,
    pub(super) kick_list: mpsc::Sender<()>,
    pub(super) kick_sweep: mpsc::Sender<()>,
    /// The requests whose runs are watched at GitHub.
    pub(super) live: watch::Sender<runs::Live>,
    pub(super) events: Events,
    pub(super) courier: Option<Arc<Courier>>,
}

impl Company {
    /// Tries for the lease once, so that a lone operator leads from its first moment, then starts everybody.
    pub(super) async fn start(
        ports: &Ports,
        settings: &Settings,
        asks: Option<mpsc::Receiver<oneshot::Sender<Snapshot>>>,
        shutdown: &CancellationToken,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let lease = stands_for_the_lease(ports, settings, &mut tasks, shutdown).await;
        let (tell_seen, seen) = mpsc::channel(256);
        let (kick_list, list_kicks) = mpsc::channel(1);
        let follower = Follower {
            store: ports.store.clone(),
            clock: ports.clock.clone(),
            resync: settings.resync,
            silence: settings.lease * SILENT_LEASES,
            tell: tell_seen,
            shutdown: shutdown.child_token(),
        };
        let follower = Box::pin(follower.run(list_kicks));
        let (kick_sweep, sweep_kicks) = mpsc::channel(1);
        let (tell_machines, machines) = mpsc::channel(4);
        tasks.spawn(sweep::run(
            ports.compute.clone(),
            settings.sweep,
            lease.clone(),
            sweep_kicks,
            tell_machines,
            shutdown.child_token(),
        ));
        let (tell_notices, told) = mpsc::channel(4);
        if let Some(port) = ports.notices.clone() {
            let (metrics, stop) = (ports.metrics.clone(), shutdown.child_token());
            tasks.spawn(notices::run(port, metrics, lease.clone(), tell_notices, stop));
        }
        let (events, writing) = Events::start(ports.store.clone(), ports.metrics.clone());
        tasks.spawn(writing);
        let (live, live_runs) = watch::channel(runs::Live::new());
        watches_runs(ports, settings, &events, &lease, live_runs, &mut tasks, shutdown);
        let (ask, sweeps) = mpsc::channel(1);
        let courier = sweeps_ghosts(ports, settings, &lease, ask, &mut tasks, shutdown);
        let inbox = Inbox { seen, machines, told, sweeps, asks };
        Self { tasks, follower, inbox, lease, kick_list, kick_sweep, live, events, courier }
    }
}

async fn stands_for_the_lease(
    ports: &Ports,
    settings: &Settings,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> watch::Receiver<Option<u64>> {
    let (tell, lease) = watch::channel(None);
    let (store, clock) = (ports.store.clone(), ports.clock.clone());
    let mut candidate = lease::Candidate::new(store, clock, settings.identity.clone(), settings.lease);
    if let Ok(token) = candidate.attempt().await {
        tell.send_replace(token);
    }
    tasks.spawn(candidate.keep(tell, shutdown.child_token()));
    lease
}

fn watches_runs(
    ports: &Ports,
    settings: &Settings,
    events: &Events,
    lease: &watch::Receiver<Option<u64>>,
    live: watch::Receiver<runs::Live>,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) {
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
            live,
        };
        tasks.spawn(watcher.run(shutdown.child_token()));
    }
}

/// Who carries credentials to and from GitHub, and who sweeps there what is left of machines that are gone.
fn sweeps_ghosts(
    ports: &Ports,
    settings: &Settings,
    lease: &watch::Receiver<Option<u64>>,
    ask: mpsc::Sender<ghosts::Ask>,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> Option<Arc<Courier>> {
    let github = ports.github.clone()?;
    let (clock, entropy) = (ports.clock.clone(), ports.entropy.clone());
    let courier =
        Arc::new(Courier::new(github, clock, entropy, settings.organization, settings.github.verify_run));
    if let Some(every) = settings.github.sweep {
        let (store, lease, strangers) = (ports.store.clone(), lease.clone(), BTreeSet::new());
        let sweeper = ghosts::Sweeper { courier: courier.clone(), store, every, lease, ask, strangers };
        tasks.spawn(sweeper.run(shutdown.child_token()));
    }
    Some(courier)
}
