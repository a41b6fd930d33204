//! The machines that a request lost: they leave its list, and a request that was ready reports them until it has its
//! number of machines again.

use jiff::Timestamp;

use crate::decide::context::Context;
use crate::decide::plan::reason::{are, machines};
use crate::decide::{Note, Plan};
use crate::model::{ConditionType, InstanceId, Life, Phase, Reason, Request, RequestKey, TroubleKind};
use crate::yard::{Holding, Lost, gives_back, target};

use super::write;

/// The most machines of one request whose runner problems are shown.
const SHOWN: usize = 3;

/// Reports when a ready request lost a machine, why, and when it has its number of machines again.
pub(super) fn degraded(cx: &Context<'_>, request: &Request, holding: &Holding<'_>) -> Plan {
    let now = cx.now.wall;
    let is = is_degraded(request);
    let interrupted: Vec<&InstanceId> =
        holding.held.iter().copied().filter(|id| is_interrupted(cx, id)).collect();
    if let (false, true, [first, ..]) = (is, holding.lost.is_empty(), interrupted.as_slice()) {
        let at = cx.yard.by_id(first).and_then(|tracked| tracked.interruption()).map(|notice| notice.at);
        let ids: Vec<&str> = interrupted.iter().map(|id| id.as_str()).collect();
        let when = at.map_or(String::new(), |at| format!(" at {at}"));
        let message = format!("EC2 takes {} back{when}; to be replaced", ids.join(", "));
        let reason = Reason::Interrupted.as_str();
        return write(cx, request, Note::warning("Degraded", message.clone()), |next| {
            next.status.set_condition(ConditionType::Degraded, true, reason, message.clone(), now);
            next.status.message = message;
        });
    }
    if !holding.lost.is_empty() && !is_short(request, holding) {
        return write(cx, request, Note::normal("Retired", retired(request, holding)), |next| {
            drop_lost(cx, &request.id, request, next);
            next.status.message = retired(request, holding);
        });
    }
    if !holding.lost.is_empty() {
        // Lost machines leave the list, so that the list counts the machines that the request holds.
        let note = Note::warning("Degraded", loss(holding));
        let key = &request.id;
        return write(cx, request, note, |next| {
            drop_lost(cx, key, request, next);
            degrade(next, holding, now);
        });
    }
    let troubled = troubled(cx, holding);
    if let (false, Some((kind, message))) = (is, &troubled) {
        return write(cx, request, Note::warning("Degraded", message.clone()), |next| {
            next.status.set_condition(ConditionType::Degraded, true, reason_of(*kind), message.clone(), now);
            next.status.message.clone_from(message);
        });
    }
    let whole = holding.lost.is_empty() && interrupted.is_empty() && troubled.is_none();
    if is && whole && holding.running >= target(request) {
        let message = format!("{} {} running again", machines(holding.running), are(holding.running));
        return write(cx, request, Note::normal("Recovered", message.clone()), |next| {
            next.status.set_condition(ConditionType::Degraded, false, "Recovered", message.clone(), now);
            next.status.message = message;
        });
    }
    Plan::default()
}

/// Returns whether a request has fewer machines than it wants. One whose jobs need fewer than it asks for loses those on
/// purpose.
fn is_short(request: &Request, holding: &Holding<'_>) -> bool {
    request.intent.wanted.is_none() || (holding.held.len() as u32) < target(request)
}

/// Describes the machines that the jobs of a request do not need, for people.
fn retired(request: &Request, holding: &Holding<'_>) -> String {
    let ids: Vec<&str> = holding.lost.iter().map(|lost| lost.id.as_str()).collect();
    let needed = machines(request.wanted());
    format!("{} given back: the jobs of its run need {needed} for now", ids.join(", "))
}

/// Describes the running machines whose runners no longer listen, and the problem of the first one.
fn troubled(cx: &Context<'_>, holding: &Holding<'_>) -> Option<(TroubleKind, String)> {
    let of = |id: &&InstanceId| {
        let tracked = cx.yard.by_id(id)?;
        let runs = match tracked.instance.life {
            Life::Running { .. } => true,
            Life::Created { .. } | Life::Claimed { .. } | Life::Idle { .. } | Life::Terminated { .. } => {
                false
            }
        };
        let trouble = tracked.agent.as_ref()?.runner_trouble.as_ref().filter(|_| runs)?;
        Some((trouble.kind, format!("{id}: {}", trouble.words)))
    };
    let found: Vec<(TroubleKind, String)> = holding.held.iter().copied().filter_map(|id| of(&id)).collect();
    let (kind, count) = (found.first()?.0, found.len());
    let words: Vec<String> = found.into_iter().map(|(_, words)| words).take(SHOWN).collect();
    let what = if count == 1 { "a runner does".to_owned() } else { format!("{count} runners do") };
    Some((kind, format!("{what} not listen: {}; {}", words.join("; "), kind.what_next())))
}

/// Returns the reason of the condition.
const fn reason_of(kind: TroubleKind) -> &'static str {
    match kind {
        TroubleKind::Unreachable => "RunnerUnreachable",
        TroubleKind::Conflict => "RunnerConflict",
        TroubleKind::Ended => "RunnerEnded",
    }
}

/// Returns whether EC2 announced that it ends a machine.
fn is_interrupted(cx: &Context<'_>, id: &InstanceId) -> bool {
    cx.yard.by_id(id).is_some_and(crate::yard::Tracked::is_interrupted)
}

fn is_degraded(request: &Request) -> bool {
    request.status.conditions.iter().any(|c| c.condition_type == ConditionType::Degraded && c.status)
}

/// Describes which machines were lost, for people.
fn loss(holding: &Holding<'_>) -> String {
    let reason = |lost: &Lost<'_>| lost.reason.map_or("gone", |reason| reason.as_str());
    let lost: Vec<String> =
        holding.lost.iter().map(|lost| format!("{} ({})", lost.id, reason(lost))).collect();
    format!("lost {}; to be replaced", lost.join(", "))
}

/// Marks a request that was ready as degraded by lost machines, with the reason.
fn degrade(next: &mut Request, holding: &Holding<'_>, now: Timestamp) {
    let cause = holding.lost.iter().find_map(|lost| lost.reason).map_or("gone", |reason| reason.as_str());
    next.status.set_condition(ConditionType::Degraded, true, cause, loss(holding), now);
    next.status.message = loss(holding);
}

/// Removes machines that are proved lost from a request's list. A releasing request keeps those that are still being
/// cleaned, because it is not released before they are. A request that was ready reports the machines that it lost. The
/// claim ids stay, because a machine is released by its claim id.
pub(in crate::decide) fn drop_lost(
    cx: &Context<'_>,
    key: &RequestKey,
    request: &Request,
    next: &mut Request,
) {
    let keep_out = gives_back(next);
    let holding = cx.yard.holding(key, request);
    for lost in holding.lost.iter().filter(|lost| !(lost.out && keep_out)) {
        next.lose(lost.id);
    }
    let short = !holding.lost.is_empty() && is_short(request, &holding);
    if !keep_out && next.status.phase == Some(Phase::Ready) && short && !is_degraded(next) {
        degrade(next, &holding, cx.now.wall);
    }
}
