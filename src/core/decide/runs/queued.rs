//! Which requests do the queued jobs of a run make by their labels? A job that says `runs-on: <run id>-<class>` needs no
//! other job that asks for its machine.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{
    Asked, ClassName, PoolSpec, Queue, Repository, Request, RequestKey, RequestName, RunId, of_run,
};
use crate::ports::github::{JobState, WorkflowJob, WorkflowRun};
use crate::yard::gives_back;

/// A label of a run that jobs have which run or wait for a runner, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLabel {
    /// The part of the label behind the run id, in lower case and without a class's extra label.
    pub name: String,
    /// How many jobs that have it wait for a runner, but for misfits.
    pub queued: u32,
    /// The runners of those that run.
    pub runners: Vec<String>,
    /// The request that it makes, or why it makes none.
    pub verdict: Result<Wanted, Unserved>,
    /// Where it makes one: how many further jobs wait that no runner of it can run, and why.
    pub misfits: Option<(u32, Unserved)>,
}

/// The request that a label makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the request.
    pub name: RequestName,
    /// The class that the label names.
    pub class: ClassName,
    /// The most machines that the class gives the label.
    pub most: Limit,
}

/// A limit of a class on the machines of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Its `max`.
    Max(u32),
    /// Its `queue.maxSlots`.
    MaxSlots(u32),
}

impl Limit {
    /// Returns how many machines it is.
    #[must_use]
    pub const fn machines(self) -> u32 {
        match self {
            Self::Max(most) | Self::MaxSlots(most) => most,
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Max(most) => write!(f, "max {most}"),
            Self::MaxSlots(most) => write!(f, "queue.maxSlots {most}"),
        }
    }
}

/// Why the jobs of a label get no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// No class has the name.
    #[error(
        "it names no class that serves labels; write <run id>-CLASS or <run id>-CLASS-NUMBER with a class whose \
         `queue.runLabels` is true"
    )]
    NoClass,
    /// The class that the label names serves no labels.
    #[error(
        "class {0} serves no labels; set `queue.runLabels: true` of the class (its `labelMode` must be `run`), or have \
         a job of the run ask for its machines"
    )]
    NoLabels(ClassName),
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
    /// The request of the label is over, and a request is never opened again.
    #[error("its request is over ({1}); a new attempt of the run gets another")]
    RequestOver(ClassName, String),
}

impl Unserved {
    /// Every reason, by its word.
    pub const REASONS: [&'static str; 7] =
        ["NoClass", "NoLabels", "TooLong", "NotAdmitted", "Fork", "MoreLabels", "RequestOver"];

    /// Returns the reason as a word.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoClass => "NoClass",
            Self::NoLabels(_) => "NoLabels",
            Self::TooLong(_) => "TooLong",
            Self::NotAdmitted(_) => "NotAdmitted",
            Self::Fork(_) => "Fork",
            Self::MoreLabels(..) => "MoreLabels",
            Self::RequestOver(..) => "RequestOver",
        }
    }

    /// Returns the class that the label names.
    #[must_use]
    pub const fn class(&self) -> Option<&ClassName> {
        match self {
            Self::NoClass => None,
            Self::NoLabels(class)
            | Self::TooLong(class)
            | Self::NotAdmitted(class)
            | Self::Fork(class)
            | Self::MoreLabels(class, _)
            | Self::RequestOver(class, _) => Some(class),
        }
    }
}

/// A job of a label.
struct Gathered<'a> {
    /// Its runner; none while it waits for one.
    runner: Option<&'a str>,
    /// The labels that it wants beside that.
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
    let mut found: BTreeMap<String, Vec<Gathered<'_>>> = BTreeMap::new();
    for job in jobs {
        let runner = match job.state {
            JobState::Queued => None,
            JobState::Active if job.runner.is_some() => job.runner.as_deref(),
            // An active job without a runner waits for an approval, or for another run.
            JobState::Active | JobState::Succeeded | JobState::Failed | JobState::Ended => continue,
        };
        let Some(own) = job.labels.iter().find_map(|label| of_run(label, &id)) else { continue };
        let own = base(own);
        let more = job.labels.iter().map(String::as_str).filter(|label| of_run(label, &id) != Some(own));
        let more = more.collect();
        found.entry(own.to_ascii_lowercase()).or_default().push(Gathered { runner, more });
    }
    let judged = found.into_iter().map(|(name, jobs)| judge(run, repository, name, jobs, classes.clone()));
    judged.collect()
}

