//! Tasks and their outcomes: the interface between the pure step, which decides, and the executor, which acts.

use std::fmt;

use async_trait::async_trait;
use runyard_core::model::{
    ClaimId, Jobs, Keep, KeptDirectories, RegistrationCredential, RemovalCredential, RunnerPackage,
    TroubleKind,
};
use serde::{Deserialize, Serialize};

/// The runner's first process. The start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerProcess {
    /// Its process id, which is also its group's.
    pub pid: i32,
    /// When it was started, in the kernel's ticks since boot.
    pub started: u64,
}

/// The run and repository that hold the machine, and what their jobs may do on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The run's id.
    pub run: String,
    /// Its repository, `owner/name`; empty where the record does not tell.
    pub repository: String,
    /// The directories that its class keeps.
    #[serde(default)]
    pub keep: Vec<Keep>,
    /// What its jobs may do.
    #[serde(default)]
    pub jobs: Jobs,
}

/// Which of the clean-ups of a claim. A runner is deregistered by a script that runs as a job would, with a credential:
/// nothing of a job may be left then, and nothing of the script afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// The only one: no runner was registered.
    Whole,
    /// The one before the runner is deregistered; the registration is kept.
    BeforeRemoval,
    /// The one after it.
    AfterRemoval,
}

/// One task; at most one runs at a time.
#[derive(Clone)]
pub enum Task {
    /// Nothing.
    Idle,
    /// The pre-runner script and the runner package.
    Boot,
    /// `config.sh`, in a fresh directory.
    Configure {
        /// For which claim.
        claim: ClaimId,
        /// With what; a registration token is inside.
        registration: Box<RegistrationCredential>,
    },
    /// `run.sh`.
    Start {
        /// For which claim.
        claim: ClaimId,
        /// Whose jobs may begin.
        holder: Holder,
        /// Mode `job`: the single-use configuration; the directory is then made fresh.
        single_use: Option<Box<RegistrationCredential>>,
    },
    /// Wait until the runner listens, or ends, or says what keeps it from listening.
    Listen {
        /// For which claim.
        claim: ClaimId,
        /// Who.
        runner: RunnerProcess,
        /// What is known to keep it from listening.
        known: Option<TroubleKind>,
    },
    /// Wait until the runner ends.
    Serve {
        /// For which claim.
        claim: ClaimId,
        /// Who.
        runner: RunnerProcess,
    },
    /// Wait until the runner ends that was registered ahead; no job can reach it.
    Rest {
        /// Its id.
        claim: ClaimId,
        /// Who.
        runner: RunnerProcess,
    },
    /// Tell the runner that was registered ahead whose jobs may begin.
    Lend {
        /// Its id.
        claim: ClaimId,
        /// Whose jobs.
        holder: Holder,
    },
    /// End every process of the claim and remove what they left; it goes on then.
    Renew {
        /// Which claim.
        claim: ClaimId,
        /// Its runner, if one is not known to have ended.
        runner: Option<RunnerProcess>,
        /// When its first runner was started.
        since: Option<u64>,
        /// Whether its registration outlives jobs and is to be used again.
        registered: bool,
    },
    /// End every process of the claim.
    Stop {
        /// Which claim.
        claim: ClaimId,
        /// Its runner, if one was started and is not known to have ended.
        runner: Option<RunnerProcess>,
        /// When its first runner was started.
        since: Option<u64>,
    },
    /// `config.sh remove`.
    Deregister {
        /// Which claim.
        claim: ClaimId,
        /// With what.
        removal: Box<RemovalCredential>,
    },
    /// Remove what the claim left, and prove it.
    Wipe {
        /// Which claim.
        claim: ClaimId,
        /// When its first runner was started.
        since: Option<u64>,
        /// Which of its clean-ups.
        wipe: Wipe,
    },
    /// Keep what the claim wrote into these kept directories, and remove what it wrote into others.
    Settle {
        /// Which claim.
        claim: ClaimId,
        /// Its repository, and the directories that its class keeps.
        holder: Holder,
        /// Those that it may change.
        names: Vec<String>,
    },
}

impl Task {
    /// What it is, for logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Boot => "boot",
            Self::Configure { .. } => "configure",
            Self::Start { .. } => "start",
            Self::Listen { .. } => "listen",
            Self::Serve { .. } => "serve",
            Self::Rest { .. } => "rest",
            Self::Lend { .. } => "lend",
            Self::Renew { .. } => "renew",
            Self::Stop { .. } => "stop",
            Self::Deregister { .. } => "deregister",
            Self::Wipe { .. } => "wipe",
            Self::Settle { .. } => "settle",
        }
    }

    /// For which claim it is.
    pub const fn claim(&self) -> Option<&ClaimId> {
        match self {
            Self::Idle | Self::Boot => None,
            Self::Configure { claim, .. }
            | Self::Start { claim, .. }
            | Self::Listen { claim, .. }
            | Self::Serve { claim, .. }
            | Self::Rest { claim, .. }
            | Self::Lend { claim, .. }
            | Self::Renew { claim, .. }
            | Self::Stop { claim, .. }
            | Self::Deregister { claim, .. }
            | Self::Wipe { claim, .. }
            | Self::Settle { claim, .. } => Some(claim),
        }
    }

    /// Whether `self`, which is running, is what `wanted` asks for.
    pub fn is(&self, wanted: &Self) -> bool {
        self.label() == wanted.label() && self.claim() == wanted.claim()
    }
}

