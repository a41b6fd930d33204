//! Gives a tried machine back and ends it, until nothing of it is left: neither the request, nor a launch that has not
//! brought its machine yet, nor the machine.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Trial;
use super::steps::Step;
use crate::change::expire::ending;
use crate::common::failure::CliResult;
use crate::session::context::{CliContext, readable};
use crate::session::polling::Interrupts;
use crate::workflow::release::write_released;
use runyard_core::model::kind_of;
use runyard_core::model::{
    Instance, Item, Kind, Launch, LaunchId, LaunchPhase, Life, Place, Reading, Record as _, RecordId,
    Request, millis, read,
};

/// How long a machine may take to be cleaned, and its launch to be over.
const CLEANS: Duration = Duration::from_secs(120);
/// How long it may take after that to be gone.
const ENDS: Duration = Duration::from_secs(180);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Ends it; answers what is left, for people. A signal ends the waiting, and not what was written.
pub(super) async fn end(
    context: &mut CliContext,
    trial: &mut Trial,
    interrupts: &mut Interrupts,
) -> Vec<String> {
    let since = Instant::now();
    let mut left = vec![format!("request {}", trial.key)];
    loop {
        match look(context, trial, since.elapsed() > CLEANS).await {
            Ok(found) => left = found,
            Err(error) => tracing::warn!(%error, "what is left could not be looked at, looking again"),
        }
        for line in trial.steps.news() {
            context.screen.say(line);
        }
        if left.is_empty() || since.elapsed() > CLEANS + ENDS {
            return left;
        }
        tokio::select! {
            biased;
            _ = interrupts.next() => return left,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Does what can be done now; answers what is left.
async fn look(context: &CliContext, trial: &mut Trial, late: bool) -> CliResult<Vec<String>> {
    let mut left = Vec::new();
    let request: Option<Request> = context.item(&trial.key).await?.as_ref().map(readable).transpose()?;
    if let Some(request) = &request
        && !request.phase().is_final()
    {
        if !request.is_released() {
            write_released(context, request).await?;
        }
        left.push(format!("request {}", request.id));
    }
    let about = |item: &Item| matches!(kind_of(item), Some(Kind::Instance | Kind::Launch));
    let items = context.all_that(about).await?;
    let accepted_at = request.as_ref().and_then(|request| request.status.accepted_at);
    let mut launches = BTreeSet::new();
    for launch in records::<Launch>(&items) {
        if launch.request.as_ref() != Some(&trial.key) {
            continue;
        }
        launches.insert(launch.launch_id.clone());
        let open = match launch.phase {
            LaunchPhase::Intent => true,
            LaunchPhase::Bound | LaunchPhase::Failed => false,
        };
        if open {
            left.push(format!("launch {}", launch.launch_id));
        }
    }
    for instance in records::<Instance>(&items) {
        if ours(&instance, &trial.key, &launches, accepted_at)
            && !ended(context, trial, &instance, late).await?
        {
            left.push(format!("instance {}", instance.facts.instance_id));
        }
        if trial.machine.as_ref().is_some_and(|known| known.key() == instance.key()) {
            trial.machine = Some(instance);
        }
    }
    Ok(left)
}

/// Whether a machine was launched for this and serves nobody else by now.
fn ours(
    instance: &Instance,
    request: &RecordId,
    launches: &BTreeSet<LaunchId>,
    accepted_at: Option<Timestamp>,
) -> bool {
    let last = match &instance.claim {
        Some(claim) => claim.request == *request,
        // It came when nobody wanted it any more.
        None => instance.facts.launch_id.as_ref().is_some_and(|launch| launches.contains(launch)),
    };
    last && accepted_at.is_none_or(|accepted| instance.facts.created_at >= accepted)
}

/// Lets a machine's time be over once it is clean, or at once when that takes too long.
async fn ended(context: &CliContext, trial: &mut Trial, instance: &Instance, late: bool) -> CliResult<bool> {
    let now = trial.begun.elapsed();
    let due = match instance.place() {
        Place::Nowhere => return Ok(true),
        Place::Terminated => {
            let gone = matches!(instance.life, Life::Terminated { gone_at: Some(_), .. });
            if gone {
                trial.steps.reached(Step::Ended, now);
            }
            return Ok(gone);
        }
        Place::IdlePooled => {
            trial.steps.reached(Step::Cleaned, now);
            true
        }
        Place::CreatedWarm => true,
        // The operator takes it back first.
        Place::CreatedBound | Place::Claimed | Place::Running | Place::IdleCleaning | Place::IdleHeld => late,
    };
    if due && instance.expired_by.is_none() {
        let write = ending(instance, millis(context.clock.now()), &context.environment.actor());
        // Refused where the operator wrote it meanwhile: the next look sees what.
        if let Err(error) = context.store.write(&write).await {
            tracing::debug!(%error, "the machine was written meanwhile");
        }
    }
    Ok(false)
}

fn records<T: runyard_core::model::Record>(items: &[Item]) -> Vec<T> {
    let of_kind = items.iter().filter(|item| kind_of(item) == Some(T::KIND));
    let record = |item: &Item| match read::<T>(item) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    };
    of_kind.filter_map(record).collect()
}
