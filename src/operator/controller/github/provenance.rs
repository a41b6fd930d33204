//! Decides whether later runs may read the changes of a claim in kept directories: by GitHub's record of the run and of
//! its jobs, and never by the workflow's word.

use std::time::Duration;

use crate::decide::KeepQuestion;
use crate::model::{ClaimId, Instance, Keep, Promotion, WriteFrom, runner_name};
use crate::ports::GitHubError;
use crate::ports::github::{BranchFacts, JobState, RunSource, WorkflowJob};

use super::credential_issuer::CredentialIssuer;

/// Events whose runs may change kept directories: only users who may write to the repository can trigger them.
const TRUSTED: [&str; 3] = ["push", "schedule", "workflow_dispatch"];
/// The pause before unfinished jobs are checked again.
const AGAIN: Duration = Duration::from_secs(2);

impl CredentialIssuer {
    /// Writes into a machine's record which kept directories its claim may change.
    ///
    /// # Errors
    /// GitHub failed, or its jobs are not over yet; then nothing is written.
    pub async fn judge_kept(&self, next: &mut Instance, question: &KeepQuestion) -> Result<(), GitHubError> {
        let Some(claim) = next.claim.as_ref().map(|claim| claim.id.clone()) else { return Ok(()) };
        let (names, reason) = match self.may_change(&claim, question).await {
            Ok(judged) => judged,
            Err(
                error @ (GitHubError::Denied(_)
                | GitHubError::NotFound(_)
                | GitHubError::NameTaken(_)
                | GitHubError::Busy(_)
                | GitHubError::Invalid(_)),
            ) => (Vec::new(), format!("{error}; keep needs \"Actions: read\" and \"Contents: read\"")),
            Err(
                error @ (GitHubError::Unreachable(_)
                | GitHubError::Throttled { .. }
                | GitHubError::Deferred { .. }),
            ) => return Err(error),
        };
        next.promotion = Some(Promotion { claim_id: claim, names, reason });
        Ok(())
    }

    async fn may_change(
        &self,
        claim: &ClaimId,
        question: &KeepQuestion,
    ) -> Result<(Vec<String>, String), GitHubError> {
        let KeepQuestion { request, keep } = question;
        let (owner, name) = (request.repository.owner(), request.repository.name());
        let no_run = |_| GitHubError::NotFound(format!("run {}", request.run_id));
        let run = request.run_id.as_str().parse().map_err(no_run)?;
        let source = self.github.run_source(owner, name, run).await?;
        if let Some(why) = untrusted(&source) {
            return Ok((Vec::new(), why));
        }
        let branch = self.github.branch(owner, name, &source.head_branch, &source.head_sha).await?;
        let names = writable(branch, keep);
        let event = format!("{} to {}", source.event, source.head_branch);
        if names.is_empty() {
            return Ok((names, format!("{event}: not a branch whose runs write what is kept")));
        }
        let jobs = self.github.run_jobs(owner, name, run, request.attempt).await?;
        match finished(claim, &jobs) {
            Jobs::Succeeded(number) => Ok((names, format!("{event}, {number} jobs succeeded"))),
            Jobs::Open => Err(GitHubError::Deferred { retry_after: AGAIN }),
            Jobs::None => Ok((Vec::new(), "GitHub lists no job of its runner".to_owned())),
            Jobs::Other(job) => Ok((Vec::new(), format!("its job {job:?} did not succeed"))),
        }
    }
}

/// Returns why the code of a run is not trusted, whatever its branch.
fn untrusted(source: &RunSource) -> Option<String> {
    if !TRUSTED.contains(&source.event.as_str()) {
        return Some(format!("the event {} is open to code that nobody merged", source.event));
    }
    if !source.own {
        return Some("its commit is another repository's".to_owned());
    }
    source.head_branch.is_empty().then(|| "GitHub names no branch".to_owned())
}

/// Returns the names of those directories that runs of a branch may change.
fn writable(branch: BranchFacts, keep: &[Keep]) -> Vec<String> {
    let may = |keep: &&Keep| match keep.write_from {
        WriteFrom::DefaultBranch => branch.contains && branch.default,
        WriteFrom::Protected => branch.contains && branch.protected,
    };
    keep.iter().filter(may).map(|keep| keep.name.clone()).collect()
}

