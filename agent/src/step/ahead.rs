//! The runner that is registered ahead of a claim: started on a clean machine in the pool, lent to the claim that takes
//! it, and ended before anything else if no claim does.

use runyard_core::model::{AheadReport, ClaimId, Jobs, RegistrationCredential};

use crate::step::local::{Boot, ClaimStage, Local, Served};
use crate::step::orders::Orders;
use crate::task::Task;

use super::{View, finish, over, pursue, pursued};

/// Returns the task for this runner; `None` if there is none, and the claim in the record determines the task.
pub(super) fn task(view: &View<'_>, orders: &Orders, local: &mut Local) -> Option<Task> {
    take_back(orders, local);
    lend(orders, local);
    let pooled = orders.run.is_empty() && orders.pooled;
    let wanted = orders.ahead.as_ref().filter(|_| pooled && local.tainted.is_none()).cloned();
    if local.ahead.is_none() {
        let id = wanted.clone().filter(|id| local.ahead_over.as_ref() != Some(id))?;
        let Ok(runner) = orders.runner.clone() else { return None };
        if !local.is_clean() || !boxed(view, orders, &id) {
            return None;
        }
        local.ahead = Some(Served { runner, ..Served::new(id, String::new(), ClaimStage::Accepted) });
    }
    let ahead = local.ahead.as_mut()?;
    let goes_on = |ahead: &Served| pursued(&ahead.stage) && !is_refused(ahead);
    if wanted.as_ref() == Some(&ahead.id) && goes_on(ahead) {
        let task = pursue(view, ahead, Some(orders));
        if goes_on(ahead) {
            return Some(task);
        }
    }
    // There will be no credential to deregister it: the operator removes it by its id, or by its name.
    let task = finish(view, ahead, Some(orders), true);
    if !over(&ahead.stage) {
        return Some(task);
    }
    let ended = local.ahead.take()?;
    if let ClaimStage::Unclean(why) = ended.stage {
        unclean(local, why);
    }
    local.ahead_over = Some(ended.id);
    None
}

/// Marks the machine as unclean, because the files of this runner cannot be removed: it serves no more claims, and
/// reports this.
fn unclean(local: &mut Local, why: String) {
    local.tainted.get_or_insert_with(|| why.clone());
    match &mut local.claim {
        Some(served) if over(&served.stage) => served.stage = ClaimStage::Unclean(why),
        // The claim is refused for this reason.
        Some(_) => {}
        None => local.boot = Boot::Failed(why),
    }
}

/// Gives the runner to the claim in the record: from now on it belongs to the claim.
fn lend(orders: &Orders, local: &mut Local) {
    let Some(claim) = orders.claim.as_ref().filter(|_| !orders.run.is_empty()) else { return };
    let at_hand = local.claim.as_ref();
    let new = at_hand.is_none_or(|served| served.id != *claim && over(&served.stage));
    let grants = orders.jobs.as_ref() == Ok(&Jobs::default());
    let listens = |ahead: &Served| {
        let same = orders.ahead.as_ref() == Some(&ahead.id) && orders.runner.as_ref() == Ok(&ahead.runner);
        same && matches!(ahead.stage, ClaimStage::Listening(_))
    };
    if !new || !grants || local.tainted.is_some() || !local.ahead.as_ref().is_some_and(listens) {
        return;
    }
    if let Some(ahead) = local.ahead.take() {
        local.ahead_over = Some(ahead.id.clone());
        local.served = true;
        local.claim = Some(Served {
            id: claim.clone(),
            run: orders.run.clone(),
            repository: orders.repository.clone(),
            place: Some(ahead.id.clone()),
            ..ahead
        });
    }
}

/// Takes the runner from the claim if the operator took it back before it had the label: it is ended, and the claim
/// registers its own.
fn take_back(orders: &Orders, local: &mut Local) {
    let still = |served: &Served| {
        orders.claim.as_ref() == Some(&served.id)
            && !orders.run.is_empty()
            && lacks_its_label(served)
            && pursued(&served.stage)
            && orders.ahead != served.place
    };
    let Some(served) = local.claim.take_if(|served| still(served)) else { return };
    let runner = match served.stage {
        ClaimStage::Started(runner) | ClaimStage::Listening(runner) => Some(runner),
        ClaimStage::Renewing(runner) => runner,
        ClaimStage::Accepted
        | ClaimStage::Configuring
        | ClaimStage::Configured
        | ClaimStage::Refused(_)
        | ClaimStage::Stopping(_)
        | ClaimStage::Stopped
        | ClaimStage::Settling
        | ClaimStage::Clean
        | ClaimStage::Unclean(_) => None,
    };
    let mut claim = Served::new(served.id.clone(), served.run.clone(), ClaimStage::Accepted);
    claim.repository.clone_from(&served.repository);
    claim.jobs.clone_from(&served.jobs);
    claim.runner.clone_from(&served.runner);
    local.claim = Some(claim);
    let id = served.place().clone();
    let (run, repository, stage) = (String::new(), String::new(), ClaimStage::Stopping(runner));
    local.ahead = Some(Served { id, run, repository, stage, place: None, lent: false, ..served });
}

/// Returns whether the record has a credential for this registration.
fn boxed(view: &View<'_>, orders: &Orders, id: &ClaimId) -> bool {
    let opened = orders.registration.as_deref().map(|sealed| view.key.open::<RegistrationCredential>(sealed));
    opened.is_some_and(|opened| opened.is_ok_and(|opened| opened.ahead_id.as_deref() == Some(id.as_str())))
}

/// Returns whether a credential is for this claim, or for this registration ahead of any claim, which has only a token.
pub(super) fn is_for(opened: &RegistrationCredential, served: &Served) -> bool {
    if served.run.is_empty() {
        let own = opened.ahead_id.as_deref() == Some(served.id.as_str());
        return own && opened.claim_id.is_empty() && opened.jit_config.is_none();
    }
    opened.ahead_id.is_none() && opened.claim_id == served.id.as_str()
}

/// Returns whether the claim took over a runner that was registered ahead, and the record does not show its label yet.
fn lacks_its_label(served: &Served) -> bool {
    served.place.is_some() && !served.labelled
}

/// Returns whether a listening runner may be reported: one that was registered ahead only once it has its label.
pub(super) fn may_be_said(served: Option<&Served>) -> bool {
    !served.is_some_and(lacks_its_label)
}

fn is_refused(served: &Served) -> bool {
    matches!(served.stage, ClaimStage::Refused(_))
}

/// Returns the report on this runner for the agent's record.
pub(super) fn report(local: &Local) -> Option<AheadReport> {
    let lent = local.claim.as_ref().filter(|served| served.place.is_some());
    let served = local.ahead.as_ref().or(lent)?;
    let listening = matches!(served.stage, ClaimStage::Listening(_));
    // A runner that ended is of no use any more, and its id soon belongs to another one.
    let here = pursued(&served.stage) && !is_refused(served) && !served.asks_anew();
    here.then(|| AheadReport { id: served.place().to_string(), runner_id: served.runner_id, listening })
}
