//! The pure step: computes from the instance record, the agent record, the local state and the time which task should
//! run and which signal the record should show. It performs no I/O. Signals are levels, so a repeated call gives the
//! same result.
//!
//! Over 400 lines: one decision, with stages that are matched one by one.

use std::time::Duration;

use runyard_core::model::{
    Agent, AgentKey, AheadReport, ClaimId, ClaimProof, JobReport, KeptDirectories, RegistrationCredential,
    RemovalCredential, RetireReport, RunnerPackage, SealError, Signal, State,
};

use crate::step::local::{Boot, ClaimStage, Local, Mode, Served};
use crate::step::orders::{Orders, Sight};
use crate::task::{Task, Trouble, Wipe};

mod ahead;
#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod anew_tests;
pub mod local;
pub mod orders;
mod retire;
#[cfg(test)]
mod retire_tests;
#[cfg(test)]
mod slot_tests;

/// The agent's own record, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Stored {
    /// Not read yet.
    #[default]
    Unknown,
    /// The record does not exist.
    Absent,
    /// The contents of the record.
    Known(Box<Agent>),
}

impl Stored {
    /// Returns the record, if there is one.
    pub fn agent(&self) -> Option<&Agent> {
        match self {
            Self::Known(agent) => Some(agent),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The input of the step.
pub struct View<'a> {
    /// The instance record.
    pub sight: &'a Sight,
    /// The agent's own record.
    pub stored: &'a Stored,
    /// The state on disk.
    pub local: &'a Local,
    /// The key that opens credentials.
    pub key: &'a AgentKey,
    /// Monotonic time.
    pub now: Duration,
    /// How long a runner that ended unrequested waits for its new credential before it is restarted with its old
    /// registration.
    pub reregister: Duration,
}

/// A signal that the stored record should show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Say {
    /// The signal.
    pub signal: Signal,
    /// Its claim.
    pub claim: Option<ClaimId>,
    /// The run of the claim, for people.
    pub run: String,
    /// The reason, for people.
    pub detail: Option<String>,
}

/// The state that the agent's record should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// The signal; `None` leaves the record as it is.
    pub say: Option<Say>,
    /// The runner's name.
    pub runner_name: Option<String>,
    /// GitHub's id of the runner, with which the operator removes it.
    pub runner_id: Option<u64>,
    /// Mode `job`: the number of the last credential that was used up.
    pub registration_done: Option<u64>,
    /// The directories that the machine keeps for later claims.
    pub kept: KeptDirectories,
    /// The runner that is registered ahead of a claim, or that its claim took over.
    pub ahead: Option<AheadReport>,
    /// The obstacle that keeps the claim's runner from listening.
    pub trouble: Option<Trouble>,
    /// The answer to the question whether the claim's runner has a job.
    pub retire: Option<RetireReport>,
    /// The last job of the claim, if that is of a slot.
    pub job: Option<JobReport>,
    /// The report about the claim, once its clean-up is over and until its machine is in the pool.
    pub proof: Option<ClaimProof>,
}

/// The output of the step.
#[derive(Clone, Debug)]
pub struct Effects {
    /// The local state, which must be on disk before anything else happens.
    pub local: Local,
    /// The state that the agent's record should have.
    pub status: AgentStatus,
    /// The task that should be in progress; any other task must be abandoned.
    pub task: Task,
    /// The reason why the machine must end at once, if it must.
    pub power_off: Option<&'static str>,
}

/// Decides which task runs, which signal the agent record shows and which state is on disk.
///
/// # Guarantees
/// - Pure and total: the same view gives the same effects, and calling it again after they were applied changes
///   nothing.
/// - A claim is served once. After it was abandoned or answered, it is not started again, also after a restart, because
///   `local` is on disk before the task starts.
/// - A missing record is no command: without an instance record the current task continues, and nothing is started or
///   abandoned.
/// - The machine is powered off only if the state in its record is `terminated`.
/// - A signal names the claim that it answers, and `UD_REMOVE_REG_OK` follows only a clean-up that was proved.
///
/// # Assumes
/// - The caller writes `local` before it starts the task, and the status afterwards ([`crate::agent::run`]).
/// - `now` is monotonic within one boot; times in `local` are of the same boot.
///
/// # Errors
/// None: a credential that cannot be opened becomes a failed registration, with the reason in the signal's detail.
pub fn step(view: &View<'_>) -> Effects {
    let orders = view.sight.orders();
    let mut local = view.local.clone();
    let terminated = orders.is_some_and(|orders| orders.state == State::Terminated);
    let task = if terminated {
        Task::Idle
    } else {
        match &local.boot {
            Boot::Pending => Task::Boot,
            Boot::Failed(_) => Task::Idle,
            Boot::Done => claim_task(view, orders, &mut local),
        }
    };
    let status = status(view.stored, &local);
    Effects { local, status, task, power_off: terminated.then_some("the record says terminated") }
}