/// Judges a label with its jobs: one whose further labels no runner has does not keep the others from machines.
fn judge<'a>(
    run: &WorkflowRun,
    repository: &Repository,
    name: String,
    jobs: Vec<Gathered<'_>>,
    classes: impl Iterator<Item = &'a PoolSpec>,
) -> RunLabel {
    let waiting = |jobs: &[Gathered<'_>]| number(jobs.iter().filter(|job| job.runner.is_none()).count());
    let label = |name, jobs: &[Gathered<'_>], verdict, misfits| {
        let runners = jobs.iter().filter_map(|job| job.runner.map(str::to_owned)).collect();
        RunLabel { name, queued: waiting(jobs), runners, verdict, misfits }
    };
    let (spec, queue, request) = match serving(run, repository, &name, classes) {
        Ok(serving) => serving,
        Err(why) => return label(name, &jobs, Err(why), None),
    };
    let (class, own) = (&spec.resource_class, format!("{}-{name}", run.id));
    let lacks = |job: &Gathered<'_>| lacking(spec, &own, job.more.iter().copied()).map(str::to_owned);
    let more = jobs.iter().find_map(lacks).map(|label| Unserved::MoreLabels(class.clone(), label));
    let (fit, misfit): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| lacks(job).is_none());
    if let (Some(why), true) = (&more, fit.is_empty()) {
        return label(name, &misfit, Err(why.clone()), None);
    }
    let (max, slots) = (spec.max.max(1), queue.max_slots.max(1));
    let most = if slots < max { Limit::MaxSlots(slots) } else { Limit::Max(max) };
    let wanted = Wanted { name: request, class: class.clone(), most };
    let misfits = more.map(|why| (waiting(&misfit), why)).filter(|(waiting, _)| *waiting > 0);
    label(name, &fit, Ok(wanted), misfits)
}

impl RunLabel {
    /// Returns how many of its jobs need a machine of its request: those that wait for a runner, and those that run. One
    /// that is listed as running in a claim that the request does not have any more needs none: GitHub misses a runner
    /// after some minutes only.
    #[must_use]
    pub fn jobs(&self, request: Option<&Request>) -> u32 {
        let has = |runner: &str| request.and_then(|request| request.has_runner(runner)).unwrap_or(true);
        let needs = |runner: &&String| has(runner);
        self.queued + number(self.runners.iter().filter(needs).count())
    }

    /// Returns how many machines its jobs need, as far as its class gives them.
    #[must_use]
    pub fn needed(&self, request: Option<&Request>) -> u32 {
        self.verdict.as_ref().map_or(0, |wanted| self.jobs(request).min(wanted.most.machines()))
    }
}

fn number(jobs: usize) -> u32 {
    u32::try_from(jobs).unwrap_or(u32::MAX)
}

/// Returns the id of a run as the records have it.
fn run_id(run: &WorkflowRun) -> RunId {
    RunId::parse(&run.id.to_string()).expect("a number is a run id")
}

/// Returns the part of a label before a class's extra label. Neither classes nor names of requests have a dot.
pub(crate) fn base(rest: &str) -> &str {
    rest.split('.').next().unwrap_or(rest)
}

