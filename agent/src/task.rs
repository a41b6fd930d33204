//! Tasks and their outcomes: the interface between the pure step, which decides, and the executor, which acts.
//!
//! Over 400 lines: each task and each outcome has its line and its meaning.

use std::fmt;

use async_trait::async_trait;
use runyard_core::model::{
    ClaimId, ClaimProof, JobReport, Jobs, Keep, KeptDirectories, RegistrationCredential, RemovalCredential,
    Repository, RunId, RunnerPackage, TroubleKind,
};
use serde::{Deserialize, Serialize};

/// The runner's first process. The start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerProcess {
    /// Its process id, which is also the id of its group.
    pub pid: i32,
    /// Its start time, in the kernel's ticks since boot.
    pub started: u64,
}

/// The run and repository that hold the machine, and what their jobs may do on it. A slot of a runner scale set has the
/// set in place of the run, and perhaps all repositories of an organisation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The run's id.
    pub run: String,
    /// Its repository, `owner/name`; empty if the record does not name it.
    pub repository: String,
    /// The directories that its class keeps.
    #[serde(default)]
    pub keep: Vec<Keep>,
    /// The permissions of its jobs.
    #[serde(default)]
    pub jobs: Jobs,
}

impl Holder {
    /// Returns the number of the runner scale set whose slot it is; `None` for a run.
    pub fn set(&self) -> Option<u64> {
        RunId::parse(&self.run).ok()?.set()
    }

    /// Returns whether it is known to have another repository than this one. GitHub ignores case.
    pub fn excludes(&self, repository: &str) -> bool {
        let all = Repository::parse(&self.repository).ok().filter(Repository::is_organization);
        let covers = match &all {
            Some(all) => repository.split_once('/').is_some_and(|(o, _)| o.eq_ignore_ascii_case(all.owner())),
            None => self.repository.is_empty() || self.repository.eq_ignore_ascii_case(repository),
        };
        !covers
    }
}

/// The clean-ups of a claim. A runner is deregistered by a script that runs as a job would, with a credential: nothing
/// of a job may be left before it, and nothing of the script after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// The only clean-up: no runner was registered.
    Whole,
    /// The clean-up before the runner is deregistered; the registration is kept.
    BeforeRemoval,
    /// The clean-up after the runner was deregistered.
    AfterRemoval,
}

/// One task; at most one runs at a time.
#[derive(Clone)]
pub enum Task {
    /// No work.
    Idle,
    /// Run the pre-runner script and fetch the runner package.
    Boot,
    /// Run `config.sh` in a fresh directory.
    Configure {
        /// The claim.
        claim: ClaimId,
        /// The credential, which contains a registration token.
        registration: Box<RegistrationCredential>,
    },
    /// Run `run.sh`.
    Start {
        /// The claim.
        claim: ClaimId,
        /// The holder, which determines the jobs that may begin.
        holder: Holder,
        /// Mode `job`: the single-use configuration; a fresh directory is created for it.
        single_use: Option<Box<RegistrationCredential>>,
    },
    /// Wait until the runner listens, ends, or reports an obstacle.
    Listen {
        /// The claim.
        claim: ClaimId,
        /// The runner.
        runner: RunnerProcess,
        /// The obstacle that is already known.
        known: Option<TroubleKind>,
    },
    /// Let the processes of the claim run, and wait until the runner ends.
    Serve {
        /// The claim.
        claim: ClaimId,
        /// The runner.
        runner: RunnerProcess,
        /// The holder, if it is a slot and the job of this runner is not known yet.
        awaits: Option<Holder>,
    },
    /// Let the job of a slot go on, because the agent's record shows it.
    Admit {
        /// The claim.
        claim: ClaimId,
    },
    /// Suspend every process of the claim, and see whether the runner has a job.
    Freeze {
        /// The claim.
        claim: ClaimId,
        /// The runner.
        runner: RunnerProcess,
    },
    /// Leave the suspended processes as they are, so that no job begins.
    Frozen {
        /// The claim.
        claim: ClaimId,
    },
    /// Wait until the runner that was registered ahead ends; no job can reach it.
    Rest {
        /// The id of its registration.
        claim: ClaimId,
        /// The runner.
        runner: RunnerProcess,
    },
    /// Inform the runner that was registered ahead which jobs may begin.
    Lend {
        /// The id of its registration.
        claim: ClaimId,
        /// The holder of these jobs.
        holder: Holder,
    },
    /// End every process of the claim and remove their files; the claim continues afterwards.
    Renew {
        /// The claim.
        claim: ClaimId,
        /// Its runner, unless it is known to have ended.
        runner: Option<RunnerProcess>,
        /// The start time of its first runner.
        since: Option<u64>,
        /// Whether its registration outlives jobs and will be used again.
        registered: bool,
    },
    /// End every process of the claim.
    Stop {
        /// The claim.
        claim: ClaimId,
        /// Its runner, if one was started and is not known to have ended.
        runner: Option<RunnerProcess>,
        /// The start time of its first runner.
        since: Option<u64>,
    },
    /// Run `config.sh remove`.
    Deregister {
        /// The claim.
        claim: ClaimId,
        /// The credential.
        removal: Box<RemovalCredential>,
    },
    /// Remove everything that the claim left, and prove it.
    Wipe {
        /// The claim.
        claim: ClaimId,
        /// The start time of its first runner.
        since: Option<u64>,
        /// The kind of clean-up.
        wipe: Wipe,
    },
    /// Keep the claim's writes to these kept directories, and remove its writes to others.
    Settle {
        /// The claim.
        claim: ClaimId,
        /// Its repository, and the directories that its class keeps.
        holder: Holder,
        /// The names of the directories that it may change.
        names: Vec<String>,
    },
}

