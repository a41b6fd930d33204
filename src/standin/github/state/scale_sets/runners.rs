//! The single-use runners of sets.

use jiff::Timestamp;

use super::ScaleSetService;
use super::types::{SetRefusal, SetRunner};

impl ScaleSetService {
    /// Creates a runner of a set under a number of its owner's. It serves any job of the set, and one only.
    ///
    /// # Errors
    /// There is no such set, or a runner of this name exists in its scope.
    pub fn add_runner(&mut self, set: u64, id: u64, name: &str) -> Result<SetRunner, SetRefusal> {
        let scope = self.set_mut(set)?.scope.clone();
        let here = |of: u64| self.sets.get(&of).is_some_and(|set| set.scope.eq_ignore_ascii_case(&scope));
        if self.runners.values().any(|own| own.name.eq_ignore_ascii_case(name) && here(own.set)) {
            return Err(SetRefusal::RunnerExists(name.to_owned()));
        }
        let runner = SetRunner { id, set, name: name.to_owned(), job: None };
        self.runners.insert(id, runner.clone());
        self.changed();
        Ok(runner)
    }

    /// Returns the runner of this number, if it is of a set of this scope.
    ///
    /// # Errors
    /// There is none.
    pub fn runner_in(&self, scope: &str, id: u64) -> Result<&SetRunner, SetRefusal> {
        self.runners_in(scope).find(|runner| runner.id == id).ok_or(SetRefusal::NoRunner(id))
    }

    /// Lists the runners of the sets of a scope.
    pub fn runners_in(&self, scope: &str) -> impl Iterator<Item = &SetRunner> {
        let here =
            move |set: u64| self.sets.get(&set).is_some_and(|set| set.scope.eq_ignore_ascii_case(scope));
        self.runners.values().filter(move |runner| here(runner.set))
    }

    /// Removes a runner on behalf of an administrator. A job on its way to it lapses.
    ///
    /// # Errors
    /// There is none, or it has begun a job.
    pub fn remove_runner(&mut self, scope: &str, id: u64, now: Timestamp) -> Result<(), SetRefusal> {
        self.tick(now);
        let runner = self.runner_in(scope, id)?;
        let begun = runner.job.and_then(|job| self.job(job)).is_some_and(|job| job.place.running());
        if begun {
            return Err(SetRefusal::JobStillRunning(runner.name.clone()));
        }
        self.runner_goes(id, now);
        Ok(())
    }

    /// Forgets a runner that is gone. A job on its way to it lapses; one that it has begun is ended by its owner.
    pub fn runner_goes(&mut self, id: u64, now: Timestamp) {
        if let Some(job) = self.runners.get(&id).and_then(|runner| runner.job) {
            self.job_returns(job, now);
        }
        if self.runners.remove(&id).is_some() {
            self.changed();
        }
    }
}
