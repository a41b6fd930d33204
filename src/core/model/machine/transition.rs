//! Which changes of a machine's state are legal, and why does each happen? The table of the contract, in one place. The
//! store's writes, the decisions and the models all use this table.

use crate::model::record::state::State;

/// The reason for a change of a machine's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// EC2 returned the machine.
    Launched,
    /// The agent reports that the claim's runner is registered and listening (`UD_REG_OK`).
    Registered,
    /// A warm machine finished its first boot (`UD_OK`): it enters the pool.
    Booted,
    /// The request is released, has failed, or gives the machine up.
    GivenBack,
    /// The first failed registration in a row (`UD_REG_FAILED`): the machine is cleaned, the request takes another.
    RegistrationFailedOnce,
    /// Deregistered and clean (`UD_REMOVE_REG_OK`): it enters the pool.
    Cleaned,
    /// A pooled machine is kept: its deadline is extended.
    Renewed,
    /// A person's hold: it leaves its request or the pool, or failed, and is kept so that the person can look at it.
    Held,
    /// A request takes it out of the pool.
    Claimed,
    /// It ends, for one of the contract's reasons.
    Ended,
}

/// The position of a machine, as finely as the table needs it: idle machines differ by whether they are in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Not recorded yet.
    Nowhere,
    /// `created`, bound to a request.
    CreatedBound,
    /// `created`, warm.
    CreatedWarm,
    /// `claimed`.
    Claimed,
    /// `running`.
    Running,
    /// `idle`, being cleaned.
    IdleCleaning,
    /// `idle` with `hold`: kept for a person until it ends; nothing else leads out of it.
    IdleHeld,
    /// `idle` with `pooledAt`.
    IdlePooled,
    /// `terminated`.
    Terminated,
}

impl Place {
    /// Returns the contract's state.
    pub const fn state(self) -> Option<State> {
        match self {
            Self::Nowhere => None,
            Self::CreatedBound | Self::CreatedWarm => Some(State::Created),
            Self::Claimed => Some(State::Claimed),
            Self::Running => Some(State::Running),
            Self::IdleCleaning | Self::IdleHeld | Self::IdlePooled => Some(State::Idle),
            Self::Terminated => Some(State::Terminated),
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The place of the machine before.
    pub from: Place,
    /// The cause of its move.
    pub cause: Cause,
    /// The place of the machine afterwards.
    pub to: Place,
}

const fn row(from: Place, cause: Cause, to: Place) -> Transition {
    Transition { from, cause, to }
}

/// Every legal change. A machine changes its state in these ways and no others; `terminated` is the end.
pub const TRANSITIONS: &[Transition] = {
    use Cause::{
        Booted, Claimed as Claim, Cleaned, Ended, GivenBack, Held, Launched, Registered,
        RegistrationFailedOnce, Renewed,
    };
    use Place::{
        Claimed, CreatedBound, CreatedWarm, IdleCleaning, IdleHeld, IdlePooled, Nowhere, Running, Terminated,
    };
    &[
        row(Nowhere, Launched, CreatedBound),
        row(Nowhere, Launched, CreatedWarm),
        row(CreatedBound, Registered, Running),
        row(CreatedBound, GivenBack, IdleCleaning),
        row(CreatedBound, Ended, Terminated),
        row(CreatedWarm, Booted, IdlePooled),
        row(CreatedWarm, Ended, Terminated),
        row(Claimed, Registered, Running),
        row(Claimed, RegistrationFailedOnce, IdleCleaning),
        row(Claimed, GivenBack, IdleCleaning),
        row(Claimed, Ended, Terminated),
        row(Running, GivenBack, IdleCleaning),
        row(Running, Ended, Terminated),
        row(IdleCleaning, Cleaned, IdlePooled),
        row(IdleCleaning, Ended, Terminated),
        row(IdlePooled, Renewed, IdlePooled),
        row(IdlePooled, Claim, Claimed),
        row(IdlePooled, Ended, Terminated),
        row(CreatedBound, Held, IdleHeld),
        row(CreatedWarm, Held, IdleHeld),
        row(Claimed, Held, IdleHeld),
        row(Running, Held, IdleHeld),
        // A person writes `hold` into the record of a machine that is being cleaned.
        row(IdleCleaning, Held, IdleHeld),
        row(IdlePooled, Held, IdleHeld),
        row(IdleHeld, Renewed, IdleHeld),
        row(IdleHeld, Ended, Terminated),
        // An orphan is recorded as already decided, so that no machine is ended without a record.
        row(Nowhere, Ended, Terminated),
    ]
};

/// Returns whether a machine may go from one place to the other for this cause.
pub fn legal(from: Place, cause: Cause, to: Place) -> bool {
    TRANSITIONS.contains(&row(from, cause, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Place; 9] = [
        Place::Nowhere,
        Place::CreatedBound,
        Place::CreatedWarm,
        Place::Claimed,
        Place::Running,
        Place::IdleCleaning,
        Place::IdleHeld,
        Place::IdlePooled,
        Place::Terminated,
    ];

    #[test]
    fn nothing_leaves_terminated() {
        assert!(TRANSITIONS.iter().all(|t| t.from != Place::Terminated));
    }

    #[test]
    fn every_live_place_can_end() {
        for from in PLACES {
            let live = from.state().is_some_and(State::live);
            assert_eq!(
                legal(from, Cause::Ended, Place::Terminated),
                live || from == Place::Nowhere,
                "{from:?}"
            );
        }
    }

    #[test]
    fn a_pooled_machine_leaves_the_pool_only_by_a_claim_a_hold_or_its_end() {
        let out: Vec<_> =
            TRANSITIONS.iter().filter(|t| t.from == Place::IdlePooled && t.to != Place::IdlePooled).collect();
        assert!(out.iter().all(|t| matches!(t.to, Place::Claimed | Place::IdleHeld | Place::Terminated)));
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn nothing_but_its_end_leads_a_held_machine_out_of_its_hold() {
        let out = TRANSITIONS.iter().filter(|t| t.from == Place::IdleHeld && t.to != Place::IdleHeld);
        assert_eq!(out.map(|t| t.to).collect::<Vec<_>>(), [Place::Terminated]);
    }

    #[test]
    fn the_pool_is_entered_only_clean() {
        let into: Vec<_> = TRANSITIONS
            .iter()
            .filter(|t| t.to == Place::IdlePooled && t.from != Place::IdlePooled)
            .map(|t| t.cause)
            .collect();
        assert_eq!(into, [Cause::Booted, Cause::Cleaned]);
    }

    #[test]
    fn a_warm_created_machine_cannot_be_claimed() {
        assert!(!legal(Place::CreatedWarm, Cause::Claimed, Place::Claimed));
    }
}