/// Returns the task for the claim in the record and the current claim.
fn claim_task(view: &View<'_>, orders: Option<&Orders>, local: &mut Local) -> Task {
    let Some(orders) = orders else {
        // A missing record is no command: the task in progress continues, and nothing is started or abandoned.
        let live = local.claim.as_mut().filter(|served| !over(&served.stage));
        return live.or(local.ahead.as_mut()).map_or(Task::Idle, |served| go_on(view, served));
    };
    if let Some(task) = ahead::task(view, orders, local) {
        return task;
    }
    let at_hand = local.claim.as_ref().map(|served| (&served.id, over(&served.stage)));
    match (at_hand, &orders.claim) {
        (None, None) => return Task::Idle,
        (Some((id, _)), Some(claim)) if id == claim => {}
        (Some((_, false)), _) => {
            let served = local.claim.as_mut().expect("a claim is at hand");
            return finish(view, served, Some(orders), true);
        }
        (Some((_, true)), None) => return Task::Idle,
        (None | Some((_, true)), Some(claim)) => match accept(view, orders, claim, local) {
            Some(served) => local.claim = Some(served),
            None => return Task::Idle,
        },
    }
    if orders.pooled
        && let Some(served) = local.claim.as_mut().filter(|served| over(&served.stage))
    {
        // The operator has it.
        served.proof = None;
    }
    let held = !orders.run.is_empty();
    if !held {
        local.served = true;
    }
    let served = local.claim.as_mut().expect("a claim is at hand");
    served.labelled |= orders.state == State::Running;
    if held && pursued(&served.stage) {
        let task = pursue(view, served, Some(orders));
        local.served |= matches!(task, Task::Configure { .. } | Task::Start { .. });
        task
    } else {
        finish(view, served, Some(orders), false)
    }
}

/// Creates a new claim; `None` if its signal was written before this agent lost its local state.
fn accept(view: &View<'_>, orders: &Orders, claim: &ClaimId, local: &Local) -> Option<Served> {
    let stage = if !orders.run.is_empty() {
        match (&local.tainted, &orders.jobs, &orders.runner) {
            (Some(why), ..) => ClaimStage::Refused(format!("the machine is not clean: {why}")),
            (None, Err(why), _) => {
                ClaimStage::Refused(format!("this agent cannot grant what its record says: {why}"))
            }
            (None, Ok(_), Err(why)) => {
                ClaimStage::Refused(format!("this agent cannot run what its record names: {why}"))
            }
            (None, Ok(_), Ok(_)) => ClaimStage::Accepted,
        }
    } else {
        let answered = match view.stored {
            Stored::Unknown => return None,
            Stored::Absent => None,
            Stored::Known(agent) => agent.says(claim.as_str()),
        };
        match answered {
            Some(Signal::RemoveRegOk | Signal::RemoveRegFailed) => return None,
            Some(Signal::Ok | Signal::Failed | Signal::RegOk | Signal::RegFailed) | None => {
                ClaimStage::Stopping(None)
            }
        }
    };
    let mut served = Served::new(claim.clone(), orders.run.clone(), stage);
    served.repository.clone_from(&orders.repository);
    served.jobs = orders.jobs.clone().unwrap_or_default();
    served.runner = orders.runner.clone().unwrap_or_default();
    Some(served)
}

/// Returns the runner package of the idle runner that is registered ahead, or of the current claim; between two claims
/// the one that the next claim most likely names.
pub fn package(sight: &Sight, local: &Local) -> Option<RunnerPackage> {
    let claim = local.claim.as_ref().filter(|served| !over(&served.stage));
    match local.ahead.as_ref().or(claim) {
        Some(served) => served.runner.clone(),
        None => sight.orders().and_then(|orders| orders.runner.clone().unwrap_or_default()),
    }
}

/// Returns whether the claim needs no more work, regardless of the record.
fn over(stage: &ClaimStage) -> bool {
    match stage {
        ClaimStage::Clean | ClaimStage::Unclean(_) => true,
        ClaimStage::Accepted
        | ClaimStage::Configuring
        | ClaimStage::Configured
        | ClaimStage::Started(_)
        | ClaimStage::Listening(_)
        | ClaimStage::Renewing(_)
        | ClaimStage::Refused(_)
        | ClaimStage::Stopping(_)
        | ClaimStage::Stopped
        | ClaimStage::Settling => false,
    }
}

