//! Runs each script of a claim in its own set of namespaces. Everything that the script changes or starts exists only
//! in them and ends with them. A process that the agent starts as root creates the namespaces (`job-init outside`). Its
//! child is the first process in them, mounts the file system view and waits for its work order (`job-init inside`).
//! The child of that process becomes the job (`job-init job`). A set of namespaces never serves two scripts.

mod connections;
pub(crate) mod engine;
pub(crate) mod kept_mount;
pub(crate) mod mounts;
pub(crate) mod network;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, close, setsid};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::JobGroup;
use crate::host::files::output::detail;
use crate::host::jail::kept_mount::KeptMount;
use crate::host::users::bounds::bound;
use crate::host::users::keys::{in_own_session, own_session};

/// The subcommand of the agent that creates a jail.
pub const WORD: &str = "job-init";
/// Exit code when no job was started.
pub const NO_JAIL: u8 = 125;
/// Path of the running program, independent of where it is stored and what is mounted there.
pub(super) const ITSELF: &str = "/proc/self/exe";
/// Time limit for the creation of a jail.
pub(super) const MADE: Duration = Duration::from_secs(30);
/// Time limit for the process to exit after the creation of a jail failed.
const ENDS: Duration = Duration::from_secs(5);
/// A uid or gid map that leaves all ids unchanged. Objects that belong to the user namespace, such as keyrings, are
/// separate.
const SAME: &str = "0 0 4294967295";

/// The parameters of a jail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jail {
    /// The user that jobs run as.
    pub uid: u32,
    /// The group of that user.
    pub gid: u32,
    /// The number of the jail's network link, from which its addresses are computed. No two consecutive jails have the
    /// same number.
    pub link: u32,
    /// An empty directory of root in which the file system view is built.
    pub scaffold: PathBuf,
    /// The directory of the claim outside the jail; `None` for a job that may only write to memory.
    pub claim: Option<PathBuf>,
    /// The path of that directory inside the jail.
    pub inside: PathBuf,
    /// The home directory of the account; the claim's own home is mounted there.
    pub home: PathBuf,
    /// Directories of the agent that are hidden from the job.
    pub hidden: Vec<PathBuf>,
    /// The hook that the runner calls before each job, below one of the hidden directories: visible and read-only.
    pub hook: PathBuf,
    /// The unpacked runner package; its programs are mounted read-only in the claim's runners.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    /// The kept directories of the claim.
    #[serde(default)]
    pub kept: Vec<KeptMount>,
}

/// A work order: the program that the jail runs. It is sent when the jail is ready, possibly long after the jail was
/// started.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Work {
    /// The program, by its path inside the jail, and its arguments.
    words: Vec<String>,
    /// The complete environment of the program.
    environment: BTreeMap<String, String>,
    /// The working directory, by its path inside the jail.
    directory: PathBuf,
    /// Whether the jail starts a container engine for the program.
    engine: bool,
}

impl Work {
    /// Builds the work order from a `Command`.
    fn of(command: &Command, engine: bool) -> Self {
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let set = command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?))));
        Self {
            words: [command.get_program()].into_iter().chain(command.get_args()).map(text).collect(),
            environment: set.collect(),
            directory: command.get_current_dir().map_or_else(|| "/".into(), PathBuf::from),
            engine,
        }
    }
}

/// A jail that is being created, or that is ready and waits for its work order. If the agent drops it, the waiting init
/// process sees EOF and exits.
pub(crate) struct StandingJail {
    /// The `job-init outside` process.
    child: Child,
    /// Socket on which the jail reports that it is ready and receives its work order.
    orders: tokio::net::UnixStream,
    /// Whether the jail has reported that it is ready.
    made: bool,
}

