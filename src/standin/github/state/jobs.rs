//! Runs and their jobs, from the start to the end.

use jiff::Timestamp;

use super::State;
use super::types::{Conclusion, Job, JobSpec, JobStatus, QueuedJobs, Refusal, Run, RunId, Source};

/// Which jobs run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those that did not succeed.
    Failed,
}

impl State {
    /// Starts a run with its first jobs. The id of an ended run starts its next attempt; none uses a fresh id.
    ///
    /// # Errors
    /// A repository that is not `owner/name`, a run that has not ended, or jobs that no runner could ever take.
    pub fn start_run(
        &mut self,
        repository: &str,
        id: Option<RunId>,
        name: &str,
        jobs: Vec<JobSpec>,
        open: bool,
        now: Timestamp,
    ) -> Result<Run, Refusal> {
        self.tick(now);
        if !is_repository(repository) {
            return Err(Refusal::Invalid(format!("repository {repository:?} must be owner/name")));
        }
        jobs.iter().try_for_each(validate)?;
        let earlier = id.and_then(|id| self.runs.get(&id));
        let (attempt, created_at) = match earlier {
            None => (1, now),
            Some(run) if !run.repository.eq_ignore_ascii_case(repository) => {
                return Err(Refusal::Invalid(format!("run_id {} belongs to {}", run.id, run.repository)));
            }
            Some(run) if !self.run_over(run) => {
                return Err(Refusal::Invalid(format!(
                    "run_id {} is not over; add jobs to it instead",
                    run.id
                )));
            }
            Some(run) => (run.attempt + 1, run.created_at),
        };
        let source = earlier.map(|run| run.source.clone()).unwrap_or_default();
        let id = id.unwrap_or_else(|| self.fresh_id());
        let run = Run {
            id,
            attempt,
            repository: repository.to_owned(),
            name: name.to_owned(),
            open,
            waits: false,
            created_at,
            attempt_started_at: Some(now),
            updated_at: now,
            source,
        };
        self.runs.insert(id, run.clone());
        self.queue(&run, jobs, now);
        self.changed();
        Ok(run)
    }

    /// Sets another origin of a run's code.
    ///
    /// # Errors
    /// An unknown run.
    pub fn set_source(&mut self, id: RunId, source: Source) -> Result<Run, Refusal> {
        let run = self.runs.get_mut(&id).ok_or(Refusal::NotFound)?;
        run.source = source;
        let run = run.clone();
        self.changed();
        Ok(run)
    }

    /// Lets an open run wait for an approval of its next jobs, until jobs are added or it is closed.
    ///
    /// # Errors
    /// An unknown or closed run.
    pub fn wait_for_approval(&mut self, id: RunId, now: Timestamp) -> Result<Run, Refusal> {
        self.tick(now);
        let run = self.runs.get_mut(&id).ok_or(Refusal::NotFound)?;
        if !run.open {
            return Err(Refusal::Invalid(format!("run_id {id} is closed: nothing is left to be approved")));
        }
        (run.waits, run.updated_at) = (true, now);
        let run = run.clone();
        self.changed();
        Ok(run)
    }

    /// Adds jobs to an open run, which does not wait for an approval from then on; `open: false` closes the run with
    /// them.
    ///
    /// # Errors
    /// An unknown or closed run, or jobs that no runner could ever take.
    pub fn add_jobs(
        &mut self,
        id: RunId,
        jobs: Vec<JobSpec>,
        open: bool,
        now: Timestamp,
    ) -> Result<Run, Refusal> {
        self.tick(now);
        jobs.iter().try_for_each(validate)?;
        let run = self.runs.get_mut(&id).ok_or(Refusal::NotFound)?;
        if !run.open {
            return Err(Refusal::Invalid(format!("run_id {id} is closed: its last jobs were added")));
        }
        (run.open, run.waits) = (open, false);
        run.updated_at = now;
        let run = run.clone();
        self.queue(&run, jobs, now);
        self.changed();
        Ok(run)
    }

    /// Ends a run: queued jobs are cancelled, running jobs are asked to stop, and no more jobs can be added.
    ///
    /// # Errors
    /// An unknown run.
    pub fn cancel_run(&mut self, id: RunId, now: Timestamp) -> Result<(), Refusal> {
        self.tick(now);
        let run = self.runs.get_mut(&id).ok_or(Refusal::NotFound)?;
        (run.open, run.waits) = (false, false);
        run.updated_at = now;
        for job in self.jobs.values_mut().filter(|job| job.run_id == id && !job.status.over()) {
            job.cancel_requested = true;
            if job.status == JobStatus::Queued {
                job.status = JobStatus::Completed(Conclusion::Cancelled);
                job.completed_at = Some(now);
            }
        }
        self.changed();
        Ok(())
    }