/// Without the content of credentials.
impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.claim() {
            Some(claim) => write!(f, "{} {claim}", self.label()),
            None => f.write_str(self.label()),
        }
    }
}

/// Why a task that needs GitHub failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GithubFailure {
    /// GitHub cannot be reached or is not well: to be tried again for as long as it takes.
    Unreachable(String),
    /// GitHub has a session of the runner's name already, and lets go of a dead one by itself: the same.
    Conflict(String),
    /// Everything else, a refused token for example: to be tried again a few times.
    Refused(String),
    /// GitHub takes no runner of this version: not to be tried again.
    Deprecated(String),
}

/// What keeps a runner from listening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// What.
    pub kind: TroubleKind,
    /// In words.
    pub words: String,
}

/// What the end of a runner means that nobody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerEnd {
    /// Its registration is of no more use: GitHub may still hold a session of it.
    Lost(String),
    /// GitHub does not know it any more.
    Forgotten(String),
    /// GitHub refused it, or could not be reached; its registration stands.
    Failed(GithubFailure),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// Boot: it succeeded, or why not.
    Booted(Result<(), String>),
    /// Configure: the runner is registered.
    Configured,
    /// Start: its process.
    Started(RunnerProcess),
    /// Listen: it listens.
    Listening,
    /// Listen: what keeps it from listening, other than what was known.
    Troubled(Trouble),
    /// Listen, Serve, Rest: it ended by itself.
    Ended {
        /// Whether a job had begun.
        worked: bool,
        /// What that means.
        end: RunnerEnd,
    },
    /// Serve: a job of another run came, and was refused.
    Intruded,
    /// Lend: jobs of the claim may begin.
    Lent,
    /// Renew: nothing of the last job is left.
    Renewed,
    /// Configure, Start, Listen, Deregister: it did not succeed.
    Failed(GithubFailure),
    /// Stop: no process of the claim is left.
    Stopped {
        /// Whether the directory says that the runner was registered.
        registered: bool,
    },
    /// Deregister: GitHub does not know it any more.
    Deregistered,
    /// Wipe: nothing of the claim is left.
    Wiped,
    /// Settle: no layer of the claim is left.
    Settled,
    /// Renew, Stop, Wipe, Settle: it could not be proved, and why.
    Unproved(String),
}

impl TaskOutcome {
    /// Whether what the machine keeps may be another after it.
    pub const fn changes_what_is_kept(&self) -> bool {
        match self {
            Self::Booted(_) | Self::Settled => true,
            Self::Configured
            | Self::Started(_)
            | Self::Listening
            | Self::Troubled(_)
            | Self::Ended { .. }
            | Self::Intruded
            | Self::Lent
            | Self::Renewed
            | Self::Failed(_)
            | Self::Stopped { .. }
            | Self::Deregistered
            | Self::Wiped
            | Self::Unproved(_) => false,
        }
    }

    /// Whether a runner ended because GitHub does not know it any more.
    pub const fn is_forgotten(&self) -> bool {
        matches!(self, Self::Ended { end: RunnerEnd::Forgotten(_), .. })
    }

    /// Whether the number of a registered runner can be known after it.
    pub const fn tells_of_a_registration(&self) -> bool {
        match self {
            Self::Configured | Self::Listening | Self::Stopped { .. } => true,
            Self::Booted(_)
            | Self::Started(_)
            | Self::Troubled(_)
            | Self::Ended { .. }
            | Self::Intruded
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

/// What was written on a machine, and the credentials that may be in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The parts with their names; some may be empty.
    pub parts: Vec<(&'static str, String)>,
    /// Credentials that were given to those who wrote.
    pub secrets: Vec<String>,
}

/// Executes tasks and decides nothing. Dropping the future of a task abandons it; any task may be started again from
/// the beginning.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Executes one task.
    async fn execute(&self, task: Task) -> TaskOutcome;
    /// Nothing is asked of a machine that is clean: what its next claim needs may be prepared meanwhile. Dropping the
    /// future abandons this too.
    async fn prepare(&self) {}

    /// Which runner package the tasks that follow run, and what is prepared; none: the one that the machine was launched
    /// with.
    fn use_package(&self, _package: Option<&RunnerPackage>) {}

    /// GitHub's number of the runner whose registration is kept here; none where it is not known.
    fn runner_id(&self) -> Option<u64> {
        None
    }

    /// What this machine keeps for later claims.
    fn kept(&self) -> KeptDirectories {
        KeptDirectories::new()
    }

    /// What was written on this machine, for its logs.
    fn logs(&self) -> Written {
        Written::default()
    }

    /// Ends every process of this machine but the agent, at once and without proof: the machine ends.
    async fn kill_everything(&self);
}
