//! Executes each [`Task`] on a real machine. Every runner lives in directories of its claim and in processes that carry
//! its claim's name, so that both can be found and removed.

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
use runyard_core::model::{ClaimId, ClaimProof, KeptDirectories, RunnerPackage};
use runyard_core::ports::Clock;
use tokio::process::Child;

pub use self::isolation::Isolation;
use self::jail::StandingJail;
pub use self::jail::{Jail, NO_JAIL, WORD as JAIL, enter};
pub use self::keep::{KeptStore, Promoted};
use crate::host::clean::findings::Findings;
pub use crate::host::clean::reach::written_to;
pub use crate::host::clean::sweep::SweepPaths;
use crate::host::files::layout::Layout;
use crate::host::files::{kept, output};
pub use crate::host::jail::kept_mount::KeptMount;
pub(crate) use crate::host::jail::network::has_ipv6;
use crate::host::package::unpacked::Slot;
use crate::host::runner::ahead::Prepared;
pub use crate::host::runner::hook::job_started;
pub(crate) use crate::host::users::bounds::MACHINE_INOTIFY;
pub use crate::host::users::group::JobGroup;
use crate::host::users::ids::Ids;
pub use crate::host::users::keys::empty_keyrings;
use crate::host::users::user_mounts::UserMounts;
use crate::system::clock::SystemClock;
use crate::system::disk;
use crate::task::{Executor, GithubFailure, Task, TaskOutcome, Written};

/// The number of credentials that are kept out of the logs: those of a few claims.
const SECRETS: usize = 8;

/// The runner package.
#[derive(Clone, Debug)]
pub struct PackageSource {
    /// Its download address.
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
    /// Time limit for the script.
    pub timeout: Duration,
    /// Whether the script may be missing.
    pub optional: bool,
}

/// The user that jobs run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user's name.
    pub name: String,
    /// The user's id.
    pub uid: u32,
    /// The id of the user's group.
    pub gid: u32,
}

/// The settings of the executor.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The name of the machine, set in the environment of every process it starts.
    pub machine: String,
    /// Directory for files that only root can read.
    pub state_dir: PathBuf,
    /// Directory for all other files.
    pub work_dir: PathBuf,
    /// The runner package that the machine was launched with.
    pub package: PackageSource,
    /// Hosts other than GitHub's from which a claim's package may be downloaded.
    pub package_hosts: Vec<String>,
    /// The pre-runner script, if there is one.
    pub pre_runner: Option<OwnScript>,
    /// The script that runs after each claim, before its files are removed. It may run again for a clean-up that was
    /// interrupted.
    pub post_run: Option<OwnScript>,
    /// The user that jobs run as; the agent's own user if `None`.
    pub account: Option<Account>,
    /// How the isolation of jobs from the machine is checked; no check if `None`.
    pub isolation: Option<Isolation>,
    /// Places where a job may have left files.
    pub places: SweepPaths,
    /// Time limit for a runner to end by itself.
    pub stop: Duration,
    /// Variables of the machine for every script it starts, in addition to those that the agent sets.
    pub variables: Vec<(String, String)>,
    /// The control group in which jobs are started, if the machine supports one.
    pub group: Option<JobGroup>,
    /// The image that the machine was booted from, if it is known.
    pub image: Option<String>,
    /// Whether orphaned processes become children of this process ([`adopt_orphans`]), so that none escapes.
    pub adopts_orphans: bool,
}

/// The executor of a machine's tasks.
pub struct Host {
    settings: HostSettings,
    layout: Layout,
    /// The ids of the job user, unless it is the agent's own user.
    ids: Option<Ids>,
    /// FUSE file systems that programs of the job user serve.
    mounts: Option<UserMounts>,
    /// The directories that survive claims, if jobs are isolated.
    keeps: Option<KeptStore>,
    /// Runners that this process started and must reap.
    children: Mutex<BTreeMap<i32, Child>>,
    /// The number of the next jail's network link. It starts at the seconds since boot, so that a restarted agent does
    /// not reuse recent numbers: jails are created less often than once per second.
    links: AtomicU32,
    /// Held by every task that fills or empties the directories of claims, including abandoned ones.
    directories: Arc<tokio::sync::Mutex<()>>,
    /// The package that the record names, or the reason why it is not used; `None` if the record names no package.
    named: Mutex<Option<Result<PackageSource, String>>>,
    /// The packages that are known to be completely unpacked, by digest.
    unpacked: Mutex<BTreeMap<String, Slot>>,
    /// The preparation of the next claim. The lock is held while it is being prepared.
    next: Arc<tokio::sync::Mutex<Option<Prepared>>>,
    /// The prepared jail in which the runner of the current claim will be started.
    runner_jail: Mutex<Option<(ClaimId, StandingJail)>>,
    /// The last credentials that were passed to scripts; they are removed from the scripts' output.
    secrets: Mutex<VecDeque<String>>,
    /// The results of the present or last clean-up.
    findings: Findings,
}

/// Makes this process the parent of every orphaned process below it.
///
/// # Errors
/// The system call fails.
pub fn adopt_orphans() -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

impl Host {
    /// Creates the executor of a machine.
    ///
    /// # Errors
    /// Its directories cannot be created.
    pub fn new(mut settings: HostSettings) -> anyhow::Result<Self> {
        let layout = Layout::new(&settings.state_dir, &settings.work_dir);
        layout.make()?;
        // Kept directories are only mounted in jails.
        let account = settings.account.as_ref().filter(|_| settings.isolation.is_some());
        let keeps = account.map(|account| KeptStore::new(layout.keep(), (account.uid, account.gid)));
        if let Some(keeps) = &keeps {
            // The path must be canonical, as the sweep finds it.
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
            findings: Findings::default(),
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
            Task::Serve { claim, runner, awaits } => {
                self.thaw(&claim, runner).await;
                self.served(runner, awaits.as_ref()).await
            }
            Task::Rest { claim: _, runner } => self.served(runner, None).await,
            Task::Admit { claim: _ } => {
                self.admit();
                TaskOutcome::Admitted
            }
            Task::Freeze { claim, runner } => self.freeze(&claim, runner).await,
            // It lasts until the operator has decided, or the time for that is over.
            Task::Frozen { claim: _ } => std::future::pending().await,
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
        kept::runner_id(&self.layout.registration())
    }

    fn kept(&self) -> KeptDirectories {
        let kept = self.keeps.as_ref().map(KeptStore::kept).transpose();
        kept.inspect_err(|error| tracing::warn!(%error, "what is kept cannot be told"))
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    fn proof(&self, claim: &ClaimId) -> ClaimProof {
        self.reported(claim)
    }

    fn logs(&self) -> Written {
        let layout = &self.layout;
        let end = |log: PathBuf| output::end_of(&log);
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
