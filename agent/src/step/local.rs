//! The agent's local state: the progress of its claim. It is on disk before every effect, so that a restarted agent
//! continues where the last one was killed.
//!
//! Over 400 lines: the state of a claim, with each change of it.

use std::time::Duration;

use runyard_core::model::{ClaimId, ClaimProof, Jobs, Keep, KeptDirectories, RunnerPackage};
use serde::{Deserialize, Serialize};

use crate::system::backoff::after_failures;
use crate::task::{Holder, RunnerProcess, TaskOutcome, Trouble};

mod ahead;
mod anew;
mod proof;
pub(super) mod retire;
mod slot;

pub use retire::Retire;
pub use slot::{JobStage, SlotJob};

/// The number of refusals by GitHub, over the whole claim, after which the agent gives up.
pub const REFUSALS: u32 = 3;

/// How long a clean machine waits for the operator's verdict on the claim's writes to kept directories.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The first boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Boot {
    /// Not finished.
    #[default]
    Pending,
    /// The script and the package are done.
    Done,
    /// They failed permanently.
    Failed(String),
}

/// How a runner is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Once for the whole claim.
    Run,
    /// Separately for each job.
    Job,
}

/// The progress of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimStage {
    /// Nothing is on disk or at GitHub; the claim waits for a credential.
    Accepted,
    /// A registration was started.
    Configuring,
    /// The runner is registered; there is no listener.
    Configured,
    /// `run.sh` is running and has not listened yet.
    Started(RunnerProcess),
    /// The runner listens, or runs a job.
    Listening(RunnerProcess),
    /// The runner cannot be registered.
    Refused(String),
    /// Between two jobs: everything that the last one left is being removed.
    Renewing(Option<RunnerProcess>),
    /// The processes of the claim are being ended.
    Stopping(Option<RunnerProcess>),
    /// The processes have ended.
    Stopped,
    /// Nothing is left except its writes to kept directories, which wait for the operator's verdict.
    Settling,
    /// Nothing is left.
    Clean,
    /// It could not be proved that nothing is left.
    Unclean(String),
}

/// A claim that this machine serves, or the last one that it served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// The claim.
    pub id: ClaimId,
    /// Its run.
    pub run: String,
    /// The repository of its run; empty if the record does not name it.
    #[serde(default)]
    pub repository: String,
    /// The directories that its class keeps.
    #[serde(default)]
    pub keep: Vec<Keep>,
    /// The permissions of its jobs.
    #[serde(default)]
    pub jobs: Jobs,
    /// The runner package that it named; `None` for the one that the machine was launched with.
    #[serde(default)]
    pub runner: Option<RunnerPackage>,
    /// Its progress.
    pub stage: ClaimStage,
    /// Whether GitHub may have a runner that must be removed.
    pub registered: bool,
    /// GitHub's id of that runner, if it is known: then the operator removes it.
    #[serde(default)]
    pub runner_id: Option<u64>,
    /// Whether nothing of its jobs is left; its runner may still be registered.
    #[serde(default)]
    pub swept: bool,
    /// How it is registered, once a credential has arrived.
    pub mode: Option<Mode>,
    /// Whether its runner has ever listened.
    pub listened: bool,
    /// The number of the credential in use.
    pub seq: u64,
    /// Mode `job`: the number of the last credential that was used up.
    pub done: u64,
    /// The name of the runner at GitHub.
    pub runner_name: Option<String>,
    /// The start time of its first runner, in ticks since boot.
    pub since: Option<u64>,
    /// The id under which its runner was registered ahead, if it was: its directories and processes use this id.
    #[serde(default)]
    pub place: Option<ClaimId>,
    /// Whether that runner was informed which jobs may begin.
    #[serde(default)]
    pub lent: bool,
    /// Whether the record shows that the runner has the label of the run.
    #[serde(default)]
    pub labelled: bool,
    /// The number of refusals by GitHub.
    pub refusals: u32,
    /// The obstacle that keeps its runner from listening.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// The times at which its runners recently ended unrequested, in monotonic time.
    #[serde(default)]
    pub ends: Vec<Duration>,
    /// Whether a new credential must be requested, once its pause is over.
    #[serde(default)]
    pub anew: bool,
    /// The answer to the operator's question whether its runner has a job.
    #[serde(default)]
    pub retire: Option<Retire>,
    /// The last job of a slot.
    #[serde(default)]
    pub job: Option<SlotJob>,
    /// The report about its clean-up, until the machine is in the pool.
    #[serde(default)]
    pub proof: Option<ClaimProof>,
    /// The number of failures in a row; lost in a restart.
    #[serde(skip)]
    pub failures: u32,
    /// The earliest time of the next attempt, in monotonic time; lost in a restart.
    #[serde(skip)]
    pub retry_at: Option<Duration>,
}

