//! What should the agent say and do now? One pure function of the instance record, its own record, what is on disk and
//! the time. It reads nothing and does nothing; signals are levels, so asking again gives the same answer.

use std::time::Duration;

use runyard_core::model::{Agent, AgentKey, ClaimId, RegistrationBox, RemovalBox, SealError, Signal, State};

use crate::local::{Boot, Local, Mode, Served, Stage};
use crate::orders::{Orders, Sight};
use crate::work::{Wipe, Work};

/// Its own record, as far as the agent knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Stored {
    /// Not read yet.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// What it shows.
    Known(Box<Agent>),
}

impl Stored {
    /// The record, if there is one.
    pub fn agent(&self) -> Option<&Agent> {
        match self {
            Self::Known(agent) => Some(agent),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// Everything the step judges.
pub struct View<'a> {
    /// The instance record.
    pub sight: &'a Sight,
    /// The agent's own record.
    pub stored: &'a Stored,
    /// What is on disk.
    pub local: &'a Local,
    /// What opens boxes.
    pub key: &'a AgentKey,
    /// Monotonic time.
    pub now: Duration,
}

/// A signal the stored record should show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Say {
    /// Which.
    pub signal: Signal,
    /// For which claim.
    pub claim: Option<ClaimId>,
    /// Its run, for people.
    pub run: String,
    /// Why, for people.
    pub detail: Option<String>,
}

/// What the agent's record should show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The signal; none leaves what is there.
    pub say: Option<Say>,
    /// The runner's name.
    pub runner_name: Option<String>,
    /// Mode `job`: the last box used up.
    pub registration_done: Option<u64>,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Effects {
    /// The local state, to be on disk before anything else happens.
    pub local: Local,
    /// What the agent's record should show.
    pub status: Status,
    /// What should be under way; anything else is to be abandoned.
    pub work: Work,
    /// The machine is to end at once, and why.
    pub power_off: Option<&'static str>,
}

/// Judges.
pub fn step(view: &View<'_>) -> Effects {
    let orders = view.sight.orders();
    let mut local = view.local.clone();
    let terminated = orders.is_some_and(|orders| orders.state == State::Terminated);
    let work = if terminated {
        Work::Rest
    } else {
        match &local.boot {
            Boot::Pending => Work::Boot,
            Boot::Failed(_) => Work::Rest,
            Boot::Done => claim_work(view, orders, &mut local),
        }
    };
    let status = status(view.stored, &local);
    Effects { local, status, work, power_off: terminated.then_some("the record says terminated") }
}

/// What the claim in the record and the claim at hand ask for together.
fn claim_work(view: &View<'_>, orders: Option<&Orders>, local: &mut Local) -> Work {
    let Some(orders) = orders else {
        // No record is not a command: what is under way goes on, nothing is begun or given up.
        return local.claim.as_mut().map_or(Work::Rest, |served| go_on(view, served));
    };
    let at_hand = local.claim.as_ref().map(|served| (&served.id, over(&served.stage)));
    match (at_hand, &orders.claim) {
        (None, None) => return Work::Rest,
        (Some((id, _)), Some(claim)) if id == claim => {}
        (Some((_, false)), _) => {
            let served = local.claim.as_mut().expect("a claim is at hand");
            return finish(view, served, Some(orders), true);
        }
        (Some((_, true)), None) => return Work::Rest,
        (None | Some((_, true)), Some(claim)) => match accept(view, orders, claim, local) {
            Some(served) => local.claim = Some(served),
            None => return Work::Rest,
        },
    }
    let held = !orders.run.is_empty();
    if !held {
        local.served = true;
    }
    let served = local.claim.as_mut().expect("a claim is at hand");
    if held && pursued(&served.stage) {
        let work = pursue(view, served, Some(orders));
        local.served |= matches!(work, Work::Configure { .. } | Work::Start { .. });
        work
    } else {
        finish(view, served, Some(orders), false)
    }
}

/// A claim that is new here; none when it was answered for before this agent lost its memory.
fn accept(view: &View<'_>, orders: &Orders, claim: &ClaimId, local: &Local) -> Option<Served> {
    let stage = if !orders.run.is_empty() {
        match &local.tainted {
            Some(why) => Stage::Refused(format!("the machine is not clean: {why}")),
            None => Stage::Accepted,
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
                Stage::Stopping(None)
            }
        }
    };
    let mut served = Served::new(claim.clone(), orders.run.clone(), stage);
    served.repository.clone_from(&orders.repository);
    Some(served)
}

