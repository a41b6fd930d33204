//! Sessions of connected runners: one job at a time, and its end. A job that a runner has begun is never given to
//! another, whatever happens to the runner.

use jiff::Timestamp;

use super::State;
use crate::github::behaviour::{PastEndOfLife, TokenService};

use super::types::{Conclusion, Job, JobId, JobStatus, Refusal, RegisteredRunner, RunnerId, Session};

/// The most of a job's output that is stored.
const LOG_BYTES: usize = 16 * 1024;

impl State {
    /// Connects a runner.
    ///
    /// # Errors
    /// An unknown credential (the runner was deleted), a token service that fails, a version that is no longer
    /// accepted, or a session that is still held.
    pub fn open_session(&mut self, credential: &str, version: &str, now: Timestamp) -> Result<u64, Refusal> {
        self.tick(now);
        let runner = self.by_credential(credential)?;
        let (runner_id, connected) = (runner.id, runner.session.is_some());
        match self.behaviour.token_service {
            TokenService::Answers => {}
            TokenService::Unwell => return Err(Refusal::NoToken),
        }
        if self.past_end_of_life(version, now) == Some(PastEndOfLife::NoSession) {
            return Err(Refusal::Deprecated(version.to_owned()));
        }
        if connected {
            return Err(Refusal::SessionConflict);
        }
        let id = self.fresh_id();
        let runner = self.runners.get_mut(&runner_id).ok_or(Refusal::Unauthorized)?;
        runner.session = Some(Session { id, last_seen: now });
        runner.version = Some(version.to_owned());
        Ok(id)
    }

    /// Disconnects a runner at its request. Its job, if it has one, is settled as after silence.
    ///
    /// # Errors
    /// An unknown credential or session.
    pub fn close_session(&mut self, credential: &str, session: u64, now: Timestamp) -> Result<(), Refusal> {
        let id = self.seen(credential, session, now)?;
        self.end_session(id, now);
        Ok(())
    }

    /// Records that the runner is alive; returns whether its job should end.
    ///
    /// # Errors
    /// An unknown credential or session.
    pub fn heartbeat(&mut self, credential: &str, session: u64, now: Timestamp) -> Result<bool, Refusal> {
        let id = self.seen(credential, session, now)?;
        let job = self.runners.get(&id).and_then(|r| r.job).and_then(|job| self.jobs.get(&job));
        Ok(job.is_some_and(|job| job.cancel_requested))
    }

