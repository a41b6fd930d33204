//! The end of a request: it waits until everything that it held is pooled or ended, and its record expires when its
//! time is over.

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::context::Context;
use crate::decide::health::unread::Account;
use crate::decide::plan::reason::{are, machines};
use crate::decide::{Note, Plan, Planned, WaitReason};
use crate::model::{ConditionType, Desired, Phase, Record, ReleasedBy, Request, RequestKey, Status};
use crate::yard::Holding;

use super::{KEPT, drop_lost, write};

/// The shortest interval between two writes of the list of a request that returns its machines: they come back one by
/// one, and each would cost a write. A request that waits for one of them has it removed from the list at once
/// ([`super::flush_returned`]).
const GIVEN_BACK_EVERY: Duration = Duration::from_secs(1);

/// Returns why a request is released, for people.
pub(super) fn released_because(request: &Request) -> &'static str {
    match (request.intent.desired, request.status.released_by) {
        (Desired::Released, _) => "released",
        (Desired::Provisioned, Some(ReleasedBy::MaxRuntime)) => "its maximum runtime is over",
        (Desired::Provisioned, Some(ReleasedBy::RunEnded)) => "GitHub says that its run is over",
        (Desired::Provisioned, Some(ReleasedBy::Superseded)) => "superseded by a newer attempt",
        (Desired::Provisioned, Some(ReleasedBy::RunnerEnded)) => "its runner ended, or no job needs it",
        // An operator of an earlier version did not store the reason.
        (Desired::Provisioned, None) => "superseded by a newer attempt, or over its time",
    }
}

/// Releases a request: `Releasing` until every machine it held is pooled or ended.
pub(super) fn release(
    cx: &Context<'_>,
    key: &RequestKey,
    request: &Request,
    holding: &Holding<'_>,
    by: Option<ReleasedBy>,
    why: &str,
) -> Plan {
    let account = Account::of(cx, request, holding);
    let out = holding.out + cx.yard.leaving(key, request) + account.waiting();
    if out == 0 {
        let told = account.told(request);
        let message = match &told {
            Some(told) => format!("{why}; {told}"),
            None => format!("{why}; {} given back", machines(request.status.served.len() as u32)),
        };
        let note = match &told {
            Some(_) => Note::warning("Unaccounted", message.clone()),
            None => Note::normal("Released", message.clone()),
        };
        return write(cx, request, note, |next| {
            next.progress(Phase::Released, message);
            next.status.released_by = by;
            unaccounted(&mut next.status, told, cx.now.wall);
            next.release_all();
            next.status.expires_at = Some(cx.now.wall.as_second() + KEPT);
        });
    }
    if request.status.phase != Some(Phase::Releasing) {
        let unread = match account.waiting() {
            0 => String::new(),
            unread => format!(", {unread} of them with a record that cannot be read"),
        };
        let message = format!("{why}; waiting for {} to be cleaned{unread}", machines(out));
        return write(cx, request, Note::normal("Releasing", message.clone()), |next| {
            next.progress(Phase::Releasing, message);
            next.status.released_by = by;
            drop_lost(cx, key, request, next);
        });
    }
    let mut plan = returning(cx, key, request, holding, out);
    waits_for_unread(cx, key, &account, &mut plan);
    plan
}

/// Adds when a release checks unreadable machines again, and its message until then.
fn waits_for_unread(cx: &Context<'_>, key: &RequestKey, account: &Account<'_>, plan: &mut Plan) {
    for (id, until) in &account.waits {
        plan.wake_at(cx.now.when(*until));
        let why = format!("the record of {id} cannot be read; it has ended itself by {until}");
        plan.wait(key, WaitReason::Doubt, why);
    }
}

/// Reports the machines of an ended request that are unaccounted for.
fn unaccounted(status: &mut Status, told: Option<String>, now: Timestamp) {
    if let Some(told) = told {
        status.set_condition(ConditionType::Unaccounted, true, "Unreadable", told, now);
    }
}

/// Removes machines from the list of a releasing request soon after they are pooled or ended.
fn returning(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>, out: u32) -> Plan {
    let mut plan = Plan::default();
    let back = holding.lost.iter().filter(|lost| !lost.out).count();
    let written = request.updated_at.map(|at| cx.now.wall.duration_since(at));
    // A time in the future comes from another operator's clock and is not waited for.
    let since = written.and_then(|since| Duration::try_from(since).ok()).unwrap_or(GIVEN_BACK_EVERY);
    if back > 0 && since < GIVEN_BACK_EVERY {
        plan.wake_at(cx.now.mono + (GIVEN_BACK_EVERY - since));
    } else if back > 0 {
        let message = format!("{} given back, waiting for {out}", machines(back as u32));
        return write(cx, request, Note::normal("GivenBack", message.clone()), |next| {
            drop_lost(cx, key, request, next);
            if !next.phase().is_final() {
                next.status.message = message;
            }
        });
    }
    plan.wait(key, WaitReason::Cleaning, format!("{} {} being given back", machines(out), are(out)));
    plan
}

/// Handles an ended request: `Released` and `Failed` never change again; the list of a failed one is emptied once all
/// machines are given back.
pub(super) fn over(cx: &Context<'_>, key: &RequestKey, request: &Request, holding: &Holding<'_>) -> Plan {
    if !request.status.instances.is_empty() {
        let account = Account::of(cx, request, holding);
        // Empties the list of an ended request once it holds nothing, whether or not everything is clean.
        if holding.held.iter().all(|id| account.unaccounted.contains(id)) {
            let told = account.told(request);
            let note = match &told {
                Some(told) => Note::warning("Unaccounted", told.clone()),
                None => Note::normal("GivenBack", "all its machines are given back"),
            };
            return write(cx, request, note, |next| {
                if let Some(told) = &told {
                    next.status.message = format!("{}; {told}", next.status.message);
                }
                unaccounted(&mut next.status, told, cx.now.wall);
                next.release_all();
            });
        }
        let mut plan = returning(cx, key, request, holding, holding.out + account.waiting());
        waits_for_unread(cx, key, &account, &mut plan);
        return plan;
    }
    let mut plan = Plan::default();
    if let Some(expires_at) = request.status.expires_at
        && let Ok(at) = jiff::Timestamp::from_second(expires_at)
    {
        if at <= cx.now.wall {
            plan.actions.push(Planned::expire(request.key(), expires_at));
            return plan;
        }
        plan.wake_at(cx.now.when(at));
    }
    match super::archived::moves_at(cx, key, request) {
        Some(at) if at <= cx.now.wall => plan.actions.push(Planned::archive(key.clone())),
        Some(at) => plan.wake_at(cx.now.when(at)),
        None => {}
    }
    plan
}
