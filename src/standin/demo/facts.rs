//! The facts at the end of the demonstration: what was requested, and what the records, the stand-in GitHub, the jobs
//! and `/proc` each show. This module judges nothing; `checks` does.

use std::collections::BTreeMap;
use std::time::Duration;

use runyard_core::model::InstanceId;

use super::results::Line;

/// A requested job.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) run_id: String,
    /// The label of the request that it is meant for.
    pub(super) label: String,
}

/// The stand-in GitHub's report of a job.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    pub(super) succeeded: bool,
    pub(super) runner: Option<String>,
    /// The end of its log, for troubleshooting.
    pub(super) log: String,
}

/// The machine of a runner, and the label of the request that the claim was made for, by the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) machine: InstanceId,
    pub(super) label: String,
}

/// How a run got its machines, by the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    /// The time from writing its request until it was ready.
    pub(super) time: Duration,
    /// Its machines that existed before its request was accepted.
    pub(super) found: usize,
    /// Its machines that were recorded afterwards, and booted while it waited.
    pub(super) booted: usize,
}

/// What is left after the end.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Processes of its machines.
    pub processes: Vec<String>,
    pub(super) runners: Vec<String>,
    pub(super) agents: Vec<String>,
    pub(super) instances: Vec<String>,
    pub(super) requests: Vec<String>,
}

/// All facts.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Requested jobs, by name.
    pub(super) wanted: BTreeMap<String, Wanted>,
    /// The stand-in's reports of them, by name.
    pub(super) reported: BTreeMap<String, Reported>,
    /// The lines that the jobs wrote.
    pub(super) lines: Vec<Line>,
    /// The labels of every runner that was registered, by name, as the stand-in lists them.
    pub(super) labels: BTreeMap<String, Vec<String>>,
    /// The claims, by their runner's name.
    pub(super) claims: BTreeMap<String, Claimed>,
    /// The wait of the first run, whose machines had to be started.
    pub(super) cold: Waited,
    /// The wait of the second run, whose machines existed already.
    pub(super) warm: Waited,
    /// What is left.
    pub left: Left,
}