/// Returns whether the end of the claim was not started yet.
fn pursued(stage: &ClaimStage) -> bool {
    match stage {
        ClaimStage::Accepted
        | ClaimStage::Configuring
        | ClaimStage::Configured
        | ClaimStage::Started(_)
        | ClaimStage::Listening(_)
        | ClaimStage::Renewing(_)
        | ClaimStage::Refused(_) => true,
        ClaimStage::Stopping(_)
        | ClaimStage::Stopped
        | ClaimStage::Settling
        | ClaimStage::Clean
        | ClaimStage::Unclean(_) => false,
    }
}

fn go_on(view: &View<'_>, served: &mut Served) -> Task {
    if pursued(&served.stage) { pursue(view, served, None) } else { finish(view, served, None, false) }
}

fn waiting(view: &View<'_>, served: &Served) -> bool {
    served.retry_at.is_some_and(|at| view.now < at)
}

/// Returns the next task toward a listening runner.
fn pursue(view: &View<'_>, served: &mut Served, orders: Option<&Orders>) -> Task {
    served.ask_anew(view.now, view.reregister);
    let claim = served.place().clone();
    match served.stage {
        // The credential arrived after the runner was restarted with its old registration.
        ClaimStage::Started(runner) if is_boxed_anew(view, served, orders) => {
            served.registered = false;
            served.stage = ClaimStage::Renewing(Some(runner));
            Task::Renew { claim, runner: Some(runner), since: served.since, registered: false }
        }
        ClaimStage::Started(runner) => {
            Task::Listen { claim, runner, known: served.trouble.as_ref().map(|trouble| trouble.kind) }
        }
        ClaimStage::Listening(runner) if served.run.is_empty() => Task::Rest { claim, runner },
        ClaimStage::Listening(_) if served.place.is_some() && !served.lent => {
            Task::Lend { claim, holder: served.holder() }
        }
        ClaimStage::Listening(_) if may_go_on(view, served) => Task::Admit { claim },
        ClaimStage::Listening(runner) => retire::task(view, served, orders, runner),
        // This machine can no longer be proved clean: it waits for its end.
        ClaimStage::Renewing(_) if served.jobs.single_use() => Task::Idle,
        ClaimStage::Renewing(runner) => {
            Task::Renew { claim, runner, since: served.since, registered: served.registered }
        }
        ClaimStage::Configured if is_boxed_anew(view, served, orders) => register(view, served, orders),
        ClaimStage::Configured if waiting(view, served) => Task::Idle,
        ClaimStage::Configured => Task::Start { claim, holder: served.holder(), single_use: None },
        ClaimStage::Accepted | ClaimStage::Configuring if served.asks_anew() => {
            let task = register(view, served, orders);
            let late = served.asks_anew() && served.retry_at.is_some_and(|at| at <= view.now);
            if let Some(trouble) = served.trouble.as_ref().filter(|_| late) {
                let why = format!("{}; no new registration came", trouble.words);
                served.stage = ClaimStage::Refused(why);
            }
            task
        }
        ClaimStage::Accepted | ClaimStage::Configuring if waiting(view, served) => Task::Idle,
        ClaimStage::Accepted | ClaimStage::Configuring => register(view, served, orders),
        ClaimStage::Refused(_)
        | ClaimStage::Stopping(_)
        | ClaimStage::Stopped
        | ClaimStage::Settling
        | ClaimStage::Clean
        | ClaimStage::Unclean(_) => Task::Idle,
    }
}

/// Returns whether a job waits until the agent's record shows it, and the record does.
fn may_go_on(view: &View<'_>, served: &Served) -> bool {
    let shown = view.stored.agent().and_then(|agent| agent.job.as_ref());
    served.held().is_some_and(|held| shown == Some(held))
}

/// Returns whether the record has the credential that a claim requested after its runner ended.
fn is_boxed_anew(view: &View<'_>, served: &Served, orders: Option<&Orders>) -> bool {
    let sealed = orders.filter(|_| served.asks_anew()).and_then(|orders| orders.registration.as_deref());
    let opened = sealed.map(|sealed| view.key.open::<RegistrationCredential>(sealed));
    opened.is_some_and(|opened| {
        opened.is_ok_and(|opened| ahead::is_for(&opened, served) && opened.seq > served.seq)
    })
}

