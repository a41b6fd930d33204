//! The controller loop: observations mark units dirty, `decide` plans actions for each dirty unit, and the loop
//! executes them, one port call per action. All decisions are pure and elsewhere.

mod execute;
pub(crate) mod github;
mod lease;
mod measure;
mod ordered_watch;
mod reconcile;
pub(crate) mod records;
pub(crate) mod sources;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::decide::{Following, Policy};
use crate::ledger::Prices;
use crate::metrics::Metrics;
use crate::model::{Rebalance, TableName, Timing, YardSharing};
use crate::ports::{Clock, Compute, Doorbell, Entropy, GitHub, Notices, PoolQueue, Store};
use crate::status::Health;

pub use crate::controller::github::credential_issuer::CredentialIssuer;
pub use crate::controller::records::history::HistoryTable;

/// The ports that the loop uses.
#[derive(Clone)]
pub struct Ports {
    /// The table.
    pub store: Arc<dyn Store>,
    /// The pool queues.
    pub queue: Arc<dyn PoolQueue>,
    /// The compute provider.
    pub compute: Arc<dyn Compute>,
    /// GitHub; none where somebody else registers runners.
    pub github: Option<Arc<dyn GitHub>>,
    /// EC2's notices about machines, if a queue is configured.
    pub notices: Option<Arc<dyn Notices>>,
    /// The doorbell; none where the watch learns of a write without it.
    pub doorbell: Option<Bell>,
    /// The history table; none where no history is kept.
    pub history: Option<HistoryTable>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The metrics.
    pub metrics: Metrics,
}

/// The doorbell, and what a ring does.
#[derive(Clone)]
pub struct Bell {
    /// Where rings are waited for.
    pub port: Arc<dyn Doorbell>,
    /// Has the watch of the table look at once.
    pub look: watch::Sender<()>,
}

/// The settings of contract, section 8.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This operator's identity as holder of the lease; unique among the operators of one table.
    pub identity: String,
    /// The table, which marks what is ours.
    pub table: TableName,
    /// Whether runners are registered for a whole organisation instead of one repository.
    pub organization: bool,
    /// What is done about machines that EC2 expects to take back.
    pub rebalance: Rebalance,
    /// The deadlines and intervals.
    pub timing: Timing,
    /// How many requests of one repository may be open at the same time.
    pub requests_per_repository: u32,
    /// The runner version that machines get, where the operator's file names one.
    pub runner_version: Option<String>,
    /// Which machines follow GitHub's list of runner packages.
    pub following: Following,
    /// Teams, priorities and the quotas of the whole yard.
    pub sharing: YardSharing,
    /// What machines cost.
    pub prices: Arc<Prices>,
    /// How often the machines are listed.
    pub sweep: Duration,
    /// The calls to GitHub beside credentials.
    pub github: GitHubWatch,
}

/// The calls to GitHub beside credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GitHubWatch {
    /// How often GitHub is asked where a live request's run stands; none: never.
    pub run_poll: Option<Duration>,
    /// How often runners are looked for whose claim is over; none: never.
    pub sweep: Option<Duration>,
    /// Whether GitHub is asked if a runner is gone before its machine goes to the pool.
    pub verify_removed: bool,
    /// Whether GitHub is asked if a request's run is there before its machines get a credential.
    pub verify_run: bool,
    /// Whether later attempts of runs get machines although nobody asked for them ("Re-run failed jobs").
    pub reruns: bool,
    /// Whether the failed jobs of a run that lost a spot machine are run again, once.
    pub rerun_lost: bool,
}

impl Default for GitHubWatch {
    /// As `config/default.toml` has it.
    fn default() -> Self {
        let (run_poll, sweep) = (Duration::from_secs(60), Duration::from_secs(3600));
        Self {
            run_poll: Some(run_poll),
            sweep: Some(sweep),
            verify_removed: true,
            verify_run: true,
            reruns: true,
            rerun_lost: false,
        }
    }
}

impl Settings {
    /// What decisions depend on.
    pub fn policy(&self, github: bool, inventory: bool) -> Policy {
        Policy {
            timing: self.timing,
            requests_per_repository: self.requests_per_repository,
            prices: self.prices.clone(),
            sharing: self.sharing.clone(),
            following: self.following.clone(),
            github,
            organization: self.organization,
            watches_runs: github && self.github.run_poll.is_some(),
            inventory,
            rebalance: self.rebalance,
        }
    }
}

/// Why the operator stopped.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The table does not exist or has another shape.
    #[error("the table cannot be used: {0}")]
    Table(#[from] crate::ports::StoreError),
}

/// Runs the operator until it is stopped: actions in progress are finished and the lease is handed back.
///
/// # Errors
/// When the table is missing, has another shape, or denies us.
pub async fn run(
    ports: Ports,
    settings: Settings,
    health: Arc<Health>,
    shutdown: CancellationToken,
) -> Result<(), OperatorError> {
    reconcile::run(ports, settings, health, shutdown).await
}

#[cfg(test)]
mod tests;