/// The local state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Local {
    /// The first boot.
    pub boot: Boot,
    /// Whether a claim was ever served or answered: then `UD_OK` is never sent again.
    pub served: bool,
    /// The reason why this machine can never be called clean again.
    pub tainted: Option<String>,
    /// The claim.
    pub claim: Option<Served>,
    /// The runner that is registered ahead of a claim, or its remains. Its id is not that of a claim, and it has no
    /// run.
    #[serde(default)]
    pub ahead: Option<Served>,
    /// The last one that is over: it is not started again.
    #[serde(default)]
    pub ahead_over: Option<ClaimId>,
    /// The directories that the machine keeps for later claims.
    #[serde(default)]
    pub kept: KeptDirectories,
}

impl Served {
    /// Creates a claim that is new on this machine.
    pub fn new(id: ClaimId, run: String, stage: ClaimStage) -> Self {
        Self {
            id,
            run,
            repository: String::new(),
            keep: Vec::new(),
            jobs: Jobs::default(),
            runner: None,
            stage,
            registered: false,
            runner_id: None,
            swept: false,
            mode: None,
            listened: false,
            seq: 0,
            done: 0,
            runner_name: None,
            since: None,
            place: None,
            lent: false,
            labelled: false,
            refusals: 0,
            trouble: None,
            ends: Vec::new(),
            anew: false,
            retire: None,
            job: None,
            proof: None,
            failures: 0,
            retry_at: None,
        }
    }

    /// Returns whether this machine must remove its runner from GitHub: the operator cannot, because it lacks the
    /// runner's id.
    pub fn removes_its_runner(&self) -> bool {
        self.registered && self.runner_id.is_none()
    }

    /// Returns whether its jobs may have written to kept directories.
    fn may_have_written(&self) -> bool {
        !self.keep.is_empty() && self.since.is_some()
    }

    /// Records that nothing is left except possible writes to kept directories.
    fn wiped(&mut self, tainted: Option<&str>, now: Duration) {
        match tainted {
            Some(why) => self.stage = ClaimStage::Unclean(why.to_owned()),
            None if self.may_have_written() => {
                self.succeeded(ClaimStage::Settling);
                self.retry_at = Some(now.saturating_add(PATIENCE));
            }
            None => self.stage = ClaimStage::Clean,
        }
    }

    /// Returns the id that its directories and processes use.
    pub fn place(&self) -> &ClaimId {
        self.place.as_ref().unwrap_or(&self.id)
    }

    /// Returns the holder, which determines the jobs that may begin.
    pub fn holder(&self) -> Holder {
        Holder {
            run: self.run.clone(),
            repository: self.repository.clone(),
            keep: self.keep.clone(),
            jobs: self.jobs.clone(),
        }
    }

    fn try_again(&mut self, stage: ClaimStage, now: Duration, chance: f64) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now.saturating_add(after_failures(self.failures, chance)));
        self.stage = stage;
    }

    fn succeeded(&mut self, stage: ClaimStage) {
        self.failures = 0;
        self.retry_at = None;
        self.stage = stage;
    }

    /// Returns the stage from which a failed registration or listener continues.
    fn fallback(&self) -> ClaimStage {
        match self.stage {
            ClaimStage::Configured | ClaimStage::Started(_) | ClaimStage::Listening(_)
                if self.mode != Some(Mode::Job) =>
            {
                ClaimStage::Configured
            }
            ClaimStage::Accepted
            | ClaimStage::Configuring
            | ClaimStage::Configured
            | ClaimStage::Started(_)
            | ClaimStage::Listening(_)
            | ClaimStage::Renewing(_)
            | ClaimStage::Refused(_)
            | ClaimStage::Clean
            | ClaimStage::Unclean(_) => ClaimStage::Accepted,
            ClaimStage::Stopping(_) | ClaimStage::Stopped => ClaimStage::Stopped,
            ClaimStage::Settling => ClaimStage::Settling,
        }
    }

    /// Records that its runner was started. Returns the reason why this machine can no longer be proved clean, if there
    /// is one.
    fn started(&mut self, runner: RunnerProcess) -> Option<String> {
        self.registered = true;
        self.since.get_or_insert(runner.started);
        self.stage = ClaimStage::Started(runner);
        self.job_is(JobStage::Former);
        self.jobs.single_use().then(|| format!("jobs of claim {} could become root", self.id))
    }

    /// Records that its single-use registration was used up.
    fn used_up(&mut self, runner: Option<RunnerProcess>) {
        self.done = self.seq;
        self.registered = false;
        self.runner_id = None;
        (self.ends, self.trouble) = (Vec::new(), None);
        self.succeeded(ClaimStage::Renewing(runner));
    }

    fn intruded(&mut self) {
        let ClaimStage::Listening(runner) = self.stage else { return };
        if self.mode == Some(Mode::Job) {
            self.used_up(Some(runner));
        } else {
            self.succeeded(ClaimStage::Renewing(Some(runner)));
        }
    }
}

