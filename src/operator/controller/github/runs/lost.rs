//! Runs that failed because a spot machine was reclaimed during a job: GitHub is asked once to re-run their failed
//! jobs. The re-run is then served like any other.

use crate::decide::failed_with;
use crate::model::{EventType, Request, RequestKey, Versioned};
use crate::ports::github::{RunState, Waiting};
use crate::ports::{GitHubError, StoreError};

use super::known::{Known, number, repo};
use super::{RunWatch, Unfinished};

impl RunWatch {
    /// Checks whether the run of a request failed together with the machines that were reclaimed from it.
    pub(super) async fn lost(&mut self, key: &RequestKey, known: &Known) -> Result<(), Unfinished> {
        let (Some(machines), Some(run)) = (known.lost.get(key), number(key)) else { return Ok(()) };
        let (owner, name) = repo(key);
        match self.github.run(&owner, &name, run, Waiting::Nobody).await? {
            // Its other jobs continue, and GitHub re-runs nothing before they are over.
            RunState::Active { attempt } if attempt <= key.attempt => return Ok(()),
            // Somebody has re-run it already.
            RunState::Active { .. } => return self.settle(key),
            RunState::Completed { attempt } if attempt != key.attempt => return self.settle(key),
            RunState::Completed { .. } => {}
        }
        let Some(request) = self.request(key).await? else { return self.settle(key) };
        if request.status.rerun_requested_at.is_none() {
            let jobs = self.github.run_jobs(&owner, &name, run, key.attempt).await?;
            if self.was_run_again(key, known).await? || !failed_with(machines, &jobs) {
                return self.settle(key);
            }
            if !self.intend(&request).await? {
                return Ok(());
            }
        }
        self.ask_github(key, &owner, &name, run).await
    }

    /// Returns whether the failed jobs of its run were re-run for another of its requests, since that is done only
    /// once.
    async fn was_run_again(&mut self, key: &RequestKey, known: &Known) -> Result<bool, StoreError> {
        let mut others = known.of_run(key).cloned().unwrap_or_default();
        others.extend(self.past_of(key).await?);
        others.remove(key);
        for other in others.keys() {
            let other = self.request(other).await?;
            if other.is_some_and(|other| other.status.rerun_requested_at.is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Records the coming call to GitHub; returns false if the request changed meanwhile.
    async fn intend(&self, request: &Request) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let mut next = request.clone();
        next.status.rerun_requested_at = Some(now);
        next.advance(now);
        match self.store.write(&next.replacing(request)).await {
            Ok(_) => Ok(true),
            Err(StoreError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn ask_github(
        &mut self,
        key: &RequestKey,
        owner: &str,
        name: &str,
        run: u64,
    ) -> Result<(), Unfinished> {
        match self.github.rerun_failed_jobs(owner, name, run).await {
            Ok(()) => {
                let message = format!("{key}: a spot machine was taken back; its failed jobs are run again");
                self.report(key, EventType::Normal, "RerunAsked", message);
                self.settle(key)
            }
            Err(error @ (GitHubError::Denied(_) | GitHubError::NotFound(_) | GitHubError::Invalid(_))) => {
                let message = format!(
                    "{key}: GitHub does not run its failed jobs again ({error}); it needs Actions: write"
                );
                self.report(key, EventType::Warning, "RerunRefused", message);
                self.settle(key)
            }
            Err(
                error @ (GitHubError::Unreachable(_)
                | GitHubError::Throttled { .. }
                | GitHubError::Deferred { .. }
                | GitHubError::NameTaken(_)
                | GitHubError::Busy(_)),
            ) => Err(error.into()),
        }
    }

    fn settle(&mut self, key: &RequestKey) -> Result<(), Unfinished> {
        self.memory.settled.insert((key.clone(), String::new()));
        Ok(())
    }
}
