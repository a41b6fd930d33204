//! Where a machine is, as finely as a person wants to see it.

use jiff::Timestamp;

use crate::model::{Instance, Life, Place, words};

words! {
    /// Where a machine was, as finely as a person wants to see it.
    MachinePhase {
        /// Launched, its agent has not answered yet.
        Created = "created",
        /// Taken for a request, its runner does not listen yet.
        Claimed = "claimed",
        /// Serving.
        Running = "running",
        /// Given back and being cleaned.
        Cleaning = "cleaning",
        /// Kept for a person to look at.
        Held = "held",
        /// Free.
        Pooled = "pooled",
        /// Decided to end.
        Ending = "ending",
        /// Gone at its provider.
        Gone = "gone",
    }
}

/// Where a machine is; none when it is nowhere.
pub(super) fn phase(instance: &Instance) -> Option<MachinePhase> {
    match instance.place() {
        Place::Nowhere => None,
        Place::CreatedBound | Place::CreatedWarm => Some(MachinePhase::Created),
        Place::Claimed => Some(MachinePhase::Claimed),
        Place::Running => Some(MachinePhase::Running),
        Place::IdleCleaning => Some(MachinePhase::Cleaning),
        Place::IdleHeld => Some(MachinePhase::Held),
        Place::IdlePooled => Some(MachinePhase::Pooled),
        Place::Terminated => {
            Some(if gone_at(instance).is_some() { MachinePhase::Gone } else { MachinePhase::Ending })
        }
    }
}

pub(super) fn gone_at(instance: &Instance) -> Option<Timestamp> {
    match instance.life {
        Life::Terminated { gone_at, .. } => gone_at,
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => None,
    }
}
