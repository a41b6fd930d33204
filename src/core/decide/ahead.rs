//! Are the runners of a class's pooled machines registered ahead of claims, and if not, which conditions are missing?
//! Every decision and the status of the pool use this one answer.

use std::iter::once_with;

use crate::model::{AheadOff, AheadPlace, PoolSpec};

use super::capacity;
use super::context::Context;

/// Lists the conditions that a class lacks for runners that are registered ahead; empty where it registers them ahead.
pub(crate) fn ahead_lacks<'a>(
    cx: &'a Context<'a>,
    spec: &'a PoolSpec,
) -> impl Iterator<Item = AheadOff> + 'a {
    let refused = || {
        let (_, words) = cx.yard.refused_labels.get(&spec.resource_class)?.now(cx.now.mono)?;
        Some(AheadOff::Refused(words.to_owned()))
    };
    let version = || capacity::unsupported(cx, spec).map(AheadOff::Version);
    let rest = once_with(version).chain(once_with(refused)).flatten();
    spec.ahead_lacks().chain(spec.operator_lacks(cx.policy.github, cx.policy.organization)).chain(rest)
}

/// Returns the place where the runner of a machine of this trust domain is registered ahead; none where its class
/// registers no runners ahead, or where the machine has not served any request yet and may serve more than one trust
/// domain.
pub(super) fn ahead_place(cx: &Context<'_>, spec: &PoolSpec, trust_domain: &str) -> Option<AheadPlace> {
    let place = spec.ahead_place(trust_domain)?;
    ahead_lacks(cx, spec).next().is_none().then_some(place)
}
