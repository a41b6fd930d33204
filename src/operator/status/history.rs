//! The recent timeline of each machine: every change that this operator saw, in bounded memory. The oldest spans of a
//! machine, and the machines that have been gone longest, are dropped first.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::model::{Event, Instance, InstanceArn, Item, Reading, read};

use super::MOST_EVENTS;
use super::phase::{MachinePhase, gone_at, phase};
use super::trend::Samples;

/// A stretch of time in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseSpan {
    /// Where it was; none: not seen by this operator.
    pub phase: Option<MachinePhase>,
    /// From when, by the clock of whoever wrote the record.
    pub from: Timestamp,
    /// The request it was held by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// Most machines remembered.
const MACHINES: usize = 1000;
/// Most spans of one machine.
const SPANS: usize = 16;
/// How long a machine that is gone is remembered.
const KEPT: SignedDuration = SignedDuration::from_mins(30);

/// What machines were.
#[derive(Debug)]
pub struct History {
    since: Timestamp,
    timelines: BTreeMap<InstanceArn, Timeline>,
    /// By time and key, which are unique.
    events: BTreeMap<(Timestamp, String), Event>,
    samples: Samples,
}

/// One machine's spans, and its last image.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) last: Instance,
    pub(super) spans: VecDeque<PhaseSpan>,
}

impl Timeline {
    fn gone(&self) -> Option<Timestamp> {
        self.spans.back().filter(|span| span.phase == Some(MachinePhase::Gone)).map(|span| span.from)
    }
}

/// Since when a machine is where it is. A machine enters the pool without a change of its state.
pub(super) fn since(instance: &Instance) -> Timestamp {
    gone_at(instance).or(instance.pooled_at()).unwrap_or(instance.state_since).max(instance.state_since)
}

/// The request that holds a machine, for a person.
pub(super) fn holder(instance: &Instance) -> Option<String> {
    let key = instance.held_by()?;
    Some(key.request().map_or_else(|| key.pk(), ToString::to_string))
}

impl History {
    /// Nothing seen yet.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, timelines: BTreeMap::new(), events: BTreeMap::new(), samples: Samples::default() }
    }

    /// Since when changes are seen.
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// A machine's record was seen.
    pub fn record(&mut self, instance: &Instance) {
        let Some(phase) = phase(instance) else { return };
        let span = PhaseSpan { phase: Some(phase), from: since(instance), request: holder(instance) };
        let arn = &instance.facts.instance_arn;
        if let Some(timeline) = self.timelines.get_mut(arn) {
            if instance.version <= timeline.last.version {
                return;
            }
            timeline.last = instance.clone();
            timeline.last.registration = None;
            timeline.last.removal = None;
            if timeline
                .spans
                .back()
                .is_some_and(|last| last.phase == span.phase && last.request == span.request)
            {
                return;
            }
            timeline.spans.push_back(span);
            if timeline.spans.len() > SPANS {
                timeline.spans.pop_front();
            }
            return;
        }
        if phase == MachinePhase::Gone || !self.room() {
            return;
        }
        let mut spans = VecDeque::new();
        if instance.facts.created_at < span.from {
            spans.push_back(PhaseSpan { phase: None, from: instance.facts.created_at, request: None });
        }
        spans.push_back(span);
        let last = Instance { registration: None, removal: None, ..instance.clone() };
        self.timelines.insert(arn.clone(), Timeline { last, spans });
    }

    /// Whether one more machine can be remembered, if need be in the place of the one that is gone longest.
    fn room(&mut self) -> bool {
        if self.timelines.len() < MACHINES {
            return true;
        }
        let oldest = self.timelines.iter().filter_map(|(arn, timeline)| Some((timeline.gone()?, arn))).min();
        let Some(arn) = oldest.map(|(_, arn)| arn.clone()) else { return false };
        self.timelines.remove(&arn);
        true
    }

    /// Forgets machines that are gone for long, and counts the others for the trend.
    pub fn forget(&mut self, now: Timestamp) {
        self.timelines
            .retain(|_, timeline| timeline.gone().is_none_or(|gone| now.duration_since(gone) < KEPT));
        let phases = self.timelines.values().filter_map(|timeline| timeline.spans.back()?.phase);
        self.samples.take(now, phases);
    }

    /// An event's record was seen, by the stream or by a list.
    pub fn event(&mut self, item: &Item) {
        let Reading::Record(event) = read::<Event>(item) else { return };
        self.events.insert((event.at, format!("{} {}", event.subject, event.place)), event);
        if self.events.len() > MOST_EVENTS {
            self.events.pop_first();
        }
    }

    /// The last events, the newest first, each with its key.
    pub(super) fn events(&self) -> impl Iterator<Item = (&str, &Event)> {
        self.events.iter().rev().map(|((_, key), event)| (key.as_str(), event))
    }

    /// How many machines there were.
    pub(super) const fn samples(&self) -> &Samples {
        &self.samples
    }

    /// What is remembered of a machine.
    pub(super) fn timeline(&self, arn: &InstanceArn) -> Option<&Timeline> {
        self.timelines.get(arn)
    }

    /// Every machine remembered.
    pub(super) fn timelines(&self) -> impl Iterator<Item = (&InstanceArn, &Timeline)> {
        self.timelines.iter()
    }
}
