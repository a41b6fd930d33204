//! The composition root, the one place that builds the configured adapters and connects them: the operator as a daemon,
//! and the same operator on a local environment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
#[cfg(feature = "ec2")]
use crate::aws::ec2::{Ec2Compute, Ec2Options};
use crate::aws::{SqsDoorbell, SqsJobBell, SqsNotices, SqsQueue};
use crate::config::{
    ComputeKind, Config, ConfigErrors, Credential, GitHub as GitHubConfig, QueueKind, ScopeKind,
};
use crate::controller::{self, Bell, HistoryTable, OperatorError, Ports, Settings};
use crate::github::{ApiUrl, ApiUrlError, AppKey, DEFAULT_DEADLINE, RestGitHub, RestScaleSets, SetupError};
use crate::in_process::compute_none::NoCompute;
use crate::in_process::queue_memory::InProcessQueue;
#[cfg(feature = "ec2")]
use crate::limits::Limited;
use crate::metrics::Metrics;
use crate::metrics::ports::Metered;
use crate::model::FieldError;
use crate::ports::{Clock, Compute, Entropy, GitHub, JobBell, Notices, PoolQueue, ScaleSets, Signer, Store};
use crate::process::clock::{SystemClock, SystemEntropy};
use crate::signing::StatementKey;
use crate::status::Health;
use crate::store::DynamoStore;
#[cfg(feature = "local")]
use runyard_standin::compute::{LocalCompute, LocalError};

/// The minimum interval of inventories of a provider that charges for calls.
const SWEEP: Duration = Duration::from_secs(60);

