//! The recent timeline of each machine: every change that this operator saw, in bounded memory. The oldest spans of a
//! machine, and the machines that have been gone longest, are dropped first.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::model::{Event, Instance, InstanceArn, Item, Reading, read};

use super::MOST_EVENTS;
use super::phase::{MachinePhase, gone_at, phase};
use super::trend::Samples;

/// A period in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseSpan {
    /// The phase; `None` if this operator did not see it.
    pub phase: Option<MachinePhase>,
    /// Its beginning, by the clock of the record's writer.
    pub from: Timestamp,
    /// The request that held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// Maximum number of machines.
const MACHINES: usize = 1000;
/// Maximum number of spans of one machine.
const SPANS: usize = 16;
/// How long a machine that is gone is kept.
const KEPT: SignedDuration = SignedDuration::from_mins(30);

/// The timelines of machines.
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

/// Returns when a machine's phase began. A machine enters the pool without a change of its state.
pub(super) fn since(instance: &Instance) -> Timestamp {
    gone_at(instance).or(instance.pooled_at()).unwrap_or(instance.state_since).max(instance.state_since)
}

/// Returns the request that holds a machine, for people.
pub(super) fn holder(instance: &Instance) -> Option<String> {
    let key = instance.held_by()?;
    Some(key.request().map_or_else(|| key.pk(), ToString::to_string))
}

impl History {
    /// Creates an empty history.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, timelines: BTreeMap::new(), events: BTreeMap::new(), samples: Samples::default() }
    }

    /// Returns since when changes are recorded.
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// Takes in a machine's record.
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

    /// Returns whether there is room for one more machine, if necessary after dropping the one that has been gone
    /// longest.
    fn room(&mut self) -> bool {
        if self.timelines.len() < MACHINES {
            return true;
        }
        let oldest = self.timelines.iter().filter_map(|(arn, timeline)| Some((timeline.gone()?, arn))).min();
        let Some(arn) = oldest.map(|(_, arn)| arn.clone()) else { return false };
        self.timelines.remove(&arn);
        true
    }

    /// Drops machines that have been gone for long, and counts the others for the trend.
    pub fn forget(&mut self, now: Timestamp) {
        self.timelines
            .retain(|_, timeline| timeline.gone().is_none_or(|gone| now.duration_since(gone) < KEPT));
        let phases = self.timelines.values().filter_map(|timeline| timeline.spans.back()?.phase);
        self.samples.take(now, phases);
    }

    /// Takes in an event's record, from the stream or from a list.
    pub fn event(&mut self, item: &Item) {
        let Reading::Record(event) = read::<Event>(item) else { return };
        self.events.insert((event.at, format!("{} {}", event.subject, event.place)), event);
        if self.events.len() > MOST_EVENTS {
            self.events.pop_first();
        }
    }

    /// Returns the last events, newest first, each with its key.
    pub(super) fn events(&self) -> impl Iterator<Item = (&str, &Event)> {
        self.events.iter().rev().map(|((_, key), event)| (key.as_str(), event))
    }

    /// Returns the counts of machines over time.
    pub(super) const fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the timeline of a machine.
    pub(super) fn timeline(&self, arn: &InstanceArn) -> Option<&Timeline> {
        self.timelines.get(arn)
    }

    /// Returns the timelines of all machines.
    pub(super) fn timelines(&self) -> impl Iterator<Item = (&InstanceArn, &Timeline)> {
        self.timelines.iter()
    }
}
