//! The trend of the yard over the last hours: waiting requests, from their records, and machines, as far as this
//! operator counted them. Both are bounded, whatever the yard's size.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::phase::MachinePhase;
use crate::model::{Phase, Request};
use crate::yard::Yard;

/// Number of steps.
const STEPS: usize = 72;
/// The length of a step, in seconds: the steps cover six hours.
const STEP: i64 = 300;
/// The minimum interval between two counts of the machines.
const PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// The last hours in steps, oldest first; the last step is in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trend {
    /// The length of a step.
    pub step_seconds: i64,
    /// When the last step began.
    pub last: Timestamp,
    /// Requests that waited at some time during each step.
    pub waiting: Vec<u32>,
    /// The maximum of busy machines among the counts of each step; `None` without a count.
    pub running: Vec<Option<u32>>,
    /// The maximum of machines in the pool, likewise.
    pub idle: Vec<Option<u32>>,
    /// The maximum of starting machines, likewise.
    pub starting: Vec<Option<u32>>,
}

/// The machines at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    running: u32,
    idle: u32,
    starting: u32,
}

/// One count of the machines per minute, over the period of the trend.
#[derive(Debug, Default)]
pub(super) struct Samples(VecDeque<Sample>);

impl Samples {
    /// Counts the machines, unless that was done within the minute.
    pub(super) fn take(&mut self, at: Timestamp, phases: impl Iterator<Item = MachinePhase>) {
        if self.0.back().is_some_and(|last| at.duration_since(last.at) < PAUSE) {
            return;
        }
        let mut sample = Sample { at, running: 0, idle: 0, starting: 0 };
        for phase in phases {
            match phase {
                MachinePhase::Created => sample.starting += 1,
                MachinePhase::Claimed | MachinePhase::Running => sample.running += 1,
                MachinePhase::Cleaning | MachinePhase::Pooled => sample.idle += 1,
                MachinePhase::Held | MachinePhase::Ending | MachinePhase::Gone => {}
            }
        }
        self.0.push_back(sample);
        while self.0.front().is_some_and(|first| step(at, first.at).is_none()) {
            self.0.pop_front();
        }
    }
}

/// Returns the steps up to the one in progress.
pub(super) fn trend(yard: &Yard, samples: &Samples, now: Timestamp) -> Trend {
    let mut change = vec![0i64; STEPS + 1];
    for (from, until) in yard.requests().filter_map(|(_, request)| waited(request, now)) {
        let Some(last) = step(now, until) else { continue };
        change[step(now, from).unwrap_or(0)] += 1;
        change[last + 1] -= 1;
    }
    let sums = change.iter().take(STEPS).scan(0i64, |sum, change| {
        *sum += change;
        Some(u32::try_from(*sum).unwrap_or(0))
    });
    let mut told = Trend {
        step_seconds: STEP,
        last: Timestamp::from_second(now.as_second().div_euclid(STEP) * STEP).unwrap_or(now),
        waiting: sums.collect(),
        running: vec![None; STEPS],
        idle: vec![None; STEPS],
        starting: vec![None; STEPS],
    };
    for sample in &samples.0 {
        let Some(step) = step(now, sample.at) else { continue };
        told.running[step] = told.running[step].max(Some(sample.running));
        told.idle[step] = told.idle[step].max(Some(sample.idle));
        told.starting[step] = told.starting[step].max(Some(sample.starting));
    }
    told
}

/// Returns when a request waited; `None` before it was accepted.
fn waited(request: &Request, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let from = request.status.accepted_at?;
    let until = request.status.ready_at.or_else(|| match request.phase() {
        Phase::Pending | Phase::Fulfilling => Some(now),
        Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed => request.updated_at,
    })?;
    Some((from.min(now), until.min(now)))
}

/// Returns the step of a time; `None` if it is before all steps.
fn step(now: Timestamp, at: Timestamp) -> Option<usize> {
    let back = now.as_second().div_euclid(STEP) - at.as_second().div_euclid(STEP);
    (STEPS - 1).checked_sub(usize::try_from(back.max(0)).ok()?)
}
