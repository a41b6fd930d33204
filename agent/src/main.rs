//! The agent's program: reads its configuration, takes the lock, and runs until the agent or the machine ends. The
//! other verbs are for systemd and for the first boot.

mod arguments;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use arguments::{Command, USAGE, arguments};
use runyard_agent::agent::{self, End, Parts};
use runyard_agent::config::{Config, PowerOff};
use runyard_agent::host::{self, Account, Host, HostSettings, Isolation, JobGroup, SweepPaths};
use runyard_agent::records::{Records, TableRecords};
use runyard_agent::reports::console::{BootOnConsole, ReadsOnConsole};
use runyard_agent::reports::doorbell::RingsOperator;
use runyard_agent::reports::logs::Ring;
use runyard_agent::reports::notices::NoticeWatcher;
use runyard_agent::reports::{console, notices};
use runyard_agent::shutdown::guard::Lengths;
use runyard_agent::shutdown::power::{Exit, Power, Systemctl};
use runyard_agent::shutdown::watchdog_timer::{self, Verdict};
use runyard_agent::system::clock::{SystemClock, SystemEntropy, boot_id};
use runyard_agent::system::disk;
use runyard_agent::system::environment::{
    job, listener, log_filter, metadata_endpoint, of_machine, reaches_sqs,
};
use runyard_agent::system::lock::Lock;
use runyard_agent::system::metadata::{ENDPOINT_VARIABLE, LifeCycle, Metadata};
use runyard_agent::system::notify::Notify;
use runyard_agent::task::Executor;
use runyard_agent::{install, isolation_check};
use runyard_core::model::{Agent, InstanceArn, InstanceId, TableName};
use runyard_core::ports::Clock;
use runyard_store::DynamoStore;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Directory to which user data writes the configuration.
const STATE_DIR: &str = "/run/runyard";
/// The time limits that the watchdog timer uses if it cannot read the configuration.
const LENGTHS: Lengths =
    Lengths { created: std::time::Duration::from_secs(900), grace: std::time::Duration::from_secs(300) };

