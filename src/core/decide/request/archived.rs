//! Ended requests leave the table. Where there is a history table, the record of a request moves to it a day after its
//! end, so that no list of the table reads it for the rest of its week. A new request is looked for there before it is
//! accepted: a key is used once.

use jiff::Timestamp;

use crate::decide::context::Context;
use crate::model::{Asked, Request, RequestKey};
use crate::yard::{Archived, gives_back};

/// Returns when the record of an ended request moves to the history table; `None` while it stays. It stays until the
/// history has its line, while one of its machines is on its way to the pool, and while it is of the last run of its
/// repository, by which the repository is known to the lookups of runs.
pub(super) fn moves_at(cx: &Context<'_>, key: &RequestKey, request: &Request) -> Option<Timestamp> {
    let ended = request.status.ended_at?;
    let told = cx.yard.delivered.is_some_and(|delivered| ended <= delivered);
    let stays =
        !cx.yard.archives || !told || cx.yard.is_of_last_run(key) || cx.yard.leaving(key, request) > 0;
    (!stays).then(|| ended.saturating_add(cx.policy.ended_stays).unwrap_or(Timestamp::MAX))
}

/// Returns whether the history table is to be asked for the key of a new request. The operator looked itself before it
/// made one for queued jobs or a later attempt, and no two slots have one key.
pub(super) fn is_unrecalled(cx: &Context<'_>, request: &Request) -> bool {
    cx.yard.archives
        && request.status.accepted_at.is_none()
        && request.intent.asked == Asked::Verb
        && !gives_back(request)
        && cx.yard.archived(&request.id) == Some(&Archived::Unknown)
}

/// Returns why a new request is refused whose key another one had before.
pub(super) fn taken(cx: &Context<'_>, request: &Request) -> Option<String> {
    match cx.yard.archived(&request.id)? {
        Archived::Ended(how) => Some(format!(
            "{} was asked for before, {how}, and its record is in the history; use another --name, or the number of \
             the run's present attempt",
            request.id
        )),
        Archived::Unknown | Archived::Absent => None,
    }
}
