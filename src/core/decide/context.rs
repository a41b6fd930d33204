//! The input of a decision besides the records: the time, the settings, and whether this operator may launch.

use std::sync::Arc;

use jiff::SignedDuration;

use crate::ledger::Prices;
use crate::model::{Interruption, LaunchTemplate, Rebalance, RunnerPackage, Timing, YardSharing};
use crate::yard::{Now, Tracked, Yard};

/// The settings that decisions depend on (contract, section 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The deadlines and intervals.
    pub timing: Timing,
    /// How many requests of one repository may be open at the same time.
    pub requests_per_repository: u32,
    /// The prices of machines, for the cost in a request's message and for `maxCostPerDay`.
    pub prices: Arc<Prices>,
    /// Teams, priorities and the quotas of the whole yard.
    pub sharing: YardSharing,
    /// Which machines follow GitHub's list of runner packages.
    pub following: Following,
    /// Whether runners are registered at a GitHub.
    pub github: bool,
    /// Whether they are registered at organisations (`github.scope`), and not at repositories.
    pub organization: bool,
    /// Whether GitHub is asked whether the runs of requests are over (`github.run_poll`).
    pub watches_runs: bool,
    /// Whether the compute port knows all machines.
    pub inventory: bool,
    /// The policy for machines at risk (`interruptions.rebalance`).
    pub rebalance: Rebalance,
    /// Whether statements about claims are signed; then the records keep what those say.
    pub statements: bool,
    /// How long the record of an ended request stays in the table where there is a history table.
    pub ended_stays: SignedDuration,
}

impl Policy {
    /// How long ended requests stay in the table (contract 3.3).
    pub const ENDED_STAYS: SignedDuration = SignedDuration::from_hours(24);

    /// Returns EC2's notice about a machine, where a machine that serves no request ends for it.
    pub(super) fn ends_free<'a>(&self, tracked: &'a Tracked) -> Option<&'a Interruption> {
        tracked.interruption().filter(|_| tracked.is_interrupted() || self.rebalance == Rebalance::End)
    }

    /// Returns whether a machine is claimed last and replaced, because EC2 expects to take it back.
    pub(super) fn spares(&self, tracked: &Tracked) -> bool {
        self.rebalance == Rebalance::Last && tracked.is_at_risk()
    }
}

/// The machines that get the runner package of GitHub's list, by architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// Machines whose class is not arm64; none where they use the package that the operator's file pins.
    pub usual: Option<Followed>,
    /// Machines of arm64, where the file pins a separate package for them.
    pub arm64: Option<Followed>,
    /// Origins of packages besides GitHub's.
    pub origins: Vec<String>,
}

/// Machines of one architecture that follow GitHub's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// GitHub's name of their architecture: `x64`, `arm64`.
    pub architecture: String,
    /// The package that they get before a newer one is adopted.
    pub pinned: RunnerPackage,
}

impl Following {
    /// Returns whether no machine follows the list.
    pub const fn is_empty(&self) -> bool {
        self.usual.is_none() && self.arm64.is_none()
    }

    /// Returns the list that machines with this launch template follow; none for a template that brings its own
    /// package.
    pub fn of(&self, launch: &LaunchTemplate) -> Option<&Followed> {
        let told = launch.architecture.as_deref();
        let arm64 = told == Some("arm64");
        let fits = |one: &&Followed| told.is_none() || arm64 == (one.architecture == "arm64");
        let own = self.arm64.as_ref().filter(|_| arm64);
        let followed = own.or_else(|| self.usual.as_ref().filter(fits));
        followed.filter(|_| launch.launch_template_id.is_none())
    }
}

/// The permissions of this operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// The lease's token, if this operator holds the lease and has read every change since.
    pub lease: Option<u64>,
}

/// The input of a decision.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The records as last observed.
    pub yard: &'a Yard,
    /// The settings.
    pub policy: &'a Policy,
    /// The current time.
    pub now: Now,
    /// This operator's role.
    pub role: Role,
}