/// Whether nothing is left to do for it, whatever the record says.
fn over(stage: &Stage) -> bool {
    match stage {
        Stage::Clean | Stage::Unclean(_) => true,
        Stage::Accepted
        | Stage::Configuring
        | Stage::Configured
        | Stage::Started(_)
        | Stage::Listening(_)
        | Stage::Renewing(_)
        | Stage::Refused(_)
        | Stage::Stopping(_)
        | Stage::Stopped => false,
    }
}

/// Whether its end was not begun yet.
fn pursued(stage: &Stage) -> bool {
    match stage {
        Stage::Accepted
        | Stage::Configuring
        | Stage::Configured
        | Stage::Started(_)
        | Stage::Listening(_)
        | Stage::Renewing(_)
        | Stage::Refused(_) => true,
        Stage::Stopping(_) | Stage::Stopped | Stage::Clean | Stage::Unclean(_) => false,
    }
}

fn go_on(view: &View<'_>, served: &mut Served) -> Work {
    if pursued(&served.stage) { pursue(view, served, None) } else { finish(view, served, None, false) }
}

fn waiting(view: &View<'_>, served: &Served) -> bool {
    served.retry_at.is_some_and(|at| view.now < at)
}

/// Towards a runner that listens.
fn pursue(view: &View<'_>, served: &mut Served, orders: Option<&Orders>) -> Work {
    let claim = served.id.clone();
    match served.stage {
        Stage::Started(leader) => Work::Listen { claim, leader },
        Stage::Listening(leader) => Work::Serve { claim, leader },
        Stage::Renewing(leader) => {
            Work::Renew { claim, leader, since: served.since, registered: served.registered }
        }
        Stage::Configured if waiting(view, served) => Work::Rest,
        Stage::Configured => Work::Start { claim, holder: served.holder(), single_use: None },
        Stage::Accepted | Stage::Configuring if waiting(view, served) => Work::Rest,
        Stage::Accepted | Stage::Configuring => register(view, served, orders),
        Stage::Refused(_) | Stage::Stopping(_) | Stage::Stopped | Stage::Clean | Stage::Unclean(_) => {
            Work::Rest
        }
    }
}

/// With the box, if it is there, for this claim, and not used up.
fn register(view: &View<'_>, served: &mut Served, orders: Option<&Orders>) -> Work {
    let Some(sealed) = orders.and_then(|orders| orders.registration.as_deref()) else { return Work::Rest };
    let opened = match view.key.open::<RegistrationBox>(sealed) {
        Ok(opened) => opened,
        Err(SealError::Key | SealError::Box | SealError::Content) => {
            served.stage = Stage::Refused(
                "the registration in the record does not open with this machine's key".to_owned(),
            );
            return Work::Rest;
        }
    };
    if opened.claim_id != served.id.as_str() || (served.mode == Some(Mode::Job) && opened.seq <= served.done)
    {
        return Work::Rest;
    }
    let mode = match (&opened.token, &opened.jit_config) {
        (_, Some(_)) => Mode::Job,
        (Some(_), None) => Mode::Run,
        (None, None) => {
            served.stage = Stage::Refused("the registration holds neither token nor jitConfig".to_owned());
            return Work::Rest;
        }
    };
    served.mode = Some(mode);
    served.seq = opened.seq;
    served.runner_name = Some(opened.runner_name.clone());
    served.stage = Stage::Configuring;
    let (claim, opened) = (served.id.clone(), Box::new(opened));
    match mode {
        Mode::Run => Work::Configure { claim, registration: opened },
        Mode::Job => Work::Start { claim, holder: served.holder(), single_use: Some(opened) },
    }
}