/// The reason why the operator did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A key requires something that this program does not support here.
    #[error(transparent)]
    Key(#[from] FieldError),
    /// `github.api_url` cannot be used.
    #[error(transparent)]
    ApiUrl(#[from] ApiUrlError),
    /// GitHub's adapter cannot be built.
    #[error(transparent)]
    GitHub(#[from] SetupError),
    /// Local machines are not possible.
    #[cfg(feature = "local")]
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The loop stopped by itself.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// A basic system call failed.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
    /// A second signal came before everything was finished.
    #[error("stopped at once by a second signal; what was in progress is finished by the next operator")]
    Aborted,
}

/// The operator's parts.
pub struct Wired {
    /// Its ports.
    pub ports: Ports,
    /// Its settings.
    pub settings: Settings,
    /// Its readiness, for `/readyz`.
    pub health: Arc<Health>,
    /// The machines, if they are child processes: a final stop must end them.
    #[cfg(feature = "local")]
    pub machines: Option<Arc<LocalCompute>>,
}

/// Runs the daemon until a signal stops it.
///
/// # Errors
/// The configuration requires something unavailable, the table does not exist, or a second signal came.
pub async fn operator(config: &Config, environment: &BTreeMap<String, String>) -> Result<(), WireError> {
    let sdk = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let name = format!("{}-{}", hostname(environment), SystemEntropy.hex());
    let wired = build(config, &sdk, environment, name)?;
    let stop = on_signals()?;
    serve(wired, config, stop).await
}

/// Runs the loop and the admin port until `stop`; a second signal aborts.
///
/// # Errors
/// The loop's own.
pub async fn serve(wired: Wired, config: &Config, stop: Stop) -> Result<(), WireError> {
    serve_on(listener(config).await?, wired, stop).await
}

/// Binds the admin port.
///
/// # Errors
/// The address is not this machine's, or not free.
pub async fn listener(config: &Config) -> Result<TcpListener, WireError> {
    TcpListener::bind(config.listen).await.map_err(|error| {
        let fix = "set admin.listen (RUNYARD_ADMIN__LISTEN) to an address of this machine that is free; port 0 finds one";
        FieldError::new("admin.listen", config.listen.to_string(), error.to_string(), fix).into()
    })
}

/// Does the same as [`serve`] on an admin port that is open already.
///
/// # Errors
/// The loop's own.
pub async fn serve_on(listener: TcpListener, wired: Wired, stop: Stop) -> Result<(), WireError> {
    let answers = Admin { health: wired.health.clone(), metrics: wired.ports.metrics.clone() };
    let closed = CancellationToken::new();
    let answering = tokio::spawn(admin::serve(listener, answers, closed.clone()));
    let running = controller::run(wired.ports, wired.settings, wired.health, stop.gently.clone());
    let ended = tokio::select! {
        ended = running => ended.map_err(WireError::from),
        () = stop.at_once.cancelled() => Err(WireError::Aborted),
    };
    closed.cancel();
    if let Ok(Err(error)) = answering.await {
        tracing::warn!(%error, "the admin port failed");
    }
    ended
}

/// Builds every adapter. No call is made yet.
///
/// # Errors
/// The configuration requires something unavailable.
#[expect(
    clippy::too_many_lines,
    reason = "the composition root builds each adapter in the order in which they need each other"
)]
pub fn build(
    config: &Config,
    sdk: &SdkConfig,
    environment: &BTreeMap<String, String>,
    identity: String,
) -> Result<Wired, WireError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let store = DynamoStore::connect(config.table.clone(), sdk);
    #[cfg(feature = "local")]
    let store = match config.compute {
        ComputeKind::Local => runyard_standin::change_notifier::with_change_notifier(
            store,
            &crate::in_process::local_options::directory(environment)?,
        ),
        ComputeKind::Ec2 | ComputeKind::None => store,
    };
    let metrics = Metrics::new(clock.clone());
    let queue: Arc<dyn PoolQueue> = match config.queue {
        QueueKind::Sqs => {
            Arc::new(SqsQueue::connect(config.table.clone(), sdk).keeping(config.timing.announced()))
        }
        QueueKind::Memory => Arc::new(InProcessQueue::new(clock.clone(), config.timing.announced())),
    };
    let (store, doorbell, job_bell) = match (config.queue, config.compute) {
        (QueueKind::Sqs, ComputeKind::Ec2 | ComputeKind::None) => {
            let (look, looks) = watch::channel(());
            let port = Arc::new(SqsDoorbell::connect(&config.table, sdk));
            let bell = Bell { port: Arc::new(Metered::new(port, metrics.clone())), look };
            let jobs = Arc::new(SqsJobBell::connect(&config.table, sdk));
            let jobs = Arc::new(Metered::new(jobs, metrics.clone())) as Arc<dyn JobBell>;
            (store.woken_by(looks), Some(bell), Some(jobs))
        }
        // In local mode each commit of the engine wakes the watch, and the stand-in GitHub rings by itself.
        (QueueKind::Sqs, ComputeKind::Local)
        | (QueueKind::Memory, ComputeKind::Ec2 | ComputeKind::None | ComputeKind::Local) => {
            (store, None, None)
        }
    };
    let signer = config.signing_key_file.as_deref().map(StatementKey::read).transpose()?;
    let signer = signer.inspect(|key| tracing::info!(key = key.id(), "statements about claims are signed"));
    let history = store.history().map(|store| HistoryTable {
        store: Arc::new(store),
        events: match config.compute {
            ComputeKind::Ec2 | ComputeKind::None => true,
            // `up` and `demo` show events from the stream of the yard's table.
            ComputeKind::Local => false,
        },
        keep: i64::try_from(config.history_keep.as_secs()).unwrap_or(i64::MAX),
        signer: signer.map(|key| Arc::new(key) as Arc<dyn Signer>),
    });
    let store: Arc<dyn Store> = Arc::new(store);
    let github =
        config.github.as_ref().map(|github| self::github(github, clock.clone(), &metrics)).transpose()?;
    let mut settings = settings(config, identity);
    let health = Arc::new(Health::new(clock.clone()));
    let web = config.github.as_ref().and_then(|github| ApiUrl::parse(&github.api_url).ok());
    if let Some(web) = web.filter(|web| !web.is_loopback()) {
        health.snapshots().link_to(web.web());
    }
    let store = Arc::new(Metered::new(store, metrics.clone()).telling(health.clone()));
    let queue = Arc::new(Metered::new(queue, metrics.clone()));
    let sets = |github: &Arc<RestGitHub>| Arc::new(RestScaleSets::new(Arc::clone(github)));
    let scale_sets = github.as_ref().map(sets).map(|sets| sets as Arc<dyn ScaleSets>);
    let github = github.map(|github| Arc::new(Metered::new(github, metrics.clone())) as Arc<dyn GitHub>);
    let notices = config.interruptions.as_ref().map(|name| {
        let notices = Arc::new(SqsNotices::connect(name, sdk));
        Arc::new(Metered::new(notices, metrics.clone())) as Arc<dyn Notices>
    });
    let ports = |compute: Arc<dyn Compute>| Ports {
        store,
        queue,
        compute,
        github,
        scale_sets,
        notices,
        doorbell,
        job_bell,
        history,
        clock: clock.clone(),
        entropy: entropy.clone(),
        metrics: metrics.clone(),
    };
    match config.compute {
        ComputeKind::None => {
            let compute: Arc<dyn Compute> =
                Arc::new(Metered::new(Arc::new(NoCompute::new(clock.clone())), metrics.clone()));
            Ok(Wired {
                ports: ports(compute),
                settings,
                health,
                #[cfg(feature = "local")]
                machines: None,
            })
        }
        #[cfg(feature = "local")]
        ComputeKind::Local => {
            // Checking our own child processes costs nothing.
            settings.sweep = Duration::from_secs(1);
            let options = crate::in_process::local_options::machines(config, sdk, environment)?;
            let machines = Arc::new(LocalCompute::open(options, clock.clone(), entropy.clone())?);
            let metered = Arc::new(Metered::new(machines.clone(), metrics.clone()));
            Ok(Wired { ports: ports(metered), settings, health, machines: Some(machines) })
        }
        #[cfg(not(feature = "local"))]
        ComputeKind::Local => {
            let _ = (environment, &mut settings, ports);
            Err(unsupported(config.compute))
        }
        #[cfg(feature = "ec2")]
        ComputeKind::Ec2 => {
            let compute: Arc<dyn Compute> = Arc::new(Ec2Compute::connect(Ec2Options::of(config)?, sdk));
            let compute = Arc::new(Metered::new(compute, metrics.clone()));
            let compute: Arc<dyn Compute> = Arc::new(Limited::new(compute, &config.limits));
            Ok(Wired {
                ports: ports(compute),
                settings,
                health,
                #[cfg(feature = "local")]
                machines: None,
            })
        }
        #[cfg(not(feature = "ec2"))]
        ComputeKind::Ec2 => Err(unsupported(config.compute)),
    }
}

