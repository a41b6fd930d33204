//! Keeps in a machine's record what the statement about its claim says, in the writes that are made anyway: with the
//! claim the trust domain before it, and with the claim's end the report of its agent.

use crate::decide::Step;
use crate::model::history::PastSpan;
use crate::model::{Agent, ClaimEnd, ClaimRunner, Instance, Place};

/// Keeps the trust domain of a machine that is claimed, in the span that the claim ends.
pub(super) fn keep_domain(step: &mut Step<Instance>) {
    let domain = step.before.trust_domain.clone();
    if let Some(span) = ended_span(step) {
        span.trust_domain = Some(domain);
    }
}

/// Keeps the end of a claim in the claim's last span: where the machine leaves the claim for the pool, for a person, or
/// for its end.
pub(super) fn keep_end(step: &mut Step<Instance>, agent: Option<&Agent>) {
    if !serves(step.before.place()) || serves(step.after.place()) {
        return;
    }
    let before = &step.before;
    let Some(claim) = &before.claim else { return };
    let says = agent.filter(|agent| agent.signal_claim_id.as_deref() == Some(claim.id.as_str()));
    let cut = |detail: &String| detail[..detail.floor_char_boundary(ClaimEnd::DETAIL)].to_owned();
    let end = ClaimEnd {
        claim_id: claim.id.clone(),
        trust_domain: before.trust_domain.clone(),
        runner: before
            .runner
            .as_ref()
            .map(|runner| ClaimRunner { version: runner.version.clone(), sha256: runner.sha256.clone() }),
        agent_version: agent.and_then(|agent| agent.agent_version.as_ref()).map(cut),
        signal: says.and_then(|agent| agent.signal),
        detail: says.and_then(|agent| agent.signal_detail.as_ref()).map(cut),
        proof: agent.and_then(|agent| agent.proof_of(&claim.id)).cloned(),
    };
    if let Some(span) = ended_span(step) {
        span.claim = Some(Box::new(end));
    }
}

/// Returns the span that the step ended, which its record has last.
fn ended_span(step: &mut Step<Instance>) -> Option<&mut PastSpan> {
    let ended = step.before.place() != step.after.place();
    step.after.spans.last_mut().filter(|_| ended)
}

/// Returns whether a claim has the machine in this place.
const fn serves(place: Place) -> bool {
    match place {
        Place::CreatedBound | Place::Claimed | Place::Running | Place::IdleCleaning => true,
        Place::Nowhere | Place::CreatedWarm | Place::IdlePooled | Place::IdleHeld | Place::Terminated => {
            false
        }
    }
}

#[cfg(test)]
mod tests;
