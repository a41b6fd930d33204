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

use jiff::SignedDuration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::decide::{Following, Policy};
use crate::ledger::Prices;
use crate::metrics::Metrics;
use crate::model::{Rebalance, TableName, Timing, YardSharing};
use crate::ports::{
    Clock, Compute, Doorbell, Entropy, GitHub, JobBell, Notices, PoolQueue, ScaleSets, Store,
};
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
    /// GitHub; `None` if another program registers runners.
    pub github: Option<Arc<dyn GitHub>>,
    /// GitHub's runner scale sets; `None` where nobody listens to them.
    pub scale_sets: Option<Arc<dyn ScaleSets>>,
    /// EC2's notices about machines, if a queue is configured.
    pub notices: Option<Arc<dyn Notices>>,
    /// The doorbell; `None` if the watch sees writes without it.
    pub doorbell: Option<Bell>,
    /// GitHub's word that jobs were queued; `None` if nobody passes it on.
    pub job_bell: Option<Arc<dyn JobBell>>,
    /// The history table; `None` if no history is kept.
    pub history: Option<HistoryTable>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The metrics.
    pub metrics: Metrics,
}

/// The doorbell, with the action of a ring.
#[derive(Clone)]
pub struct Bell {
    /// The port that receives rings.
    pub port: Arc<dyn Doorbell>,
    /// Makes the watch of the table look at once.
    pub look: watch::Sender<()>,
}

/// The settings of contract, section 8.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This operator's identity as holder of the lease; unique among the operators of one table.
    pub identity: String,
    /// The table; its name marks our resources.
    pub table: TableName,
    /// Whether runners are registered for a whole organisation instead of one repository.
    pub organization: bool,
    /// The reaction to rebalance recommendations of EC2.
    pub rebalance: Rebalance,
    /// The deadlines and intervals.
    pub timing: Timing,
    /// Maximum number of open requests of one repository.
    pub requests_per_repository: u32,
    /// The runner version on machines, if the operator's file names one.
    pub runner_version: Option<String>,
    /// The machines that follow GitHub's list of runner packages.
    pub following: Following,
    /// Teams, priorities and yard-wide quotas.
    pub sharing: YardSharing,
    /// The prices of machines.
    pub prices: Arc<Prices>,
    /// The interval of machine inventories.
    pub sweep: Duration,
    /// The calls to GitHub beside credentials.
    pub github: GitHubWatch,
    /// How long the records of ended requests stay in the table where there is a history table; tests shorten it.
    pub ended_stays: SignedDuration,
}

/// The calls to GitHub beside credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GitHubWatch {
    /// The interval at which the runs of a repository are looked at; `None` disables it.
    pub run_poll: Option<Duration>,
    /// The interval at which runners of ended claims are searched; `None` disables it.
    pub sweep: Option<Duration>,
    /// Whether GitHub must confirm that a runner is gone before its machine goes to the pool.
    pub verify_removed: bool,
    /// Whether GitHub must confirm that a request's run exists before its machines get a credential.
    pub verify_run: bool,
    /// Whether later attempts of runs get machines without a request ("Re-run failed jobs").
    pub reruns: bool,
    /// Whether the failed jobs of a run that lost a spot machine are re-run, once.
    pub rerun_lost: bool,
}

impl Default for GitHubWatch {
    /// Returns the values of `config/default.toml`.
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
    /// Returns the settings that decisions depend on.
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
            statements: false,
            ended_stays: self.ended_stays,
        }
    }
}

/// The reason why the operator stopped.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The table does not exist or has another shape.
    #[error("the table cannot be used: {0}")]
    Table(#[from] crate::ports::StoreError),
}

/// Runs the operator until it is stopped; then it finishes actions in progress and releases the lease.
///
/// # Errors
/// The table is missing, has another shape, or denies access.
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
