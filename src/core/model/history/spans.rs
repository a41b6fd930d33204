//! Derives the stretches of a machine's life from the spans in its record.

use jiff::Timestamp;

use super::Span;
use crate::model::machine::instance::Instance;
use crate::model::machine::span::{PastSpan, begins, drop_first};
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
        let known = |spans: &Vec<Span>| spans.last().is_some_and(|span| span.to <= delivered);
        let known = over(self, None).iter().take_while(|spans| known(spans)).count();
        (0..known).for_each(|_| drop_first(&mut self.spans));
    }
}

/// Groups the spans of a record and its current one, which is open until `until`, into stretches.
fn stretches(instance: &Instance, until: Timestamp) -> Vec<Vec<Span>> {
    let all: Vec<PastSpan> = instance.spans.iter().cloned().chain(instance.present_span()).collect();
    // Two operators' clocks may differ: no span begins before its predecessor.
    let mut starts: Vec<Timestamp> = all.iter().map(|span| span.from).collect();
    starts.push(until);
    for at in 1..starts.len() {
        starts[at] = starts[at].max(starts[at - 1]);
    }
    let mut told: Vec<Vec<Span>> = Vec::new();
    let mut serving: Option<RecordId> = None;
    for (at, span) in all.into_iter().enumerate() {
        serving = span.request.clone().or(serving).filter(|_| span.activity.serves());
        let spans = match told.last_mut() {
            Some(spans) if !begins(&span) => spans,
            Some(_) | None => {
                told.push(Vec::new());
                told.last_mut().expect("one was pushed")
            }
        };
        spans.push(Span {
            activity: span.activity,
            from: starts[at],
            to: starts[at + 1],
            request: serving.clone(),
        });
    }
    told
}

/// Returns the completed stretches.
pub(super) fn over(instance: &Instance, gone: Option<Timestamp>) -> Vec<Vec<Span>> {
    let mut told = stretches(instance, gone.unwrap_or(instance.state_since));
    if gone.is_none() {
        told.pop();
    }
    told
}

/// Returns the stretch that has not ended.
pub(super) fn open(instance: &Instance, now: Timestamp) -> Option<Vec<Span>> {
    if instance.gone_at().is_some() { None } else { stretches(instance, now).pop() }
}
