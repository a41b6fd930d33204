//! Explains a workflow run at GitHub: what becomes of each of its jobs, by the judgement with which the operator makes
//! the requests of their labels ([`crate::decide::for_label`]).

use crate::decide::{
    ForLabel, Limit, RunLabel, Unserved, base, ended, for_label, key_of, lacking, run_labels,
};
use crate::model::{
    Asked, ClassName, PoolSpec, RecordId, Repository, Request, RequestKey, RunId, SetPlace,
    machine_of_runner, of_run,
};
use crate::ports::github::{JobState, RunState, WorkflowJob, WorkflowRun};
use crate::yard::{Tracked, Yard, gives_back};

use super::SetReport;

/// The least digits of the number of a run at GitHub: shorter numbers may begin the label of a hosted runner.
const RUN_DIGITS: usize = 8;

/// What becomes of a job of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFate {
    /// The state of the job: `queued`, `waiting` (for something other than a runner), `running`, `succeeded`, `failed`
    /// or `ended`.
    pub state: &'static str,
    /// The reason, as a word.
    pub reason: &'static str,
    /// The class that serves it, or that its label names.
    pub class: Option<ClassName>,
    /// The request under which it is served, written or not.
    pub request: Option<RequestKey>,
    /// The same in a sentence.
    pub message: String,
}

/// A run with what the yard knows of it.
struct Judged<'a> {
    yard: &'a Yard,
    run: &'a WorkflowRun,
    repository: &'a Repository,
    over: bool,
    /// The requests of the run, of all its attempts.
    requests: Vec<&'a Request>,
    labels: Vec<RunLabel>,
}

/// Explains the jobs of a run, in their order.
///
/// # Assumes
/// `jobs` are those of the run's latest attempt.
#[must_use]
pub fn job_fates(
    yard: &Yard,
    repository: &Repository,
    run: &WorkflowRun,
    state: RunState,
    jobs: &[WorkflowJob],
) -> Vec<JobFate> {
    let requests = requests_of_run(yard, repository, &run.id.to_string());
    let pools = yard.classes().filter_map(|(_, class)| class.pool.as_ref());
    let specs: Vec<&PoolSpec> = pools.map(|pool| &pool.spec).collect();
    let labels = run_labels(run, repository, jobs, specs.iter().copied());
    let over = match state {
        RunState::Completed { .. } => true,
        RunState::Active { .. } => false,
    };
    let judged = Judged { yard, run, repository, over, requests, labels };
    jobs.iter().map(|job| judged.fate(job)).collect()
}

/// Returns the requests of a run, of all its attempts, the latest first.
#[must_use]
pub fn requests_of_run<'a>(yard: &'a Yard, repository: &Repository, run_id: &str) -> Vec<&'a Request> {
    let of_run = |key: &RequestKey| key.repository.is(repository) && key.run_id.as_str() == run_id;
    let mut requests: Vec<&Request> =
        yard.requests().filter(|(key, _)| of_run(key)).map(|(_, request)| request).collect();
    requests.sort_by_key(|request| (std::cmp::Reverse(request.id.attempt), request.id.name.clone()));
    requests
}

impl<'a> Judged<'a> {
    fn fate(&self, job: &WorkflowJob) -> JobFate {
        match job.state {
            JobState::Queued if self.over => told(
                "queued",
                "RunOver",
                "the run is over: its machines were given back, and no job of it runs",
            ),
            JobState::Queued => self.queued(job),
            JobState::Active => match &job.runner {
                Some(runner) => self.on_runner("running", "Runs", "runs", runner),
                None => told(
                    "waiting",
                    "NotQueued",
                    "waits for an approval, another job or another run; machines are asked for once it is queued",
                ),
            },
            JobState::Succeeded => self.over_on("succeeded", job),
            JobState::Failed => self.over_on("failed", job),
            JobState::Ended => self.over_on("ended", job),
        }
    }

    fn over_on(&self, state: &'static str, job: &WorkflowJob) -> JobFate {
        match job.runner.as_deref().filter(|runner| !runner.is_empty()) {
            Some(runner) => self.on_runner(state, "Ended", state, runner),
            None => told(state, "Ended", format!("{state} without a runner")),
        }
    }

    /// Describes the runner of a job, which is a machine of the yard if it has such a name.
    fn on_runner(&self, state: &'static str, reason: &'static str, does: &str, runner: &str) -> JobFate {
        let Some(machine) = machine_of_runner(runner) else {
            return told(state, reason, format!("{does} on runner {runner}, which is no machine of Runyard"));
        };
        let Some(tracked) = self.yard.by_id(&machine) else {
            return told(state, reason, format!("{does} on machine {machine}, which has no record any more"));
        };
        let request = self.request_on(tracked);
        let class = tracked.instance.facts.resource_class.clone();
        let slot = tracked.instance.held_by().and_then(RecordId::request).filter(|key| key.set().is_some());
        let of = match (&request, slot) {
            (Some(key), _) => format!(" under request {key}"),
            (None, Some(slot)) => format!(", a runner of {}", self.set_of(&class, slot)),
            (None, None) => String::new(),
        };
        let message = format!("{does} on machine {machine} of class {class}{of}");
        JobFate {
            class: Some(class),
            request: request.or_else(|| slot.cloned()),
            ..told(state, reason, message)
        }
    }

