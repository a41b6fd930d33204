//! Derives the stretches of a machine's life from the spans in its record.

use jiff::Timestamp;

use super::Span;
use crate::model::machine::agent::claim_proof::ClaimEnd;
use crate::model::machine::instance::Instance;
use crate::model::machine::span::{Activity, PastSpan, begins, drop_first};
use crate::model::record::identity::RecordId;

impl Instance {
    /// Returns whether a stretch of the machine ended after this time, as far as its record shows; cheap enough for
    /// each check of a record.
    pub fn was_over_after(&self, at: Timestamp) -> bool {
        let last = if self.spans.is_empty() { None } else { self.pooled_at() };
        let before = self.spans.iter().skip(1).filter(|span| begins(span)).map(|span| span.from);
        before.chain(last).chain(self.gone_at()).any(|over| over > at)
    }

    /// Drops the stretches that had ended at `delivered`: the history table has them.
    pub fn forget(&mut self, delivered: Timestamp) {
        if self.spans.is_empty() || self.gone_at().is_some() {
            return;
        }
        let known = |stretch: &Stretch| stretch.spans.last().is_some_and(|span| span.to <= delivered);
        let known = over(self, None).iter().take_while(|stretch| known(stretch)).count();
        (0..known).for_each(|_| drop_first(&mut self.spans));
    }
}

/// A stretch as the record has it, with what it keeps of its claim for a statement.
#[derive(Default)]
pub(super) struct Stretch {
    /// Its spans.
    pub(super) spans: Vec<Span>,
    /// The trust domain of the machine before the claim; none where it is not known.
    pub(super) before: Option<String>,
    /// The end of the claim.
    pub(super) claim: Option<Box<ClaimEnd>>,
}

/// Returns the trust domain that the machine was of before the claim that this span begins or precedes: a machine that
/// was launched for a request had none.
fn domain_before(first: &PastSpan) -> Option<String> {
    match first.activity {
        Activity::Idle => first.trust_domain.clone(),
        Activity::Starting => first.request.as_ref().map(|_| String::new()),
        Activity::Claimed | Activity::Running | Activity::Cleaning | Activity::Held | Activity::Ending => {
            None
        }
    }
}

/// Groups the spans of a record and its current one, which is open until `until`, into stretches.
fn stretches(instance: &Instance, until: Timestamp) -> Vec<Stretch> {
    let all: Vec<PastSpan> = instance.spans.iter().cloned().chain(instance.present_span()).collect();
    // Two operators' clocks may differ: no span begins before its predecessor.
    let mut starts: Vec<Timestamp> = all.iter().map(|span| span.from).collect();
    starts.push(until);
    for at in 1..starts.len() {
        starts[at] = starts[at].max(starts[at - 1]);
    }
    let mut told: Vec<Stretch> = Vec::new();
    let mut serving: Option<RecordId> = None;
    for (at, span) in all.into_iter().enumerate() {
        serving = span.request.clone().or(serving).filter(|_| span.activity.serves());
        let stretch = match told.last_mut() {
            Some(stretch) if !begins(&span) => stretch,
            Some(_) | None => {
                told.push(Stretch { before: domain_before(&span), ..Stretch::default() });
                told.last_mut().expect("one was pushed")
            }
        };
        stretch.claim = span.claim.or(stretch.claim.take());
        stretch.spans.push(Span {
            activity: span.activity,
            from: starts[at],
            to: starts[at + 1],
            request: serving.clone(),
        });
    }
    told
}

/// Returns the completed stretches.
pub(super) fn over(instance: &Instance, gone: Option<Timestamp>) -> Vec<Stretch> {
    let mut told = stretches(instance, gone.unwrap_or(instance.state_since));
    if gone.is_none() {
        told.pop();
    }
    told
}

/// Returns the stretch that has not ended.
pub(super) fn open(instance: &Instance, now: Timestamp) -> Option<Vec<Span>> {
    let gone = instance.gone_at().is_some();
    if gone { None } else { stretches(instance, now).pop().map(|stretch| stretch.spans) }
}
