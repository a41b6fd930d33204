//! The agent's local state: how far it got with its claim. It is on disk before every effect, so that a restarted agent
//! continues where the last one was killed.

use std::time::Duration;

use runyard_core::model::{ClaimId, Jobs, Keep, KeptDirectories, RunnerPackage};
use serde::{Deserialize, Serialize};

use crate::system::backoff::after_failures;
use crate::task::{Holder, RunnerProcess, TaskOutcome, Trouble};

mod ahead;
mod anew;

/// After how many refusals by GitHub, over the whole claim, the agent gives up.
pub const REFUSALS: u32 = 3;

/// How long a machine that is clean waits for the operator's word on what its claim wrote into kept directories.
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
    /// They failed, for ever.
    Failed(String),
}

/// How a runner is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Once for the whole claim.
    Run,
    /// Anew for each job.
    Job,
}

/// How far the agent got with a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimStage {
    /// Nothing is on disk or at GitHub; waiting for a box.
    Accepted,
    /// A registration was begun.
    Configuring,
    /// Registered; no listener.
    Configured,
    /// `run.sh` runs and has not listened yet.
    Started(RunnerProcess),
    /// It listens, or works.
    Listening(RunnerProcess),
    /// It cannot be registered.
    Refused(String),
    /// Between two jobs: whatever the last one left is being removed.
    Renewing(Option<RunnerProcess>),
    /// Its processes are being ended.
    Stopping(Option<RunnerProcess>),
    /// They are gone.
    Stopped,
    /// Nothing is left but what it wrote into kept directories: waiting for the operator's word on that.
    Settling,
    /// Nothing is left.
    Clean,
    /// That could not be proved.
    Unclean(String),
}

/// A claim this machine serves, or the last it served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// The claim.
    pub id: ClaimId,
    /// Its run.
    pub run: String,
    /// Its run's repository; empty where the record did not tell.
    #[serde(default)]
    pub repository: String,
    /// The directories that its class keeps.
    #[serde(default)]
    pub keep: Vec<Keep>,
    /// What its jobs may do.
    #[serde(default)]
    pub jobs: Jobs,
    /// The runner package that it named; none where it is the one that the machine was launched with.
    #[serde(default)]
    pub runner: Option<RunnerPackage>,
    /// How far it got.
    pub stage: ClaimStage,
    /// Whether GitHub may know a runner that must be removed.
    pub registered: bool,
    /// GitHub's number of that runner, where it is known: the operator removes it then.
    #[serde(default)]
    pub runner_id: Option<u64>,
    /// Whether nothing of its jobs is left; its runner may still be registered.
    #[serde(default)]
    pub swept: bool,
    /// How it is registered, once a box told.
    pub mode: Option<Mode>,
    /// Whether it has ever listened.
    pub listened: bool,
    /// The box in use.
    pub seq: u64,
    /// Mode `job`: the last box used up.
    pub done: u64,
    /// The name at GitHub.
    pub runner_name: Option<String>,
    /// When its first runner was started, in ticks since boot.
    pub since: Option<u64>,
    /// Of a claim whose runner was registered ahead, under which id: its directories and processes go by that.
    #[serde(default)]
    pub place: Option<ClaimId>,
    /// Whether that runner was told whose jobs may begin.
    #[serde(default)]
    pub lent: bool,
    /// Whether the record says that it has the label of the run.
    #[serde(default)]
    pub labelled: bool,
    /// How often GitHub refused.
    pub refusals: u32,
    /// What keeps its runner from listening.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// When its runners ended unasked of late, in monotonic time.
    #[serde(default)]
    pub ends: Vec<Duration>,
    /// Whether a new box is to be asked for, once its pause is over.
    #[serde(default)]
    pub anew: bool,
    /// Failures in a row; forgotten by a restart.
    #[serde(skip)]
    pub failures: u32,
    /// Not to be tried again before, in monotonic time; forgotten by a restart.
    #[serde(skip)]
    pub retry_at: Option<Duration>,
}

/// The local state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Local {
    /// The first boot.
    pub boot: Boot,
    /// Whether a claim was ever served or answered for: then never `UD_OK` again.
    pub served: bool,
    /// Why this machine can never be called clean again.
    pub tainted: Option<String>,
    /// The claim.
    pub claim: Option<Served>,
    /// The runner that is registered ahead of a claim, or what is left of it. Its id is no claim's, and it has no run.
    #[serde(default)]
    pub ahead: Option<Served>,
    /// The last one that is over: it is not begun again.
    #[serde(default)]
    pub ahead_over: Option<ClaimId>,
    /// What the machine keeps for later claims.
    #[serde(default)]
    pub kept: KeptDirectories,
}

impl Served {
    /// A claim that is new here.
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
            failures: 0,
            retry_at: None,
        }
    }

    /// Whether its runner is to be removed from GitHub here: the operator cannot, for want of its number.
    pub fn removes_its_runner(&self) -> bool {
        self.registered && self.runner_id.is_none()
    }

    /// Whether its jobs may have written into kept directories.
    fn may_have_written(&self) -> bool {
        !self.keep.is_empty() && self.since.is_some()
    }

    /// Nothing is left but what it may have written into kept directories.
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

    /// By which its directories and processes are known.
    pub fn place(&self) -> &ClaimId {
        self.place.as_ref().unwrap_or(&self.id)
    }

    /// Whose jobs may begin.
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

    /// Where a registration or a listener that failed goes on from.
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

    /// Its runner was started; why nothing proves that this machine is clean from now on, if so.
    fn started(&mut self, runner: RunnerProcess) -> Option<String> {
        self.registered = true;
        self.since.get_or_insert(runner.started);
        self.stage = ClaimStage::Started(runner);
        self.jobs.single_use().then(|| format!("jobs of claim {} could become root", self.id))
    }

    /// Its single-use registration has served.
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
    /// Whether nothing of a claim is on the machine: all was cleaned, and nothing was begun since.
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

    /// Notes under which number GitHub knows the runner of the claim at hand, if it has one.
    pub fn registered_as(&mut self, runner_id: Option<u64>) {
        if let Some(served) = self.claim.as_mut().filter(|served| served.registered) {
            served.runner_id = runner_id.or(served.runner_id);
        }
    }

    /// What is known after a task ended. `now` is monotonic, `chance` between 0 and 1.
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
            TaskOutcome::Lent => served.lent = true,
            TaskOutcome::Renewed => served.renewed(),
            TaskOutcome::Failed(failure) => served.failed(failure, now, chance),
            TaskOutcome::Stopped { registered } => {
                // A single-use runner that was used up may leave its files; nothing is left to remove.
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