    /// Names the scale set of a slot.
    fn set_of(&self, class: &ClassName, slot: &RequestKey) -> String {
        let place = SetPlace::repository(&slot.repository);
        let key = Some((class.clone(), place.clone()));
        let name = self.yard.sets().find(|set| set.key == key && set.scale_set_id == slot.set());
        let name = name.map_or_else(|| slot.run_id.to_string(), |set| set.set_name.clone());
        format!("scale set {name} at {place}")
    }

    /// Judges a job that a scale set serves: GitHub gives it to a set that has all of its labels.
    fn by_set(&self, job: &WorkflowJob) -> Option<JobFate> {
        let (repository, owner) = (self.repository.folded(), self.repository.owner());
        let is_here =
            |set: &&SetReport| set.place == repository.as_str() || set.place.eq_ignore_ascii_case(owner);
        let has_labels = |set: &&SetReport| {
            let pool = self.yard.pool(&set.resource_class);
            let queue = pool.and_then(|pool| pool.spec.serves_sets());
            let labels = queue.map_or(&[][..], |queue| &queue.labels);
            !job.labels.is_empty()
                && job.labels.iter().all(|wanted| labels.iter().any(|one| one.eq_ignore_ascii_case(wanted)))
        };
        let sets = super::sets(self.yard);
        let set = sets.iter().filter(is_here).find(has_labels)?;
        let (class, name, place) = (&set.resource_class, &set.set_name, &set.place);
        let mut message = format!("waits for a runner of scale set {name} at {place}, of class {class}");
        for lack in &set.lacks {
            message.push_str(&format!("; {lack}"));
        }
        Some(JobFate { class: Some(class.clone()), ..told("queued", "InScaleSet", message) })
    }

    /// Returns the request of this run that a machine serves or served.
    fn request_on(&self, tracked: &Tracked) -> Option<RequestKey> {
        let instance = &tracked.instance;
        let held = instance.held_by().and_then(RecordId::request).cloned();
        let served = || {
            let id = &instance.facts.instance_id;
            let mut serving = self.requests.iter().filter(|request| request.status.served.contains(id));
            serving.next().map(|request| request.id.clone())
        };
        held.filter(|key| self.requests.iter().any(|request| request.id == *key)).or_else(served)
    }

    fn queued(&self, job: &WorkflowJob) -> JobFate {
        let mut asked = self.of_attempt().filter(|request| request.intent.asked != Asked::Job);
        if let Some(request) = asked.find(|request| self.wants(job, request)) {
            return self.by_request(job, request);
        }
        let id = RunId::parse(&self.run.id.to_string()).expect("a number is a run id");
        let own = job.labels.iter().find_map(|label| of_run(label, &id));
        let own = own.map(|rest| base(rest).to_ascii_lowercase());
        match self.labels.iter().find(|label| Some(&label.name) == own.as_ref()) {
            Some(label) => self.misfit(job, label).unwrap_or_else(|| self.by_label(label)),
            None => self.by_set(job).unwrap_or_else(|| self.by_no_label(job, &id)),
        }
    }

