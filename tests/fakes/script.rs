//! What is to go wrong next: faults in a row, each used up by one call.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something that happens to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault<E> {
    /// Nothing is done and the caller is told this.
    Fail(E),
    /// It is done, and the caller is told this: the answer was lost.
    LoseAnswer(E),
}

/// The faults to come.
#[derive(Debug)]
pub(super) struct Script<E>(Mutex<VecDeque<Fault<E>>>);

impl<E> Default for Script<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<E> Script<E> {
    /// Adds a fault after those already waiting.
    pub(super) fn add(&self, fault: Fault<E>) {
        locked(&self.0).push_back(fault);
    }

    /// Forgets the faults still waiting.
    pub(super) fn clear(&self) {
        locked(&self.0).clear();
    }

    /// Lets one call through: it fails, or goes on and learns what to say afterwards.
    pub(super) fn enter(&self) -> Result<Exit<E>, E> {
        match locked(&self.0).pop_front() {
            None => Ok(Exit(None)),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::LoseAnswer(error)) => Ok(Exit(Some(error))),
        }
    }
}

/// What to say after a call has done its work.
#[must_use]
pub(super) struct Exit<E>(Option<E>);

impl<E> Exit<E> {
    /// The answer, unless it is lost. Only what succeeded has an answer to lose.
    pub(super) fn answer<T>(self, outcome: Result<T, E>) -> Result<T, E> {
        match (outcome, self.0) {
            (Ok(_), Some(lost)) => Err(lost),
            (outcome, _) => outcome,
        }
    }
}

/// A lock whose holder never leaves it half changed, so that a panic elsewhere says nothing about it.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
