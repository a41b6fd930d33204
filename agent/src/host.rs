//! Executes each [`Task`] on a real machine. Every runner lives in directories of its claim and in processes that carry
//! its claim's name, so that both can be found and ended.

mod clean;
pub(crate) mod files;
mod isolation;
mod jail;
mod keep;
mod package;
mod runner;
pub(crate) mod scripts;
pub(crate) mod users;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{ClaimId, KeptDirectories, RunnerPackage};
use runyard_core::ports::Clock;
use tokio::process::Child;

pub use self::isolation::Isolation;
use self::jail::StandingJail;
pub use self::jail::{Jail, NO_JAIL, WORD as JAIL, enter};
pub use self::keep::{KeptStore, Promoted};
pub use crate::host::clean::reach::written_to;
pub use crate::host::clean::sweep::SweepPaths;
use crate::host::files::layout::Layout;
pub use crate::host::jail::kept_mount::KeptMount;
pub(crate) use crate::host::jail::network::has_ipv6;
use crate::host::package::unpacked::Slot;
use crate::host::runner::ahead::Prepared;
pub use crate::host::runner::refusal::job_started;
pub(crate) use crate::host::users::bounds::MACHINE_INOTIFY;
pub use crate::host::users::group::JobGroup;
use crate::host::users::ids::Ids;
pub use crate::host::users::keys::empty_keyrings;
use crate::host::users::user_mounts::UserMounts;
use crate::system::clock::SystemClock;
use crate::system::disk;
use crate::task::{Executor, GithubFailure, Task, TaskOutcome, Written};

/// How many credentials are kept out of the logs: those of a few claims.
const SECRETS: usize = 8;

/// The runner package.
#[derive(Clone, Debug)]
pub struct PackageSource {
    /// Where it is.
    pub url: reqwest::Url,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
    /// Its version, for logs.
    pub version: String,
}

/// A script of the machine's owner, run as the agent's own user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnScript {
    /// The script.
    pub script: PathBuf,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it may be missing.
    pub optional: bool,
}

/// The user that jobs run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub name: String,
    /// The user's id.
    pub uid: u32,
    /// Its group's id.
    pub gid: u32,
}

/// The settings of the executor.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Names the machine in the environment of every process it starts.
    pub machine: String,
    /// Root-only files.
    pub state_dir: PathBuf,
    /// Everything else.
    pub work_dir: PathBuf,
    /// The runner package that the machine was launched with.
    pub package: PackageSource,
    /// Hosts beside GitHub's that a claim's package may come from.
    pub package_hosts: Vec<String>,
    /// The pre-runner script, if there is one.
    pub pre_runner: Option<OwnScript>,
    /// What is run after each claim, before its files go; may be run again for a clean-up that was cut short.
    pub post_run: Option<OwnScript>,
    /// Whom jobs run as; the agent's own user when not given.
    pub account: Option<Account>,
    /// How it is tried whether jobs are kept from what is the machine's; not at all when not given.
    pub isolation: Option<Isolation>,
    /// Where a job may have left something.
    pub places: SweepPaths,
    /// How long a runner may take to end by itself.
    pub stop: Duration,
    /// Variables of the machine for every script it starts, beside what the agent sets itself.
    pub variables: Vec<(String, String)>,
    /// The control group jobs are born in, where there can be one.
    pub group: Option<JobGroup>,
    /// Whether orphans become children of this process ([`adopt_orphans`]), so that none escapes it.
    pub adopts_orphans: bool,
}

/// A machine.
pub struct Host {
    settings: HostSettings,
    layout: Layout,
    /// The job user, where it is not the agent's own user.
    ids: Option<Ids>,
    /// File systems that programs of this user serve.
    mounts: Option<UserMounts>,
    /// What survives claims, where their jobs are isolated.
    keeps: Option<KeptStore>,
    /// Runners that this process has started and must reap.
    children: Mutex<BTreeMap<i32, Child>>,
    /// The number of the next job's link. It begins with the seconds since boot, so that an agent that is started again
    /// does not begin again: jails are made less often.
    links: AtomicU32,
    /// Held by every task that fills or empties the directories of claims, also by an abandoned one.
    directories: Arc<tokio::sync::Mutex<()>>,
    /// The package that the record names, or why it is not run; none where it names none.
    named: Mutex<Option<Result<PackageSource, String>>>,
    /// The packages that this agent knows to be unpacked whole, by digest.
    unpacked: Mutex<BTreeMap<String, Slot>>,
    /// What was prepared for the next claim. Whoever prepares it holds this.
    next: Arc<tokio::sync::Mutex<Option<Prepared>>>,
    /// Of that, what the runner of the claim at hand is to be started in.
    runner_jail: Mutex<Option<(ClaimId, StandingJail)>>,
    /// The last credentials that scripts were given, to be taken out of what they wrote.
    secrets: Mutex<VecDeque<String>>,
}

