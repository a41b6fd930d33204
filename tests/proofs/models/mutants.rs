//! The protocol made worse on purpose, one guard or one input of the production code at a time. Each must be refuted
//! by a model: that is how the models are known to see.

use std::time::Duration;

use jiff::Timestamp;
use runyard_core::decide::{Effect, Planned, Policy};
use runyard_core::model::{AttributeValue, Item, Life, Reason, RecordId};

use crate::models::world::World;

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
    /// `desired` is met by as many idle machines, whoever may use them.
    DesiredByNumber,
    /// No idle machine ends for a request that waits.
    IdleHoldsPlace,
    /// A class is read as if it had room for one machine less.
    OneLessRoom,
    /// A class is read as if one more idle machine was wanted.
    OneMoreWanted,
    /// The deadline of an idle machine is read as shortened by a person, so that none is kept beyond it.
    NeverKept,
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
            | Self::LabelBeforeClaim
            | Self::DesiredByNumber
            | Self::IdleHoldsPlace
            | Self::OneLessRoom
            | Self::OneMoreWanted
            | Self::NeverKept => true,
        }
    }

    /// Whether an operator leaves out an action that it planned.
    pub(crate) fn omits(self, world: &World, who: usize, action: &Planned) -> bool {
        match &action.effect {
            Effect::Intend(launch, _) if self == Self::DesiredByNumber => {
                launch.request.is_none() && world.operators[who].has_as_many()
            }
            Effect::Instance(step, _) if self == Self::IdleHoldsPlace => {
                matches!(step.after.life, Life::Terminated { reason: Reason::Surplus, .. })
            }
            _ => false,
        }
    }

    /// A record as an operator reads it.
    pub(crate) fn reads(self, item: &mut Item) {
        let field = match self {
            Self::OneLessRoom => "max",
            Self::OneMoreWanted => "desired",
            Self::NeverKept => "threshold",
            _ => return,
        };
        match item.get_mut(field) {
            Some(AttributeValue::N(number)) => {
                let read: u32 = number.parse().expect("a number");
                *number = if self == Self::OneLessRoom { read - 1 } else { read + 1 }.to_string();
            }
            Some(AttributeValue::S(time)) if self == Self::NeverKept => {
                // A machine that has ended has none.
                if let Ok(read) = time.parse::<Timestamp>() {
                    *time = (read - Duration::from_secs(1)).to_string();
                }
            }
            _ => {}
        }
    }

    /// The settings that the production code decides by.
    pub(crate) fn policy(self, policy: &mut Policy) {
        if self == Self::NoGrace {
            policy.timing.orphan = Duration::ZERO;
        }
    }
}
