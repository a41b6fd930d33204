//! How many machines a request wants, and for how long: counted in its own record, less the machines that are proved
//! lost.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{MAX_RUNTIME_MINUTES, PoolSpec, Request, RequestKey, after};

use super::{ClassRecord, Yard};

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
    let class = Yard::class_of(request).map(|class| ClassRecord::of(yard, &class));
    let spec = match class {
        Some(ClassRecord::Read(pool)) => Some(&pool.spec),
        Some(ClassRecord::Unreadable | ClassRecord::Unseen | ClassRecord::Deleted) | None => None,
    };
    let end = after(ready_at, max_runtime(Some(request), spec));
    let by_class = request.intent.max_runtime_minutes.is_none();
    let end = match class {
        // The instance records hold the deadlines of its machines.
        Some(ClassRecord::Unreadable) if by_class => return None,
        // They serve for the time that the class gave them while it existed.
        Some(ClassRecord::Unseen | ClassRecord::Deleted) if by_class => {
            last_deadline(yard, request).map_or(end, |last| end.max(last))
        }
        Some(ClassRecord::Read(_) | ClassRecord::Unreadable | ClassRecord::Unseen | ClassRecord::Deleted)
        | None => end,
    };
    Some(end.saturating_sub(LAST_REPLACEMENT).unwrap_or(end))
}

/// The last deadline of the machines that a request holds.
fn last_deadline(yard: &Yard, request: &Request) -> Option<Timestamp> {
    let holding = yard.holding(&request.id, request);
    let read = holding.held.iter().filter_map(|id| yard.by_id(id)?.instance.threshold);
    let unread = holding.unread.iter().filter_map(|(_, deadline)| *deadline);
    read.map(|threshold| threshold.at).chain(unread).max()
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
