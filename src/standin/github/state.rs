//! The state of the stand-in: runners, tokens, runs, jobs and the rules between them, without I/O. Time and randomness
//! are arguments, and the caller stores the result.

mod apps;
mod jobs;
mod registry;
pub mod scale_sets;
mod sessions;
mod set_runners;
mod types;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::behaviour::Behaviour;

pub use apps::{App, Installation, Manifest};
pub use jobs::Which;
pub use registry::Registration;
pub use scale_sets::ScaleSetService;
pub(super) use types::HEAD;
pub use types::{
    Conclusion, ContainerSpec, Job, JobId, JobSpec, JobStatus, Label, MintedToken, QueuedJobs, Refusal,
    RegisteredRunner, Run, RunId, RunnerId, Session, Source, TokenKind,
};

/// Runner tokens last as long as GitHub's.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// Finished runs beyond this many are forgotten, oldest first: the whole state is written at each change.
const KEPT_RUNS: usize = 100;

/// The whole state. Serialised as one document; `revision` rises with every change worth storing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Raised by every change worth storing (a heartbeat is not).
    #[serde(skip)]
    pub revision: u64,
    /// How it differs from a GitHub that reports every state at once.
    #[serde(skip)]
    behaviour: Behaviour,
    /// The time of its last `tick`.
    #[serde(skip)]
    now: Timestamp,
    /// Jobs that were queued, until somebody is told of them.
    #[serde(skip)]
    queued: Vec<QueuedJobs>,
    next_id: u64,
    /// Unexpired runner tokens.
    tokens: Vec<MintedToken>,
    /// By GitHub's id.
    runners: BTreeMap<RunnerId, RegisteredRunner>,
    runs: BTreeMap<RunId, Run>,
    jobs: BTreeMap<JobId, Job>,
    /// Custom labels and their ids.
    labels: BTreeMap<String, u64>,
    /// GitHub Apps.
    #[serde(default)]
    apps: apps::Apps,
    /// The service of runner scale sets.
    #[serde(default)]
    scale_sets: ScaleSetService,
}

impl Default for State {
    fn default() -> Self {
        Self {
            revision: 0,
            behaviour: Behaviour::default(),
            now: Timestamp::UNIX_EPOCH,
            queued: Vec::new(),
            next_id: 1000,
            tokens: Vec::new(),
            runners: BTreeMap::new(),
            runs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            labels: BTreeMap::new(),
            apps: apps::Apps::default(),
            scale_sets: ScaleSetService::default(),
        }
    }
}

impl State {
    /// Sets the behaviour from now on.
    pub fn behave(&mut self, behaviour: Behaviour) {
        self.scale_sets.behave(behaviour.scale_sets.clone());
        self.behaviour = behaviour;
    }

    /// Returns the behaviour.
    #[must_use]
    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// Resumes a state read back after a restart: no runner could report meanwhile, so silence counts from now.
    pub fn resume(&mut self, now: Timestamp) {
        for session in self.runners.values_mut().filter_map(|r| r.session.as_mut()) {
            session.last_seen = now;
        }
        self.scale_sets.resume(now);
    }

    /// Applies the passing of time: silent sessions end, tokens expire, old runs are forgotten. Every entry point calls
    /// it.
    pub fn tick(&mut self, now: Timestamp) {
        self.now = now;
        let silent: Vec<RunnerId> = self
            .runners
            .values()
            .filter(|r| r.session.as_ref().is_some_and(|s| s.silent(self.behaviour.session_held, now)))
            .map(|r| r.id)
            .collect();
        for id in silent {
            self.end_session(id, now);
        }
        if self.tokens.iter().any(|t| t.expires_at <= now) {
            self.tokens.retain(|t| t.expires_at > now);
            self.changed();
        }
        self.forget_old_runs();
        self.tell_scale_sets(now);
    }

    fn changed(&mut self) {
        self.revision += 1;
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.changed();
        self.next_id
    }

    fn forget_old_runs(&mut self) {
        let finished: Vec<RunId> =
            self.runs.values().filter(|run| self.run_over(run)).map(|run| run.id).collect();
        let excess = finished.len().saturating_sub(KEPT_RUNS);
        for id in finished.into_iter().take(excess) {
            self.runs.remove(&id);
            self.jobs.retain(|_, job| job.run_id != id);
            self.changed();
        }
    }
}
