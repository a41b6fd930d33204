//! Lists the provider's machines on an interval while this operator holds the lease. The list is an observation like
//! any other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ports::{Compute, Machine};

use crate::controller::ordered_watch;

/// Lists machines until stopped.
pub(crate) async fn run(
    compute: Arc<dyn Compute>,
    every: Duration,
    lease: ordered_watch::Receiver<Option<u64>>,
    mut triggers: mpsc::Receiver<()>,
    sender: mpsc::Sender<Vec<Machine>>,
    shutdown: CancellationToken,
) {
    if !compute.keeps_inventory() {
        return;
    }
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            triggered = triggers.recv() => if triggered.is_none() { return },
            () = tokio::time::sleep(every) => {}
        }
        let held = lease.get().is_some();
        if !held {
            continue;
        }
        match compute.list().await {
            Ok(machines) => {
                if sender.send(machines).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "the machines could not be listed"),
        }
    }
}
