//! Does a later attempt of a run need machines that no job will request? "Re-run failed jobs" runs only the jobs that
//! failed and those that need them; the job that requested the machines succeeded before and does not run again. That
//! job is not known by name: it is one that succeeded before any job began on the machines, by GitHub's own times.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{ClaimId, Request, after, runner_name};
use crate::ports::github::{JobState, WorkflowJob, WorkflowRun};

/// The largest assumed difference between GitHub's clock and the operator's.
const CLOCKS: Duration = Duration::from_secs(120);

/// The outcome for a later attempt of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// No job waits for the request's label.
    NoneWaits,
    /// Its workflow may still write its own request.
    AsksItself,
    /// Jobs wait, no job is left that could request machines, and nothing proves that the requesting job was carried
    /// over.
    NobodyAsks,
    /// The attempt gets machines for this many waiting jobs.
    Serve(u32),
}

/// Decides which machines a later attempt of a run gets.
///
/// # Assumes
/// `original` is the last request that the workflow wrote itself, `earlier` are the jobs of its attempt, and `jobs` are
/// those of the run's attempt, for which no request is known.
#[must_use]
pub fn rerun(original: &Request, earlier: &[WorkflowJob], run: &WorkflowRun, jobs: &[WorkflowJob]) -> Rerun {
    let label = original.label();
    let ours = |job: &&WorkflowJob| asks_for(job, &label);
    let waiting = jobs.iter().filter(ours).filter(|job| job.state == JobState::Queued).count();
    if waiting == 0 {
        return Rerun::NoneWaits;
    }
    let runs_again = |name: &str| jobs.iter().any(|job| job.name == name && !carried_over(job, run));
    let began = earlier.iter().filter(ours).filter_map(|job| job.started_at).min();
    let may_have_asked = |job: &&WorkflowJob| {
        let before = job.completed_at.zip(began).is_some_and(|(ended, began)| ended <= began);
        !asks_for(job, &label) && job.state == JobState::Succeeded && before
    };
    if earlier.iter().filter(may_have_asked).any(|job| !runs_again(&job.name)) {
        return Rerun::Serve(u32::try_from(waiting).unwrap_or(u32::MAX));
    }
    let unfinished = |job: &WorkflowJob| match job.state {
        JobState::Queued | JobState::Active => !asks_for(job, &label),
        JobState::Succeeded | JobState::Failed | JobState::Ended => false,
    };
    if jobs.iter().any(unfinished) { Rerun::AsksItself } else { Rerun::NobodyAsks }
}

/// Returns whether a job failed on one of these machines, each given with the time of its loss.
#[must_use]
pub fn failed_with(lost: &[(ClaimId, Timestamp)], jobs: &[WorkflowJob]) -> bool {
    let on = |job: &WorkflowJob, claim: &ClaimId| {
        let first = runner_name(claim, 1);
        let rest = job.runner.as_deref().and_then(|runner| runner.strip_prefix(&first));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let later =
        |job: &WorkflowJob, at: Timestamp| job.completed_at.is_none_or(|ended| after(ended, CLOCKS) >= at);
    let mut failed = jobs.iter().filter(|job| job.state == JobState::Failed);
    failed.any(|job| lost.iter().any(|(claim, at)| on(job, claim) && later(job, *at)))
}

/// Returns whether a job wants a runner with this label, or with one of the class's extra labels behind it.
fn asks_for(job: &WorkflowJob, label: &str) -> bool {
    job.labels.iter().any(|wanted| {
        let (own, rest) = (wanted.get(..label.len()), wanted.get(label.len()..));
        own.is_some_and(|own| own.eq_ignore_ascii_case(label))
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns whether a job is listed in the attempt without having run in it. GitHub's times are whole seconds, and no
/// job runs within the second in which its attempt began.
fn carried_over(job: &WorkflowJob, run: &WorkflowRun) -> bool {
    let before = |(ended, began): (Timestamp, Timestamp)| ended <= began;
    job.attempt < run.attempt || job.completed_at.zip(run.started_at).is_some_and(before)
}

#[cfg(test)]
mod tests;