fn main() -> ExitCode {
    let asked = match arguments() {
        Ok(asked) => asked,
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let ring = log_to_stderr();
    let boots = matches!(asked, Command::Install(_));
    let done = match asked {
        Command::Printed => Ok(()),
        Command::Agent(path) => run(&path, ring).map(|end| match end {
            End::Stopped | End::PoweredOff(_) => (),
        }),
        Command::Install(path) => read(&path).and_then(|config| install::install(config.job_user.as_deref())),
        Command::Watchdog(path) => run_watchdog(&path),
        Command::ImdsFirewall => install::imds_firewall(),
        Command::IsolationCheck(words) => return tell_reached(words),
        Command::Jail(words) => return in_jail(words),
        Command::EmptyKeyrings => host::empty_keyrings().map(|left| println!("{left}")).map_err(Into::into),
        Command::Reach(places) => {
            print!("{}", host::written_to(&places));
            Ok(())
        }
        Command::JobStarted(holder, pipe) => host::job_started(&holder, &job(), &pipe).map_err(Into::into),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            if boots {
                console::say(&format!("the first boot failed: {error:#}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// Sets up logging to standard error. `RUST_LOG` contains levels by target, `runyard_agent=debug,warn`; a language of
/// spans and patterns would double the size of the logging code. Libraries log at `info` at most: below it they print
/// complete requests, with the secrets in them.
fn log_to_stderr() -> Ring {
    let ring = Ring::default();
    let kept = ring.clone();
    let asked = log_filter();
    let parsed = asked.as_deref().map(str::parse::<Targets>).transpose();
    let filter = parsed.as_ref().ok().cloned().flatten();
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(terminal);
    let writer = std::io::stderr.and(move || kept.clone());
    lines.with_writer(writer).finish().with(filter).with(filter_fn(discreet)).init();
    if let Err(error) = parsed {
        tracing::warn!(%error, "RUST_LOG: write levels by target, for example runyard_agent=debug,warn; logging from info on");
    }
    ring
}

fn discreet(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.target().starts_with("runyard") || *metadata.level() <= LevelFilter::INFO
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Config::parse(&text).with_context(|| path.display().to_string())
}

fn run(path: &Path, ring: Ring) -> anyhow::Result<End> {
    let config = read(path)?;
    disk::private_dir(&config.state_dir)?;
    let _lock = Lock::take(&config.state_dir)?;
    host::adopt_orphans().context("cannot become the parent of orphans")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(config, path, ring))?;
    // Abandoned work may still hold a thread; the exit does not wait for it.
    runtime.shutdown_background();
    Ok(ended)
}

/// Returns a token that is cancelled on SIGTERM or SIGINT.
fn until_told() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; a running runner is left alone");
        asked.cancel();
    });
    Ok(stop)
}

/// Returns the settings of the check that jobs are isolated.
fn isolation(path: &Path, metadata: &str, home: &Path) -> anyhow::Result<Isolation> {
    Ok(Isolation {
        program: std::env::current_exe().context("the agent's own program")?,
        config: path.to_owned(),
        metadata: metadata.parse().context(ENDPOINT_VARIABLE)?,
        home: home.to_owned(),
    })
}

async fn serve(config: Config, path: &Path, ring: Ring) -> anyhow::Result<End> {
    let stop = until_told()?;
    let endpoint = metadata_endpoint();
    let user = config.job_user.as_deref().map(account).transpose()?;
    let isolation = match &user {
        Some((_, home)) if config.isolated => Some(isolation(path, &endpoint, home)?),
        Some(_) | None => None,
    };
    let known = match config.instance.clone() {
        Some((id, arn)) => Machine { id, arn, image: None, watched: None },
        None => tokio::select! {
            machine = Machine::ask(&endpoint, &config.table) => machine?,
            () = stop.cancelled() => return Ok(End::Stopped),
        },
    };
    let store = DynamoStore::connect_env(config.table.clone()).await;
    let (own_record, ringer) = (Agent::key_of(&known.arn), reaches_sqs().then(|| store.ringer()));
    let records: Arc<dyn Records> = Arc::new(TableRecords::new(Arc::new(store), known.arn));
    let own_machine = config.power == PowerOff::Systemctl;
    if own_machine {
        console::say(&format!("the agent {} begins on {}", env!("CARGO_PKG_VERSION"), known.id));
    }
    let records = if own_machine { Arc::new(ReadsOnConsole::new(records)) } else { records };
    // In local mode each commit of the engine wakes the operator.
    let records: Arc<dyn Records> = match ringer.filter(|_| own_machine) {
        Some(ringer) => Arc::new(RingsOperator::new(records, Arc::new(ringer), own_record)),
        None => records,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    if let Some(metadata) = known.watched {
        let notices =
            NoticeWatcher { metadata, records: records.clone(), clock: clock.clone(), every: notices::EVERY };
        tokio::spawn(notices.run(stop.clone()));
    }
    let group = job_group(config.power);
    let power: Arc<dyn Power> = match config.power {
        PowerOff::Exit => Arc::new(Exit),
        PowerOff::Systemctl => Arc::new(Systemctl),
    };
    let host = Host::new(HostSettings {
        machine: known.id.to_string(),
        state_dir: config.state_dir.clone(),
        work_dir: config.work_dir,
        package: config.package,
        package_hosts: config.package_hosts,
        pre_runner: config.pre_runner,
        post_run: config.post_run,
        account: user.map(|(account, _)| account),
        isolation,
        places: SweepPaths { spare: config.spare, ..SweepPaths::default() },
        stop: config.stop,
        variables: if own_machine { of_machine() } else { Vec::new() },
        group,
        image: known.image,
        adopts_orphans: true,
    })?;
    let executor: Arc<dyn Executor> =
        if own_machine { Arc::new(BootOnConsole(host)) } else { Arc::new(host) };
    let parts = Parts {
        records,
        clock,
        entropy: Arc::new(SystemEntropy),
        power,
        timing: config.timing,
        state_dir: config.state_dir,
        boot_id: boot_id().context("cannot tell which boot this is")?,
        ring,
        executor,
    };
    if let Some(notify) = listener().and_then(Notify::to) {
        tokio::spawn(notify.run());
    }
    Ok(agent::run(parts, stop).await?)
}

/// Returns the control group of jobs, only on a machine of its own: elsewhere nobody would remove the group after the
/// machine has ended.
fn job_group(power: PowerOff) -> Option<JobGroup> {
    match power {
        PowerOff::Exit => None,
        PowerOff::Systemctl => JobGroup::find()
            .inspect_err(|error| {
                tracing::warn!(%error, "no control group for jobs; their processes are found in /proc alone");
            })
            .ok(),
    }
}

/// The identity of this machine.
struct Machine {
    id: InstanceId,
    arn: InstanceArn,
    /// The image that it was booted from.
    image: Option<String>,
    /// The source of interruption notices, if EC2 may reclaim the machine.
    watched: Option<Arc<Metadata>>,
}

impl Machine {
    /// Reads the identity from the metadata service.
    async fn ask(endpoint: &str, table: &TableName) -> anyhow::Result<Self> {
        let metadata = Arc::new(Metadata::new(endpoint)?);
        let identity = metadata.identity().await.context("which machine this is")?;
        if let Some(other) = identity.table.as_deref().filter(|other| *other != table.as_str()) {
            bail!(
                "table: {table:?}, but this machine's tag runyard:table says {other:?}; correct the configuration"
            );
        }
        tracing::info!(
            instance = %identity.id, r#type = identity.instance_type, zone = identity.zone,
            life_cycle = ?identity.life_cycle, "identified this machine"
        );
        let watched = match identity.life_cycle {
            LifeCycle::Spot => Some(metadata),
            LifeCycle::OnDemand => None,
        };
        Ok(Self { id: identity.id, arn: identity.arn, image: identity.image, watched })
    }
}

/// Powers the machine off if its deadline has passed, even if the configuration cannot be read.
fn run_watchdog(path: &Path) -> anyhow::Result<()> {
    let (file, lengths) = match read(path) {
        Ok(config) => (config.state_dir.join("threshold"), config.timing.guard),
        Err(error) => {
            tracing::warn!("{error:#}");
            (Path::new(STATE_DIR).join("threshold"), LENGTHS)
        }
    };
    let kept = disk::read(&file).unwrap_or_else(|error| {
        tracing::warn!(%error, "the agent's deadline cannot be read");
        None
    });
    let boot = boot_id().unwrap_or_default();
    match watchdog_timer::decide(kept.as_deref(), &boot, SystemClock.elapsed(), lengths) {
        Verdict::Wait(left) => {
            tracing::debug!(?left, "there is time left");
            Ok(())
        }
        Verdict::PowerOff(why) => {
            tracing::warn!(why, "this machine ends");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(Systemctl.off(why));
            Ok(())
        }
    }
}

/// Runs a stage of a jail. Returns the exit code of the job, or [`host::NO_JAIL`] if none was started.
fn in_jail(words: Vec<OsString>) -> ExitCode {
    match host::enter(words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("no job is started: {error:#}");
            ExitCode::from(host::NO_JAIL)
        }
    }
}

/// Prints the resources that can be reached. Exit codes: 0 if there are none; 1 if there are any; 2 for invalid
/// arguments.
fn tell_reached(words: Vec<String>) -> ExitCode {
    let targets = match isolation_check::parse(words) {
        Ok(targets) => targets,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let found = isolation_check::reached(&targets);
    for what in &found {
        println!("{what}");
    }
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the user that jobs run as, and its home directory.
fn account(name: &str) -> anyhow::Result<(Account, PathBuf)> {
    let Some(user) = nix::unistd::User::from_name(name).context("job_user")? else {
        bail!("job_user: there is no user {name:?}; create it, or leave job_user out");
    };
    if user.uid.is_root() || user.uid == nix::unistd::geteuid() {
        bail!("job_user: {name:?} may not be root or the agent's own user; create one for jobs");
    }
    Ok((Account { name: name.to_owned(), uid: user.uid.as_raw(), gid: user.gid.as_raw() }, user.dir))
}
