//! The phase of a machine, in the detail that a person needs.

use jiff::Timestamp;

use crate::model::{Instance, Life, Place, words};

words! {
    /// The phase of a machine, in the detail that a person needs.
    MachinePhase {
        /// Launched; its agent has not responded yet.
        Created = "created",
        /// Claimed for a request; its runner does not listen yet.
        Claimed = "claimed",
        /// Serving a request.
        Running = "running",
        /// Released and being cleaned.
        Cleaning = "cleaning",
        /// Held for a person.
        Held = "held",
        /// Free.
        Pooled = "pooled",
        /// Ordered to end.
        Ending = "ending",
        /// Gone at its provider.
        Gone = "gone",
    }
}

/// Returns the phase of a machine; `None` if it has none.
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