/// Returns the next task with the credential, if there is one for this claim that is not used up.
fn register(view: &View<'_>, served: &mut Served, orders: Option<&Orders>) -> Task {
    let Some(sealed) = orders.and_then(|orders| orders.registration.as_deref()) else { return Task::Idle };
    let opened = match view.key.open::<RegistrationCredential>(sealed) {
        Ok(opened) => opened,
        Err(SealError::Key | SealError::Box | SealError::Content) => {
            served.stage = ClaimStage::Refused(
                "the registration in the record does not open with this machine's key".to_owned(),
            );
            return Task::Idle;
        }
    };
    let used = if served.anew { served.seq } else { served.done };
    if !ahead::is_for(&opened, served) || opened.seq <= used {
        return Task::Idle;
    }
    let mode = match (&opened.token, &opened.jit_config) {
        (_, Some(_)) => Mode::Job,
        (Some(_), None) => Mode::Run,
        (None, None) => {
            served.stage =
                ClaimStage::Refused("the registration holds neither token nor jitConfig".to_owned());
            return Task::Idle;
        }
    };
    if served.seq != opened.seq {
        // The expected credential has arrived.
        served.retry_at = None;
    }
    served.mode = Some(mode);
    served.seq = opened.seq;
    served.runner_name = Some(opened.runner_name.clone());
    // A single-use runner is registered at GitHub before it is started, and only the operator can remove it.
    served.runner_id = opened.runner_id.or(served.runner_id);
    served.keep.clone_from(&opened.keep);
    served.stage = ClaimStage::Configuring;
    let (claim, opened) = (served.id.clone(), Box::new(opened));
    match mode {
        Mode::Run => Task::Configure { claim, registration: opened },
        Mode::Job => Task::Start { claim, holder: served.holder(), single_use: Some(opened) },
    }
}

/// Returns the next task toward a machine without anything of the claim. `superseded`: the record already names another
/// claim, so no removal credential for this one will come.
fn finish(view: &View<'_>, served: &mut Served, orders: Option<&Orders>, superseded: bool) -> Task {
    let (claim, since) = (served.place().clone(), served.since);
    match served.stage {
        ClaimStage::Started(runner) | ClaimStage::Listening(runner) | ClaimStage::Stopping(Some(runner)) => {
            served.stage = ClaimStage::Stopping(Some(runner));
            Task::Stop { claim, runner: Some(runner), since }
        }
        ClaimStage::Renewing(runner) => {
            served.stage = ClaimStage::Stopping(runner);
            Task::Stop { claim, runner, since }
        }
        ClaimStage::Accepted
        | ClaimStage::Configuring
        | ClaimStage::Configured
        | ClaimStage::Refused(_)
        | ClaimStage::Stopping(None) => {
            served.stage = ClaimStage::Stopping(None);
            Task::Stop { claim, runner: None, since }
        }
        // A person wants to inspect the files of the claim.
        ClaimStage::Stopped | ClaimStage::Settling if orders.is_some_and(|orders| orders.held) => Task::Idle,
        ClaimStage::Stopped if !served.swept || !served.removes_its_runner() => {
            let wipe = match (served.swept, served.removes_its_runner()) {
                (true, _) => Wipe::AfterRemoval,
                (false, true) => Wipe::BeforeRemoval,
                (false, false) => Wipe::Whole,
            };
            Task::Wipe { claim, since, wipe }
        }
        ClaimStage::Stopped if waiting(view, served) => Task::Idle,
        ClaimStage::Stopped => match orders.and_then(|orders| orders.removal.as_deref()) {
            Some(sealed) => match view.key.open::<RemovalCredential>(sealed) {
                Ok(removal) if removal.claim_id == served.id.as_str() => {
                    Task::Deregister { claim, removal: Box::new(removal) }
                }
                Ok(_) | Err(SealError::Key | SealError::Box | SealError::Content) if superseded => {
                    Task::Wipe { claim, since, wipe: Wipe::AfterRemoval }
                }
                // It is for another claim, or damaged: the right one may follow until the clean-up deadline.
                Ok(_) | Err(SealError::Key | SealError::Box | SealError::Content) => Task::Idle,
            },
            None if superseded => Task::Wipe { claim, since, wipe: Wipe::AfterRemoval },
            None => Task::Idle,
        },
        ClaimStage::Settling => {
            let said = orders.and_then(|orders| orders.promotion.as_ref());
            match said.filter(|(of, _)| *of == served.id) {
                Some((_, names)) => Task::Settle { claim, holder: served.holder(), names: names.clone() },
                None if !superseded && waiting(view, served) => Task::Idle,
                // No answer came in time: nothing is kept.
                None => Task::Settle { claim, holder: served.holder(), names: Vec::new() },
            }
        }
        ClaimStage::Clean | ClaimStage::Unclean(_) => Task::Idle,
    }
}

