//! GitHub's service of runner scale sets, without I/O: sets, the sessions of their listeners, messages, the runners made
//! for them, and the rules between these. It knows of jobs what its owner tells it; time, numbers and secrets are
//! arguments.
//!
//! A set serves a job if its labels are a superset of the job's (\[live\]). A job is assigned to a set once the set's
//! listener has announced that it may hold one more, and goes to any idle runner of the set.

mod jobs;
mod messages;
mod registry;
mod runners;
mod types;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::github::behaviour::SetBehaviour;

pub use types::{
    Batch, JobFacts, JobNews, JobPlace, JobWish, NewsKind, Set, SetJob, SetRefusal, SetRunner, SetSession,
};

/// The service with all of its sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScaleSetService {
    /// Raised by every change worth storing (a poll is not).
    #[serde(skip)]
    revision: u64,
    #[serde(skip)]
    behaviour: SetBehaviour,
    last_set: u64,
    sets: BTreeMap<u64, Set>,
    runners: BTreeMap<u64, SetRunner>,
    jobs: BTreeMap<u64, SetJob>,
}

impl ScaleSetService {
    /// Creates a service without sets.
    #[must_use]
    pub fn new(behaviour: SetBehaviour) -> Self {
        Self { behaviour, ..Self::default() }
    }

    /// Sets the behaviour from now on.
    pub fn behave(&mut self, behaviour: SetBehaviour) {
        self.behaviour = behaviour;
    }

    /// Returns the behaviour.
    #[must_use]
    pub fn behaviour(&self) -> &SetBehaviour {
        &self.behaviour
    }

    /// Returns a number that every change worth storing raises.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Applies the passing of time: sessions of listeners that are gone end, assignments lapse, jobs are given up, and
    /// jobs are offered to sets that may hold more.
    pub fn tick(&mut self, now: Timestamp) {
        let held = self.behaviour.session_held;
        let gone = |set: &Set| set.session.as_ref().is_some_and(|session| session.gone(held, now));
        let gone: Vec<u64> = self.sets.values().filter(|set| gone(set)).map(|set| set.id).collect();
        for id in gone {
            self.end_session(id);
        }
        self.lapse(now);
        self.give_up(now);
        self.offer(now);
    }

    /// Lists every set.
    pub fn sets(&self) -> impl Iterator<Item = &Set> {
        self.sets.values()
    }

    /// Lists every runner of every set.
    pub fn runners(&self) -> impl Iterator<Item = &SetRunner> {
        self.runners.values()
    }

    /// Lists every job that is not over.
    pub fn jobs(&self) -> impl Iterator<Item = &SetJob> {
        self.jobs.values()
    }

    /// Returns whether nothing is here that a job could matter to.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.jobs.is_empty()
    }

    /// Lets the sessions of a stored service live on after a restart: no listener could call meanwhile.
    pub fn resume(&mut self, now: Timestamp) {
        for session in self.sets.values_mut().filter_map(|set| set.session.as_mut()) {
            session.last_seen = now;
        }
    }

    fn changed(&mut self) {
        self.revision += 1;
    }

    fn set_mut(&mut self, id: u64) -> Result<&mut Set, SetRefusal> {
        self.sets.get_mut(&id).ok_or(SetRefusal::NoSet(id))
    }
}
