//! The outcome of a replay.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::ClassName;
use serde::Serialize;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It became ready.
    Served,
    /// It failed before it was ready.
    Failed,
    /// Its workflow gave up waiting.
    GaveUp,
    /// The replay ended before.
    Open,
}

/// The outcome of one request.
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
    /// Idle machines of its class when it arrived.
    pub idle: u32,
    /// Requests of its class that waited when it arrived.
    pub waiting: u32,
}

/// Machine time by activity, in seconds.
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
    /// Returns the total.
    pub fn total(&self) -> f64 {
        self.starting + self.idle + self.claimed + self.running + self.cleaning + self.ending
    }
}

/// The calls of EC2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCounts {
    /// Fleet requests.
    pub create_fleet: u64,
    /// The most fleet requests within one minute.
    pub create_fleet_peak: u64,
    /// Machines that were ended, each counted; the operator ends up to 100 in one call.
    pub terminate: u64,
    /// The most terminations within one minute.
    pub terminate_peak: u64,
}

/// The outcome of a replay.
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
    /// The calls of EC2.
    pub calls: CallCounts,
    /// A digest of all actions, in their order.
    pub digest: u64,
}

impl Outcome {
    /// Returns the waits of the requests that became ready, in order.
    pub fn waits(&self) -> Vec<Duration> {
        let served = self.served.iter().filter(|served| served.verdict == Verdict::Served);
        let mut waits: Vec<Duration> = served.map(|served| served.wait).collect();
        waits.sort_unstable();
        waits
    }

    /// Counts the requests that became ready later than this, or not at all; those that gave up earlier are not
    /// counted.
    pub fn late(&self, after: Duration) -> usize {
        let late = |served: &&Served| match served.verdict {
            Verdict::Failed => true,
            Verdict::Served | Verdict::GaveUp | Verdict::Open => served.wait > after,
        };
        self.served.iter().filter(late).count()
    }

    /// Returns the machine time of all classes.
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

/// Returns the value that this percentage of sorted values does not exceed; zero for none.
pub fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted.get((sorted.len() * part).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}
