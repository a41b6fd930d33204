//! Runners and jobs of scale sets: the service is told what becomes of them here, and its runners are registered as any
//! other.

use jiff::Timestamp;

use super::State;
use super::registry::Registration;
use super::scale_sets::{JobWish, ScaleSetService, SetRefusal};
use super::types::{Conclusion, Job, JobId, JobStatus, Refusal, RegisteredRunner, RunnerId, TokenKind};

impl State {
    /// Returns the service of scale sets.
    #[must_use]
    pub fn scale_sets(&self) -> &ScaleSetService {
        &self.scale_sets
    }

    /// Calls the service, after it was told what became of runners and jobs.
    pub fn change_scale_sets<T>(&mut self, now: Timestamp, act: impl FnOnce(&mut ScaleSetService) -> T) -> T {
        self.tick(now);
        self.in_scale_sets(act)
    }

    /// Ends the tokens with which the service is called.
    pub fn revoke_service_tokens(&mut self) {
        self.tokens.retain(|token| token.kind != TokenKind::Service);
        self.changed();
    }

    /// Creates a single-use runner of a set.
    ///
    /// # Errors
    /// There is no such set, a runner of this name exists, or a name that GitHub would not accept.
    pub fn create_set_runner(
        &mut self,
        scope: &str,
        set: u64,
        name: &str,
        credential: String,
        now: Timestamp,
    ) -> Result<RegisteredRunner, SetRefusal> {
        self.tick(now);
        let set = self.scale_sets.set_in(scope, set)?.clone();
        let registration = Registration {
            scope: set.scope,
            name: name.to_owned(),
            labels: set.labels,
            group_id: set.group_id,
            ..Registration::default()
        };
        let made = self.create_single_use(registration, credential, now).map_err(as_service)?;
        self.in_scale_sets(|service| service.add_runner(set.id, made.id, name))?;
        let runner = self.runners.get_mut(&made.id).ok_or(SetRefusal::NoRunner(made.id))?;
        runner.scale_set = Some(set.id);
        Ok(runner.clone())
    }

    /// Removes a runner of a set. A job on its way to it lapses, and goes to another one.
    ///
    /// # Errors
    /// There is none, or it has begun a job.
    pub fn remove_set_runner(&mut self, scope: &str, id: RunnerId, now: Timestamp) -> Result<(), SetRefusal> {
        self.tick(now);
        self.in_scale_sets(|service| service.remove_runner(scope, id, now))?;
        self.end_session(id, now);
        self.runners.remove(&id);
        Ok(())
    }

    /// Tells the service what became of jobs and runners since it was last told.
    pub(super) fn tell_scale_sets(&mut self, now: Timestamp) {
        if self.scale_sets.is_empty() {
            return;
        }
        let Self { scale_sets: service, jobs, runners, .. } = self;
        let before = service.revision();
        for job in jobs.values() {
            tell_job(service, job, now);
        }
        let forgotten = service.jobs().map(|job| job.facts.number).filter(|job| !jobs.contains_key(job));
        for job in forgotten.collect::<Vec<JobId>>() {
            service.job_ends(job, "canceled", now);
        }
        let gone = service.runners().map(|runner| runner.id).filter(|id| !runners.contains_key(id));
        for id in gone.collect::<Vec<RunnerId>>() {
            service.runner_goes(id, now);
        }
        service.tick(now);
        if service.revision() != before {
            self.changed();
        }
    }

    /// Calls the service, and forgets the runners that it forgot.
    fn in_scale_sets<T>(&mut self, act: impl FnOnce(&mut ScaleSetService) -> T) -> T {
        let before = self.scale_sets.revision();
        let outcome = act(&mut self.scale_sets);
        if self.scale_sets.revision() != before {
            let known = |id: RunnerId| self.scale_sets.runners().any(|runner| runner.id == id);
            self.runners.retain(|id, runner| runner.scale_set.is_none() || runner.busy() || known(*id));
            self.changed();
        }
        outcome
    }
}

fn tell_job(service: &mut ScaleSetService, job: &Job, now: Timestamp) {
    let known = service.job(job.id).is_some();
    match job.status {
        JobStatus::Queued if known => service.job_returns(job.id, now),
        JobStatus::Queued => service.queue_job(job.id, wish(job), now),
        JobStatus::Assigned | JobStatus::InProgress if !service.holds(job.id) => {
            // A runner without a set has it: it is no set's any more.
            service.job_ends(job.id, "canceled", now);
        }
        JobStatus::Assigned => {}
        JobStatus::InProgress => service.job_starts(job.id, now),
        JobStatus::Completed(conclusion) if known => service.job_ends(job.id, result(conclusion), now),
        JobStatus::Completed(_) => {}
    }
}

fn wish(job: &Job) -> JobWish {
    let (owner, repository) = job.repository.split_once('/').unwrap_or((&job.repository, ""));
    JobWish {
        owner: owner.to_owned(),
        repository: repository.to_owned(),
        run_id: job.run_id,
        name: job.spec.name.clone(),
        labels: job.spec.runs_on.clone(),
    }
}

fn result(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Success => "succeeded",
        Conclusion::Failure => "failed",
        Conclusion::Cancelled => "canceled",
        Conclusion::Lost => "abandoned",
    }
}

fn as_service(refusal: Refusal) -> SetRefusal {
    match refusal {
        Refusal::NameTaken(name) => SetRefusal::RunnerExists(name),
        Refusal::Unauthorized
        | Refusal::NotFound
        | Refusal::Busy(_)
        | Refusal::Forbidden(_)
        | Refusal::Deprecated(_)
        | Refusal::NoToken
        | Refusal::SessionConflict
        | Refusal::NotYours
        | Refusal::Invalid(_) => SetRefusal::Invalid(refusal.to_string()),
    }
}
