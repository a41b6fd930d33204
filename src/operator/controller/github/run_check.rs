//! Checks that a request's run exists. A writer of requests can name any run id, and jobs are matched by its label. So
//! before a credential is issued, GitHub must confirm that the request's repository has this run and attempt.
//!
//! Only GitHub's responses about the run refuse a request. A 401 or a 403 concerns the operator's credential, and so
//! may a 404, which counts only while the same credential can list the runs of that repository.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;

use super::answers::Answers;
use crate::model::RequestKey;
use crate::ports::github::{Listed, RunState, Waiting, WorkflowRun};
use crate::ports::{Clock, GitHub, GitHubError};

/// How long a run that was active is cached as such.
const KEPT: Duration = Duration::from_secs(300);
/// Number of negative responses of GitHub that refuse a request: its responses lag behind a run that just started.
const REFUSALS: u32 = 3;
/// The period over which they must occur, if GitHub returns the run.
const LAG: Duration = Duration::from_secs(10);
/// The period over which they must occur, if GitHub has no such run.
const UNKNOWN: Duration = Duration::from_secs(60);
/// How long a repository whose runs could be listed counts as visible.
const VISIBLE: Duration = Duration::from_secs(5);

/// A run: the owner and the name of its repository, in lower case, and its number.
type Run = (String, String, u64);

/// The reason why a request gets no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunProblem {
    /// GitHub gave no usable response.
    #[error(transparent)]
    GitHub(GitHubError),
    /// GitHub does not have the run yet; ask again.
    #[error("{0}")]
    Doubtful(String),
    /// GitHub still does not have the run: the request is refused.
    #[error("{0}")]
    Refused(String),
}

/// Looks runs up at GitHub and caches the responses.
pub(crate) struct RunCheck {
    github: Arc<dyn GitHub>,
    clock: Arc<dyn Clock>,
    seen: Answers<Run, (RunState, Duration), GitHubError>,
    /// The time of the last successful list of a repository's runs, by owner and name.
    visible: Answers<(String, String), Duration, GitHubError>,
    /// The number of negative responses, and the time of the first.
    refusals: Mutex<BTreeMap<RequestKey, (u32, Duration)>>,
}

impl RunCheck {
    pub(crate) fn new(github: Arc<dyn GitHub>, clock: Arc<dyn Clock>) -> Self {
        let (seen, visible) = (Answers::default(), Answers::default());
        Self { github, clock, seen, visible, refusals: Mutex::default() }
    }

    /// Returns whether GitHub confirmed the run recently; makes no call.
    pub(crate) fn confirmed(&self, id: &RequestKey) -> bool {
        let Some(run) = run_of(id) else { return false };
        self.seen.kept(&run, |seen| self.covers(seen, id.attempt)).is_some()
    }

