//! Which requests do the queued jobs of a run make by their labels? A job that says `runs-on: <run id>-<class>` needs no
//! other job that asks for its machine.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Asked, ClassName, PoolSpec, Repository, Request, RequestKey, RequestName, RunId, of_run};
use crate::ports::github::{JobState, WorkflowJob, WorkflowRun};

/// A label of a run that jobs have which run or wait for a runner, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLabel {
    /// The part of the label behind the run id, in lower case and without a class's extra label.
    pub name: String,
    /// The jobs that have it and run or wait for a runner.
    pub jobs: u32,
    /// Those of them that wait for a runner.
    pub queued: u32,
    /// The request that it makes, or why it makes none.
    pub verdict: Result<Wanted, Unserved>,
}

/// The request that a label makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the request.
    pub name: RequestName,
    /// The class that the label names.
    pub class: ClassName,
    /// How many machines: one for each of these jobs, within the limits of the class.
    pub count: u32,
}

/// Why a label makes no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// No class that serves labels has the name.
    #[error(
        "it names no class that serves labels; write <run id>-CLASS or <run id>-CLASS-NUMBER with a class whose \
         `queue.runLabels` is true"
    )]
    NoClass,
    /// The class's name and the number are together longer than the name of a request may be.
    #[error(
        "with class {0} it is longer than 40 characters behind the run id; leave the number out, or shorten it"
    )]
    TooLong(ClassName),
    /// The class does not admit the repository.
    #[error("class {0} does not admit this repository; add it to `repositories` of the class")]
    NotAdmitted(ClassName),
    /// The run is that of a pull request from a fork.
    #[error(
        "the run has the code of a fork, for which class {0} makes no request; `queue.forks: true` lets it"
    )]
    Fork(ClassName),
    /// The jobs want labels that no runner of the class has.
    #[error("no runner of class {0} has the label {1:?} too; a job needs its run's label alone")]
    MoreLabels(ClassName, String),
}

/// Where the jobs of a label are gathered.
#[derive(Default)]
struct Gathered<'a> {
    jobs: u32,
    queued: u32,
    /// The labels that jobs want beside it.
    more: Vec<&'a str>,
}

/// Judges the labels of this run that its jobs have which run or wait for a runner.
///
/// # Assumes
/// `classes` are all classes of the yard, and `jobs` those of the run's latest attempt.
#[must_use]
pub fn run_labels<'a>(
    run: &WorkflowRun,
    repository: &Repository,
    jobs: &[WorkflowJob],
    classes: impl Iterator<Item = &'a PoolSpec> + Clone,
) -> Vec<RunLabel> {
    let id = run_id(run);
    let mut found: BTreeMap<String, Gathered<'_>> = BTreeMap::new();
    for job in jobs {
        let waits = match job.state {
            JobState::Queued => 1,
            JobState::Active if job.runner.is_some() => 0,
            // An active job without a runner waits for an approval, or for another run.
            JobState::Active | JobState::Succeeded | JobState::Failed | JobState::Ended => continue,
        };
        let Some(own) = job.labels.iter().find_map(|label| of_run(label, &id)) else { continue };
        let own = base(own);
        let gathered = found.entry(own.to_ascii_lowercase()).or_default();
        gathered.jobs += 1;
        gathered.queued += waits;
        let more = job.labels.iter().map(String::as_str).filter(|label| of_run(label, &id) != Some(own));
        gathered.more.extend(more);
    }
    let judged = found.into_iter().map(|(name, gathered)| RunLabel {
        jobs: gathered.jobs,
        queued: gathered.queued,
        verdict: verdict(run, repository, &name, &gathered, classes.clone()),
        name,
    });
    judged.collect()
}

/// Returns the id of a run as the records have it.
fn run_id(run: &WorkflowRun) -> RunId {
    RunId::parse(&run.id.to_string()).expect("a number is a run id")
}

/// Returns the part of a label before a class's extra label. Neither classes nor names of requests have a dot.
fn base(rest: &str) -> &str {
    rest.split('.').next().unwrap_or(rest)
}

