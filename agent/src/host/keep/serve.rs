//! The executor's operations on kept directories during a claim.

use std::io;

use runyard_core::model::ClaimId;

use crate::host::Host;
use crate::host::files::layout::{ClaimDirs, directory_name};
use crate::host::files::output::detail;
use crate::host::jail::StandingJail;
use crate::task::{Holder, TaskOutcome};

impl Host {
    /// Returns the jail of a claim's runner, with the kept directories mounted. A prepared jail has no such mounts and
    /// is replaced by a new one. If the claim's class keeps nothing, or its repository is not known, the prepared jail
    /// is returned.
    pub(in crate::host) async fn with_kept(
        &self,
        prepared: Option<StandingJail>,
        claim: &ClaimId,
        holder: &Holder,
        dirs: &ClaimDirs,
    ) -> io::Result<Option<StandingJail>> {
        let (Some(keeps), Some(isolation)) = (self.keeps.clone(), &self.settings.isolation) else {
            return Ok(prepared);
        };
        if holder.keep.is_empty() || holder.repository.is_empty() {
            return Ok(prepared);
        }
        drop(prepared);
        let (holder, name, home) = (holder.clone(), directory_name(claim), isolation.home.clone());
        let lent = self.in_turn(move || keeps.lend(&name, &holder.repository, &holder.keep, &home)).await;
        let mounts = lent.unwrap_or_else(|error| {
            tracing::warn!(%error, "this claim goes without what is kept");
            Vec::new()
        });
        self.jail_for(dirs, &self.layout.run_log(), true, mounts)
    }

    /// Resets the kept directories between two runners of a claim: the next runner sees the state from before the
    /// claim.
    pub(in crate::host) async fn begin_layers_anew(&self, claim: &ClaimId) -> Result<(), String> {
        let Some(keeps) = self.keeps.clone() else { return Ok(()) };
        let name = directory_name(claim);
        let forgotten = self.in_turn(move || keeps.forget(&name)).await;
        forgotten.map_err(|error| detail("its kept directories", &error.to_string(), &[]))
    }

    /// Keeps the claim's writes to the directories of these names, and removes its writes to all others.
    pub(in crate::host) async fn settle(
        &self,
        claim: &ClaimId,
        holder: Holder,
        names: Vec<String>,
    ) -> TaskOutcome {
        let Some(keeps) = self.keeps.clone() else { return TaskOutcome::Settled };
        let name = directory_name(claim);
        let settled =
            self.in_turn(move || keeps.settle(&name, &holder.repository, &holder.keep, &names)).await;
        match settled {
            Ok(became) => {
                for (name, became) in became {
                    tracing::info!(%claim, name, ?became, "a kept directory is settled");
                }
                TaskOutcome::Settled
            }
            Err(error) => TaskOutcome::Unproved(detail("its kept directories", &error.to_string(), &[])),
        }
    }
}
