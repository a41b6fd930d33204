//! The agent's program: reads its configuration, makes sure that it is alone, and runs until it or its machine ends.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use runyard::store::DynamoStore;
use runyard_agent::agent::{self, End, Parts};
use runyard_agent::clock::{SystemClock, boot_id};
use runyard_agent::config::{Config, PowerOff};
use runyard_agent::disk;
use runyard_agent::host::{self, Account, Host, Settings};
use runyard_agent::lock::Lock;
use runyard_agent::power::{Exit, Power, Systemctl};
use runyard_agent::records::TableRecords;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

const USAGE: &str = "runyard-agent --config FILE
Runs on a machine of a Runyard and keeps its runner. AWS is reached as the AWS_* environment says; RUST_LOG sets what is logged.";

fn main() -> ExitCode {
    let path = match arguments() {
        Ok(Some(path)) => path,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(terminal).with_writer(std::io::stderr).init();
    match run(&path) {
        Ok(End::Stopped | End::PoweredOff(_)) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Option<PathBuf>, String> {
    let mut arguments = std::env::args_os().skip(1);
    let path = match arguments.next() {
        Some(flag) if flag == "--help" || flag == "-h" => {
            println!("{USAGE}");
            return Ok(None);
        }
        Some(flag) if flag == "--version" || flag == "-V" => {
            println!("runyard-agent {}", env!("CARGO_PKG_VERSION"));
            return Ok(None);
        }
        Some(flag) if flag == "--config" => {
            arguments.next().ok_or("--config: missing (give the path of a TOML file)")?
        }
        Some(other) => return Err(format!("{}: not an option of the agent", other.display())),
        None => return Err("--config: missing (give the path of a TOML file)".to_owned()),
    };
    match arguments.next() {
        None => Ok(Some(path.into())),
        Some(more) => Err(format!("{}: one argument too many", more.display())),
    }
}

fn run(path: &std::path::Path) -> anyhow::Result<End> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let config = Config::parse(&text).with_context(|| path.display().to_string())?;
    disk::private_dir(&config.state_dir)?;
    let _lock = Lock::take(&config.state_dir)?;
    host::adopt_orphans().context("cannot become the parent of orphans")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(config))?;
    // Abandoned work may still hold a thread; the end does not wait for it.
    runtime.shutdown_background();
    Ok(ended)
}

async fn serve(config: Config) -> anyhow::Result<End> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop; a runner at work goes on");
        asked.cancel();
    });
    let store = DynamoStore::connect_env(config.table.clone()).await;
    let power: Arc<dyn Power> = match config.power {
        PowerOff::Exit => Arc::new(Exit),
        PowerOff::Systemctl => Arc::new(Systemctl),
    };
    let parts = Parts {
        records: Arc::new(TableRecords::new(Arc::new(store), config.instance_arn)),
        clock: Arc::new(SystemClock),
        power,
        timing: config.timing,
        state_dir: config.state_dir.clone(),
        boot_id: boot_id().context("cannot tell which boot this is")?,
        executor: Arc::new(Host::new(Settings {
            machine: config.instance_id.to_string(),
            state_dir: config.state_dir,
            work_dir: config.work_dir,
            package: config.package,
            pre_runner: config.pre_runner,
            account: config.job_user.as_deref().map(account).transpose()?,
            stop: config.stop,
            adopts_orphans: true,
        })?),
    };
    Ok(agent::run(parts, stop).await?)
}

/// The user jobs run as.
fn account(name: &str) -> anyhow::Result<Account> {
    let Some(user) = nix::unistd::User::from_name(name).context("job_user")? else {
        bail!("job_user: there is no user {name:?}; create it, or leave job_user out");
    };
    if user.uid.is_root() || user.uid == nix::unistd::geteuid() {
        bail!("job_user: {name:?} may not be root or the agent's own user; create one for jobs");
    }
    Ok(Account { name: name.to_owned(), uid: user.uid.as_raw(), gid: user.gid.as_raw() })
}
