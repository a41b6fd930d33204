//! Which runs were re-run? "Re-run failed jobs" runs our jobs and not the job that requests their machines, so the
//! operator looks for later attempts of the runs it has requests of and requests their machines
//! ([`crate::decide::rerun`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::{Rerun, rerun};
use crate::model::{Asked, EventType, Request, RequestKey, RequestName, Uid, Versioned};
use crate::ports::StoreError;
use crate::ports::github::WorkflowRun;

use super::known::{Repo, Requests};
use super::{RunWatch, Unfinished};

impl RunWatch {
    /// Requests the machines of the latest attempt of a run, for each name without a request of that attempt.
    pub(super) async fn attempts(
        &mut self,
        repo: &Repo,
        run: &WorkflowRun,
        requests: &Requests,
    ) -> Result<(), Unfinished> {
        for name in behind(requests, run.attempt) {
            let of_name: Vec<&RequestKey> = requests.keys().filter(|key| key.name == *name).collect();
            self.attempt(repo, run, &of_name).await?;
        }
        Ok(())
    }

    /// Requests the machines of a later attempt of a run, under the name of these requests, if no other writer will.
    async fn attempt(
        &mut self,
        repo: &Repo,
        run: &WorkflowRun,
        requests: &[&RequestKey],
    ) -> Result<(), Unfinished> {
        let Some(original) = self.original(requests).await? else { return Ok(()) };
        let jobs = self.github.run_jobs(&repo.0, &repo.1, run.id, run.attempt).await?;
        if rerun(&original, &[], run, &jobs) == Rerun::NoneWaits {
            return Ok(());
        }
        let earlier = self.github.run_jobs(&repo.0, &repo.1, run.id, original.id.attempt).await?;
        match rerun(&original, &earlier, run, &jobs) {
            Rerun::NoneWaits | Rerun::AsksItself => Ok(()),
            Rerun::NobodyAsks => {
                self.nobody_asks(&original, run);
                Ok(())
            }
            Rerun::Serve(waiting) => Ok(self.serve(&original, run, waiting).await?),
        }
    }

    /// Returns the latest of these requests that the workflow wrote itself, if it was accepted.
    async fn original(&self, requests: &[&RequestKey]) -> Result<Option<Request>, StoreError> {
        let mut last_first = requests.to_vec();
        last_first.sort_by_key(|key| std::cmp::Reverse(key.attempt));
        for key in last_first {
            let Some(request) = self.request(key).await? else { return Ok(None) };
            if request.status.derived_from.is_none() {
                return Ok(Some(request).filter(|one| one.status.accepted_at.is_some()));
            }
        }
        Ok(None)
    }

    /// Writes the request, unless there is one of this attempt.
    async fn serve(&self, original: &Request, run: &WorkflowRun, waiting: u32) -> Result<(), StoreError> {
        let uid = Uid::parse(&self.entropy.hex()).expect("hexadecimal digits make a uid");
        let derived = original.derived(run.attempt, waiting, uid, self.clock.now());
        match self.store.write(&derived.creating()).await {
            Ok(_) => {
                let message = format!(
                    "{}: {waiting} re-run jobs wait for label {} and their workflow does not ask again: asked for {} \
                     of {}, as in attempt {}",
                    derived.id,
                    derived.public_label(),
                    derived.intent.count,
                    derived.intent.resource_class,
                    original.id.attempt
                );
                self.report(&derived.id, EventType::Normal, "RerunServed", message);
                Ok(())
            }
            // The workflow or another operator wrote it first.
            Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports once per attempt that its jobs wait in vain.
    fn nobody_asks(&mut self, original: &Request, run: &WorkflowRun) {
        let attempt = RequestKey { attempt: run.attempt, ..original.id.clone() };
        if self.memory.settled.insert((attempt.clone(), String::new())) {
            let message = format!(
                "{attempt}: jobs wait for label {} and no job of the run asks for machines; give its workflow a job \
                 that provisions and that they need, or use runyard provision --attempt {}",
                original.public_label(),
                run.attempt
            );
            self.report(&original.id, EventType::Warning, "RerunNotServed", message);
        }
    }
}

/// Returns the names whose latest request is of an earlier attempt than this. The jobs of a label make the requests of
/// each attempt themselves.
fn behind(requests: &Requests, attempt: u32) -> BTreeSet<&RequestName> {
    let mut last: BTreeMap<&RequestName, u32> = BTreeMap::new();
    for (key, _) in requests.iter().filter(|(_, held)| held.asked != Asked::Job) {
        let of_name = last.entry(&key.name).or_default();
        *of_name = (*of_name).max(key.attempt);
    }
    last.into_iter().filter(|(_, last)| *last < attempt).map(|(name, _)| name).collect()
}