/// Returns the class that serves a label of this run, with its settings and the name of the request.
fn serving<'a>(
    run: &WorkflowRun,
    repository: &Repository,
    rest: &str,
    classes: impl Iterator<Item = &'a PoolSpec>,
) -> Result<(&'a PoolSpec, &'a Queue, RequestName), Unserved> {
    // `small-1` is class `small-1` where that serves labels, and else the first machine of class `small`.
    let rank = |spec: &&PoolSpec| (spec.serves_labels().is_some(), spec.resource_class.as_str().len());
    let spec = classes.filter(|spec| spec.is_named_by(rest)).max_by_key(rank).ok_or(Unserved::NoClass)?;
    let class = spec.resource_class.clone();
    let Some(queue) = spec.serves_labels() else { return Err(Unserved::NoLabels(class)) };
    // It is the class's name and a number, so only its length can be wrong.
    let name = RequestName::parse(rest).map_err(|_| Unserved::TooLong(class.clone()))?;
    if !spec.admits(repository) {
        return Err(Unserved::NotAdmitted(class));
    }
    if !run.own && !queue.forks {
        return Err(Unserved::Fork(class));
    }
    Ok((spec, queue, name))
}

/// Returns the first of a job's labels that the runners of a request with the label `own` lack.
pub(crate) fn lacking<'a>(
    spec: &PoolSpec,
    own: &str,
    mut labels: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let has = |label: &str| {
        let extra = |extra: &String| {
            let bound = [format!("{own}.{extra}"), format!("{own}-{extra}")];
            bound.iter().any(|bound| label.eq_ignore_ascii_case(bound))
        };
        label.eq_ignore_ascii_case(own) || spec.labels.iter().any(extra)
    };
    labels.find(|label| !has(label))
}

/// What is to be done for a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForLabel<'a> {
    /// The request is written.
    Create(&'a Wanted),
    /// Its jobs need this many machines, more than its request wants by now.
    Raise(u32),
    /// Its workflow made the request itself, it wants all the machines that its jobs need, or no job waits.
    Nothing,
    /// Jobs with it wait, and get no machine.
    NotServed(Unserved),
}

/// Decides about a label, given the record of its request. What a workflow asked for itself is left to it; so is a label
/// that names no class in a run whose workflow asks for machines itself, as it may be an extra label of a class.
#[must_use]
pub fn for_label<'a>(label: &'a RunLabel, record: Option<&Request>, asks_itself: bool) -> ForLabel<'a> {
    let refused = |why: Unserved| if label.queued > 0 { ForLabel::NotServed(why) } else { ForLabel::Nothing };
    let wanted = match &label.verdict {
        Ok(wanted) => wanted,
        Err(Unserved::NoClass | Unserved::NoLabels(_)) if asks_itself => return ForLabel::Nothing,
        Err(why) => return refused(why.clone()),
    };
    let Some(request) = record else {
        return if label.queued > 0 { ForLabel::Create(wanted) } else { ForLabel::Nothing };
    };
    match request.intent.asked {
        Asked::Job => {}
        Asked::Verb | Asked::Rerun | Asked::Set => return ForLabel::Nothing,
    }
    if gives_back(request) {
        return refused(Unserved::RequestOver(wanted.class.clone(), ended(request)));
    }
    let written = request.written.as_deref().unwrap_or(&request.intent);
    let wants = written.wanted.map_or(written.count, |wanted| wanted.min(written.count));
    let needed = label.needed(record);
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
        if request.intent.asked != Asked::Job || gives_back(request) || jobs >= request.wanted() {
            *self = Self::default();
            return None;
        }
        let since = *self.since.get_or_insert(now);
        self.most = self.most.max(jobs);
        let over = now.saturating_sub(since) >= UNNEEDED;
        over.then(|| std::mem::take(self).most)
    }
}

/// Describes how a request that takes no more machines ended.
pub(crate) fn ended(request: &Request) -> String {
    let phase = request.phase();
    let by = request.status.released_by.map_or(String::new(), |by| format!(", by {by}"));
    match request.status.message.as_str() {
        "" => format!("{phase}{by}"),
        message => format!("{phase}{by}: {message}"),
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
