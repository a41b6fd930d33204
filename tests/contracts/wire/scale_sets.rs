//! GitHub's runner scale sets: one suite for whatever implements the port (our adapter before our stand-in, and the
//! fake), witnesses that nobody here wrote (the crate `scaleset`: its emulator and its client), and every fault of the
//! wire.

mod credentials;
mod faults;
mod standin;
mod suite;
mod witnesses;

use runyard_core::ports::ScaleSetError;

/// One letter for each outcome, as in the matrix.
fn letter<T>(outcome: &Result<T, ScaleSetError>) -> char {
    match outcome {
        Ok(_) => '.',
        Err(ScaleSetError::Unreachable(_)) => 'u',
        Err(ScaleSetError::Throttled { .. }) => 't',
        Err(ScaleSetError::Denied(_)) => 'd',
        Err(ScaleSetError::Expired(_)) => 'e',
        Err(ScaleSetError::SessionOver(_)) => 'o',
        Err(ScaleSetError::SessionHeld(_)) => 'h',
        Err(ScaleSetError::NotFound(_)) => 'n',
        Err(ScaleSetError::NameTaken(_)) => 'k',
        Err(ScaleSetError::Busy(_)) => 'b',
        Err(ScaleSetError::Invalid(_)) => 'i',
    }
}