/// Towards a machine on which nothing of the claim is left. `superseded`: the record already names another claim, so no
/// removal for this one will come any more.
fn finish(view: &View<'_>, served: &mut Served, orders: Option<&Orders>, superseded: bool) -> Work {
    let (claim, since) = (served.id.clone(), served.since);
    match served.stage {
        Stage::Started(leader) | Stage::Listening(leader) | Stage::Stopping(Some(leader)) => {
            served.stage = Stage::Stopping(Some(leader));
            Work::Stop { claim, leader: Some(leader), since }
        }
        Stage::Renewing(leader) => {
            served.stage = Stage::Stopping(leader);
            Work::Stop { claim, leader, since }
        }
        Stage::Accepted
        | Stage::Configuring
        | Stage::Configured
        | Stage::Refused(_)
        | Stage::Stopping(None) => {
            served.stage = Stage::Stopping(None);
            Work::Stop { claim, leader: None, since }
        }
        Stage::Stopped if !served.swept || !served.registered => {
            let wipe = match (served.swept, served.registered) {
                (true, _) => Wipe::AfterRemoval,
                (false, true) => Wipe::BeforeRemoval,
                (false, false) => Wipe::Whole,
            };
            Work::Wipe { claim, since, wipe }
        }
        Stage::Stopped if waiting(view, served) => Work::Rest,
        Stage::Stopped => match orders.and_then(|orders| orders.removal.as_deref()) {
            Some(sealed) => match view.key.open::<RemovalBox>(sealed) {
                Ok(removal) if removal.claim_id == served.id.as_str() => {
                    Work::Deregister { claim, removal: Box::new(removal) }
                }
                Ok(_) | Err(SealError::Key | SealError::Box | SealError::Content) if superseded => {
                    Work::Wipe { claim, since, wipe: Wipe::AfterRemoval }
                }
                // Meant for another claim, or garbled: the right one may follow until the clean-up deadline.
                Ok(_) | Err(SealError::Key | SealError::Box | SealError::Content) => Work::Rest,
            },
            None if superseded => Work::Wipe { claim, since, wipe: Wipe::AfterRemoval },
            None => Work::Rest,
        },
        Stage::Clean | Stage::Unclean(_) => Work::Rest,
    }
}

fn status(stored: &Stored, local: &Local) -> Status {
    let say = |signal, served: Option<&Served>, detail: Option<&String>| {
        Some(Say {
            signal,
            claim: served.map(|served| served.id.clone()),
            run: served.map(|served| served.run.clone()).unwrap_or_default(),
            detail: detail.cloned(),
        })
    };
    let served = local.claim.as_ref();
    let said = match &local.boot {
        Boot::Pending => None,
        Boot::Failed(why) => say(Signal::Failed, None, Some(why)),
        Boot::Done => match served.map(|served| (&served.stage, served.listened, served.mode)) {
            Some((Stage::Refused(why), ..)) => say(Signal::RegFailed, served, Some(why)),
            Some((Stage::Clean, ..)) => say(Signal::RemoveRegOk, served, None),
            Some((Stage::Unclean(why), ..)) => say(Signal::RemoveRegFailed, served, Some(why)),
            Some((Stage::Listening(_), ..)) => say(Signal::RegOk, served, None),
            // Between two jobs the run still has its runner.
            Some((
                Stage::Accepted
                | Stage::Configuring
                | Stage::Configured
                | Stage::Started(_)
                | Stage::Renewing(_),
                true,
                Some(Mode::Job),
            )) => say(Signal::RegOk, served, None),
            Some((Stage::Renewing(_) | Stage::Stopping(_) | Stage::Stopped, ..)) => None,
            Some((Stage::Accepted | Stage::Configuring | Stage::Configured | Stage::Started(_), _, _))
            | None => {
                (!local.served && !spoke_of_a_claim(stored)).then(|| say(Signal::Ok, None, None)).flatten()
            }
        },
    };
    Status {
        say: said,
        runner_name: served.and_then(|served| served.runner_name.clone()),
        // Also where an earlier claim left a number: it says nothing of this one.
        registration_done: served
            .filter(|served| served.mode == Some(Mode::Job) || counts_boxes(stored))
            .map(|served| served.done),
    }
}

fn counts_boxes(stored: &Stored) -> bool {
    stored.agent().is_some_and(|agent| agent.registration_done.is_some())
}

/// Whether the stored record shows that a claim was served; `UD_OK` must never come after it.
fn spoke_of_a_claim(stored: &Stored) -> bool {
    match stored {
        Stored::Unknown => true,
        Stored::Absent => false,
        Stored::Known(agent) => agent.signal_claim_id.as_deref().is_some_and(|claim| !claim.is_empty()),
    }
}

#[cfg(test)]
mod tests;