/// The result of the jobs that ran on a claim.
#[derive(Debug, PartialEq, Eq)]
enum Jobs {
    /// All of them succeeded; the number of jobs.
    Succeeded(usize),
    /// A job is not over.
    Open,
    /// There are no jobs.
    None,
    /// A job had another result.
    Other(String),
}

fn finished(claim: &ClaimId, jobs: &[WorkflowJob]) -> Jobs {
    let first = runner_name(claim, 1);
    let ours = |job: &&WorkflowJob| {
        let rest = job.runner.as_deref().and_then(|runner| runner.strip_prefix(first.as_str()));
        rest.is_some_and(|rest| {
            let number = rest.strip_prefix('-');
            rest.is_empty() || number.is_some_and(|number| number.parse::<u64>().is_ok())
        })
    };
    let (mut number, mut open) = (0, false);
    for job in jobs.iter().filter(ours) {
        match job.state {
            JobState::Succeeded => number += 1,
            JobState::Queued | JobState::Active => open = true,
            JobState::Failed | JobState::Ended => return Jobs::Other(job.name.clone()),
        }
    }
    match (open, number) {
        (true, _) => Jobs::Open,
        (false, 0) => Jobs::None,
        (false, number) => Jobs::Succeeded(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(event: &str, branch: &str, own: bool) -> RunSource {
        RunSource { event: event.into(), head_branch: branch.into(), head_sha: "1".into(), own }
    }

    #[test]
    fn only_what_a_writer_of_the_repository_can_start_is_believed() {
        for event in TRUSTED {
            assert_eq!(untrusted(&source(event, "main", true)), None, "{event}");
            assert!(untrusted(&source(event, "main", false)).is_some(), "a fork: {event}");
            assert!(untrusted(&source(event, "", true)).is_some(), "no branch: {event}");
        }
        for event in [
            "pull_request",
            "pull_request_target",
            "workflow_run",
            "issue_comment",
            "merge_group",
            "Push",
            "",
        ] {
            assert!(untrusted(&source(event, "main", true)).is_some(), "{event}");
        }
    }

    #[test]
    fn a_branch_writes_only_what_its_class_lets_it_and_only_with_its_own_commits() {
        let of = |name: &str, from: &str| -> Keep {
            let keep = serde_json::json!({"name": name, "path": format!("~/{name}"), "writeFrom": from});
            serde_json::from_value(keep).unwrap()
        };
        let keep = [of("a", "default-branch"), of("b", "protected")];
        for (default, protected, contains, names) in [
            (true, false, true, vec!["a"]),
            (false, true, true, vec!["b"]),
            (true, true, true, vec!["a", "b"]),
            (false, false, true, vec![]),
            // A tag with the branch's name.
            (true, true, false, vec![]),
        ] {
            assert_eq!(writable(BranchFacts { default, protected, contains }, &keep), names);
        }
    }

    #[test]
    fn every_job_of_the_claims_runners_must_have_succeeded_and_there_must_be_one() {
        let claim = ClaimId::parse("i-0123456789abcdef0.4").unwrap();
        let job = |runner: &str, state| WorkflowJob {
            name: "build".into(),
            labels: Vec::new(),
            state,
            attempt: 1,
            started_at: None,
            completed_at: None,
            runner: Some(runner.into()),
        };
        let (own, second) = ("runyard-i-0123456789abcdef0.4", "runyard-i-0123456789abcdef0.4-2");
        let others =
            ["runyard-i-0123456789abcdef0.40", "runyard-i-0123456789abcdef0.4-x", "GitHub Actions 4"];
        let mut jobs: Vec<_> = others.iter().map(|other| job(other, JobState::Failed)).collect();
        assert_eq!(finished(&claim, &jobs), Jobs::None);
        jobs.extend([job(own, JobState::Succeeded), job(second, JobState::Succeeded)]);
        assert_eq!(finished(&claim, &jobs), Jobs::Succeeded(2));
        jobs.push(job(second, JobState::Active));
        assert_eq!(finished(&claim, &jobs), Jobs::Open);
        for state in [JobState::Failed, JobState::Ended] {
            let mut jobs = jobs.clone();
            jobs.push(job(own, state));
            assert_eq!(finished(&claim, &jobs), Jobs::Other("build".into()));
        }
    }
}