    /// Takes in the runs of a repository that GitHub lists as not over: none of them needs a call of its own.
    pub(crate) fn listed<'a>(
        &self,
        (owner, name): &(String, String),
        runs: impl Iterator<Item = &'a WorkflowRun>,
    ) {
        let now = self.clock.elapsed();
        self.forget(now);
        for WorkflowRun { id, attempt, .. } in runs {
            let state = RunState::Active { attempt: *attempt };
            self.seen.keep((owner.clone(), name.clone(), *id), (state, now));
        }
    }

    fn forget(&self, now: Duration) {
        self.seen.retain(|(_, at)| now.saturating_sub(*at) < KEPT);
    }

    /// Looks a run up at GitHub unless it was confirmed recently. Concurrent callers for one run share one call.
    ///
    /// # Errors
    /// There is no such run, or GitHub does not respond.
    pub(crate) async fn confirm(&self, id: &RequestKey) -> Result<(), RunProblem> {
        let Some(run) = run_of(id) else {
            return Err(RunProblem::Refused(format!(
                "{:?} is no run of GitHub's, which are numbers; pass the run's github.run_id",
                id.run_id.as_str()
            )));
        };
        self.forget(self.clock.elapsed());
        let ask = || {
            let (github, clock, run) = (Arc::clone(&self.github), Arc::clone(&self.clock), run.clone());
            async move { Ok((github.run(&run.0, &run.1, run.2, Waiting::Machine).await?, clock.elapsed())) }
                .boxed()
        };
        match self.seen.get(&run, |seen| self.covers(seen, id.attempt), ask).await {
            Ok((state, _)) => match problem(state, id) {
                None => {
                    self.refusals().remove(id);
                    Ok(())
                }
                Some(problem) => Err(self.refuse(id, problem, LAG)),
            },
            Err(GitHubError::NotFound(_)) => Err(self.unknown(id, &run).await),
            Err(GitHubError::Denied(why)) => {
                self.refusals().remove(id);
                Err(RunProblem::GitHub(GitHubError::Denied(format!(
                    "whether {} has run {} ({why}); it needs \"Actions: read\", or github.verify_run = false",
                    id.repository, id.run_id
                ))))
            }
            Err(
                error @ (GitHubError::Unreachable(_)
                | GitHubError::Throttled { .. }
                | GitHubError::Deferred { .. }
                | GitHubError::NameTaken(_)
                | GitHubError::Busy(_)
                | GitHubError::Invalid(_)),
            ) => Err(RunProblem::GitHub(error)),
        }
    }

    fn covers(&self, (state, at): &(RunState, Duration), attempt: u32) -> bool {
        let young = self.clock.elapsed().saturating_sub(*at) < KEPT;
        match state {
            RunState::Active { attempt: current } => young && attempt <= *current,
            RunState::Completed { .. } => false,
        }
    }

    /// Handles GitHub's response that there is no such run. GitHub responds the same about a repository that it does
    /// not show, so this counts only if the repository's runs can be listed.
    async fn unknown(&self, id: &RequestKey, (owner, name, _): &Run) -> RunProblem {
        let problem = format!("{} has no run {} that GitHub shows us", id.repository, id.run_id);
        let young = |at: &Duration| self.clock.elapsed().saturating_sub(*at) < VISIBLE;
        self.visible.retain(young);
        let ask = || {
            let (github, clock) = (Arc::clone(&self.github), Arc::clone(&self.clock));
            let (owner, name) = (owner.clone(), name.clone());
            async move { github.open_runs(&owner, &name, Listed::Running).await.map(|_| clock.elapsed()) }
                .boxed()
        };
        match self.visible.get(&(owner.clone(), name.clone()), young, ask).await {
            Ok(_) => self.refuse(id, problem, UNKNOWN),
            Err(why) => {
                self.refusals().remove(id);
                let message = format!("{problem}, nor other runs there ({why})");
                RunProblem::GitHub(GitHubError::NotFound(message))
            }
        }
    }

    /// Counts a negative response, and refuses the request once there were enough of them over the period.
    fn refuse(&self, id: &RequestKey, problem: String, lag: Duration) -> RunProblem {
        let now = self.clock.elapsed();
        let mut refusals = self.refusals();
        refusals.retain(|_, (_, since)| now.saturating_sub(*since) < KEPT);
        let (times, since) = refusals.entry(id.clone()).or_insert((0, now));
        *times += 1;
        if *times >= REFUSALS && now.saturating_sub(*since) >= lag {
            refusals.remove(id);
            RunProblem::Refused(problem)
        } else {
            RunProblem::Doubtful(problem)
        }
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, BTreeMap<RequestKey, (u32, Duration)>> {
        self.refusals.lock().expect("nobody panics while holding the refusals")
    }
}

fn run_of(id: &RequestKey) -> Option<Run> {
    let number = id.run_id.as_str().parse().ok()?;
    let folded = |part: &str| part.to_ascii_lowercase();
    Some((folded(id.repository.owner()), folded(id.repository.name()), number))
}

