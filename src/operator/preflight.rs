//! The checks before a class's first machine is launched, and their results.

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check passed.
    Good(String),
    /// Machines will not start, or not be usable.
    Wrong {
        /// The problem.
        problem: String,
        /// The command or the setting that fixes it.
        fix: String,
    },
    /// The check could not be made.
    Unchecked {
        /// The reason.
        why: String,
        /// How a person can check it.
        fix: String,
    },
}

/// A check with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its subject, in a few words.
    pub what: String,
    /// Its result.
    pub outcome: Outcome,
}

impl Check {
    /// Creates a passed check.
    pub fn good(what: impl Into<String>, told: impl Into<String>) -> Self {
        Self { what: what.into(), outcome: Outcome::Good(told.into()) }
    }

    /// Creates a failed check, which a person must fix.
    pub fn wrong(what: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), outcome: Outcome::Wrong { problem: problem.into(), fix: fix.into() } }
    }

    /// Creates a check that could not be made.
    pub fn unchecked(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), outcome: Outcome::Unchecked { why: why.into(), fix: fix.into() } }
    }
}
