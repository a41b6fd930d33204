//! What came of a replay.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::ClassName;
use serde::Serialize;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It was ready.
    Served,
    /// It failed before it was ready.
    Failed,
    /// Its workflow gave up waiting.
    GaveUp,
    /// The replay ended before.
    Open,
}

/// What came of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// How it ended.
    pub verdict: Verdict,
    /// How long it waited until it was ready, or until it ended otherwise.
    pub wait: Duration,
    /// Whether all its machines came from the pool.
    pub warm: bool,
    /// Machines that were launched for it.
    pub launched: u32,
    /// Idle machines of its class when it came.
    pub idle: u32,
    /// Requests of its class that waited when it came.
    pub waiting: u32,
}

/// Machine time by what the machines did, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the activities of the history")]
pub struct Hours {
    pub starting: f64,
    pub idle: f64,
    pub claimed: f64,
    pub running: f64,
    pub cleaning: f64,
    pub ending: f64,
}

impl Hours {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.starting + self.idle + self.claimed + self.running + self.cleaning + self.ending
    }
}

/// What EC2 was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCounts {
    /// Fleets.
    pub create_fleet: u64,
    /// The most of them within one minute.
    pub create_fleet_peak: u64,
    /// Machines that were ended, each alone; the operator asks for up to 100 at once.
    pub terminate: u64,
    /// The most of them within one minute.
    pub terminate_peak: u64,
}

/// What came of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Each request, in the order of the trace.
    pub served: Vec<Served>,
    /// Machine time by class.
    pub hours: BTreeMap<ClassName, Hours>,
    /// The most live machines at a time, by class.
    pub peak: BTreeMap<ClassName, u32>,
    /// Live machines at the end of each hour, all classes: idle, and others.
    pub live: Vec<(u32, u32)>,
    /// What EC2 was asked.
    pub calls: CallCounts,
    /// Everything that was done, in its order, as one number.
    pub digest: u64,
}

impl Outcome {
    /// The waits of those that were ready, in order.
    pub fn waits(&self) -> Vec<Duration> {
        let served = self.served.iter().filter(|served| served.verdict == Verdict::Served);
        let mut waits: Vec<Duration> = served.map(|served| served.wait).collect();
        waits.sort_unstable();
        waits
    }

    /// How many were ready later than this, or not at all; who gave up earlier is not counted.
    pub fn late(&self, after: Duration) -> usize {
        let late = |served: &&Served| match served.verdict {
            Verdict::Failed => true,
            Verdict::Served | Verdict::GaveUp | Verdict::Open => served.wait > after,
        };
        self.served.iter().filter(late).count()
    }

    /// Machine time of all classes.
    pub fn total(&self) -> Hours {
        self.hours.values().fold(Hours::default(), |sum, hours| Hours {
            starting: sum.starting + hours.starting,
            idle: sum.idle + hours.idle,
            claimed: sum.claimed + hours.claimed,
            running: sum.running + hours.running,
            cleaning: sum.cleaning + hours.cleaning,
            ending: sum.ending + hours.ending,
        })
    }
}

/// The value that this part of 100 of sorted ones does not exceed; zero of none.
pub fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted.get((sorted.len() * part).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}
