//! How many machines a request wants: counted in its own record, less the machines that are proved lost.

use crate::model::{Request, RequestKey};

use super::Yard;

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
pub(crate) fn lacking(yard: &Yard, key: &RequestKey, request: &Request) -> u32 {
    if gives_back(request) {
        return 0;
    }
    let held = yard.holding(key, request).held.len() as u32;
    target(request).saturating_sub(held)
}
