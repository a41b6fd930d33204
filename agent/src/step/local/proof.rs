//! The report about the clean-up of a claim: what the executor found, and what only the claim's own state tells.

use runyard_core::model::{ClaimId, ClaimProof, CleaningItem, Finding};

use super::{ClaimStage, Local, Served};
use crate::task::Task;

impl Local {
    /// Returns the current claim, if this was a task of it.
    pub fn claim_of(&self, task: Option<&Task>) -> Option<ClaimId> {
        let served =
            self.claim.as_ref().filter(|served| task.and_then(Task::claim) == Some(served.place()))?;
        Some(served.id.clone())
    }

    /// Keeps the report about the current claim. What an earlier part of its clean-up found, and a later one did not
    /// look at, stays.
    pub fn prove(&mut self, found: ClaimProof) {
        let Some(served) = self.claim.as_mut() else { return };
        let mut proof = ClaimProof { claim_id: served.id.as_str().to_owned(), ..found };
        if let Some(before) = served.proof.take() {
            for (item, finding) in before.cleaning {
                proof.cleaning.entry(item).or_insert(finding);
            }
        }
        // Where no runner was started no package was run.
        proof.package = proof.package.filter(|_| served.since.is_some());
        if proof.jobs.is_none() {
            proof.jobs = served.job.as_ref().map(|job| vec![job.report.clone()]);
        }
        if let Some(layers) = served.layers() {
            proof.cleaning.insert(CleaningItem::KeptLayers, layers);
        }
        served.proof = Some(proof);
    }
}

impl Served {
    /// Returns what became of its layers of kept directories, once that is known.
    fn layers(&self) -> Option<Finding> {
        match self.stage {
            ClaimStage::Clean if self.may_have_written() => Some(Finding::Passed),
            ClaimStage::Clean => Some(Finding::Nothing),
            // It may have failed for another reason; its item says so then.
            ClaimStage::Unclean(_)
            | ClaimStage::Accepted
            | ClaimStage::Configuring
            | ClaimStage::Configured
            | ClaimStage::Started(_)
            | ClaimStage::Listening(_)
            | ClaimStage::Refused(_)
            | ClaimStage::Renewing(_)
            | ClaimStage::Stopping(_)
            | ClaimStage::Stopped
            | ClaimStage::Settling => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::task::{RunnerProcess, TaskOutcome, Wipe};

    fn local(stage: ClaimStage) -> Local {
        let served = Served::new("i-1.4".parse().unwrap(), "42".to_owned(), stage);
        Local { claim: Some(served), ..Local::default() }
    }

    fn found(items: &[(CleaningItem, Finding)]) -> ClaimProof {
        let package = Some("0a".repeat(32));
        let cleaning = items.iter().copied().collect();
        ClaimProof { package, cleaning, ..ClaimProof::of(&"i-1.4".parse().unwrap()) }
    }

    #[test]
    fn a_later_part_of_a_clean_up_adds_to_what_the_earlier_one_found() {
        let mut local = local(ClaimStage::Clean);
        local.prove(found(&[
            (CleaningItem::PostRun, Finding::Passed),
            (CleaningItem::Files, Finding::Failed),
        ]));
        local.prove(found(&[(CleaningItem::Files, Finding::Passed)]));
        let proof = local.claim.unwrap().proof.unwrap();
        let items: Vec<_> = proof.cleaning.into_iter().collect();
        assert_eq!(
            items,
            [
                (CleaningItem::Files, Finding::Passed),
                (CleaningItem::PostRun, Finding::Passed),
                (CleaningItem::KeptLayers, Finding::Nothing),
            ]
        );
        assert_eq!(proof.package, None, "no runner was started");
    }

    #[test]
    fn layers_are_proved_once_they_are_settled_and_a_failure_proves_nothing() {
        let mut local = local(ClaimStage::Stopped);
        let served = local.claim.as_mut().unwrap();
        served.keep =
            vec![serde_json::from_str(r#"{"name": "cargo", "path": "~/.cargo", "maxGiB": 1}"#).unwrap()];
        served.since = Some(7);
        let layers = |local: &Local| {
            let proof = local.claim.as_ref().unwrap().proof.as_ref();
            proof.and_then(|proof| proof.cleaning.get(&CleaningItem::KeptLayers)).copied()
        };
        let mut failed = local.clone().after(TaskOutcome::Unproved("a file".to_owned()), Duration::ZERO, 0.5);
        failed.prove(found(&[]));
        assert_eq!(layers(&failed), None);
        let mut settling = local.after(TaskOutcome::Wiped, Duration::ZERO, 0.5);
        settling.prove(found(&[]));
        assert_eq!(layers(&settling), None);
        let mut settled = settling.after(TaskOutcome::Settled, Duration::ZERO, 0.5);
        settled.prove(found(&[]));
        assert_eq!(layers(&settled), Some(Finding::Passed));
        assert!(settled.claim.unwrap().proof.unwrap().package.is_some());
    }

    #[test]
    fn a_report_is_of_the_claim_whose_task_it_was() {
        let mut local = local(ClaimStage::Clean);
        let wipe = |claim: &str| Task::Wipe { claim: claim.parse().unwrap(), since: None, wipe: Wipe::Whole };
        assert!(local.claim_of(Some(&wipe("i-1.4"))).is_some());
        assert_eq!(local.claim_of(Some(&wipe("i-1.5"))), None, "of a runner that is registered ahead");
        assert_eq!(local.claim_of(None), None);
        local.claim.as_mut().unwrap().place = Some("i-1.3".parse().unwrap());
        assert_eq!(local.claim_of(Some(&wipe("i-1.3"))).unwrap().as_str(), "i-1.4");
        let runner = Some(RunnerProcess { pid: 1, started: 1 });
        let stop = Task::Stop { claim: "i-1.3".parse().unwrap(), runner, since: None };
        assert!(local.claim_of(Some(&stop)).is_some());
    }
}
