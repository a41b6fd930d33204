//! Releases a tried machine and ends it, until nothing remains: neither the request, nor a launch that has not started
//! its machine yet, nor the machine.

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

/// Timeout of the cleaning of a machine and of the end of its launch.
const CLEANS: Duration = Duration::from_secs(120);
/// Timeout of its termination after that.
const ENDS: Duration = Duration::from_secs(180);
/// The pause between two reads.
const PAUSE: Duration = Duration::from_millis(500);

/// Ends the trial and returns a description of the remains. A signal ends the wait; writes already made remain.
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

/// Takes the next possible steps and returns the remains.
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

/// Returns whether a machine was launched for this trial and serves no other request.
fn ours(
    instance: &Instance,
    request: &RecordId,
    launches: &BTreeSet<LaunchId>,
    accepted_at: Option<Timestamp>,
) -> bool {
    let last = match &instance.claim {
        Some(claim) => claim.request == *request,
        // It started after the request had ended.
        None => instance.facts.launch_id.as_ref().is_some_and(|launch| launches.contains(launch)),
    };
    last && accepted_at.is_none_or(|accepted| instance.facts.created_at >= accepted)
}

/// Expires a machine's deadline once it is clean, or at once if that takes too long.
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
        // Refused if the operator wrote the record meanwhile; the next read shows the new state.
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
