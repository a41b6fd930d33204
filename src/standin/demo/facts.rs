//! The facts at the end of the demonstration: what was requested, and what the records, the stand-in GitHub, the jobs
//! and `/proc` each show. This module judges nothing; `checks` does.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::InstanceId;

use super::results::Line;

/// A job that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) run_id: String,
    /// The one label of the request it is meant for.
    pub(super) label: String,
}

/// What the stand-in GitHub says of a job.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    pub(super) succeeded: bool,
    pub(super) runner: Option<String>,
    /// The end of its log, for a person who wonders why.
    pub(super) log: String,
}

/// Which machine a runner stands for, and which request's label that claim was made for, by the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) machine: InstanceId,
    pub(super) label: String,
}

/// How a run came to its machines, by the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    /// From the writing of its request to its readiness.
    pub(super) time: Duration,
    /// Its machines that were there before its request was accepted.
    pub(super) found: usize,
    /// Its machines that were recorded afterwards, and booted while it waited.
    pub(super) booted: usize,
}

/// What is still there after the end.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Processes of its machines.
    pub processes: Vec<String>,
    pub(super) runners: Vec<String>,
    pub(super) agents: Vec<String>,
    pub(super) instances: Vec<String>,
    pub(super) requests: Vec<String>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Jobs asked for, by name.
    pub(super) wanted: BTreeMap<String, Wanted>,
    /// The stand-in's word on them, by name.
    pub(super) reported: BTreeMap<String, Reported>,
    /// What the jobs wrote.
    pub(super) lines: Vec<Line>,
    /// The labels of every runner that was registered, by name, as the stand-in lists them.
    pub(super) labels: BTreeMap<String, Vec<String>>,
    /// The claims, by their runner's name.
    pub(super) claims: BTreeMap<String, Claimed>,
    /// How the first run waited, for machines that had to be started.
    pub(super) cold: Waited,
    /// How the second did, for machines that were there.
    pub(super) warm: Waited,
    /// What is left.
    pub left: Left,
}