    /// Starts the next attempt of an ended run: of all its jobs, or of those that did not succeed. The others are
    /// carried over with their results, under new numbers.
    ///
    /// # Errors
    /// An unknown run, one that has not ended, or one without a failed job.
    pub fn rerun(
        &mut self,
        repository: &str,
        id: RunId,
        which: Which,
        now: Timestamp,
    ) -> Result<Run, Refusal> {
        self.tick(now);
        let run = self.run(repository, id).ok_or(Refusal::NotFound)?.clone();
        if !self.run_over(&run) {
            return Err(Refusal::Forbidden("This workflow is already running".to_owned()));
        }
        let before: Vec<Job> = self.jobs_of(id).filter(|job| job.attempt == run.attempt).cloned().collect();
        let again = |job: &Job| match which {
            Which::All => true,
            Which::Failed => job.status != JobStatus::Completed(Conclusion::Success),
        };
        let (again, carried): (Vec<Job>, Vec<Job>) = before.into_iter().partition(again);
        if again.is_empty() {
            return Err(Refusal::Forbidden("This workflow run has no failed jobs".to_owned()));
        }
        let attempt = run.attempt + 1;
        let run = Run { attempt, attempt_started_at: Some(now), updated_at: now, ..run };
        self.runs.insert(id, run.clone());
        for job in carried {
            let id = self.fresh_id();
            self.jobs.insert(id, Job { id, attempt, ..job });
        }
        self.queue(&run, again.into_iter().map(|job| job.spec).collect(), now);
        self.changed();
        Ok(run)
    }

    /// Returns a run, if it is this repository's.
    #[must_use]
    pub fn run(&self, repository: &str, id: RunId) -> Option<&Run> {
        self.runs.get(&id).filter(|run| run.repository.eq_ignore_ascii_case(repository))
    }

    /// Lists every run, by id.
    pub fn all_runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// Lists the jobs of a run, all attempts, by id.
    pub fn jobs_of(&self, id: RunId) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(move |job| job.run_id == id)
    }

    /// Returns whether nothing can happen in this run any more.
    #[must_use]
    pub fn run_over(&self, run: &Run) -> bool {
        !run.open && self.jobs_of(run.id).all(|job| job.status.over())
    }

    /// Returns whether a job of a run's current attempt has begun in it.
    pub(in crate::github) fn begun(run: &Run, job: &Job) -> bool {
        let attempt_began = run.attempt_started_at.unwrap_or(run.created_at);
        job.attempt == run.attempt && job.started_at.is_some_and(|at| at >= attempt_began)
    }

    /// Takes the jobs that were queued since the last call: one for each run and change.
    pub(in crate::github) fn take_queued(&mut self) -> Vec<QueuedJobs> {
        std::mem::take(&mut self.queued)
    }

    /// Returns whether a job is in the list of its attempt.
    pub(in crate::github) fn lists(&self, job: &Job) -> bool {
        let run = self.runs.get(&job.run_id).filter(|run| run.attempt == job.attempt);
        let began = run.and_then(|run| run.attempt_started_at);
        let ran = job.completed_at.zip(began).is_none_or(|(ended, began)| ended >= began);
        let appeared = job.created_at + self.behaviour.job_list_delay <= self.now;
        appeared && (self.behaviour.lists_carried_over || ran)
    }

    fn queue(&mut self, run: &Run, jobs: Vec<JobSpec>, now: Timestamp) {
        if !jobs.is_empty() {
            self.queued.push(QueuedJobs { repository: run.repository.clone(), run_id: run.id });
        }
        for spec in jobs {
            let id = self.fresh_id();
            let ended = spec.hosted;
            let job = Job {
                id,
                run_id: run.id,
                attempt: run.attempt,
                repository: run.repository.clone(),
                spec,
                status: ended.map_or(JobStatus::Queued, JobStatus::Completed),
                runner_id: None,
                runner_name: None,
                exit_code: None,
                log: String::new(),
                cancel_requested: false,
                created_at: now,
                started_at: ended.map(|_| now),
                completed_at: ended.map(|_| now),
            };
            self.jobs.insert(id, job);
        }
    }
}

fn is_repository(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(owner, name)| !owner.is_empty() && !name.is_empty() && !name.contains('/'))
}

fn validate(job: &JobSpec) -> Result<(), Refusal> {
    if job.runs_on.is_empty() || job.runs_on.iter().any(|label| label.trim().is_empty()) {
        return Err(Refusal::Invalid(format!("runs_on of job {:?} must name at least one label", job.name)));
    }
    Ok(())
}
