//! The job of a slot's runner, as far as its claim knows it.

use runyard_core::model::JobReport;
use serde::{Deserialize, Serialize};

use super::Served;
use crate::task::Holder;

/// A job that began on a slot's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotJob {
    /// The report of its hook.
    pub report: JobReport,
    /// Its progress.
    pub stage: JobStage,
}

/// The progress of a slot's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobStage {
    /// Its hook waits until the agent's record shows it.
    Held,
    /// It goes on.
    Admitted,
    /// Another runner was started after its own.
    Former,
}

impl Served {
    /// Returns the holder, if it is a slot and the job of its runner is not known yet.
    pub(crate) fn awaits(&self) -> Option<Holder> {
        let known = match self.job.as_ref().map(|job| job.stage) {
            Some(JobStage::Held | JobStage::Admitted) => true,
            Some(JobStage::Former) | None => false,
        };
        (!known).then(|| self.holder()).filter(|holder| holder.set().is_some())
    }

    /// Returns the job whose hook waits.
    pub(crate) fn held(&self) -> Option<&JobReport> {
        self.job.as_ref().and_then(|job| match job.stage {
            JobStage::Held => Some(&job.report),
            JobStage::Admitted | JobStage::Former => None,
        })
    }

    /// Records the job of its runner.
    pub(super) fn began(&mut self, report: JobReport) {
        self.job = Some(SlotJob { report, stage: JobStage::Held });
    }

    /// Records a new stage of its last job.
    pub(super) fn job_is(&mut self, stage: JobStage) {
        if let Some(job) = &mut self.job {
            job.stage = stage;
        }
    }
}
