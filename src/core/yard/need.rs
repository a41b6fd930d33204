//! How many machines does a request want? Counted in its own record, less the machines that are proved lost.

use crate::model::{Request, RequestKey};

use super::Yard;

/// Returns whether a request no longer wants machines, so that those it held are returned.
pub(crate) fn gives_back(request: &Request) -> bool {
    request.is_released() || !request.phase().wants_machines()
}

/// Returns how many machines it should hold: the number that it asked for, the smaller one that it settled for at its
/// deadline, or the smaller one that its jobs need now.
pub(crate) fn target(request: &Request) -> u32 {
    let (intent, status) = (&request.intent, &request.status);
    let count =
        status.settled_for.map_or(intent.count, |settled| settled.max(intent.min_count).min(intent.count));
    count.min(request.wanted())
}

/// Counts the machines that it lacks, by its own record less the machines that are proved lost.
pub(crate) fn lacking(yard: &Yard, key: &RequestKey, request: &Request) -> u32 {
    if gives_back(request) {
        return 0;
    }
    let held = yard.holding(key, request).held.len() as u32;
    target(request).saturating_sub(held)
}
