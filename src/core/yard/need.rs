//! How many machines does a request want, and for how long? Counted in its own record, less what is proved lost.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{MAX_RUNTIME_MINUTES, PoolSpec, Request, RequestKey, after};

use super::{Yard, runtime_unknown};

/// A machine lost this shortly before the end of its request's time is not replaced: those that became ready first
/// pass their deadline a little before the request does.
pub(crate) const LAST_REPLACEMENT: Duration = Duration::from_secs(5);

/// Whether a request wants nothing any more, so that what it held goes back.
pub(crate) fn gives_back(request: &Request) -> bool {
    request.is_released() || !request.phase().wants_machines()
}

/// How many machines it is to hold: what it asked for, or what it had to be content with at its deadline.
pub(crate) fn target(request: &Request) -> u32 {
    let (intent, status) = (&request.intent, &request.status);
    status.settled_for.map_or(intent.count, |settled| settled.max(intent.min_count).min(intent.count))
}

/// How many machines it still lacks, by its own record less what is proved lost.
pub(crate) fn lacking(yard: &Yard, key: &RequestKey, request: &Request, now: Timestamp) -> u32 {
    if gives_back(request) || over_time(yard, request).is_some_and(|at| at <= now) {
        return 0;
    }
    let held = yard.holding(key, request).held.len() as u32;
    target(request).saturating_sub(held)
}

/// When a ready request has had its machines for as long as it may: nothing is replaced after that, and it is released,
/// so that a workflow that never says it is over does not cost for ever.
pub(crate) fn over_time(yard: &Yard, request: &Request) -> Option<Timestamp> {
    let ready_at = request.status.ready_at?;
    if runtime_unknown(yard, &request.intent) {
        // The deadlines of its machines stand in their own records.
        return None;
    }
    let class = Yard::class_of(request).and_then(|class| yard.pool(&class).map(|pool| &pool.spec));
    let term = max_runtime(Some(request), class).saturating_sub(LAST_REPLACEMENT);
    Some(after(ready_at, term))
}

/// How long a machine may run for a request.
pub(crate) fn max_runtime(request: Option<&Request>, spec: Option<&PoolSpec>) -> Duration {
    let asked = request.and_then(|request| request.intent.max_runtime_minutes);
    let class = spec.and_then(|spec| spec.max_runtime_minutes);
    let minutes = match (asked, class) {
        (Some(asked), Some(class)) => asked.min(class),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => MAX_RUNTIME_MINUTES,
    };
    Duration::from_secs(minutes.saturating_mul(60))
}