impl StandingJail {
    /// Starts to create a jail with `command`, which runs the agent's own program. The job writes to `out` and `error`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn begin(
        mut command: tokio::process::Command,
        jail: &Jail,
        (out, error): (Stdio, Stdio),
        group: Option<&JobGroup>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let spec = serde_json::to_string(jail).expect("paths are text");
        command.args([WORD, "outside", &spec]).current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(out).stderr(error);
        let mut start = || in_own_session(|| command.spawn());
        let child = match group {
            Some(group) => group.start(start)?,
            None => start()?,
        };
        Ok(Self { child, orders: tokio::net::UnixStream::from_std(ours)?, made: false })
    }

    /// Waits until the jail is ready, and checks that it is still running.
    ///
    /// # Errors
    /// The jail cannot be created, or has ended.
    pub(super) async fn stands(&mut self) -> io::Result<()> {
        if !self.made {
            let said = tokio::time::timeout(MADE, self.orders.read_exact(&mut [0])).await;
            if said.map_err(io::Error::other)?.is_err() {
                return Err(self.not_made().await);
            }
            self.made = true;
        }
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(io::Error::other(format!("a jail ended: {status}"))),
        }
    }

    /// Returns the error for a jail that could not be created, with the last lines of its standard error unless they
    /// went to a log.
    async fn not_made(&mut self) -> io::Error {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            // The writer has ended, or is about to end.
            let _ = tokio::time::timeout(ENDS, stderr.read_to_end(&mut said)).await;
        }
        io::Error::other(detail("a jail cannot be made", &String::from_utf8_lossy(&said), &[]))
    }

    /// Runs the command in the jail once the jail is ready. The program, its arguments, its environment and its
    /// directory are given by their paths inside the jail.
    ///
    /// # Errors
    /// The jail cannot be created, or has ended.
    pub(super) async fn does(self, command: &tokio::process::Command) -> io::Result<Child> {
        self.told(&Work::of(command.as_std(), false)).await
    }

    /// Runs the command like [`does`](Self::does), with a container engine in the jail.
    ///
    /// # Errors
    /// The jail cannot be created, or has ended.
    pub(super) async fn does_with_engine(self, command: &tokio::process::Command) -> io::Result<Child> {
        self.told(&Work::of(command.as_std(), true)).await
    }

    async fn told(mut self, work: &Work) -> io::Result<Child> {
        self.stands().await?;
        let work = serde_json::to_vec(work).expect("it is text");
        // The jail starts the job when it reads EOF.
        self.orders.write_all(&work).await?;
        Ok(self.child)
    }
}

/// Runs the stage that the arguments name: the one that `StandingJail::begin` starts, or one of the stages after it.
///
/// # Errors
/// The jail could not be created. In this case no job was started.
pub fn enter(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<u8> {
    let mut words = words.into_iter();
    let mut next = |what: &str| words.next().with_context(|| format!("{WORD}: {what}: missing"));
    let stage = next("stage")?;
    let spec = next("jail")?.into_string().ok().context("the jail is no text")?;
    let jail: Jail = serde_json::from_str(&spec).context("the jail")?;
    match stage.to_str() {
        Some("outside") => outside(&jail, &spec),
        Some("inside") => inside(&jail, &spec),
        Some(engine::STAGE) => engine::become_the_engine(&jail),
        Some("job") => become_the_job(&jail, &words.collect::<Vec<_>>()),
        Some(_) | None => bail!("{WORD}: no stage {}", stage.display()),
    }
}

/// Returns a command that runs the given stage with this same program.
pub(super) fn stage(name: &str, spec: &str) -> Command {
    let mut command = Command::new(ITSELF);
    command.arg0("runyard-agent").args([WORD, name, spec]);
    command
}

/// Runs in the machine's namespaces except for the network. Killing this process tears down the nested namespaces.
fn outside(jail: &Jail, spec: &str) -> anyhow::Result<u8> {
    close_others()?;
    // SIGINT and SIGTERM are meant for the job. The next stage, which is in the same process group, forwards them.
    told().thread_block()?;
    leave_the_agent_room()?;
    network::connect(jail.link)?;
    unshare(CloneFlags::CLONE_NEWPID).context("a PID namespace")?;
    // The child inherits our end of the socket.
    let ended = stage("inside", spec).status().context("inside")?;
    Ok(code(ended))
}

/// Closes inherited file descriptors, which the job must not see.
fn close_others() -> anyhow::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // The descriptor of the directory listing itself is already closed.
        let _ = close(file);
    }
    Ok(())
}

/// Limits the jail to half of the processes and threads that the machine can have: the kernel's own limit for a user is
/// half of the threads, however few process ids there are. The unit's `TasksMax` is higher, so that the agent can start
/// threads while a job is at its limit.
fn leave_the_agent_room() -> anyhow::Result<()> {
    let most = |name: &str| {
        let path = format!("/proc/sys/kernel/{name}");
        anyhow::Ok(fs::read_to_string(&path).context(path)?.trim().parse::<u64>()?)
    };
    let (_, allowed) = getrlimit(Resource::RLIMIT_NPROC)?;
    let half = allowed.min(most("threads-max")?.min(most("pid_max")?) / 2);
    Ok(setrlimit(Resource::RLIMIT_NPROC, half, half)?)
}

