//! Runs each script of a claim in namespaces of its own. What the script changes or starts exists only in them and ends
//! with them. A program that the agent starts as root creates them (`job-init outside`); its child is the first process
//! in them, mounts the file system view and waits for what is to be done (`job-init inside`); the child of that becomes
//! the job (`job-init job`). No namespace ever serves two scripts.

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

/// The word by which the agent's program makes a jail.
pub const WORD: &str = "job-init";
/// How that ends if no job was started.
pub const NO_JAIL: u8 = 125;
/// The program itself, wherever it is and whatever is mounted there.
pub(super) const ITSELF: &str = "/proc/self/exe";
/// How long a jail may take until it is made.
pub(super) const MADE: Duration = Duration::from_secs(30);
/// How long what makes a jail may take to end when it could not be made.
const ENDS: Duration = Duration::from_secs(5);
/// Each user is the same in there as outside; what belongs to the namespace, keyrings for example, is not.
const SAME: &str = "0 0 4294967295";

/// What a jail is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jail {
    /// The user jobs run as.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The number of its link to the machine, by which it has its addresses; no two jails after each other have the
    /// same.
    pub link: u32,
    /// An empty directory of root's, to build in.
    pub scaffold: PathBuf,
    /// The directories of a claim, as they are called outside; none for a job that may write nowhere but in memory.
    pub claim: Option<PathBuf>,
    /// What they are called inside.
    pub inside: PathBuf,
    /// The account's home, to which the claim's own is mounted.
    pub home: PathBuf,
    /// Directories of the agent's of which nothing is seen.
    pub hidden: Vec<PathBuf>,
    /// What the runner calls before each job, below one of those: seen, and not to be changed.
    pub hook: PathBuf,
    /// The unpacked runner package, whose programs are seen in the claim's runners, and not to be changed.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    /// The kept directories of the claim.
    #[serde(default)]
    pub kept: Vec<KeptMount>,
}

/// What is to be done in a jail. It is told when the jail stands, which may be long after it was begun.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Work {
    /// The program, as it is called inside, and its arguments.
    words: Vec<String>,
    /// Its whole environment.
    environment: BTreeMap<String, String>,
    /// Where it begins, as it is called inside.
    directory: PathBuf,
    /// Whether it finds a container engine.
    engine: bool,
}

impl Work {
    /// As a command says that would do it in there.
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

/// A jail that is being made, or that stands and waits for what is to be done in it. Left to itself it ends: whoever
/// waits in it ends when nobody can tell it anything any more.
pub(crate) struct StandingJail {
    /// The process that is outside.
    child: Child,
    /// How it says that it is made, and is told what to do.
    orders: tokio::net::UnixStream,
    /// Whether it said so.
    made: bool,
}

impl StandingJail {
    /// Begins to make one, by a command that is the agent's own program. What is done in it writes to these two.
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

    /// Waits until it is made, and sees that it is still there.
    ///
    /// # Errors
    /// It cannot be made, or is gone.
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

    /// That it cannot be made, with the last that was said of why, unless a log has it.
    async fn not_made(&mut self) -> io::Error {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Who wrote it has ended, or is about to.
            let _ = tokio::time::timeout(ENDS, stderr.read_to_end(&mut said)).await;
        }
        io::Error::other(detail("a jail cannot be made", &String::from_utf8_lossy(&said), &[]))
    }

    /// Has this be done in it, as soon as it stands: the program with its arguments, its environment, and its
    /// directory, all as they are called inside.
    ///
    /// # Errors
    /// It cannot be made, or is gone.
    pub(super) async fn does(self, command: &tokio::process::Command) -> io::Result<Child> {
        self.told(&Work::of(command.as_std(), false)).await
    }

    /// The same, beside a container engine of its own.
    ///
    /// # Errors
    /// It cannot be made, or is gone.
    pub(super) async fn does_with_engine(self, command: &tokio::process::Command) -> io::Result<Child> {
        self.told(&Work::of(command.as_std(), true)).await
    }

    async fn told(mut self, work: &Work) -> io::Result<Child> {
        self.stands().await?;
        let work = serde_json::to_vec(work).expect("it is text");
        // That nothing more comes is what has it begin.
        self.orders.write_all(&work).await?;
        Ok(self.child)
    }
}

