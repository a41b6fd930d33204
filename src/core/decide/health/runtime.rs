//! How long may a request have its machines? Its maximum runtime counts from ready, for all of its machines alike. The
//! request is released first; the deadline of a machine follows `timing.end` later.

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::context::Context;
use crate::model::{PoolSpec, Request, UNWATCHED_RUNTIME_MINUTES, WATCHED_RUNTIME_MINUTES, after};
use crate::yard::{ClassRecord, Yard, target};

/// How long the runner of a slot waits for a job, before another slot takes its place. Until it has one, its maximum
/// runtime does not pass; its machine has twice this time beside it.
pub(crate) const STANDS: Duration = Duration::from_secs(3 * 3600);

/// Returns how long a machine may serve a request.
pub(crate) fn max_runtime(cx: &Context<'_>, request: Option<&Request>, spec: Option<&PoolSpec>) -> Duration {
    let asked = request.and_then(|request| request.intent.max_runtime_minutes);
    let class = spec.and_then(|spec| spec.max_runtime_minutes);
    let minutes = match (asked, class) {
        (Some(asked), Some(class)) => asked.min(class),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => unless_told(cx, request),
    };
    Duration::from_secs(minutes.saturating_mul(60))
}

fn unless_told(cx: &Context<'_>, request: Option<&Request>) -> u64 {
    // The end of a slot's runner is seen without GitHub.
    let watched = request
        .is_some_and(|request| request.is_slot() || (cx.policy.watches_runs && request.has_run_at_github()));
    if watched { WATCHED_RUNTIME_MINUTES } else { UNWATCHED_RUNTIME_MINUTES }
}

/// Returns when a ready request reaches its maximum runtime and gives its machines back, so that a workflow without a
/// release step does not cost money forever. A request that rests has none, nor has a slot before its job.
pub(crate) fn ends_at(cx: &Context<'_>, request: &Request) -> Option<Timestamp> {
    let ready_at = since(request).filter(|_| !request.rests())?;
    let ready_at = if request.is_slot() { job_since(cx, request)?.max(ready_at) } else { ready_at };
    let class = Yard::class_of(request).map(|class| ClassRecord::of(cx.yard, &class));
    let by_class = request.intent.max_runtime_minutes.is_none();
    let end = |spec| after(ready_at, max_runtime(cx, Some(request), spec));
    match class {
        Some(ClassRecord::Read(pool)) => Some(end(Some(&pool.spec))),
        // The instance records hold the deadlines of its machines.
        Some(ClassRecord::Unreadable) if by_class => None,
        // Its machines serve for the time that the class gave them while it existed.
        Some(ClassRecord::Unseen | ClassRecord::Deleted) if by_class => {
            let before = |last: Timestamp| last.saturating_sub(cx.policy.timing.end).unwrap_or(last);
            Some(last_deadline(cx.yard, request).map_or_else(|| end(None), before))
        }
        Some(ClassRecord::Unreadable | ClassRecord::Unseen | ClassRecord::Deleted) | None => Some(end(None)),
    }
}

/// Returns since when a ready request has machines, from which its maximum runtime counts.
pub(crate) fn since(request: &Request) -> Option<Timestamp> {
    let status = &request.status;
    status.ready_at.map(|ready_at| status.lent_since.map_or(ready_at, |since| since.max(ready_at)))
}

/// Returns since when the runner of a slot has its job, by its agent's clock, which may be ahead.
fn job_since(cx: &Context<'_>, request: &Request) -> Option<Timestamp> {
    let jobs = cx.yard.jobs_of_slot(request).filter(|(id, _)| request.status.instances.contains(id));
    jobs.map(|(_, job)| job.at.min(cx.now.wall)).min()
}

/// Returns the last deadline of the machines that a request holds.
fn last_deadline(yard: &Yard, request: &Request) -> Option<Timestamp> {
    let holding = yard.holding(&request.id, request);
    let read = holding.held.iter().filter_map(|id| yard.by_id(id)?.instance.threshold);
    let unread = holding.unread.iter().filter_map(|(_, deadline)| *deadline);
    read.map(|threshold| threshold.at).chain(unread).max()
}

/// Computes the deadline of a machine that begins to serve now. A request that waits for more machines is ready by its
/// own deadline at the latest; a request for a single machine is ready in a moment.
pub(crate) fn deadline(cx: &Context<'_>, request: Option<&Request>, spec: Option<&PoolSpec>) -> Timestamp {
    let now = cx.now.wall;
    let waits = |request: &&Request| target(request) > 1;
    let ready_at = request.and_then(since);
    let by = || request.filter(waits)?.status.deadline.filter(|deadline| *deadline > now);
    let ready_at = ready_at.or_else(by).unwrap_or(now);
    let stands = request.filter(|request| request.is_slot()).map_or(Duration::ZERO, |_| STANDS * 2);
    let end = after(after(ready_at, stands), max_runtime(cx, request, spec)).max(now);
    after(end, cx.policy.timing.end)
}