impl Task {
    /// Returns the name of the task, for logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Boot => "boot",
            Self::Configure { .. } => "configure",
            Self::Start { .. } => "start",
            Self::Listen { .. } => "listen",
            Self::Serve { .. } => "serve",
            Self::Admit { .. } => "admit",
            Self::Freeze { .. } => "freeze",
            Self::Frozen { .. } => "frozen",
            Self::Rest { .. } => "rest",
            Self::Lend { .. } => "lend",
            Self::Renew { .. } => "renew",
            Self::Stop { .. } => "stop",
            Self::Deregister { .. } => "deregister",
            Self::Wipe { .. } => "wipe",
            Self::Settle { .. } => "settle",
        }
    }

    /// Returns the claim of the task.
    pub const fn claim(&self) -> Option<&ClaimId> {
        match self {
            Self::Idle | Self::Boot => None,
            Self::Configure { claim, .. }
            | Self::Start { claim, .. }
            | Self::Listen { claim, .. }
            | Self::Serve { claim, .. }
            | Self::Admit { claim }
            | Self::Freeze { claim, .. }
            | Self::Frozen { claim }
            | Self::Rest { claim, .. }
            | Self::Lend { claim, .. }
            | Self::Renew { claim, .. }
            | Self::Stop { claim, .. }
            | Self::Deregister { claim, .. }
            | Self::Wipe { claim, .. }
            | Self::Settle { claim, .. } => Some(claim),
        }
    }

    /// Returns whether `self`, which is running, is the task that `wanted` requests.
    pub fn is(&self, wanted: &Self) -> bool {
        self.label() == wanted.label() && self.claim() == wanted.claim()
    }
}

/// Prints no content of credentials.
impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.claim() {
            Some(claim) => write!(f, "{} {claim}", self.label()),
            None => f.write_str(self.label()),
        }
    }
}

/// The reason why a task that needs GitHub failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GithubFailure {
    /// GitHub cannot be reached or is failing: the task is tried again for as long as it takes.
    Unreachable(String),
    /// GitHub already has a session of the runner's name, and drops a dead one by itself: the same.
    Conflict(String),
    /// Everything else, a refused token for example: the task is tried again a few times.
    Refused(String),
    /// GitHub accepts no runner of this version: the task is not tried again.
    Deprecated(String),
}

/// An obstacle that keeps a runner from listening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// The kind of obstacle.
    pub kind: TroubleKind,
    /// A description.
    pub words: String,
}

/// The meaning of a runner's unrequested end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerEnd {
    /// Its registration can no longer be used: GitHub may still hold a session of it.
    Lost(String),
    /// GitHub does not know it any more.
    Forgotten(String),
    /// GitHub refused it, or could not be reached; its registration remains.
    Failed(GithubFailure),
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// Boot: success, or the reason for the failure.
    Booted(Result<(), String>),
    /// Configure: the runner is registered.
    Configured,
    /// Start: its process.
    Started(RunnerProcess),
    /// Listen: the runner listens.
    Listening,
    /// Listen: an obstacle other than the known one.
    Troubled(Trouble),
    /// Listen, Serve, Rest: the runner ended by itself.
    Ended {
        /// Whether a job had started.
        worked: bool,
        /// The meaning of the end.
        end: RunnerEnd,
    },
    /// Serve: a job of another run arrived, and was refused.
    Intruded,
    /// Serve: a job of a slot is about to begin. It waits for a while until it is admitted.
    Began(JobReport),
    /// Admit: it does not wait any more.
    Admitted,
    /// Freeze: whether the runner has a job. If it has none, its processes stay suspended.
    Frozen {
        /// Whether it has one; then everything runs on.
        busy: bool,
    },
    /// Lend: jobs of the claim may begin.
    Lent,
    /// Renew: nothing of the last job is left.
    Renewed,
    /// Configure, Start, Listen, Deregister: the task failed.
    Failed(GithubFailure),
    /// Stop: no process of the claim is left.
    Stopped {
        /// Whether the directory contains a registration.
        registered: bool,
    },
    /// Deregister: GitHub does not know the runner any more.
    Deregistered,
    /// Wipe: nothing of the claim is left.
    Wiped,
    /// Settle: no layer of the claim is left.
    Settled,
    /// Renew, Stop, Wipe, Settle: it could not be proved, for this reason.
    Unproved(String),
}

