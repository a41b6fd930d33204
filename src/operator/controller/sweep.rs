//! The machines that exist, as their maker lists them: taken on an interval by whoever holds the lease, and judged
//! like any other observation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::ports::{Compute, Machine};

/// Lists machines until told to stop.
pub(super) async fn run(
    compute: Arc<dyn Compute>,
    every: Duration,
    lease: watch::Receiver<Option<u64>>,
    mut kicks: mpsc::Receiver<()>,
    tell: mpsc::Sender<Vec<Machine>>,
    shutdown: CancellationToken,
) {
    if !compute.keeps_inventory() {
        return;
    }
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            kick = kicks.recv() => if kick.is_none() { return },
            () = tokio::time::sleep(every) => {}
        }
        let held = lease.borrow().is_some();
        if !held {
            continue;
        }
        match compute.list().await {
            Ok(machines) => {
                if tell.send(machines).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "the machines could not be listed"),
        }
    }
}