impl Local {
    /// Returns whether nothing of a claim is on the machine: everything was cleaned, and nothing was started since.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let cleaned = |served: &Served| match served.stage {
            ClaimStage::Clean => true,
            // Nothing was tried yet, or not since the last job.
            ClaimStage::Accepted => served.seq == served.done,
            ClaimStage::Configuring
            | ClaimStage::Configured
            | ClaimStage::Started(_)
            | ClaimStage::Listening(_)
            | ClaimStage::Refused(_)
            | ClaimStage::Renewing(_)
            | ClaimStage::Stopping(_)
            | ClaimStage::Stopped
            | ClaimStage::Settling
            | ClaimStage::Unclean(_) => false,
        };
        self.boot == Boot::Done
            && self.tainted.is_none()
            && self.ahead.is_none()
            && self.claim.as_ref().is_none_or(cleaned)
    }

    /// Returns whether the machine waits for nothing but its next claim or the end of this one: then a change of its
    /// record may be seen a little later.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let rests = |served: &Served| match served.stage {
            ClaimStage::Clean | ClaimStage::Listening(_) => true,
            ClaimStage::Accepted
            | ClaimStage::Configuring
            | ClaimStage::Configured
            | ClaimStage::Started(_)
            | ClaimStage::Renewing(_)
            | ClaimStage::Refused(_)
            | ClaimStage::Stopping(_)
            | ClaimStage::Stopped
            | ClaimStage::Settling
            | ClaimStage::Unclean(_) => false,
        };
        self.boot == Boot::Done && self.claim.iter().chain(&self.ahead).all(rests)
    }

    /// Stores GitHub's id of the current claim's runner, if it has one.
    pub fn registered_as(&mut self, runner_id: Option<u64>) {
        if let Some(served) = self.claim.as_mut().filter(|served| served.registered) {
            served.runner_id = runner_id.or(served.runner_id);
        }
    }

    /// Returns the state after a task ended. `now` is monotonic, `chance` between 0 and 1.
    #[must_use]
    pub fn after(mut self, outcome: TaskOutcome, now: Duration, chance: f64) -> Self {
        if let TaskOutcome::Booted(result) = outcome {
            self.boot = result.map_or_else(Boot::Failed, |()| Boot::Done);
            return self;
        }
        let Some(served) = self.claim.as_mut() else { return self };
        match outcome {
            TaskOutcome::Booted(_) => {}
            TaskOutcome::Configured => {
                served.registered = true;
                served.succeeded(ClaimStage::Configured);
            }
            TaskOutcome::Started(runner) => {
                if let Some(why) = served.started(runner) {
                    self.tainted.get_or_insert(why);
                }
            }
            TaskOutcome::Listening => {
                if let ClaimStage::Started(runner) = served.stage {
                    served.listened = true;
                    served.refusals = 0;
                    served.trouble = None;
                    served.succeeded(ClaimStage::Listening(runner));
                }
            }
            TaskOutcome::Troubled(trouble) => served.trouble = Some(trouble),
            TaskOutcome::Ended { worked, end } => served.ended(worked, end, now, chance),
            TaskOutcome::Intruded => served.intruded(),
            TaskOutcome::Began(report) => served.began(report),
            TaskOutcome::Admitted => served.job_is(JobStage::Admitted),
            TaskOutcome::Frozen { busy } => served.frozen(busy, now),
            TaskOutcome::Lent => served.lent = true,
            TaskOutcome::Renewed => served.renewed(),
            TaskOutcome::Failed(failure) => served.failed(failure, now, chance),
            TaskOutcome::Stopped { registered } => {
                // A single-use runner that was used up may leave its files; nothing is left to remove at GitHub.
                served.registered |= registered && served.mode != Some(Mode::Job);
                served.refusals = 0;
                served.succeeded(ClaimStage::Stopped);
            }
            TaskOutcome::Deregistered => {
                served.registered = false;
                served.runner_id = None;
                served.succeeded(ClaimStage::Stopped);
            }
            TaskOutcome::Wiped if served.removes_its_runner() && !served.swept => {
                served.swept = true;
                served.succeeded(ClaimStage::Stopped);
            }
            TaskOutcome::Wiped => served.wiped(self.tainted.as_deref(), now),
            TaskOutcome::Settled => served.succeeded(ClaimStage::Clean),
            TaskOutcome::Unproved(detail) => served.stage = ClaimStage::Unclean(detail),
        }
        if let ClaimStage::Unclean(detail) = &served.stage {
            self.tainted.get_or_insert_with(|| detail.clone());
        }
        self
    }
}
