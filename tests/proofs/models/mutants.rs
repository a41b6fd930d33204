//! The protocol made worse on purpose, one guard or one input of the production code at a time. Each must be refuted
//! by a model: that is how the models are known to see.

use runyard_core::decide::Policy;
use runyard_core::model::RecordId;

/// One thing left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A claim does not spend the request's version.
    ClaimWithoutRequest,
    /// A claim does not spend the machine's version.
    ClaimWithoutMachine,
    /// Nothing at all is conditional.
    Unconditional,
    /// A launch is bound in two writes, the machines first.
    BindInTwo,
    /// An intent is written whoever holds the lease.
    IntentWithoutLease,
    /// A new holder of the lease launches before it has read anything again.
    LeaseWithoutReading,
    /// An intent of which nothing was heard is written again under another name.
    FreshName,
    /// Asking again for a launch brings more machines.
    FreshToken,
    /// A machine is ended when that is decided, and its record says so after.
    KillFirst,
    /// What a list of machines lacks is gone, without asking for it by name.
    ListsBelieved,
    /// A machine without a record is given no time to be adopted.
    NoGrace,
    /// What an agent says names no claim of its own: it counts for whatever claim the record names then.
    SignalForAnyClaim,
    /// An agent may read its record as it was at any time before.
    AgentReadsStale,
    /// An agent's write needs no record to be there.
    AgentResurrects,
    /// A machine is ended for silence although its agent spoke meanwhile.
    SilenceWithoutBeat,
    /// A machine is pooled although GitHub takes its runner for busy.
    PooledWhileBusy,
    /// A runner at rest gets the label of a run before the claim is written.
    LabelBeforeClaim,
}

impl Mutant {
    /// Whether a write of a record still has its guard.
    pub(crate) fn fences(self, key: &RecordId) -> bool {
        match self {
            Self::ClaimWithoutRequest => !key.pk().starts_with("request#"),
            Self::ClaimWithoutMachine => !key.pk().starts_with("instance#"),
            Self::Unconditional => false,
            Self::BindInTwo
            | Self::IntentWithoutLease
            | Self::LeaseWithoutReading
            | Self::FreshName
            | Self::FreshToken
            | Self::KillFirst
            | Self::ListsBelieved
            | Self::NoGrace
            | Self::SignalForAnyClaim
            | Self::AgentReadsStale
            | Self::AgentResurrects
            | Self::SilenceWithoutBeat
            | Self::PooledWhileBusy
            | Self::LabelBeforeClaim => true,
        }
    }

    /// The settings that the production code decides by.
    pub(crate) fn policy(self, policy: &mut Policy) {
        if self == Self::NoGrace {
            policy.timing.orphan = std::time::Duration::ZERO;
        }
    }
}