/// Does what the words of [`Jail::words`] and of the stages after it ask for.
///
/// # Errors
/// The jail could not be made; then no job was started.
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

/// The next stage of the same program.
pub(super) fn stage(name: &str, spec: &str) -> Command {
    let mut command = Command::new(ITSELF);
    command.arg0("runyard-agent").args([WORD, name, spec]);
    command
}

/// In the machine's namespaces but for the network: whoever ends this ends all that is in the others.
fn outside(jail: &Jail, spec: &str) -> anyhow::Result<u8> {
    close_others()?;
    // They are meant for the job, which is asked by the next stage; that one is in the same group.
    told().thread_block()?;
    leave_the_agent_room()?;
    network::connect(jail.link)?;
    unshare(CloneFlags::CLONE_NEWPID).context("a PID namespace")?;
    // It has our end of what is told, too.
    let ended = stage("inside", spec).status().context("inside")?;
    Ok(code(ended))
}

/// What whoever started the agent left open is no business of a job's.
fn close_others() -> anyhow::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for file in open.into_iter().filter(|file| *file > 2) {
        // The directory that was read is closed by now.
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

/// The first process of the PID namespace: with it, the kernel ends all others in there.
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
            // The session of the job, and nothing else.
            signal => drop(killpg(pid, signal)),
        }
    }
}

/// Says that the jail stands, and waits for what is to be done in it; none where nobody is there any more to tell.
fn told_what_to_do() -> anyhow::Result<Option<Work>> {
    let mut orders = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut work = Vec::new();
    if orders.write_all(&[1]).is_err() || orders.read_to_end(&mut work)? == 0 {
        return Ok(None);
    }
    serde_json::from_slice(&work).context("what is to be done").map(Some)
}

/// Only a process outside of a user namespace, and privileged there, may say who is who in it.
pub(super) fn map_users(job: &mut UnixStream, pid: Pid, users: [&str; 2]) -> anyhow::Result<()> {
    job.read_exact(&mut [0]).context("it cannot be made (is user.max_user_namespaces 0?)")?;
    for (map, users) in ["uid_map", "gid_map"].into_iter().zip(users) {
        fs::write(format!("/proc/{pid}/{map}"), users).context(map)?;
    }
    Ok(job.write_all(&[1])?)
}

/// Waits, in a new user namespace, until [`map_users`] has said who is who in it.
pub(super) fn mapped(init: &mut UnixStream) -> io::Result<()> {
    init.write_all(&[1])?;
    init.read_exact(&mut [0])
}

/// Lets go of all that ended; how the job ended, if it did.
fn reap(job: Pid) -> nix::Result<Option<u8>> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive => return Ok(None),
            ended if ended.pid() != Some(job) => {}
            WaitStatus::Exited(_, code) => return Ok(Some(u8::try_from(code).unwrap_or(u8::MAX))),
            WaitStatus::Signaled(_, signal, _) => return Ok(Some(signaled(signal as i32))),
            // Stopped and continued ones are not asked for.
            _ => {}
        }
    }
}

/// Gives away everything that is root's and becomes the job.
fn become_the_job(jail: &Jail, job: &[OsString]) -> anyhow::Result<u8> {
    let [directory, program, arguments @ ..] = job else { bail!("no program") };
    let mut init = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    setsid()?;
    // The agent's own place in the order of being killed is not for jobs.
    fs::write("/proc/self/oom_score_adj", "0")?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    unshare(CloneFlags::CLONE_NEWUSER).context("a user namespace")?;
    mapped(&mut init)?;
    bound().context("bounds of the user namespace")?;
    own_session().context("a session keyring")?;
    prctl::set_no_new_privs()?;
    // What is blocked stays so in a new program.
    SigSet::empty().thread_set_mask()?;
    // With a user, `Command` also gives up the groups.
    let mut command = Command::new(program);
    command.args(arguments).uid(jail.uid).gid(jail.gid).current_dir(directory).stdin(Stdio::null());
    Err(command.exec()).with_context(|| program.display().to_string())
}

/// By which a job is asked to finish.
fn told() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

fn code(ended: ExitStatus) -> u8 {
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or_else(|| signaled(ended.signal().unwrap_or_default()))
}

/// As shells tell it.
fn signaled(signal: i32) -> u8 {
    u8::try_from(signal).unwrap_or_default() | 128
}
