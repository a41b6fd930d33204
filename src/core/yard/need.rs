//! How many machines a request wants, and for how long: counted in its own record, less the machines that are proved
//! lost.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{MAX_RUNTIME_MINUTES, PoolSpec, Request, RequestKey, after};

use super::{Yard, runtime_unknown};

/// A machine lost this shortly before the end of its request's time is not replaced: those that became ready first
/// pass their deadline a little before the request does.
pub(crate) const LAST_REPLACEMENT: Duration = Duration::from_secs(5);

/// Whether a request wants no machines any more, so that those it held go back.
pub(crate) fn gives_back(request: &Request) -> bool {
    request.is_released() || !request.phase().wants_machines()
}

/// How many machines it should hold: the number it asked for, or the smaller one it settled for at its deadline.
pub(crate) fn target(request: &Request) -> u32 {
    let (intent, status) = (&request.intent, &request.status);
    status.settled_for.map_or(intent.count, |settled| settled.max(intent.min_count).min(intent.count))
}

/// How many machines it lacks, by its own record less the machines that are proved lost.
pub(crate) fn lacking(yard: &Yard, key: &RequestKey, request: &Request, now: Timestamp) -> u32 {
    if gives_back(request) || over_time(yard, request).is_some_and(|at| at <= now) {
        return 0;
    }
    let held = yard.holding(key, request).held.len() as u32;
    target(request).saturating_sub(held)
}

/// When a ready request reaches its maximum runtime. Nothing is replaced after that and it is released, so that a
/// workflow without a release step does not cost money for ever.
pub(crate) fn over_time(yard: &Yard, request: &Request) -> Option<Timestamp> {
    let ready_at = request.status.ready_at?;
    if runtime_unknown(yard, &request.intent) {
        // The instance records hold the deadlines of its machines.
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