#[cfg(any(not(feature = "ec2"), not(feature = "local")))]
fn unsupported(kind: ComputeKind) -> WireError {
    let known = if cfg!(feature = "local") { "ec2, local, none" } else { "ec2, none" };
    let fix = format!("set compute.kind (RUNYARD_COMPUTE__KIND) to one of: {known}");
    FieldError::new("compute.kind", kind.as_str(), "this build does not know how to make such machines", fix)
        .into()
}

fn settings(config: &Config, identity: String) -> Settings {
    Settings {
        identity,
        table: config.table.clone(),
        organization: config.github.as_ref().is_some_and(|github| match github.scope {
            ScopeKind::Organization => true,
            ScopeKind::Repository => false,
        }),
        rebalance: config.rebalance,
        timing: config.timing,
        requests_per_repository: config.requests_per_repository,
        runner_version: config.agent.runner.any().map(|runner| runner.version.clone()),
        following: config.agent.following(),
        sharing: config.sharing.clone(),
        prices: Arc::new(config.prices.clone()),
        sweep: config.timing.resync.min(SWEEP),
        github: config.github.as_ref().map(|github| github.watch).unwrap_or_default(),
        ended_stays: crate::decide::Policy::ENDED_STAYS,
    }
}

fn github(
    config: &GitHubConfig,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Arc<RestGitHub>, WireError> {
    Ok(Arc::new(rest_github(config, clock)?.reporting_to(metrics.clone())))
}

/// Returns the adapter itself, for callers that need more than the port has.
///
/// # Errors
/// The App's key cannot be read, or the address is invalid.
pub fn rest_github(config: &GitHubConfig, clock: Arc<dyn Clock>) -> Result<RestGitHub, WireError> {
    let credential = match &config.credential {
        Credential::TokenFile(file) => crate::github::Credential::TokenFile(file.clone()),
        Credential::App { id, key_file } => {
            let pem = std::fs::read(key_file).map_err(|error| {
                let message = format!("cannot be read: {error}");
                let fix = "name the file with the App's private key (PEM), readable by this user";
                FieldError::new("github.app_key_file", key_file.display().to_string(), message, fix)
            })?;
            crate::github::Credential::App(AppKey::from_pem(id.as_str(), &pem)?.kept_in(key_file))
        }
    };
    let url = ApiUrl::parse(&config.api_url)?;
    let github = RestGitHub::new(url, credential, DEFAULT_DEADLINE, Arc::new(move || clock.now()))?;
    Ok(github.rerunning(config.watch.rerun_lost))
}

/// The signals that stop an operator.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Stops after the actions in progress have finished.
    pub gently: CancellationToken,
    /// Stops at once.
    pub at_once: CancellationToken,
}

/// Returns a stop for signals: the first SIGTERM or SIGINT stops gently, the second at once.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn on_signals() -> Result<Stop, WireError> {
    let listen =
        |kind| signal(kind).map_err(|error| WireError::System("signals cannot be listened to", error));
    let (mut int, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    // A closed terminal stops the operator like any other signal, unless `nohup` has SIGHUP ignored.
    let mut hangup = if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) };
    let stop = Stop::default();
    let tell = stop.clone();
    tokio::spawn(async move {
        for token in [tell.gently, tell.at_once] {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hung_up => {} }
            tracing::info!("stopping; a second signal stops at once");
            token.cancel();
        }
    });
    Ok(stop)
}

/// Returns whether this process was started to outlive its terminal: SIGHUP was ignored before it was handled.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

fn hostname(environment: &BTreeMap<String, String>) -> String {
    let file = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = environment.get("HOSTNAME").cloned().or_else(file);
    name.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "operator".into())
}