fn status(stored: &Stored, local: &Local) -> AgentStatus {
    let served = local.claim.as_ref();
    AgentStatus {
        say: said(stored, local),
        runner_name: served.and_then(|served| served.runner_name.clone()),
        runner_id: served.and_then(|served| served.runner_id),
        // Also if an earlier claim left a number, which does not apply to this one.
        registration_done: served
            .filter(|served| served.mode == Some(Mode::Job) || served.done > 0 || counts_boxes(stored))
            .map(|served| served.done),
        kept: local.kept.clone(),
        ahead: ahead::report(local),
        trouble: served.and_then(trouble),
        retire: served.filter(|served| pursued(&served.stage)).and_then(retire::report),
        job: served.and_then(|served| served.job.as_ref()).map(|job| job.report.clone()),
        proof: served.filter(|served| over(&served.stage)).and_then(|served| served.proof.clone()),
    }
}

/// Returns the obstacle of a runner that neither listens nor failed.
fn trouble(served: &Served) -> Option<Trouble> {
    let starts = match served.stage {
        ClaimStage::Accepted
        | ClaimStage::Configuring
        | ClaimStage::Configured
        | ClaimStage::Started(_)
        | ClaimStage::Renewing(_) => true,
        ClaimStage::Listening(_)
        | ClaimStage::Refused(_)
        | ClaimStage::Stopping(_)
        | ClaimStage::Stopped
        | ClaimStage::Settling
        | ClaimStage::Clean
        | ClaimStage::Unclean(_) => false,
    };
    served.trouble.clone().filter(|_| starts)
}

/// Returns the signal of the agent or of its claim.
fn said(stored: &Stored, local: &Local) -> Option<Say> {
    let say = |signal, served: Option<&Served>, detail: Option<&String>| {
        Some(Say {
            signal,
            claim: served.map(|served| served.id.clone()),
            run: served.map(|served| served.run.clone()).unwrap_or_default(),
            detail: detail.cloned(),
        })
    };
    let served = local.claim.as_ref();
    match &local.boot {
        Boot::Pending => None,
        Boot::Failed(why) => say(Signal::Failed, None, Some(why)),
        Boot::Done => match served.map(|served| (&served.stage, served.listened, served.mode)) {
            Some((ClaimStage::Refused(why), ..)) => say(Signal::RegFailed, served, Some(why)),
            Some((ClaimStage::Clean, ..)) => say(Signal::RemoveRegOk, served, None),
            Some((ClaimStage::Unclean(why), ..)) => say(Signal::RemoveRegFailed, served, Some(why)),
            // Between two jobs the run still has its runner.
            Some(
                (ClaimStage::Listening(_), ..)
                | (
                    ClaimStage::Accepted
                    | ClaimStage::Configuring
                    | ClaimStage::Configured
                    | ClaimStage::Started(_)
                    | ClaimStage::Renewing(_),
                    true,
                    Some(Mode::Job),
                ),
            ) => say(Signal::RegOk, served, None).filter(|_| ahead::may_be_said(served)),
            Some((
                ClaimStage::Renewing(_)
                | ClaimStage::Stopping(_)
                | ClaimStage::Stopped
                | ClaimStage::Settling,
                ..,
            )) => None,
            Some((
                ClaimStage::Accepted
                | ClaimStage::Configuring
                | ClaimStage::Configured
                | ClaimStage::Started(_),
                _,
                _,
            ))
            | None => {
                (!local.served && !spoke_of_a_claim(stored)).then(|| say(Signal::Ok, None, None)).flatten()
            }
        },
    }
}

fn counts_boxes(stored: &Stored) -> bool {
    stored.agent().is_some_and(|agent| agent.registration_done.is_some())
}

/// Returns whether the stored record shows that a claim was served; `UD_OK` must never come after it.
fn spoke_of_a_claim(stored: &Stored) -> bool {
    match stored {
        Stored::Unknown => true,
        Stored::Absent => false,
        Stored::Known(agent) => agent.signal_claim_id.as_deref().is_some_and(|claim| !claim.is_empty()),
    }
}

#[cfg(test)]
mod tests;