    /// Returns the requests of the run's latest attempt.
    fn of_attempt(&self) -> impl Iterator<Item = &'a Request> {
        self.requests.iter().copied().filter(|request| request.id.attempt == self.run.attempt)
    }

    /// Returns whether one of a job's labels is that of a request, or one of its class's extra labels bound to it.
    fn wants(&self, job: &WorkflowJob, request: &Request) -> bool {
        let extras = self.spec(request).map_or(&[][..], |spec| &spec.labels[..]);
        let labels = request.labels(extras);
        job.labels.iter().any(|wanted| labels.iter().any(|label| label.eq_ignore_ascii_case(wanted)))
    }

    fn spec(&self, request: &Request) -> Option<&'a PoolSpec> {
        self.yard.pool(&Yard::class_of(request)?).map(|pool| &pool.spec)
    }

    /// Judges a job by the request that its workflow made itself.
    fn by_request(&self, job: &WorkflowJob, request: &Request) -> JobFate {
        let Some(class) = Yard::class_of(request) else { return self.served(request, None) };
        let why = if gives_back(request) {
            Some(Unserved::RequestOver(class, ended(request)))
        } else {
            let spec = self.spec(request);
            let labels = job.labels.iter().map(String::as_str);
            let lacks = spec.and_then(|spec| lacking(spec, &request.label(), labels));
            lacks.map(|label| Unserved::MoreLabels(class, label.to_owned()))
        };
        match why {
            Some(why) => JobFate { request: Some(request.id.clone()), ..unserved(&why) },
            None => self.served(request, None),
        }
    }

    /// Judges a job that wants further labels, which no runner of the class that its label names has.
    fn misfit(&self, job: &WorkflowJob, label: &RunLabel) -> Option<JobFate> {
        let wanted = label.verdict.as_ref().ok()?;
        let spec = &self.yard.pool(&wanted.class)?.spec;
        let own = format!("{}-{}", self.run.id, label.name);
        let lacks = lacking(spec, &own, job.labels.iter().map(String::as_str))?;
        Some(unserved(&Unserved::MoreLabels(wanted.class.clone(), lacks.to_owned())))
    }

    /// Judges a job by its label, as the operator does.
    fn by_label(&self, label: &RunLabel) -> JobFate {
        let wanted = label.verdict.as_ref().ok();
        let record = wanted.and_then(|wanted| self.of_attempt().find(|one| one.id.name == wanted.name));
        let asks_itself = self.requests.iter().any(|request| request.intent.asked == Asked::Verb);
        match (for_label(label, record, asks_itself), record) {
            (ForLabel::Create(wanted), _) => {
                let (count, class) = (label.needed(None), &wanted.class);
                let message = format!(
                    "no request has its label yet: the operator asks for {count} of class {class} when it next looks at \
                     the repository (github.run_poll)"
                );
                JobFate {
                    class: Some(class.clone()),
                    request: Some(key_of(self.run, self.repository, &wanted.name)),
                    ..told("queued", "NotAskedYet", message)
                }
            }
            (ForLabel::NotServed(why), _) => {
                JobFate { request: record.map(|request| request.id.clone()), ..unserved(&why) }
            }
            (ForLabel::Raise(_) | ForLabel::Nothing, Some(request)) => {
                let jobs = label.jobs(record);
                let limit = wanted.map(|wanted| wanted.most).filter(|most| jobs > most.machines());
                self.served(request, limit.map(|limit| (limit, jobs)))
            }
            (ForLabel::Raise(_) | ForLabel::Nothing, None) => self.no_request(),
        }
    }

    fn served(&self, request: &Request, limit: Option<(Limit, u32)>) -> JobFate {
        let (held, count) = (request.status.instances.len(), request.intent.count);
        let mut message =
            format!("waits for a machine of request {}: {}, {held} of {count}", request.id, request.phase());
        if let Some((limit, jobs)) = limit {
            message.push_str(&format!(
                "; {jobs} jobs have its label and its class gives a label no more ({limit}), so it may wait until another \
                 of them ends"
            ));
        }
        JobFate {
            class: Yard::class_of(request),
            request: Some(request.id.clone()),
            ..told("queued", "Served", message)
        }
    }

    fn no_request(&self) -> JobFate {
        let attempt = self.run.attempt;
        let labels: Vec<String> = self.of_attempt().map(Request::public_label).collect();
        let known = if labels.is_empty() {
            "has none".to_owned()
        } else {
            format!("has those with the labels {}", labels.join(", "))
        };
        told(
            "queued",
            "NoRequest",
            format!(
                "no request of the run has its label (attempt {attempt} {known}); a job of the run must ask for it by \
                 `runyard provision`, whose output `label` is the one to use"
            ),
        )
    }

    /// Judges a job none of whose labels is `<run id>-…`.
    fn by_no_label(&self, job: &WorkflowJob, id: &RunId) -> JobFate {
        if job.labels.iter().any(|label| base(label) == id.as_str()) {
            return self.no_request();
        }
        let other = |label: &&String| {
            let number = label.split(['-', '.']).next().unwrap_or_default();
            number.len() >= RUN_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let write = format!("for a machine of this yard its label is {id}-CLASS");
        if let Some(label) = job.labels.iter().find(other) {
            let message = format!(
                "its label {label} is of another run, whose machines take no job of this one; {write}"
            );
            return told("queued", "OtherRun", message);
        }
        if job.labels.iter().any(|label| label.eq_ignore_ascii_case("self-hosted")) {
            let message =
                format!("waits for another self-hosted runner: none of its labels is of this run; {write}");
            return told("queued", "OtherRunner", message);
        }
        told(
            "queued",
            "HostedRunner",
            format!("waits for a hosted runner: none of its labels is of this run; {write}"),
        )
    }
}

fn unserved(why: &Unserved) -> JobFate {
    let message = format!("gets no machine: {why}");
    JobFate { class: why.class().cloned(), ..told("queued", why.reason(), message) }
}

fn told(state: &'static str, reason: &'static str, message: impl Into<String>) -> JobFate {
    JobFate { state, reason, class: None, request: None, message: message.into() }
}

#[cfg(test)]
mod tests;