fn verdict<'a>(
    run: &WorkflowRun,
    repository: &Repository,
    rest: &str,
    gathered: &Gathered<'_>,
    classes: impl Iterator<Item = &'a PoolSpec>,
) -> Result<Wanted, Unserved> {
    let named = classes.filter(|spec| spec.serves_labels().is_some() && spec.is_named_by(rest));
    // `small-1` is class `small-1` where there is one, and else the first machine of class `small`.
    let spec = named.max_by_key(|spec| spec.resource_class.as_str().len()).ok_or(Unserved::NoClass)?;
    let queue = spec.serves_labels().ok_or(Unserved::NoClass)?;
    let class = spec.resource_class.clone();
    // It is the class's name and a number, so only its length can be wrong.
    let name = RequestName::parse(rest).map_err(|_| Unserved::TooLong(class.clone()))?;
    if !spec.admits(repository) {
        return Err(Unserved::NotAdmitted(class));
    }
    if !run.own && !queue.forks {
        return Err(Unserved::Fork(class));
    }
    if let Some(label) = gathered.more.iter().find(|label| !has(spec, run, rest, label)) {
        return Err(Unserved::MoreLabels(class, (*label).to_owned()));
    }
    let most = spec.max.min(queue.max_slots).max(1);
    Ok(Wanted { name, class, count: gathered.jobs.min(most) })
}

/// Returns whether the runners of a class's request have this label beside the request's own.
fn has(spec: &PoolSpec, run: &WorkflowRun, rest: &str, label: &str) -> bool {
    let own = format!("{}-{rest}", run.id);
    let extra = |extra: &String| {
        let [dotted, dashed] = [format!("{own}.{extra}"), format!("{own}-{extra}")];
        label.eq_ignore_ascii_case(&dotted) || label.eq_ignore_ascii_case(&dashed)
    };
    label.eq_ignore_ascii_case(&own) || spec.labels.iter().any(extra)
}

/// What is to be done for a label that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForLabel {
    /// The request is written.
    Create,
    /// Its jobs need this many machines, more than it wants by now.
    Raise(u32),
    /// Its workflow made it, or it wants all the machines that its jobs need.
    Nothing,
    /// It is over while jobs wait, and a request is never opened again.
    Over,
}

/// Decides about the request of a label, given its record. What a workflow asked for itself is left to it. A request that
/// rests after its maximum runtime gets machines for jobs that wait alone: those that it served are listed as running
/// until GitHub misses their runners.
#[must_use]
pub fn for_label(label: &RunLabel, wanted: &Wanted, record: Option<&Request>) -> ForLabel {
    let Some(request) = record else {
        return if label.queued > 0 { ForLabel::Create } else { ForLabel::Nothing };
    };
    match request.intent.asked {
        Asked::Job => {}
        Asked::Verb | Asked::Rerun | Asked::Set => return ForLabel::Nothing,
    }
    if request.is_released() || !request.phase().wants_machines() {
        return if label.queued > 0 { ForLabel::Over } else { ForLabel::Nothing };
    }
    let written = request.written.as_deref().unwrap_or(&request.intent);
    let wants = written.wanted.map_or(written.count, |wanted| wanted.min(written.count));
    let needed = if request.rests() { wanted.count.min(label.queued) } else { wanted.count };
    if needed > wants { ForLabel::Raise(needed) } else { ForLabel::Nothing }
}

/// For how long fewer jobs must need a machine before one is given back: the next job of a run often comes soon, and its
/// machine is prepared.
const UNNEEDED: Duration = Duration::from_secs(5 * 60);

/// How many machines the jobs of a label have needed since they last needed all that their request wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    since: Option<Duration>,
    most: u32,
}

impl Needed {
    /// Takes in how many machines its jobs need now, and returns how many its request wants from now on, if fewer. `now`
    /// is on the monotonic clock.
    pub fn lowered(&mut self, request: &Request, jobs: u32, now: Duration) -> Option<u32> {
        let (made, open) = (request.intent.asked == Asked::Job, request.phase().wants_machines());
        if !made || !open || request.is_released() || jobs >= request.wanted() {
            *self = Self::default();
            return None;
        }
        let since = *self.since.get_or_insert(now);
        self.most = self.most.max(jobs);
        let over = now.saturating_sub(since) >= UNNEEDED;
        over.then(|| std::mem::take(self).most)
    }
}

/// Returns the key of the request that a label makes.
#[must_use]
pub fn key_of(run: &WorkflowRun, repository: &Repository, name: &RequestName) -> RequestKey {
    RequestKey {
        repository: repository.folded(),
        run_id: run_id(run),
        name: name.clone(),
        attempt: run.attempt,
    }
}

#[cfg(test)]
mod tests;