    /// Returns the job for this runner, if there is one. A repeated call before the job began returns the same job: the
    /// first response may have been lost.
    ///
    /// # Errors
    /// An unknown credential or session, or a version that gets no message any more.
    pub fn acquire(
        &mut self,
        credential: &str,
        session: u64,
        now: Timestamp,
    ) -> Result<Option<Job>, Refusal> {
        let id = self.seen(credential, session, now)?;
        let held = self.runners.get(&id).and_then(|r| r.job);
        if let Some(job) = held.and_then(|job| self.jobs.get(&job)) {
            match job.status {
                JobStatus::Assigned => return Ok(Some(job.clone())),
                // It began the job and does not know of it any more.
                JobStatus::InProgress | JobStatus::Queued | JobStatus::Completed(_) => self.settle(id, now),
            }
        }
        let Some(runner) = self.runners.get(&id) else { return Ok(None) };
        let version = runner.version.as_deref().unwrap_or_default();
        match self.past_end_of_life(version, now) {
            None => {}
            Some(PastEndOfLife::Refused) => return Err(Refusal::Deprecated(version.to_owned())),
            Some(PastEndOfLife::NoSession | PastEndOfLife::Starved) => return Ok(None),
        }
        let name = runner.name.clone();
        let job_id = match runner.scale_set {
            Some(_) => self.scale_sets.runner_connects(id, now),
            None => self.job_for(runner, now),
        };
        let Some(job_id) = job_id else { return Ok(None) };
        self.changed();
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.job = Some(job_id);
            runner.assigned_at = Some(now);
        }
        let job = self.jobs.get_mut(&job_id).map(|job| {
            job.status = JobStatus::Assigned;
            job.runner_id = Some(id);
            job.runner_name = Some(name);
            job.clone()
        });
        Ok(job)
    }

    /// Returns a queued job for a runner that is of no scale set.
    fn job_for(&self, runner: &RegisteredRunner, now: Timestamp) -> Option<JobId> {
        let fits = |job: &&Job| {
            job.status == JobStatus::Queued
                && !self.scale_sets.holds(job.id)
                && runner.serves(&job.repository)
                && runner.takes(&job.spec.runs_on, now)
        };
        self.jobs.values().find(fits).map(|job| job.id)
    }

    /// Begins the job of a runner. From here on no other runner gets it. A repeated call is fine: the response may have
    /// been lost, and a session is one process.
    ///
    /// # Errors
    /// An unknown credential or session, or a job that is not or no longer to be begun by this runner.
    pub fn begin(
        &mut self,
        credential: &str,
        session: u64,
        job: JobId,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let id = self.seen(credential, session, now)?;
        let job = self.jobs.get_mut(&job).filter(|j| j.runner_id == Some(id)).ok_or(Refusal::NotYours)?;
        match job.status {
            JobStatus::Assigned => {}
            JobStatus::InProgress => return Ok(()),
            JobStatus::Queued | JobStatus::Completed(_) => return Err(Refusal::NotYours),
        }
        job.status = JobStatus::InProgress;
        job.started_at = Some(now);
        self.changed();
        Ok(())
    }

    /// Ends the job of a runner; a single-use runner is removed with it. A repeated report is fine.
    ///
    /// # Errors
    /// An unknown credential or session, or a job that was taken from this runner meanwhile.
    pub fn finish(
        &mut self,
        credential: &str,
        session: u64,
        (job_id, conclusion, exit_code): (JobId, Conclusion, Option<i32>),
        log: &str,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let id = self.seen(credential, session, now)?;
        let job = self.jobs.get_mut(&job_id).filter(|j| j.runner_id == Some(id)).ok_or(Refusal::NotYours)?;
        match job.status {
            JobStatus::InProgress => {}
            JobStatus::Completed(already) if already == conclusion => return Ok(()),
            JobStatus::Completed(_) | JobStatus::Queued | JobStatus::Assigned => {
                return Err(Refusal::NotYours);
            }
        }
        job.status = JobStatus::Completed(conclusion);
        job.exit_code = exit_code;
        job.completed_at = Some(now);
        job.log = tail(log).to_owned();
        let lingers = now + self.behaviour.busy_lingers;
        let ephemeral = self.runners.get_mut(&id).is_some_and(|runner| {
            runner.job = None;
            runner.busy_until = Some(lingers);
            runner.ephemeral
        });
        if ephemeral {
            self.runners.remove(&id);
        }
        self.changed();
        Ok(())
    }

    /// Returns the runner of this credential.
    ///
    /// # Errors
    /// There is none, or it was deleted.
    pub fn by_credential(&self, credential: &str) -> Result<&RegisteredRunner, Refusal> {
        self.runners.values().find(|r| r.credential == credential).ok_or(Refusal::Unauthorized)
    }

    /// Returns the treatment of a runner of this version, if its support has ended.
    fn past_end_of_life(&self, version: &str, now: Timestamp) -> Option<PastEndOfLife> {
        self.behaviour.gets_no_job(version, now).then_some(self.behaviour.past_end_of_life)
    }

    fn seen(&mut self, credential: &str, session: u64, now: Timestamp) -> Result<RunnerId, Refusal> {
        self.tick(now);
        let id = self.by_credential(credential)?.id;
        let open = self.runners.get_mut(&id).and_then(|r| r.session.as_mut()).filter(|s| s.id == session);
        open.ok_or(Refusal::NotFound)?.last_seen = now;
        Ok(id)
    }

    pub(super) fn end_session(&mut self, id: RunnerId, now: Timestamp) {
        self.settle(id, now);
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.session = None;
        }
        self.changed();
    }

    /// Settles the job of a runner that will not finish it: a job that has not begun is queued again, another one is
    /// lost.
    fn settle(&mut self, id: RunnerId, now: Timestamp) {
        let lingers = now + self.behaviour.busy_lingers;
        let runner = self.runners.get_mut(&id).filter(|runner| runner.job.is_some());
        let held = runner.and_then(|runner| {
            runner.busy_until = Some(lingers);
            runner.job.take()
        });
        let Some(job) = held.and_then(|job| self.jobs.get_mut(&job)) else { return };
        match job.status {
            JobStatus::Assigned => {
                job.status = if job.cancel_requested {
                    job.completed_at = Some(now);
                    JobStatus::Completed(Conclusion::Cancelled)
                } else {
                    JobStatus::Queued
                };
                (job.runner_id, job.runner_name) = (None, None);
            }
            JobStatus::InProgress => {
                job.status = JobStatus::Completed(Conclusion::Lost);
                job.completed_at = Some(now);
            }
            JobStatus::Queued | JobStatus::Completed(_) => {}
        }
        self.changed();
    }
}

/// Returns the end of a text, in whole characters.
fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(LOG_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