/// Makes this process the parent of every orphan below it.
///
/// # Errors
/// What the system says.
pub fn adopt_orphans() -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

impl Host {
    /// The executor of a machine.
    ///
    /// # Errors
    /// Its directories cannot be made.
    pub fn new(mut settings: HostSettings) -> anyhow::Result<Self> {
        let layout = Layout::new(&settings.state_dir, &settings.work_dir);
        layout.make()?;
        // Its mounts are made in jails alone.
        let account = settings.account.as_ref().filter(|_| settings.isolation.is_some());
        let keeps = account.map(|account| KeptStore::new(layout.keep(), (account.uid, account.gid)));
        if let Some(keeps) = &keeps {
            // As the sweep meets it on its way.
            let whole = settings.work_dir.canonicalize()?;
            settings.places.kept = Some(Layout::new(&settings.state_dir, &whole).keep());
            keeps.recover()?;
        }
        let ids = settings.account.as_ref().map(Ids::of).transpose()?;
        let mounts = ids.clone().map(|ids| UserMounts::new(ids, layout.begun()));
        let seconds = SystemClock.elapsed().as_secs();
        let links = AtomicU32::new(u32::try_from(seconds).unwrap_or_default());
        Ok(Self {
            settings,
            layout,
            ids,
            mounts,
            keeps,
            children: Mutex::default(),
            links,
            directories: Arc::default(),
            named: Mutex::default(),
            unpacked: Mutex::default(),
            next: Arc::default(),
            runner_jail: Mutex::default(),
            secrets: Mutex::default(),
        })
    }

    /// Keeps a credential out of the logs.
    fn hide(&self, credential: &str) {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.push_back(credential.to_owned());
        if secrets.len() > SECRETS {
            secrets.pop_front();
        }
    }

    /// Runs work on the directories of claims: after the work in progress, and to its end even if the caller was
    /// cancelled.
    async fn in_turn<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> std::io::Result<T> {
        let turn = self.directories.clone().lock_owned().await;
        let doing = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            what()
        });
        doing.await.map_err(std::io::Error::other)?
    }
}

#[async_trait]
impl Executor for Host {
    async fn execute(&self, task: Task) -> TaskOutcome {
        match task {
            Task::Idle => std::future::pending().await,
            Task::Boot => TaskOutcome::Booted(self.boot().await),
            Task::Configure { claim, registration } => self.configure(&claim, &registration).await,
            Task::Start { claim, holder, single_use } => {
                self.start(&claim, &holder, single_use.as_deref()).await
            }
            Task::Listen { claim, runner, known } => self.listen(&claim, runner, known).await,
            Task::Serve { claim: _, runner } | Task::Rest { claim: _, runner } => tokio::select! {
                () = self.ended(runner) => self.how_it_ended(),
                () = self.refused() => TaskOutcome::Intruded,
            },
            Task::Lend { claim: _, holder } => match self.lend_runner(&holder) {
                Ok(()) => TaskOutcome::Lent,
                Err(why) => TaskOutcome::Failed(GithubFailure::Refused(why.to_string())),
            },
            Task::Renew { claim, runner, since, registered } => {
                self.renew(&claim, runner, since, registered).await
            }
            Task::Stop { claim, runner, since } => self.stop(&claim, runner, since).await,
            Task::Deregister { claim, removal } => self.deregister(&claim, &removal).await,
            Task::Wipe { claim, since, wipe } => self.wipe(&claim, since, wipe).await,
            Task::Settle { claim, holder, names } => self.settle(&claim, holder, names).await,
        }
    }

    async fn prepare(&self) {
        self.prepare_next().await;
    }

    fn use_package(&self, package: Option<&RunnerPackage>) {
        self.name_package(package);
    }

    fn runner_id(&self) -> Option<u64> {
        crate::host::files::kept::runner_id(&self.layout.registration())
    }

    fn kept(&self) -> KeptDirectories {
        let kept = self.keeps.as_ref().map(KeptStore::kept).transpose();
        kept.inspect_err(|error| tracing::warn!(%error, "what is kept cannot be told"))
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    fn logs(&self) -> Written {
        let layout = &self.layout;
        let end = |log: PathBuf| crate::host::files::output::end_of(&log);
        let runner = format!("{}\n{}", end(layout.config_log()), end(layout.run_log()));
        let boot = ("boot", end(layout.pre_runner_log()));
        let parts = vec![boot, ("runner", runner), ("post-run", end(layout.post_run_log()))];
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        Written { parts, secrets: secrets.iter().cloned().collect() }
    }

    async fn kill_everything(&self) {
        self.forget_next();
        if let Err(left) = self.end(self.machine_scope()).await {
            tracing::warn!(left, "cannot end all processes of this machine");
        }
    }
}

#[cfg(test)]
mod tests;