/// Returns the problem of a run in this state; a later attempt serves an earlier one's request.
fn problem(state: RunState, id: &RequestKey) -> Option<String> {
    let (RunState::Active { attempt } | RunState::Completed { attempt }) = state;
    if attempt < id.attempt {
        return Some(format!(
            "run {} of {} is at attempt {attempt}, not {}",
            id.run_id, id.repository, id.attempt
        ));
    }
    match state {
        RunState::Active { .. } => None,
        RunState::Completed { .. } => Some(format!("run {} of {} is over", id.run_id, id.repository)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Request;
    use runyard_fakes::{FakeGitHub, TokioClock};

    fn bench() -> (FakeGitHub, RunCheck) {
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let github = FakeGitHub::new(clock.clone());
        (github.clone(), RunCheck::new(Arc::new(github), clock))
    }

    fn request(run: &str, attempt: u32) -> RequestKey {
        let key = crate::model::RecordId::new(
            format!("request#acme/web#{run}"),
            format!("request#default#{attempt}"),
        );
        Request::id_of(&key).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_exists_is_looked_up_once_however_many_machines_wait() {
        let (github, check) = bench();
        github.set_run("acme", "web", 41, RunState::Active { attempt: 2 });
        let id = request("41", 1);
        assert!(!check.confirmed(&id));
        let requests = futures::future::join_all((0..256).map(|_| check.confirm(&id))).await;
        assert!(requests.iter().all(Result::is_ok));
        assert_eq!(github.calls()["run"], 1);
        assert!(
            check.confirmed(&id) && check.confirmed(&request("41", 2)) && !check.confirmed(&request("41", 3))
        );
        tokio::time::advance(KEPT).await;
        assert!(!check.confirmed(&id), "it may be over by now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_a_list_showed_needs_no_call_of_its_own() {
        let (github, check) = bench();
        let run = |id, attempt| WorkflowRun {
            id,
            attempt,
            started_at: None,
            updated_at: None,
            workflow: String::new(),
            own: true,
        };
        check.listed(&("acme".into(), "web".into()), [run(41, 2), run(42, 1)].iter());
        for (id, confirmed) in [(request("41", 2), true), (request("41", 1), true), (request("42", 2), false)]
        {
            assert_eq!(check.confirmed(&id), confirmed, "{id}");
        }
        check.confirm(&request("41", 2)).await.unwrap();
        assert!(github.calls().is_empty(), "{:?}", github.calls());
        tokio::time::advance(KEPT).await;
        assert!(!check.confirmed(&request("41", 2)), "it may be over by now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_not_there_is_refused_once_github_cannot_lag_any_more() {
        let (github, check) = bench();
        github.set_run("acme", "web", 42, RunState::Completed { attempt: 1 });
        github.set_run("acme", "web", 43, RunState::Active { attempt: 1 });
        for (id, lag) in [(request("41", 1), UNKNOWN), (request("42", 1), LAG), (request("43", 2), LAG)] {
            for _ in 0..REFUSALS {
                assert!(matches!(check.confirm(&id).await, Err(RunProblem::Doubtful(_))), "{id}");
            }
            tokio::time::advance(lag - Duration::from_millis(1)).await;
            assert!(matches!(check.confirm(&id).await, Err(RunProblem::Doubtful(_))), "{id}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(matches!(check.confirm(&id).await, Err(RunProblem::Refused(_))), "{id}");
        }
        assert!(matches!(check.confirm(&request("nightly", 1)).await, Err(RunProblem::Refused(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_github_that_does_not_answer_or_takes_no_credential_refuses_nobody() {
        let (github, check) = bench();
        for error in [
            GitHubError::Unreachable("away".into()),
            GitHubError::Denied("Bad credentials (401)".into()),
            GitHubError::NotFound("as of what is not shown".into()),
        ] {
            github.outage(Some(error.clone()));
            for _ in 0..4 * REFUSALS {
                let said = check.confirm(&request("41", 1)).await;
                assert!(matches!(said, Err(RunProblem::GitHub(_))), "{error}: {said:?}");
                tokio::time::advance(UNKNOWN).await;
            }
        }
        github.outage(None);
        github.set_run("acme", "web", 41, RunState::Active { attempt: 1 });
        check.confirm(&request("41", 1)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_wrong_credential_hides_is_not_counted_when_it_is_right_again() {
        let (github, check) = bench();
        let (id, mut said) = (request("41", 1), Vec::new());
        for error in [None, Some(GitHubError::Denied("Bad credentials (401)".into())), None, None] {
            github.outage(error);
            said.push(check.confirm(&id).await.unwrap_err());
            tokio::time::advance(UNKNOWN - LAG).await;
        }
        assert!(matches!(said[0], RunProblem::Doubtful(_)) && matches!(said[1], RunProblem::GitHub(_)));
        assert!(matches!(said[2], RunProblem::Doubtful(_)) && matches!(said[3], RunProblem::Doubtful(_)));
        tokio::time::advance(LAG).await;
        assert!(matches!(check.confirm(&id).await, Err(RunProblem::Refused(_))));
        assert!(github.calls()["open_runs"] >= 3, "{:?}", github.calls());
    }
}