impl TaskOutcome {
    /// Returns whether the outcome may change the directories that the machine keeps.
    pub const fn changes_what_is_kept(&self) -> bool {
        match self {
            Self::Booted(_) | Self::Settled => true,
            Self::Configured
            | Self::Started(_)
            | Self::Listening
            | Self::Troubled(_)
            | Self::Ended { .. }
            | Self::Intruded
            | Self::Began(_)
            | Self::Admitted
            | Self::Frozen { .. }
            | Self::Lent
            | Self::Renewed
            | Self::Failed(_)
            | Self::Stopped { .. }
            | Self::Deregistered
            | Self::Wiped
            | Self::Unproved(_) => false,
        }
    }

    /// Returns whether the outcome is that of a clean-up: what was proved is known afterwards.
    pub const fn is_of_a_clean_up(&self) -> bool {
        match self {
            Self::Wiped | Self::Settled | Self::Unproved(_) => true,
            Self::Booted(_)
            | Self::Configured
            | Self::Started(_)
            | Self::Listening
            | Self::Troubled(_)
            | Self::Ended { .. }
            | Self::Intruded
            | Self::Began(_)
            | Self::Admitted
            | Self::Frozen { .. }
            | Self::Lent
            | Self::Renewed
            | Self::Failed(_)
            | Self::Stopped { .. }
            | Self::Deregistered => false,
        }
    }

    /// Returns whether a runner ended because GitHub does not know it any more.
    pub const fn is_forgotten(&self) -> bool {
        matches!(self, Self::Ended { end: RunnerEnd::Forgotten(_), .. })
    }

    /// Returns whether the id of a registered runner can be known after this outcome.
    pub const fn tells_of_a_registration(&self) -> bool {
        match self {
            Self::Configured | Self::Listening | Self::Stopped { .. } => true,
            Self::Booted(_)
            | Self::Started(_)
            | Self::Troubled(_)
            | Self::Ended { .. }
            | Self::Intruded
            | Self::Began(_)
            | Self::Admitted
            | Self::Frozen { .. }
            | Self::Lent
            | Self::Renewed
            | Self::Failed(_)
            | Self::Deregistered
            | Self::Wiped
            | Self::Settled
            | Self::Unproved(_) => false,
        }
    }
}

/// The output of a machine's processes, and the credentials that may be in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The parts with their names; some may be empty.
    pub parts: Vec<(&'static str, String)>,
    /// Credentials that were passed to these processes.
    pub secrets: Vec<String>,
}

/// Executes tasks and decides nothing. Dropping the future of a task abandons it; any task may be started again from
/// the beginning.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Executes one task.
    async fn execute(&self, task: Task) -> TaskOutcome;
    /// Prepares the next claim while the machine is clean and has no work. Dropping the future abandons this too.
    async fn prepare(&self) {}

    /// Selects the runner package for the following tasks and for preparations; `None` for the one that the machine was
    /// launched with.
    fn use_package(&self, _package: Option<&RunnerPackage>) {}

    /// Returns GitHub's id of the runner with a registration on this machine; `None` if it is not known.
    fn runner_id(&self) -> Option<u64> {
        None
    }

    /// Returns the directories that this machine keeps for later claims.
    fn kept(&self) -> KeptDirectories {
        KeptDirectories::new()
    }

    /// Returns the report about a claim whose clean-up is over: what is known of the machine, and each item that was
    /// checked.
    fn proof(&self, claim: &ClaimId) -> ClaimProof {
        ClaimProof::of(claim)
    }

    /// Returns the output of this machine's processes, for its logs.
    fn logs(&self) -> Written {
        Written::default()
    }

    /// Kills every process of this machine except the agent, at once and without proof: the machine ends.
    async fn kill_everything(&self);
}