/// Runs as the first process of the PID namespace. When it ends, the kernel kills all other processes in the namespace.
fn inside(jail: &Jail, spec: &str) -> anyhow::Result<u8> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut signals = told();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    let own = [
        (CloneFlags::CLONE_NEWNS, "a mount namespace"),
        (CloneFlags::CLONE_NEWIPC, "an IPC namespace"),
        (CloneFlags::CLONE_NEWUTS, "a UTS namespace"),
        (CloneFlags::CLONE_NEWCGROUP, "a control group namespace"),
    ];
    own.into_iter().try_for_each(|(flag, name)| unshare(flag).context(name))?;
    mounts::make(jail)?;
    let Some(work) = told_what_to_do()? else { return Ok(NO_JAIL) };
    if work.engine {
        engine::begin(jail, spec, &work.environment)?;
    }
    let (mut here, there) = UnixStream::pair()?;
    let mut job = stage("job", spec);
    job.arg(&work.directory).args(&work.words).env_clear().envs(&work.environment);
    let child = job.stdin(Stdio::from(OwnedFd::from(there))).spawn().context("job")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    map_users(&mut here, pid, [SAME, SAME]).context("a user namespace")?;
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(ended) = reap(pid)? {
                    return Ok(ended);
                }
            }
            // The session of the job only.
            signal => drop(killpg(pid, signal)),
        }
    }
}

/// Reports that the jail is ready, and waits for the work order. Returns `None` if the agent closed the socket.
fn told_what_to_do() -> anyhow::Result<Option<Work>> {
    let mut orders = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut work = Vec::new();
    if orders.write_all(&[1]).is_err() || orders.read_to_end(&mut work)? == 0 {
        return Ok(None);
    }
    serde_json::from_slice(&work).context("what is to be done").map(Some)
}

/// Writes the uid and gid maps of a process. uid and gid maps can only be written by a privileged process outside the
/// user namespace.
pub(super) fn map_users(job: &mut UnixStream, pid: Pid, users: [&str; 2]) -> anyhow::Result<()> {
    job.read_exact(&mut [0]).context("it cannot be made (is user.max_user_namespaces 0?)")?;
    for (map, users) in ["uid_map", "gid_map"].into_iter().zip(users) {
        fs::write(format!("/proc/{pid}/{map}"), users).context(map)?;
    }
    Ok(job.write_all(&[1])?)
}

/// Waits, in a new user namespace, until [`map_users`] has written its maps.
pub(super) fn mapped(init: &mut UnixStream) -> io::Result<()> {
    init.write_all(&[1])?;
    init.read_exact(&mut [0])
}

/// Reaps all ended children. Returns the exit code of the job if it has ended.
fn reap(job: Pid) -> nix::Result<Option<u8>> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive => return Ok(None),
            ended if ended.pid() != Some(job) => {}
            WaitStatus::Exited(_, code) => return Ok(Some(u8::try_from(code).unwrap_or(u8::MAX))),
            WaitStatus::Signaled(_, signal, _) => return Ok(Some(signaled(signal as i32))),
            // Stopped and continued processes are not requested.
            _ => {}
        }
    }
}

/// Drops all privileges of root and executes the job.
fn become_the_job(jail: &Jail, job: &[OsString]) -> anyhow::Result<u8> {
    let [directory, program, arguments @ ..] = job else { bail!("no program") };
    let mut init = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    setsid()?;
    // The agent's `oom_score_adj` must not apply to jobs.
    fs::write("/proc/self/oom_score_adj", "0")?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    unshare(CloneFlags::CLONE_NEWUSER).context("a user namespace")?;
    mapped(&mut init)?;
    bound().context("bounds of the user namespace")?;
    own_session().context("a session keyring")?;
    prctl::set_no_new_privs()?;
    // A blocked signal mask survives `exec`.
    SigSet::empty().thread_set_mask()?;
    // With `uid`, `Command` also drops the supplementary groups.
    let mut command = Command::new(program);
    command.args(arguments).uid(jail.uid).gid(jail.gid).current_dir(directory).stdin(Stdio::null());
    Err(command.exec()).with_context(|| program.display().to_string())
}

/// Signals that are forwarded to the job.
fn told() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

fn code(ended: ExitStatus) -> u8 {
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or_else(|| signaled(ended.signal().unwrap_or_default()))
}

/// Returns the exit code that shells use for a process killed by a signal.
fn signaled(signal: i32) -> u8 {
    u8::try_from(signal).unwrap_or_default() | 128
}
